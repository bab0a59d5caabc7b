"""Judging sessions exactly: folded anew from the ledger, compared under the checkpoint's lock.

Slower than the streamed pass of `verify`, and never wrong: the live worker of the partition waits
meanwhile, so ledger and graph are seen at one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from pipelines.graph.audit import GraphAudit, found_sessions
from pipelines.graph.cypher import READ_SESSIONS
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.port import Transaction
from pipelines.ledger.ledger import Entry, Ledger
from pipelines.proof.comparison import Difference, differences, field_differences, repairs
from pipelines.work.services import Progress
from projections.digest import NAMES, graph_number
from projections.errors import UndecodableEntry
from projections.events import Event, decode_event, is_system_event
from projections.identity import Position, partition_of
from projections.operations import Checkpoint, Operations
from projections.structural import SessionGraph, SessionKey, event_node, session_graph, stage_values

JUDGED_AT_ONCE = 200
"""Sessions compared under one lock: the live worker of the partition waits that long."""
ROUNDS = 3
"""How often a difference must be found before it is believed."""


@dataclass
class Judgement:
    """What judging sessions has shown.

    Attributes:
        sessions: those that differ.
        digests: of each judged session: of its fold up to the checkpoints of this run, or of what
            the graph holds where that differs.
        events: of each judged session.
    """

    differences: list[Difference] = field(default_factory=list)
    sessions: set[SessionKey] = field(default_factory=set)
    digests: dict[SessionKey, int] = field(default_factory=dict)
    events: dict[SessionKey, int] = field(default_factory=dict)

    def add(self, other: Judgement) -> None:
        """Take other sessions in; of the same ones the later word counts."""
        self.differences += other.differences
        self.sessions |= other.sessions
        self.digests |= other.digests
        self.events |= other.events


class Judge:
    """Compares sessions of one stage on one target.

    Args:
        ledger: what should be.
        graph: of the target; takes the locks.
        audit: of the target.
        stage: whose checkpoints are meant.
        checkpoints: by partition, as they were when the run began.
        dead: by partition the numbers of entries that dead letters stand for.
        tombstones: keys of forgotten events.
        progress: called with done, total and what is being done.
    """

    def __init__(
        self,
        ledger: Ledger,
        graph: Neo4jGraph,
        audit: GraphAudit,
        *,
        stage: str,
        checkpoints: Mapping[int, Checkpoint],
        dead: Mapping[int, Set[int]],
        tombstones: Set[tuple[str, str]],
        progress: Progress,
    ) -> None:
        self.ledger = ledger
        self.graph = graph
        self.audit = audit
        self.stage = stage
        self._checkpoints = checkpoints
        self._dead = dead
        self._tombstones = tombstones
        self.progress = progress

    def judge(self, sessions: Sequence[SessionKey], *, repair: bool = False) -> Judgement:
        """Compare sessions under the lock; what differs is looked at again before it counts."""
        judged = Judgement()
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
                    result.differences, result.sessions = [], set()
                    result.add(self._judge_chunk(partition, suspects, repair=False))
                judged.add(result)
                done += len(chunk)
                self.progress(done, len(sessions), "judging sessions")
        judged.differences = self._explained(judged.differences)
        return judged

    def _judge_chunk(
        self, partition: int, sessions: Sequence[SessionKey], *, repair: bool
    ) -> Judgement:
        start = self._checkpoints[partition].position
        wanted = set(sessions)
        entries = list(self._entries_of(wanted, self.ledger.scan(partition, until=start)))
        judged = Judgement()
        with self.graph.transaction() as transaction:
            current = transaction.lock(self.stage, partition)
            if current is not None and current.position > start:
                newer = self.ledger.scan(partition, after=start, until=current.position)
                entries += self._entries_of(wanted, newer)
            dead = dead_letter_seqs(transaction, self.stage, partition)
            found = found_sessions(
                transaction.run(READ_SESSIONS, sessions=[list(key) for key in sessions])
            )
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
            graph = graph or SessionGraph({}, {})
            judged.digests[session] = graph_number(graph)
            judged.events[session] = len(graph.nodes)
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
                for event in decodable([entry]):
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
                event = next(iter(decodable([entry])), None) if entry else None
                if entry is not None and event is not None:
                    should = stage_values(event_node(event, entry.position))
                    does = elsewhere[difference.key].values
                    difference = Difference(
                        "different",
                        "node",
                        difference.type,
                        difference.key,
                        field_differences(NAMES, should, does),
                    )
            explained.append(difference)
        return explained


def decodable(entries: Iterable[Entry]) -> Iterator[Event]:
    """The events of those entries that are events."""
    for entry in entries:
        try:
            yield decode_event(entry.data)
        except UndecodableEntry:
            continue


def dead_letter_seqs(transaction: Transaction, stage: str, partition: int) -> set[int]:
    """Numbers of the entries that a stage has passed without folding them."""
    if not transaction.dead_letters:
        return set()
    return {letter["seq"] for letter in transaction.dead_letters_of(stage, partition)}
