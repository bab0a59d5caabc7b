"""Where one episode ends and the next begins.

An episode is a stretch of one trace in one session, cut at gaps of more than EPISODE_GAP_MS and
at EPISODE_EVENTS. Traces that run at the same time are cut apart from each other: each is work of
its own. Episodes are numbered within (session, trace) by time, and that number is part of their
id: what comes at the end of a trace never renames what lies before it.

When members of an episode are forgotten, the events that are left would be cut elsewhere; so the
place of such an episode is given (`Sealed`), and only the rest is cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

from consolidation.payloads import EPISODE_EVENTS
from consolidation.sources import SourceEvent

EPISODE_GAP_MS: Final = 30 * 60_000
"""A longer pause within a trace ends an episode (S0)."""


class Place(NamedTuple):
    """Where an event stands among those of its session; places sort as the events do."""

    occurred_at_ms: int
    event_id: str


class Sealed(NamedTuple):
    """An episode whose extent is settled, because some of its members are forgotten.

    Attributes:
        trace_id: of its events.
        number: within its session and trace.
        first: of its members, forgotten ones included.
        last: likewise; events between the two are its own, whenever they came.
    """

    trace_id: str
    number: int
    first: Place
    last: Place


class Episode(NamedTuple):
    """A stretch of one trace in one session.

    Attributes:
        session_id: of all its events.
        trace_id: of all its events.
        number: within its session and trace, from 0.
        events: sorted by (occurred_at_ms, event_id), at least one; at most EPISODE_EVENTS unless
            sealed.
        sealed: some members are forgotten, `events` are those that are left.
    """

    session_id: str
    trace_id: str
    number: int
    events: tuple[SourceEvent, ...]
    sealed: bool = False


def episodes(events: Iterable[SourceEvent], sealed: Sequence[Sealed] = ()) -> list[Episode]:
    """The events of one session cut to episodes, each event in exactly one.

    Args:
        events: all retained events of the session, in any order.
        sealed: episodes of the session that have forgotten members, in any order.

    Returns:
        By first event; a sealed episode that has no event left is not among them.
    """
    traces: dict[str, list[SourceEvent]] = {}
    for event in sorted(events, key=place_of):
        traces.setdefault(event.trace_id, []).append(event)
    found: list[Episode] = []
    for trace_id, members in traces.items():
        fixed = sorted(
            (one for one in sealed if one.trace_id == trace_id), key=lambda one: one.first
        )
        found.extend(_trace_episodes(members, fixed))
    return sorted(found, key=lambda one: (place_of(one.events[0]), one.trace_id))


def place_of(event: SourceEvent) -> Place:
    """Where an event stands in its session."""
    return Place(event.occurred_at_ms, event.event_id)


def _trace_episodes(events: Sequence[SourceEvent], fixed: Sequence[Sealed]) -> Iterator[Episode]:
    """Episodes of one trace; numbers that sealed ones have are left out by the others."""
    taken = {one.number for one in fixed}
    free = (number for number in count() if number not in taken)
    firsts = [one.first for one in fixed]
    left: dict[int, list[SourceEvent]] = {}
    stretch: list[SourceEvent] = []
    parted_by = -1  # the last sealed episode that begins before the stretch
    for event in events:
        before = bisect_right(firsts, place_of(event)) - 1
        if before >= 0 and place_of(event) <= fixed[before].last:
            left.setdefault(before, []).append(event)
            continue
        if stretch and (before != parted_by or _ends(stretch, event)):
            yield _episode(stretch, next(free))
            stretch = []
        stretch.append(event)
        parted_by = before
    if stretch:
        yield _episode(stretch, next(free))
    for place, members in left.items():
        yield _episode(members, fixed[place].number)._replace(sealed=True)


def _ends(stretch: Sequence[SourceEvent], following: SourceEvent) -> bool:
    gap_ms = following.occurred_at_ms - stretch[-1].occurred_at_ms
    return gap_ms > EPISODE_GAP_MS or len(stretch) == EPISODE_EVENTS


def _episode(events: Sequence[SourceEvent], number: int) -> Episode:
    return Episode(events[0].session_id, events[0].trace_id, number, tuple(events))
