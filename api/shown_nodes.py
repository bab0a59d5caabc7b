"""What each session was shown, and which nodes were shown although nobody asked for them.

Kept in a cache in Redis, so that it is the same for every process of the API and outlives
them. It may be lost at any moment without harm: a session is then shown once more what it knows,
and the metrics of what nobody asked for miss a count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

import orjson

from pipelines.graph.rows import is_event
from pipelines.models.cache import ByteCache
from pipelines.models.derivations import digest_of
from pipelines.observe import metrics

MAX_SHOWN: Final = 100
"""Events of a session that are remembered, the last ones."""
MAX_SIGNALS: Final = 1_000
"""Nodes of one look at their signals."""


class ShownNodes:
    """Safe for several threads.

    Args:
        cache: where it is kept.
        usable: whether Redis answered a moment ago; while it does not nothing is remembered, for
            no answer waits for that.
    """

    def __init__(self, cache: ByteCache, usable: Callable[[], bool]) -> None:
        self._cache = cache
        self._usable = usable

    def events(self, tenant: str, session_id: str) -> list[str]:
        """Ids of the events that a session was shown, the last ones last."""
        (value,) = self._read([_session_key(tenant, session_id)])
        return [] if value is None else cast(list[str], orjson.loads(value))

    def show(
        self,
        tenant: str,
        session_id: str,
        node_ids: Iterable[str],
        signals: Mapping[str, metrics.Signal],
    ) -> None:
        """Remember what a session is shown now.

        Args:
            tenant: of the session.
            session_id: of the session.
            node_ids: wire ids, the best first.
            signals: of the nodes that nobody asked for, by wire id.
        """
        if not self._usable():
            return
        newest_first = dict.fromkeys(reversed(list(filter(is_event, node_ids))))
        newest_first.update(dict.fromkeys(reversed(self.events(tenant, session_id))))
        last = list(newest_first)[:MAX_SHOWN][::-1]
        values = {
            _node_key(tenant, node_id): signal.encode() for node_id, signal in signals.items()
        }
        values[_session_key(tenant, session_id)] = orjson.dumps(last)
        self._cache.put_many(values)

    def count_read(self, tenant: str, node_ids: Iterable[str]) -> None:
        """Count those that were asked for now and had been shown unasked."""
        for signal in self._signals(tenant, list(node_ids)).values():
            metrics.PROACTIVE_READ.labels(signal=signal).inc()

    def count_judged(self, tenant: str, useful: Sequence[str], not_useful: Sequence[str]) -> None:
        """Count judgements of nodes that had been shown unasked."""
        signals = self._signals(tenant, [*useful, *not_useful])
        for judgement, node_ids in (("useful", useful), ("not_useful", not_useful)):
            for node_id in node_ids:
                if node_id in signals:
                    labels = {"signal": signals[node_id], "judgement": judgement}
                    metrics.PROACTIVE_FEEDBACK.labels(**labels).inc()

    def _signals(self, tenant: str, node_ids: Sequence[str]) -> dict[str, str]:
        looked_at = list(dict.fromkeys(node_ids))[:MAX_SIGNALS]
        values = self._read([_node_key(tenant, node_id) for node_id in looked_at])
        return {
            node_id: value.decode()
            for node_id, value in zip(looked_at, values, strict=True)
            if value is not None
        }

    def _read(self, digests: Sequence[str]) -> Sequence[bytes | None]:
        return self._cache.get_many(digests) if self._usable() else [None] * len(digests)


def _session_key(tenant: str, session_id: str) -> str:
    return digest_of("session", tenant, session_id).hex()


def _node_key(tenant: str, node_id: str) -> str:
    return digest_of("node", tenant, node_id).hex()
