"""The fast look: Stage 1 of a graph beside its ledger by sums, of all sessions or of a sample.

It adds up numbers of the ledger's events and of the graph's, and compares the sums. It
is about Stage 1 alone, believes the graph's tombstones and dead letters, and needs no model and
no memory that grows. Sessions fall into buckets; both sides add up a number for every node and
cause, and the chains are checked against the graph's own nodes, which the numbers prove equal to
the ledger's. Where a number is another, the look says only that: what differs, if it was not a
worker that went on meanwhile, is for the proof to find.

Of a sample the ledger is read whole, and of the graph the sessions that were drawn alone: that
takes little of a graph of any size. What differs is told by session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from pipelines.graph.reads.chains import ChainEvent, ChainReader, event_edges
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.registry import Target
from pipelines.proof.compare import Difference
from pipelines.proof.ledger_sums import (
    Draw,
    Group,
    LedgerSide,
    LedgerSums,
    Task,
)
from pipelines.proof.report import LISTED, ProofReport, StageFinding
from pipelines.proof.sums import (
    NAMES,
    POSITION,
    digest_text,
    edge_number,
    element_digest,
    placed,
)
from pipelines.work.services import Services
from pipelines.work.stages import PROJECTION
from projections.identity import Position, SessionKey, partition_of
from projections.operations import Checkpoint
from projections.schema import EVENT, FOLLOWS

_SESSION, _TIME = NAMES.index("session_id"), NAMES.index("occurred_at")
_TYPES: Final = [row.type for row in event_edges()]
_FOLLOWS: Final = _TYPES.index(FOLLOWS.type)
_CAUSES: Final = [n for n in range(len(_TYPES)) if n != _FOLLOWS]
_TOLD_EVERY: Final = 5_000
_NO_GROUP: Final = -1
"""The group of what belongs to no session that was asked for."""


@dataclass(frozen=True)
class Looked:
    """What a fast look saw.

    Attributes:
        task: what was added up.
        ledger, graph: the two sides.
        letters: dead letters of the stage.
    """

    task: Task
    ledger: LedgerSums
    graph: _GraphSide
    letters: Sequence[Mapping[str, Any]]

    @property
    def differing(self) -> set[Group]:
        """Where the sides differ, or did while it looked; of an entry that is none nobody knows."""
        numbers, others = self.ledger.numbers, self.graph.numbers
        groups = {group for group in numbers | others if numbers[group] != others[group]}
        if self.ledger.unreadable:
            groups.add(_NO_GROUP)
        return groups | self.graph.broken

    def report(self, differing: Set[Group] = frozenset()) -> ProofReport:
        """For a person; of a sample with the sessions that differ."""
        draw, name = self.task.draw, PROJECTION.name
        differences = [
            Difference("different", "session", EVENT.label, session)
            for session in sorted(group for group in differing if not isinstance(group, int))
        ]
        digest = digest_text(self.graph.digest) if draw is None else ""
        finding = StageFinding(self.task.entries, digest, difference_count=len(differences))
        finding.dead_letter_count = len(self.letters)
        notes = ["a fast look: sums, of the first stage alone"]
        if draw is not None:
            sessions = len(self.ledger.numbers)
            notes = [f"a sample: {sessions:,} sessions drawn at random, the first stage alone"]
        if self.ledger.unreadable:
            notes.append(f"{len(self.ledger.unreadable):,} entries cannot be read")
        return ProofReport(
            stages={name: finding},
            compared=self.graph.counts,
            difference_count=len(differences),
            differences=differences[:LISTED],
            events=self.ledger.events,
            system_events=self.ledger.system_events,
            dead_letters=list(self.letters),
            dead_letter_count=len(self.letters),
            notes=notes,
        )


def look(
    services: Services, target: Target, progress: Progress | None, draw: Draw | None = None
) -> Looked:
    """Add up Stage 1 of a target, or the sessions that are drawn, and the same of the ledger.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
    """
    progress = progress or _silent
    graph = services.neo4j_graph(target)
    name, partitions = PROJECTION.name, services.ledger.partitions
    checkpoints = {n: Checkpoint(name, n) for n in range(partitions)}
    checkpoints |= {checkpoint.partition: checkpoint for checkpoint in graph.checkpoints(name)}
    reader = ChainReader(services.driver(target), target.database)
    letters = graph.dead_letters(name)
    dead: dict[int, set[int]] = {}
    for letter in letters:
        dead.setdefault(letter["partition"], set()).add(letter["seq"])
    task = Task(
        {partition: one.position for partition, one in checkpoints.items()},
        sum(checkpoint.seq for checkpoint in checkpoints.values()),
        dead,
        reader.tombstones(),
        draw=draw,
    )
    side = _GraphSide(reader, task, partitions, progress)
    ledger = _add_up_both(services, task, side, progress)
    return Looked(task, ledger, side, letters)


def _silent(done: int, total: int | None, what: str) -> None:
    """Nobody looks."""


def _add_up_both(
    services: Services, task: Task, graph: _GraphSide, progress: Progress
) -> LedgerSums:
    """Add up both sides, at once where a second process does one; returns the ledger's.

    Of a sample the ledger comes first: it says which sessions there are.
    """
    with LedgerSide(services.ledger, task, progress, services.settings) as side:
        is_whole = task.draw is None
        if side.apart and is_whole:
            graph.add_up()
        sums = side.sums()
        if not (side.apart and is_whole):
            graph.add_up(sums.sessions())
    return sums


class _GraphSide:
    """Walks each chain of a graph and adds up its numbers.

    Events behind the checkpoints of the task are part of the chains that are checked, but not of
    the numbers: a worker has just folded them.

    Attributes:
        numbers: sums.
        digest: sum of the numbers without positions, FOLLOWS among them.
        counts: nodes and edges by label and type.
        broken: where a chain is not what its nodes say.
    """

    def __init__(
        self, reader: ChainReader, task: Task, partitions: int, progress: Progress
    ) -> None:
        self._reader = reader
        self._task = task
        self._partitions = partitions
        self._progress = progress
        self.numbers: Counter[Group] = Counter()
        self.digest = 0
        self.counts: Counter[str] = Counter()
        self.broken: set[Group] = set()

    def add_up(self, drawn: Sequence[SessionKey] = ()) -> None:
        """Read the whole graph, or the sessions that were drawn."""
        whole = self._task.draw is None
        events = self._reader.events() if whole else self._reader.events_of(drawn)
        session: SessionKey | None = None
        group: Group = _NO_GROUP
        until = Position(0, 0)
        last: ChainEvent | None = None
        counted: ChainEvent | None = None
        for done, event in enumerate(events, 1):
            key, values = event.key, event.values
            if session is None or key[0] != session[0] or values[_SESSION] != session[1]:
                self._end_chain(last, group)
                session, last, counted = (key[0], values[_SESSION]), None, None
                drawn_as = self._task.group(session)
                group = _NO_GROUP if drawn_as is None else drawn_as
                until = self._until(session)
            if last is not None and not _is_link(last, event):
                self.broken.add(group)
            last = event
            if done % _TOLD_EVERY == 0:
                self._progress(done, self._task.entries, "reading the graph")
            if not _is_behind(values[POSITION], until):
                self._count(event, group, counted)
                counted = event
        self._end_chain(last, group)

    def _count(self, event: ChainEvent, group: Group, before: ChainEvent | None) -> None:
        """Add an event, its causes, and how it follows the one before it."""
        key, values = event.key, event.values
        number = element_digest(EVENT.label, *key, *values[:POSITION])
        here = placed(number, values[POSITION])
        self.counts[EVENT.label] += 1
        for n in _CAUSES:
            for edge in event.edges[n]:
                cause = edge_number(_TYPES[n], key, edge[:2], edge[2:])
                number += cause
                here += cause
                self.counts[_TYPES[n]] += 1
        self.numbers[group] += here
        if before is not None:
            number += element_digest(FOLLOWS.type, *before.key, *key, *_link(before, event))
            self.counts[FOLLOWS.type] += 1
        self.digest += number

    def _end_chain(self, last: ChainEvent | None, group: Group) -> None:
        if last is not None and last.edges[_FOLLOWS]:
            self.broken.add(group)

    def _until(self, session: SessionKey) -> Position:
        if not all(isinstance(part, str) for part in session):
            return Position(0, 0)
        return self._task.until[partition_of(*session, self._partitions)]


def _link(earlier: ChainEvent, later: ChainEvent) -> Sequence[Any]:
    """What FOLLOWS says between two neighbours."""
    try:
        delta = later.values[_TIME] - earlier.values[_TIME]
    except TypeError:
        delta = None  # a time that is none: the node differs
    return [later.values[_SESSION], delta]


def _is_link(earlier: ChainEvent, later: ChainEvent) -> bool:
    """Whether exactly the right FOLLOWS leads from one event to the next."""
    edges = earlier.edges[_FOLLOWS]
    return (
        len(edges) == 1
        and edges[0] == [*later.key, *_link(earlier, later)]
        and type(edges[0][-1]) is int
    )


def _is_behind(position: Any, until: Position) -> bool:
    """Whether a node was folded after this look read the checkpoints."""
    try:
        ms, _, seq = position.partition("-")  # a fifth of the time of Position.parse
        return (int(ms), int(seq)) > until
    except (ValueError, TypeError, AttributeError):
        return False
