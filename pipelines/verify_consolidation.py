"""Verify of Stage 3: fold all recorded decisions once more, in memory, and compare the graph.

One look over the ledger gathers the decisions of each tenant and adds up its sessions; a second one
over the graph compares. Nothing is locked: live work that goes on makes differences, so a look that
finds some is taken again, and reported is what three looks in a row have found. Memory grows with
the decisions and with what was ever returned, not with the events. What only counts up is looked
at by `verify_accesses`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import structlog

from consolidation.accesses import Accessed
from consolidation.decisions import SessionDecided
from consolidation.expected import (
    Element,
    Elements,
    element_differences,
    elements_number,
    expected_elements,
)
from consolidation.expected_accesses import ExpectedAccesses
from consolidation.folding import FOLD_VERSION, NAME
from consolidation.scopes import Sums
from consolidation.stage import Derived, derive
from enrichment.feedback import Feedback
from enrichment.importance import importance_score
from enrichment.text import event_text
from pipelines.adapters.access_audit import AccessAudit
from pipelines.adapters.consolidation_audit import ConsolidationAudit, clear_elements, set_scopes
from pipelines.adapters.ledger import Entry
from pipelines.adapters.reports import verified
from pipelines.adapters.targets import Target
from pipelines.runner import Runner
from pipelines.services import Progress, Services
from pipelines.stages import CONSOLIDATION, ready
from pipelines.verify_accesses import access_differences, concerns_accesses, mend_accesses
from projections.comparison import Difference
from projections.digest import digest_text
from projections.errors import FoldVersionMismatch, GraphAhead, InvalidEvent, UndecodableEntry
from projections.events import Event, decode_event
from projections.identity import partition_of
from projections.operations import Checkpoint
from projections.positions import Position
from projections.schema import DEAD_LETTER, SCOPE
from projections.structural import SessionKey

logger = structlog.get_logger(__name__)

ROUNDS = 3
"""How often a difference must be found in a row."""
LISTED = 1_000
"""Differences listed at most; all are counted."""
CHUNK = 500
"""Decisions that are folded at once to mend."""


@dataclass
class ConsolidationVerified:
    """What verify found. `ok`: no difference, no matter how many dead letters or how much lag."""

    target: str
    events: int = 0
    decisions: int = 0
    digest: str = ""
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    repaired: int = 0
    dead_letter_count: int = 0
    lag_entries: int = 0
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the graph is what was decided, up to the checkpoints."""
        return self.difference_count == 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "stage": NAME,
            "target": self.target,
            "events": self.events,
            "decisions": self.decisions,
            "digest": self.digest,
            "differences": [difference.as_dict() for difference in self.differences],
            "difference_count": self.difference_count,
            "repaired": self.repaired,
            "dead_letter_count": self.dead_letter_count,
            "lag_entries": self.lag_entries,
            "duration_s": round(self.duration_s, 3),
        }


def verify_consolidation(
    services: Services,
    *,
    target: str | None = None,
    repair: bool = False,
    progress: Progress | None = None,
) -> ConsolidationVerified:
    """Compare Stage 3 of a target (default: the active one) with what was decided.

    Args:
        services: ledger and targets.
        target: name of the target.
        repair: mend what differs, then look again.
        progress: called with done, total and what is being done.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        FoldVersionMismatch: the graph was folded by other rules: rebuild it.
        GraphAhead: the ledger lost what the graph was folded from; `recover` comes first.
    """
    begun = time.perf_counter()
    chosen = services.targets.get(target) if target else services.active()
    verifier = _Verifier(services, chosen, progress or (lambda done, total, what: None))
    verifier.test()
    report = verifier.run()
    repaired = 0
    for _ in range(ROUNDS if repair else 0):
        if report.ok:
            break
        repaired += verifier.repair()
        report = verifier.run()
    report.repaired = repaired
    report.duration_s = time.perf_counter() - begun
    services.reports.put(
        verified(
            NAME,
            chosen.name,
            differences=report.difference_count,
            duration_s=report.duration_s,
        )
    )
    return report


@dataclass
class _Ledger:
    """What the ledger holds up to the checkpoints."""

    until: Mapping[int, Checkpoint]
    decisions: dict[str, list[Derived]] = field(default_factory=dict)
    sums: dict[SessionKey, Sums] = field(default_factory=dict)
    accesses: ExpectedAccesses = field(default_factory=ExpectedAccesses)
    events: int = 0
    broken: list[tuple[int, int]] = field(default_factory=list)


class _Verifier:
    """Compares Stage 3 of one target with the ledger."""

    def __init__(self, services: Services, target: Target, progress: Progress) -> None:
        self._services = services
        self._target = target
        self._progress = progress
        self._ledger = services.ledger
        self._writer = services.writer(target)
        self._audit = ConsolidationAudit(services.driver(target), target.database)
        self._access_audit = AccessAudit(services.driver(target), target.database)
        self._differing: list[Difference] = []
        self._seen = _Ledger({})

    def test(self) -> None:
        """Refuse a graph that other rules folded, or whose ledger lost entries.

        Raises:
            FoldVersionMismatch: rebuild it.
            GraphAhead: recover first.
        """
        checkpoints = self._writer.checkpoints(NAME)
        for found in checkpoints:
            if found.fold_version != FOLD_VERSION:
                raise FoldVersionMismatch(
                    stage=NAME, found=found.fold_version, expected=FOLD_VERSION
                )
        for lost in self._ledger.missing_checkpoints(checkpoints):
            raise GraphAhead(
                partition=lost.partition, position=str(lost.position), reason="its entry is gone"
            )

    def run(self) -> ConsolidationVerified:
        """Look up to three times; reported is what every look has found."""
        survivors: dict[tuple[Any, ...], Difference] | None = None
        for _ in range(ROUNDS):
            report, found = self._look()
            named = {one[:4]: one for one in found}
            if survivors is None:
                survivors = named
            else:
                survivors = {name: one for name, one in named.items() if name in survivors}
            if not survivors:
                break
        self._differing = sorted((survivors or {}).values(), key=repr)
        report.differences = self._differing[:LISTED]
        report.difference_count = len(self._differing)
        return report

    def _look(self) -> tuple[ConsolidationVerified, list[Difference]]:
        report = ConsolidationVerified(self._target.name)
        seen = self._seen = self._read_ledger(report)
        report.events = seen.events
        report.decisions = sum(map(len, seen.decisions.values()))
        self._progress(0, None, "comparing decisions")
        expected: Elements = {}
        for decided in seen.decisions.values():
            expected.update(expected_elements(decided))
        found = dict(self._audit.stream_elements())
        differences = [
            Difference("missing", "node", DEAD_LETTER.label, (NAME, *place))
            for place in seen.broken
        ]
        differences += element_differences(expected, found)
        differences += _sum_differences(seen.sums, self._audit.scopes())
        differences += access_differences(seen.accesses, self._access_audit)
        report.digest = digest_text(elements_number(found))
        return report, differences

    # -- the ledger's side -------------------------------------------------------------------------

    def _read_ledger(self, report: ConsolidationVerified) -> _Ledger:
        until = {
            partition: Checkpoint(NAME, partition) for partition in range(self._ledger.partitions)
        } | {one.partition: one for one in self._writer.checkpoints(NAME)}
        for partition, tail in enumerate(self._ledger.tails()):
            report.lag_entries += tail.seq - until[partition].seq
        dead: dict[int, set[int]] = {}
        for letter in self._audit.dead_letters(NAME):
            dead.setdefault(letter["partition"], set()).add(letter["seq"])
            report.dead_letter_count += 1
        seen = _Ledger(until)
        total, done = sum(one.seq for one in until.values()), 0
        for partition, checkpoint in until.items():
            for entries in self._ledger.scan(partition, until=checkpoint.position):
                passed = [one for one in entries if one.seq not in dead.get(partition, ())]
                self._take(seen, passed)
                done += len(entries)
                self._progress(done, total, "reading the ledger")
        for tenant in seen.decisions:
            seen.decisions[tenant].sort(key=lambda one: one.position)
            for one in seen.decisions[tenant]:
                if isinstance(one.decision, SessionDecided):
                    _see(seen.sums, tenant, one.decision)
        return seen

    def _take(self, seen: _Ledger, entries: Sequence[Entry]) -> None:
        """Decisions are gathered, events added up."""
        events: list[Event] = []
        for _, one in _read(entries, seen.broken):
            seen.accesses.take(one)
            if one.decision is None:
                events.append(one.event)
            elif not isinstance(one.decision, Accessed | Feedback):
                seen.decisions.setdefault(one.event.tenant, []).append(one)
        seen.events += len(events)
        for session, sums in self._added(events).items():
            known = seen.sums.get(session, Sums())
            seen.sums[session] = Sums(*(a + b for a, b in zip(known, sums, strict=True)))

    def _added(self, events: Sequence[Event]) -> dict[SessionKey, Sums]:
        """The sums of events, by session."""
        known = self._audit.importance([event.key for event in events]) if events else {}
        added: dict[SessionKey, Sums] = {}
        for event in events:
            importance = known.get(event.key)
            if importance is None:
                importance = importance_score(event, event_text(event))
            session = (event.tenant, event.session_id)
            before = added.get(session, Sums())
            added[session] = before._replace(
                event_count=before.event_count + 1,
                importance_total=before.importance_total + importance,
            )
        return added

    # -- mending -----------------------------------------------------------------------------------

    def repair(self) -> int:
        """Mend what the last run found; returns how many differences were dealt with.

        What is extra or different is taken out; then all decisions are folded once more, which
        changes nothing that is right. The sums of sessions are set.
        """
        sums = {one.key: one for one in self._differing if one.type == SCOPE.label}
        decided = [one for one in self._differing if not concerns_accesses(one)]
        elements = [
            Element(one.element, one.type, one.key)
            for one in decided
            if one.kind != "missing" and one.type not in (SCOPE.label, DEAD_LETTER.label)
        ]
        if elements:
            with self._writer.transaction() as transaction:
                clear_elements(transaction, elements)
        if len(sums) < len(decided):
            self._refold()
        mend_accesses(
            self._differing,
            self._seen.accesses,
            self._since,
            self._writer,
            self._ledger.partitions,
        )
        self._set_sums({(key[0], key[1]) for key in sums})
        logger.info("repaired", stage=NAME, target=self._target.name, count=len(self._differing))
        return len(self._differing)

    def _refold(self) -> None:
        stage = ready(CONSOLIDATION, self._services, self._target)
        runner = Runner(stage, self._writer, target=self._target.name)
        for partition, checkpoint in self._seen.until.items():
            held: list[Entry] = []
            for entries in self._ledger.scan(partition, until=checkpoint.position):
                held += [entry for entry, one in _read(entries, []) if one.decision is not None]
                while len(held) >= CHUNK:
                    runner.refold(partition, held[:CHUNK])
                    del held[:CHUNK]
            runner.refold(partition, held)

    def _set_sums(self, sessions: Set[SessionKey]) -> None:
        """Set the sums to what the ledger says, up to where the checkpoint stands now."""
        by_partition: dict[int, set[SessionKey]] = {}
        for session in sessions:
            partition = partition_of(*session, self._ledger.partitions)
            by_partition.setdefault(partition, set()).add(session)
        for partition, chosen in by_partition.items():
            with self._writer.transaction() as transaction:
                current = transaction.lock(NAME, partition)
                if current is None:
                    continue
                later = self._later(partition, current.position, chosen)
                set_scopes(
                    transaction,
                    {one: _plus(self._seen.sums.get(one), later.get(one)) for one in chosen},
                )

    def _since(self, partition: int, until: Position) -> Iterator[Derived]:
        """What the last look did not see of a partition."""
        after = self._seen.until[partition].position
        for entries in self._ledger.scan(partition, after, until):
            yield from (one for _, one in _read(entries, []))

    def _later(
        self, partition: int, until: Position, sessions: Set[SessionKey]
    ) -> dict[SessionKey, Sums]:
        """What the last look did not see of sessions."""
        seen = _Ledger({})
        after = self._seen.until[partition].position
        for entries in self._ledger.scan(partition, after, until):
            self._take(seen, entries)
        return {session: seen.sums[session] for session in sessions if session in seen.sums}


def _read(
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


def _see(sums: dict[SessionKey, Sums], tenant: str, decided: SessionDecided) -> None:
    """A session's summary was made when its sums were these; the last one counts."""
    session = (tenant, decided.summary.session_id)
    known = sums.get(session, Sums())
    sums[session] = known._replace(
        seen_events=decided.seen_events, seen_importance=decided.seen_importance
    )


def _plus(one: Sums | None, other: Sums | None) -> Sums:
    pairs = zip(one or Sums(), other or Sums(), strict=True)
    return Sums(*(a + b for a, b in pairs))


def _sum_differences(
    expected: Mapping[SessionKey, Sums], found: Mapping[SessionKey, Sums]
) -> Iterator[Difference]:
    for session in expected.keys() | found.keys():
        should, does = expected.get(session), found.get(session)
        if does is None:
            yield Difference("missing", "node", SCOPE.label, session)
        elif should is None:
            yield Difference("extra", "node", SCOPE.label, session)
        elif should != does:
            fields = {
                name: (a, b)
                for name, a, b in zip(Sums._fields, should, does, strict=True)
                if a != b
            }
            yield Difference("different", "node", SCOPE.label, session, fields)
