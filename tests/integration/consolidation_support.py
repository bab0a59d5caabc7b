"""A stack whose ledger is consolidated too, and passes over it."""

from __future__ import annotations

from pipelines.ledger.registry import Target
from tests.integration.stack import Stack
from tests.passing import Passing
from tests.stages.consolidated import MINE as MINE
from tests.stages.consolidated import SCORED as SCORED
from tests.stages.consolidated import ConsolidatedLedger
from tests.stages.consolidated import ranges as ranges
from tests.stages.consolidated import story as story
from tests.stages.consolidated import without_models as without_models

FORGETTING = {"*": {"enabled": True}}
"""The setting `retention` of those who want to see something forgotten."""


class Consolidated(ConsolidatedLedger[Stack]):
    """All three stages of a stack, or of another target of it."""

    def __init__(self, stack: Stack, target: Target | None = None) -> None:
        if target is not None:
            stack.target, stack.graph = target, stack.services.neo4j_graph(target)
        super().__init__(stack)


class PassingStack(Passing):
    """On real services, which commands work on too."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        super().__init__(stack.ledger, stack.graph)
