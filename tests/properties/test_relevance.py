"""What holds of relevance whatever the pool: bounds, order, each channel for itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from api.retrieval.query_terms import QueryTerms, query_terms
from api.retrieval.relevance import relevance as relevance_of
from tests.standings import Said, standings

WORDS = ("lamp", "lamps", "tree", "trees", "river", "asks", "what?", "bob")
QUERIES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
COSINES = st.none() | st.floats(-1, 1)


@st.composite
def pools(draw: st.DrawFn) -> list[Said]:
    """Passages in sessions, some of whose neighbours are not in the pool."""
    count = draw(st.integers(1, 12))
    previous = draw(
        st.permutations([f"e{n}" for n in range(count)]).map(
            lambda ids: dict(zip(ids[1:], ids, strict=False))
        )
    )
    return [
        Said(
            f"e{n}",
            draw(st.sampled_from(("ann", "bob", None))),
            draw(TEXTS),
            previous_id=draw(st.sampled_from((previous.get(f"e{n}"), None, "elsewhere"))),
            cosine=draw(COSINES),
        )
        for n in range(count)
    ]


def relevance(terms: QueryTerms, said: list[Said]) -> dict[str, float]:
    """Relevance of events, by id."""
    scores = relevance_of(terms, standings(said, terms)).tolist()
    return dict(zip([one.event_id for one in said], scores, strict=True))


@given(pools(), QUERIES)
def test_scores_lie_between_0_and_1_and_the_best_has_1(pool: list[Said], query: str) -> None:
    scores = list(relevance(query_terms(query, ["bob"]), pool).values())
    assert len(scores) == len(pool)
    assert max(scores) == 1.0
    assert min(scores) > 0.0


@given(pools(), QUERIES, st.randoms(use_true_random=False))
def test_the_order_of_the_pool_does_not_matter(pool: list[Said], query: str, rng: object) -> None:
    terms = query_terms(query, ["bob"])
    shuffled = list(pool)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random
    before, after = relevance(terms, pool), relevance(terms, shuffled)
    assert {k: round(v, 9) for k, v in before.items()} == {k: round(v, 9) for k, v in after.items()}


@given(pools(), QUERIES, st.data())
def test_a_higher_cosine_never_costs_a_place(
    pool: list[Said], query: str, data: st.DataObject
) -> None:
    terms = query_terms(query)
    pool = [one._replace(cosine=one.cosine or 0.0) for one in pool]
    place = data.draw(st.integers(0, len(pool) - 1))
    raised = list(pool)
    cosine = pool[place].cosine or 0.0
    raised[place] = pool[place]._replace(cosine=data.draw(st.floats(cosine, 1)))
    assert _behind(terms, raised, place) >= _behind(terms, pool, place)


@given(pools(), QUERIES, st.data())
def test_being_said_by_who_is_named_never_costs_a_place(
    pool: list[Said], query: str, data: st.DataObject
) -> None:
    terms = query_terms(f"{query} Bob", ["bob"])
    place = data.draw(st.integers(0, len(pool) - 1))
    theirs = list(pool)
    theirs[place] = pool[place]._replace(author="bob")
    assert _behind(terms, theirs, place) >= _behind(terms, pool, place)


@given(pools(), QUERIES)
def test_a_channel_that_is_away_leaves_the_order_of_the_others(
    pool: list[Said], query: str
) -> None:
    terms = query_terms(query, ["bob"])
    away = relevance(terms, [one._replace(cosine=None) for one in pool])
    same = relevance(terms, [one._replace(cosine=0.5) for one in pool])
    assert {k: round(v, 9) for k, v in away.items()} == {k: round(v, 9) for k, v in same.items()}


def _behind(terms: QueryTerms, pool: list[Said], place: int) -> set[str]:
    """Who scores clearly less than a passage."""
    found = relevance(terms, pool)
    own = found[pool[place].event_id]
    return {event_id for event_id, score in found.items() if score < own * (1 - 1e-9)}
