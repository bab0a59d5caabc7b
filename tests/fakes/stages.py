"""Stages at work for tests, which change a part of them with `dataclasses.replace`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from consolidation.stage import consolidate, derive, reach
from enrichment.importance import importance_score
from enrichment.text import event_text
from pipelines.work.folds import Placed, StageFold
from pipelines.work.gather.consolidation import ConsolidationFacts
from pipelines.work.gather.projection import gather_neighbours
from pipelines.work.poison import PoisonPolicy
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT, PROJECTION
from projections import structural
from projections.events import is_system_event
from projections.operations import Operations, SetNode
from projections.schema import EVENT

PROJECTING = StageFold(PROJECTION, gather_neighbours, structural.project)
"""Stage 1, which needs no services."""

QUICK = PoisonPolicy(wait_s=0.001, held_wait_s=0.05, patience_s=5.0)
"""The usual limits, without the waits."""


def _score(batch: Sequence[Placed], _: object) -> Operations:
    operations = Operations()
    for _, one in batch:
        if not is_system_event(one.event_type):
            importance = importance_score(one, event_text(one))
            nothing = dict.fromkeys(p.name for p in EVENT.owned(ENRICHMENT.name))
            values = {**nothing, "importance_score": importance}
            operations.add(SetNode(label=EVENT.label, key=one.key, values=values))
    return operations


SCORED = StageFold(
    replace(ENRICHMENT, fold_version=1, upstream=None), lambda transaction, batch: None, _score
)
"""Enrichment, as far as the sums of sessions need it."""


def consolidating(partitions: int) -> StageFold:
    """Stage 3, which needs no services."""
    facts = ConsolidationFacts(partitions)
    return StageFold(CONSOLIDATION, facts, consolidate, derive, reach=reach)
