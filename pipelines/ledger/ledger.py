"""The ledger: P streams in Redis, and what was archived of them, written by one script.

`append` is one call of the script for some hundred events (`append.lua`): dedupe over all
partitions, position from one clock, number within the partition, entry, id index. An event is
either in all of them or in none.

Readers get archived and streamed entries as one sequence. What is missing in the stream is looked
for in the archive; only then is the boundary between the two asked for, so that who reads what is
in Redis asks nothing more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple, Protocol, Self

import redis

from pipelines.ledger.archive import AS_RECORDED, Archive, ArchiveAt, Boundary
from pipelines.ledger.archived_ids import Item, items_of
from pipelines.ledger.connect import PATIENCE_S, call_patiently, is_not_admitted, is_passing
from pipelines.ledger.damage import Damage, HeldOut, Place
from pipelines.ledger.entries import Entry, LedgerKeys, bucket_of, decode_entry
from pipelines.ledger.epoch import Admission, ReadCheckpoints
from pipelines.ledger.vault import Fences, Sealer, Vault, make_vault, tenant_fence
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from projections.errors import (
    ArchiveDamaged,
    ArchiveUnavailable,
    EventConflict,
    InvalidEvent,
    LedgerError,
    LedgerUnavailable,
    RecollectError,
    SubjectErased,
)
from projections.events import DIGEST_BYTES, Event, content_digest, encode_event, event_partition
from projections.identity import START, Position, event_key_digest
from projections.operations import Checkpoint

__all__ = ["Appended", "Entry", "Ledger", "LedgerKeys", "Outcome", "Tail"]

MAX_ENTRY_BYTES = 320 * 1024
"""Of one event's canonical JSON: the payload's 256 KiB and what the other fields may add."""

CLOCK_AHEAD_S = 60.0

_CHUNK_EVENTS = 128
_FIRST_CHUNK_EVENTS = 32  # Redis has nothing to do before the first is encoded
_CHUNK_BYTES = 1024 * 1024
# Forms of `append.lua`: what is sent of an event beside its JSON (key digest, content digest,
# partition, fence; nobody has looked yet); ms and seq before the first new event; an event that is
# not new (number in the chunk, status, place); the latest time that the caller believes; which
# places among the archived events were looked at.
_RECORD = Struct(">16s16sH16s8x")
_CLOCK = Struct(">QI")
_KNOWN = Struct(">HBHQI")
_LIMIT = Struct(">Q")
_DUPLICATE, _CONFLICT, _HALTED, _RESTORED, _HOMELESS, _FENCED, _MAYBE = range(1, 8)
_LOOKED = Struct(">Q")
_STATUS_AT = _CLOCK.size + 2

# One reply, one moment: over all partitions, nothing is appended between two of these.
_TAILS = """
local reply = {}
for partition = 0, tonumber(ARGV[1]) - 1 do
  local key = '{@PREFIX@:' .. partition .. '}'
  local last = redis.call('XREVRANGE', key .. ':ledger', '+', '-', 'COUNT', 1)[1]
  reply[#reply + 1] = last and last[1] or '0-0'
  reply[#reply + 1] = redis.call('GET', key .. ':seq') or '0'
end
return reply
"""


class Appended(NamedTuple):
    """Where an event is. `duplicate`: it was there before, with the same content."""

    position: Position
    partition: int
    duplicate: bool


Outcome = Appended | RecollectError
"""Of one event: its place, or EventConflict, GraphAhead, InvalidEvent, SubjectErased, or, where it
may be archived and the archive cannot be read, ArchiveUnavailable, ArchiveDamaged. Returned, not
raised."""


class Tail(NamedTuple):
    """The last entry of a partition; START and 0 when there is none."""

    position: Position
    seq: int


class _Chunk(NamedTuple):
    """Events of one call of the script.

    Attributes:
        places: the caller's index and the partition of each event.
        records: of each event its digests and its partition.
        data: canonical JSON of each event as a bulk string of the protocol; redis-py's packing
            takes five times as long as this.
    """

    places: list[tuple[int, int]]
    records: list[bytes]
    data: list[bytes]

    def packed(self, script: str, request: bytes) -> list[bytes]:
        """The EVALSHA command; `script` is a SHA-1 in hex."""
        records = b"".join(self.records)
        head = (b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n0\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n") % (
            *(5 + len(self.data), script.encode(), len(request), request),
            *(len(records), records),
        )
        return [b"".join((head, *self.data))]


class Finder(Protocol):
    """What finds an event's entry."""

    def find(self, tenant: str, event_id: str) -> Entry | None:
        """The entry of an event."""


def second_outcome(ledger: Finder, event: Event, own_id: str | None) -> Event | None:
    """An event that the ledger has in other words, as another one; None: it is told once more.

    Args:
        ledger: that has an event of its id.
        event: as it is told now.
        own_id: of the event, if it ended in another way than the one that is there.
    """
    if own_id is None:
        return None
    entry = ledger.find(event.tenant, event.event_id)
    stored = None if entry is None else entry.event()
    if stored is None or stored.status == event.status:
        return None
    return event._replace(event_id=own_id)


class BesideRedis(NamedTuple):
    """What of a ledger is not in its Redis.

    Attributes:
        archive: where archived entries are.
        vault: seals and opens the events of sealed tenants; None: this process has no keys.
    """

    archive: ArchiveAt = AS_RECORDED
    vault: Vault | None = None

    @classmethod
    def of(cls, settings: Settings, client: redis.Redis) -> Self:
        """As the settings say."""
        return cls(ArchiveAt.of(settings), make_vault(settings, client))


class Ledger:
    """Appends to the ledger and reads it. Safe for threads.

    Args:
        redis: connection pool of a server, Redis 7.0 or Valkey.
        prefix: of all keys.
        partitions: fixed when the ledger is created.
        id_buckets: fixed likewise.
        checkpoints: reads the checkpoints of all targets; see `ledger_epoch`.
        patience_s: how long a call goes on trying while Redis is away.
        clock_ahead_s: how far the server's time may be ahead of this process' own.
        clock: this process' own time, seconds since the epoch.
        beside: what it needs beside Redis.

    Raises:
        LedgerUnavailable: Redis is away.
        LedgerFormatMismatch: the ledger was created with other numbers.
        ConfigurationError: Redis would evict parts of the ledger when full.
    """

    def __init__(
        self,
        redis: redis.Redis,
        *,
        prefix: str = "rc",
        partitions: int = 8,
        id_buckets: int = 32_768,
        checkpoints: ReadCheckpoints,
        patience_s: float = PATIENCE_S,
        clock_ahead_s: float = CLOCK_AHEAD_S,
        clock: Callable[[], float] = time.time,
        beside: BesideRedis | None = None,
    ) -> None:
        self.partitions = partitions
        self.id_buckets = id_buckets
        self.client = redis
        self.keys = LedgerKeys(prefix)
        self.clock_ahead_s = clock_ahead_s
        self._clock = clock
        self._redis: Any = redis  # its types say bytes or str; undecoded replies are bytes
        self._patience_s = patience_s
        beside = beside or BesideRedis()
        self.vault = beside.vault or Vault(Fences(redis, self.keys), None)
        self.archive = Archive(
            redis, self.keys, beside.archive, id_buckets=id_buckets, opener=self.vault
        )
        self._admission = Admission(
            redis,
            self.keys,
            partitions=partitions,
            id_buckets=id_buckets,
            checkpoints=checkpoints,
            archived=self.archive.has_entry_of,
        )
        self._damage = Damage(redis, self.keys, id_buckets=id_buckets, opener=self.vault)
        self._script = ""
        call_patiently(self._admission.refuse_eviction, patience_s=patience_s)
        call_patiently(self._admission.ensure_format, patience_s=patience_s)

    @property
    def identity(self) -> str:
        """What tells this ledger from any other: its prefix, and when it was made.

        Raises:
            LedgerUnavailable: Redis is away.
        """
        made_at = call_patiently(
            lambda: self._redis.hget(self.keys.format, "created_at_ms"),
            patience_s=self._patience_s,
        )
        return f"{self.keys.prefix}:{(made_at or b'').decode()}"

    # appending

    def append(self, events: Sequence[Event], *, request_id: str = "") -> list[Outcome]:
        """Append events in this order; of one session, they stay in this order.

        Args:
            events: validated.
            request_id: kept beside each event for the workers' logs, at most 128 characters.

        Returns:
            One outcome for each event. After an error that was raised, appending the same
            events again is safe: those that got in come back as duplicates.

        Raises:
            LedgerUnavailable: Redis is away, full, or its process cannot be admitted; events of
                the front may have been appended, never one behind another that was not.
            ClockAhead: the server's time is too far ahead of this process'.
            KeysUnavailable: a tenant of theirs is sealed, and keys are not at hand.
            LedgerError: Redis refuses for another reason.
        """
        outcomes: list[Outcome | None] = [None] * len(events)
        sealer = self.vault.sealer(events)
        queue = _Chunks(self._encode(events, outcomes, sealer))
        latest_ms = int((self._clock() + self.clock_ahead_s) * 1000)
        request = _LIMIT.pack(latest_ms) + request_id[:128].encode()
        call_patiently(
            lambda: self._send(queue, request, events, outcomes),
            patience_s=self._patience_s,
            retry_on=lambda error: is_passing(error) or is_not_admitted(error),
        )
        fenced = [index for index, one in enumerate(outcomes) if isinstance(one, SubjectErased)]
        late = [index for index in fenced if events[index].tenant not in sealer.tenants]
        if late:  # their tenants were sealed since this process looked
            self.vault.renew()
            again = self.append([events[index] for index in late], request_id=request_id)
            for index, outcome in zip(late, again, strict=True):
                outcomes[index] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def _encode(
        self, events: Sequence[Event], outcomes: list[Outcome | None], sealer: Sealer
    ) -> Iterator[_Chunk]:
        """Chunks, made when asked for; events that may not be sent get their outcome at once."""
        partitions, seals = self.partitions, bool(sealer.tenants)
        chunk, size, most = _Chunk([], [], []), 0, _FIRST_CHUNK_EVENTS
        for index, event in enumerate(events):
            try:
                if seals:
                    data, own_bytes, fence = sealer.encode(index, event)
                else:  # what is told of everybody costs those who are not sealed the least
                    data, fence = encode_event(event), tenant_fence(event.tenant)
                    own_bytes = len(data)
            except ValueError as error:
                outcomes[index] = InvalidEvent((("payload", str(error)),))
                continue
            except SubjectErased as error:
                outcomes[index] = error
                continue
            length = len(data)
            if own_bytes > MAX_ENTRY_BYTES:
                rule = f"at most {MAX_ENTRY_BYTES // 1024} KiB serialised"
                outcomes[index] = InvalidEvent((("(event)", rule),))
                continue
            if len(chunk.places) == most or size + length > _CHUNK_BYTES:
                yield chunk
                chunk, size, most = _Chunk([], [], []), 0, _CHUNK_EVENTS
            partition = event_partition(event, partitions)
            key = event_key_digest(event.tenant, event.event_id)
            chunk.places.append((index, partition))
            chunk.records.append(_RECORD.pack(key, content_digest(data), partition, fence))
            chunk.data.append(b"$%d\r\n%b\r\n" % (length, data))
            size += length
        if chunk.places:
            yield chunk

    def _send(
        self,
        queue: _Chunks,
        request: bytes,
        events: Sequence[Event],
        outcomes: list[Outcome | None],
    ) -> None:
        """Send what is left.

        While Redis works on one chunk the next is encoded, not yet sent: a chunk that fails must
        not be overtaken by the next, or a session would change its order. Meanwhile the places
        of the one before are made too, when all its events are new: that asks Redis nothing.
        """
        if not self._script:
            self._admit_for_append()
        pool = self._redis.connection_pool
        connection = pool.get_connection()
        new: tuple[_Chunk, bytes] | None = None
        try:
            while (chunk := queue.first()) is not None:
                connection.send_packed_command(chunk.packed(self._script, request))
                if new is not None:
                    _place_new(*new, outcomes)
                    new = None
                queue.prepare()
                reply = connection.read_response()
                if len(reply) == _CLOCK.size:
                    new = chunk, reply
                elif reply[_STATUS_AT] == _MAYBE:
                    left = self._looked_up(chunk, reply, queue, outcomes=outcomes, events=events)
                    if left.places:
                        queue.again(left)
                        continue
                else:
                    self._settle(chunk, reply, events, outcomes)
                queue.done()
        except BaseException as error:
            if is_not_admitted(error):
                self._script = ""
            else:
                connection.disconnect()  # a reply may be under way; nobody must read it as his
            raise
        finally:
            pool.release(connection)
            if new is not None:
                _place_new(*new, outcomes)

    def _looked_up(
        self,
        chunk: _Chunk,
        reply: bytes,
        queue: _Chunks,
        *,
        outcomes: list[Outcome | None],
        events: Sequence[Event],
    ) -> _Chunk:
        """What is left of a chunk when the archive was asked for those that may be in it.

        Where it cannot be read, only the events that may be in it are refused.
        """
        items: dict[int, list[Item]] = {}
        for number, _, partition, _, seq in _KNOWN.iter_unpack(reply[_CLOCK.size :]):
            items.setdefault(number, []).append(Item(b"", partition, seq))
        boundaries = self._boundaries(
            item.partition for places in items.values() for item in places
        )
        left = _Chunk([], [], [])
        rows = zip(chunk.places, chunk.records, chunk.data, strict=True)
        for number, (place, record, data) in enumerate(rows):
            places = items.get(number, [])
            if places:
                event_id = events[place[0]].event_id
                outcome = queue.away or self._archived_outcome(event_id, record, places, boundaries)
                if isinstance(outcome, ArchiveUnavailable):
                    queue.away = outcome  # a place that hangs is not waited for at each event
                if outcome is not None:
                    outcomes[place[0]] = outcome
                    continue
                looked = sum(item.place for item in places)
                record = record[: -_LOOKED.size] + _LOOKED.pack(looked)
            left.places.append(place)
            left.records.append(record)
            left.data.append(data)
        return left

    def _archived_outcome(
        self,
        event_id: str,
        record: bytes,
        items: Sequence[Item],
        boundaries: Mapping[int, Boundary],
    ) -> Outcome | None:
        """Of an event that may be archived at some places; None: it stands at none of them."""
        key, digest = record[:DIGEST_BYTES], record[DIGEST_BYTES : 2 * DIGEST_BYTES]
        try:
            entry = self.archive.of_event(key, items, boundaries)
        except (ArchiveUnavailable, ArchiveDamaged) as error:
            return error
        if entry is None:
            return None
        if content_digest(entry.data) != digest:
            return EventConflict(event_id=event_id)
        return Appended(entry.position, entry.partition, duplicate=True)

    def _boundaries(self, partitions: Iterable[int]) -> Mapping[int, Boundary]:
        """Up to where these are archived, all of one moment."""
        wanted = [*set(partitions)]
        return dict(zip(wanted, self.archive.boundaries(wanted), strict=True)) if wanted else {}

    def _settle(
        self,
        chunk: _Chunk,
        reply: bytes,
        events: Sequence[Event],
        outcomes: list[Outcome | None],
    ) -> None:
        ms, seq = _CLOCK.unpack_from(reply)
        not_new = {record[0]: record[1:] for record in _KNOWN.iter_unpack(reply[_CLOCK.size :])}
        halted: Mapping[int, RecollectError] | None = None
        for number, (index, partition) in enumerate(chunk.places):
            if number not in not_new:
                seq += 1
                outcomes[index] = Appended(Position(ms, seq), partition, False)
                metrics.INGEST_BYTES.inc(len(chunk.data[number]))
                continue
            status, first_partition, first_ms, first_seq = not_new[number]
            if status in (_DUPLICATE, _RESTORED):
                place = Position(first_ms, first_seq)
                outcomes[index] = Appended(place, first_partition, True)
                if status == _RESTORED:
                    metrics.ENTRIES_RESTORED.inc()
            elif status == _CONFLICT:
                outcomes[index] = EventConflict(event_id=events[index].event_id)
            elif status == _FENCED:
                outcomes[index] = SubjectErased()
            elif status == _HOMELESS:
                outcomes[index] = LedgerError(
                    reason=f"the entry {Position(first_ms, first_seq)} is lost and its number is "
                    "not known: others around it are lost too, restore the append-only file"
                )
            else:
                halted = self._admission.halted() if halted is None else halted
                outcomes[index] = halted.get(partition) or LedgerUnavailable(
                    reason=f"partition {partition} was halted until a moment ago"
                )

    def _admit_for_append(self) -> None:
        try:
            self._script = self._admission.admit()
        except LedgerError:
            raise
        except RecollectError as error:
            reason = f"the server process is new and the checkpoints cannot be read: {error}"
            raise LedgerUnavailable(reason=reason) from error

    # reading

    def read(
        self,
        partition: int,
        after: Position,
        count: int,
        until: Position | None = None,
        *,
        after_seq: int | None = None,
    ) -> list[Entry]:
        """The first `count` entries of a partition behind `after`, up to and including `until`.

        Each is compared with the digest that was stored with it. One that differs has a `fault`
        and no data, and so has each that is lost between two others, or between the first and
        `after_seq`, the number of the entry at `after`; who sent the event again put it right.

        Raises:
            LedgerUnavailable: Redis is away, or the archive, where these entries are.
            ArchiveDamaged: they are archived, and not what was written.
            UndecodableEntry: the stream holds what is no entry.
        """
        if after == START:
            after_seq = 0
        replies = call_patiently(
            lambda: self._redis.xrange(
                self.keys.stream(partition),
                "-" if after == START else f"({after}",
                "+" if until is None else str(until),
                count=count,
            ),
            patience_s=self._patience_s,
        )
        entries = [self._entry(partition, reply) for reply in replies]
        if self._is_whole(entries, after_seq, until):
            return self._damage.settled(entries, after, after_seq, count)
        boundary = self.archive.boundary(partition)
        if after >= boundary.position:
            return self._damage.settled(entries, after, after_seq, count)
        start = after if after_seq is None else after_seq
        archived = self.archive.behind(partition, boundary, start, count)
        if until is not None and until <= boundary.position:
            archived = [entry for entry in archived if entry.position <= until]
            return self._damage.mended_if_needed(archived)
        # What the stream gave begins behind the boundary: both moved at once.
        left = count - len(archived)
        streamed = [entry for entry in entries if entry.position > boundary.position][:left]
        return [
            *self._damage.mended_if_needed(archived),
            *self._damage.settled(streamed, boundary.position, boundary.seq, left),
        ]

    @staticmethod
    def _is_whole(entries: Sequence[Entry], after_seq: int | None, until: Position | None) -> bool:
        """Whether nothing can be missing before these entries, which a stream gave.

        The last entry of a partition is never trimmed, so nothing behind a place is nothing at all;
        up to an end, all of it may be archived.
        """
        if not entries:
            return until is None
        return after_seq is not None and entries[0].seq == after_seq + 1

    def scan(
        self,
        partition: int,
        after: Position = START,
        until: Position | None = None,
        count: int = 1_000,
    ) -> Iterator[list[Entry]]:
        """All entries behind `after` up to `until`, in blocks of at most `count`.

        With `until` None it ends where the tail is when it gets there. Raises as `read` does.
        """
        seq = None
        while entries := self.read(partition, after, count, until, after_seq=seq):
            yield entries
            after, seq = entries[-1].position, entries[-1].seq

    def newest(self, partition: int, before: Position, count: int) -> list[Entry]:
        """The last `count` entries of a partition before a position, the newest first.

        One that is not what was appended has a `fault`, as in `read`; lost ones are passed over.
        Raises as `read` does.

        Args:
            partition: that is read.
            before: behind START, exclusive.
            count: at least 1.
        """
        replies = call_patiently(
            lambda: self._redis.xrevrange(
                self.keys.stream(partition), f"({before}", "-", count=count
            ),
            patience_s=self._patience_s,
        )
        entries = [self._entry(partition, reply) for reply in replies]
        if len(entries) < count and (boundary := self.archive.boundary(partition)).seq:
            beyond = entries[-1].position if entries else before
            left = count - len(entries)
            entries += self.archive.before(partition, boundary, beyond, left)
        return self._damage.mended_if_needed(entries)

    def _entry(self, partition: int, reply: tuple[bytes, Mapping[bytes, bytes]]) -> Entry:
        return decode_entry(partition, *reply, self.vault)

    def find(self, tenant: str, event_id: str) -> Entry | None:
        """The entry of an event, by the id index. Raises as `read` does."""
        key = (tenant, event_id)
        return self.find_many([key]).get(key)

    def find_many(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
        """The entries of several events in two round trips; absent ones are left out.

        Where one may be archived it takes a third, and the segments. One that is not what was
        appended has a `fault`, as in `read`. Raises as `read` does.
        """
        digests = [event_key_digest(*key) for key in keys]

        def ask() -> tuple[list[Place | None], list[Any]]:
            with self._redis.pipeline(transaction=False) as pipeline:
                for digest in digests:
                    pipeline.hget(self.keys.ids(bucket_of(digest, self.id_buckets)), digest)
                places = [
                    None if packed is None else Place.unpacked(packed)
                    for packed in pipeline.execute()
                ]
                for digest, place in zip(digests, places, strict=True):
                    if place is None:  # what has no row any more has left its item before
                        bucket = bucket_of(digest, self.id_buckets)
                        pipeline.get(self.keys.archived_ids(bucket))
                        continue
                    position = str(place.position)
                    pipeline.xrange(self.keys.stream(place.partition), position, position)
                return places, pipeline.execute()

        places, replies = call_patiently(ask, patience_s=self._patience_s)
        items = [
            [] if place else items_of(reply, digest)
            for digest, place, reply in zip(digests, places, replies, strict=True)
        ]
        boundaries = self._boundaries(
            [
                *(item.partition for several in items for item in several),
                *(p.partition for p, reply in zip(places, replies, strict=True) if p and not reply),
            ]
        )
        entries: dict[tuple[str, str], Entry] = {}
        for index, key in enumerate(keys):
            place, reply, entry = places[index], replies[index], None
            if place is None:
                entry = self.archive.of_event(digests[index], items[index], boundaries)
            elif reply:
                entry = self._entry(place.partition, reply[0])
            else:
                entry = self._archived(place.partition, place.position, place.seq, boundaries)
            if place is not None:
                entry = self._damage.compared(place, entry)
            if entry is not None:
                entries[key] = entry
        judged = self._damage.mended_if_needed([*entries.values()])
        return dict(zip(entries, judged, strict=True))

    def _archived(
        self,
        partition: int,
        position: Position,
        seq: int | None,
        boundaries: Mapping[int, Boundary],
    ) -> Entry | None:
        """The entry that is not in its stream, if it is archived."""
        boundary = boundaries[partition]
        if position > boundary.position:
            return None
        return self.archive.at(partition, boundary, position, seq)

    def entry_at(self, partition: int, position: Position, seq: int | None = None) -> Entry | None:
        """The entry at a position, or of a number: of one that was lost, only that is known.

        Raises as `read` does.
        """
        replies = call_patiently(
            lambda: self._redis.xrange(self.keys.stream(partition), str(position), str(position)),
            patience_s=self._patience_s,
        )
        if replies:
            entry = self._entry(partition, replies[0])
            if not entry.seq and seq is not None:
                entry = entry._replace(seq=seq)
            return self._damage.mended_if_needed([entry])[0]
        boundaries = {partition: self.archive.boundary(partition)}
        if archived := self._archived(partition, position, seq, boundaries):
            return self._damage.mended_if_needed([archived])[0]
        return None if seq is None else self._damage.restored(partition, [seq]).get(seq)

    def oldest_behind_ms(self, partition: int, place: Position) -> int | None:
        """When the first entry behind a place was appended; None: there is none.

        Where the archive has it and cannot be read, a time before that: lag is never told too low.

        Raises:
            LedgerUnavailable: Redis is away.
        """
        try:
            entries = self.read(partition, place, 1)
        except (ArchiveUnavailable, ArchiveDamaged):
            return place.ms or int(self.identity.rpartition(":")[2])
        return entries[0].position.ms if entries else None

    def tails(self) -> list[Tail]:
        """The last entry of each partition, all of one moment; index = partition."""
        script = _TAILS.replace("@PREFIX@", self.keys.prefix)
        reply = call_patiently(
            lambda: self._redis.eval(script, 0, str(self.partitions)), patience_s=self._patience_s
        )
        return [
            Tail(Position.parse(position), int(seq))
            for position, seq in zip(reply[::2], reply[1::2], strict=True)
        ]

    def held_out(self) -> HeldOut:
        """How many entries are not what was appended, as far as that is known without reading."""
        return self._damage.held_out(self.partitions)

    # the server and its epoch

    def risk(self) -> str:
        """Why Redis may lose what it acknowledges: it evicts, or keeps no append-only file.

        Empty: it does not. Anybody may set either while it runs.
        """
        return call_patiently(self._admission.risk, patience_s=self._patience_s)

    def refusal(self) -> str:
        """Why Redis takes no write now, though it answers; empty: it does, as far as there is room.

        It says so of a command that would change nothing, too, which takes no room.
        """
        try:
            call_patiently(
                lambda: self._redis.hdel(self.keys.epoch, ""), retry_on=lambda error: False
            )
        except LedgerError as error:
            return str(error)
        return ""

    def epoch(self) -> int:
        """How many server processes were admitted so far; 0 before the first append."""
        return call_patiently(self._admission.number, patience_s=self._patience_s)

    def halted(self) -> dict[int, str]:
        """Partitions that accept no appends, with the reason."""
        errors = call_patiently(self._admission.halted, patience_s=self._patience_s)
        return {partition: error.reason for partition, error in errors.items()}

    def missing_checkpoints(self, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
        """Checkpoints whose entry (position, seq and content) the ledger does not hold.

        A checkpoint at START always holds.
        """
        wanted = list(checkpoints)
        return call_patiently(lambda: self._admission.missing(wanted), patience_s=self._patience_s)

    def admit(self) -> None:
        """Compare a new server process with all checkpoints, then let it accept appends.

        `append` does this by itself; `status` and `recover` call it to know before.

        Raises:
            LedgerUnavailable: Redis is away, or the process is a replica.
            LedgerFormatMismatch: another ledger came up at this address.
            RecollectError: whatever reading the checkpoints raises.
        """
        self._script = call_patiently(self._admission.admit, patience_s=self._patience_s)

    def halt(self, target: str, checkpoint: Checkpoint) -> None:
        """Accept no appends to the partition of a checkpoint that was found missing."""
        call_patiently(
            lambda: self._admission.halt(target, checkpoint), patience_s=self._patience_s
        )

    def release(self, partition: int) -> None:
        """Accept appends to a halted partition again, once its checkpoints are right."""
        call_patiently(lambda: self._admission.release(partition), patience_s=self._patience_s)

    def memory(self) -> tuple[int, int]:
        """Bytes Redis uses, and its limit (0: none)."""
        info = call_patiently(lambda: self._redis.info("memory"), patience_s=self._patience_s)
        return int(info["used_memory"]), int(info["maxmemory"])

    def now_ms(self) -> int:
        """The server's time, milliseconds since the epoch."""
        seconds, micros = call_patiently(self._redis.time, patience_s=self._patience_s)
        return int(seconds) * 1000 + int(micros) // 1000


def _place_new(chunk: _Chunk, reply: bytes, outcomes: list[Outcome | None]) -> None:
    """The outcomes of a chunk in which every event is new."""
    ms, before = _CLOCK.unpack(reply)
    metrics.INGEST_BYTES.inc(sum(map(len, chunk.data)))
    for seq, (index, partition) in enumerate(chunk.places, before + 1):
        outcomes[index] = Appended(Position(ms, seq), partition, False)


class _Chunks:
    """The chunks not yet acknowledged: the one under way, and the one made meanwhile.

    Attributes:
        away: why the archive could not be asked, once it could not.
    """

    def __init__(self, chunks: Iterator[_Chunk]) -> None:
        self._rest = chunks
        self._made: deque[_Chunk] = deque()
        self.away: ArchiveUnavailable | None = None

    def first(self) -> _Chunk | None:
        """The one to send; None when all are acknowledged."""
        if not self._made:
            self.prepare()
        return self._made[0] if self._made else None

    def prepare(self) -> None:
        """Encode one more, behind the one under way."""
        if len(self._made) <= 1 and (chunk := next(self._rest, None)) is not None:
            self._made.append(chunk)

    def again(self, chunk: _Chunk) -> None:
        """Of the first, this is left to be sent."""
        self._made[0] = chunk

    def done(self) -> None:
        """The first is acknowledged."""
        self._made.popleft()
