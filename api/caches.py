"""What the API remembers for a while and may lose without harm: answers, and what was shown.

Answers are remembered by one process, in bounds. What each session was shown, and which nodes were
shown although nobody asked for them, is kept in a cache in Redis, so that it is the same for every
process of the API and outlives them. Where it is lost, a session is shown once more what it knows,
and the metrics of what nobody asked for miss a count.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

import orjson

from enrichment.payloads import STATEMENTS
from pipelines.graph.rows import is_event
from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Ledger
from pipelines.models.cache import ByteCache
from pipelines.models.derivations import digest_of
from pipelines.observe import metrics
from projections.errors import UndecodableEntry
from projections.events import PARTITION_KEY, is_system_event
from projections.identity import START, Position, partition_of

A = TypeVar("A")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_LOOKED_AT: Final = 200
"""Entries of a partition that are looked at; with more behind it, an answer is not given again."""


class BoundedEntries(Generic[K, V]):
    """Entries that take at most so much together; who comes last drives out the first.

    Whoever shares them between threads holds a lock around each call.

    Args:
        max_size: of all of them: bytes, or however many where each counts 1.
    """

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self.size = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The entry of a key; None: there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def renew(self, key: K) -> None:
        """Have an entry that is there go last."""
        self._entries.move_to_end(key)

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Keep an entry of a size, in the place of the one that is there."""
        self.drop(key)
        self._entries[key] = (value, size)
        self.size += size
        while self.size > self.max_size:
            _, (_, oldest) = self._entries.popitem(last=False)
            self.size -= oldest

    def drop(self, key: K) -> None:
        """Forget an entry, if there is one."""
        _, size = self._entries.pop(key, (None, 0))
        self.size -= size

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self.size = 0


@dataclass(slots=True)
class _Answer:
    answer: object
    until_s: float
    target: str
    sessions: frozenset[str]
    seen: dict[int, Position]


class ResultCache:
    """Answers that are given again for a minute, unless a session that they show has gone on.

    Or somebody has stated what is so since, or corrected it.

    An entry knows until where each partition was in the graph when it was made; what its sessions'
    partitions hold behind that is looked at before it is given again. Other events of `memory.*`
    change no answer. Safe for use by several threads.

    Args:
        ttl_s: how long an answer lives; 0: nothing is kept.
        max_bytes: of all answers, as JSON.
        partitions: of the ledger.
    """

    def __init__(self, ttl_s: float, max_bytes: int, partitions: int) -> None:
        self._ttl_s = ttl_s
        self._partitions = partitions
        self._entries: BoundedEntries[tuple[str, bytes], _Answer] = BoundedEntries(max_bytes)
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        """Whether anything is kept at all."""
        return self._ttl_s > 0

    def get(
        self, key: tuple[str, bytes], kind: type[A], ledger: Ledger, target: str | None
    ) -> A | None:
        """An answer to the same question that still stands.

        Args:
            key: whose (the tenant), and everything that the answer depends on.
            kind: of the answer; one of another kind is none.
            ledger: to be asked for what is new.
            target: that is read from now.

        Raises:
            LedgerError: Redis is away, so that nobody knows.
        """
        with self._lock:
            entry = self._entries.get(key)
        answer: A | None = None
        if entry is not None:
            fresh = entry.until_s > time.monotonic() and entry.target == target
            if fresh and isinstance(entry.answer, kind) and self._stands(entry, key[0], ledger):
                answer = entry.answer
            else:
                with self._lock:
                    self._entries.drop(key)
        outcome = "miss" if answer is None else "hit"
        metrics.CACHE_LOOKUPS.labels(cache="result", outcome=outcome).inc()
        return answer

    def put(
        self,
        key: tuple[str, bytes],
        answer: object,
        *,
        size: int,
        target: str,
        sessions: Iterable[str],
        projected: Mapping[int, Position],
    ) -> None:
        """Keep an answer.

        Args:
            key: whose (the tenant), and everything that the answer depends on.
            answer: that nobody changes.
            size: of it as JSON, bytes.
            target: that it was read from.
            sessions: that it shows, and the one it was asked in.
            projected: by partition, at most how far the graph was when it was made.
        """
        if not self.is_on or size > self._entries.max_size:
            return
        involved = frozenset(sessions)
        told_in = {*involved, PARTITION_KEY}  # what persons state is there
        numbers = {partition_of(key[0], session, self._partitions) for session in told_in}
        seen = {number: projected.get(number, START) for number in numbers}
        entry = _Answer(
            answer, time.monotonic() + self._ttl_s, target, sessions=involved, seen=seen
        )
        with self._lock:
            self._entries.put(key, entry, size)

    def _stands(self, entry: _Answer, tenant: str, ledger: Ledger) -> bool:
        """Whether none of its sessions has an event that it does not know."""
        tails = ledger.tails()
        for partition, seen in entry.seen.items():
            tail = tails[partition].position
            if tail <= seen:
                continue
            behind = ledger.read(partition, seen, MAX_LOOKED_AT + 1, tail)
            if len(behind) > MAX_LOOKED_AT:
                return False
            if any(_concerns(entry, tenant, one) for one in behind):
                return False
            entry.seen[partition] = tail
        return True


def _concerns(entry: _Answer, tenant: str, appended: Entry) -> bool:
    """Whether an event may change an answer; one that cannot be read may."""
    try:
        event = appended.event()
    except UndecodableEntry:
        return True
    if event.tenant != tenant:
        return False
    if is_system_event(event.event_type):
        return event.event_type in STATEMENTS  # a person corrects what is known, of anything
    return event.session_id in entry.sessions


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
