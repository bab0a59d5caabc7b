"""Edges between rows as linked lists in arrays: 25 bytes each, and 4 for each of their ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipelines.columns.tables import NOBODY, ByRow, Table


class Edge(NamedTuple):
    """An edge: its ends by row, how good it is (NaN: not said), and a mark of its type's own."""

    source: int
    target: int
    score: float
    mark: bool


class Edges:
    """Edges of one type; those added last come first."""

    def __init__(self) -> None:
        self._edges = Table(
            {
                **dict.fromkeys(("source", "target", "next_out", "next_in"), "i4"),
                "score": "f8",
                "mark": "?",
            }
        )
        self._first_out = ByRow()
        self._first_in = ByRow()

    def add(self, edge: Edge) -> None:
        """Add an edge; parallel ones are kept apart."""
        place = self._edges.size
        next_out, next_in = self._first_out[edge.source], self._first_in[edge.target]
        self._first_out[edge.source] = self._first_in[edge.target] = place
        self._edges.add(**edge._asdict(), next_out=next_out, next_in=next_in)

    def out(self, source: int) -> Iterator[Edge]:
        """Edges that begin at a row."""
        return self._follow(self._first_out[source], "next_out")

    def into(self, target: int) -> Iterator[Edge]:
        """Edges that end at a row."""
        return self._follow(self._first_in[target], "next_in")

    def drop(self, source: int, target: int | None = None) -> None:
        """Drop the edges that begin at a row; with `target` those that end there alone."""
        targets, place = self._edges["target"], self._first_out[source]
        before = NOBODY
        while place != NOBODY:
            behind = int(self._edges["next_out"][place])
            if target is None or targets[place] == target:
                self._edges["source"][place] = NOBODY  # its target's list still leads through it
                if before == NOBODY:
                    self._first_out[source] = behind
                else:
                    self._edges["next_out"][before] = behind
            else:
                before = place
            place = behind

    def _follow(self, place: int, along: str) -> Iterator[Edge]:
        if place == NOBODY:  # as of most rows
            return
        column = self._edges.whole
        sources, targets, behind = column("source").item, column("target").item, column(along).item
        scores, marks = column("score").item, column("mark").item
        while place != NOBODY:
            source = sources(place)
            if source != NOBODY:
                yield Edge(source, targets(place), scores(place), marks(place))
            place = behind(place)
