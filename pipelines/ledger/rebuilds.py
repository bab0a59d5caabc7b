"""How far rebuilds are that run now: what each says of itself, in Redis, for whoever looks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import redis

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.entries import LedgerKeys

HEARD_S: Final = 600
"""A rebuild that was not heard of for so long has ended: a load says nothing for minutes."""
TOLD_EVERY_S: Final = 1.0


class Rebuilding(NamedTuple):
    """A rebuild that runs.

    Attributes:
        target: that is built.
        doing: what, as the command shows it.
        done, total: entries of that; total None: not known.
        begun_s, heard_s: Unix time.
    """

    target: str
    doing: str
    done: int
    total: int | None
    begun_s: float
    heard_s: float


class Rebuilds:
    """Rebuilds that run, by target. All methods raise LedgerUnavailable."""

    def __init__(self, redis: redis.Redis, prefix: str = "rc") -> None:
        self._redis: Any = redis  # its types say bytes or str; undecoded replies are bytes
        self._key = LedgerKeys(prefix).rebuilds

    def tell(self, rebuilding: Rebuilding) -> None:
        """Say how far it is."""
        told = json.dumps(rebuilding._asdict())
        call_patiently(lambda: self._redis.hset(self._key, rebuilding.target, told))
        call_patiently(lambda: self._redis.expire(self._key, HEARD_S))

    def end(self, target: str) -> None:
        """It runs no more, whatever came of it."""
        call_patiently(lambda: self._redis.hdel(self._key, target))

    def all(self) -> list[Rebuilding]:
        """Those that were heard of lately, by target."""
        stored = call_patiently(lambda: self._redis.hgetall(self._key))
        told = [Rebuilding(**json.loads(value)) for value in stored.values()]
        return sorted(one for one in told if time.time() - one.heard_s < HEARD_S)


class Telling:
    """Passes on what a rebuild says of itself, and tells it others, at most once a second.

    Args:
        rebuilds: where it is told.
        target: that is built.
        progress: who hears all of it.
        clock: Unix time.
    """

    def __init__(
        self,
        rebuilds: Rebuilds,
        target: str,
        progress: Callable[[int, int | None, str], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._rebuilds = rebuilds
        self._target = target
        self._progress = progress
        self._clock = clock
        self._begun_s = clock()
        self._told: tuple[str, float] = ("", 0.0)

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """What the rebuild calls with done, total and what is being done."""
        if self._progress is not None:
            self._progress(done, total, what)
        now_s = self._clock()
        doing, told_s = self._told
        if what == doing and now_s - told_s < TOLD_EVERY_S:
            return
        self._told = what, now_s
        self._rebuilds.tell(
            Rebuilding(
                target=self._target,
                doing=what,
                done=done,
                total=total,
                begun_s=self._begun_s,
                heard_s=now_s,
            )
        )
