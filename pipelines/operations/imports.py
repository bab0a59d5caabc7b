"""Import: what files hold into the ledger, streamed, each event judged alone.

Gather (read a record), decide (map, parse), apply (append a batch). What the rules or the ledger
refuse is reported with its place, field and rule while the rest goes on; the sum of the counts is
the number of events, and what no event holds is told by field and reason, so that nothing can be
lost silently.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

from consolidation.decisions import recorded_event
from enrichment.payloads import offered_event
from pipelines.ledger.ledger import Finder, Outcome, second_outcome
from pipelines.operations.sources import Item, Note
from projections.errors import EventConflict, InvalidInput, LedgerUnavailable, RecollectError
from projections.events import Event
from projections.identity import Position

KEPT_PROBLEMS = 1_000
"""Problems a report keeps; each one is told as it is found, beyond this they are counted only."""
_NUMBERS = re.compile(r"\[\d+\]")
"""Places in lists, which would make the same field of each message another one."""


class Problem(NamedTuple):
    """A rule broken at a place of the source."""

    where: dict[str, int]
    field: str
    rule: str

    def as_dict(self) -> dict[str, Any]:
        """For a machine."""
        return {**self.where, "field": self.field, "rule": self.rule}

    def __str__(self) -> str:
        place = ", ".join(f"{name} {number}" for name, number in self.where.items())
        return f"{place}: {self.field}: {self.rule}"


@dataclass
class Unmapped:
    """Parts of a source that no event holds: which, why, how often, and where first."""

    field: str
    reason: str
    count: int
    first: dict[str, int]


@dataclass
class ImportReport:
    """What became of a source. `read` = new + duplicates + retold + conflicts + invalid + halted.

    Attributes:
        retold: of an event that another record told before in words of its own, which stay.
        last: by partition, the highest position that an event of the source has in the ledger.
        problems: the first KEPT_PROBLEMS of what was refused.
        problems_left_out: how many more there were.
        unmapped: by field and reason, KEPT_PROBLEMS of them.
        unmapped_left_out: parts that are counted in none of these.
    """

    read: int = 0
    new: int = 0
    duplicates: int = 0
    retold: int = 0
    conflicts: int = 0
    invalid: int = 0
    halted: int = 0
    seconds: float = 0.0
    last: dict[int, Position] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    problems_left_out: int = 0
    unmapped: dict[tuple[str, str], Unmapped] = field(default_factory=dict)
    unmapped_left_out: int = 0

    @property
    def refused(self) -> int:
        """Events that are not in the ledger."""
        return self.conflicts + self.invalid + self.halted

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.read / self.seconds if self.seconds > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For a machine."""
        return {
            "ok": self.refused == 0,
            "read": self.read,
            "new": self.new,
            "duplicates": self.duplicates,
            "retold": self.retold,
            "conflicts": self.conflicts,
            "invalid": self.invalid,
            "halted": self.halted,
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.rate, 1),
            "problems": [problem.as_dict() for problem in self.problems],
            "problems_left_out": self.problems_left_out,
            "unmapped": [asdict(row) for row in self.unmapped.values()],
            "unmapped_left_out": self.unmapped_left_out,
        }

    def note(self, note: Note) -> None:
        """Count a part of the source that no event holds."""
        name = _NUMBERS.sub("[]", note.field)
        row = self.unmapped.get((name, note.reason))
        if row is not None:
            row.count += 1
        elif len(self.unmapped) < KEPT_PROBLEMS:
            self.unmapped[name, note.reason] = Unmapped(name, note.reason, 1, note.where)
        else:
            self.unmapped_left_out += 1


class Appender(Finder, Protocol):
    """The part of the ledger that an import needs."""

    def append(self, events: Sequence[Event]) -> list[Outcome]:
        """Append in order; one outcome an event."""


def import_events(
    ledger: Appender,
    items: Iterable[Item | Note],
    *,
    tenant: str | None = None,
    decisions: bool = False,
    batch: int = 500,
    on_problem: Callable[[Problem], None] = lambda problem: None,
    on_batch: Callable[[ImportReport], None] = lambda report: None,
    clock: Callable[[], float] = time.time,
) -> ImportReport:
    """Append what `items` hold, `batch` events at a time.

    Args:
        ledger: takes the events.
        items: from a row of `formats.table.FORMS`.
        tenant: the tenant of all of them; an envelope that names another is refused.
        decisions: take what another ledger decided, too, as an export of it tells; else only what
            producers may send.
        batch: events an append.
        on_problem: told of each refusal as it is found.
        on_batch: told after each batch.
        clock: seconds since the epoch, for the rule on events of the future and for the rate.

    Raises:
        LedgerUnavailable: Redis or the archive is away; what was appended stays, and importing the
            same source again skips it as duplicates.
    """
    judge = recorded_event if decisions else offered_event
    importing = _Import(ledger, on_problem=on_problem, on_batch=on_batch, clock=clock)
    for item in items:
        if isinstance(item, Note):
            importing.report.note(item)
            continue
        importing.report.read += 1
        if item.error is not None:
            importing.refuse(item, item.error)
            continue
        try:
            event = judge(item.raw, now_ms=int(clock() * 1000), tenant=tenant)
        except InvalidInput as error:
            importing.refuse(item, error)
            continue
        importing.waiting.append((item, event))
        if len(importing.waiting) >= batch:
            importing.append()
    if importing.waiting:
        importing.append()
    importing.report.seconds = clock() - importing.begun
    return importing.report


class _Import:
    """An import under way: what waits for the next append, and what became of all before."""

    def __init__(
        self,
        ledger: Appender,
        *,
        on_problem: Callable[[Problem], None],
        on_batch: Callable[[ImportReport], None],
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._on_problem = on_problem
        self._on_batch = on_batch
        self._clock = clock
        self.report = ImportReport()
        self.begun = clock()
        self.waiting: list[tuple[Item, Event]] = []

    def refuse(self, item: Item, error: InvalidInput) -> None:
        self.report.invalid += 1
        for name, rule in error.errors:
            self._tell(Problem(item.where, name, rule))

    def _tell(self, problem: Problem) -> None:
        if len(self.report.problems) < KEPT_PROBLEMS:
            self.report.problems.append(problem)
        else:
            self.report.problems_left_out += 1
        self._on_problem(problem)

    def append(self) -> None:
        while self.waiting:
            outcomes = self._ledger.append([event for _, event in self.waiting])
            again: list[tuple[Item, Event]] = []
            for (item, event), outcome in zip(self.waiting, outcomes, strict=True):
                other = None
                if isinstance(outcome, EventConflict):
                    other = second_outcome(self._ledger, event, item.own_id)
                if other is None:
                    self._count(item, outcome)
                else:
                    again.append((item._replace(is_shared=False, own_id=None), other))
            self.waiting = again
        self.report.seconds = self._clock() - self.begun
        self._on_batch(self.report)

    def _count(self, item: Item, outcome: Outcome) -> None:
        report = self.report
        if isinstance(outcome, EventConflict) and item.is_shared:
            report.retold += 1
        elif isinstance(outcome, EventConflict):
            report.conflicts += 1
            self._tell(Problem(item.where, "event_id", "in the ledger with other content"))
        elif isinstance(outcome, InvalidInput):
            self.refuse(item, outcome)
        elif isinstance(outcome, LedgerUnavailable):
            raise outcome  # the archive is away, say: the import is run once more
        elif isinstance(outcome, RecollectError):
            report.halted += 1
            self._tell(Problem(item.where, "(partition)", str(outcome)))
        else:
            report.duplicates += outcome.duplicate
            report.new += not outcome.duplicate
            last = report.last.get(outcome.partition)
            if last is None or outcome.position > last:
                report.last[outcome.partition] = outcome.position
