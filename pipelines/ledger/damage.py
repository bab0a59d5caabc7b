"""Entries that are not what was appended: found by every read, held out, and put right.

The digest of an event stands in its stream entry and in the id index. An entry whose content
differs from it is *altered*; one whose number is passed over is *lost*. Neither is ever folded or
served. A stream takes nothing in between, so what puts an entry right stands beside it, by its
number: the append script writes it there when the event is sent again, and it goes before
whatever the stream says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from struct import Struct
from typing import Any, Final, NamedTuple, Self

import redis
from redis.exceptions import RedisError

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.entries import ALTERED, LOST, SOUND, UNPROVEN, Entry, LedgerKeys, bucket_of
from pipelines.ledger.sealing import Opener
from projections.events import content_digest
from projections.identity import Position

_PLACE: Final = Struct(">16sHQI")
_NUMBER: Final = Struct(">I")
_RESTORED: Final = Struct(">16sQI")


class Place(NamedTuple):
    """What the id index says of an event; `seq` is None where it was written without it."""

    digest: bytes
    partition: int
    position: Position
    seq: int | None

    @classmethod
    def unpacked(cls, value: bytes) -> Self:
        """From the bytes that the append script wrote."""
        digest, partition, ms, number = _PLACE.unpack_from(value)
        has_seq = len(value) > _PLACE.size
        seq = _NUMBER.unpack_from(value, _PLACE.size)[0] if has_seq else None
        return cls(digest, partition, Position(ms, number), seq)

    def packed(self) -> bytes:
        """As the append script writes it."""
        value = _PLACE.pack(self.digest, self.partition, *self.position)
        return value if self.seq is None else value + _NUMBER.pack(self.seq)


class HeldOut(NamedTuple):
    """How many entries are held out; the lost may be put right only by sending them again.

    Attributes:
        altered: as far as somebody has read them.
        lost: numbers that were given out and stand nowhere.
    """

    altered: int = 0
    lost: int = 0


class Damage:
    """Judges what was read, and looks for what puts it right. Safe for threads.

    Its methods raise LedgerUnavailable when Redis is away. Nothing is asked where all is well.

    Args:
        client: of the ledger's Redis.
        keys: names of its keys.
        id_buckets: of the ledger's id index.
        opener: of what was put right, if it is sealed.
    """

    def __init__(
        self,
        client: redis.Redis,
        keys: LedgerKeys,
        *,
        id_buckets: int,
        opener: Opener | None = None,
    ) -> None:
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._keys = keys
        self._id_buckets = id_buckets
        self._opener = opener

    def settled(
        self, entries: list[Entry], after: Position, after_seq: int | None, count: int
    ) -> list[Entry]:
        """Entries that were read in a row, with those that are lost between them.

        Args:
            entries: of one partition, as decoded.
            after: position that they were read behind.
            after_seq: number of the entry there; None: not known, so that none is missed there.
            count: how many at most; a hole may be wider than what was asked for.
        """
        if not entries or is_sound(entries, after_seq):
            return entries
        return self.mended(numbered(self._proven(entries), after, after_seq, count))

    def compared(self, place: Place, entry: Entry | None) -> Entry:
        """The entry that stands where the id index says, compared with the digest there."""
        if entry is None or entry.fault == LOST:
            return Entry(place.partition, place.position, place.seq or 0, b"", fault=LOST)
        if entry.fault == UNPROVEN:
            entry = entry._replace(fault=SOUND)
        if entry.fault or content_digest(entry.data) != place.digest:
            return entry._replace(seq=place.seq or entry.seq, data=b"", fault=ALTERED)
        return entry

    def mended_if_needed(self, entries: list[Entry]) -> list[Entry]:
        """As `mended`, and nothing is asked where no entry has a fault."""
        return self.mended(entries) if any(entry.fault for entry in entries) else entries

    def mended(self, entries: Sequence[Entry]) -> list[Entry]:
        """The same entries; in place of those that were put right, what was appended.

        Others that are altered are noted, for `status` and the alert; the lost can be counted.
        """
        entries = self._proven(entries)
        right: dict[tuple[int, int], Entry] = {}
        for partition in {entry.partition for entry in entries if entry.fault}:
            seqs = [one.seq for one in entries if one.fault and one.partition == partition]
            for seq, entry in self.restored(partition, seqs).items():
                right[partition, seq] = entry
        settled = [
            right.get((entry.partition, entry.seq), entry) if entry.fault else entry
            for entry in entries
        ]
        self._note(entry for entry in settled if entry.fault == ALTERED)
        return settled

    def restored(self, partition: int, seqs: Sequence[int]) -> dict[int, Entry]:
        """What stands beside the stream for these numbers, as far as it is sound itself."""
        if not seqs:
            return {}
        values = call_patiently(lambda: self._redis.hmget(self._keys.restored(partition), seqs))
        row = {}
        for seq, value in zip(seqs, values, strict=True):
            if value is not None and len(value) > _RESTORED.size:
                digest, ms, number = _RESTORED.unpack_from(value)
                data = value[_RESTORED.size :]
                if content_digest(data) == digest:
                    place = Position(ms, number)
                    row[seq] = Entry(partition, place, seq, data).opened_by(self._opener)
        return row

    def held_out(self, partitions: int) -> HeldOut:
        """How many entries are held out now: counted, not read, so that it may be asked often."""

        def ask() -> list[Any]:
            with self._redis.pipeline(transaction=True) as transaction:
                transaction.hvals(self._keys.faults)
                for partition in range(partitions):
                    transaction.get(self._keys.seq(partition))
                    transaction.get(self._keys.archived(partition))
                    transaction.xlen(self._keys.stream(partition))
                counts: list[Any] = transaction.execute()
                return counts

        faults, *counts = call_patiently(ask)
        # Those that were archived lost are in the list, too: nobody can count them any more.
        lost = sum(json.loads(fault).get("fault") == LOST for fault in faults)
        altered = len(faults) - lost
        rows = zip(counts[::3], counts[1::3], counts[2::3], strict=True)
        for partition, (last_seq, archived, length) in enumerate(rows):
            archived_seq = int(archived.split()[0]) if archived else 0
            missing = int(last_seq or 0) - archived_seq - length
            lost += missing and max(0, missing - self._restored_of_lost(partition, archived_seq))
        return HeldOut(altered, lost)

    def _restored_of_lost(self, partition: int, archived_seq: int) -> int:
        """How many entries stand beside a stream and have no place in it any more."""
        stream = self._keys.stream(partition)
        seqs = [
            int(seq)
            for seq in call_patiently(lambda: self._redis.hkeys(self._keys.restored(partition)))
            if int(seq) > archived_seq
        ]
        positions = [str(entry.position) for entry in self.restored(partition, seqs).values()]

        def ask() -> list[Any]:
            with self._redis.pipeline(transaction=False) as pipeline:
                for position in positions:
                    pipeline.xrange(stream, position, position)
                replies: list[Any] = pipeline.execute()
                return replies

        return sum(not reply for reply in call_patiently(ask))

    def _proven(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that carry no digest, compared with the one in the id index."""
        unproven = [entry for entry in entries if entry.fault == UNPROVEN]
        if not unproven:
            return list(entries)
        keys = [entry.key for entry in unproven]

        def ask() -> list[bytes | None]:
            with self._redis.pipeline(transaction=False) as pipeline:
                for key in keys:
                    bucket = bucket_of(key, self._id_buckets)
                    pipeline.hget(self._keys.ids(bucket), key)
                values: list[bytes | None] = pipeline.execute()
                return values

        proven = {}
        for entry, value in zip(unproven, call_patiently(ask), strict=True):
            digest = content_digest(entry.data)
            place = None if value is None else Place.unpacked(value)
            is_right = place is not None and (place.digest, place.partition, place.position) == (
                *(digest, entry.partition),
                entry.position,
            )
            proven[entry.position] = (
                entry._replace(fault=SOUND) if is_right else entry._replace(data=b"", fault=ALTERED)
            )
        return [proven[entry.position] if entry.fault == UNPROVEN else entry for entry in entries]

    def _note(self, entries: Iterable[Entry]) -> None:
        values = dict(map(noted_fault, entries))
        if not values:
            return
        # One that is not noted now is noted by whoever reads it next.
        with suppress(RedisError), self._redis.pipeline(transaction=False) as pipeline:
            for place, value in values.items():
                pipeline.hsetnx(self._keys.faults, place, value)
            pipeline.execute()


def noted_fault(entry: Entry) -> tuple[str, str]:
    """Field and value of an entry that is held out, in the list of faults."""
    told = {
        "fault": entry.fault,
        "position": str(entry.position),
        "found_at_s": int(time.time()),
    }
    return f"{entry.partition}:{entry.seq}", json.dumps(told)


def is_sound(entries: Sequence[Entry], after_seq: int | None) -> bool:
    """Whether these have no fault and follow each other, and the entry of that number."""
    first = entries[0].seq if after_seq is None else after_seq + 1
    return all(entry.seq == seq and not entry.fault for seq, entry in enumerate(entries, first))


def numbered(
    entries: Sequence[Entry], after: Position, after_seq: int | None, count: int
) -> list[Entry]:
    """Entries in a row, with one for each number that is passed over; at most so many.

    A number that neither continues nor leaves room is itself damaged: what stands between 4 and
    6 is 5.
    """
    row: list[Entry] = []
    following = [*(entry.seq for entry in entries[1:]), 0]
    expected = after_seq + 1 if after_seq is not None else entries[0].seq or following[0] - 1
    for entry, next_seq in zip(entries, following, strict=True):
        seq = entry.seq
        if seq != expected and (seq < expected or next_seq == expected + 1):
            entry, seq = entry._replace(seq=expected, data=b"", fault=ALTERED), expected
        for lost in range(expected, min(seq, expected + count - len(row))):
            after = Position(after.ms, after.seq + 1)
            row.append(Entry(entry.partition, after, lost, b"", fault=LOST))
        if len(row) >= count:
            break
        row.append(entry)
        after, expected = entry.position, seq + 1
    return row
