"""Stage 3 as it runs on a ledger: the half of consolidation that applies what was decided."""

from __future__ import annotations

from dataclasses import replace

from pipelines.adapters.consolidation_facts import ConsolidationFacts
from pipelines.services import Services
from pipelines.stages import CONSOLIDATION as CONSOLIDATION
from pipelines.stages import Stage


def with_ledger(stage: Stage, services: Services) -> Stage:
    """The stage as it runs on a ledger: it must know in which partition a session is."""
    return replace(stage, gather=ConsolidationFacts(services.settings.partitions))
