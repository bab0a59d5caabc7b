"""Sessions as a list, the newest first, and the events of one in order, as one viewer sees."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import numpy

from pipelines.columns.listing import failures
from pipelines.columns.reads import SessionLine, SessionList, SessionPage, SessionsAsked
from pipelines.columns.tables import NOBODY, Array, Bits, Rows
from pipelines.columns.view import View

MAX_NAMES: Final = 5
"""Of the agents, and of the users, that a line names."""
_SEARCHED: Final = ("session", "agent", "user", "tool", "status")
"""Columns whose names a search looks at."""


def sessions_of(view: View, wanted: SessionsAsked) -> SessionList:
    """The sessions in which the viewer sees something, the newest first.

    Looks at every event of the tenant, and a search at every name: columns are made for that.
    """
    events = view.tenant.events
    of_session = events.table["session"] != NOBODY
    rows = numpy.flatnonzero(view.seen & of_session)
    sessions, place = numpy.unique(events.table["session"][rows], return_inverse=True)
    withheld = numpy.unique(events.table["session"][view.known & ~view.seen & of_session])
    failed = failures(view)
    chosen = _chosen(view, wanted, failed, rows=rows, place=place, count=len(sessions))
    at = events.table["occurred_ms"][rows]
    last = numpy.full(len(sessions), numpy.iinfo(numpy.int64).min)
    numpy.maximum.at(last, place, at)
    lines = sorted(
        (-int(last[number]), events.names.texts[int(sessions[number])], number)
        for number in numpy.flatnonzero(chosen).tolist()
    )
    if wanted.before is not None:
        before_ms, before_id = wanted.before
        lines = [line for line in lines if line[:2] > (-before_ms, before_id)]
    by_session = rows[numpy.argsort(place, kind="stable")]
    ends = numpy.cumsum(numpy.bincount(place, minlength=len(sessions)))
    parts = numpy.split(by_session, ends[:-1])
    return SessionList(
        [_line(view, name, parts[number], failed) for _, name, number in lines[: wanted.limit]],
        min(len(withheld), wanted.limit),
    )


def _chosen(
    view: View, wanted: SessionsAsked, failed: Bits, *, rows: Rows, place: Array, count: int
) -> Bits:
    """Of each session whether it has an event of each kind that is wanted."""
    table = view.tenant.events.table
    chosen = numpy.ones(count, dtype=bool)
    tests: list[Array] = []
    if wanted.since_ms is not None or wanted.until_ms is not None:
        at = table["occurred_ms"][rows]
        first = 0 if wanted.since_ms is None else wanted.since_ms
        tests.append((at >= first) & ((wanted.until_ms is None) | (at < (wanted.until_ms or 0))))
    if wanted.failed:
        tests.append(failed[rows])
    if wanted.words is not None:
        texts = view.tenant.events.names.texts
        words = wanted.words.casefold()
        numbers = [number for number, text in enumerate(texts) if words in text.casefold()]
        named = numpy.zeros(len(rows), dtype=bool)
        for column in _SEARCHED:
            named |= numpy.isin(table[column][rows], numbers)
        tests.append(named)
    for test in tests:
        chosen &= numpy.bincount(place[test], minlength=count) > 0
    return chosen


def _line(view: View, session_id: str, rows: Rows, failed: Bits) -> SessionLine:
    events = view.tenant.events
    at = events.table["occurred_ms"][rows]
    in_order = rows[numpy.lexsort(([events.ids[row] for row in rows.tolist()], at))]
    failing = in_order[failed[in_order]]
    return SessionLine(
        session_id=session_id,
        first_ms=int(at.min()),
        last_ms=int(at.max()),
        events=len(rows),
        failed=len(failing),
        agents=_names(view, events.table["agent"][in_order].tolist()),
        users=_names(view, events.table["user"][in_order].tolist()),
        first_event_id=events.ids[int(in_order[0])],
        failed_event_id=events.ids[int(failing[-1])] if len(failing) else None,
    )


def _names(view: View, numbers: Iterable[int]) -> list[str]:
    """The first names of some numbers, each once."""
    met = dict.fromkeys(number for number in numbers if number != NOBODY)
    return [view.tenant.events.names.texts[number] for number in list(met)[:MAX_NAMES]]


def session_page(
    view: View, session_id: str, behind: tuple[int, str] | None, limit: int
) -> SessionPage:
    """A page of a session's events that the graph has, in the order of (time, event id).

    Args:
        view: who looks.
        session_id: of the session.
        behind: time and id of the last event of the page before; None: the first page.
        limit: of events.
    """
    events = view.tenant.events
    order = events.sessions.get(events.names.find(session_id), ())
    rows = numpy.array(order, dtype=numpy.int32)
    rows = rows[view.known[rows] & ~events.table["pending"][rows]]
    shown = rows[view.seen[rows]]
    first = 0
    if behind is not None:
        first = bisect_right(shown, tuple(behind), key=events.place)
    page = shown[first : first + limit].tolist()
    return SessionPage(list(map(events.place, page)), len(shown), len(rows) - len(shown))
