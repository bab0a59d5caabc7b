"""Personalised PageRank over the part of the graph that a walk has read.

A random walker starts at the seeds, follows edges by their weights, and with a probability of
1 - damping goes back to a seed; how often it is somewhere is the score (S0, HippoRAG).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

DAMPING: Final = 0.85
MAX_ITERATIONS: Final = 50
TOLERANCE: Final = 1e-8


class WeightedEdge(NamedTuple):
    """An edge, read as undirected; `weight` ≥ 0."""

    a: str
    b: str
    weight: float


def personalised_pagerank(
    seeds: Mapping[str, float],
    edges: Iterable[WeightedEdge],
    *,
    damping: float = DAMPING,
    max_iterations: int = MAX_ITERATIONS,
) -> dict[str, float]:
    """Scores that sum to 1, by node id; empty without a seed above 0.

    Args:
        seeds: how likely a walk starts there, scaled to sum to 1; negative ones count 0.
        edges: parallel ones add up; loops count nothing.
        damping: probability to go on along an edge, 0 to below 1.
        max_iterations: of the power iteration, which ends earlier when nothing moves.
    """
    total = sum(max(0.0, score) for score in seeds.values())
    if total <= 0:
        return {}
    start = {own_id: score / total for own_id, score in seeds.items() if score > 0}
    neighbours = _neighbours(edges)
    scores = dict(start)
    for _ in range(max_iterations):
        following = {own_id: (1 - damping) * share for own_id, share in start.items()}
        stranded = 0.0
        for here, score in scores.items():
            around = neighbours.get(here)
            if not around:
                stranded += score  # nowhere to go: back to the seeds
                continue
            for there, share in around:
                following[there] = following.get(there, 0.0) + damping * score * share
        for own_id, share in start.items():
            following[own_id] += damping * stranded * share
        moved = sum(abs(following.get(n, 0.0) - scores.get(n, 0.0)) for n in {*following, *scores})
        scores = following
        if moved < TOLERANCE:
            break
    return scores


def _neighbours(edges: Iterable[WeightedEdge]) -> dict[str, list[tuple[str, float]]]:
    """By node id: what is around it, and with which probability the next step leads there."""
    weights: dict[str, dict[str, float]] = {}
    for edge in sorted(edges):
        if edge.a == edge.b or edge.weight <= 0:
            continue
        for here, there in ((edge.a, edge.b), (edge.b, edge.a)):
            around = weights.setdefault(here, {})
            around[there] = around.get(there, 0.0) + edge.weight
    return {
        here: [(there, weight / sum(around.values())) for there, weight in around.items()]
        for here, around in weights.items()
    }
