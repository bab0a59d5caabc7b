"""The simulation finds mistakes that are planted into the product."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant, reach_ignored
from tests.simulation.run import run

SEEDS = range(1, 301)
"""At most, for each mutant; most are found within a few."""
FOUND_AT: dict[Mutant, int] = {reach_ignored: 237}
"""Tried first, where the first seed that finds it comes late: a minute of histories before it."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    seeds = sorted(SEEDS, key=lambda seed: seed != FOUND_AT.get(mutant))
    assert any(run(seed) is not None for seed in seeds)
