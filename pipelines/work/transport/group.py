"""The consumer group as one worker sees it: connections, leases, members, troubles."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Protocol
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from pipelines.ledger.connect import SENTINEL_SCHEME, sentinel_hosts
from pipelines.ledger.entries import Entry, LedgerKeys, Start
from pipelines.ledger.epoch import ACQUIRE, RELEASE, RENEW
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError
from projections.identity import Position

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


def connect(settings: Settings, *, blocking: bool = False) -> Redis:
    """A client; connects when first used.

    It never repeats a command by itself: the callers' loops do, and know what may be repeated.

    Args:
        settings: which server.
        blocking: for reads that wait in the server: one connection, and no time-out on its
            socket (redis-py's default of 5 s would cut off a read that is merely waiting).

    Raises:
        ConfigurationError: the URL names no server.
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": settings.redis_timeout_s,
        "socket_timeout": None if blocking else settings.redis_timeout_s,
    }
    if blocking:
        options["max_connections"] = 1
    parts = urlsplit(settings.redis_url)
    secret = settings.redis_password
    password = secret.get_secret_value() if secret is not None else parts.password
    if password is not None:
        options |= {"username": parts.username, "password": password}
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    try:
        if parts.scheme != SENTINEL_SCHEME:
            return Redis.from_url(bare.geturl(), **options)
        master, _, database = parts.path.strip("/").partition("/")
        sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]  # redis-py
            sentinel_hosts(bare.netloc),
            sentinel_kwargs={
                "socket_timeout": settings.redis_timeout_s,
                "socket_connect_timeout": settings.redis_timeout_s,
            },
        )
        client: Redis = sentinel.master_for(master, db=int(database or 0), **options)
        return client
    except ValueError as error:
        # Never the URL itself: it may hold a password.
        raise ConfigurationError(reason=f"redis_url: {error}") from None


logger = logging.getLogger(__name__)

# asyncio's TimeoutError is an OSError too.
AWAY = (RedisError, OSError)


class Positions(Protocol):
    """What the transport asks the app for."""

    def start(self, partition: int) -> Awaitable[Start]:
        """The partition's checkpoint, read from the graph; a RecollectError means: not now."""

    def read(self, partition: int, after: Start, until: Position) -> Awaitable[Sequence[Entry]]:
        """The entries of a stretch as the ledger vouches for them, in a row and from its start.

        Asked for only where those that came with the group's read do not vouch for themselves.
        """


class Group:
    """What the reader and the keepers of one worker share.

    Attributes:
        name: of the consumer group.
        worker: of this process in it, never used twice.
        redis: for short commands. (Any: redis-py's types say bytes or str, replies are bytes.)
        reader: for the blocking read, a connection of its own.
        reading: held by a read under way, and by whoever moves a cursor.
        alive: the live workers as of the last beat, sorted.
    """

    def __init__(self, name: str, settings: Settings, positions: Positions) -> None:
        self.name = name
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.settings = settings
        self.positions = positions
        self.keys = LedgerKeys(settings.prefix)
        self.redis: Any = connect(settings)
        self.reader: Any = connect(settings, blocking=True)
        self.reading = asyncio.Lock()
        self.alive: list[str] = []
        self.leases = Leases(
            self.redis, self.keys, group=name, name=self.worker, lease_ms=settings.lease_ms
        )
        self._reported: dict[str, str] = {}

    @asynccontextmanager
    async def redis_calls(self, what: str) -> AsyncIterator[None]:
        """Errors of Redis end the block and are logged once: whoever calls tries again."""
        try:
            yield
        except AWAY as error:
            self.report(what, error)
        else:
            text = self._reported.pop(what, None)
            if text is not None and text not in self._reported.values():
                logger.info("%s: works again", what)

    def report(self, what: str, error: Exception) -> None:
        """Log a trouble that will be tried again: once until it changes, for all that have it."""
        text = f"{type(error).__name__}: {error}"
        is_news = text not in self._reported.values()
        self._reported[what] = text
        if is_news:
            logger.warning("%s: %s (trying again)", what, text)

    async def close(self) -> None:
        """Close the connections."""
        await self.reader.aclose()
        await self.redis.aclose()
