"""What reads returned, counted: appended as `memory.accessed`, one event a tenant and second.

A read never waits for it. It has a bounded place in memory, waits there while the ledger is away,
and is dropped (and counted as dropped) when the place is full or ingest is overloaded: memories
that count a little less are better than events that are refused.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from consolidation.forgetting_payloads import ACCESSED_EVENT, Accessed, FactKey, accessed_payloads
from pipelines.graph.rows import ids_by_label
from pipelines.ledger.ledger import Ledger
from pipelines.observe import logs, metrics
from projections.errors import LedgerError
from projections.events import (
    PARTITION_KEY,
    Event,
    parse_event,
    timestamp_text,
)
from projections.schema import ENTITY, EVENT

EVERY_S: Final = 1.0
MAX_WAITING: Final = 20_000
"""Nodes and facts of all tenants that wait to be appended."""
_AGENT = "recollect"

_log = logs.get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    events: Counter[str] = field(default_factory=Counter)
    entities: Counter[str] = field(default_factory=Counter)
    facts: Counter[FactKey] = field(default_factory=Counter)
    asked: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.events) + len(self.entities) + len(self.facts)


class AccessLog:
    """Safe for use by several threads; its own thread appends.

    Args:
        ledger: the ledger, when it can be used.
        overloaded: why nothing may be appended now; None: it may.
        count_read: told of a tenant's events and entities that were asked for.
    """

    def __init__(
        self,
        ledger: Callable[[], Ledger],
        overloaded: Callable[[], str | None],
        count_read: Callable[[str, Iterable[str]], None] = lambda tenant, node_ids: None,
    ) -> None:
        self._ledger = ledger
        self._overloaded = overloaded
        self._count_read = count_read
        self._waiting: dict[str, _Waiting] = {}
        self._size = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Append what comes from now on."""
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Append what waits, once, and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * EVERY_S)

    def record(
        self,
        tenant: str,
        node_ids: Iterable[str] = (),
        facts: Iterable[FactKey] = (),
        *,
        unasked: Container[str] = (),
    ) -> None:
        """A read has returned these. Only notes it down.

        Args:
            tenant: of the reader.
            node_ids: wire ids of nodes.
            facts: keys of facts.
            unasked: those of the nodes that nobody asked for.
        """
        node_ids = list(node_ids)
        ids = ids_by_label(node_ids)
        with self._lock:
            waiting = self._waiting.setdefault(tenant, _Waiting())
            before = len(waiting)
            for counter, keys in (
                (waiting.events, ids[EVENT.label]),
                (waiting.entities, ids[ENTITY.label]),
                (waiting.facts, list(facts)),
            ):
                self._count(counter, keys)
            self._size += len(waiting) - before
            if len(waiting.asked) < MAX_WAITING:
                waiting.asked.update(node_id for node_id in node_ids if node_id not in unasked)

    def waiting(self, tenant: str) -> int:
        """How many nodes and facts of a tenant wait to be appended."""
        with self._lock:
            waiting = self._waiting.get(tenant)
            return 0 if waiting is None else len(waiting)

    def _count(self, counter: Counter[Any], keys: Iterable[Any]) -> None:
        room = MAX_WAITING - self._size
        for key in keys:
            if key in counter:
                counter[key] += 1
            elif room > 0:
                counter[key] = 1
                room -= 1
            else:
                metrics.ACCESSES_DROPPED.inc()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.append_waiting()
        self.append_waiting()

    def append_waiting(self) -> None:
        """Append what waits, a tenant at a time; what the ledger does not take goes on waiting."""
        with self._lock:
            tenants = list(self._waiting)
        for tenant in tenants:
            with self._lock:
                waiting = self._waiting.pop(tenant)
                self._size -= len(waiting)
            if not len(waiting):
                continue
            self._count_read(tenant, waiting.asked)
            waiting.asked.clear()
            if self._overloaded() is not None:
                metrics.ACCESSES_DROPPED.inc(len(waiting))
                continue
            try:
                self._ledger().append(accessed_events(tenant, waiting, time.time_ns() // 1_000_000))
            except LedgerError as error:
                _log.warning("accesses wait for the ledger", reason=str(error))
                self._put_back(tenant, waiting)

    def _put_back(self, tenant: str, waiting: _Waiting) -> None:
        with self._lock:
            newer = self._waiting.get(tenant, _Waiting())
            before = len(newer)
            room = MAX_WAITING - self._size - len(waiting)
            if room < 0:
                metrics.ACCESSES_DROPPED.inc(len(waiting))
                return
            newer.events.update(waiting.events)
            newer.entities.update(waiting.entities)
            newer.facts.update(waiting.facts)
            self._waiting[tenant] = newer
            self._size += len(newer) - before


def accessed_events(tenant: str, waiting: _Waiting, now_ms: int) -> list[Event]:
    """The events of what was accessed; several when it is more than one holds."""
    accessed = Accessed(waiting.events, waiting.entities, waiting.facts)
    return [_event(tenant, payload, now_ms) for payload in accessed_payloads(accessed)]


def _event(tenant: str, payload: Mapping[str, Any], now_ms: int) -> Event:
    raw = {
        "event_id": str(uuid.uuid4()),
        "event_type": ACCESSED_EVENT,
        "occurred_at": timestamp_text(now_ms),
        "session_id": PARTITION_KEY,
        "agent_id": _AGENT,
        "trace_id": "accesses",
        "tenant": tenant,
        "payload": payload,
    }
    return parse_event(raw, now_ms=now_ms)
