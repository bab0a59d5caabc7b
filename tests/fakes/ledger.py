"""A ledger in memory with the semantics of the real one; `tests/contracts` holds both to them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pipelines.ledger.damage import HeldOut
from pipelines.ledger.entries import ALTERED, LOST, Entry, Fault
from pipelines.ledger.epoch import ReadCheckpoints, lost_checkpoints
from pipelines.ledger.ledger import CLOCK_AHEAD_S, MAX_ENTRY_BYTES, Appended, Outcome, Tail
from pipelines.ledger.vault import Vault
from projections.errors import (
    ClockAhead,
    EventConflict,
    GraphAhead,
    InvalidEvent,
    LedgerFormatMismatch,
    LedgerUnavailable,
    RecollectError,
    SubjectErased,
)
from projections.events import Event, event_partition
from projections.identity import START, Position
from projections.operations import Checkpoint
from tests.fakes.keys import memory_vault


@dataclass
class FakeServer:
    """What a Redis server holds, shared by the ledgers that connect to it.

    `now_ms` is its clock, moved by the test; `process` changes when it restarts.
    """

    now_ms: int = 1_770_000_000_000
    process: int = 1
    admitted: int = 0
    shape: tuple[int, int] | None = None
    clock: Position = START
    streams: dict[int, list[Entry]] = field(default_factory=dict)
    ids: dict[tuple[str, str], Entry] = field(default_factory=dict)
    halted: dict[int, GraphAhead] = field(default_factory=dict)
    damaged: dict[Position, Fault] = field(default_factory=dict)
    seen: set[Position] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def lose(self, partition: int, count: int) -> None:
        """Drop the last entries of a partition and restart."""
        lost = self.streams[partition][-count:]
        del self.streams[partition][-count:]
        self.ids = {key: entry for key, entry in self.ids.items() if entry not in lost}
        self.process += 1

    def alter(self, entry: Entry) -> None:
        """Something flips a bit in an entry."""
        self.damaged[entry.position] = ALTERED

    def delete(self, entry: Entry) -> None:
        """Somebody takes an entry out by hand."""
        self.damaged[entry.position] = LOST


class FakeLedger:
    """Stands in for `pipelines.ledger.ledger.Ledger` where no Redis is wanted."""

    def __init__(
        self,
        server: FakeServer | None = None,
        *,
        partitions: int = 8,
        id_buckets: int = 32_768,
        checkpoints: ReadCheckpoints = dict,
        behind_ms: int = 0,
        vault: Vault | None = None,
    ) -> None:
        self.vault = vault or memory_vault()
        self.partitions = partitions
        self.behind_ms = behind_ms
        self.server = server or FakeServer()
        self._checkpoints = checkpoints
        shape = (partitions, id_buckets)
        self.server.shape = self.server.shape or shape
        if self.server.shape != shape:
            raise LedgerFormatMismatch(
                found=str(self.server.shape), expected=str(shape), reason="fixed"
            )

    def append(self, events: Sequence[Event], *, request_id: str = "") -> list[Outcome]:
        with self.server.lock:
            try:
                self.admit()
            except RecollectError as error:
                raise LedgerUnavailable(reason=str(error)) from error
            if (ahead_ms := self.behind_ms - CLOCK_AHEAD_S * 1000) > 0:
                raise ClockAhead(seconds=ahead_ms / 1000, reason="the clocks differ")
            return [self._append(event, request_id or None) for event in events]

    def _append(self, event: Event, request_id: str | None) -> Outcome:
        server = self.server
        try:
            data, own_bytes, _ = self.vault.sealer([event]).encode(0, event)
        except ValueError as error:
            return InvalidEvent((("payload", str(error)),))
        except SubjectErased as error:
            return error
        if own_bytes > MAX_ENTRY_BYTES:
            return InvalidEvent((("(event)", "too large"),))
        known = server.ids.get(event.key)
        if known is not None:
            if known.data != data:
                return EventConflict(event_id=event.event_id)
            server.damaged.pop(known.position, None)
            server.seen.discard(known.position)
            return Appended(known.position, known.partition, True)
        partition = event_partition(event, self.partitions)
        if partition in server.halted:
            return server.halted[partition]
        stream = server.streams.setdefault(partition, [])
        server.clock = max(
            Position(server.now_ms, 1), Position(server.clock.ms, server.clock.seq + 1)
        )
        seq = stream[-1].seq + 1 if stream else 1
        entry = Entry(partition, server.clock, seq, data, request_id, keys=self.vault)
        stream.append(entry)
        server.ids[event.key] = entry
        return Appended(entry.position, partition, False)

    def read(
        self,
        partition: int,
        after: Position,
        count: int,
        until: Position | None = None,
        *,
        after_seq: int | None = None,
    ) -> list[Entry]:
        if after == START:
            after_seq = 0
        found: list[Entry] = []
        lost: list[Entry] = []
        for entry in self.server.streams.get(partition, []):
            if entry.position <= after and (after_seq is None or entry.seq <= after_seq):
                continue
            if until is not None and entry.position > until:
                break
            if self.server.damaged.get(entry.position) == LOST:
                lost.append(entry)
                continue
            if lost and (found or after_seq is not None):
                found += self._lost(lost, found[-1].position if found else after)
            lost = []
            found.append(self._seen(entry))
        return found[:count]

    def _lost(self, entries: Sequence[Entry], after: Position) -> Iterator[Entry]:
        """Lost entries, which stand right behind the one before them."""
        for number, entry in enumerate(entries, 1):
            stand_in = Position(after.ms, after.seq + number)
            yield entry._replace(position=stand_in, data=b"", request_id=None, fault=LOST)

    def _seen(self, entry: Entry) -> Entry:
        """An entry as a reader gets it."""
        fault = self.server.damaged.get(entry.position)
        if fault is None:
            return entry
        if fault == ALTERED:
            self.server.seen.add(entry.position)
        return entry._replace(data=b"", fault=fault)

    def scan(
        self,
        partition: int,
        after: Position = START,
        until: Position | None = None,
        count: int = 1_000,
    ) -> Iterator[list[Entry]]:
        seq = None
        while entries := self.read(partition, after, count, until, after_seq=seq):
            yield entries
            after, seq = entries[-1].position, entries[-1].seq

    def newest(self, partition: int, before: Position, count: int) -> list[Entry]:
        found = [
            self._seen(entry)
            for entry in reversed(self.server.streams.get(partition, []))
            if entry.position < before and self.server.damaged.get(entry.position) != LOST
        ]
        return found[:count]

    def find(self, tenant: str, event_id: str) -> Entry | None:
        entry = self.server.ids.get((tenant, event_id))
        return None if entry is None else self._seen(entry)

    def find_many(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
        return {key: found for key in keys if (found := self.find(*key)) is not None}

    def entry_at(self, partition: int, position: Position, seq: int | None = None) -> Entry | None:
        for entry in self.server.streams.get(partition, []):
            is_lost = self.server.damaged.get(entry.position) == LOST
            if not is_lost and (entry.position == position or entry.seq == seq):
                return self._seen(entry)
        return None

    def held_out(self) -> HeldOut:
        lost = sum(fault == LOST for fault in self.server.damaged.values())
        return HeldOut(len(self.server.seen), lost)

    def tails(self) -> list[Tail]:
        streams = [self.server.streams.get(partition) for partition in range(self.partitions)]
        return [
            Tail(stream[-1].position, stream[-1].seq) if stream else Tail(START, 0)
            for stream in streams
        ]

    def halted(self) -> dict[int, str]:
        return {partition: error.reason for partition, error in self.server.halted.items()}

    def missing_checkpoints(self, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
        return [checkpoint for checkpoint in checkpoints if not self._holds(checkpoint)]

    def _holds(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.position == START:
            return True
        for entry in self.server.streams.get(checkpoint.partition, []):
            if entry.seq == checkpoint.seq and entry.position in self.server.damaged:
                return True
            if (entry.seq, entry.position) == (checkpoint.seq, checkpoint.position):
                return checkpoint.digest in ("", entry.digest)
        return False

    def admit(self) -> None:
        server = self.server
        with server.lock:
            if server.admitted == server.process:
                return
            found: Mapping[str, Sequence[Checkpoint]] = self._checkpoints()
            for target, checkpoints in found.items():
                again = partial(self._checkpoints_of, target)
                for checkpoint in lost_checkpoints(self.missing_checkpoints, checkpoints, again):
                    self.halt(target, checkpoint)
                server.clock = max([server.clock, *(one.position for one in checkpoints)])
            server.admitted = server.process

    def _checkpoints_of(self, target: str) -> Sequence[Checkpoint]:
        return self._checkpoints().get(target, ())

    def halt(self, target: str, checkpoint: Checkpoint) -> None:
        position = str(checkpoint.position)
        error = GraphAhead(
            partition=checkpoint.partition,
            position=position,
            reason=f"checkpoint {position} of {checkpoint.stage}@{target} is lost",
        )
        self.server.halted.setdefault(checkpoint.partition, error)

    def release(self, partition: int) -> None:
        self.server.halted.pop(partition, None)

    def memory(self) -> tuple[int, int]:
        sizes: Counter[int] = Counter()
        for partition, stream in self.server.streams.items():
            sizes[partition] = sum(len(entry.data) for entry in stream)
        return sizes.total(), 0

    def now_ms(self) -> int:
        return self.server.now_ms
