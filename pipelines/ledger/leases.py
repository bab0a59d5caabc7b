"""A lease in Redis: taken, renewed and given back by whoever holds it, compared and set at once.

KEYS: the lease. ARGV: the holder, and how long the lease outlives its last renewal, ms.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Self

import redis
from redis.exceptions import RedisError

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.keys import LedgerKeys
from projections.errors import PassUnderWay

# "Already mine" counts as taken: the reply to an earlier try may have been lost.
ACQUIRE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


_RENEWALS = 5
"""In the time of a lease."""


class PassLease:
    """Held while a pass runs, and renewed by a thread of its own; a context manager.

    Args:
        client: of the ledger's server.
        prefix: of all keys.
        lease_ms: how long it outlives its last renewal.
    """

    def __init__(self, client: redis.Redis, prefix: str, *, lease_ms: int) -> None:
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._key = LedgerKeys(prefix).pass_lease
        self._lease_ms = lease_ms
        self._name = f"{socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex[:8]}"
        self._until_s = 0.0
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="pass-lease", daemon=True)

    @property
    def held(self) -> bool:
        """Whether it is held by this process' own clock; counted from before it was asked for."""
        return monotonic() < self._until_s

    def __enter__(self) -> Self:
        """Take it.

        Raises:
            PassUnderWay: another process has it.
            LedgerUnavailable: Redis is away.
        """
        if not call_patiently(lambda: self._extend(ACQUIRE)):
            holder = call_patiently(lambda: self._redis.get(self._key)) or b"just ended"
            raise PassUnderWay(holder=holder.decode("utf-8", "replace"))
        self._renewal.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._renewal.join()
        self._until_s = 0.0
        with suppress(RedisError):  # it ends by itself
            self._eval(RELEASE)

    def _renew(self) -> None:
        while not self._ended.wait(self._lease_ms / 1000 / _RENEWALS):
            try:
                if not self._extend(RENEW):
                    return
            except RedisError:
                continue  # it may be back before the lease ends

    def _eval(self, script: str) -> Any:
        arguments = (self._key, self._name, self._lease_ms)
        return self._redis.eval(script, 1, *arguments)

    def _extend(self, script: str) -> bool:
        asked_at_s = monotonic()
        if not self._eval(script):
            self._until_s = 0.0
            return False
        self._until_s = asked_at_s + self._lease_ms / 1000
        return True
