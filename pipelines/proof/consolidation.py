"""Verify of Stage 3: fold all recorded decisions once more, in memory, and compare the graph.

One look over the ledger gathers the decisions of each tenant and adds up its sessions; a second one
over the graph compares. Nothing is locked: live work that goes on makes differences, so a look that
finds some is taken again, and reported is what three looks in a row have found. Memory grows with
the decisions and with what was ever returned, not with the events. What only counts up is looked
at by `accesses`.

Of one session the same is compared of what decisions say of it alone: its summaries, what they list
and link to, boosts, pairs that its events lost, tombstones, sums. What others share with it
(communities, entities, facts, accesses) is compared with everything only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import structlog

from consolidation import FOLD_VERSION, NAME
from consolidation.decisions import Sums
from consolidation.stage import Derived
from pipelines.graph.audits.accesses import AccessAudit
from pipelines.graph.audits.consolidation import (
    ConsolidationAudit,
    clear_elements,
    set_places,
    set_scopes,
)
from pipelines.ledger.ledger import Entry
from pipelines.ledger.registry import Target
from pipelines.proof.accesses import access_differences, concerns_accesses, mend_accesses
from pipelines.proof.comparison import Difference
from pipelines.proof.decided_entries import DecidedEntries, later_sums, plus, read_entries
from pipelines.proof.expected_consolidation import (
    PLACED,
    Element,
    Elements,
    Known,
    element_differences,
    elements_number,
    expected_elements,
    named,
    session_elements,
    summaries_of,
)
from pipelines.proof.report import LISTED, ComparisonReport, looked, tell
from pipelines.work.folds import make_fold
from pipelines.work.runner import Runner
from pipelines.work.services import Progress, Services
from pipelines.work.stages import CONSOLIDATION
from projections.digest import digest_text
from projections.errors import FoldVersionMismatch, GraphAhead
from projections.events import DEFAULT_TENANT
from projections.identity import Position, partition_of
from projections.operations import Checkpoint
from projections.schema import DEAD_LETTER, FORGOTTEN, SCOPE
from projections.structural import SessionKey

logger = structlog.get_logger(__name__)

ROUNDS = 3
"""How often a difference must be found in a row."""
CHUNK = 500
"""Decisions that are folded at once to mend."""


@dataclass
class ConsolidationVerified(ComparisonReport):
    """What verify found."""

    target: str
    events: int = 0
    decisions: int = 0
    digest: str = ""

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
    session: str | None = None,
    tenant: str | None = None,
    repair: bool = False,
    progress: Progress | None = None,
) -> ConsolidationVerified:
    """Compare Stage 3 of a target (default: the active one) with what was decided.

    Args:
        services: ledger and targets.
        target: name of the target.
        session: only this session.
        tenant: of the session, `default` if not given.
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
    only = (tenant or DEFAULT_TENANT, session) if session else None
    report = looked(begun, lambda: verifier.run(only), verifier.repair if repair else None)
    if only is None:
        tell(services, NAME, chosen.name, report)
    return report


class _Verifier:
    """Compares Stage 3 of one target with the ledger."""

    def __init__(self, services: Services, target: Target, progress: Progress) -> None:
        self._services = services
        self._target = target
        self._progress = progress
        self._ledger = services.ledger
        self._graph = services.neo4j_graph(target)
        self._audit = ConsolidationAudit(services.driver(target), target.database)
        self._access_audit = AccessAudit(services.driver(target), target.database)
        self._differing: list[Difference] = []
        self._seen = DecidedEntries({})
        self._places: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def test(self) -> None:
        """Refuse a graph that other rules folded, or whose ledger lost entries.

        Raises:
            FoldVersionMismatch: rebuild it.
            GraphAhead: recover first.
        """
        checkpoints = self._graph.checkpoints(NAME)
        for found in checkpoints:
            if found.fold_version != FOLD_VERSION:
                raise FoldVersionMismatch(
                    stage=NAME, found=found.fold_version, expected=FOLD_VERSION
                )
        for lost in self._ledger.missing_checkpoints(checkpoints):
            raise GraphAhead(
                partition=lost.partition, position=str(lost.position), reason="its entry is gone"
            )

    def run(self, only: SessionKey | None = None) -> ConsolidationVerified:
        """Look up to three times; reported is what every look has found."""
        survivors: dict[tuple[Any, ...], Difference] | None = None
        for _ in range(ROUNDS):
            report, found = self._look(only)
            by_name = {one[:4]: one for one in found}
            if survivors is None:
                survivors = by_name
            else:
                survivors = {name: one for name, one in by_name.items() if name in survivors}
            if not survivors:
                break
        self._differing = sorted((survivors or {}).values(), key=repr)
        report.differences = self._differing[:LISTED]
        report.difference_count = len(self._differing)
        return report

    def _look(self, only: SessionKey | None) -> tuple[ConsolidationVerified, list[Difference]]:
        report = ConsolidationVerified(self._target.name)
        seen = self._seen = self._read_ledger(report, only)
        report.events = seen.events
        report.decisions = sum(map(len, seen.decisions.values()))
        self._progress(0, None, "comparing decisions")
        expected, found = self._expected(seen), dict(self._audit.stream_elements())
        scopes = self._audit.scopes()
        if only is not None:
            own = summaries_of(expected, only) | summaries_of(found, only)
            expected = session_elements(expected, only, own, seen.own)
            found = session_elements(found, only, own, seen.own)
            scopes = {one: sums for one, sums in scopes.items() if one == only}
        differences = [
            Difference("missing", "node", DEAD_LETTER.label, (NAME, *place))
            for place in seen.broken
        ]
        differences += element_differences(expected, found)
        differences += _sum_differences(seen.sums, scopes)
        if only is None:
            differences += access_differences(seen.accesses, self._access_audit)
        report.digest = digest_text(elements_number(found))
        self._places = {
            one.key: tuple(values[name] for name in PLACED)
            for one, values in expected.items()
            if one[:2] == ("node", FORGOTTEN.label)
        }
        return report, differences

    def _expected(self, seen: DecidedEntries) -> Elements:
        """What follows from all decisions that were read."""
        expected: Elements = {}
        for decided in seen.decisions.values():
            asked = named(decided)
            seen.find_places(self._ledger, asked.forgotten)
            known = Known(
                seen.places, self._audit.present(asked.parted), self._audit.facts(asked.expired)
            )
            expected.update(expected_elements(decided, known))
        return expected

    def _read_ledger(
        self, report: ConsolidationVerified, only: SessionKey | None
    ) -> DecidedEntries:
        until = {
            partition: Checkpoint(NAME, partition) for partition in range(self._ledger.partitions)
        } | {one.partition: one for one in self._graph.checkpoints(NAME)}
        for partition, tail in enumerate(self._ledger.tails()):
            report.lag_entries += tail.seq - until[partition].seq
        dead: dict[int, set[int]] = {}
        for letter in self._graph.dead_letters(NAME):
            dead.setdefault(letter["partition"], set()).add(letter["seq"])
            report.dead_letter_count += 1
        seen = DecidedEntries(until, self._audit.tombstones(), only)
        chosen = seen.partitions()
        total, done = sum(until[partition].seq for partition in chosen), 0
        for partition in chosen:
            for entries in self._ledger.scan(partition, until=until[partition].position):
                passed = [one for one in entries if one.seq not in dead.get(partition, ())]
                seen.take(passed, self._audit)
                done += len(entries)
                self._progress(done, total, "reading the ledger")
        seen.complete()
        return seen

    # -- mending -----------------------------------------------------------------------------------

    def repair(self) -> int:
        """Mend what the last run found; returns how many differences were dealt with.

        What is extra or different is taken out; then all decisions are folded once more, which
        changes nothing that is right. The sums of sessions are set.
        """
        sums = {one.key: one for one in self._differing if one.type == SCOPE.label}
        decided = [one for one in self._differing if not concerns_accesses(one)]
        elements = [
            Element(one.element, one.type, one.key) for one in decided if _is_taken_out(one)
        ]
        if elements:
            with self._graph.transaction() as transaction:
                clear_elements(transaction, elements)
        if len(sums) < len(decided):
            self._refold()
        self._set_places()
        mend_accesses(
            self._differing,
            self._seen.accesses,
            self._since,
            self._graph,
            self._ledger.partitions,
        )
        self._set_sums({(key[0], key[1]) for key in sums})
        logger.info("repaired", stage=NAME, target=self._target.name, count=len(self._differing))
        return len(self._differing)

    def _set_places(self) -> None:
        """Set what tombstones tell of events that are not there to be asked any more."""
        places = {}
        for one in self._differing:
            if one.type == FORGOTTEN.label and one.kind != "extra":
                known = self._seen.places.get((one.key[0], one.key[1]))
                importance = known.importance if known else None
                places[one.key[0], one.key[1]] = (*self._places[one.key], importance)
        if places:
            with self._graph.transaction() as transaction:
                set_places(transaction, places)

    def _refold(self) -> None:
        rules = make_fold(CONSOLIDATION, self._services, self._target)
        runner = Runner(rules, self._graph, target=self._target.name)
        for partition, checkpoint in self._seen.until.items():
            held: list[Entry] = []
            for entries in self._ledger.scan(partition, until=checkpoint.position):
                held += [
                    entry for entry, one in read_entries(entries, []) if one.decision is not None
                ]
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
            with self._graph.transaction() as transaction:
                current = transaction.lock(NAME, partition)
                if current is None:
                    continue
                between = self._seen.until[partition].position, current.position
                later = later_sums(self._ledger, self._audit, partition, between, chosen)
                set_scopes(
                    transaction,
                    {one: plus(self._seen.sums.get(one), later.get(one)) for one in chosen},
                )

    def _since(self, partition: int, until: Position) -> Iterator[Derived]:
        """What the last look did not see of a partition."""
        after = self._seen.until[partition].position
        for entries in self._ledger.scan(partition, after, until):
            yield from (one for _, one in read_entries(entries, []))


def _is_taken_out(difference: Difference) -> bool:
    """Whether to mend it begins with taking out what is there.

    A tombstone holds what nobody else tells any more, so it is set right as it stands.
    """
    if difference.kind == "missing" or difference.type in (SCOPE.label, DEAD_LETTER.label):
        return False
    return difference.kind == "extra" or difference.type != FORGOTTEN.label


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
