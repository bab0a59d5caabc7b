"""The consumer group as one worker sees it: connections, leases, members, troubles."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from redis.exceptions import RedisError

from pipelines.ledger.connect import LedgerKeys
from pipelines.work.settings import Settings
from pipelines.work.transport.connect import connect
from pipelines.work.transport.leases import Leases
from projections.identity import Position

logger = logging.getLogger(__name__)

# asyncio's TimeoutError is an OSError too.
AWAY = (RedisError, OSError)


class Start(Protocol):
    """Where a partition starts: after this entry. A Checkpoint is one."""

    @property
    def position(self) -> Position:
        """Of the last entry applied."""

    @property
    def seq(self) -> int:
        """Its number in the partition."""


class Positions(Protocol):
    """What the transport asks the app for."""

    def start(self, partition: int) -> Awaitable[Start]:
        """The partition's checkpoint, read from the graph; a RecollectError means: not now."""


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
            if self._reported.pop(what, None):
                logger.info("%s: works again", what)

    def report(self, what: str, error: Exception) -> None:
        """Log a trouble that will be tried again, once until it changes."""
        text = f"{type(error).__name__}: {error}"
        if self._reported.get(what) != text:
            self._reported[what] = text
            logger.warning("%s: %s (trying again)", what, text)

    async def close(self) -> None:
        """Close the connections."""
        await self.reader.aclose()
        await self.redis.aclose()
