"""What stands behind a failure in other sessions: recorded causes, and what a failure blames."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import numpy

from enrichment.act_names import is_reader, tells_of_change
from enrichment.event_kinds import EventKind
from pipelines.columns.listing import failures, numbers_of_kinds
from pipelines.columns.tables import NOBODY, best
from pipelines.columns.view import View

_IDENTIFIER: Final = re.compile(r"\d|[^\W\d_][._][^\W\d_]")
"""A name with a digit, or of parts: `queue.limit`."""
MAX_STEPS: Final = 5
"""From a failure to a cause."""
MAX_CAUSES: Final = 100
MAX_FAILURES: Final = 60
"""That are looked behind, in their order."""
MAX_GUESSED: Final = 8
"""Failures for which a change is looked for by meaning."""
MAX_CHANGES: Final = 1_000
"""The newest."""
MAX_OTHERS: Final = 1_000
"""Failures that a change is compared with to know what it is near to as a rule."""
FEW_OTHERS: Final = 4
"""Failures that tell no more than half of what a change is near to as a rule."""
LIKE: Final = 0.1
"""Cosine of a failure and a change below which they have nothing in common."""
_STEPS_TO_CALL: Final = 4
"""Events between a failure and its call, at most."""
_DECIDING: Final = (EventKind.RESULT, EventKind.DECISION, EventKind.OTHER)


def causes_elsewhere(view: View, failed: Iterable[int]) -> dict[int, int]:
    """Rows of the causes that stand in another session than their failure, and that failure's row.

    Of one that stands behind several failures the first counts. What another session changed, and
    a failure names, stands behind it as well: the link of both was decided. So does what was last
    done about a thing that the failure blames.
    """
    session = view.tenant.events.table["session"]
    blaming = _Blaming(view)
    elsewhere: dict[int, int] = {}
    for failure in islice(failed, MAX_FAILURES):
        met, level = {failure}, [failure]
        for _ in range(MAX_STEPS):
            behind = (cause for row in level for cause in _causes_of(view, row))
            new = {row for row in behind if row not in met and view.seen[row]}
            level = sorted(new, key=view.tenant.events.place)
            met.update(level)
            for row in level:
                if session[row] != session[failure]:
                    elsewhere.setdefault(row, failure)
        if not any(session[row] != session[failure] for row in met):
            for row in blaming.decided(failure):
                elsewhere.setdefault(row, failure)
        if len(elsewhere) >= MAX_CAUSES:
            break
    return elsewhere


def changes_before(view: View, failed: Iterable[int]) -> dict[int, int]:
    """Rows of the changes that may be behind failures of which no cause is known, and these.

    A guess, for whoever asks which change it was: of what other sessions changed before a failure
    (`config.changed`) the one that means most like it, and more so than it is like failures as a
    rule: some changes are near to every failure.
    """
    events = view.tenant.events
    table = events.table
    changing = [
        number
        for number in numpy.unique(table["type"]).tolist()
        if tells_of_change(events.names.text(number) or "")
    ]
    told = numpy.isin(table["type"], changing) & view.seen
    told &= numpy.isin(table["kind"], numbers_of_kinds(view, (EventKind.OTHER,)))
    failed_rows = failures(view)
    changes = numpy.flatnonzero(told & ~failed_rows).astype(numpy.int32)
    changes = changes[numpy.argsort(table["occurred_ms"][changes], kind="stable")]
    changes = changes[-MAX_CHANGES:]
    failing = numpy.array([*islice(failed, MAX_GUESSED)], dtype=numpy.int32)
    directions = events.vectors.unit(changes)
    near = events.vectors.unit(failing) @ directions.T
    others = numpy.flatnonzero(failed_rows & view.seen).astype(numpy.int32)[-MAX_OTHERS:]
    usual = events.vectors.unit(others).sum(axis=0) / (len(others) + FEW_OTHERS)
    likeness = near - directions @ usual
    may_be = near >= LIKE
    may_be &= table["occurred_ms"][changes] < table["occurred_ms"][failing][:, None]
    may_be &= table["session"][changes] != table["session"][failing][:, None]
    behind: dict[int, int] = {}
    for place, failure in enumerate(failing.tolist()):
        rows = changes[may_be[place]]
        for first in best(rows, likeness[place][may_be[place]], 1, events.ranks).tolist():
            behind.setdefault(int(rows[first]), failure)
    return behind


def _causes_of(view: View, row: int) -> Iterator[int]:
    tenant = view.tenant
    yield from (cause for cause, _ in tenant.causes.targets(row))
    own_id, summary = tenant.events.ids[row], tenant.summaries.get
    for summary_id in tenant.summaries_of(row):
        for link in tenant.links.get(summary_id, ()):
            seen = view.sees_made(summary(summary_id)) and view.sees_made(summary(link.other_id))
            if seen and link.effect_id == own_id and link.cause_id in tenant.events.rows:
                yield tenant.events.rows[link.cause_id]


class _Blaming:
    """`denied by policy P-3`: a failure names a thing that nobody in its session spoke of before.

    What was last done about that thing, before the failure and in another session, is behind it.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._failures = failures(view)
        events = view.tenant.events
        self._session = events.table["session"].item
        self._tool = events.table["tool"].item
        self._kind = events.table["kind"].item
        self._previous = events.table["previous"].item
        self._calling = set(numbers_of_kinds(view, (EventKind.CALL,)))
        self._deciding = set(numbers_of_kinds(view, _DECIDING))

    def decided(self, failure: int) -> Iterator[int]:
        """The last act about each thing that a failure blames."""
        tenant, place = self._view.tenant, self._view.tenant.events.place
        for thing in sorted(self._blamed(failure)):
            mentions = tenant.entities.all[thing].mentions
            before = [row for row in mentions if place(row) < place(failure)]
            if any(self._session(row) == self._session(failure) for row in before):
                continue  # it is the session's own
            acts = (row for row in reversed(before) if self._view.seen[row] and self._is_act(row))
            yield from islice(acts, 1)

    def _blamed(self, failure: int) -> set[int]:
        """Things by an identifier that a failure names and its call does not."""
        tenant, call = self._view.tenant, self._call(failure)
        names = tenant.entities.all
        named = {
            thing
            for thing, _ in tenant.mentions.targets(failure)
            if _IDENTIFIER.search(names[thing].canonical_name or "")
        }
        called = set() if call is None else {thing for thing, _ in tenant.mentions.targets(call)}
        return named - called

    def _call(self, failure: int) -> int | None:
        row = self._previous(failure)
        for _ in range(_STEPS_TO_CALL):
            if row == NOBODY:
                return None
            if self._kind(row) in self._calling and self._tool(row) == self._tool(failure):
                return int(row)
            row = self._previous(row)
        return None

    def _is_act(self, row: int) -> bool:
        tool = self._view.tenant.events.names.text(self._tool(row)) or ""
        done = self._kind(row) in self._deciding and not self._failures[row]
        return bool(done) and not is_reader(tool)
