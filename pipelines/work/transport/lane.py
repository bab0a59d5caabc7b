"""One partition: where this worker reads, which blocks are in flight, and who keeps it going."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from faust.types import TP, ConsumerMessage
from redis.exceptions import ResponseError

from pipelines.ledger.entries import Block, Entry, decode_entry
from pipelines.work.transport.group import Group
from projections.errors import RecollectError
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


logger = logging.getLogger(__name__)

CHECK_EVERY_S = 5.0
RETRY_EVERY_S = 1.0
TOO_MANY_FAILURES = 5


class Keeper:
    """Starts a lane at its checkpoint, watches it, starts it again, and gives it back.

    Args:
        group: connections, and the lock on the reader.
        lane: the partition, just acquired.
        commit: acknowledges what is settled.
    """

    def __init__(self, group: Group, lane: Lane, commit: Callable[[], Awaitable[object]]) -> None:
        self._group = group
        self._lane = lane
        self._commit = commit
        self._what = f"partition {lane.partition}"

    async def keep(self) -> None:
        """Until the lane is let go; then wait for what is in hand, and release the lease."""
        lane, group = self._lane, self._group
        while lane.held:
            await asyncio.sleep(lane.pause_s)
            await lane.idle()
            if await self._start():
                await self._watch()
            elif lane.held:
                await asyncio.sleep(RETRY_EVERY_S)
        await lane.idle()
        await self._commit()
        async with group.redis_calls(f"{self._what}: release"):
            await group.leases.release(lane.partition)

    async def _start(self) -> bool:
        """Begin, or begin again, at the graph's checkpoint; False: not now."""
        lane, group = self._lane, self._group
        what = f"{self._what}: start"
        try:
            start = await group.positions.start(lane.partition)
        except RecollectError as error:
            group.report(what, error)
            return False
        async with group.redis_calls(what), group.reading:
            if lane.held:
                await self._move_cursor(start.position, start.seq)
            if lane.held:  # still: one that was let go meanwhile must not be watched, or it is kept
                self._tell_reason()
                lane.start(start.position, start.seq)
        return lane.reading

    async def _move_cursor(self, position: Position, seq: int) -> None:
        """The group reads on after `position`, and nothing of older owners is left in it.

        What they left pending lies before the checkpoint, or is read again after it.
        """
        redis, group, stream = self._group.redis, self._group.name, self._lane.stream
        try:
            await redis.xgroup_create(stream, group, str(position), mkstream=True, entries_read=seq)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
            await redis.xgroup_setid(stream, group, str(position), seq)
        while pending := await redis.xpending_range(stream, group, min="-", max="+", count=1000):
            await redis.xack(stream, group, *(row["message_id"] for row in pending))
        for row in await redis.xinfo_consumers(stream, group):
            if row["name"].decode() not in self._group.alive:
                await redis.xgroup_delconsumer(stream, group, row["name"])

    async def _watch(self) -> None:
        """Wait until the lane has to start again or to go; look at it now and then."""
        while self._lane.reading:
            self._lane.changed.clear()
            try:
                async with asyncio.timeout(CHECK_EVERY_S):
                    await self._lane.changed.wait()
            except TimeoutError:
                await self._check()

    async def _check(self) -> None:
        """Rewind a quiet lane that would miss entries.

        A worker that was stopped past its lease may have read in its place, and no further entry
        would show the gap; a `recover` or a `rebuild` may have moved the checkpoint.
        """
        lane, group = self._lane, self._group
        what = f"{self._what}: check"
        async with group.redis_calls(what), group.reading:
            groups = await group.redis.xinfo_groups(lane.stream)
            stands_at = [
                row["last-delivered-id"].decode()
                for row in groups
                if row["name"].decode() == group.name
            ]
            if lane.reading and stands_at != [str(lane.position)]:
                lane.rewind(f"the group stands at {stands_at or 'nothing'}, not {lane.position}")
            lane.checked = lane.reading and not lane.waiting
        if not lane.checked:
            return
        try:
            start = await group.positions.start(lane.partition)
            if start.seq == lane.seq:
                lane.failures = 0
            else:
                lane.rewind(f"the checkpoint is at seq {start.seq}, not {lane.seq}")
        except RecollectError as error:
            group.report(what, error)
        finally:
            lane.checked = False
            lane.notify()

    def _tell_reason(self) -> None:
        """Why it starts again: now and then that is normal, over and over it is not."""
        lane = self._lane
        if 0 < lane.failures <= TOO_MANY_FAILURES:
            tell = logger.error if lane.failures == TOO_MANY_FAILURES else logger.info
            tell("partition %d starts again at its checkpoint: %s", lane.partition, lane.reason)
