"""What this worker knows about one partition: where it reads, and which blocks are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from faust.types import TP, ConsumerMessage

from pipelines.ledger.connect import Block, Entry, decode_entry
from projections.identity import START, Position

RawEntries = Sequence[tuple[bytes, Mapping[bytes, bytes]]]

BLOCKS_IN_FLIGHT = 2
"""A partition's blocks read and not yet settled: one being applied, the next one waiting."""

_LONGEST_PAUSE_S = 1.0


class BlockMessage(ConsumerMessage):
    """Faust's message around a block; `value` is the Block itself."""

    value: Any
    tp: TP
    offset: int
    acked: bool


class Lane:
    """One partition, for the life of the process.

    `offset` is a local counter, because Faust drops records and acks whose offset goes backwards,
    which positions do after a rewind.

    Attributes:
        held: the lease is this worker's; False also while it is being given back.
        reading: it stands at `position` and `seq`, and may be read on from there.
        checked: not to be read while the keeper compares it with the checkpoint.
        blocks: in flight by offset, until they are acknowledged to Redis.
        in_hand: offsets that an agent is working on; they outlive a rewind and a lost lease.
        changed: set whenever one of these changes, and so is `wake`, which all lanes share.
    """

    def __init__(self, tp: TP, stream: str, wake: asyncio.Event) -> None:
        self.tp = tp
        self.partition: int = tp.partition
        self.stream = stream
        self.held = False
        self.reading = False
        self.position = START
        self.seq = 0
        self.blocks: dict[int, BlockMessage] = {}
        self.in_hand: set[int] = set()
        self.changed = asyncio.Event()
        self._wake = wake
        self.checked = False
        self.failures = 0
        self.reason = ""
        self._offset = 0

    @property
    def waiting(self) -> int:
        """Blocks in flight that are not settled."""
        return sum(not message.acked for message in self.blocks.values())

    @property
    def entries_waiting(self) -> int:
        """Entries in flight that are not settled."""
        return sum(len(m.value.entries) for m in self.blocks.values() if not m.acked)

    @property
    def readable(self) -> bool:
        """May be read now: there is room for another block."""
        ready = self.held and self.reading and not self.checked
        return ready and self.waiting < BLOCKS_IN_FLIGHT

    @property
    def pause_s(self) -> float:
        """How long to wait before the next start: nothing at first, then longer and longer."""
        return min(_LONGEST_PAUSE_S, 0.05 * 2**self.failures) if self.failures > 1 else 0.0

    def start(self, position: Position, seq: int) -> None:
        """Read on after this entry."""
        self.position, self.seq, self.reading = position, seq, True
        self.notify()

    def notify(self) -> None:
        """Wake whoever waits for a change of this lane, or of any."""
        self.changed.set()
        self._wake.set()

    def rewind(self, reason: str) -> None:
        """Drop what is in flight; what is in hand goes on, and is waited for before the start."""
        if self.reading:
            self.failures += 1
            self.reason = reason
        self.reading = False
        self.blocks.clear()
        self.notify()

    def let_go(self) -> None:
        """Read no more: the lease is lost, or somebody else's turn has come."""
        self.held = self.reading = False
        self.failures, self.reason = 0, ""
        self.blocks = {n: m for n, m in self.blocks.items() if m.acked or n in self.in_hand}
        self.notify()

    async def idle(self) -> None:
        """Wait until nothing is in hand."""
        while self.in_hand:
            self.changed.clear()
            await self.changed.wait()

    def decoded(self, raw: RawEntries) -> list[Entry]:
        """The entries of a read.

        Raises:
            UndecodableEntry: the stream holds what the ledger did not write.
        """
        return [decode_entry(self.partition, entry_id, fields) for entry_id, fields in raw]

    def take(self, entries: Sequence[Entry], generation: int) -> BlockMessage:
        """Entries that continue where the lane stands, as a message in flight."""
        last = entries[-1]
        self.position, self.seq = last.position, last.seq
        self._offset += 1
        message = BlockMessage(
            self.tp.topic,
            self.partition,
            self._offset,
            timestamp=last.position.ms / 1000,
            timestamp_type=1,  # Kafka's "log append time"
            headers={},
            key=None,
            value=cast(Any, Block(self.partition, tuple(entries))),
            checksum=None,
            tp=self.tp,
            generation_id=generation,
        )
        self.blocks[self._offset] = message
        return message
