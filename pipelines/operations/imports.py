"""Import: files of events or chat trajectories into the ledger, streamed, each line judged alone.

Gather (read a line), decide (parse), apply (append a batch). What the rules or the ledger refuse
is reported with its line, field and rule while the rest goes on; the sum of the counts is the
number of lines, so that nothing can be lost silently.
"""

from __future__ import annotations

import gzip
import io
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import orjson

from consolidation.decisions import recorded_event
from enrichment.payloads import offered_event
from pipelines.operations.chat_trajectories import conversation_events
from projections.errors import EventConflict, InvalidInput, RecollectError
from projections.events import Event
from projections.identity import Position

if TYPE_CHECKING:
    from pipelines.ledger.ledger import Outcome

MAX_LINE_BYTES = 8 * 2**20
"""A line beyond this is refused unread: a file without line ends must not fill the memory."""
KEPT_PROBLEMS = 1_000
"""Problems a report keeps; each one is told as it is found, beyond this they are counted only."""
_CHUNK_CHARACTERS = 1 << 18


_UNREADABLE = (EOFError, gzip.BadGzipFile, zlib.error)
"""What a truncated or damaged .gz raises, at any read."""


class Item(NamedTuple):
    """One thing to import. `where` is for people; `raw` is an envelope, or why there is none."""

    where: dict[str, int]
    raw: Any
    error: InvalidInput | None = None


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
class ImportReport:
    """What became of a source. `read` = new + duplicates + conflicts + invalid + halted.

    Attributes:
        last: by partition, the highest position that an event of the source has in the ledger.
        problems: the first KEPT_PROBLEMS of what was refused.
        problems_left_out: how many more there were.
    """

    read: int = 0
    new: int = 0
    duplicates: int = 0
    conflicts: int = 0
    invalid: int = 0
    halted: int = 0
    seconds: float = 0.0
    last: dict[int, Position] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    problems_left_out: int = 0

    @property
    def refused(self) -> int:
        """Lines that are not in the ledger."""
        return self.conflicts + self.invalid + self.halted

    @property
    def rate(self) -> float:
        """Lines a second."""
        return self.read / self.seconds if self.seconds > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For a machine."""
        return {
            "ok": self.refused == 0,
            "read": self.read,
            "new": self.new,
            "duplicates": self.duplicates,
            "conflicts": self.conflicts,
            "invalid": self.invalid,
            "halted": self.halted,
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.rate, 1),
            "problems": [problem.as_dict() for problem in self.problems],
            "problems_left_out": self.problems_left_out,
        }


class Appender(Protocol):
    """The part of the ledger that an import needs."""

    def append(self, events: Sequence[Event]) -> list[Outcome]:
        """Append in order; one outcome an event."""


def import_events(
    ledger: Appender,
    items: Iterable[Item],
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
        items: from `event_items` or `chat_items`.
        tenant: the tenant of all of them; an envelope that names another is refused.
        decisions: take what another ledger decided, too, as an export of it tells; else only what
            producers may send.
        batch: events an append.
        on_problem: told of each refusal as it is found.
        on_batch: told after each batch.
        clock: seconds since the epoch, for the rule on events of the future and for the rate.

    Raises:
        LedgerUnavailable: Redis went away; what was appended stays, and importing the same
            source again skips it as duplicates.
    """
    judge = recorded_event if decisions else offered_event
    importing = _Import(ledger, on_problem=on_problem, on_batch=on_batch, clock=clock)
    for item in items:
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
        outcomes = self._ledger.append([event for _, event in self.waiting])
        for (item, _), outcome in zip(self.waiting, outcomes, strict=True):
            self._count(item, outcome)
        self.waiting.clear()
        self.report.seconds = self._clock() - self.begun
        self._on_batch(self.report)

    def _count(self, item: Item, outcome: Outcome) -> None:
        report = self.report
        if isinstance(outcome, EventConflict):
            report.conflicts += 1
            self._tell(Problem(item.where, "event_id", "in the ledger with other content"))
        elif isinstance(outcome, InvalidInput):
            self.refuse(item, outcome)
        elif isinstance(outcome, RecollectError):
            report.halted += 1
            self._tell(Problem(item.where, "(partition)", str(outcome)))
        else:
            report.duplicates += outcome.duplicate
            report.new += not outcome.duplicate
            last = report.last.get(outcome.partition)
            if last is None or outcome.position > last:
                report.last[outcome.partition] = outcome.position


class Source:
    """A file or standard input, opened, with gzip taken off and the bytes read so far known.

    Attributes:
        size: bytes of the file as it lies on disk; None when that cannot be known.
    """

    def __init__(self, path: Path) -> None:
        standard_input = str(path) == "-"
        # Unbuffered, so that a read returns what a pipe has instead of waiting for more.
        raw = open(0, "rb", 0, closefd=False) if standard_input else path.open("rb", 0)  # noqa: SIM115 - closed with `stream`
        self.size = None if standard_input else path.stat().st_size
        self._counted = _Counted(raw)
        buffered = io.BufferedReader(self._counted, 1 << 16)
        # By its first bytes, not by its name: standard input has none.
        packed = buffered.peek(2)[:2] == b"\x1f\x8b"
        self.stream = cast(IO[bytes], gzip.GzipFile(fileobj=buffered) if packed else buffered)

    @property
    def done(self) -> int:
        """Bytes read of `size`."""
        return self._counted.count


class _Counted(io.RawIOBase):
    """Counts what passes, under the decompression, so that remaining time can be told."""

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._raw.readinto(buffer) or 0
        self.count += read
        return read

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


def event_items(stream: IO[bytes]) -> Iterator[Item]:
    """JSON lines of envelopes; blank lines are passed over."""
    number = 0
    try:
        for number, line in _lines(stream):
            where = {"line": number}
            if line is None:
                rule = f"at most {MAX_LINE_BYTES // 2**20} MiB"
                yield Item(where, None, InvalidInput((("(line)", rule),)))
            elif line.strip():
                try:
                    raw = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    yield Item(where, None, InvalidInput((("(line)", f"JSON: {error}"),)))
                else:
                    yield Item(where, raw)
    except _UNREADABLE as error:
        yield Item({"line": number + 1}, None, InvalidInput((("(file)", f"gzip: {error}"),)))


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines from 1; None for one that is too long, which is skipped in pieces."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield number, None
        else:
            yield number, line


def chat_items(stream: IO[bytes]) -> Iterator[Item]:
    """Events of a JSON list of trajectories; a single trajectory is a list of one.

    A conversation or a message that breaks a rule is refused alone. Broken JSON ends the file,
    for nobody can say where the next conversation would begin.
    """
    for number, trajectory in enumerate(_elements(stream), start=1):
        where = {"conversation": number}
        if isinstance(trajectory, InvalidInput):
            yield Item(where, None, trajectory)
            return
        try:
            for mapped in conversation_events(trajectory):
                place = {**where, "message": mapped.place + 1}
                yield Item(place, mapped.envelope, mapped.error)
        except InvalidInput as error:
            yield Item(where, None, error)


def _elements(stream: IO[bytes]) -> Iterator[Any]:
    """Elements of a JSON list, decoded one at a time; an InvalidInput where it is broken."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig")
    decode = json.JSONDecoder().raw_decode
    try:
        buffer = text.read(_CHUNK_CHARACTERS).lstrip()
        if not buffer.startswith("["):
            yield json.loads(buffer + text.read())
            return
        buffer = buffer[1:]
        if _is_message_list(buffer):
            yield json.loads("[" + buffer + text.read())
            return
        separator = ""
        while True:
            buffer = buffer.lstrip() or _after_space(text)
            if buffer.startswith("]"):
                return
            if separator:
                if not buffer.startswith(separator):
                    raise ValueError("',' or ']' expected after a conversation")
                buffer = buffer[1:].lstrip() or _after_space(text)
            element, buffer = _decode_next(decode, buffer, text)
            separator = ","
            yield element
    except (ValueError, RecursionError, *_UNREADABLE) as error:
        yield InvalidInput((("(file)", f"JSON: {error}"),))


def _is_message_list(after_bracket: str) -> bool:
    """Whether a list holds messages rather than trajectories: its first element has a role."""
    try:
        first, _ = json.JSONDecoder().raw_decode(after_bracket.lstrip())
    except ValueError:
        return False
    return isinstance(first, dict) and "role" in first


def _after_space(text: io.TextIOWrapper) -> str:
    while chunk := text.read(_CHUNK_CHARACTERS):
        if begun := chunk.lstrip():
            return begun
    raise EOFError("the list does not end")


def _decode_next(
    decode: Callable[[str], tuple[Any, int]], buffer: str, text: io.TextIOWrapper
) -> tuple[Any, str]:
    """The next element and what follows it; reads as much as it had, so a long one is linear."""
    while True:
        try:
            element, end = decode(buffer)
        except ValueError:
            more = text.read(max(_CHUNK_CHARACTERS, len(buffer)))
            if not more:
                raise
            buffer += more
        else:
            return element, buffer[end:]
