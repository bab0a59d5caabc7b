"""Verify: prove that a target's graph, and the columns in memory, are what its ledger says.

What was found is kept for `status` and metrics. A large graph is looked at by tenant first, in
bounded memory: the store is read once, in no order, and added up; the ledger is folded share by
share, by processes beside each other, and added up in the same way. All that is stored counts. A
tenant whose sums differ is only a suspicion: workers go on meanwhile, and what is approximate need
not be the same bit by bit. It is then judged exactly.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pipelines.columns.client import ColumnsClient
from pipelines.columns.records import Differing
from pipelines.graph.memory_graphs import is_in_memory
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.epoch import lost_checkpoints
from pipelines.ledger.registry import Target, verified
from pipelines.proof.compare import Difference, census_differences
from pipelines.proof.expected import LedgerFold
from pipelines.proof.fast import look
from pipelines.proof.ledger_sums import CHILD_FROM_ENTRIES, Draw
from pipelines.proof.proof import patiently, prove
from pipelines.proof.report import LISTED, ProofReport, Scope, StageFinding
from pipelines.proof.shares import (
    BYTES_AN_EVENT,
    MB,
    Folded,
    FoldTask,
    fold_shares,
    processes_of,
    shares_of,
    together,
)
from pipelines.proof.sums import StoredSums
from pipelines.work.poison import PoisonPolicy
from pipelines.work.services import Services, make_fold
from pipelines.work.stages import PROJECTION, Stage, later_stages
from projections.errors import ConfigurationError, GraphAhead
from projections.events import DEFAULT_TENANT
from projections.schema import CHECKPOINT, DEAD_LETTER, EDGES, NODES

_SAMPLE_LOOKS: Final = 3
"""At a sample that differs, of which a worker may have changed something meanwhile."""


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


def verify_sample(
    services: Services,
    share: float,
    *,
    target: str | None = None,
    progress: Progress | None = None,
) -> ProofReport:
    """Compare what Stage 1 has made of some sessions with the ledger, by sums.

    Which ones is drawn anew each time. The ledger is read whole, in bounded memory, and the graph
    is asked for these sessions alone, so one that no entry names is not found. A session that
    differs is one difference; `verify` of it says what it is. The result is not kept.

    Args:
        services: ledger and targets.
        share: of the sessions, above 0 up to 1.
        target: name of the target, on Neo4j; None: the active one.
        progress: called with done, total and what is being done.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        FoldVersionMismatch: the graph was folded by other rules.
        GraphAhead: the ledger lost what the graph was folded from.
        ConfigurationError: the target is in memory, where all of it is verified.
    """
    begun = time.perf_counter()
    chosen = services.target(target) if target else services.active()
    if is_in_memory(chosen.uri):
        raise ConfigurationError(reason="sample: a graph in memory is verified whole")
    draw = Draw(share, random.getrandbits(32))
    proving = _Proving(services, chosen, Scope(), may_lack=False, progress=progress)
    report = proving.sampled(draw)
    report.target = chosen.name
    report.stages[PROJECTION.name].lag_entries = _lags(services, chosen, report.stages)[
        PROJECTION.name
    ]
    report.duration_s = time.perf_counter() - begun
    return report


@dataclass(frozen=True)
class TenantsLook:
    """What a look found.

    Attributes:
        differing: tenants whose sums differ; None: something that is of no tenant does.
        schema: where indexes, constraints, labels or properties are not as they must be.
        folded: what the ledger comes to.
        memory_mb: what may be folded at once.
    """

    differing: frozenset[str | None]
    schema: tuple[Difference, ...]
    folded: Folded
    memory_mb: int

    @property
    def report(self) -> ProofReport:
        """Of the ledger; what differs is not in it."""
        return self.folded.report

    def groups(self) -> Iterator[frozenset[str]]:
        """The tenants that differ, as many together as fit into memory, at least one."""
        together_at_most = self.memory_mb * MB // BYTES_AN_EVENT
        group: list[str] = []
        events = 0
        for tenant in sorted(one for one in self.differing if one is not None):
            of_tenant = self.folded.stored.events[tenant]
            if group and events + of_tenant > together_at_most:
                yield frozenset(group)
                group, events = [], 0
            group.append(tenant)
            events += of_tenant
        if group or self.schema:
            yield frozenset(group)


def look_by_tenant(
    services: Services,
    target: Target,
    stages: Sequence[Stage],
    *,
    policy: PoisonPolicy,
    may_lack: bool,
    progress: Progress,
) -> TenantsLook:
    """Add up a target's store and its ledger, as far as the checkpoints stand now.

    Args:
        services: ledger and targets.
        target: on Neo4j.
        stages: that it holds, in their order.
        policy: when an entry is given up.
        may_lack: whether the ledger may have lost what was folded once.
        progress: called with done, total and what is being done.

    Raises:
        GraphUnavailable, LedgerUnavailable: a service is away.
        FoldVersionMismatch, ModelsMismatch: the graph was folded by other rules.
        GraphAhead: the ledger lost entries that the graph has folded.
        OperationFailed: a folding process was killed.
    """
    graph = services.neo4j_graph(target)
    settings = services.settings
    until = tuple(graph.checkpoints())
    held, schema = patiently(lambda: _held(graph, progress))
    processes = processes_of(settings)
    entries = sum(one.seq for one in graph.checkpoints(PROJECTION.name))
    shares = shares_of(entries, processes, settings.rebuild_memory_mb)
    tasks = [
        FoldTask(
            settings=settings,
            stages=tuple(stage.name for stage in stages),
            until=until,
            share=share,
            shares=shares,
            policy=policy,
            target=target.name,
            may_lack=may_lack,
        )
        for share in range(shares)
    ]
    folded = together(fold_shares(tasks, processes=processes, progress=progress), until)
    for letter in folded.letters:
        folded.stored.add(DEAD_LETTER.label, letter)
    return TenantsLook(
        differing=frozenset(held.differing(folded.stored)),
        schema=schema,
        folded=folded,
        memory_mb=settings.rebuild_memory_mb,
    )


def _held(graph: Neo4jGraph, progress: Progress) -> tuple[StoredSums, tuple[Difference, ...]]:
    """Sums of all that the store holds, and what is wrong with its schema."""
    census = graph.census()
    there = {**census.labels, **census.types}
    names = [name for name in (*NODES, *EDGES) if there.get(name) and name != CHECKPOINT.label]
    total = sum(there[name] for name in names)
    held = StoredSums(by_tenant=True)
    held.add_all(graph.held(names), total=total, progress=progress, what="adding up the graph")
    return held, tuple(census_differences(census))


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
        looked = self._looked_at(stages) if self._is_large() else None
        if looked is not None and None in looked.differing:
            looked = self._looked_at(stages)  # a worker may have given up what nobody can read
        if looked is None or None in looked.differing:
            return self._exactly(stages, self._scope, repair=repair)
        report, scope = looked.report, replace(self._scope, schema=bool(looked.schema))
        for group in looked.groups():
            report.take_in(self._exactly(stages, replace(scope, among=group), repair=repair))
            scope = replace(scope, schema=False)
        self._leave_out(report)
        return report

    def _is_large(self) -> bool:
        """Whether a look by sums pays: of all of a graph on Neo4j, of many entries."""
        if is_in_memory(self._target.uri) or self._scope.tenants is not None:
            return False
        entries = sum(one.seq for one in self._graph.checkpoints(PROJECTION.name))
        return entries >= CHILD_FROM_ENTRIES

    def _looked_at(self, stages: list[Stage]) -> TenantsLook:
        return look_by_tenant(
            self._services,
            self._target,
            stages,
            policy=self._policy(),
            may_lack=self._may_lack,
            progress=self._progress or (lambda done, total, what: None),
        )

    def _leave_out(self, report: ProofReport) -> None:
        """Tell only of the stages, labels and types that are asked for."""
        rows, scope = NODES | EDGES, self._scope
        report.stages = {n: one for n, one in report.stages.items() if scope.has_stage(n)}
        report.compared = {n: m for n, m in report.compared.items() if scope.covers(rows[n])}
        report.dead_letters = [one for one in report.dead_letters if scope.has_stage(one["stage"])]
        report.dead_letter_count = sum(one.dead_letter_count for one in report.stages.values())

    def _exactly(self, stages: list[Stage], scope: Scope, *, repair: bool) -> ProofReport:
        if not any(stage.runs_models for stage in stages):
            return prove(self._graph, self._fold(stages, scope), repair=repair, scope=scope)
        with self._services.models.from_memory() as memory:
            report = prove(
                self._graph,
                self._fold(stages, scope),
                repair=repair,
                scope=scope,
                unread=lambda: memory.unread,
            )
            late = memory.answered & _named_in(report)
            if late and not repair:
                # The model was away when the worker asked, and has answered somebody else since.
                memory.ignored |= late
                again = prove(
                    self._graph,
                    self._fold(stages, scope),
                    scope=scope,
                    unread=lambda: memory.unread,
                )
                report = min(report, again, key=lambda of_both: of_both.difference_count)
        return report

    def sums(self) -> ProofReport | None:
        """The fast look; None: its sums differ, or it is in memory, where all is fast."""
        if is_in_memory(self._target.uri):
            return None
        self._refuse_other()
        looked = look(self._services, self._target, self._progress)
        return None if looked.differing else looked.report()

    def sampled(self, draw: Draw) -> ProofReport:
        """A fast look at some sessions; what a worker changed meanwhile is looked at again."""
        self._refuse_other()
        looked = look(self._services, self._target, self._progress, draw)
        differing = looked.differing
        for _ in range(_SAMPLE_LOOKS - 1):
            if not differing:
                break
            looked = look(self._services, self._target, self._progress, draw)
            differing &= looked.differing
        return looked.report(differing)

    def _refuse_other(self) -> None:
        rules = make_fold(PROJECTION, self._services, self._target)
        for checkpoint in self._graph.checkpoints(PROJECTION.name):
            rules.refuse_other(checkpoint)
        self._refuse_loss()

    def _stages(self) -> list[Stage]:
        begun = {checkpoint.stage for checkpoint in self._graph.checkpoints()}
        return [PROJECTION, *later_stages(begun)]

    def _refuse_loss(self) -> None:
        missing, read = self._services.ledger.missing_checkpoints, self._graph.checkpoints
        for lost in lost_checkpoints(missing, read(), read):
            raise GraphAhead(
                partition=lost.partition, position=str(lost.position), reason="its entry is gone"
            )

    def _policy(self) -> PoisonPolicy:
        attempts = self._services.settings.max_attempts  # as the workers' dead letters say
        return PoisonPolicy(max_attempts=attempts, wait_s=0.0, in_a_row=None, a_minute=None)

    def _fold(self, stages: list[Stage], scope: Scope) -> LedgerFold:
        tenants = scope.tenants
        return LedgerFold(
            self._services.ledger,
            [make_fold(stage, self._services, self._target) for stage in stages],
            policy=self._policy(),
            tenants=None if tenants is None else tenants.__contains__,
            may_lack=self._may_lack,
            progress=self._progress,
        )


def _lags(services: Services, target: Target, stages: Iterable[str]) -> dict[str, int]:
    """Entries that each stage has not folded yet."""
    checkpoints, tails = services.graph(target).checkpoints(), services.ledger.tails()
    seqs = {(checkpoint.stage, checkpoint.partition): checkpoint.seq for checkpoint in checkpoints}
    return {
        stage: sum(max(0, tail.seq - seqs.get((stage, n), 0)) for n, tail in enumerate(tails))
        for stage in stages
    }


def _named_in(report: ProofReport) -> set[tuple[str, str]]:
    """Tenant and id of whatever its differences name."""
    return {
        (str(difference.key[0]), str(part))
        for difference in report.differences[:LISTED]
        for part in difference.key[1:]
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
