"""Scores over a graph in memory: edges, best paths, personalised PageRank, spreading activation.

Pure: edges come in, scores by node id come out. PageRank (S0, HippoRAG): a random walker starts at
the seeds, follows edges by their weights, and with a probability of 1 - damping goes back to a
seed; how often it is somewhere is the score. Activation (SYNAPSE, S2) is what the seeds light up
hop by hop; edges may be given all at once (`activation`) or as they are read (`Activation`):

    spread = activation · decay_lambda · confidence · recency     (SA-INV-02)

Time is the caller's: nothing here waits (SA-INV-07).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy

from api.retrieval.intent import Intent
from consolidation.decay import HOUR_MS
from pipelines.graph.rows import StepEdge
from projections.schema import (
    CAUSED_BY,
    FOLLOWS,
    MAX_WEIGHT,
    REFERENCES,
    RELATES_TO,
    SIMILAR_TO,
)

NEARNESS_SCALE_MS = HOUR_MS
MIN_NEARNESS = 0.1


def edge_quality(properties: Mapping[str, Any]) -> float:
    """How far an edge is to be trusted, 0 to 1, from what it says about itself.

    Its confidence (inferred causes, facts) or cosine (similarity); the nearness in time of two
    events that follow each other, never below 0.1; 1 for what is simply so.
    """
    for name in ("confidence", "score"):
        value = properties.get(name)
        if value is not None:
            return min(1.0, max(0.0, float(value)))
    delta_ms = properties.get("delta_ms")
    if delta_ms is not None:
        return max(MIN_NEARNESS, math.exp(-delta_ms / NEARNESS_SCALE_MS))
    return 1.0


# A fact weighs as the view that it belongs to.
_VIEWS: Final = {
    "causal": CAUSED_BY.type,
    "temporal": FOLLOWS.type,
    "semantic": SIMILAR_TO.type,
    "entity": REFERENCES.type,
}


Ways = dict[str, list[tuple[str, float]]]
"""By wire id what can be reached over one edge, and what passes it, 0 to 1."""


def edge_weight(edge: StepEdge, weights: Mapping[str, float]) -> float:
    """What an edge lets through, 0 to 1: weight / 5 times its quality.

    Args:
        edge: that was met.
        weights: of the edge types for an intent, 0 to 5.
    """
    type_ = _VIEWS.get(edge.view, edge.type) if edge.type == RELATES_TO.type else edge.type
    return weights[type_] / MAX_WEIGHT * edge_quality(edge.properties)


def blended_weight(
    edge: StepEdge, intents: Mapping[Intent, float], weights: Mapping[str, Mapping[str, float]]
) -> float:
    """The same for several intents at once: their mean by confidence."""
    total = sum(intents.values())
    return (
        sum(edge_weight(edge, weights[intent]) * value for intent, value in intents.items()) / total
    )


def ways_of(
    edges: Iterable[StepEdge],
    weights: Mapping[str, float],
    *,
    hop_share: float = 1.0,
    others: Ways | None = None,
) -> Ways:
    """Where edges lead, both ways; from what is closed (a literal value) nothing leads on.

    Args:
        edges: that were met.
        weights: of the edge types, 0 to 5.
        hop_share: what passes an edge beside its weight.
        others: ways of other edges; these are added to them.
    """
    ways = {} if others is None else others
    for edge in edges:
        weight = edge_weight(edge, weights) * hop_share
        if weight > 0:
            for here, there in ((edge.source, edge.target), (edge.target, edge.source)):
                if not edge.closed or here != edge.reached:
                    ways.setdefault(here, []).append((there, weight))
    return ways


def path_scores(seeds: Mapping[str, float], ways: Ways, max_depth: int) -> dict[str, float]:
    """Seed score times the product of weights along the best path of at most `max_depth` edges.

    Args:
        seeds: by wire id, 0 to 1.
        ways: that paths may take.
        max_depth: edges of a path, at most.
    """
    best = dict(seeds)
    changed: Iterable[str] = list(best)
    for _ in range(max_depth):
        improved: dict[str, float] = {}
        for here in changed:
            reached = best[here]
            for there, weight in ways.get(here, ()):
                score = reached * weight
                if score > best.get(there, 0.0) and score > improved.get(there, 0.0):
                    improved[there] = score
        if not improved:
            break
        best.update(improved)
        changed = improved
    return best


def blended_scores(
    scores: Mapping[Intent, Mapping[str, float]],
    intents: Mapping[Intent, float],
    others_share: float,
) -> dict[str, float]:
    """The best intent's score, weighted by its confidence, and a share of what the others add."""
    weighted: dict[str, list[float]] = {}
    for intent, by_node in scores.items():
        for node_id, score in by_node.items():
            weighted.setdefault(node_id, []).append(score * intents[intent])
    return {
        node_id: max(values) + others_share * (sum(values) - max(values))
        for node_id, values in weighted.items()
    }


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
    walked = [edge for edge in sorted(edges) if edge.a != edge.b and edge.weight > 0]
    places = _places(seeds, walked)
    here = numpy.array(
        [places[end] for edge in walked for end in (edge.a, edge.b)], dtype=numpy.intp
    )
    there = here.reshape(-1, 2)[:, ::-1].reshape(-1)
    weights = numpy.repeat(numpy.array([edge.weight for edge in walked], dtype=numpy.float64), 2)
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
    ends = (end for edge in edges for end in (edge.a, edge.b))
    return {own_id: place for place, own_id in enumerate(dict.fromkeys([*seeds, *ends]))}


EDGES_AT_ONCE: Final = 490
"""Ids of one question for edges (SA-INV-09)."""


class Link(NamedTuple):
    """An edge, read as undirected.

    Attributes:
        confidence: 0 to 1; how much of an activation passes.
        age_days: of what it says; the future counts as now.
    """

    a: str
    b: str
    confidence: float = 1.0
    age_days: float = 0.0


class ActivationConfig(NamedTuple):
    """S2's parameters, by its names."""

    decay_lambda: float = 0.85
    max_hops: int = 3
    activation_threshold: float = 0.1
    inhibition_threshold: float = 0.8
    max_activated_nodes: int = 50
    temporal_decay_rate: float = 0.01


def recency_weight(age_days: float, temporal_decay_rate: float) -> float:
    """1 / (1 + age · rate), as the temporal decay of facts has it (SA-INV-05)."""
    return 1.0 / (1.0 + max(0.0, age_days) * temporal_decay_rate)


class Activation:
    """Activations as they spread, from 0 to 1 (SA-INV-06).

    Args:
        seeds: by id; those below the threshold are skipped (SA-INV-01). Those that are kept spread
            in the first hop whatever their score, and stay.
        config: how far and how much.
    """

    def __init__(self, seeds: Mapping[str, float], config: ActivationConfig) -> None:
        self.config = config
        self.hops = 0
        self.scores: dict[str, float] = {
            own_id: min(1.0, score)
            for own_id, score in seeds.items()
            if score >= config.activation_threshold
        }
        self._prune()

    def active(self) -> list[str]:
        """The ids that spread in the next hop, sorted; none after the last hop."""
        if self.hops >= self.config.max_hops:
            return []
        least = self.config.activation_threshold
        return sorted(own_id for own_id, score in self.scores.items() if score >= least)

    def spread(self, links: Iterable[Link]) -> None:
        """One hop along the edges around the active nodes."""
        config, before = self.config, self.scores
        following: dict[str, float] = {}
        active = set(self.active())
        self.hops += 1
        for link in sorted(set(links)):
            passed = link.confidence * recency_weight(link.age_days, config.temporal_decay_rate)
            for here, there in ((link.a, link.b), (link.b, link.a)):
                if here not in active or here == there:
                    continue
                # Inhibited by what it had, or by what this hop has brought already (SA-INV-03).
                had = max(before.get(there, 0.0), following.get(there, 0.0))
                if had >= config.inhibition_threshold:
                    continue
                spread = before[here] * config.decay_lambda * passed
                if spread > 0:
                    old = following.get(there, before.get(there, 0.0))
                    following[there] = min(1.0, old + spread)
        self.scores = {**before, **following}
        self._prune()

    def activated(self) -> dict[str, float]:
        """Ids at or above the threshold with their activation, the most active first."""
        return dict(self._ordered())

    def _ordered(self) -> list[tuple[str, float]]:
        least = self.config.activation_threshold
        active = (item for item in self.scores.items() if item[1] >= least)
        return sorted(active, key=lambda item: (-item[1], item[0]))

    def _prune(self) -> None:
        """Never more nodes than allowed: the most active ones stay (SA-INV-04)."""
        if len(self.scores) > self.config.max_activated_nodes:
            ordered = sorted(self.scores.items(), key=lambda item: (-item[1], item[0]))
            self.scores = dict(ordered[: self.config.max_activated_nodes])


def activation(
    seeds: Mapping[str, float], links: Iterable[Link], config: ActivationConfig
) -> dict[str, float]:
    """What is active after all hops, the most active first; see `Activation`."""
    all_links = list(links)
    spreading = Activation(seeds, config)
    while spreading.active():
        before = spreading.scores
        spreading.spread(all_links)
        if spreading.scores == before:
            break
    return spreading.activated()
