"""A walk over all views from some seeds: what it meets, and what its paths are worth. Pure.

Level by level the edges around the most promising nodes are met; the best path to each node is
then a matter of arrays. All intents walk together: a level is of the nodes that promise most to any
of them, and the paths are scored for each intent apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy

from consolidation.decay import DAY_MS
from pipelines.columns.graph_scores import (
    Activation,
    ActivationConfig,
    Link,
    Ways,
    blended_scores,
    path_scores,
    personalised_pagerank,
    trusted,
)
from pipelines.columns.reads import WalkAsked, Walked
from pipelines.columns.records import TYPE_NUMBERS, Array, StepRow, Steps, steps_of
from projections.schema import FOLLOWS

BEAM: Final = 32
"""Nodes of a level that are walked on from."""
MAX_REACHED: Final = 3_000
"""Nodes of a walk; a query for 500 is answered from far fewer."""
MAX_REACHED_EVENTS: Final = 600
"""Events that a walk has met, among which those are looked for that are ranked."""
MIN_SCORE: Final = 1e-4
"""A path worth less is not followed."""
_NOWHERE: Final = -1

Around = Callable[[Collection[str], dict[str, int]], Sequence[StepRow]]
"""Edges around some nodes; what they lead to gets the next places."""


class Met(NamedTuple):
    """Nodes by number, and the edges between them, once each."""

    size: int
    steps: Steps

    def closed(self) -> Array:
        """Of each node whether nothing leads on from it."""
        closed = numpy.zeros(self.size, dtype=bool)
        closed[self._reached()[self.steps.closed]] = True
        return closed

    def connected(self) -> Array:
        """Of each node whether it is at an edge."""
        ends = numpy.zeros(self.size, dtype=bool)
        ends[self.steps.source] = True
        ends[self.steps.target] = True
        return ends

    def weights(self, weights: Array) -> Array:
        """What each edge lets through, 0 to 1: that of its type times its quality.

        Args:
            weights: of `type_weights`.

        Returns:
            A row an edge, a column an intent.
        """
        steps = self.steps
        is_delay = steps.type == TYPE_NUMBERS[FOLLOWS.type]
        allowed: Array = weights[steps.type, steps.view]
        return allowed * trusted(steps.quality, is_delay)[:, None]

    def ways(self, weights: Array) -> Ways:
        """Where the edges lead, both ways; from what is closed (a literal value) nothing leads on.

        Args:
            weights: what passes each edge, of `weights`.
        """
        source, target = self.steps.source, self.steps.target
        shut = numpy.where(self.steps.closed, self._reached(), _NOWHERE)
        along, against = shut != source, shut != target
        return Ways(
            here=numpy.concatenate([source[along], target[against]]),
            there=numpy.concatenate([target[along], source[against]]),
            weights=numpy.concatenate([weights[along], weights[against]]),
        )

    def undirected(self, weights: Array) -> Ways:
        """The same, with the ways from what is closed.

        Args:
            weights: what passes each edge.
        """
        source, target = self.steps.source, self.steps.target
        return Ways(
            here=numpy.concatenate([source, target]),
            there=numpy.concatenate([target, source]),
            weights=numpy.tile(weights, 2)[:, None],
        )

    def _reached(self) -> Array:
        steps = self.steps
        return numpy.where(steps.forward, steps.target, steps.source)


def walked(wanted: WalkAsked, around: Around, now_ms: int) -> Walked:
    """Walk from the seeds.

    Args:
        wanted: how.
        around: reads edges; where it has none, the seeds alone are met.
        now_ms: the clock for recency, milliseconds since the epoch.
    """
    walk = _Walk(wanted, around)
    spread = numpy.zeros(0)
    if wanted.method == "activation":
        worth = walk.activated(now_ms)
    else:
        scores = walk.by_paths()
        if wanted.method == "ppr":
            worth = walk.pagerank(walk.seeds)
            worth[worth == 0] = numpy.nan
        else:
            worth = numpy.where(scores > 0, scores, numpy.nan)
            worth[: len(walk.seeds)] = scores[: len(walk.seeds)]
            if not wanted.beside:
                spread = walk.pagerank(scores[: len(walk.seeds)])
    steps = walk.met.steps
    edges = steps if wanted.beside and wanted.method == "intent_weighted" else None
    return Walked(
        steps.ids,
        edges,
        depths=walk.depths,
        worth=worth,
        spread=spread,
        connected=walk.met.connected(),
    )


class _Walk:
    """A walk under way.

    Attributes:
        seeds: their scores.
        depths: fewest edges from a seed, a place a node.
        met: so far.
    """

    def __init__(self, wanted: WalkAsked, around: Around) -> None:
        self._wanted = wanted
        self._around = around
        self._allowed = numpy.asarray(wanted.weights)
        self._confidences = numpy.array(wanted.confidences)
        self._places = {seed: place for place, seed in enumerate(wanted.seeds)}
        self._edges: dict[tuple[Any, ...], StepRow] = {}
        self._expanded: set[str] = set()
        self.seeds = numpy.array(list(wanted.seeds.values()), dtype=numpy.float64)
        self.depths = numpy.zeros(len(self.seeds), dtype=numpy.int32)
        self.met = Met(len(self.seeds), steps_of(list(wanted.seeds), []))
        self._weights = self.met.weights(self._allowed)

    def by_paths(self) -> Array:
        """Walk level by level; what the best paths to each node are worth."""
        scores = self._padded(self.seeds)
        least = max(BEAM, len(self.seeds))
        for depth in range(1, self._wanted.max_depth + 1):
            frontier = self._frontier(scores, least)
            if not frontier or self.met.size >= MAX_REACHED:
                break
            self._take(frontier, depth)
            scores, least = self._path_scores(), BEAM
        return self._path_scores() if not self._edges else scores

    def activated(self, now_ms: int) -> Array:
        """Walk hop by hop around what is active; the activations, NaN of what is not."""
        config = self._wanted.activation or ActivationConfig()
        spreading = Activation(self._wanted.seeds, ActivationConfig(*config))
        while active := spreading.active():
            new = [node_id for node_id in active if node_id not in self._expanded]
            self._take(new, spreading.hops + 1)
            spreading.spread(self._links(now_ms))
        worth = numpy.full(self.met.size, numpy.nan)
        for node_id, score in spreading.activated().items():
            worth[self._places[node_id]] = score
        return worth

    def pagerank(self, seeds: Array) -> Array:
        """Personalised PageRank over what was met, the best node being 1.

        A seed without edges (a name that nobody has) would keep what the others are measured by.

        Args:
            seeds: what each is worth.
        """
        scores = self._padded(seeds)
        connected = self.met.connected()
        if connected[: len(seeds)].any():
            scores[~connected] = 0.0
        ranks = personalised_pagerank(scores, self.met.undirected(self._blended()))
        best = ranks.max(initial=0.0)
        return ranks / best if best > 0 else ranks

    def _take(self, node_ids: Collection[str], depth: int) -> None:
        """Meet the edges around some nodes, which lead `depth` steps away."""
        before = len(self._edges)
        for row in self._around(node_ids, self._places):
            self._edges.setdefault(row[:4], row)
        self._expanded.update(node_ids)
        ids = list(self._places)
        new = steps_of(ids, list(islice(self._edges.values(), before, None)))
        columns = zip(self.met.steps[1:], new[1:], strict=True)
        away = numpy.full(len(ids) - self.met.size, depth, dtype=numpy.int32)
        self.depths = numpy.concatenate([self.depths, away])
        self.met = Met(len(ids), Steps(ids, *map(numpy.concatenate, columns)))
        self._weights = self.met.weights(self._allowed)

    def _padded(self, seeds: Array) -> Array:
        scores = numpy.zeros(self.met.size)
        scores[: len(seeds)] = seeds
        return scores

    def _path_scores(self) -> Array:
        seeds = numpy.tile(self._padded(self.seeds)[:, None], len(self._confidences))
        scores = path_scores(seeds, self.met.ways(self._weights), self._wanted.max_depth)
        return blended_scores(scores, self._confidences, self._wanted.others_share)

    def _blended(self) -> Array:
        """What each edge lets through for all intents at once: their mean by confidence."""
        return numpy.asarray(self._weights @ self._confidences / self._confidences.sum())

    def _frontier(self, scores: Array, most: int) -> list[str]:
        """The most promising nodes that were not walked on from yet."""
        ids = self.met.steps.ids
        places = numpy.flatnonzero((scores >= MIN_SCORE) & ~self.met.closed())
        promising = (
            (-score, ids[place])
            for place, score in zip(places.tolist(), scores[places].tolist(), strict=True)
            if ids[place] not in self._expanded
        )
        return [node_id for _, node_id in nsmallest(most, promising)]

    def _links(self, now_ms: int) -> list[Link]:
        steps = self.met.steps
        confidences = numpy.minimum(1.0, self._blended())
        ages = numpy.maximum(0.0, now_ms - numpy.nan_to_num(steps.at_ms, nan=now_ms)) / DAY_MS
        columns = (steps.source, steps.target, confidences, ages)
        rows = zip(*(column[~steps.closed].tolist() for column in columns), strict=True)
        ids = steps.ids
        return [Link(ids[a], ids[b], confidence, age) for a, b, confidence, age in rows]
