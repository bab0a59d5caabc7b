"""Exact lists: all events of a kind, of people or agents, that failed, of a time or a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy

from enrichment.event_kinds import FAILED, TOOL_USE, EventKind
from pipelines.columns.records import ListAsked, Listed
from pipelines.columns.tables import NOBODY, Array, Bits
from pipelines.columns.view import View

MAX_LISTED: Final = 100
"""Events of a list; all are counted."""


def listed(view: View, question: ListAsked) -> Listed:
    """What a viewer sees of all that is asked for, in the order of time.

    Where the session that it is asked in has some, and no tool or time is named, they are its own.
    """
    table = view.tenant.events.table
    chosen = view.seen & table["stands"]
    if question.kinds:
        chosen &= numpy.isin(table["kind"], numbers_of_kinds(view, question.kinds))
    if question.tools:
        names = [view.tenant.events.names.find(tool) for tool in question.tools]
        chosen &= numpy.isin(table["tool"], [name for name in names if name != NOBODY])
    if question.only_tools:
        chosen &= table["tool"] != NOBODY
    if question.failed:
        chosen &= failures(view)
    if question.stems:
        chosen &= _saying(view, numpy.flatnonzero(chosen), question.stems)
    if question.by_person is not None:
        is_agent = numpy.isin(table["author"], who(view, "agent", TOOL_USE))
        is_agent |= numpy.isin(table["kind"], numbers_of_kinds(view, TOOL_USE))
        chosen &= ~is_agent if question.by_person else is_agent
    if question.windows:
        chosen &= in_windows(view, question.windows)
    session = view.tenant.events.names.find(question.session)
    in_session = chosen & (table["session"] == session)
    if question.only_session or (in_session.any() and not (question.windows or question.tools)):
        chosen = in_session
    return _told(view, numpy.flatnonzero(chosen), newest_first=question.newest_first)


def last_ms(view: View, until_ms: int) -> int | None:
    """When the newest event that a viewer sees occurred, of those before a moment; None: none."""
    at_ms = view.tenant.events.table["occurred_ms"]
    before = at_ms[view.seen & (at_ms < until_ms)]
    return int(before.max()) if len(before) else None


def _saying(view: View, rows: Array, stems: Sequence[str]) -> Bits:
    """Which of the rows say one of the stems, or have it as their status."""
    events = view.tenant.events
    statuses = [number for one in stems if (number := events.names.find(one)) != NOBODY]
    saying = (events.texts.counts(stems, rows) > 0).any(axis=1)
    saying |= numpy.isin(events.table["status"][rows], statuses)
    chosen = numpy.zeros(events.table.size, dtype=bool)
    chosen[rows[saying]] = True
    return chosen


def _told(view: View, rows: Array, *, newest_first: bool) -> Listed:
    events = view.tenant.events
    times = [events.table[name][rows] for name in ("position_seq", "position_ms", "occurred_ms")]
    order = numpy.lexsort(times)[:: -1 if newest_first else 1]
    tools = Counter(events.table["tool"][rows[order]].tolist())
    tools.pop(NOBODY, None)
    return Listed(
        ids=[events.ids[row] for row in rows[order[:MAX_LISTED]].tolist()],
        total=len(rows),
        tools=[(events.names.text(tool) or "", count) for tool, count in tools.items()],
    )


# -- which events, and who ------------------------------------------------------------------


def numbers_of_kinds(view: View, kinds: Iterable[EventKind]) -> list[int]:
    """The numbers of the names of kinds."""
    names = view.tenant.events.names
    return [number for kind in kinds if (number := names.find(kind)) != NOBODY]


def who(view: View, column: str, kinds: Iterable[EventKind]) -> list[int]:
    """Numbers of a column in the events of some kinds that the viewer sees."""
    table = view.tenant.events.table
    chosen = numpy.isin(table["kind"], numbers_of_kinds(view, kinds)) & view.seen
    return different(table[column][chosen])


def failures(view: View) -> Bits:
    """Of each event whether it did not do what it was to do."""
    table, names = view.tenant.events.table, view.tenant.events.names
    statuses = [number for one in FAILED if (number := names.find(one)) != NOBODY]
    of_kind = numpy.isin(table["kind"], numbers_of_kinds(view, (EventKind.FAILURE,)))
    return numpy.asarray(of_kind | numpy.isin(table["status"], statuses))


def in_windows(view: View, windows: Iterable[tuple[int, int]]) -> Bits:
    """Of each event whether it occurred in one of some stretches of time."""
    at_ms = view.tenant.events.table["occurred_ms"]
    inside = numpy.zeros(len(at_ms), dtype=bool)
    for first_ms, end_ms in windows:
        inside |= (at_ms >= first_ms) & (at_ms < end_ms)
    return inside


def different(numbers: Array) -> list[int]:
    """The different ones of some numbers of names, without sorting them."""
    counts = numpy.bincount(numbers[numbers != NOBODY])
    return [int(number) for number in numpy.flatnonzero(counts)]
