"""Passes over the ledger and the graph of a stack."""

from __future__ import annotations

from tests.integration.stack import Stack
from tests.passing import Passing


class PassingStack(Passing):
    """On real services, which commands work on too."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        super().__init__(stack.ledger, stack.graph)
