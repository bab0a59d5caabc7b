"""How much a key may ask, and a tenant may send: who floods is refused, and nobody else.

Counted once for all processes of an API (`SharedCounts`); of several APIs behind one address each
has its own count. Windows slide, so that no moment lets twice as much through.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path

from limits import RateLimitItem, parse_many
from limits.strategies import SlidingWindowCounterRateLimiter

from api.errors import ApiProblem
from api.shared_counts import SharedCounts
from pipelines.observe import metrics
from pipelines.work.settings import ALL_TENANTS, Settings


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
