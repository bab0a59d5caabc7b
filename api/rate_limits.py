"""How much a key may ask and follow, and a tenant may send: who floods is refused, nobody else.

Counted once for all processes of an API (`SharedCounts`, `StreamSlots`); of several APIs behind one
address each has its own count. Windows slide, so that no moment lets twice as much through.

The counts lie in memory that the processes share: a table of places, each with the digest of a
name, its count and when that ends; a name may lie in the few places of its row. Every look and
change is made under a lock of the file, which the kernel takes back when a process is killed. What
finds its row full shares the row's last place with others like it, so that no number of names takes
more memory, or lets one of them through too often.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from math import ceil, floor
from pathlib import Path
from struct import Struct
from typing import Final

from limits import RateLimitItem, parse_many
from limits.storage.base import SlidingWindowCounterSupport, Storage, TimestampedSlidingWindow
from limits.strategies import SlidingWindowCounterRateLimiter

from api.errors import ApiProblem
from pipelines.observe import metrics
from pipelines.work.settings import ALL_TENANTS, Settings

_ROWS: Final = 1_024
_PLACES: Final = 16
"""Of a row."""
_PLACE: Final = Struct("<16sqd")
"""Digest, count, end in Unix time; zeros at first, which is a count that has ended."""
TABLE_BYTES: Final = _ROWS * _PLACES * _PLACE.size
_NOBODY: Final = bytes(16)


class SharedCounts(Storage, SlidingWindowCounterSupport, TimestampedSlidingWindow):
    """Counts as the library of limits asks for them; threads and processes may share them.

    Args:
        path: of the table, made by whoever comes first; None: of this process alone.

    Raises:
        OSError: the file cannot be opened.
    """

    STORAGE_SCHEME = None

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._file: int | None = None
        if path is None:
            self._table = mmap.mmap(-1, TABLE_BYTES)
        else:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            weakref.finalize(self, os.close, self._file)
            os.ftruncate(self._file, TABLE_BYTES)
            self._table = mmap.mmap(self._file, TABLE_BYTES)

    @property
    def base_exceptions(self) -> type[Exception]:
        """What may go wrong."""
        return OSError

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Add to a count, which ends so many seconds after its first; returns it."""
        with self._locked():
            return self._add(key, time.time(), expiry, amount)

    def get(self, key: str) -> int:
        """A count; 0: there is none."""
        with self._locked():
            return self._count(key, time.time())

    def get_expiry(self, key: str) -> float:
        """When a count ends, Unix time; now: there is none."""
        now_s = time.time()
        with self._locked():
            offset, is_there = self._place(key, now_s)
            return self._at(offset)[2] if is_there else now_s

    def check(self) -> bool:
        """Whether it can be used."""
        return not self._table.closed

    def reset(self) -> None:
        """Forget all."""
        with self._locked():
            self._table[:] = bytes(TABLE_BYTES)

    def clear(self, key: str) -> None:
        """Forget a count."""
        with self._locked():
            offset, is_there = self._place(key, time.time())
            if is_there:
                self._set(offset, (_NOBODY, 0, 0.0))

    def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        """Count, unless that would be more than the limit in a window; whether it was counted.

        Args:
            key: whose window.
            limit: of a window.
            expiry: length of a window, seconds.
            amount: to count.
        """
        now_s = time.time()
        before, now = self.sliding_window_keys(key, expiry, now_s)
        with self._locked():
            previous, left_s, current, _ = self._window(before, now, expiry, now_s)
            if floor(previous * left_s / expiry + current) + amount > limit:
                return False
            self._add(now, now_s, 2 * expiry, amount)
            return True

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Counts of the window before and of this one, each with the seconds it still matters."""
        now_s = time.time()
        before, now = self.sliding_window_keys(key, expiry, now_s)
        with self._locked():
            return self._window(before, now, expiry, now_s)

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget both."""
        for window in self.sliding_window_keys(key, expiry, time.time()):
            self.clear(window)

    def _window(
        self, before: str, now: str, expiry: int, now_s: float
    ) -> tuple[int, float, int, float]:
        previous = self._count(before, now_s)
        left_s = expiry - now_s % expiry
        return previous, left_s if previous else 0.0, self._count(now, now_s), left_s + expiry

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._guard:
            if self._file is None:
                yield
                return
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _count(self, key: str, now_s: float) -> int:
        offset, is_there = self._place(key, now_s)
        return self._at(offset)[1] if is_there else 0

    def _add(self, key: str, now_s: float, expiry: float, amount: int) -> int:
        offset, is_there = self._place(key, now_s)
        _, count, end_s = self._at(offset)
        if not is_there:
            count, end_s = 0, now_s + expiry
        count += amount
        self._set(offset, (_digest(key), count, end_s))
        return count

    def _place(self, key: str, now_s: float) -> tuple[int, bool]:
        """Where the count of a name is, or would be; whether it is there."""
        digest = _digest(key)
        first = int.from_bytes(digest[:4], "little") % _ROWS * _PLACES * _PLACE.size
        shared = first + (_PLACES - 1) * _PLACE.size
        free: int | None = None
        for offset in range(first, shared, _PLACE.size):
            held, _, end_s = self._at(offset)
            if end_s <= now_s:
                free = offset if free is None else free
            elif held == digest:
                return offset, True
        if free is not None:
            return free, False
        return shared, self._at(shared)[2] > now_s

    def _at(self, offset: int) -> tuple[bytes, int, float]:
        digest, count, end_s = _PLACE.unpack_from(self._table, offset)
        return digest, count, end_s

    def _set(self, offset: int, place: tuple[bytes, int, float]) -> None:
        self._table[offset : offset + _PLACE.size] = _PLACE.pack(*place)


def _digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


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
