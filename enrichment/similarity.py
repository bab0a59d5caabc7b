"""Which events are alike: SIMILAR_TO, decided by comparing all of a tenant.

Each event is joined with the `CAP` events before it that are most like it, above `THRESHOLD`. What
is before what is said by (occurred_at, event_id), as in FOLLOWS; of events that are as much alike
the latest comes first, so that the same text said a thousand times is a chain and no star. An
event of a user is joined with events of theirs and of nobody, one of nobody with events of nobody:
whoever may see the later one may see both, and nobody's edges depend on what another user may have
erased.

So the edges follow from the set of the events that were enriched, in whatever order they came: a
late event opens again those behind it that it is among the nearest of. One that was forgotten keeps
its place, and a pair that was dropped keeps its own: what takes their edges away gives no other
event more. Vectors are whole numbers (`vectors`), so a cosine is the same on every machine.

One edge a pair, smaller event id first. An event has at most `CAP` edges to events before it, and
as many from later ones as have it among theirs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from enrichment import vectors
from projections.operations import MergeEdge, Operation, RemoveEdge
from projections.schema import SIMILAR_TO

THRESHOLD: Final = 0.85
"""Plain cosine above which two events are alike (S0)."""
CAP: Final = SIMILAR_TO.cap_per_node or 10
REMEMBERED: Final = 20_000
"""Events whose nearest ones are remembered, some 1 kB each; of others they are looked for again."""

EventKey = tuple[str, str]
Array = NDArray[Any]
_FIRST_ROWS: Final = 64
_NOBODY: Final = 0
_UNKNOWN: Final = -1
_Alike = tuple[Array, Array]
"""Rows above the threshold, and their cosines."""
_NONE: Final[_Alike] = (np.zeros(0, np.intp), np.zeros(0))
_AT_ONCE: Final = 1_000_000
"""Cosines that are computed at once, 8 bytes each."""
_NO_FLOOR: Final = (-1.0, np.iinfo(np.int64).min)


class Embedded(NamedTuple):
    """An event that says something, where it stands among the others of its tenant.

    Attributes:
        event_id: of it.
        at_ms: when it occurred.
        user_id: whose it is; None: nobody's.
        numbers: its vector's whole numbers, a signed byte each.
    """

    event_id: str
    at_ms: int
    user_id: str | None
    numbers: bytes

    @property
    def link(self) -> tuple[int, str]:
        """Its place in time."""
        return self.at_ms, self.event_id


class Near(NamedTuple):
    """How much an event is like another one; the largest comes first."""

    cosine: float
    at_ms: int
    event_id: str


class EmbeddedEvents:
    """The events of a tenant that say something: which are most like which.

    Forgotten events stay among them. Some 800 bytes each: 384 for the
    vector, the rest for ids and room to grow.
    """

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}
        self._users: dict[str | None, int] = {None: _NOBODY}
        self._names: list[str | None] = [None]
        self._numbers: Array = np.zeros((0, 0), np.int8)
        self._squares: Array = np.zeros(0)
        self._at: Array = np.zeros(0, np.int64)
        self._user: Array = np.zeros(0, np.int32)
        # What an event must offer at least to come among the nearest of one. More events only raise
        # it, so it may be older than they are.
        self._floor: Array = np.zeros(0)
        self._floor_at: Array = np.zeros(0, np.int64)
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()

    def put(self, *events: Embedded) -> None:
        """Take events in, or what they say now."""
        fresh = {event.event_id: event for event in events if not self.holds(event)}
        if not fresh:
            return
        for event_id in fresh:
            self.drop(event_id)
        numbers = np.frombuffer(b"".join(e.numbers for e in fresh.values()), np.int8)
        first, last = len(self._ids), len(self._ids) + len(fresh)
        self._make_room(len(numbers) // len(fresh), last)
        self._numbers[first:last] = numbers.reshape(len(fresh), -1)
        self._squares[first:last] = vectors.squares_of(self._numbers[first:last])
        self._at[first:last] = [event.at_ms for event in fresh.values()]
        self._floor[first:last], self._floor_at[first:last] = _NO_FLOOR
        for row, event in enumerate(fresh.values(), first):
            self._ids.append(event.event_id)
            self._rows[event.event_id] = row
            self._user[row] = self._users.setdefault(event.user_id, len(self._users))
            if len(self._names) < len(self._users):
                self._names.append(event.user_id)
            remembered = self._remembered.get(event.event_id)
            # it was looked for before it was committed
            if remembered is not None and remembered.event == event:
                self._raise_floor(row, remembered.near)

    def drop(self, event_id: str) -> None:
        """Leave an event out, if it is there: whoever was like it may be like others now."""
        row = self._rows.pop(event_id, None)
        if row is None:
            return
        self._numbers[row] = 0
        self._squares[row] = 0.0
        self._remembered.clear()
        self._floor[:], self._floor_at[:] = _NO_FLOOR

    def holds(self, event: Embedded) -> bool:
        """Whether exactly this is known of an event."""
        row = self._rows.get(event.event_id)
        return row is not None and self._event(row) == event

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._rows

    def neighbours(
        self, batch: Sequence[Embedded], silent: Iterable[str] = ()
    ) -> dict[Embedded, list[Near]]:
        """Which events those of a batch are most like, and the same of later ones they concern.

        Nothing is taken in: whether the batch comes to stay is not known yet.

        Args:
            batch: events that are to come, or that are held already.
            silent: ids of events that say nothing any more.

        Returns:
            By event at most `CAP` before it, the nearest first: of the batch, of each event whose
            nearest it may change, and of each that a member of it is among the nearest of.
        """
        fresh = EmbeddedEvents()
        fresh.put(*(event for event in batch if not self.holds(event)))
        changed = [self._rows[key] for key in (*fresh._ids, *silent) if key in self._rows]
        concerned: dict[str, Embedded] = {}
        near: dict[Embedded, list[Near]] = {}
        for event, alike in self._compared(batch, without=changed):
            near[event] = self._nearest(event, without=changed, alike=alike)
            for row in self._later(event, alike, anew=bool(changed)):
                concerned[self._ids[row]] = self._event(row)
        for event, alike in self._compared([*map(self._event, changed)], without=changed):
            for row in self._later(event, alike, anew=True):
                concerned[self._ids[row]] = self._event(row)
        for event in concerned.values():
            if event not in near:
                near[event] = self._nearest(event, without=changed)
        for event, alike in fresh._compared([*near]):
            near[event] = sorted([*near[event], *fresh._best(event, alike)], reverse=True)[:CAP]
        return near

    # -- what is compared --------------------------------------------------------------------------

    def _nearest(
        self, event: Embedded, without: Sequence[int], alike: _Alike | None = None
    ) -> list[Near]:
        """The best before an event; what was found before is not looked for again.

        Args:
            event: the event.
            without: rows that do not count.
            alike: of all rows, if they are at hand.
        """
        if without:
            return self._best(event, alike or self._alike(event, without=without))
        size = len(self._ids)
        remembered = self._remembered.pop(event.event_id, None)
        if remembered is None or remembered.event != event:
            near = self._best(event, alike or self._alike(event))
        elif remembered.size < size:
            added = self._best(event, self._alike(event, remembered.size))
            near = sorted([*remembered.near, *added], reverse=True)[:CAP]
        else:
            near = remembered.near
        self._remembered[event.event_id] = _Remembered(event, size, near)
        if len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)
        if self.holds(event):
            self._raise_floor(self._rows[event.event_id], near)
        return near

    def _best(self, event: Embedded, alike: _Alike) -> list[Near]:
        """At most `CAP` before an event, of rows that are like it; the nearest first."""
        rows, cosines = alike
        if not len(rows):
            return []
        users, at = self._user[rows], self._at[rows]
        theirs = (users == _NOBODY) | (users == self._users.get(event.user_id, _UNKNOWN))
        counts = theirs & (at <= event.at_ms)
        cosines, rows, at = cosines[counts], rows[counts], at[counts]
        near: list[Near] = []
        # The best first. Ids decide between those of one cosine and moment, and at the moment
        # of the event itself whether another is before it at all.
        for place in np.lexsort((at, cosines))[::-1].tolist():
            other = Near(float(cosines[place]), int(at[place]), self._ids[rows[place]])
            if len(near) >= CAP and other[:2] != near[-1][:2]:
                break
            if other[1:] < event.link:
                near.append(other)
        return sorted(near, reverse=True)[:CAP]

    def _later(self, event: Embedded, alike: _Alike, *, anew: bool) -> list[int]:
        """Rows of the events behind one that it may be among the nearest of.

        Args:
            event: the event.
            alike: of all rows.
            anew: whether others leave, so that less may be enough.
        """
        rows, cosines = alike
        if not len(rows):
            return []
        user = self._users.get(event.user_id, _UNKNOWN)
        counts = self._at[rows] >= event.at_ms
        if user != _NOBODY:
            counts &= self._user[rows] == user
        if not anew:
            floor, floor_at = self._floor[rows], self._floor_at[rows]
            counts &= (cosines > floor) | ((cosines == floor) & (event.at_ms >= floor_at))
        later: list[int] = rows[counts].tolist()
        return [row for row in later if event.link < (int(self._at[row]), self._ids[row])]

    def _alike(self, event: Embedded, first: int = 0, without: Sequence[int] = ()) -> _Alike:
        """The rows from `first` on that are like an event, without those that do not count."""
        ((_, alike),) = self._compared([event], first, without)
        return alike

    def _compared(
        self, events: Sequence[Embedded], first: int = 0, without: Sequence[int] = ()
    ) -> Iterator[tuple[Embedded, _Alike]]:
        """Events in their order, each with the rows from `first` on that are like it.

        So many are compared at once as bounded memory allows: one by one, most of the time would
        go into calls.
        """
        size = len(self._ids)
        table, squares = self._numbers[first:size], self._squares[first:size]
        gone = [row - first for row in without if row >= first]
        at_once = max(1, _AT_ONCE // max(1, size - first))
        for begin in range(0, len(events), at_once):
            some = events[begin : begin + at_once]
            fitting = [n for n, one in enumerate(some) if len(one.numbers) == table.shape[1]]
            alike = [_NONE] * len(some)
            if fitting and size > first:
                told = np.frombuffer(b"".join(some[n].numbers for n in fitting), np.int8)
                questions = told.reshape(len(fitting), -1)
                cosines = vectors.cosines(table, questions, squares)
                cosines[gone] = 0.0
                which, rows = np.nonzero(cosines.T > THRESHOLD)
                ends = np.searchsorted(which, np.arange(len(fitting) + 1)).tolist()
                for n, low, high in zip(fitting, ends, ends[1:], strict=False):
                    among = rows[low:high]
                    alike[n] = among + first, cosines[among, which[low:high]]
            yield from zip(some, alike, strict=True)

    # -- rows --------------------------------------------------------------------------------------

    def _event(self, row: int) -> Embedded:
        return Embedded(
            self._ids[row],
            int(self._at[row]),
            self._names[int(self._user[row])],
            self._numbers[row].tobytes(),
        )

    def _raise_floor(self, row: int, near: Sequence[Near]) -> None:
        if len(near) == CAP:
            self._floor[row], self._floor_at[row] = near[-1][:2]

    def _make_room(self, dimensions: int, size: int) -> None:
        if not self._ids:
            self._numbers = np.zeros((len(self._at), dimensions), np.int8)
        if size > len(self._at):
            more = max(_FIRST_ROWS, len(self._at), size - len(self._at))
            self._numbers = np.concatenate([self._numbers, np.zeros((more, dimensions), np.int8)])
            for name in ("_squares", "_at", "_user", "_floor", "_floor_at"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros(more, column.dtype)]))


class _Remembered(NamedTuple):
    """The nearest of an event among the first so many rows."""

    event: Embedded
    size: int
    near: list[Near]


def similar_edges(
    near: Mapping[EventKey, Iterable[Near]], existing: Mapping[EventKey, Mapping[str, float]]
) -> list[Operation]:
    """What makes the edges of events to those before them what they must be.

    Args:
        near: by event, the others that it is to be joined with.
        existing: by event, the others before it that it is joined with, and the score.
    """
    operations: list[Operation] = []
    for (tenant, event_id), others in sorted(near.items()):
        before = existing.get((tenant, event_id), {})
        after = {other.event_id: round(other.cosine, 6) for other in others}
        for other in sorted(before.keys() | after.keys()):
            source, target = ((tenant, end) for end in sorted((event_id, other)))
            if other not in after:
                operations.append(RemoveEdge(type=SIMILAR_TO.type, source=source, target=target))
            elif before.get(other) != after[other]:
                operations.append(
                    MergeEdge(
                        type=SIMILAR_TO.type,
                        source=source,
                        target=target,
                        values={"score": after[other]},
                    )
                )
    return operations
