"""Who runs a pass of consolidation: one process at a time, whatever becomes of it.

The lease is not a fence: a process that was stopped past it may go on for a moment beside the
next. What both decide has the same id, so it is decided once.
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

from pipelines.adapters.lease_scripts import ACQUIRE, RELEASE, RENEW
from pipelines.adapters.ledger_keys import LedgerKeys
from pipelines.adapters.ledger_retry import call_patiently
from projections.errors import PassUnderWay

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
            self._redis.eval(RELEASE, 1, self._key, self._name, self._lease_ms)

    def _renew(self) -> None:
        while not self._ended.wait(self._lease_ms / 1000 / _RENEWALS):
            try:
                if not self._extend(RENEW):
                    return
            except RedisError:
                continue  # it may be back before the lease ends

    def _extend(self, script: str) -> bool:
        asked_at_s = monotonic()
        if not self._redis.eval(script, 1, self._key, self._name, self._lease_ms):
            self._until_s = 0.0
            return False
        self._until_s = asked_at_s + self._lease_ms / 1000
        return True
