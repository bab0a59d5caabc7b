"""A quick look at all that a store holds, in bounded memory: which tenants must be judged exactly.

The store is read once, in no order, and added up by tenant; the ledger is folded share by share, by
processes beside each other, and added up in the same way. All that is stored counts. A tenant whose
sums differ is only a suspicion: workers go on meanwhile, and what is approximate need not be the
same bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.registry import Target
from pipelines.proof.compare import Difference, census_differences
from pipelines.proof.proof import patiently
from pipelines.proof.report import ProofReport
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
from pipelines.work.services import Progress, Services
from pipelines.work.stages import PROJECTION, Stage
from projections.schema import CHECKPOINT, DEAD_LETTER, EDGES, NODES


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
