"""What a walk has met: nodes by number, and the edges between them, an array a column. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import numpy

from api.retrieval.graph_scores import Ways, trusted, type_weights
from api.retrieval.intent import Intent
from pipelines.columns.records import TYPE_NUMBERS, VIEWS, Array, Steps, steps_of
from projections.schema import FOLLOWS

_NOWHERE: Final = -1
_MOST_NODES: Final = 2**24
"""That a key of an edge has room for."""


class Met(NamedTuple):
    """Nodes and edges; a larger one is made when more is met, so that others may read meanwhile.

    Attributes:
        ids: wire ids of the nodes; those that it began with come first.
        depths: fewest edges from one of these, by place in `ids`.
        steps: edges between these places, once each; `ids` of it are the same.
    """

    ids: list[str]
    depths: Array
    steps: Steps

    def joined(self, steps: Steps, depth: int) -> Met:
        """With more edges, and the nodes `depth` away that they lead to."""
        places = {node_id: place for place, node_id in enumerate(self.ids)}
        moved = numpy.array(
            [places.setdefault(node_id, len(places)) for node_id in steps.ids], dtype=numpy.int32
        )
        ids = list(places)
        added = steps._replace(source=moved[steps.source], target=moved[steps.target])
        columns = zip(self.steps[1:], added[1:], strict=True)
        both = Steps(ids, *(numpy.concatenate(pair) for pair in columns))
        first = numpy.unique(_keys(both), return_index=True)[1]
        first.sort()
        new = numpy.full(len(ids) - len(self.ids), depth)
        edges = Steps(ids, *(column[first] for column in both[1:]))
        return Met(ids, numpy.concatenate([self.depths, new]), edges)

    def closed(self) -> Array:
        """Of each node whether nothing leads on from it."""
        closed = numpy.zeros(len(self.ids), dtype=bool)
        closed[self._reached()[self.steps.closed]] = True
        return closed

    def connected(self) -> Array:
        """Of each node whether it is at an edge."""
        ends = numpy.zeros(len(self.ids), dtype=bool)
        ends[self.steps.source] = True
        ends[self.steps.target] = True
        return ends

    def weights(
        self, intents: Collection[Intent], weights: Mapping[str, Mapping[str, float]]
    ) -> Array:
        """What each edge lets through, 0 to 1: weight / 5 times its quality, a column an intent.

        Args:
            intents: a column each.
            weights: of an edge type for an intent, 0 to 5.
        """
        steps = self.steps
        is_delay = steps.type == TYPE_NUMBERS[FOLLOWS.type]
        allowed: Array = type_weights(intents, weights)[steps.type, steps.view]
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


def met_at_first(ids: Iterable[str]) -> Met:
    """Where a walk begins."""
    nodes = list(ids)
    return Met(nodes, numpy.zeros(len(nodes), dtype=numpy.int64), steps_of(nodes, []))


def _keys(steps: Steps) -> Array:
    """What tells edges apart: type and view, and both ends."""
    kinds = steps.type.astype(numpy.int64) * len(VIEWS) + steps.view
    return (kinds * _MOST_NODES + steps.source) * _MOST_NODES + steps.target
