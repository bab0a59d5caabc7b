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
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy

from consolidation.decay import HOUR_MS
from pipelines.columns.records import TYPE_NUMBERS, TYPES, VIEWS, Array
from projections.schema import (
    CAUSED_BY,
    FOLLOWS,
    MAX_WEIGHT,
    REFERENCES,
    RELATES_TO,
    SIMILAR_TO,
)

NEARNESS_SCALE_MS: Final = HOUR_MS
MIN_NEARNESS: Final = 0.1


def nearness(delta_ms: Array) -> Array:
    """How near two events are that follow each other so many milliseconds apart, 0.1 to 1."""
    return numpy.maximum(MIN_NEARNESS, numpy.exp(-delta_ms / NEARNESS_SCALE_MS))


def trusted(quality: Array, is_delay: Array) -> Array:
    """How far edges are to be trusted, 0 to 1, from what they say about themselves.

    Their confidence (inferred causes, facts) or cosine (similarity); the nearness in time of two
    events that follow each other; 1 for what is simply so.

    Args:
        quality: confidence, cosine or milliseconds; NaN: it says nothing.
        is_delay: whether it is milliseconds.
    """
    sure = numpy.where(is_delay, nearness(quality), numpy.clip(quality, 0.0, 1.0))
    return numpy.where(numpy.isnan(quality), 1.0, sure)


def edge_qualities(properties: Iterable[Mapping[str, Any]]) -> Array:
    """The same of edges whose properties were read."""
    told = [_quality(prop) for prop in properties]
    quality, is_delay = zip(*told, strict=True) if told else ((), ())
    return trusted(numpy.array(quality, "f8"), numpy.array(is_delay, "?"))


def _quality(properties: Mapping[str, Any]) -> tuple[float, bool]:
    value = properties.get("confidence")
    if value is None:
        value = properties.get("score")
    if value is not None:
        return float(value), False
    delta_ms = properties.get("delta_ms")
    return (math.nan, False) if delta_ms is None else (float(delta_ms), True)


# A fact weighs as the view that it belongs to.
_VIEWS: Final = {
    "causal": CAUSED_BY.type,
    "temporal": FOLLOWS.type,
    "semantic": SIMILAR_TO.type,
    "entity": REFERENCES.type,
}


def type_weights(intents: Collection[str], weights: Mapping[str, Mapping[str, float]]) -> Array:
    """What an edge of full quality lets through, 0 to 1: a row a type, a page a view.

    Args:
        intents: a column each.
        weights: of an edge type for an intent, 0 to 5.

    Returns:
        Array of (TYPES, VIEWS, intents).
    """
    of_types = [[weights[intent][type_] for intent in intents] for type_ in TYPES]
    of_each: Array = numpy.array(of_types).reshape(len(TYPES), -1) / MAX_WEIGHT
    return numpy.asarray(of_each[_WEIGHED])


_WEIGHED: Final = numpy.array(
    [
        [
            TYPE_NUMBERS[_VIEWS.get(view, type_) if type_ == RELATES_TO.type else type_]
            for view in VIEWS
        ]
        for type_ in TYPES
    ]
)
"""As which type an edge weighs: a row a type, a column a view."""


class Ways(NamedTuple):
    """Where edges lead, a place each; one that leads both ways has two.

    Attributes:
        here, there: numbers of nodes.
        weights: what passes, 0 to 1: a row each, a column for each kind of path, or one for all.
    """

    here: Array
    there: Array
    weights: Array


def path_scores(seeds: Array, ways: Ways, max_depth: int) -> Array:
    """Seed score times the product of weights along the best path of at most `max_depth` edges.

    Args:
        seeds: 0 to 1, a row for each node, a column for each kind of path; 0: it is none.
        ways: that paths may take.
        max_depth: edges of a path, at most.

    Returns:
        The same shape.
    """
    order = numpy.argsort(ways.there, kind="stable")
    here, there, weights = ways.here[order], ways.there[order], ways.weights[order]
    first = numpy.flatnonzero(numpy.diff(there, prepend=-1))
    reached, best = there[first], seeds
    for _ in range(max_depth if len(order) else 0):
        passed = numpy.maximum.reduceat(best[here] * weights, first, axis=0)
        improved = passed > best[reached]
        if not improved.any():
            break
        best = best.copy()
        best[reached] = numpy.maximum(best[reached], passed)
    return best


def blended_scores(scores: Array, confidences: Array, others_share: float) -> Array:
    """The best intent's score, weighted by its confidence, and a share of what the others add.

    Args:
        scores: a row for each node, a column for each intent.
        confidences: of the intents.
        others_share: 0 to 1.
    """
    weighted = scores * confidences
    best = weighted.max(axis=1)
    return numpy.asarray(best + others_share * (weighted.sum(axis=1) - best))


DAMPING: Final = 0.85
"""Probability of a walk to go on along a way."""
MAX_ITERATIONS: Final = 50
"""Of the power iteration, which ends earlier when nothing moves."""
TOLERANCE: Final = 1e-8


def personalised_pagerank(seeds: Array, ways: Ways) -> Array:
    """Scores that sum to 1, a place for each node; zeros without a seed above 0.

    Args:
        seeds: how likely a walk starts there, scaled to sum to 1; negative ones count 0.
        ways: that it may take, with one column of weights; those of 0 and below count nothing, nor
            do loops, and parallel ones add up.
    """
    start = numpy.maximum(seeds, 0.0)
    total = start.sum()
    if total <= 0:
        return numpy.zeros(len(seeds))
    start = start / total
    walked = (ways.here != ways.there) & (ways.weights[:, 0] > 0)
    here, there, weights = ways.here[walked], ways.there[walked], ways.weights[walked, 0]
    out = numpy.bincount(here, weights, minlength=len(start))
    shares = weights / out[here]
    scores = start
    for _ in range(MAX_ITERATIONS):
        passed = numpy.bincount(there, scores[here] * shares, minlength=len(start))
        stranded = scores[out == 0].sum()  # nowhere to go: back to the seeds
        following = (1 - DAMPING + DAMPING * stranded) * start + DAMPING * passed
        moved = float(numpy.abs(following - scores).sum())
        scores = following
        if moved < TOLERANCE:
            break
    return numpy.asarray(scores)


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
