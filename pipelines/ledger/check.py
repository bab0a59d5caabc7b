"""Whether the ledger agrees with itself: streams, archive, numbers, digests, id index and clock.

The entries go by in blocks, each compared with its row of the id index, or, of archived ones, with
the item that stands in its place; then the rows are counted, and only when there are others than
those that were seen each is looked up in its stream; and so the items, bucket by bucket. What
follows from what is whole can be mended: a row of the index, a counter, the clock. An entry is
never changed or taken away; its event is sent again for that.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pipelines.ledger.archived_ids import Item, has_item, items_in
from pipelines.ledger.connect import call_patiently
from pipelines.ledger.damage import Place
from pipelines.ledger.entries import DATA_FIELD, SEQ_FIELD, Entry, before, bucket_of, decode_entry
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.segments import Row
from projections.errors import ArchiveDamaged, UndecodableEntry
from projections.events import content_digest, event_partition
from projections.identity import START, Position

TOLD: Final = 100
"""Findings that are told one by one; the rest are counted."""
_BUCKETS_AT_ONCE = 64
_KEYS_AT_ONCE = 1_000
_WRONG_KEPT = 100_000
"""Keys of rows that were told already, so that they are not told again from the other side."""

# A finding's kind, and what it means.
FOREIGN: Final = "foreign"
MISPLACED: Final = "misplaced"
DOUBLED: Final = "doubled"
INDEX_MISSING: Final = "index missing"
INDEX_WRONG: Final = "index wrong"
INDEX_STALE: Final = "index stale"
ENTRY_GONE: Final = "entry gone"
NUMBERS_LOST: Final = "numbers lost"
COUNTER_BEHIND: Final = "counter behind"
COUNTER_AHEAD: Final = "counter ahead"
CLOCK_BEHIND: Final = "clock behind"
CLOCK_AHEAD: Final = "clock ahead"
STRAY: Final = "stray stream"
FAULT_OVER: Final = "fault over"
ARCHIVE_DAMAGED: Final = "archive damaged"

# Each compares what was found before it writes: appends go on meanwhile.
_PUT_ROW = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
_DROP_ROW = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
"""
_RAISE_COUNTER = """
if tonumber(redis.call('GET', KEYS[1]) or '-1') >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""
_LOWER_COUNTER = """
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if redis.call('GET', KEYS[1]) ~= ARGV[1] or (last and last[1] or '0-0') ~= ARGV[2] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[3])
return 1
"""
_RAISE_CLOCK = """
local ms, n = string.match(redis.call('GET', KEYS[1]) or '0-0', '^(%d+)-(%d+)$')
local to_ms, to_n = string.match(ARGV[1], '^(%d+)-(%d+)$')
ms, n, to_ms, to_n = tonumber(ms or 0), tonumber(n or 0), tonumber(to_ms), tonumber(to_n)
if ms > to_ms or (ms == to_ms and n >= to_n) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""


class Where(NamedTuple):
    """Of an entry, as far as it is known."""

    partition: int | None = None
    position: Position | None = None
    seq: int | None = None


class Finding(NamedTuple):
    """One thing that does not agree.

    Attributes:
        kind: `altered`, `lost`, or one of this module's.
        detail: for a person, with what helps where nothing was mended.
        mended: it agrees now.
        partition: None: of the whole ledger.
        position: of the entry, where it is known.
        seq: its number, likewise.
    """

    kind: str
    detail: str
    mended: bool = False
    partition: int | None = None
    position: str | None = None
    seq: int | None = None


@dataclass
class CheckReport:
    """What a check found.

    Attributes:
        entries: that were compared.
        rows: of the id index, with the items of archived events.
        found: how many findings of each kind.
        mended: how many of them agree now.
        told: the first of them, `TOLD` at most.
    """

    entries: int = 0
    rows: int = 0
    found: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    told: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Count a finding, and tell it if there is room."""
        self.found[finding.kind] += 1
        self.mended[finding.kind] += finding.mended
        if len(self.told) < TOLD:
            self.told.append(finding)

    @property
    def ok(self) -> bool:
        """Whether all agrees now."""
        return self.found.total() == self.mended.total()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "entries": self.entries,
            "index_rows": self.rows,
            "found": dict(sorted(self.found.items())),
            "mended": {kind: count for kind, count in sorted(self.mended.items()) if count},
            "findings": [finding._asdict() for finding in self.told],
        }


def check(ledger: Ledger, *, repair: bool) -> CheckReport:
    """Whether streams, numbers, digests, id index and clock agree, up to where they end now.

    Memory does not grow with the ledger.

    Args:
        ledger: whose reads hold out what is damaged.
        repair: mend what follows from what is whole.

    Raises:
        LedgerUnavailable: Redis is away.
    """
    return _Check(ledger, repair).run()


class _Check:
    def __init__(self, ledger: Ledger, repair: bool) -> None:
        self._ledger = ledger
        self._keys = ledger.keys
        self._redis: Any = ledger.client  # its types say bytes or str; undecoded are bytes
        self._repair = repair
        self._report = CheckReport()
        self._tails: list[Tail] = []
        self._sound = 0
        self._packed: list[int] = []
        self._items: Counter[int] = Counter()  # by bucket, the sum of those that were seen
        self._wrong: set[bytes] = set()
        self._beyond: set[int] = set()

    def run(self) -> CheckReport:
        """Compare everything, and mend.

        Where the archive is damaged, only that is told: what is in it cannot be compared.
        """
        archive = self._ledger.archive
        try:
            self._compare()
        except ArchiveDamaged as error:
            if not self._archive_damage(lambda *place: archive.files.segment(*place)):
                self._tell(ARCHIVE_DAMAGED, str(error))
        else:
            self._archive_damage(lambda *place: archive.files.derivations(*place))
        return self._report

    def _compare(self) -> None:
        self._tails = self._ledger.tails()
        self._packed = self._ledger.archive.ids.packed_up_to(len(self._tails))
        noted = self._noted()
        last_seqs = [
            self._partition(number, noted.get(number, set())) for number in range(len(self._tails))
        ]
        self._rows()
        self._archived_ids()
        for partition, last_seq in enumerate(last_seqs):
            self._counter(partition, last_seq)
        self._clock()
        self._strays()

    def _archive_damage(self, read: Callable[[int, Row], object]) -> int:
        """Tell each file of the archive that cannot be read as it was written; how many."""
        told, archive = 0, self._ledger.archive
        for partition, boundary in enumerate(archive.boundaries(range(len(self._tails)))):
            try:
                rows = archive.manifest(partition, boundary).rows if boundary.seq else ()
            except ArchiveDamaged as error:
                self._tell(ARCHIVE_DAMAGED, str(error), Where(partition))
                told += 1
                continue
            for row in rows:
                try:
                    read(partition, row)
                except ArchiveDamaged as error:
                    self._tell(ARCHIVE_DAMAGED, str(error), Where(partition, seq=row.first_seq))
                    told += 1
        return told

    # entries and their rows

    def _partition(self, partition: int, noted: set[int]) -> int:
        """Compare the entries of a partition; the number of the last."""
        last_seq = 0
        for entries in self._blocks(partition):
            self._report.entries += len(entries)
            last_seq = entries[-1].seq
            self._entries(entries)
            for entry in entries:
                if entry.seq in noted and not entry.fault:
                    self._fault_over(entry)
        return last_seq

    def _blocks(self, partition: int) -> Iterator[list[Entry]]:
        """The entries of the partition, around those that nobody of ours has written."""
        after, until = START, self._tails[partition].position
        while after < until:
            try:
                yield from self._ledger.scan(partition, after, until)
                return
            except UndecodableEntry as error:
                foreign = Position.parse(error.position)
            self._tell(FOREIGN, "no entry of Recollect's", Where(partition, foreign))
            if after < (end := before(foreign)):
                yield from self._ledger.scan(partition, after, end)
            after = foreign

    def _entries(self, entries: Sequence[Entry]) -> None:
        keyed: list[tuple[bytes, Entry]] = []
        for entry in entries:
            if entry.fault:
                advice = "its event puts it right when it is sent again"
                self._tell(entry.fault, advice, Where(*entry[:3]))
                continue
            try:
                event = entry.event()
            except UndecodableEntry as error:
                self._tell(FOREIGN, error.reason, Where(*entry[:3]))
                continue
            if event_partition(event, self._ledger.partitions) != entry.partition:
                self._tell(MISPLACED, "its session belongs to another partition", Where(*entry[:3]))
            keyed.append((entry.key, entry))
        commands = [("HGET", self._bucket(key), key) for key, _ in keyed]
        values = self._ask(commands)
        bare = [key for (key, _), value in zip(keyed, values, strict=True) if value is None]
        items = iter(self._ledger.archive.ids.values_of(bare) if bare else [])
        for (key, entry), value in zip(keyed, values, strict=True):
            if value is None and has_item(next(items), Item.of(entry)):
                if entry.seq <= self._packed[entry.partition]:
                    self._seen_item(key, entry)
                continue
            self._sound += 1
            row = Place(content_digest(entry.data), *entry[:3])
            place = _place(value)
            if place is None or place._replace(seq=place.seq or entry.seq) != row:
                self._row_differs(key, entry, value, row)

    def _row_differs(self, key: bytes, entry: Entry, value: bytes | None, row: Place) -> None:
        """The row of the index does not lead to the entry, whose event it is of."""
        place = _place(value)
        if place is not None and place[1:3] != row[1:3] and self._stands(place, key):
            self._sound -= 1
            self._tell(DOUBLED, f"its event stands at {place.position}, too", Where(*entry[:3]))
            return
        if value is None and entry.seq <= self._packed[entry.partition]:
            self._sound -= 1
            mended = self._repair and self._put_item(entry)
            if mended:
                self._seen_item(key, entry)
        else:
            mended = self._mend(_PUT_ROW, [self._bucket(key)], [key, value or b"", row.packed()])
        if not mended and len(self._wrong) < _WRONG_KEPT:
            self._wrong.add(key)
        kind = INDEX_MISSING if value is None else INDEX_WRONG
        self._tell(kind, "the id index does not lead to it", Where(*entry[:3]), mended=mended)

    def _stands(self, place: Place, key: bytes) -> bool:
        """Whether the event of that key stands there."""
        if place.partition >= len(self._tails):
            return False
        entry = self._ledger.entry_at(place.partition, place.position)
        return entry is not None and not entry.fault and entry.key == key

    def _put_item(self, entry: Entry) -> bool:
        """Whether the item of an archived entry was put where it is missing."""
        archive, upto = self._ledger.archive, self._packed[entry.partition]
        boundary = archive.boundary(entry.partition).packed()
        return archive.ids.pack(boundary, [entry], upto=upto)

    def _seen_item(self, key: bytes, entry: Entry) -> None:
        self._items[bucket_of(key, self._ledger.id_buckets)] += _number(Item.of(entry))

    def _noted(self) -> dict[int, set[int]]:
        """Numbers that readers have held out, by partition."""
        noted: dict[int, set[int]] = {}
        for name in call_patiently(lambda: self._redis.hkeys(self._keys.faults)):
            partition, seq = map(int, name.split(b":"))
            noted.setdefault(partition, set()).add(seq)
        return noted

    def _fault_over(self, entry: Entry) -> None:
        name = f"{entry.partition}:{entry.seq}"
        mended = self._repair and bool(
            call_patiently(lambda: self._redis.hdel(self._keys.faults, name))
        )
        self._tell(
            FAULT_OVER, "noted as altered, and it is right", Where(*entry[:3]), mended=mended
        )

    # rows that lead to no entry

    def _rows(self) -> None:
        count = 0
        for rows in self._index():
            count += sum(not self._is_beyond(place) for *_, place in rows)
            self._beyond.update(p.partition for *_, p in rows if p and self._is_beyond(p))
        self._report.rows += count
        if count != self._sound:
            for rows in self._index():
                self._look_up([row for row in rows if not self._is_beyond(row[2])])

    def _is_beyond(self, place: Place | None) -> bool:
        """Whether its entry was appended after this check began, or is lost with its number."""
        if place is None or place.partition >= len(self._tails):
            return False
        return place.position > self._tails[place.partition].position

    def _index(self) -> Iterator[list[tuple[bytes, bytes, Place | None]]]:
        """Key, value and place of each row, some buckets at a time; None: it names none."""
        for first in range(0, self._ledger.id_buckets, _BUCKETS_AT_ONCE):
            buckets = range(first, min(first + _BUCKETS_AT_ONCE, self._ledger.id_buckets))
            replies = self._ask([("HGETALL", self._keys.ids(bucket)) for bucket in buckets])
            yield [(key, value, _place(value)) for reply in replies for key, value in reply.items()]

    def _look_up(self, rows: Sequence[tuple[bytes, bytes, Place | None]]) -> None:
        """Tell which rows lead to no entry, or to another event's."""
        led = [(row, place) for row in rows if (place := row[2]) and row[0] not in self._wrong]
        commands = [
            ("XRANGE", self._keys.stream(place.partition), str(place.position), str(place.position))
            for _, place in led
        ]
        for ((key, value, _), place), reply in zip(led, self._ask(commands), strict=True):
            _, partition, position, seq = place
            entry = (
                decode_entry(partition, *reply[0])
                if reply
                else self._ledger.entry_at(partition, position, seq)
            )
            if entry is not None:
                self._judge(key, value, place, entry)
            else:
                advice = "gone; the id index knows its event, which can be sent again"
                self._tell(ENTRY_GONE, advice, Where(partition, position, seq))
        for key, value, place in rows:
            if place is None and key not in self._wrong:
                self._drop(key, value, None)

    def _judge(self, key: bytes, value: bytes, place: Place, entry: Entry) -> None:
        if entry.data and entry.key != key:
            self._drop(key, value, place)

    def _drop(self, key: bytes, value: bytes, place: Place | None) -> None:
        """Take away a row of the index that is of no event: no entry stands behind it."""
        mended = self._mend(_DROP_ROW, [self._bucket(key)], [key, value])
        detail = "a row of the id index that leads to no entry of its event"
        where = Where(place.partition, place.position) if place else Where()
        self._tell(INDEX_STALE, detail, where, mended=mended)

    # items that lead to no entry of theirs

    def _archived_ids(self) -> None:
        ids = self._ledger.archive.ids
        for first in range(0, self._ledger.id_buckets, _BUCKETS_AT_ONCE):
            buckets = range(first, min(first + _BUCKETS_AT_ONCE, self._ledger.id_buckets))
            for bucket, value in zip(buckets, ids.values(buckets), strict=True):
                items = [item for item in items_in(value) if not self._is_new(item)]
                self._report.rows += len(items)
                if value is not None and sum(map(_number, items)) != self._items[bucket]:
                    self._look_at(bucket, value)

    def _is_new(self, item: Item) -> bool:
        """Whether its entry was packed since this check began."""
        partition, seq = item.partition, item.seq
        if partition >= len(self._tails) or seq <= self._packed[partition]:
            return False
        return seq <= self._ledger.archive.ids.packed_up_to(partition + 1)[partition]

    def _look_at(self, bucket: int, value: bytes) -> None:
        """Tell which items of a bucket lead to no entry of theirs, and take them away."""
        items = [*items_in(value)]
        right = [item for item in items if self._is_right(bucket, item)]
        if len(right) == len(items):
            return
        mended = self._repair and self._ledger.archive.ids.replace(bucket, value, right)
        detail = "what stands for an archived event leads to no entry of it"
        for item in items:
            if item not in right:
                where = Where(item.partition, seq=item.seq)
                self._tell(INDEX_STALE, detail, where, mended=mended)

    def _is_right(self, bucket: int, item: Item) -> bool:
        archive, partition = self._ledger.archive, item.partition
        if partition >= len(self._tails):
            return False
        boundary = archive.boundary(partition)
        entry = archive.at(partition, boundary, START, item.seq)
        return (
            entry is not None
            and not entry.fault
            and bucket_of(entry.key, self._ledger.id_buckets) == bucket
            and Item.of(entry) == item
        )

    # counters, clock, and streams beside

    def _counter(self, partition: int, last_seq: int) -> None:
        position, seq = self._tails[partition]
        key = self._keys.seq(partition)
        if seq < last_seq:
            mended = self._mend(_RAISE_COUNTER, [key], [last_seq])
            detail = f"numbers are given out from {seq} on, and the last entry is {last_seq}"
            self._tell(COUNTER_BEHIND, detail, Where(partition, position, last_seq), mended=mended)
        elif seq > last_seq and partition in self._beyond:
            if gone := seq - last_seq - self._restored(partition, last_seq):
                detail = f"{gone} of {last_seq + 1} to {seq} are gone and can be sent again"
                self._tell(NUMBERS_LOST, detail, Where(partition, position, last_seq))
        elif seq > last_seq:
            keys = [key, self._keys.stream(partition)]
            mended = self._mend(_LOWER_COUNTER, keys, [seq, str(position), last_seq])
            detail = f"{last_seq + 1} to {seq} were given to no event"
            self._tell(COUNTER_AHEAD, detail, Where(partition, position, last_seq), mended=mended)

    def _restored(self, partition: int, last_seq: int) -> int:
        """How many entries behind the last one of the stream stand beside it."""
        numbers = call_patiently(lambda: self._redis.hkeys(self._keys.restored(partition)))
        return sum(int(number) > last_seq for number in numbers)

    def _clock(self) -> None:
        text = call_patiently(lambda: self._redis.get(self._keys.clock))
        clock = Position.parse(text.decode()) if text else START
        last = max(tail.position for tail in self._tails)
        if clock < last:
            mended = self._mend(_RAISE_CLOCK, [self._keys.clock], [str(last)])
            self._tell(CLOCK_BEHIND, f"it is at {clock}, an entry at {last}", mended=mended)
        ahead_s = (clock.ms - self._ledger.now_ms()) / 1000
        if ahead_s > self._ledger.clock_ahead_s:
            detail = f"positions are given out {ahead_s:.0f} s ahead of the server's time"
            self._tell(CLOCK_AHEAD, detail)

    def _strays(self) -> None:
        """Streams of entries where nobody reads them: renamed by hand."""
        ours = {self._keys.stream(partition).encode() for partition in range(len(self._tails))}
        keys = self._redis.scan_iter(count=_KEYS_AT_ONCE, _type="stream")
        for key in call_patiently(lambda: sorted(set(keys) - ours)):
            commands = [("XRANGE", key, "-", "+", "COUNT", 1), ("XLEN", key)]
            first, count = self._ask(commands)
            if first and {DATA_FIELD, SEQ_FIELD} <= first[0][1].keys():
                self._stray(key, count)

    def _stray(self, key: bytes, count: int) -> None:
        prefix = key.partition(b":")[0].lstrip(b"{").decode("utf-8", "replace")
        if prefix != self._keys.prefix and self._ask([("EXISTS", f"{prefix}:format")])[0]:
            return  # of another ledger
        name = key.decode("utf-8", "backslashreplace")
        self._tell(STRAY, f"{count} entries in {name}, where nobody reads them: rename it back")

    # asking, mending, telling

    def _bucket(self, key: bytes) -> str:
        return self._keys.ids(bucket_of(key, self._ledger.id_buckets))

    def _ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies to commands that change nothing."""

        def ask() -> list[Any]:
            with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                replies: list[Any] = pipeline.execute()
                return replies

        return call_patiently(ask)

    def _mend(self, script: str, keys: Sequence[str], arguments: Sequence[object]) -> bool:
        """Whether the script wrote; only when this check repairs."""
        return self._repair and bool(
            call_patiently(lambda: self._redis.eval(script, len(keys), *keys, *arguments))
        )

    def _tell(
        self, kind: str, detail: str, where: Where | None = None, *, mended: bool = False
    ) -> None:
        partition, position, seq = where or Where()
        self._report.add(
            Finding(
                kind=kind,
                detail=detail,
                mended=mended,
                partition=partition,
                position=None if position is None else str(position),
                seq=seq,
            )
        )


def _place(value: bytes | None) -> Place | None:
    """The place that a row names; None: there is no row, or it is damaged."""
    try:
        return None if value is None else Place.unpacked(value)
    except struct.error:
        return None


def _number(item: Item) -> int:
    """Of which sums are made."""
    return int.from_bytes(item.packed(), "big")
