"""What the reports of verify have in common, whichever stage they are about."""

from __future__ import annotations

from dataclasses import dataclass, field

from projections.comparison import Difference

LISTED = 1_000
"""Differences listed at most; all are counted."""


@dataclass(kw_only=True)
class ComparisonReport:
    """How a graph compares with its ledger.

    Attributes:
        differences: those that are listed.
        difference_count: all of them.
        repaired: differences that were dealt with.
        lag_entries: not folded yet, and so not compared.
    """

    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    repaired: int = 0
    dead_letter_count: int = 0
    lag_entries: int = 0
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the graph is what follows from the ledger, up to the checkpoints.

        Dead letters and lag are no differences.
        """
        return self.difference_count == 0

    def add(self, difference: Difference) -> None:
        """Count a difference, and list it while there is room."""
        self.difference_count += 1
        if len(self.differences) < LISTED:
            self.differences.append(difference)
