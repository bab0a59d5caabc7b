"""What commands found out last, kept in Redis so that the API can show it to Prometheus.

`verify`, `rebuild` and `consolidate` end before anybody could scrape them.
"""

from __future__ import annotations

import json
import time
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
