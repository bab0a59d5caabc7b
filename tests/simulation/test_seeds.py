"""A few seeds in every run of the tests; `make simulate` runs more."""

from __future__ import annotations

import pytest

from tests.simulation.regressions import REGRESSIONS
from tests.simulation.run import carry_out, run, shrink
from tests.simulation.steps import Step, draw
from tests.simulation.world import World

SEEDS = range(1, 201)
CHUNK = 20


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_every_history_ends_in_the_graph_of_its_ledger(first: int) -> None:
    failures = {seed: run(seed) for seed in range(first, first + CHUNK)}
    assert {seed: failure for seed, failure in failures.items() if failure} == {}


@pytest.mark.parametrize("reason", REGRESSIONS)
def test_histories_that_once_broke_something(reason: str) -> None:
    assert carry_out(1, REGRESSIONS[reason]) is None


def test_a_seed_is_the_same_history_each_time() -> None:
    traces: list[list[str]] = [[], []]
    for lines in traces:
        run(7, lines.append)
    assert traces[0] == traces[1]


def test_a_failing_history_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_at_a_decision(world: World, *numbers: int) -> None:
        if world.appended:
            raise ValueError("planted")

    monkeypatch.setattr(World, "_do_stall", fail_at_a_decision)
    steps = [*draw(5), Step("stall", (0,) * 8)]
    assert [step.kind for step in shrink(5, steps)] == ["append", "stall"]
