"""What is selected of the ledger, and its events as JSON lines, as Parquet and as a transcript.

JSON lines are the bytes of the ledger's entries, in the order in which it took them. That order is
the whole point. Of two decisions about one subject the later one stays, a statement ends the one
before it: a ledger that takes the same events in the same order folds to the same graph, whatever
its positions, partitions and clock are. Positions themselves are not written: they are the clock of
the ledger that took the events, and another one has its own.

Parquet is for those who count and join: a column for each field of the envelope. The payload is
JSON text, times are timestamps in UTC, `position` is where the ledger has the event. To come back
into a ledger, export JSON lines.

A transcript is Markdown for people: who said and did what in a session, or of a user, by time. The
words are those that the enrichment reads (`enrichment.text`), up to 4,000 characters an event, as
quotations, so that no text of an event can be taken for a heading of the page. Two passes over the
events: one for the order (about 100 bytes an event are held), one for the words.

Memory is bounded: at any time at most about WINDOW_ENTRIES entries of all partitions are held.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import orjson

from enrichment.text import clean_text, event_text
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Tail
from pipelines.ledger.sealing import is_withheld, sealed_by
from pipelines.operations.imports import KEPT_PROBLEMS
from projections.errors import OperationFailed, UndecodableEntry
from projections.events import PARTITION_KEY, Event, encode_event, is_system_event, timestamp_text
from projections.identity import START, Position, partition_of

EXPORTING = "exporting"
"""What is being done, for progress."""


class Format(StrEnum):
    """What a file holds."""

    EVENTS = "events"
    PARQUET = "parquet"
    GRAPHML = "graphml"
    PROV = "prov"
    MARKDOWN = "markdown"


class Selection(NamedTuple):
    """Which events: of the tenant, within all that is named.

    Attributes:
        tenant: None: of all tenants.
        session_id: of this session.
        user_id: of this user, what was decided and corrected about them too.
        since_ms: that occurred at that moment or later.
        until_ms: that occurred until then.
    """

    tenant: str | None = None
    session_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    user_id: str | None = None

    def has(self, event: Event) -> bool:
        """Whether it is one of them."""
        return (
            self.tenant in (None, event.tenant)
            and self.session_id in (None, event.session_id)
            and self.user_id in (None, event.user_id)
            and (self.since_ms is None or event.occurred_at_ms >= self.since_ms)
            and (self.until_ms is None or event.occurred_at_ms <= self.until_ms)
        )


class LeftOut(NamedTuple):
    """An entry of the ledger that nobody can read."""

    partition: int
    position: str
    reason: str


@dataclass
class ExportReport:
    """What an export wrote.

    Attributes:
        written: how many, by what they are: events; nodes and edges by label and type.
        left_out: the first KEPT_PROBLEMS entries that could not be read.
        left_out_count: all of them.
        notes: what else a reader of the file must know.
    """

    written: Counter[str] = field(default_factory=Counter)
    left_out: list[LeftOut] = field(default_factory=list)
    left_out_count: int = 0
    notes: list[str] = field(default_factory=list)
    size: int = 0
    seconds: float = 0.0

    def leave_out(self, entry: Entry, reason: str) -> None:
        """Note an entry that cannot be read."""
        self.left_out_count += 1
        if len(self.left_out) < KEPT_PROBLEMS:
            self.left_out.append(LeftOut(entry.partition, str(entry.position), reason))

    def as_dict(self) -> dict[str, Any]:
        """For a machine."""
        return {
            "ok": not self.left_out_count,
            "written": dict(self.written),
            "bytes": self.size,
            "seconds": round(self.seconds, 3),
            "left_out": [row._asdict() for row in self.left_out],
            "left_out_count": self.left_out_count,
            "notes": self.notes,
        }


class ReadLedger(Protocol):
    """The part of the ledger that an export reads."""

    partitions: int

    def tails(self) -> list[Tail]:
        """The last entry of each partition, all of one moment."""
        ...

    def scan(
        self,
        partition: int,
        after: Position = START,
        until: Position | None = None,
        count: int = 1_000,
    ) -> Iterator[list[Entry]]:
        """All entries behind `after` up to `until`, in blocks."""
        ...

    def find_many(self, keys: list[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
        """Entries by tenant and event id."""
        ...


WINDOW_ENTRIES = 512
"""Read ahead, of all partitions together: about 1 MB, 160 MB if each is as large as can be."""
_FEWEST_AT_ONCE = 8


def events(
    ledger: ReadLedger, selection: Selection, report: ExportReport, progress: Progress
) -> Iterator[tuple[Event, Entry]]:
    """The selected events with their entries, in the order of the ledger, up to where it now ends.

    Args:
        ledger: that is read.
        selection: which of its events.
        report: told of entries that nobody can read; they may be of any tenant.
        progress: called with done, total and what is being done.

    Raises:
        LedgerUnavailable: Redis went away.
    """
    for entry in _in_order(ledger, _partitions(ledger, selection), progress):
        try:
            event = entry.event()
        except UndecodableEntry as error:
            report.leave_out(entry, str(error.data["reason"]))
            continue
        if selection.has(event):
            report.written["events"] += 1
            yield event, entry


def event_lines(
    ledger: ReadLedger, selection: Selection, report: ExportReport, progress: Progress
) -> Iterator[bytes]:
    """The same as lines, which `recollect import` reads; see `events`."""
    for event, entry in events(ledger, selection, report, progress):
        is_as_taken = sealed_by(entry.data) is None and not is_withheld(entry.keys, event)
        yield (entry.data if is_as_taken else encode_event(event)) + b"\n"


def _partitions(ledger: ReadLedger, selection: Selection) -> Collection[int]:
    """Where selected events may be: a session's, and what was stated in it."""
    tenant, session_id, count = selection.tenant, selection.session_id, ledger.partitions
    if tenant is None or session_id is None:
        return range(count)
    return {partition_of(tenant, key, count) for key in (session_id, PARTITION_KEY)}


def _in_order(
    ledger: ReadLedger, partitions: Collection[int], progress: Progress
) -> Iterator[Entry]:
    """Entries of partitions by position, which is a total order over all of them."""
    tails = ledger.tails()
    total = sum(tails[partition].seq for partition in partitions)
    at_once = max(WINDOW_ENTRIES // max(len(partitions), 1), _FEWEST_AT_ONCE)
    streams = [
        chain.from_iterable(ledger.scan(partition, until=tails[partition].position, count=at_once))
        for partition in sorted(partitions)
        if tails[partition].seq
    ]
    done = 0
    for done, entry in enumerate(heapq.merge(*streams, key=attrgetter("position")), 1):
        yield entry
        if done % WINDOW_ENTRIES == 0:
            progress(done, total, EXPORTING)
    progress(done, total, EXPORTING)


_ROWS = 10_000
"""Of a group, which is held in memory."""


def event_table(
    ledger: ReadLedger, selection: Selection, report: ExportReport, progress: Progress
) -> Iterator[bytes]:
    """The file, piece by piece; see `events` for the arguments.

    Raises:
        LedgerUnavailable: Redis went away.
    """
    import pyarrow
    from pyarrow import parquet

    times = pyarrow.timestamp("ms", tz="UTC")
    kinds = {"occurred_at_ms": times, "ended_at_ms": times}
    kinds |= {"schema_version": pyarrow.int32(), "importance_hint": pyarrow.int32()}
    schema = pyarrow.schema(
        [
            *(
                (name.removesuffix("_ms"), kinds.get(name, pyarrow.string()))
                for name in Event._fields
            ),
            ("position", pyarrow.string()),
        ]
    )
    sink = _Sink()
    writer = parquet.ParquetWriter(sink, schema, compression="zstd")
    selected = events(ledger, selection, report, progress)
    while group := list(islice(selected, _ROWS)):
        rows = [(*_cells(event), str(entry.position)) for event, entry in group]
        columns = [
            pyarrow.array(values, type=field.type)
            for values, field in zip(zip(*rows, strict=True), schema, strict=True)
        ]
        writer.write_table(pyarrow.table(columns, schema=schema))
        yield sink.taken()
    writer.close()
    yield sink.taken()


def _cells(event: Event) -> Iterator[Any]:
    for name, value in zip(Event._fields, event, strict=True):
        yield orjson.dumps(value).decode() if name == "payload" and value is not None else value


class _Sink:
    """A file that hands over what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """What was written stays to be taken."""

    def taken(self) -> bytes:
        """All since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


_AT_ONCE = 200


def transcript(
    ledger: ReadLedger, selection: Selection, report: ExportReport, progress: Progress
) -> Iterator[bytes]:
    """The page, piece by piece; see `events` for the arguments.

    Raises:
        OperationFailed: no such event is in the ledger.
        LedgerUnavailable: Redis went away.
    """
    selected = events(ledger, selection, report, _silent)
    events_of_it = (event for event, _ in selected if not is_system_event(event.event_type))
    places = sorted((event.occurred_at_ms, *event.key) for event in events_of_it)
    if not places:
        raise OperationFailed(
            reason=f"tenant {selection.tenant} has no event of {_of_what(selection)}"
        )
    report.written["events"] = 0
    yield _head(selection, places[0][0], places[-1][0], len(places))
    left = iter(places)
    while page := list(islice(left, _AT_ONCE)):
        entries = ledger.find_many([(tenant, event_id) for _, tenant, event_id in page])
        for _, tenant, event_id in page:
            yield _told(entries[tenant, event_id].event())
            report.written["events"] += 1
        progress(report.written["events"], len(places), EXPORTING)


def _of_what(selection: Selection) -> str:
    named = (("user", selection.user_id), ("session", selection.session_id))
    return ", ".join(f"{what} {_line(name)}" for what, name in named if name is not None)


def _head(selection: Selection, first_ms: int, last_ms: int, count: int) -> bytes:
    what = _of_what(selection)
    return (
        f"# {what[:1].upper()}{what[1:]}\n\n"
        f"- tenant: {selection.tenant}\n"
        f"- from {timestamp_text(first_ms)} to {timestamp_text(last_ms)}\n"
        f"- events: {count:,}\n"
    ).encode()


def _told(event: Event) -> bytes:
    """One event: a heading with time, speaker and type, its words below."""
    text = event_text(event)
    status = f" ({event.status})" if event.status else ""
    user = f", about {_line(event.user_id)}" if event.user_id else ""
    words = "\n".join(f"> {line}".rstrip() for line in text.text.splitlines())
    speaker = _line(text.speaker or event.agent_id)
    return (
        f"\n## {timestamp_text(event.occurred_at_ms)} {speaker}: {event.event_type}{status}\n\n"
        f"{words or '> (no words)'}\n\n"
        f"`{event.event_id}`{user}\n"
    ).encode()


def _silent(done: int, total: int | None, what: str) -> None:
    """The first look is no progress."""


def _line(text: str) -> str:
    """A name as a part of a line."""
    return " ".join(clean_text(text).split())
