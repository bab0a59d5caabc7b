"""What commands leave in Redis: the last comparison of targets, and rebuilds that run.

Two graphs are compared in minutes, by a command that may load the writer of graphs; the API only
reads what `recollect targets diff` found: counts and keys, no values. Values stay in the terminal
of whoever compared: what is kept here would have to be erased with the user that it is about.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import redis

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.entries import LedgerKeys

KEPT_S: Final = 7 * 86_400
"""A comparison older than that tells nothing of the graphs as they are."""
MOST_TENANTS: Final = 1_000
"""Of which it is kept what differs; of others nobody knows then."""
_ALL: Final = "*"
"""In the place of a tenant, which has letters and digits: what holds for all of them."""

Progress = Callable[[int, int | None, str], None]
"""What a long piece of work calls with done, total (None: unknown) and what is being done."""


class Comparison(NamedTuple):
    """What two targets held differently of one tenant.

    Attributes:
        first, second: names of the targets.
        ended_at_ms: since the epoch.
        behind: entries that one of them had folded and the other had not, by stage.
        types: labels and edge types that differ, each with counts; empty: nothing differs.
        examples: a few differences of each sort: kind, element, type, key, names of properties.
    """

    first: str
    second: str
    ended_at_ms: int
    behind: dict[str, int]
    types: list[dict[str, Any]]
    examples: list[dict[str, Any]]


class Comparisons:
    """The last comparison of each tenant. All methods raise LedgerUnavailable."""

    def __init__(self, redis: redis.Redis, prefix: str = "rc") -> None:
        self._redis: Any = redis  # its types say bytes or str; undecoded replies are bytes
        self._key = LedgerKeys(prefix).comparisons

    def put(
        self,
        targets: Sequence[str],
        differing: Mapping[str, Mapping[str, Any]],
        *,
        behind: Mapping[str, int],
        tenant: str | None = None,
    ) -> None:
        """Replace what was known before: of the tenant, or of all.

        Args:
            targets: the two, in order.
            differing: types and examples of each tenant of which something differs.
            behind: as `Comparison` has it.
            tenant: which alone was compared; None: all were.
        """
        first, second = targets
        ended_at_ms = time.time_ns() // 1_000_000
        head = {"first": first, "second": second, "ended_at_ms": ended_at_ms, "behind": behind}
        same: dict[str, Any] = {"types": [], "examples": []}
        fields = {
            name: json.dumps({**head, **differing[name]})
            for name in sorted(differing)[:MOST_TENANTS]
        }
        if tenant is not None:
            fields = {tenant: json.dumps({**head, **differing.get(tenant, same)})}
        elif len(differing) <= MOST_TENANTS:
            fields[_ALL] = json.dumps({**head, **same})

        def replace(transaction: Any) -> None:
            transaction.multi()
            if tenant is None:
                transaction.delete(self._key)
            if fields:
                transaction.hset(self._key, mapping=fields)
                transaction.expire(self._key, KEPT_S)

        call_patiently(lambda: self._redis.transaction(replace, self._key))

    def last(self, tenant: str) -> Comparison | None:
        """What was found of a tenant; None: nobody compared, or it was not kept."""
        of_tenant, of_all = call_patiently(lambda: self._redis.hmget(self._key, tenant, _ALL))
        stored = cast("bytes | None", of_tenant or of_all)
        return None if stored is None else Comparison(**json.loads(stored))


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
        progress: Progress | None = None,
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
