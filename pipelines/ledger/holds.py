"""Stages that hold, as their workers say in Redis, and whether an operator told them to go on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import redis

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.keys import LedgerKeys

SHOWN_S = 60
"""A hold that its worker has not shown again for so long is over: the worker has ended."""


class Hold(NamedTuple):
    """A stage that gives no entry up at the moment.

    Attributes:
        partition, seq, position: of the first entry that it holds at.
        reason: why that entry fails.
        since_s: Unix time.
    """

    partition: int
    seq: int
    position: str
    reason: str
    since_s: float


class Holds:
    """Holds by stage and target. All methods raise LedgerUnavailable."""

    def __init__(self, redis: redis.Redis, prefix: str = "rc") -> None:
        self._redis: Any = redis  # its types say bytes or str; undecoded replies are bytes
        self._keys = LedgerKeys(prefix)

    def show(self, stage: str, target: str, hold: Hold) -> None:
        """Say that the stage holds; again and again, while it does."""
        key, value = self._keys.hold(stage, target), json.dumps(hold._asdict())
        call_patiently(lambda: self._redis.set(key, value, ex=SHOWN_S))

    def clear(self, stage: str, target: str) -> None:
        """Say that it goes on."""
        call_patiently(lambda: self._redis.delete(self._keys.hold(stage, target)))

    def of_target(self, target: str, stages: Iterable[str]) -> dict[str, Hold]:
        """Which of the stages hold on a target, by name."""
        names = list(stages)
        keys = [self._keys.hold(name, target) for name in names]
        values = call_patiently(lambda: self._redis.mget(keys))
        return {
            name: Hold(**json.loads(value))
            for name, value in zip(names, values, strict=True)
            if value is not None
        }

    def release(self, stage: str, target: str, for_s: int) -> None:
        """Let the stage's workers give up entries without a brake for so many seconds."""
        call_patiently(lambda: self._redis.set(self._keys.release(stage, target), 1, ex=for_s))

    def is_released(self, stage: str, target: str) -> bool:
        """Whether an operator has said so, and the time is not over."""
        return bool(call_patiently(lambda: self._redis.exists(self._keys.release(stage, target))))
