"""SIMILAR_TO from candidates: best pairs first, never beyond the cap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from enrichment.similarity import (
    CAP,
    THRESHOLD,
    Pair,
    pair,
    pairs_within,
    similar_edges,
)
from projections.operations import MergeEdge, RemoveEdge
from projections.schema import SIMILAR_TO


def test_a_pair_has_one_order() -> None:
    assert pair("t", "b", "a", 0.9) == pair("t", "a", "b", 0.9) == Pair("t", "a", "b", 0.9)


def similar(score: float) -> MergeEdge:
    return MergeEdge(
        type=SIMILAR_TO.type, source=("t", "a"), target=("t", "b"), values={"score": score}
    )


def test_a_pair_above_the_threshold_becomes_an_edge_with_the_cosine() -> None:
    assert similar_edges([Pair("t", "a", "b", 0.91)], {}) == [similar(0.91)]


def test_the_threshold_itself_is_not_alike() -> None:
    assert similar_edges([Pair("t", "a", "b", THRESHOLD)], {}) == []


def test_an_edge_that_is_there_is_left_alone() -> None:
    existing = {("t", "a"): {"b": 0.91}, ("t", "b"): {"a": 0.91}}
    assert similar_edges([Pair("t", "a", "b", 0.91)], existing) == []


def full(score: float) -> dict[tuple[str, str], dict[str, float]]:
    """An event `a` that has its fill of neighbours."""
    others = [f"n{n}" for n in range(CAP)]
    return {("t", "a"): dict.fromkeys(others, score)} | {
        ("t", other): {"a": score} for other in others
    }


def test_a_better_neighbour_takes_the_place_of_the_weakest() -> None:
    assert similar_edges([Pair("t", "a", "b", 0.95)], full(0.9)) == [
        RemoveEdge(type=SIMILAR_TO.type, source=("t", "a"), target=("t", "n0")),
        similar(0.95),
    ]


def test_a_worse_one_does_not() -> None:
    assert similar_edges([Pair("t", "a", "b", 0.89)], full(0.9)) == []


def test_vectors_of_other_tenants_are_not_compared() -> None:
    vector = np.eye(1, 384, dtype="<f4").tobytes()
    assert pairs_within({("t", "a"): vector, ("u", "b"): vector}) == []
    assert pairs_within({("t", "b"): vector, ("t", "a"): vector}) == [Pair("t", "a", "b", 1.0)]


@given(
    st.lists(
        st.tuples(st.integers(0, 14), st.integers(0, 14), st.floats(0.8, 1.0)),
        max_size=150,
    ),
    st.integers(1, 10),
)
def test_no_event_ever_has_more_than_the_cap(
    candidates: list[tuple[int, int, float]], parts: int
) -> None:
    edges: dict[tuple[str, str], dict[str, float]] = {}
    for part in range(parts):
        pairs = [
            pair("t", f"e{a:02}", f"e{b:02}", score) for a, b, score in candidates[part::parts]
        ]
        for operation in similar_edges(pairs, edges):
            one, other = operation.source, operation.target  # type: ignore[union-attr]
            if isinstance(operation, RemoveEdge):
                del edges[one][other[1]], edges[other][one[1]]
            else:
                assert isinstance(operation, MergeEdge)
                assert one < other
                edges.setdefault(one, {})[other[1]] = operation.values["score"]
                edges.setdefault(other, {})[one[1]] = operation.values["score"]
        assert all(len(others) <= CAP for others in edges.values())
    assert all(score > THRESHOLD for others in edges.values() for score in others.values())
