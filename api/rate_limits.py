"""How much a key may ask and follow, and a tenant may send: who floods is refused, nobody else.

Counted once for all processes of an API (`SharedCounts`, `StreamSlots`); of several APIs behind one
address each has its own count. Windows slide, so that no moment lets twice as much through.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import Final

from limits import RateLimitItem, parse_many
from limits.strategies import SlidingWindowCounterRateLimiter

from api.errors import ApiProblem
from api.shared_counts import SharedCounts
from pipelines.observe import metrics
from pipelines.work.settings import ALL_TENANTS, Settings

_KEY_BYTES: Final = 5
MAX_SLOTS: Final = 2**16
"""Of a key; with its digest, the place of a byte is a number of 56 bits."""


class Limits:
    """The limits of one API; threads may share it.

    Args:
        settings: with limits by key and by tenant, `*` for all others.
        counts: file that the processes of the API count in; None: there is one process.
    """

    def __init__(self, settings: Settings, counts: Path | None = None) -> None:
        self._requests = _parsed(settings.request_limits)
        self._events = _parsed(settings.event_limits)
        self._reserve = _parse(settings.overload_reserve)
        self._windows = SlidingWindowCounterRateLimiter(SharedCounts(counts))

    def admit_request(self, key: str, tenant: str) -> None:
        """Count a request.

        Raises:
            ApiProblem: 429, the key has sent too many about this tenant.
        """
        self._hit("requests", _of(self._requests, key), (key, tenant), 1)

    def admit_events(self, tenant: str, number: int) -> None:
        """Count events.

        Raises:
            ApiProblem: 429, the tenant has sent too many; none of these is counted.
        """
        self._hit("events", _of(self._events, tenant), (tenant,), number)

    def has_reserve(self, tenant: str, number: int) -> bool:
        """Count events against what a tenant may send while others overload us; whether it may."""
        return bool(self._reserve) and all(
            self._windows.hit(item, "reserve", tenant, cost=number) for item in self._reserve
        )

    def _hit(
        self, kind: metrics.Limited, items: Sequence[RateLimitItem], who: tuple[str, ...], cost: int
    ) -> None:
        name = (kind, *who)
        for item in items:  # all are looked at before one is counted
            if not self._windows.test(item, *name, cost=cost):
                self._refuse(kind, item, name)
        for item in items:
            if not self._windows.hit(item, *name, cost=cost):
                self._refuse(kind, item, name)

    def _refuse(self, kind: metrics.Limited, item: RateLimitItem, name: tuple[str, ...]) -> None:
        metrics.RATE_LIMITED.labels(kind).inc()
        reset_s = self._windows.get_window_stats(item, *name).reset_time
        raise ApiProblem(
            "rate-limited",
            f"At most {item.amount:,} {kind} in {item.get_expiry():,} s.",
            headers={"Retry-After": str(max(1, ceil(reset_s - time.time())))},
        )


def _of(limits: Mapping[str, Sequence[RateLimitItem]], name: str) -> Sequence[RateLimitItem]:
    return limits.get(name, limits.get(ALL_TENANTS, ()))


def _parsed(limits: Mapping[str, str]) -> dict[str, Sequence[RateLimitItem]]:
    return {name: _parse(text) for name, text in limits.items()}


def _parse(text: str) -> Sequence[RateLimitItem]:
    return parse_many(text) if text else ()


class StreamSlots:
    """How many streams each key has open; called by the event loop of its process alone.

    A stream holds a slot of its key: a byte of a shared file, which its process has locked. The
    kernel takes the locks of a process back that was killed, so no slot is lost, and none has to be
    renewed.

    Args:
        most: of a key.
        path: of the file, made by whoever comes first; None: the process is alone.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, most: int, path: Path | None = None) -> None:
        self._most = most
        self._taken: set[int] = set()
        self._file: int | None = None
        if path is not None:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            weakref.finalize(self, os.close, self._file)

    def __len__(self) -> int:
        """Slots that this process has taken."""
        return len(self._taken)

    def take(self, key: str) -> int | None:
        """A slot of the key, to be given back; None: all are taken."""
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()
        first = int.from_bytes(digest, "big") * MAX_SLOTS
        for slot in range(first, first + self._most):
            # Locks are of the process: what it holds itself looks free to it.
            if slot not in self._taken and self._lock(slot):
                self._taken.add(slot)
                return slot
        return None

    def give_back(self, slot: int) -> None:
        """The stream is over."""
        self._taken.discard(slot)
        if self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, slot)

    def _lock(self, slot: int) -> bool:
        if self._file is not None:
            with suppress(BlockingIOError, PermissionError):
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
                return True
            return False
        return True
