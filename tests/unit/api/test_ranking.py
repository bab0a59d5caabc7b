"""From hits and paths to one order; pages of it; what is added to it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cursors import ranking_cursor, ranking_of
from api.retrieval.intent import fused_ranks, joined_seeds, most_important
from api.retrieval.policy import DEFAULT_POLICY
from api.retrieval.query_terms import query_terms
from api.retrieval.ranking import (
    GRAPH_SHARES,
    SPREAD_WEIGHT,
    Pool,
    Ranked,
    diversified,
    in_turn,
    ranking,
    ranking_without_standings,
    with_proactive,
)
from consolidation.decay import DecayWeights
from pipelines.columns.tables import Array
from pipelines.graph.rows import Hit, SessionEvent, Signalled, StepEdge
from projections.errors import InvalidInput
from projections.schema import FOLLOWS
from tests.standings import Said, standings
from tests.steps import walk_asked, walked_over

WEIGHTS = DecayWeights(0.05, 0.05, 1.0)
IDS = st.uuids().map(str)
NODES = IDS | st.sampled_from(("entity", "summary", "community")).flatmap(
    lambda kind: st.binary(min_size=16, max_size=16).map(lambda own: f"{kind}:{own.hex()}")
)
RANKED = st.lists(
    st.builds(
        Ranked,
        NODES,
        st.floats(0, 1),
        st.floats(0, 1),
        st.none() | st.integers(0, 10),
        st.just(()),
        st.none(),
    ),
    max_size=40,
    unique_by=lambda one: one.node_id,
)


def own(number: int) -> str:
    return str(uuid.UUID(int=number))


def row(
    number: int,
    text: str,
    cosine: float | None = None,
    *,
    tool_name: str | None = None,
    **fields: object,
) -> Said:
    said = Said(own(number), "a", text, tool_name, cosine=cosine)
    return said._replace(**fields)  # type: ignore[arg-type]  # fields of it


def ranked_of(pool: Pool, rows: list[Said], query: str) -> list[Ranked]:
    terms = query_terms(query)
    return ranking(pool, standings(rows, terms), WEIGHTS, 0, terms=terms)


# seeds


def test_what_two_channels_find_comes_before_what_one_finds_first() -> None:
    assert list(fused_ranks([["a", "b"], ["b", "c"]])) == ["b", "a", "c"]
    assert max(fused_ranks([["a"], ["b"]]).values()) == 1.0
    assert fused_ranks([]) == {}


def test_seeds_keep_their_best_score() -> None:
    assert joined_seeds({"a": 0.5, "b": 0.2}, {"b": 0.9}) == {"b": 0.9, "a": 0.5}


def test_the_most_important_events_of_a_session_newest_first() -> None:
    events = [
        SessionEvent(str(number), number, importance, None, "a")
        for number, importance in enumerate([3, 9, 9, 1, 5, 7, 2])
    ]
    assert most_important(events) == ["2", "1", "5", "4", "0"]


# the ranking


def test_what_says_more_ranks_higher_and_what_is_led_to_is_not_lost() -> None:
    rows = [row(1, "payment failed today", 0.9), row(2, "rain", 0.0), row(3, "sun", 0.0)]
    pool = Pool(
        text={own(1): Hit(own(1), 3.0)},
        graph={own(1): 1.0, own(2): 0.9, "entity:0f": 0.5},
        depths={own(1): 0, own(2): 1, "entity:0f": 1},
    )
    found = ranked_of(pool, rows, "payment failed")
    assert next(iter(found)).node_id == own(1)
    by_id = {one.node_id: one for one in found}
    led = GRAPH_SHARES["intent_weighted"] * 0.9
    assert by_id[own(2)].relevance >= led / (1 + SPREAD_WEIGHT)
    assert by_id[own(2)].rank > by_id[own(3)].rank
    assert by_id[own(2)].found_by == ("graph",)
    assert by_id[own(1)].found_by == ("text",)
    assert all(0 <= one.relevance <= 1 for one in found)


def test_what_many_ways_lead_to_gains_where_nothing_beside_is_asked_for() -> None:
    rows = [row(1, "payment failed", 0.9), row(2, "payment failed", 0.9)]
    spread = {own(2): 1.0}
    assert ranked_of(Pool(spread=spread), rows, "payment failed")[0].node_id == own(2)
    asked = Pool(spread=spread, path_intents={"why": 1.0})
    assert ranked_of(asked, rows, "payment failed")[0].node_id == own(1)


def test_a_seed_without_edges_takes_nothing_from_the_others() -> None:
    edge = StepEdge(FOLLOWS.type, own(1), own(2), "", {"delta_ms": 0}, own(2), False, None)

    def spread(**seeds: float) -> dict[str, float]:
        found = walked_over([edge], walk_asked(seeds, {"when": 1.0}))
        ranks = zip(found.ids, found.spread.tolist(), strict=True)
        return {node_id: rank for node_id, rank in ranks if rank > 0}

    alone = spread(**{own(1): 0.5})
    assert alone[own(1)] == 1.0 > alone[own(2)] > 0
    assert spread(**{own(1): 0.5, "entity:nobody": 1.0}) == pytest.approx(alone)


def test_a_seed_that_the_question_names_counts_in_full() -> None:
    pool = Pool(graph={"entity:0f": 0.8, "entity:0e": 0.8}, depths={"entity:0f": 0, "entity:0e": 1})
    named, led_to = ranked_of(pool, [], "x")
    assert (named.node_id, led_to.node_id) == ("entity:0f", "entity:0e")
    assert named.found_by == ("entity",)


def test_without_rows_the_channels_ranks_decide() -> None:
    hits = {own(n): Hit(own(n), 1.0) for n in (1, 2)}
    near = {own(n): Hit(own(n), 1.0) for n in (2, 3)}
    found = ranking_without_standings(Pool(hits, near), WEIGHTS)
    assert next(iter(found)).node_id == own(2)
    assert {one.node_id for one in found} == {own(1), own(2), own(3)}


def test_channels_take_turns() -> None:
    hits = [[Hit(one, 1.0) for one in ids] for ids in ("abc", "bx")]
    assert in_turn(*hits) == ["a", "b", "x", "c"]


# pages


@given(RANKED, st.integers(0, 2**40))
def test_a_cursor_gives_back_the_rest(ranked: list[Ranked], now_ms: int) -> None:
    cursor = ranking_cursor(["q"], ranked, now_ms)
    if cursor is None:
        assert ranked == []
        return
    page, clock_ms = ranking_of(["q"], cursor)
    assert clock_ms == now_ms
    assert [one.node_id for one in page] == [one.node_id for one in ranked]
    assert [one.depth for one in page] == [one.depth for one in ranked]
    for found, one in zip(page, ranked, strict=True):
        assert found.rank == pytest.approx(one.rank, abs=1e-4)
        assert found.relevance == pytest.approx(one.relevance, abs=1e-4)


@given(st.text(max_size=80) | st.binary(max_size=80).map(bytes.hex))
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        ranking_of(["q"], text)


@given(RANKED.filter(bool), st.data())
def test_a_cursor_that_was_changed_is_refused(ranked: list[Ranked], data: st.DataObject) -> None:
    cursor = ranking_cursor(["q"], ranked, 0)
    assert cursor is not None
    place = data.draw(st.integers(0, len(cursor) - 2))
    other = "A" if cursor[place] != "A" else "B"
    with pytest.raises(InvalidInput):
        ranking_of(["q"], cursor[:place] + other + cursor[place + 1 :])
    with pytest.raises(InvalidInput):
        ranking_of(["other"], cursor)


# what nobody asked for


@given(RANKED, st.lists(IDS, max_size=30), st.integers(1, 50))
def test_what_nobody_asked_for_is_little_and_last(
    ranked: list[Ranked], ids: list[str], max_nodes: int
) -> None:
    ranked = sorted(ranked, key=lambda one: -one.rank)
    signalled = [Signalled(one, "entity_context", 0.9) for one in ids]
    found = with_proactive(ranked, signalled, max_nodes)
    page = found[:max_nodes]
    added = [one for one in page if one.signal is not None]
    assert len(added) <= DEFAULT_POLICY.proactive_share * max_nodes
    assert [one.rank for one in page] == sorted((one.rank for one in page), reverse=True)
    assert len({one.node_id for one in found}) == len(found)
    assert {one.node_id for one in ranked} <= {one.node_id for one in found}
    assert not {one.node_id for one in ranked[: max_nodes - len(added)]} & {
        one.node_id for one in added
    }


def test_what_was_shown_before_counts_half() -> None:
    signalled = [
        Signalled(own(1), "retrieval_history", 1.0),
        Signalled(own(2), "recurring_pattern", 0.6),
        Signalled(own(1), "entity_context", 0.1),
    ]
    first, second = with_proactive([], signalled, 10)
    assert (first.node_id, first.signal, first.relevance) == (own(2), "recurring_pattern", 0.6)
    assert (second.node_id, second.signal, second.relevance) == (own(1), "retrieval_history", 0.5)


# diversity


def test_what_says_the_same_steps_back() -> None:
    ranked = [Ranked(one, rank, rank) for one, rank in (("a", 1.0), ("b", 0.9), ("c", 0.8))]
    vectors = {"a": [1, 0], "b": [1, 0], "c": [0, 1]}

    def read(ids: Sequence[str]) -> Array:
        return numpy.array([vectors[one] for one in ids], dtype=numpy.float32)

    found = diversified(ranked, 0.5, read)
    assert [one.node_id for one in found] == ["a", "c", "b"]
    assert [one.node_id for one in diversified(ranked, 0.0, read)] == ["a", "b", "c"]
    ranks = [one.rank for one in found]
    assert ranks == sorted(ranks, reverse=True)
