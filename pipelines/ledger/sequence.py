"""The ledger read as one sequence: the entries of all partitions in the order of their positions.

One clock gives out the positions of all partitions, and an append takes place in one moment. So
what stands up to the last position of a moment is complete, whichever partitions it stands in, and
a single position says what has been read.

`LedgerTail` reads the newest entries as they come, for who neither appends nor acknowledges;
`segment_entries` reads as much of a partition as a segment of an archive or a backup holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Self, TypeVar

import redis

from pipelines.ledger.archive import Boundary
from pipelines.ledger.connect import call_patiently
from pipelines.ledger.entries import Entry, LedgerKeys, decode_entry
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.segments import MAX_BYTES, MAX_ENTRIES
from projections.errors import LedgerError
from projections.identity import START, Position

Result = TypeVar("Result")


READ_AT_ONCE: Final = 1_000


class Behind(NamedTuple):
    """What stands behind some places.

    Attributes:
        made: which ledger it is; another one when Redis was emptied or restored.
        partitions: that it has; 0: there is no ledger yet.
        entries: of all partitions; one that is not what was appended has a `fault`.
    """

    made: str
    partitions: int
    entries: Sequence[Entry]


class LedgerTail:
    """Reads what is appended. Each call is tried once: whoever follows tries again anyway.

    Args:
        client: of the ledger's server.
        prefix: of its keys.
    """

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._keys = LedgerKeys(prefix)

    def behind(self, places: Mapping[int, Position], count: int) -> Behind:
        """The first `count` entries of each partition behind its place, in one round trip.

        Raises:
            LedgerUnavailable: Redis is away.
            UndecodableEntry: a stream holds what is no entry.
        """
        numbers = {self._keys.stream(partition).encode(): partition for partition in places}

        def ask() -> list[Any]:
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.hmget(self._keys.format, "created_at_ms", "partitions")
                if places:
                    streams = {self._keys.stream(place): str(places[place]) for place in places}
                    pipeline.xread(streams, count=count)
                replies: list[Any] = pipeline.execute()
            return replies

        (created, partitions), *read = _once(ask)
        streams = dict(read[0] or ()) if read else {}
        return Behind(
            made=(created or b"").decode(),
            partitions=int(partitions or 0),
            entries=[
                decode_entry(numbers[stream], *entry)
                for stream, entries in streams.items()
                for entry in entries
            ],
        )

    def wait(self, places: Mapping[int, Position], timeout_ms: int) -> None:
        """Return when an entry stands behind one of the places, or when the time is over.

        It only rings: the entry that ends the waiting may not be the first of all partitions.

        Args:
            places: by partition, at least one.
            timeout_ms: at least 1; less than a command may take.

        Raises:
            LedgerUnavailable: Redis is away.
        """
        streams = {self._keys.stream(one): str(place) for one, place in places.items()}
        _once(lambda: self._redis.xread(streams, count=1, block=timeout_ms))

    def newest(self, partition: int, count: int) -> list[Entry]:
        """The last `count` entries of a partition, the newest first. Raises as `behind` does."""
        replies = _once(lambda: self._redis.xrevrange(self._keys.stream(partition), count=count))
        return [decode_entry(partition, *reply) for reply in replies]


def _once(ask: Callable[[], Result]) -> Result:
    return call_patiently(ask, retry_on=lambda error: False)


MAX_STRETCH_ENTRIES: Final = 256
MAX_STRETCH_BYTES: Final = 2**20
"""Of a stretch; a single entry may be larger."""
_FIRST_ENTRIES: Final = 32
_LAST_SEQ: Final = 2**64 - 1


class Stretch(NamedTuple):
    """What was read.

    Attributes:
        entries: in the order of their positions; those that are held out are left away.
        until: everything up to here has been read, of the partitions that are read.
        is_end: there was no more.
    """

    entries: Sequence[Entry]
    until: Position
    is_end: bool


class LedgerSequence:
    """Reads on from a place. For one thread at a time.

    Args:
        ledger: that is read.
        after: behind which it begins.
        partitions: that are read; None: all.
    """

    def __init__(
        self, ledger: Ledger, after: Position, partitions: Iterable[int] | None = None
    ) -> None:
        self._ledger = ledger
        self._partitions = list(range(ledger.partitions) if partitions is None else partitions)
        self._places: dict[int, Tail] = {}
        self._entries = _FIRST_ENTRIES
        self.until = after

    @classmethod
    def at_tail(cls, ledger: Ledger) -> Self:
        """What is appended from now on.

        Raises:
            LedgerUnavailable: Redis is away.
        """
        tails = ledger.tails()
        sequence = cls(ledger, last_position(tails))
        sequence._places = dict(enumerate(tails))
        return sequence

    def read(self) -> Stretch:
        """The next stretch.

        Raises:
            LedgerUnavailable: Redis is away.
            UndecodableEntry: a stream holds what is no entry.
            LedgerError: the ledger is another one by now, or an older state of it.
        """
        if not self._places:
            self._places = {partition: self._place(partition) for partition in self._partitions}
        tails = self._ledger.tails()
        self._require_same(tails)
        end = max(self.until, last_position(tails))
        entries, until = self._merged(tails, end)
        for entry in entries:
            self._places[entry.partition] = Tail(entry.position, entry.seq)
        # One that was put right after it was passed comes again, at its own place.
        fresh = [one for one in entries if not one.fault and one.position > self.until]
        self.until = until
        return Stretch(fresh, until, until == end)

    def wait(self, timeout_ms: int) -> None:
        """Return when something is behind what was read, or the time is over.

        Raises:
            LedgerUnavailable: Redis is away.
        """
        places = {partition: place.position for partition, place in self._places.items()}
        LedgerTail(self._ledger.client, self._ledger.keys.prefix).wait(places, timeout_ms)

    def _place(self, partition: int) -> Tail:
        """The last entry up to where it begins; its number tells whether the next one is lost."""
        if self.until == START:
            return Tail(START, 0)
        ms, seq = self.until
        beyond = Position(ms, seq + 1) if seq < _LAST_SEQ else Position(ms + 1, 0)
        last = self._ledger.newest(partition, beyond, 1)
        return Tail(last[0].position, last[0].seq) if last else Tail(START, 0)

    def _require_same(self, tails: Sequence[Tail]) -> None:
        for partition, place in self._places.items():
            tail = tails[partition]
            if tail.position < place.position or 0 < tail.seq < place.seq:
                raise LedgerError(reason=f"partition {partition} ends before what was read of it")

    def _merged(self, tails: Sequence[Tail], end: Position) -> tuple[list[Entry], Position]:
        """Entries of all partitions up to a position, and that."""
        places = self._places
        behind = [one for one in self._partitions if tails[one].position > places[one].position]
        # The one with the most first: where its part ends, those of the others end, too.
        behind.sort(key=lambda partition: places[partition].seq - tails[partition].seq)
        count = -(-self._entries // max(1, len(behind)))
        entries: list[Entry] = []
        for partition in behind:
            place = places[partition]
            read = self._ledger.read(
                partition, place.position, count, end, after_seq=place.seq or None
            )
            entries += read
            if len(read) >= count:
                end = min(end, read[-1].position)
        merged = sorted(
            (entry for entry in entries if entry.position <= end), key=attrgetter("position")
        )
        fitting = _fitting(merged)
        if fitting < len(merged):
            self._entries = fitting
            return merged[:fitting], merged[fitting - 1].position
        self._entries = min(MAX_STRETCH_ENTRIES, 2 * self._entries)
        return merged, end


def segment_entries(
    ledger: Ledger, after: Boundary, partition: int, limit: int
) -> tuple[list[Entry], int]:
    """Entries of one segment behind a place, up to a number.

    Returns:
        The entries, and their bytes; with those of the next one, if that is why they end.
    """
    entries: list[Entry] = []
    size, seq, position = 0, after.seq, after.position
    while seq < limit and len(entries) < MAX_ENTRIES and size <= MAX_BYTES:
        count = min(READ_AT_ONCE, limit - seq, MAX_ENTRIES - len(entries))
        block = ledger.read(partition, position, count, after_seq=seq)
        for entry in block:
            size += len(entry.data)
            if size > MAX_BYTES and entries:
                break
            entries.append(entry)
        if not block:
            break
        seq, position = entries[-1].seq, entries[-1].position
    return entries, size


def last_position(tails: Sequence[Tail]) -> Position:
    """Of the newest entry of all; START: there is none."""
    return max((tail.position for tail in tails), default=START)


def _fitting(entries: Sequence[Entry]) -> int:
    """How many of the first entries are one stretch."""
    size = 0
    for number, entry in enumerate(entries):
        size += len(entry.data)
        if number and size > MAX_STRETCH_BYTES:
            return number
    return len(entries)
