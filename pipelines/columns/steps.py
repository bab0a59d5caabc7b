"""Edges met on a walk, an array a column: hundreds of them a question are too many for objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy

from enrichment.vocabulary import EDGE_TYPES
from pipelines.columns.standings import Array
from pipelines.graph.rows import StepEdge
from projections.schema import EDGES, FOLLOWS, SIMILAR_TO

TYPES: Final = tuple(EDGES)
"""Edge types, by the number that stands for each."""
TYPE_NUMBERS: Final = {type_: number for number, type_ in enumerate(TYPES)}
VIEWS: Final = ("", *EDGE_TYPES)
"""Edge types of facts, likewise; the first one is that of all other edges."""
VIEW_NUMBERS: Final = {view: number for number, view in enumerate(VIEWS)}
_QUALITIES: Final = {FOLLOWS.type: "delta_ms", SIMILAR_TO.type: "score"}
_CONFIDENCE: Final = "confidence"


class Steps(NamedTuple):
    """Edges around some nodes, a place each.

    Attributes:
        ids: wire ids of their ends, each once.
        source, target: places in `ids`; as in the graph.
        type: place in TYPES.
        view: of a fact, place in VIEWS.
        forward: the target is what it leads to; otherwise the source is.
        closed: what it leads to is not walked on from.
        quality: what tells its quality: milliseconds of `FOLLOWS`, the cosine of `SIMILAR_TO`, the
            confidence of others; NaN: it says nothing.
        at_ms: since when it is so, milliseconds since the epoch; NaN: not known.
    """

    ids: list[str]
    source: Array
    target: Array
    type: Array
    view: Array
    forward: Array
    closed: Array
    quality: Array
    at_ms: Array

    def edges(self) -> list[StepEdge]:
        """The same, one by one."""
        ids = self.ids
        columns = (column.tolist() for column in self[1:])
        return [
            StepEdge(
                type=TYPES[type_],
                source=ids[source],
                target=ids[target],
                view=VIEWS[view],
                properties=_properties(TYPES[type_], quality),
                reached=ids[target if forward else source],
                closed=closed,
                at_ms=None if at_ms != at_ms else int(at_ms),
            )
            for source, target, type_, view, forward, closed, quality, at_ms in zip(
                *columns, strict=True
            )
        ]


_KINDS: Final = ("i4", "i4", "i1", "i1", "?", "?", "f8", "f8")


def steps_of(ids: list[str], rows: Sequence[tuple[Any, ...]]) -> Steps:
    """Steps from rows of what `Steps` has after `ids`."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(_KINDS)
    return Steps(ids, *map(numpy.array, columns, _KINDS))


def _properties(type_: str, quality: float) -> dict[str, Any]:
    if quality != quality:
        return {}
    name = _QUALITIES.get(type_, _CONFIDENCE)
    return {name: int(quality) if type_ == FOLLOWS.type else quality}
