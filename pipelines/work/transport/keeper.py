"""The keeper of a partition: all that happens to it while this worker holds it, in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from redis.exceptions import ResponseError

from pipelines.work.transport.group import Group
from pipelines.work.transport.lane import Lane
from projections.errors import RecollectError
from projections.identity import Position

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
