"""Stage 3 on a ledger: it applies decisions, and must know in which partition a session is."""

from __future__ import annotations

from collections import Counter

from consolidation.stage import consolidate, derive, reach
from pipelines.ledger.registry import Target
from pipelines.observe import metrics
from pipelines.work.folds import StageFold
from pipelines.work.gather.consolidation import ConsolidationFacts
from pipelines.work.services import Services
from pipelines.work.stages import Stage
from projections.operations import Operations
from projections.schema import FORGOTTEN


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
