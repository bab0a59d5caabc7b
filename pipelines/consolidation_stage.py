"""Stage 3 as the runner knows it: the half of consolidation that applies what was decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from consolidation import stage as rules
from pipelines.adapters.consolidation_facts import ConsolidationFacts
from pipelines.services import Services
from pipelines.stages import ENRICHMENT, Stage


def _without_ledger(*_: object) -> Any:
    raise AssertionError("`with_ledger` puts it in")


CONSOLIDATION = Stage(
    rules.NAME,
    rules.FOLD_VERSION,
    _without_ledger,
    rules.consolidate,
    rules.derive,
    upstream=ENRICHMENT.name,
)


def with_ledger(stage: Stage, services: Services) -> Stage:
    """The stage as it runs on a ledger: it must know in which partition a session is."""
    gather = ConsolidationFacts(services.settings.partitions)
    return replace(stage, gather=gather)
