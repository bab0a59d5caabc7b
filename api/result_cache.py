"""Answers that are given again for a minute, unless a session that they show has gone on.

By tenant, user and question, in the memory of one process, bounded by bytes. An entry knows until
where each partition was projected when it was made; what its sessions' partitions hold behind that
is looked at before it is given again. Events of `memory.*` change no answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from api.sized_entries import SizedEntries
from pipelines.ledger.ledger import Ledger
from pipelines.observe import metrics
from projections.errors import UndecodableEntry
from projections.events import decode_event
from projections.identity import partition_of
from projections.positions import START, Position
from projections.system_events import is_system_event

A = TypeVar("A")

MAX_LOOKED_AT: Final = 200
"""Entries of a partition that are looked at; with more behind it, an answer is not given again."""


@dataclass(slots=True)
class _Entry:
    answer: object
    until_s: float
    target: str
    sessions: frozenset[str]
    seen: dict[int, Position]


class ResultCache:
    """Safe for use by several threads.

    Args:
        ttl_s: how long an answer lives; 0: nothing is kept.
        max_bytes: of all answers, as JSON.
    """

    def __init__(self, ttl_s: float, max_bytes: int) -> None:
        self._ttl_s = ttl_s
        self._entries: SizedEntries[tuple[str, bytes], _Entry] = SizedEntries(max_bytes)
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        """Whether anything is kept at all."""
        return self._ttl_s > 0

    def get(
        self, tenant: str, question: bytes, kind: type[A], ledger: Ledger, target: str | None
    ) -> A | None:
        """An answer to the same question that still stands.

        Args:
            tenant: whose.
            question: everything that the answer depends on.
            kind: of the answer; one of another kind is none.
            ledger: to be asked for what is new.
            target: that is read from now.

        Raises:
            LedgerError: Redis is away, so that nobody knows.
        """
        key = (tenant, question)
        with self._lock:
            entry = self._entries.get(key)
        outcome = "miss"
        if entry is not None:
            fresh = entry.until_s > time.monotonic() and entry.target == target
            if fresh and isinstance(entry.answer, kind) and self._stands(entry, tenant, ledger):
                outcome = "hit"
            else:
                with self._lock:
                    self._entries.drop(key)
        metrics.CACHE_LOOKUPS.labels(cache="result", outcome=outcome).inc()
        if entry is not None and outcome == "hit" and isinstance(entry.answer, kind):
            return entry.answer
        return None

    def put(
        self,
        tenant: str,
        question: bytes,
        answer: object,
        *,
        size: int,
        target: str,
        sessions: Iterable[str],
        projected: Mapping[int, Position],
        partitions: int,
    ) -> None:
        """Keep an answer.

        Args:
            tenant: whose.
            question: everything that the answer depends on.
            answer: that nobody changes.
            size: of it as JSON, bytes.
            target: that it was read from.
            sessions: that it shows, and the one it was asked in.
            projected: by partition, at most how far the graph was when it was made.
            partitions: of the ledger.
        """
        if not self.is_on or size > self._entries.max_bytes:
            return
        involved = frozenset(sessions)
        numbers = {partition_of(tenant, session, partitions) for session in involved}
        seen = {number: projected.get(number, START) for number in numbers}
        until_s = time.monotonic() + self._ttl_s
        entry = _Entry(answer, until_s, target, involved, seen)
        with self._lock:
            self._entries.put((tenant, question), entry, size)

    def _stands(self, entry: _Entry, tenant: str, ledger: Ledger) -> bool:
        """Whether none of its sessions has an event that it does not know."""
        tails = ledger.tails()
        for partition, seen in entry.seen.items():
            tail = tails[partition].position
            if tail <= seen:
                continue
            entries = ledger.read(partition, seen, MAX_LOOKED_AT + 1, tail)
            if len(entries) > MAX_LOOKED_AT:
                return False
            for one in entries:
                try:
                    event = decode_event(one.data)
                except UndecodableEntry:
                    return False
                if is_system_event(event.event_type) or event.tenant != tenant:
                    continue
                if event.session_id in entry.sessions:
                    return False
            entry.seen[partition] = tail
        return True
