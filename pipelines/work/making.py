"""The stages that need no models, made to run on a target; their rows name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from consolidation.stage import consolidate, derive, reach
from pipelines.graph.port import Transaction
from pipelines.ledger.registry import Target
from pipelines.observe import metrics
from pipelines.work.folds import Placed, StageFold
from pipelines.work.gather.consolidation import ConsolidationFacts
from pipelines.work.gather.projection import gather
from pipelines.work.services import Services
from pipelines.work.stages import Stage
from projections import structural
from projections.operations import Operations
from projections.schema import FORGOTTEN


def projection_fold(stage: Stage, services: Services, target: Target) -> StageFold:
    """Stage 1: what an event says of itself, and its place in its session."""
    return StageFold(stage, gather_neighbours, structural.project)


def gather_neighbours(transaction: Transaction, events: Sequence[Placed]) -> structural.Facts:
    """What the graph says about the places of events in their sessions."""
    bare = [event for _, event in events]
    return gather(transaction, bare)


def consolidation_fold(stage: Stage, services: Services, target: Target) -> StageFold:
    """The consolidation as it runs on a ledger."""
    return StageFold(
        stage,
        ConsolidationFacts(services.settings.partitions),
        consolidate,
        derive,
        reach=reach,
        count=count_pruned,
    )


def pruned_counts(operations: Operations) -> Counter[str]:
    """Events that a batch of consolidation takes away, by tier."""
    return Counter(
        str(decided.value)
        for decided in operations.decide_nodes.values()
        if (decided.label, decided.name) == (FORGOTTEN.label, "tier")
    )


def count_pruned(target: str, operations: Operations) -> None:
    """Count what a batch has taken away from a target."""
    for tier, number in pruned_counts(operations).items():
        metrics.PRUNED.labels(target=target, tier=tier).inc(number)
