"""Verify: fold the ledger, compare the graph, name every difference, mend exactly those.

One pass over each side, streamed. Sessions fall into buckets, and for each bucket both sides add
up a number for every node and cause; the chains are checked against the graph's own nodes, which
the numbers prove equal to the ledger's. Where a bucket's numbers differ, or a chain is not what its
nodes say, the bucket's sessions are judged exactly: folded anew from the ledger and compared under
the checkpoint's lock, so that a live worker, a late event or a read that was no snapshot never
makes a false alarm. Memory is bounded by the buckets and by the largest judged session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import structlog

from pipelines.adapters.graph_audit import FoundEvent, GraphAudit, found_sessions
from pipelines.adapters.graph_writer import GraphWriter
from pipelines.adapters.ledger import Entry, Ledger
from pipelines.adapters.reports import Report as LastReport
from pipelines.services import Services
from pipelines.stages import PROJECTION
from projections.comparison import (
    Difference,
    differences,
    field_differences,
    repairs,
)
from projections.cypher import event_edges
from projections.digest import MODULUS, BucketSums, digest_text, element_digest
from projections.errors import FoldVersionMismatch, GraphAhead, UndecodableEntry
from projections.events import DEFAULT_TENANT, Event, decode_event
from projections.identity import partition_of
from projections.operations import Checkpoint, Operations
from projections.positions import Position
from projections.schema import DEAD_LETTER, EVENT, FOLLOWS, Certainty
from projections.structural import (
    SessionGraph,
    SessionKey,
    direct_cause,
    event_node,
    session_graph,
)
from projections.system_events import is_system_event

Progress = Callable[[int, int | None, str], None]
logger = structlog.get_logger(__name__)

BUCKETS = 4_096
JUDGED_AT_ONCE = 200
"""Sessions compared under one lock: the live worker of the partition waits that long."""
ROUNDS = 3
"""How often a difference must be found before it is believed."""
LISTED = 1_000
"""Differences, dead letters and waiting parents listed at most; all are counted."""

_PROPERTIES = EVENT.owned("projection")
_NAMES = [p.name for p in _PROPERTIES]
_SESSION, _TIME = _NAMES.index("session_id"), _NAMES.index("occurred_at")
_POSITION = len(_NAMES) - 1
if _PROPERTIES[_POSITION].certainty is not Certainty.POSITION:
    raise AssertionError("the position stands last in the row, so that a digest can leave it out")
_TYPES = [row.type for row in event_edges()]
_FOLLOWS = _TYPES.index(FOLLOWS.type)
_CAUSES = [n for n in range(len(_TYPES)) if n != _FOLLOWS]


@dataclass
class Report:
    """What verify found. `ok`: no difference, no matter how many dead letters or how much lag."""

    target: str
    events: int = 0
    system_events: int = 0
    digest: str = ""
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    repaired: int = 0
    judged_sessions: int = 0
    waiting_parents: list[tuple[str, str]] = field(default_factory=list)
    waiting_parent_count: int = 0
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    dead_letter_count: int = 0
    lag_entries: int = 0
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the graph equals the ledger up to the checkpoints."""
        return self.difference_count == 0

    def add(self, difference: Difference) -> None:
        """Count a difference, and list it while there is room."""
        self.difference_count += 1
        if len(self.differences) < LISTED:
            self.differences.append(difference)

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
        services.writer(chosen),
        GraphAudit(services.driver(chosen), chosen.database),
        target=chosen.name,
        progress=progress or (lambda done, total, what: None),
    )
    verifier.test_rules()
    if not graph_ahead:
        verifier.test_ledger()
    only = (tenant or DEFAULT_TENANT, session) if session else None
    repaired = 0
    report = verifier.run(only)
    for _ in range(ROUNDS if repair else 0):
        if report.ok:
            break
        repaired += verifier.repair()
        report = verifier.run(only)
    report.repaired = repaired
    report.duration_s = time.perf_counter() - begun
    if only is None:
        values = {
            "differences": float(report.difference_count),
            "duration_s": report.duration_s,
            "ended_at_s": time.time(),
        }
        services.reports.put(LastReport("verify", chosen.name, values))
    return report


@dataclass
class _Judgement:
    """What judging sessions exactly has shown."""

    differences: list[Difference] = field(default_factory=list)
    sessions: set[SessionKey] = field(default_factory=set)
    """Those that differ."""
    judged: int = 0
    events: int = 0
    digest: int = 0

    def add(self, other: _Judgement) -> None:
        self.differences += other.differences
        self.sessions |= other.sessions
        self.judged += other.judged
        self.events += other.events
        self.digest += other.digest


class Verifier:
    """Compares one target with the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        writer: GraphWriter,
        audit: GraphAudit,
        *,
        target: str,
        progress: Progress,
    ) -> None:
        self.ledger = ledger
        self.writer = writer
        self.audit = audit
        self.target = target
        self.progress = progress
        self.stage = PROJECTION.name
        self._differing: set[SessionKey] = set()
        self._odd: list[str] = []
        self._hidden: list[tuple[str, str]] = []
        self._unreadable: list[Entry] = []
        self._checkpoints: dict[int, Checkpoint] = {}
        self._dead: dict[int, set[int]] = {}
        self._tombstones: Set[tuple[str, str]] = frozenset()

    def test_rules(self) -> None:
        """Refuse a graph that other rules folded.

        Raises:
            FoldVersionMismatch: rebuild it.
        """
        for found in self.writer.checkpoints(self.stage):
            if found.fold_version != PROJECTION.fold_version:
                raise FoldVersionMismatch(
                    stage=self.stage, found=found.fold_version, expected=PROJECTION.fold_version
                )

    def test_ledger(self) -> None:
        """Refuse a ledger that lost entries which were folded.

        Raises:
            GraphAhead: recover first.
        """
        for lost in self.ledger.missing_checkpoints(self.writer.checkpoints(self.stage)):
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
        } | {c.partition: c for c in self.writer.checkpoints(self.stage)}
        for partition, tail in enumerate(self.ledger.tails()):
            report.lag_entries += tail.seq - self._checkpoints[partition].seq
        digest = 0
        if only is not None:
            judged = self._judge([only])
            report.events = judged.events
        else:
            sums = BucketSums(BUCKETS)
            self._add_ledger(sums, report)
            self._add_graph(sums, report.events)
            suspects = sums.suspects()
            digest = sums.digest(excluding=suspects)
            judged = self._judge(self._sessions_in(suspects)) if suspects else _Judgement()
            self._check_odd(report)
            self._check_unreadable(report)
        self._differing = judged.sessions
        report.judged_sessions = judged.judged
        for difference in judged.differences:
            report.add(difference)
        report.digest = digest_text(digest + judged.digest)
        return report

    def repair(self) -> int:
        """Mend what the last run found; returns how many differences were dealt with."""
        for element_id in self._odd:
            self.audit.remove_odd_event(element_id)
        self.audit.show_events(self._hidden)
        judged = self._judge(sorted(self._differing, key=repr), repair=True)
        repaired = len(judged.differences) + len(self._odd) + len(self._hidden)
        logger.info("repaired", target=self.target, differences=repaired)
        return repaired

    # -- the streamed pass -----------------------------------------------------------------------

    def _add_ledger(self, sums: BucketSums, report: Report) -> None:
        total = sum(checkpoint.seq for checkpoint in self._checkpoints.values())
        done = 0
        for partition in range(self.ledger.partitions):
            until = self._checkpoints[partition].position
            dead = self._dead.get(partition, set())
            for entries in self.ledger.scan(partition, until=until):
                for entry in entries:
                    event = self._decode(entry, dead)
                    if event is None:
                        continue
                    if is_system_event(event.event_type):
                        report.system_events += 1
                        continue
                    report.events += 1
                    if event.key in self._tombstones:
                        continue
                    node = event_node(event, entry.position)
                    number = element_digest(EVENT.label, *node.key, *node.values[:_POSITION])
                    cause = direct_cause(event)
                    if cause is not None:
                        number += _edge_number(cause.type, cause.source, cause.target, cause.values)
                    sums.add_expected(
                        _bucket((event.tenant, event.session_id)),
                        number + hash((node.key, node.values[_POSITION])),
                    )
                done += len(entries)
                self.progress(done, total, "reading the ledger")

    def _decode(self, entry: Entry, dead: set[int]) -> Event | None:
        """The event that an entry should have become; None when a dead letter stands for it."""
        if entry.seq in dead:
            return None
        try:
            return decode_event(entry.data)
        except UndecodableEntry:
            self._unreadable.append(entry)
            return None

    def _check_unreadable(self, report: Report) -> None:
        """Dead letters stand for entries that are no events, also for those passed meanwhile."""
        if not self._unreadable:
            return
        recorded = {
            (letter["partition"], letter["seq"]) for letter in self.audit.dead_letters(self.stage)
        }
        for entry in self._unreadable:
            if (entry.partition, entry.seq) not in recorded:
                key = (self.stage, entry.partition, entry.seq)
                report.add(Difference("missing", "node", DEAD_LETTER.label, key))

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
                bucket = _bucket(session)
                until = self._until(session)
            link = None if last is None else _link(last, event)
            if last is not None and not _is_link(last, event, link):
                sums.suspect(bucket)
            before, last = last, event
            if done % 5_000 == 0:
                self.progress(done, total, "reading the graph")
            if _is_behind(values[_POSITION], until):
                continue
            number = element_digest(EVENT.label, *key, *values[:_POSITION])
            for n in _CAUSES:
                for edge in event.edges[n]:
                    number += _edge_number(_TYPES[n], key, edge[:2], edge[2:])
            sums.add_found(bucket, number + hash((key, values[_POSITION])))
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
        sessions = {s for s in self.audit.sessions() if _bucket(s) in buckets}
        for partition, checkpoint in self._checkpoints.items():
            for entries in self.ledger.scan(partition, until=checkpoint.position):
                for event in _decodable(entries):
                    session = (event.tenant, event.session_id)
                    if _bucket(session) in buckets and not is_system_event(event.event_type):
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
        for letter in self.audit.dead_letters(self.stage):
            self._dead.setdefault(letter["partition"], set()).add(letter["seq"])
            report.dead_letter_count += 1
            if len(report.dead_letters) < LISTED:
                report.dead_letters.append(letter)

    # -- judging sessions exactly ------------------------------------------------------------------

    def _judge(self, sessions: Sequence[SessionKey], *, repair: bool = False) -> _Judgement:
        """Compare sessions under the lock; what differs is looked at again before it counts."""
        judged = _Judgement()
        by_partition: dict[int, list[SessionKey]] = {}
        for session in sessions:
            known = all(isinstance(part, str) for part in session)
            partition = partition_of(*session, self.ledger.partitions) if known else 0
            by_partition.setdefault(partition, []).append(session)
        done = 0
        for partition, members in sorted(by_partition.items()):
            for first in range(0, len(members), JUDGED_AT_ONCE):
                chunk = members[first : first + JUDGED_AT_ONCE]
                result = self._judge_chunk(partition, chunk, repair=repair)
                for _ in range(0 if repair else ROUNDS - 1):
                    if not result.sessions:
                        break
                    suspects = sorted(result.sessions, key=repr)
                    again = self._judge_chunk(partition, suspects, repair=False)
                    result.differences, result.sessions = again.differences, again.sessions
                judged.add(result)
                done += len(chunk)
                self.progress(done, len(sessions), "judging sessions")
        judged.differences = self._explained(judged.differences)
        return judged

    def _judge_chunk(
        self, partition: int, sessions: Sequence[SessionKey], *, repair: bool
    ) -> _Judgement:
        start = self._checkpoints[partition].position
        wanted = set(sessions)
        entries = list(self._entries_of(wanted, self.ledger.scan(partition, until=start)))
        judged = _Judgement(judged=len(sessions))
        with self.writer.transaction() as transaction:
            current = transaction.lock(self.stage, partition)
            if current is not None and current.position > start:
                newer = self.ledger.scan(partition, after=start, until=current.position)
                entries += self._entries_of(wanted, newer)
            dead = transaction.dead_letter_seqs(self.stage, partition)
            found = found_sessions(transaction.sessions(sessions))
            expected = self._folded(entries, dead)
            operations = Operations()
            for session in sessions:
                should = expected.get(session, SessionGraph({}, {}))
                does = found.get(session, SessionGraph({}, {}))
                different = list(differences(should, does))
                if different:
                    judged.differences += different
                    judged.sessions.add(session)
                    extra = does.nodes.keys() - should.nodes.keys()
                    operations.extend(repairs(should, does, self._elsewhere(extra)))
            if repair:
                transaction.apply(operations, self.stage)
        until_start = self._folded([pair for pair in entries if pair[0].position <= start], dead)
        for session in sessions:
            graph = found.get(session) if session in judged.sessions else until_start.get(session)
            if graph is not None:
                judged.digest = (judged.digest + graph_number(graph)) % MODULUS
                judged.events += len(graph.nodes)
        return judged

    def _elsewhere(self, keys: Set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of the events that the graph should hold, in whichever session."""
        found = set()
        for key in keys - self._tombstones:
            entry = self.ledger.find(*key) if all(isinstance(part, str) for part in key) else None
            if entry is None or entry.seq in self._dead.get(entry.partition, ()):
                continue
            if entry.position <= self._checkpoints[entry.partition].position:
                found.add(key)
        return found

    def _entries_of(
        self, sessions: Set[SessionKey], blocks: Iterable[Sequence[Entry]]
    ) -> Iterator[tuple[Entry, Event]]:
        for entries in blocks:
            for entry in entries:
                for event in _decodable([entry]):
                    if (event.tenant, event.session_id) in sessions and not is_system_event(
                        event.event_type
                    ):
                        yield entry, event

    def _folded(
        self, entries: Iterable[tuple[Entry, Event]], dead: Set[int]
    ) -> dict[SessionKey, SessionGraph]:
        sessions: dict[SessionKey, list[tuple[Position, Event]]] = {}
        for entry, event in entries:
            if entry.seq not in dead:
                session = (event.tenant, event.session_id)
                sessions.setdefault(session, []).append((entry.position, event))
        return {
            session: session_graph(events, self._tombstones) for session, events in sessions.items()
        }

    def _explained(self, found: list[Difference]) -> list[Difference]:
        """Say "different" of a node that was missed in its session but exists elsewhere."""
        missing = {d.key for d in found if (d.kind, d.element) == ("missing", "node")}
        elsewhere = self.audit.find_events(missing) if missing else {}
        explained = []
        for difference in found:
            if difference.element == "node" and difference.key in elsewhere:
                if difference.kind != "missing":
                    continue
                entry = self.ledger.find(*difference.key)
                event = next(iter(_decodable([entry])), None) if entry else None
                if entry is not None and event is not None:
                    should = event_node(event, entry.position).values
                    does = elsewhere[difference.key].values
                    difference = Difference(
                        "different",
                        "node",
                        difference.type,
                        difference.key,
                        field_differences(_NAMES, should, does),
                    )
            explained.append(difference)
        return explained


def graph_number(graph: SessionGraph) -> int:
    """Digest of a session's nodes and edges."""
    number = sum(
        element_digest(EVENT.label, *key, *values[:_POSITION])
        for key, values in graph.nodes.items()
    )
    for (type_, source, target), copies in graph.edges.items():
        number += sum(_edge_number(type_, source, target, values) for values in copies)
    return number % MODULUS


def _bucket(session: SessionKey) -> int:
    return hash(session) % BUCKETS


def _edge_number(
    type_: str, source: Sequence[Any], target: Sequence[Any], values: Sequence[Any]
) -> int:
    return element_digest(type_, *source, *target, *values)


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


def _decodable(entries: Iterable[Entry]) -> Iterator[Event]:
    for entry in entries:
        try:
            yield decode_event(entry.data)
        except UndecodableEntry:
            continue
