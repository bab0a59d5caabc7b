"""Who reads which partition: heartbeats tell who is alive, leases keep others out.

A lease is not a fence. A worker that was stopped past its lease may still believe it holds it;
what it then writes is rejected by the checkpoint in the graph.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from redis.asyncio import Redis

from pipelines.ledger.connect import LedgerKeys
from pipelines.ledger.epoch import ACQUIRE, RELEASE, RENEW

LEADER = -1
"""The slot of the leader's lease; the other slots are partitions."""

# The server's clock decides who is alive: two hosts' clocks may differ by more than a lease.
_BEAT = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2] * 10)
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""


class Leases:
    """One worker's leases in a group, and its place among the group's live members.

    Args:
        redis: for short commands; errors of Redis pass through every method.
        keys: names of the keys.
        group: consumer group.
        name: this worker, unique among all processes.
        lease_ms: how long a lease outlives its last renewal.
    """

    def __init__(
        self, redis: Redis, keys: LedgerKeys, *, group: str, name: str, lease_ms: int
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._group = group
        self._name = name
        self._lease_ms = lease_ms
        self._until: dict[int, float] = {}

    def holds(self, slot: int) -> bool:
        """Whether the lease runs by this worker's own clock; False after it was stopped too long.

        Counted from before the command was sent, so it ends here before it ends in Redis.
        """
        return monotonic() < self._until.get(slot, 0.0)

    async def beat(self) -> list[str]:
        """Say that this worker lives; the live members' names, sorted."""
        names: list[bytes] = await self._eval(_BEAT, self._keys.members(self._group))
        return sorted(name.decode() for name in names)

    async def acquire(self, slot: int) -> bool:
        """Take a lease that is free."""
        return await self._extend(ACQUIRE, slot)

    async def renew(self) -> set[int]:
        """Renew every lease held; the slots that were lost meanwhile."""
        return {slot for slot in list(self._until) if not await self._extend(RENEW, slot)}

    async def release(self, slot: int) -> None:
        """Give a lease back, if it is still this worker's."""
        self._until.pop(slot, None)
        await self._eval(RELEASE, self._keys.lease(self._group, slot))

    async def leave(self) -> None:
        """Leave the members and every lease, so that the others share them at once."""
        for slot in list(self._until):
            await self.release(slot)
        await self._redis.zrem(self._keys.members(self._group), self._name)

    async def _extend(self, script: str, slot: int) -> bool:
        sent_at = monotonic()
        if await self._eval(script, self._keys.lease(self._group, slot)):
            self._until[slot] = sent_at + self._lease_ms / 1000
            return True
        self._until.pop(slot, None)
        return False

    async def _eval(self, script: str, key: str) -> Any:
        arguments = (self._name, self._lease_ms)
        return await self._redis.eval(script, 1, key, *arguments)
