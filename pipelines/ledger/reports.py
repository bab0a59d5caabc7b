"""What processes say of themselves in Redis: the last results of commands, and stages that hold.

`verify`, `rebuild` and `consolidate` end before anybody could scrape them, so the API shows their
results to Prometheus. A stage that holds says so while it does, and asks whether an operator told
it to go on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import redis

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.keys import LedgerKeys

CONSOLIDATE_REPORT = "consolidate"
_VERIFY, _FIRST = "verify", "projection"  # whose command is the bare word


class Report(NamedTuple):
    """The last word of a command about a target."""

    command: str
    target: str
    values: dict[str, float]


def verified(stage: str, target: str, *, differences: int, duration_s: float) -> Report:
    """What a verify says that ends now."""
    values = {
        "differences": float(differences),
        "duration_s": duration_s,
        "ended_at_s": time.time(),
    }
    return Report(_VERIFY if stage == _FIRST else f"{_VERIFY}-{stage}", target, values)


def verified_stage(report: Report) -> str | None:
    """The stage that a verify compared; None: it is the report of something else."""
    command, _, stage = report.command.partition("-")
    return (stage or _FIRST) if command == _VERIFY else None


class Reports:
    """The last report of each command and target. All methods raise LedgerUnavailable."""

    def __init__(self, redis: redis.Redis, prefix: str = "rc") -> None:
        self._redis: Any = redis  # its types say bytes or str; undecoded replies are bytes
        self._key = LedgerKeys(prefix).reports

    def put(self, report: Report) -> None:
        """Replace what the command said about the target before."""
        field = f"{report.command}:{report.target}"
        call_patiently(lambda: self._redis.hset(self._key, field, json.dumps(report.values)))

    def all(self) -> list[Report]:
        """Every last report."""
        stored = call_patiently(lambda: self._redis.hgetall(self._key))
        return [
            Report(command, target, json.loads(values))
            for field, values in sorted(stored.items())
            for command, _, target in [field.decode().partition(":")]
        ]


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
