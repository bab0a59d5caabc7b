"""Faust's consumer over Redis Streams: one reader, and one keeper for each partition held.

Faust is told once that every partition is assigned; which of them this worker reads is decided
underneath, by leases. (A Faust rebalance empties the queues of all partitions, those that stay
too; here it happens once, before the first read.)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn, cast

import faust
import redis
from faust.exceptions import ImproperlyConfigured
from faust.transport import base
from faust.transport.conductor import Conductor as FaustConductor
from faust.types import TP, AppT, EventT, Message
from faust.types.tuples import ack_lock
from mode import Service
from yarl import URL

from pipelines.ledger.damage import is_sound
from pipelines.ledger.entries import Block, Entry
from pipelines.observe import progress
from pipelines.work.settings import Settings
from pipelines.work.transport.group import LEADER, Group
from pipelines.work.transport.lane import Keeper, Lane
from projections.errors import RecollectError


class LedgerConsumer(base.Consumer):
    """Answers what Faust asks of a consumer and the ledger has no use for."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Nothing: the keepers start at the checkpoints."""
        return {}

    def on_buffer_full(self, tp: TP) -> None:
        """Nothing: the inherited one ends in a sleep of a second; what is in flight is bounded."""

    on_buffer_drop = on_buffer_full

    def _unused(self, *_: Any, **__: Any) -> Any:
        """Called by tables, by the producer or by the inherited reader, none of which is here."""
        raise NotImplementedError("not a part of Faust that works over the ledger")

    _commit = _getmany = _seek = _to_message = _new_topicpartition = _unused
    position = highwater = highwaters = earliest_offsets = seek_wait = _unused
    topic_partitions = key_partition = create_topic = _unused


LEDGER_TOPIC = "ledger"
LEASE_LOOP, READ_LOOP = LOOPS = ("leases", "reader")
"""The loops of a worker that must go on turning."""

READ_BLOCK_MS = 500
"""A read waits this long in Redis; what wants the reader's attention waits no longer either."""
READ_BLOCK_BUSY_MS = 10
"""… and this long while a partition that is not part of the read may soon be ready for one."""
BLOCKS_IN_MEMORY = 16
"""Entries in flight over all partitions: at most this many times `batch_size`."""
SMALLEST_COUNT = 64
"""Reading fewer entries of a partition than this for lack of room is not worth a transaction."""
LONGEST_BACKOFF_S = 2.0


class Consumer(LedgerConsumer):
    """Reads blocks of entries and hands each to the agent as one event.

    Agents take a block with `in_hand`; order within a partition is theirs to keep.
    """

    def __init__(self, transport: Any, **kwargs: Any) -> None:
        app = transport.app
        self.settings: Settings = app.settings
        self._group = Group(app.conf.id, self.settings, app.positions)
        self._leases = self._group.leases
        self._wake = asyncio.Event()
        self._lanes = [
            Lane(TP(LEDGER_TOPIC, n), self._group.keys.stream(n), self._wake)
            for n in range(self.settings.partitions)
        ]
        self._keepers: dict[int, asyncio.Future[None]] = {}
        self._assigned = asyncio.Event()
        self._leaving = False
        super().__init__(transport, **kwargs)

    # -- what an agent does with a block -------------------------------------------------------

    @contextmanager
    def in_hand(self, event: EventT[Block]) -> Iterator[Block | None]:
        """Work on a block: leaving normally settles it, leaving by an exception rewinds.

        Yields:
            The block, or None when it was dropped meanwhile (a rewind, or another worker's turn).
        """
        message = event.message
        lane = self._lanes[message.partition]
        if self._leaving or not lane.held or lane.blocks.get(message.offset) is not message:
            yield None
            return
        lane.in_hand.add(message.offset)
        applied = False
        try:
            yield cast(Block, event.value)
            applied = True
        finally:
            lane.in_hand.discard(message.offset)
            if applied:
                self.settle(event)
            else:
                self.rewind(lane.partition, "a block was not applied")

    def settle(self, event: EventT[Block]) -> None:
        """The block is applied: acknowledged to Redis with the next commit."""
        lane = self._lanes[event.message.partition]
        lane.failures = 0
        if lane.blocks.get(event.message.offset) is event.message:
            event.ack()
        lane.notify()

    def rewind(self, partition: int, reason: str) -> None:
        """Drop what is in flight of a partition and start again at its checkpoint."""
        self._lanes[partition].rewind(reason)

    # -- assignment ----------------------------------------------------------------------------

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Called by the conductor, at the start and when agents come or go."""
        foreign = set(topics) - self.randomly_assigned_topics - {LEDGER_TOPIC}
        if foreign or self.app.tables:
            raise ImproperlyConfigured(
                f"this transport reads the ledger only, not {sorted(foreign)}: app.Table and "
                "agent.ask keep their state in topics, here all state is in the graph"
            )
        if self._assigned.is_set():
            await self.app.topics.on_partitions_assigned({lane.tp for lane in self._lanes})
        else:
            # The conductor notes that it has subscribed when this returns, and the assignment
            # waits for that note.
            self.add_future(self._assign())

    async def _assign(self) -> None:
        self.app.on_rebalance_start()
        self.app.consumer_generation_id += 1
        tps = {lane.tp for lane in self._lanes}
        await self.on_partitions_assigned(tps, self.app.consumer_generation_id)
        self._assigned.set()

    def assignment(self) -> set[TP]:
        """What this worker holds; with Faust's leader topic, while it is the leader."""
        held = {lane.tp for lane in self._lanes if lane.held}
        return held | {self._leader_tp} if self._leases.holds(LEADER) else held

    def partitions_held(self) -> int:
        """How many partitions this worker reads."""
        return sum(lane.held for lane in self._lanes)

    @property
    def _leader_tp(self) -> TP:
        app: Any = self.app
        return cast(TP, app._leader_assignor._leader_tp)

    @Service.task
    async def _share_partitions(self) -> None:
        """Beat, renew, and take or give back partitions. Goes on while the worker drains."""
        await self._assigned.wait()
        fifth_s = self.settings.lease_ms / 5000
        while True:
            progress.WORKER.turned(LEASE_LOOP)
            async with self._group.redis_calls("leases"):
                await self._share_once()
            missing = not self._leaving and len(self._keepers) < len(self._wanted())
            # Whoever is to give a partition back does so within a beat: look often until then.
            await asyncio.sleep(min(fifth_s, 0.25 if missing else 1.0))

    async def _share_once(self) -> None:
        for slot in await self._leases.renew():
            if slot != LEADER:
                self._lanes[slot].let_go()
                self.log.warning("the lease of partition %d was lost", slot)
        if self._leaving:
            return
        self._group.alive = await self._leases.beat()
        wanted = self._wanted()
        for lane in self._lanes:
            if lane.held and lane.partition not in wanted:
                lane.let_go()
            if lane.partition not in wanted or lane.partition in self._keepers:
                continue
            if await self._leases.acquire(lane.partition):
                lane.held = not self._leaving  # if it is, the keeper gives it back
                self._keepers[lane.partition] = self.add_future(self._keep(lane))
        if not self.app.conf.topic_disable_leader:
            await self._leases.acquire(LEADER)

    async def _keep(self, lane: Lane) -> None:
        try:
            await Keeper(self._group, lane, self.commit).keep()
        finally:
            del self._keepers[lane.partition]

    def _wanted(self) -> set[int]:
        """Partition n is read by the live worker number n mod M."""
        if self._group.worker not in self._group.alive:
            return set()
        mine = self._group.alive.index(self._group.worker)
        return {n for n in range(len(self._lanes)) if n % len(self._group.alive) == mine}

    # -- reading -------------------------------------------------------------------------------

    async def _drain_messages(self, fetcher: Any) -> None:
        """The reader: all partitions that are ready, in one command, as blocks."""
        failures = 0
        while not (self.should_stop or fetcher.should_stop):
            self._wake.clear()
            progress.WORKER.turned(READ_LOOP)
            if not (self.flow_active and self._readable()[0]):
                await self._woken(READ_BLOCK_MS / 1000)
                continue
            async with self._group.reading:
                failures = 0 if await self._read_once() else failures + 1
            if failures:
                backoff_s = min(LONGEST_BACKOFF_S, 0.05 * 2 ** min(failures, 8))
                await self.sleep(backoff_s * random.uniform(0.5, 1.0))

    def _readable(self) -> tuple[list[Lane], int]:
        """Which partitions to read now, and how many entries of each at most."""
        batch = self.settings.batch_size
        lanes = [
            lane for lane in self._lanes if lane.readable and self._leases.holds(lane.partition)
        ]
        in_flight = sum(lane.entries_waiting for lane in self._lanes)
        room = BLOCKS_IN_MEMORY * batch - in_flight
        lanes = sorted(lanes, key=lambda lane: lane.waiting)[: room // min(batch, SMALLEST_COUNT)]
        return lanes, min(batch, room // len(lanes)) if lanes else 0

    async def _read_once(self) -> bool:
        lanes, count = self._readable()  # again: now the lock is held
        if not lanes:
            return True
        all_of_them = len(lanes) == len(self._keepers)
        block_ms = READ_BLOCK_MS if all_of_them else READ_BLOCK_BUSY_MS
        replies: list[Any] | None = None
        async with self._group.redis_calls("read"):
            # The reader has no time-out on its socket: a dead network has to be noticed here.
            async with asyncio.timeout(block_ms / 1000 + self.settings.redis_timeout_s):
                replies = await self._group.reader.xreadgroup(
                    self._group.name,
                    self._group.worker,
                    {lane.stream: ">" for lane in lanes},
                    count=count,
                    block=block_ms,
                )
        if replies is None:
            for lane in lanes:  # the reply that was lost may have held entries
                lane.rewind("a read failed")
            return False
        by_stream = {lane.stream: lane for lane in lanes}
        for stream, raw in replies:
            lane = by_stream[stream.decode()]
            try:
                entries: Sequence[Entry] = lane.decoded(raw)
                if not is_sound(entries, lane.seq):
                    entries = await self._vouched(lane, entries)
            except RecollectError as error:
                lane.rewind(str(error))
                continue
            if entries:
                await self.callback(lane.take(entries, self.app.consumer_generation_id))
        return True

    async def _vouched(self, lane: Lane, read: Sequence[Entry]) -> Sequence[Entry]:
        """What the ledger says of a stretch in which a digest is missing or wrong, or a number.

        Where the entries between are archived, it has them, and the group reads on behind them.
        Nothing, and the lane rewinds, where what it says does not continue the lane either.
        """
        first, last = read[0], read[-1]
        entries = await self._group.positions.read(lane.partition, lane, last.position)
        is_next = any(entry.fault for entry in (*entries, *read)) or (
            entries and is_sound(entries, lane.seq)
        )
        if is_next and lane.reading and await self._continued(lane, entries, last):
            return entries
        lane.rewind(f"entry {first.position} does not continue seq {lane.seq}")
        return ()

    async def _continued(self, lane: Lane, entries: Sequence[Entry], read: Entry) -> bool:
        """Whether the group stands behind these entries, which may end before what it has read."""
        if not entries or entries[-1].position == read.position:
            return True
        stands = False
        async with self._group.redis_calls(f"partition {lane.partition}: read on"):
            end = entries[-1]
            await self._group.redis.xgroup_setid(
                lane.stream, self._group.name, str(end.position), end.seq
            )
            stands = True
        return stands

    async def _woken(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    # -- acknowledging -------------------------------------------------------------------------

    def ack(self, message: Message) -> bool:
        """Note that a message is done, and that there is room to read."""
        done = super().ack(message)
        self._wake.set()
        return done

    async def _commit_tps(self, tps: Iterable[TP], start_new_transaction: bool) -> bool:
        """XACK the blocks that are settled; those that fail stay for the next commit."""
        with ack_lock:
            for tp in tps:
                self._acked[tp].clear()
                self._acked_index[tp].clear()
                self._committed_offset[tp] = None  # or Faust refuses older offsets
        settled = [
            (lane, message)
            for lane in self._lanes
            for message in lane.blocks.values()
            if message.acked
        ]
        if not settled:
            return False
        committed = False
        async with (
            self._group.redis_calls("commit"),
            self._group.redis.pipeline(transaction=False) as pipe,
        ):
            for lane, message in settled:
                ids = [str(entry.position) for entry in message.value.entries]
                pipe.xack(lane.stream, self._group.name, *ids)
            await pipe.execute()
            for lane, message in settled:
                lane.blocks.pop(message.offset, None)
            self.app.monitor.on_tp_commit(
                {lane.tp: message.value.entries[-1].seq for lane, message in settled}
            )
            committed = True
        return committed

    async def wait_empty(self) -> None:
        """Finish the blocks in hand, `stop_timeout_s` at most; the others are dropped."""
        self._leaving = True
        try:
            async with asyncio.timeout(self.settings.stop_timeout_s):
                for lane in self._lanes:
                    await lane.idle()
        except TimeoutError:
            hands = sum(len(lane.in_hand) for lane in self._lanes)
            self.log.warning("stopping with %d blocks unfinished; they will be read again", hands)
        await self.commit()

    async def on_stop(self) -> None:
        """Drain, acknowledge, and leave nothing that another worker would have to wait for."""
        if not self._leaving:  # Faust has not asked for it: nothing was held then
            await self.wait_empty()
        for lane in self._lanes:
            lane.let_go()
        if self._keepers:
            await asyncio.wait(self._keepers.values(), timeout=self.settings.redis_timeout_s)
        async with self._group.redis_calls("leave"):
            await self._leases.leave()
        self._assigned.clear()
        await self._group.close()


class BlockSchema(faust.Schema[None, Any]):
    """The event's value is the block as it was read.

    Nothing is decoded here, so nothing can fail: Faust acknowledges what it cannot decode.
    """

    def loads_key(self, app: AppT, message: Message, **_: Any) -> None:
        """Blocks have no key."""

    def loads_value(self, app: AppT, message: Message, **_: Any) -> Any:
        """The block."""
        return message.value


class Producer(base.Producer):
    """Refuses to send: only the ledger's append script writes to the ledger."""

    async def send(self, topic: str, *args: Any, **kwargs: Any) -> NoReturn:
        """Always an error.

        Raises:
            ImproperlyConfigured: always.
        """
        raise ImproperlyConfigured(
            f"nothing is sent through Faust (topic {topic!r}): append to the ledger instead; "
            "agent.send, agent.ask, app.Table and channels over topics need a sending transport"
        )

    send_and_wait = send

    def send_soon(self, fut: Any) -> NoReturn:
        """Always an error, as `send`."""
        raise ImproperlyConfigured("nothing is sent through Faust: append to the ledger instead")

    async def create_topic(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Nothing: the ledger makes its streams."""


class Conductor(FaustConductor):
    """Faust's, but it looks for new subscriptions after a second instead of 45."""

    _resubscribe_sleep_lock_seconds = 1.0


class Transport(base.Transport):
    """Faust over the ledger's streams.

    The app has to have the attributes `settings` (which Redis, which keys) and `positions`.
    The URL names the transport only, so that no password is in it.
    """

    Consumer: ClassVar[Any] = Consumer
    Producer: ClassVar[Any] = Producer
    Conductor: ClassVar[Any] = Conductor
    driver_version = f"redis-py={redis.__version__}"

    def __init__(self, url: list[URL], app: AppT, loop: Any = None) -> None:
        super().__init__(url, app, loop)
        if not hasattr(app, "settings") or not hasattr(app, "positions"):
            raise ImproperlyConfigured("redisstreams:// needs app.settings and app.positions")
