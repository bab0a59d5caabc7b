"""Scores of a recall of facts: hops, decay, boosts, one fact of each kind, PRISM's cost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.retrieval.facts import (
    FactWalk,
    RecalledFact,
    confidence_of,
    edge_cost,
    hop_distances,
    recalled,
    with_decay,
)
from api.retrieval.intent import Seed
from consolidation.decay import DAY_MS, effective_confidence
from pipelines.graph.reads.facts import FactFilter
from pipelines.graph.rows import FactEnd, FactRow
from tests.factories import NOW_MS, event_id

numbers = st.floats(0, 1)


def end(name: str) -> FactEnd:
    return FactEnd(name, name.upper(), "concept", None)


def row(source: str, target: str, **fields: Any) -> FactRow:
    properties = {
        "relation": "knows",
        "edge_type": "semantic",
        "valid_from": NOW_MS,
        "event_id": event_id(1),
        "confidence": 1.0,
        **fields,
    }
    return FactRow(end(source), end(target), properties)


def walked(*rows: FactRow, **same: str) -> FactWalk:
    """A walk that is done; `same` names the canonical id of others."""
    walk = FactWalk(wanted=FactFilter(NOW_MS), max_depth=3)
    walk.facts.update((one.key, one) for one in rows)
    walk.canonical.update(same)
    return walk


def seed(name: str, score: float = 1.0) -> Seed:
    return Seed(name, name, score, 0.0, score)


def scores(walk: FactWalk, *seeds: Seed) -> list[tuple[str, str, float]]:
    found = recall(walk, *seeds)
    return [(f.source.entity_id, f.target.entity_id, round(f.scores.score, 6)) for f in found]


def recall(walk: FactWalk, *seeds: Seed, limit: int = 100) -> list[RecalledFact]:
    return recalled(walk, seeds, now_ms=NOW_MS, decay_rate=0.01, limit=limit)


def test_hops_are_counted_without_direction() -> None:
    links = walked(row("b", "a"), row("b", "c"), row("d", "c"), row("x", "y")).links()
    assert hop_distances(["a"], links) == {"a": {"a": 0, "b": 1, "c": 2, "d": 3}}


ends = st.sampled_from("abcdefg")


@given(st.lists(st.tuples(ends, ends), max_size=15))
def test_a_hop_distance_is_the_shortest_undirected_path(pairs: list[tuple[str, str]]) -> None:
    links = [(one, other, row(one, other)) for one, other in pairs]
    expected = {(one, one): 0 for one in "abcdefg"}
    for _ in range(7):
        for (one, other), (here, hop) in itertools.product(pairs, list(expected.items())):
            for a, b in ((one, other), (other, one)):
                if here[1] == a:
                    place = (here[0], b)
                    expected[place] = min(hop + 1, expected.get(place, hop + 1))
    found = hop_distances("abcdefg", links)
    assert {(a, b): hop for a, known in found.items() for b, hop in known.items()} == expected


def test_the_composite_score_is_match_by_hop_by_confidence() -> None:
    walk = walked(row("a", "b", confidence=0.8), row("b", "c", confidence=0.5))
    first, second = recall(walk, seed("a", 0.9))
    assert [(f.scores.hop, f.scores.match) for f in (first, second)] == [(0, 0.9), (1, 0.9)]
    assert [f.scores.composite for f in (first, second)] == pytest.approx([0.72, 0.9 / 2 * 0.5])


def test_a_fact_scores_by_the_seed_that_gives_it_most() -> None:
    walk = walked(row("a", "b"), row("b", "c"))
    found = recall(walk, seed("a", 1.0), seed("c", 0.2))
    assert [(f.scores.match, f.scores.hop) for f in found] == [(1.0, 0), (1.0, 1)]


def test_what_no_seed_reaches_is_left_out() -> None:
    assert scores(walked(row("x", "y")), seed("a")) == []


def test_recent_facts_count_up_to_twice() -> None:
    walk = walked(row("a", "b"), row("a", "c", valid_from=NOW_MS - 100 * DAY_MS))
    assert scores(walk, seed("a")) == [("a", "b", 2.0), ("a", "c", 1.5)]


@given(st.floats(0, 1), st.floats(-1e3, 1e5), st.floats(0, 1))
def test_decay_adds_at_most_the_base_and_takes_nothing(
    base: float, age_days: float, rate: float
) -> None:
    assert base <= with_decay(base, age_days, rate) <= 2 * base


def test_retrievals_raise_a_confidence_and_their_absence_changes_nothing() -> None:
    assert confidence_of({"confidence": 0.5}, NOW_MS) == 0.5
    counted = {"confidence": 0.5, "retrieval_count": 3.0, "last_retrieved_at": NOW_MS}
    assert confidence_of(counted, NOW_MS) == effective_confidence(0.5, 3.0)
    assert confidence_of({**counted, "confidence": 0.99}, NOW_MS) == 1.0


def test_of_one_entity_relation_and_target_the_best_stays_with_all_sources() -> None:
    walk = walked(
        row("a", "b", confidence=0.4),
        row("a2", "b", confidence=0.9, event_id=event_id(2), supporting_event_ids=[event_id(3)]),
        a2="a",
    )
    (found,) = recall(walk, seed("a"))
    assert found.scores.confidence == 0.9
    assert (found.source.entity_id, found.source.name) == ("a", "A2")
    assert found.sources == (event_id(2), event_id(3), event_id(1))


def test_the_same_relation_of_two_types_is_one_fact() -> None:
    walk = walked(row("a", "b"), row("a", "b", edge_type="causal", event_id=event_id(2)))
    assert len(recall(walk, seed("a"))) == 1


@given(numbers, st.floats(-1, 1))
def test_the_cost_of_an_edge_is_never_nothing(confidence: float, cosine: float) -> None:
    assert 0.01 <= edge_cost(confidence, cosine) <= 2.0
    assert edge_cost(confidence, None) == max(0.01, 1 - confidence)


def test_the_cheaper_path_breaks_a_tie() -> None:
    walk = walked(row("a", "b"), row("a", "c", event_id=event_id(2)))
    walk.costs.update({"a": 0.0, "b": 0.9, "c": 0.1})
    assert [found.target.entity_id for found in recall(walk, seed("a"))] == ["c", "b"]


def test_as_many_as_asked_for() -> None:
    walk = walked(*(row("a", f"t{n}") for n in range(9)))
    assert len(recall(walk, seed("a"), limit=4)) == 4
