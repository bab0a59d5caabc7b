"""Personalised PageRank over the part of the graph that a walk has read.

A random walker starts at the seeds, follows edges by their weights, and with a probability of
1 - damping goes back to a seed; how often it is somewhere is the score (S0, HippoRAG).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy

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
    walked = [one for one in sorted(edges) if one.a != one.b and one.weight > 0]
    places = _places(seeds, walked)
    here = numpy.array([places[end] for one in walked for end in (one.a, one.b)], dtype=numpy.intp)
    there = here.reshape(-1, 2)[:, ::-1].reshape(-1)
    weights = numpy.repeat(numpy.array([one.weight for one in walked], dtype=numpy.float64), 2)
    start = numpy.zeros(len(places))
    for own_id, score in seeds.items():
        start[places[own_id]] = max(0.0, score) / total
    out = numpy.bincount(here, weights, minlength=len(places))
    shares = weights / out[here]
    scores = start
    for _ in range(max_iterations):
        passed = numpy.bincount(there, scores[here] * shares, minlength=len(places))
        stranded = scores[out == 0].sum()  # nowhere to go: back to the seeds
        following = (1 - damping + damping * stranded) * start + damping * passed
        moved = float(numpy.abs(following - scores).sum())
        scores = following
        if moved < TOLERANCE:
            break
    return {own_id: float(scores[place]) for own_id, place in places.items() if scores[place] > 0}


def _places(seeds: Iterable[str], edges: Iterable[WeightedEdge]) -> dict[str, int]:
    """A number for each node."""
    ends = (end for one in edges for end in (one.a, one.b))
    return {own_id: place for place, own_id in enumerate(dict.fromkeys([*seeds, *ends]))}
