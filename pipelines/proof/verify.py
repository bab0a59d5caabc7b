"""Verify: prove that a target's graph, and the columns in memory, are what its ledger says.

What was found is kept for `status` and metrics.

The fast look adds up numbers of the ledger's events and of the graph's, and compares the sums. It
is about Stage 1 alone, believes the graph's tombstones and dead letters, and needs no model and
no memory that grows. Sessions fall into buckets; both sides add up a number for every node and
cause, and the chains are checked against the graph's own nodes, which the numbers prove equal to
the ledger's. Where a number is another, the look says only that: what differs, if it was not a
worker that went on meanwhile, is for the proof to find.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from pipelines.columns.client import ColumnsClient
from pipelines.columns.records import Differing
from pipelines.graph.held import is_in_memory
from pipelines.graph.reads.chains import ChainEvent, ChainReader, event_edges
from pipelines.ledger.registry import Target, verified
from pipelines.proof.compare import Difference
from pipelines.proof.expected import LedgerFold
from pipelines.proof.proof import prove
from pipelines.proof.report import LISTED, ProofReport, Scope, StageFinding
from pipelines.proof.sums import (
    BUCKETS,
    NAMES,
    POSITION,
    LedgerSide,
    LedgerSums,
    Task,
    bucket_of,
    digest_text,
    edge_number,
    element_digest,
    placed,
)
from pipelines.work.poison import PoisonPolicy
from pipelines.work.services import Progress, Services, make_fold
from pipelines.work.stages import PROJECTION, Stage, later_stages
from projections.errors import GraphAhead
from projections.events import DEFAULT_TENANT
from projections.identity import Position, SessionKey, partition_of
from projections.operations import Checkpoint
from projections.schema import EVENT, FOLLOWS


def verify(
    services: Services,
    *,
    target: str | None = None,
    stage: str | None = None,
    session: str | None = None,
    tenant: str | None = None,
    repair: bool = False,
    fast: bool = False,
    graph_ahead: bool = False,
    progress: Progress | None = None,
) -> ProofReport:
    """Compare a target (default: the active one) with the ledger.

    What a language model answered comes from its cache, and nobody is asked. The result is kept
    for the API to show, unless it is about a tenant or a session alone.

    Args:
        services: ledger and targets.
        target: name of the target.
        stage: only what this one writes; all are folded again all the same.
        session: only this session.
        tenant: only this tenant; of a session `default` if not given.
        repair: mend what differs, then look again.
        fast: of the first stage alone, and by sums where these agree; on Neo4j.
        graph_ahead: compare also with a ledger that lost entries (`recover` does).
        progress: called with done, total and what is being done.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        ModelUnavailable: a model is not installed.
        FoldVersionMismatch, ModelsMismatch: the graph was folded by other rules: rebuild it.
        GraphAhead: the ledger lost what the graph was folded from; `recover` comes first.
    """
    begun = time.perf_counter()
    chosen = services.target(target) if target else services.active()
    owner = tenant or (DEFAULT_TENANT if session is not None else None)
    stage = PROJECTION.name if fast else stage
    proving = _Proving(
        services,
        chosen,
        Scope(None if stage is None else frozenset({stage}), owner, session),
        may_lack=graph_ahead,
        progress=progress,
    )
    report = proving.sums() if fast else None
    if report is None:
        report = proving.run(repair=repair)
    report.target = chosen.name
    lags = _lags(services, chosen, report.stages)
    for name, finding in report.stages.items():
        finding.lag_entries = lags[name]
    report.duration_s = time.perf_counter() - begun
    if owner is None:
        for name, finding in report.stages.items():
            services.reports.put(
                verified(
                    name,
                    chosen.name,
                    differences=finding.difference_count,
                    duration_s=report.duration_s,
                )
            )
    return report


class _Proving:
    """A proof of one target, as it is asked for."""

    def __init__(
        self,
        services: Services,
        target: Target,
        scope: Scope,
        *,
        may_lack: bool,
        progress: Progress | None,
    ) -> None:
        self._services = services
        self._target = target
        self._scope = scope
        self._may_lack = may_lack
        self._progress = progress
        self._graph = services.graph(target)

    def run(self, *, repair: bool) -> ProofReport:
        """Compare, with the answers that are cached; without those that may have come too late."""
        stages = self._stages()
        if not self._may_lack:
            self._refuse_loss()
        if not any(stage.runs_models for stage in stages):
            return prove(self._graph, self._fold(stages), repair=repair, scope=self._scope)
        with self._services.models.from_memory() as memory:
            report = prove(
                self._graph,
                self._fold(stages),
                repair=repair,
                scope=self._scope,
                unread=lambda: memory.unread,
            )
            late = memory.answered & _named_in(report)
            if late and not repair:
                # The model was away when the worker asked, and has answered somebody else since.
                memory.ignored |= late
                again = prove(
                    self._graph,
                    self._fold(stages),
                    scope=self._scope,
                    unread=lambda: memory.unread,
                )
                report = min(report, again, key=lambda of_both: of_both.difference_count)
        return report

    def sums(self) -> ProofReport | None:
        """The fast look; None: its sums differ, or it is in memory, where all is fast."""
        if is_in_memory(self._target.uri):
            return None
        rules = make_fold(PROJECTION, self._services, self._target)
        for checkpoint in self._graph.checkpoints(PROJECTION.name):
            rules.refuse_other(checkpoint)
        self._refuse_loss()
        return look(self._services, self._target, self._progress or _silent)

    def _stages(self) -> list[Stage]:
        begun = {found.stage for found in self._graph.checkpoints()}
        return [PROJECTION, *later_stages(begun)]

    def _refuse_loss(self) -> None:
        for lost in self._services.ledger.missing_checkpoints(self._graph.checkpoints()):
            raise GraphAhead(
                partition=lost.partition, position=str(lost.position), reason="its entry is gone"
            )

    def _fold(self, stages: list[Stage]) -> LedgerFold:
        attempts = self._services.settings.max_attempts  # as the workers' dead letters say
        tenant = self._scope.tenant
        return LedgerFold(
            self._services.ledger,
            [make_fold(stage, self._services, self._target) for stage in stages],
            policy=PoisonPolicy(max_attempts=attempts, wait_s=0.0, in_a_row=None, a_minute=None),
            tenants=None if tenant is None else tenant.__eq__,
            may_lack=self._may_lack,
            progress=self._progress,
        )


def _silent(done: int, total: int | None, what: str) -> None:
    """Nobody looks."""


def _lags(services: Services, target: Target, stages: Iterable[str]) -> dict[str, int]:
    """Entries that each stage has not folded yet."""
    checkpoints, tails = services.graph(target).checkpoints(), services.ledger.tails()
    seqs = {(one.stage, one.partition): one.seq for one in checkpoints}
    return {
        stage: sum(max(0, tail.seq - seqs.get((stage, n), 0)) for n, tail in enumerate(tails))
        for stage in stages
    }


def _named_in(report: ProofReport) -> set[tuple[str, str]]:
    """Tenant and id of whatever its differences name."""
    return {
        (str(one.key[0]), str(part)) for one in report.differences[:LISTED] for part in one.key[1:]
    }


COLUMNS: Final = "columns"
"""Of a report, beside the stages."""
_TIMEOUT_MS: Final = 1_800_000
"""Of one look, which reads the whole graph."""


def prove_columns(services: Services, report: ProofReport, *, repair: bool) -> None:
    """Compare the columns with their graph, and add what differs to a report of all stages.

    They are those of the active target: of another one, or of a graph that no worker has started
    on, there are none, and nothing is said.

    Args:
        services: with the target, and the way in to its process, which is started if none runs.
        report: of the target.
        repair: mend what differs, then look again.

    Raises:
        GraphUnavailable, QueryTimeout: the columns cannot be asked, or the graph is away.
    """
    target = services.active()
    if target.name != report.target or is_in_memory(target.uri):
        return
    if not services.graph(target).checkpoints():
        return
    begun = time.perf_counter()
    client = ColumnsClient(target.uri, target.database, services.settings)
    try:
        before = left = client.verify(_TIMEOUT_MS, mend=repair)
        if repair and before.difference_count:
            left = client.verify(_TIMEOUT_MS)
    finally:
        client.close()
    duration_s = time.perf_counter() - begun
    count = left.difference_count
    report.stages[COLUMNS] = StageFinding(entries=left.events, difference_count=count)
    report.difference_count += count
    report.differences += map(_difference, left.first[: LISTED - len(report.differences)])
    report.found_count += before.difference_count
    report.repaired += before.difference_count if repair else 0
    report.duration_s += duration_s
    services.reports.put(verified(COLUMNS, target.name, differences=count, duration_s=duration_s))


def _difference(item: Differing) -> Difference:
    kind: Literal["missing", "extra", "different"] = "different"
    if not item.is_held:
        kind = "missing"
    elif not item.is_expected:
        kind = "extra"
    key = (item.tenant, item.key) if item.key else (item.tenant,)
    return Difference(kind, "column", item.kind, key, fields=item.fields)


_SESSION, _TIME = NAMES.index("session_id"), NAMES.index("occurred_at")
_TYPES: Final = [row.type for row in event_edges()]
_FOLLOWS: Final = _TYPES.index(FOLLOWS.type)
_CAUSES: Final = [n for n in range(len(_TYPES)) if n != _FOLLOWS]
_TOLD_EVERY: Final = 5_000


def look(services: Services, target: Target, progress: Progress) -> ProofReport | None:
    """Compare Stage 1 of a target by sums; None: something differs, or did while it looked.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        FoldVersionMismatch: the graph was folded by other rules.
    """
    graph = services.neo4j_graph(target)
    name, partitions = PROJECTION.name, services.ledger.partitions
    checkpoints = {n: Checkpoint(name, n) for n in range(partitions)}
    checkpoints |= {one.partition: one for one in graph.checkpoints(name)}
    reader = ChainReader(services.driver(target), target.database)
    letters = graph.dead_letters(name)
    dead: dict[int, set[int]] = {}
    for letter in letters:
        dead.setdefault(letter["partition"], set()).add(letter["seq"])
    task = Task(
        {partition: one.position for partition, one in checkpoints.items()},
        sum(one.seq for one in checkpoints.values()),
        dead,
        reader.tombstones(),
    )
    side = _GraphSide(reader, task, partitions, progress)
    ledger = _add_up_both(services, task, side, progress)
    if ledger.unreadable or side.is_broken or ledger.numbers != side.numbers:
        return None
    finding = StageFinding(entries=task.entries, digest=digest_text(side.digest))
    finding.dead_letter_count = len(letters)
    return ProofReport(
        target=target.name,
        stages={name: finding},
        compared=side.counts,
        events=ledger.events,
        system_events=ledger.system_events,
        dead_letters=letters,
        dead_letter_count=len(letters),
        notes=["a fast look: sums, of the first stage alone"],
    )


def _add_up_both(
    services: Services, task: Task, graph: _GraphSide, progress: Progress
) -> LedgerSums:
    """Add up both sides, at once where a second process does one; returns the ledger's."""
    with LedgerSide(services.ledger, task, progress, services.settings) as side:
        if side.apart:
            graph.add_up()
        sums = side.sums()
        if not side.apart:
            graph.add_up()
    return sums


class _GraphSide:
    """Walks each chain of a graph and adds up its numbers.

    Events behind the checkpoints of the task are part of the chains that are checked, but not of
    the numbers: a worker has just folded them.

    Attributes:
        numbers: sum by bucket.
        digest: sum of the numbers without positions, FOLLOWS among them.
        counts: nodes and edges by label and type.
        is_broken: a chain is not what its nodes say.
    """

    def __init__(
        self, reader: ChainReader, task: Task, partitions: int, progress: Progress
    ) -> None:
        self._reader = reader
        self._task = task
        self._partitions = partitions
        self._progress = progress
        self.numbers = [0] * BUCKETS
        self.digest = 0
        self.counts: Counter[str] = Counter()
        self.is_broken = False

    def add_up(self) -> None:
        """Read the whole graph."""
        session: SessionKey | None = None
        bucket, until = 0, Position(0, 0)
        last: ChainEvent | None = None
        counted: ChainEvent | None = None
        for done, event in enumerate(self._reader.events(), 1):
            key, values = event.key, event.values
            if session is None or key[0] != session[0] or values[_SESSION] != session[1]:
                self._end_chain(last)
                session, last, counted = (key[0], values[_SESSION]), None, None
                bucket, until = bucket_of(session), self._until(session)
            if last is not None and not _is_link(last, event):
                self.is_broken = True
            last = event
            if done % _TOLD_EVERY == 0:
                self._progress(done, self._task.entries, "reading the graph")
            if not _is_behind(values[POSITION], until):
                self._count(event, bucket, counted)
                counted = event
        self._end_chain(last)

    def _count(self, event: ChainEvent, bucket: int, before: ChainEvent | None) -> None:
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
        self.numbers[bucket] += here
        if before is not None:
            number += element_digest(FOLLOWS.type, *before.key, *key, *_link(before, event))
            self.counts[FOLLOWS.type] += 1
        self.digest += number

    def _end_chain(self, last: ChainEvent | None) -> None:
        if last is not None and last.edges[_FOLLOWS]:
            self.is_broken = True

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
