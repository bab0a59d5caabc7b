"""Arrays that grow, an array a column, and edges between rows as linked lists in them.

Small arrays double, large ones add less. An edge takes 25 bytes, and 4 for each of its ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
Bits = NDArray[numpy.bool_]
Rows = NDArray[numpy.signedinteger[Any]]
"""Numbers of rows."""

NOBODY: Final = -1
"""In a column of row numbers or of interned names: none."""
_FIRST_ROOM: Final = 64
_GROWTH: Final = 4
"""Of the room of a large one a quarter is added when it is used up: doubled, half stands empty."""


class Table:
    """Rows of numbers by column.

    Args:
        columns: type of each; a pair of type and width for a column of several numbers a row.
        room: rows that there is room for at first, at least 1.
    """

    def __init__(
        self, columns: Mapping[str, DTypeLike | tuple[DTypeLike, int]], room: int = _FIRST_ROOM
    ) -> None:
        self.size = 0
        self._room = room
        self._arrays: dict[str, Array] = {}
        for name, kind in columns.items():
            if isinstance(kind, tuple):
                self._arrays[name] = numpy.zeros((self._room, kind[1]), dtype=kind[0])
            else:
                self._arrays[name] = numpy.zeros(self._room, dtype=kind)

    def __getitem__(self, name: str) -> Array:
        """A column, as long as there are rows; written through it, never kept: growing moves it."""
        return self._arrays[name][: self.size]

    def whole(self, name: str) -> Array:
        """A column with the room behind its rows, which costs less to get; never kept, either."""
        return self._arrays[name]

    @property
    def columns(self) -> Collection[str]:
        """Names of the columns."""
        return self._arrays.keys()

    def add(self, **values: Any) -> int:
        """A row of some values by column, zeros elsewhere; its number."""
        if self.size == self._room:
            self._grow()
        self.size += 1
        self.put(self.size - 1, values)
        return self.size - 1

    def put(self, row: int, values: Mapping[str, Any]) -> None:
        """Set some values of a row, by column."""
        for name, value in values.items():
            self._arrays[name][row] = value

    def _grow(self) -> None:
        room = self._room + max(self._room // _GROWTH, min(self._room, _FIRST_ROOM))
        for name, array in self._arrays.items():
            wider = numpy.zeros((room, *array.shape[1:]), dtype=array.dtype)
            wider[: self._room] = array
            self._arrays[name] = wider
        self._room = room


class ByRow:
    """A number of each row, 4 bytes each; NOBODY of one that has none."""

    def __init__(self) -> None:
        self._table = Table({"number": "i4"})

    def __getitem__(self, row: int) -> int:
        return self._table.whole("number").item(row) if row < self._table.size else NOBODY

    def __setitem__(self, row: int, number: int) -> None:
        while self._table.size <= row:
            self._table.add(number=NOBODY)
        self._table["number"][row] = number

    def of(self, rows: Rows) -> Rows:
        """The number of each of some rows."""
        numbers = numpy.full(len(rows), NOBODY, dtype=numpy.int32)
        in_reach = numpy.asarray(rows) < self._table.size
        numbers[in_reach] = self._table["number"][rows[in_reach]]
        return numbers


class Names:
    """Texts by a small number each, the same for the same text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """The number of a text, a new one if need be; NOBODY of None."""
        if text is None:
            return NOBODY
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    def find(self, text: str | None) -> int:
        """The number of a text; NOBODY where it has none."""
        return NOBODY if text is None else self._numbers.get(text, NOBODY)

    def text(self, number: int) -> str | None:
        """The text of a number; None of NOBODY."""
        return None if number == NOBODY else self.texts[number]


Ranking = Callable[[Rows], Array]
"""Of some rows the place of each among them, in an order that any columns of the graph have."""


def best(rows: Rows, scores: Array, most: int, ranking: Ranking) -> Rows:
    """Places of the largest scores, the largest first; never by the numbers of rows.

    These tell in what order a process has read the graph, which another one did otherwise.

    Args:
        rows: one a place.
        scores: likewise.
        most: at most so many.
        ranking: says which of equal ones comes first.
    """
    if len(scores) > most:
        least = numpy.partition(scores, len(scores) - most)[len(scores) - most]
        chosen = numpy.flatnonzero(scores >= least)
    else:
        chosen = numpy.arange(len(scores))
    order = numpy.lexsort((ranking(rows[chosen]), -scores[chosen]))
    return chosen[order[:most]]


def ranks_of(order: Rows) -> Array:
    """The place of each number in an order of all of them."""
    ranks = numpy.empty(len(order), dtype=numpy.int64)
    ranks[order] = numpy.arange(len(order))
    return ranks


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

    def targets(self, source: int) -> list[tuple[int, float]]:
        """Where the edges that begin at a row end, and how good each is: all that a walk asks."""
        return self._ends(self._first_out[source], "target", "next_out")

    def sources(self, target: int) -> list[tuple[int, float]]:
        """Likewise where those begin that end at a row."""
        return self._ends(self._first_in[target], "source", "next_in")

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

    def _ends(self, place: int, end: str, along: str) -> list[tuple[int, float]]:
        if place == NOBODY:  # as of most rows
            return []
        column = self._edges.whole
        others, behind, scores = column(end).item, column(along).item, column("score").item
        ends: list[tuple[int, float]] = []
        while place != NOBODY:
            other = others(place)
            if other != NOBODY:
                ends.append((other, scores(place)))
            place = behind(place)
        return ends

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
