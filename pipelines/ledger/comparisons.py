"""What `recollect targets diff` found last, for pages that show it: counts and keys, no values.

Two graphs are compared in minutes, by a command that may load the writer of graphs; the API only
reads what it found. Values stay in the terminal of whoever compared: what is kept here would have
to be erased with the user that it is about.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
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
