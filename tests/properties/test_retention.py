"""What forgetting never does, whatever the events, their causes and their order."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from consolidation.decay import DAY_MS
from consolidation.forgetting import SimilarEdge, similar_departures
from consolidation.retention import (
    DEFAULT_POLICY,
    Judging,
    RetainedEvent,
    RetentionPolicy,
    Tier,
    departures,
    tier_of,
    verdicts,
)
from tests.factories import START_MS, event_id

NOW_MS = START_MS + 60 * DAY_MS
SUMMARIES = (None, "0a" * 16, "0b" * 16)

policies = st.builds(
    RetentionPolicy,
    enabled=st.sampled_from([True, True, True, False]),
    cold_min_importance=st.integers(0, 11),
    cold_min_accesses=st.integers(0, 4),
    protected_in_degree=st.integers(1, 4),
)


@st.composite
def graphs(draw: st.DrawFn, max_size: int = 12) -> list[RetainedEvent]:
    """Events with the in-degrees that their causes give, cycles included, and effects elsewhere."""
    size = draw(st.integers(0, max_size))
    pairs = st.tuples(st.integers(1, size), st.integers(1, size)).filter(lambda p: p[0] != p[1])
    edges = draw(st.sets(pairs, max_size=4 * size)) if size > 1 else set()
    made = []
    for number in range(1, size + 1):
        ages = st.integers(0, 90).map(lambda days: NOW_MS - days * DAY_MS)
        elsewhere = draw(st.sampled_from([0, 0, 0, 1, 2]))
        made.append(
            RetainedEvent(
                event_id(number),
                draw(ages),
                draw(ages),
                draw(st.none() | ages),
                access_count=draw(st.integers(0, 4)),
                importance=draw(st.integers(1, 10)),
                boost=draw(st.sampled_from([0.0, 0.5, 3.0])),
                causal_in_degree=elsewhere + sum(cause == number for _, cause in edges),
                causes=tuple(event_id(cause) for effect, cause in edges if effect == number),
                summary_id=draw(st.sampled_from(SUMMARIES)),
            )
        )
    return made


def applied(events: Iterable[RetainedEvent], gone: set[str]) -> list[RetainedEvent]:
    """The graph after the departures: their edges went with them."""
    given = list(events)
    lost = {
        one.event_id: sum(one.event_id in other.causes for other in given if other.event_id in gone)
        for one in given
    }
    return [
        one._replace(
            causal_in_degree=one.causal_in_degree - lost[one.event_id],
            causes=tuple(cause for cause in one.causes if cause not in gone),
        )
        for one in given
        if one.event_id not in gone
    ]


@given(graphs(), policies, st.integers(1, 5))
def test_verdicts_on_pages_are_those_on_all_at_once(
    events: list[RetainedEvent], policy: RetentionPolicy, page: int
) -> None:
    hubs = {e.event_id for e in events if e.causal_in_degree >= policy.protected_in_degree}
    read = [one._replace(causes=tuple(c for c in one.causes if c in hubs)) for one in events]
    judging = Judging(policy, NOW_MS)
    judged = [v for n in range(0, len(read), page) for v in judging.judge(read[n : n + page])]
    assert sorted([*judged, *judging.rest()]) == verdicts(events, policy, NOW_MS)


def ids(events: Iterable[RetainedEvent], policy: RetentionPolicy) -> set[str]:
    return {one.event_id for one in departures(verdicts(list(events), policy, NOW_MS))}


@given(graphs(), policies)
def test_without_a_summary_nothing_goes(
    events: list[RetainedEvent], policy: RetentionPolicy
) -> None:
    assert ids([one._replace(summary_id=None) for one in events], policy) == set()


@given(graphs(), policies)
def test_what_goes_is_listed_by_the_summary_it_names(
    events: list[RetainedEvent], policy: RetentionPolicy
) -> None:
    summaries = {one.event_id: one.summary_id for one in events}
    for one in departures(verdicts(events, policy, NOW_MS)):
        assert one.summary_id == summaries[one.event_id]


@given(graphs(), policies)
def test_a_summary_alone_makes_nothing_stay(
    events: list[RetainedEvent], policy: RetentionPolicy
) -> None:
    summarised = [one._replace(summary_id="0a" * 16) for one in events]
    assert ids(events, policy) <= ids(summarised, policy)


@given(graphs(), policies)
def test_causes_of_enough_retained_events_stay(
    events: list[RetainedEvent], policy: RetentionPolicy
) -> None:
    gone = ids(events, policy)
    for one in events:
        leaving = sum(one.event_id in other.causes for other in events if other.event_id in gone)
        if one.causal_in_degree - leaving >= policy.protected_in_degree:
            assert one.event_id not in gone


@given(graphs(), policies)
def test_deciding_again_after_applying_decides_nothing_more(
    events: list[RetainedEvent], policy: RetentionPolicy
) -> None:
    assert ids(applied(events, ids(events, policy)), policy) == set()


@given(graphs(), policies, st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(  # type: ignore[no-untyped-def]  # Hypothesis's Random
    events: list[RetainedEvent], policy: RetentionPolicy, random
) -> None:
    shuffled = random.sample(events, len(events))
    assert verdicts(shuffled, policy, NOW_MS) == verdicts(events, policy, NOW_MS)
    assert departures(verdicts(shuffled, policy, NOW_MS)) == departures(
        verdicts(events, policy, NOW_MS)
    )


@given(graphs(), policies)
def test_hot_and_warm_events_stay_and_cold_ones_that_matter(
    events: list[RetainedEvent], policy: RetentionPolicy
) -> None:
    for one in verdicts(events, policy, NOW_MS):
        if one.leaves:
            event = next(made for made in events if made.event_id == one.event_id)
            matters = (
                event.shown_importance >= policy.cold_min_importance
                or event.access_count >= policy.cold_min_accesses
            )
            assert one.tier is Tier.ARCHIVE or (one.tier is Tier.COLD and not matters)


@given(graphs(), policies)
def test_switched_off_nothing_goes(events: list[RetainedEvent], policy: RetentionPolicy) -> None:
    assert ids(events, policy.with_overrides({"enabled": False})) == set()


moments = st.integers(0, 90 * DAY_MS).map(START_MS.__add__)


@given(moments, moments, st.none() | moments, moments, moments)
def test_nothing_grows_younger_by_waiting(
    occurred: int, arrived: int, accessed: int | None, one: int, other: int
) -> None:
    """After the arrival; before it, the clock is that of the history."""
    clocks = sorted(max(clock, arrived) for clock in (one, other))
    tiers = [list(Tier).index(tier_of(now, occurred, arrived, accessed)) for now in clocks]
    assert tiers == sorted(tiers)


# -- similar pairs ---------------------------------------------------------------------------------

pairs = st.tuples(st.integers(1, 9), st.integers(1, 9)).filter(lambda pair: pair[0] < pair[1])
similar_graphs = st.dictionaries(
    pairs, st.tuples(st.sampled_from([0.6, 0.86, 0.9, 0.95]), st.booleans()), max_size=30
).map(
    lambda found: [
        SimilarEdge(event_id(a), event_id(b), score, hot) for (a, b), (score, hot) in found.items()
    ]
)


def kept(edges: list[SimilarEdge]) -> list[SimilarEdge]:
    gone = set(similar_departures(edges, DEFAULT_POLICY))
    return [edge for edge in edges if (edge.first, edge.second) not in gone]


@given(similar_graphs)
def test_every_event_keeps_its_best_similar_ones(edges: list[SimilarEdge]) -> None:
    left = kept(edges)
    for number in range(1, 10):
        key = event_id(number)
        had, has = (
            sorted((e.score for e in some if key in (e.first, e.second)), reverse=True)
            for some in (edges, left)
        )
        best = [score for score in had[:3] if score >= DEFAULT_POLICY.similar_score]
        assert has[: len(best)] == best


@given(similar_graphs)
def test_what_is_beyond_the_best_of_both_goes(edges: list[SimilarEdge]) -> None:
    for edge in kept(edges):
        better = [
            sum(other.score > edge.score for other in edges if key in (other.first, other.second))
            for key in (edge.first, edge.second)
        ]
        assert edge.hot or min(better) < 3


@given(similar_graphs, st.randoms(use_true_random=False))
def test_similar_pairs_are_settled_at_once_in_any_order(edges: list[SimilarEdge], random) -> None:  # type: ignore[no-untyped-def]  # Hypothesis's Random
    shuffled = random.sample(edges, len(edges))
    assert similar_departures(shuffled, DEFAULT_POLICY) == similar_departures(edges, DEFAULT_POLICY)
    assert similar_departures(kept(edges), DEFAULT_POLICY) == []
