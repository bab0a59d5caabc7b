"""What the ledger holds for Stage 3: decisions, what sessions come to, and where events stood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from consolidation.decisions import Sums
from consolidation.forgetting import EventKey
from consolidation.forgetting_payloads import Accessed
from consolidation.payloads import SessionDecided
from consolidation.stage import Derived, derive
from enrichment.importance import importance_score
from enrichment.payloads import Feedback
from enrichment.text import event_text
from pipelines.graph.audits.consolidation import ConsolidationAudit
from pipelines.ledger.ledger import Entry, Ledger
from pipelines.proof.expected_accesses import ExpectedAccesses
from pipelines.proof.expected_consolidation import Place
from projections.errors import InvalidEvent, UndecodableEntry
from projections.events import PARTITION_KEY, Event, decode_event
from projections.identity import Position, partition_of
from projections.operations import Checkpoint
from projections.structural import SessionKey

CHUNK = 500
"""Forgotten events whose entries are looked up at once."""


@dataclass
class DecidedEntries:
    """What was read, up to the checkpoints.

    Attributes:
        until: checkpoints by partition.
        tombstones: events whose places matter.
        only: the one session that is read; None: all.
        decisions: by tenant, in the order of their positions once all is read.
        sums: of sessions.
        accesses: what they come to.
        places: of events that have a tombstone.
        own: keys of the events of the one session.
        events: how many there are.
        broken: (partition, seq) of entries that a dead letter should stand for.
    """

    until: Mapping[int, Checkpoint]
    tombstones: Set[EventKey] = frozenset()
    only: SessionKey | None = None
    decisions: dict[str, list[Derived]] = field(default_factory=dict)
    sums: dict[SessionKey, Sums] = field(default_factory=dict)
    accesses: ExpectedAccesses = field(default_factory=ExpectedAccesses)
    places: dict[EventKey, Place] = field(default_factory=dict)
    own: set[EventKey] = field(default_factory=set)
    events: int = 0
    broken: list[tuple[int, int]] = field(default_factory=list)

    def partitions(self) -> list[int]:
        """Those that are read: of one session its own and that of the tenant's decisions."""
        if self.only is None:
            return sorted(self.until)
        tenant, session_id = self.only
        names = (session_id, PARTITION_KEY)
        return sorted({partition_of(tenant, name, len(self.until)) for name in names})

    def take(self, entries: Sequence[Entry], audit: ConsolidationAudit) -> None:
        """Decisions are gathered, events added up."""
        events: list[Event] = []
        for _, one in read_entries(entries, self.broken):
            if self.only is not None and one.event.tenant != self.only[0]:
                continue
            self.accesses.take(one)
            if one.decision is None:
                if self.only in (None, (one.event.tenant, one.event.session_id)):
                    events.append(one.event)
            elif not isinstance(one.decision, Accessed | Feedback):
                self.decisions.setdefault(one.event.tenant, []).append(one)
        self.events += len(events)
        for session, sums in _added(events, audit).items():
            self.sums[session] = plus(self.sums.get(session), sums)
        for event in events:
            if event.key in self.tombstones:
                self.places[event.key] = _place(event)
        if self.only is not None:
            self.own.update(event.key for event in events)

    def complete(self) -> None:
        """All entries were taken: decisions have their order, and tell what summaries saw."""
        for tenant, decided in self.decisions.items():
            decided.sort(key=lambda one: one.position)
            for one in decided:
                if isinstance(one.decision, SessionDecided):
                    self._see(tenant, one.decision)

    def _see(self, tenant: str, decided: SessionDecided) -> None:
        """A session's summary was made when its sums were these; the last one counts."""
        session = (tenant, decided.summary.session_id)
        if self.only in (None, session):
            known = self.sums.get(session, Sums())
            self.sums[session] = known._replace(
                seen_events=decided.seen_events, seen_importance=decided.seen_importance
            )

    def find_places(self, ledger: Ledger, keys: Iterable[EventKey]) -> None:
        """Look up where events stood that are behind a checkpoint, or lost their tombstone."""
        wanted = sorted(key for key in set(keys) if key not in self.places)
        for first in range(0, len(wanted), CHUNK):
            found = ledger.find_many(wanted[first : first + CHUNK])
            for _, one in read_entries(list(found.values()), []):
                self.places[one.event.key] = _place(one.event)


def later_sums(
    ledger: Ledger,
    audit: ConsolidationAudit,
    partition: int,
    between: tuple[Position, Position],
    sessions: Set[SessionKey],
) -> dict[SessionKey, Sums]:
    """What a stretch of a partition adds to sessions."""
    seen = DecidedEntries({})
    for entries in ledger.scan(partition, *between):
        seen.take(entries, audit)
    return {session: seen.sums[session] for session in sessions if session in seen.sums}


def read_entries(
    entries: Sequence[Entry], broken: list[tuple[int, int]]
) -> Iterator[tuple[Entry, Derived]]:
    """What entries say; `broken` takes in those that a dead letter should stand for."""
    for entry in entries:
        try:
            event = decode_event(entry.data)
            for one in derive([(entry.position, event)]):
                yield entry, one
        except (UndecodableEntry, InvalidEvent):
            broken.append((entry.partition, entry.seq))


def plus(one: Sums | None, other: Sums | None) -> Sums:
    """Sums of both."""
    pairs = zip(one or Sums(), other or Sums(), strict=True)
    return Sums(*(a + b for a, b in pairs))


def _added(events: Sequence[Event], audit: ConsolidationAudit) -> dict[SessionKey, Sums]:
    """The sums of events, by session."""
    known = audit.importance([event.key for event in events]) if events else {}
    added: dict[SessionKey, Sums] = {}
    for event in events:
        importance = known.get(event.key)
        if importance is None:
            importance = importance_score(event, event_text(event))
        session = (event.tenant, event.session_id)
        added[session] = plus(added.get(session), Sums(1, importance))
    return added


def _place(event: Event) -> Place:
    importance = importance_score(event, event_text(event))
    return Place(event.session_id, event.occurred_at_ms, importance)
