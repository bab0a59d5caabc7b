"""The simulation finds mistakes that are planted into the product."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.run import run

SEEDS = 300
"""At most, for each mutant; most are found within a few."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert any(run(seed) is not None for seed in range(1, SEEDS + 1))
