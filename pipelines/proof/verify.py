"""Verify: fold the ledger, compare the graph, name every difference, mend exactly those.

One pass over each side, streamed; a second process reads a large ledger meanwhile. Sessions fall
into buckets, and for each bucket both sides add up a number for every node and cause; the chains
are checked against the graph's own nodes, which the numbers prove equal to the ledger's. Where a
bucket's numbers differ, or a chain is not what its nodes say, the bucket's sessions are judged
exactly: folded anew from the ledger and compared under the checkpoint's lock, so that a live
worker, a late event or a read that was no snapshot never makes a false alarm. Memory is bounded by
the buckets and by the largest judged session.
"""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import structlog

from pipelines.graph.audit import FoundEvent, GraphAudit
from pipelines.graph.cypher import event_edges
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.ledger import Ledger
from pipelines.proof.comparison import Difference
from pipelines.proof.judge import Judge, Judgement, decodable
from pipelines.proof.ledger_sums import BUCKETS, LedgerSide, Task, bucket_of
from pipelines.proof.report import LISTED, ComparisonReport, looked, tell
from pipelines.work.services import Progress, Services
from pipelines.work.settings import Settings
from pipelines.work.stages import PROJECTION
from projections.digest import (
    NAMES,
    POSITION,
    BucketSums,
    digest_text,
    edge_number,
    element_digest,
    placed,
)
from projections.errors import FoldVersionMismatch, GraphAhead
from projections.events import DEFAULT_TENANT, is_system_event
from projections.identity import Position, partition_of
from projections.operations import Checkpoint
from projections.schema import DEAD_LETTER, EVENT, FOLLOWS
from projections.structural import SessionKey

logger = structlog.get_logger(__name__)

_SESSION, _TIME = NAMES.index("session_id"), NAMES.index("occurred_at")
_TYPES = [row.type for row in event_edges()]
_FOLLOWS = _TYPES.index(FOLLOWS.type)
_CAUSES = [n for n in range(len(_TYPES)) if n != _FOLLOWS]


@dataclass
class Report(ComparisonReport):
    """What verify found."""

    target: str
    events: int = 0
    system_events: int = 0
    digest: str = ""
    judged_sessions: int = 0
    waiting_parents: list[tuple[str, str]] = field(default_factory=list)
    waiting_parent_count: int = 0
    dead_letters: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "target": self.target,
            "events": self.events,
            "system_events": self.system_events,
            "digest": self.digest,
            "differences": [difference.as_dict() for difference in self.differences],
            "difference_count": self.difference_count,
            "repaired": self.repaired,
            "judged_sessions": self.judged_sessions,
            "waiting_parents": [
                {"tenant": tenant, "event_id": event_id}
                for tenant, event_id in self.waiting_parents
            ],
            "waiting_parent_count": self.waiting_parent_count,
            "dead_letters": self.dead_letters,
            "dead_letter_count": self.dead_letter_count,
            "lag_entries": self.lag_entries,
            "duration_s": round(self.duration_s, 3),
        }


def verify(
    services: Services,
    *,
    target: str | None = None,
    session: str | None = None,
    tenant: str | None = None,
    repair: bool = False,
    graph_ahead: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Compare a target (default: the active one) with the ledger.

    Args:
        services: ledger and targets.
        target: name of the target.
        session: only this session.
        tenant: of the session, `default` if not given.
        repair: mend what differs, then look again.
        graph_ahead: compare also with a ledger that lost entries (`recover` does).
        progress: called with done, total and what is being done.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        GraphAhead: the ledger lost what the graph was folded from; `recover` comes first.
    """
    begun = time.perf_counter()
    chosen = services.targets.get(target) if target else services.active()
    verifier = Verifier(
        services.ledger,
        services.neo4j_graph(chosen),
        GraphAudit(services.driver(chosen), chosen.database),
        target=chosen.name,
        progress=progress or (lambda done, total, what: None),
        settings=services.settings,
    )
    verifier.test_rules()
    if not graph_ahead:
        verifier.test_ledger()
    only = (tenant or DEFAULT_TENANT, session) if session else None
    report = looked(begun, lambda: verifier.run(only), verifier.repair if repair else None)
    if only is None:
        tell(services, verifier.stage, chosen.name, report)
    return report


class Verifier:
    """Compares one target with the ledger.

    Args:
        ledger: what should be.
        graph: of the target; takes the locks.
        audit: of the target.
        target: its name.
        progress: called with done, total and what is being done.
        settings: of the ledger, for a second process that reads it; None: none is started.
    """

    def __init__(
        self,
        ledger: Ledger,
        graph: Neo4jGraph,
        audit: GraphAudit,
        *,
        target: str,
        progress: Progress,
        settings: Settings | None = None,
    ) -> None:
        self.ledger = ledger
        self.graph = graph
        self.audit = audit
        self.target = target
        self.progress = progress
        self._settings = settings
        self.stage = PROJECTION.name
        self._differing: set[SessionKey] = set()
        self._odd: list[str] = []
        self._hidden: list[tuple[str, str]] = []
        self._unreadable: list[tuple[int, int]] = []
        self._checkpoints: dict[int, Checkpoint] = {}
        self._dead: dict[int, set[int]] = {}
        self._tombstones: Set[tuple[str, str]] = frozenset()

    def test_rules(self) -> None:
        """Refuse a graph that other rules folded.

        Raises:
            FoldVersionMismatch: rebuild it.
        """
        for found in self.graph.checkpoints(self.stage):
            if found.fold_version != PROJECTION.fold_version:
                raise FoldVersionMismatch(
                    stage=self.stage, found=found.fold_version, expected=PROJECTION.fold_version
                )

    def test_ledger(self) -> None:
        """Refuse a ledger that lost entries which were folded.

        Raises:
            GraphAhead: recover first.
        """
        for lost in self.ledger.missing_checkpoints(self.graph.checkpoints(self.stage)):
            raise GraphAhead(
                partition=lost.partition, position=str(lost.position), reason="its entry is gone"
            )

    def run(self, only: SessionKey | None = None) -> Report:
        """Compare everything, or one session, up to the checkpoints as they are now."""
        report = Report(self.target)
        self._differing, self._odd, self._hidden, self._unreadable = set(), [], [], []
        self._tombstones = self.audit.tombstones()
        self._list_dead_letters(report)
        self._checkpoints = {
            partition: Checkpoint(self.stage, partition)
            for partition in range(self.ledger.partitions)
        } | {c.partition: c for c in self.graph.checkpoints(self.stage)}
        for partition, tail in enumerate(self.ledger.tails()):
            report.lag_entries += tail.seq - self._checkpoints[partition].seq
        digest = 0
        if only is not None:
            judged = self._judge().judge([only])
            report.events = sum(judged.events.values())
        else:
            sums = BucketSums(BUCKETS)
            suspects = sums.suspects(self._add_both(sums, report))
            digest = sums.digest(excluding=suspects)
            judged = Judgement()
            if suspects:
                judged = self._judge().judge(self._sessions_in(suspects))
            self._check_odd(report)
            self._check_unreadable(report)
        self._differing = judged.sessions
        report.judged_sessions = len(judged.digests)
        for difference in judged.differences:
            report.add(difference)
        report.digest = digest_text(digest + sum(judged.digests.values()))
        return report

    def repair(self) -> int:
        """Mend what the last run found; returns how many differences were dealt with."""
        for element_id in self._odd:
            self.audit.remove_odd_event(element_id)
        self.audit.show_events(self._hidden)
        judged = self._judge().judge(sorted(self._differing, key=repr), repair=True)
        repaired = len(judged.differences) + len(self._odd) + len(self._hidden)
        logger.info("repaired", target=self.target, differences=repaired)
        return repaired

    def _judge(self) -> Judge:
        return Judge(
            self.ledger,
            self.graph,
            self.audit,
            stage=self.stage,
            checkpoints=self._checkpoints,
            dead=self._dead,
            tombstones=self._tombstones,
            progress=self.progress,
        )

    # -- the streamed pass -----------------------------------------------------------------------

    def _add_both(self, sums: BucketSums, report: Report) -> list[int]:
        """Add up both sides, at once where a second process does one; returns the ledger's."""
        task = Task(
            {partition: c.position for partition, c in self._checkpoints.items()},
            sum(checkpoint.seq for checkpoint in self._checkpoints.values()),
            self._dead,
            self._tombstones,
        )
        with LedgerSide(self.ledger, task, self.progress, self._settings) as side:
            if side.apart:
                self._add_graph(sums, task.entries)
            found = side.sums()
            report.events, report.system_events = found.events, found.system_events
            self._unreadable = found.unreadable
            if not side.apart:
                self._add_graph(sums, found.events)
        return found.numbers

    def _check_unreadable(self, report: Report) -> None:
        """Dead letters stand for entries that are no events, also for those passed meanwhile."""
        if not self._unreadable:
            return
        recorded = {
            (letter["partition"], letter["seq"]) for letter in self.graph.dead_letters(self.stage)
        }
        for place in self._unreadable:
            if place not in recorded:
                report.add(Difference("missing", "node", DEAD_LETTER.label, (self.stage, *place)))

    def _add_graph(self, sums: BucketSums, total: int) -> None:
        """Add up the graph's side, and walk each chain.

        Events behind the checkpoints of this run are part of the chains that are checked, but not
        of the numbers: another worker has just folded them.
        """
        session: SessionKey | None = None
        bucket = 0
        until = Position(0, 0)
        last: FoundEvent | None = None
        last_counted: FoundEvent | None = None
        for done, event in enumerate(self.audit.stream_events(), 1):
            key, values = event.key, event.values
            if session is None or key[0] != session[0] or values[_SESSION] != session[1]:
                if last is not None and last.edges[_FOLLOWS]:
                    sums.suspect(bucket)
                session, last, last_counted = (key[0], values[_SESSION]), None, None
                bucket = bucket_of(session)
                until = self._until(session)
            link = None if last is None else _link(last, event)
            if last is not None and not _is_link(last, event, link):
                sums.suspect(bucket)
            before, last = last, event
            if done % 5_000 == 0:
                self.progress(done, total, "reading the graph")
            if _is_behind(values[POSITION], until):
                continue
            number = element_digest(EVENT.label, *key, *values[:POSITION])
            found = placed(number, values[POSITION])
            for n in _CAUSES:
                for edge in event.edges[n]:
                    cause = edge_number(_TYPES[n], key, edge[:2], edge[2:])
                    number += cause
                    found += cause
            sums.add_found(bucket, found)
            if last_counted is not None:
                if link is None or last_counted is not before:
                    link = _link(last_counted, event)
                number += element_digest(FOLLOWS.type, *last_counted.key, *key, *link)
            sums.add_digest(bucket, number)
            last_counted = event
        if last is not None and last.edges[_FOLLOWS]:
            sums.suspect(bucket)

    def _until(self, session: SessionKey) -> Position:
        if not all(isinstance(part, str) for part in session):
            return Position(0, 0)
        return self._checkpoints[partition_of(*session, self.ledger.partitions)].position

    def _sessions_in(self, buckets: Set[int]) -> list[SessionKey]:
        """Every session of the ledger or the graph that falls into one of the buckets."""
        sessions = {s for s in self.audit.sessions() if bucket_of(s) in buckets}
        for partition, checkpoint in self._checkpoints.items():
            for entries in self.ledger.scan(partition, until=checkpoint.position):
                for event in decodable(entries):
                    session = (event.tenant, event.session_id)
                    if bucket_of(session) in buckets and not is_system_event(event.event_type):
                        sessions.add(session)
        return sorted(sessions, key=repr)

    def _check_odd(self, report: Report) -> None:
        """Placeholders wait for a parent; whatever else is outside every chain is extra.

        An event that carries the placeholder's label is hidden from reads. One that becomes
        visible just now may look like that, and no longer when it is looked at again.
        """
        events: list[tuple[str, str]] = []
        for odd in self.audit.stream_odd_events():
            if odd.bare and odd.incoming and not odd.outgoing:
                report.waiting_parent_count += 1
                if len(report.waiting_parents) < LISTED:
                    report.waiting_parents.append((odd.tenant, odd.event_id))
            elif not self._is_expected(odd.tenant, odd.event_id):
                report.add(Difference("extra", "node", EVENT.label, (odd.tenant, odd.event_id)))
                self._odd.append(odd.element_id)
            else:
                events.append((odd.tenant, odd.event_id))
        self._hidden = self.audit.hidden_events(events) if events else []
        for key in self._hidden:
            shown = {"visible": (True, False)}
            report.add(Difference("different", "node", EVENT.label, key, shown))

    def _is_expected(self, tenant: Any, event_id: Any) -> bool:
        """Whether the ledger has the event, so that judging its session reports it."""
        if not isinstance(tenant, str) or not isinstance(event_id, str):
            return False
        return self.ledger.find(tenant, event_id) is not None

    def _list_dead_letters(self, report: Report) -> None:
        self._dead = {}
        for letter in self.graph.dead_letters(self.stage):
            self._dead.setdefault(letter["partition"], set()).add(letter["seq"])
            report.dead_letter_count += 1
            if len(report.dead_letters) < LISTED:
                report.dead_letters.append(dict(letter))


def _link(earlier: FoundEvent, later: FoundEvent) -> list[Any]:
    """What FOLLOWS says between two neighbours."""
    try:
        delta = later.values[_TIME] - earlier.values[_TIME]
    except TypeError:
        delta = None  # a time that is none: the node differs, and its session is judged
    return [later.values[_SESSION], delta]


def _is_link(earlier: FoundEvent, later: FoundEvent, link: list[Any] | None) -> bool:
    """Whether exactly the right FOLLOWS leads from one event to the next."""
    edges = earlier.edges[_FOLLOWS]
    return (
        len(edges) == 1
        and link is not None
        and edges[0] == [*later.key, *link]
        and type(edges[0][-1]) is int
    )


def _is_behind(position: Any, until: Position) -> bool:
    """Whether a node was folded after this run read the checkpoints."""
    try:
        ms, _, seq = position.partition("-")  # a fifth of the time of Position.parse
        return (int(ms), int(seq)) > until
    except (ValueError, TypeError, AttributeError):
        return False
