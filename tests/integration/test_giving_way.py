"""A stage that stands on another lets it catch up first, and not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipelines.work import live
from pipelines.work.folds import StageFold
from pipelines.work.live import GIVE_WAY_ENTRIES, LiveRunner
from pipelines.work.stages import PROJECTION
from projections.errors import Stopped
from projections.operations import Operations
from tests.factories import event
from tests.integration.stack import Stack

FEW = 5
LATER = StageFold(
    replace(PROJECTION, name="later", upstream=PROJECTION.name),
    lambda *_: None,
    lambda *_: Operations(),
)


class Waits(threading.Event):
    """Counts waits instead of waiting; `then` is called at each."""

    def __init__(self, then: Callable[[int], bool] = lambda _: False) -> None:
        super().__init__()
        self.count = 0
        self._then = then

    def wait(self, timeout: float | None = None) -> bool:
        self.count += 1
        return self._then(self.count)


@pytest.fixture
def behind(make_stack: Callable[..., Stack]) -> Stack:
    """A stack whose projection has folded a few events, and lacks more than the bound."""
    stack = make_stack(partitions=1)
    stack.append(*(event(n) for n in range(1, FEW + 1)))
    stack.fold()
    stack.append(*(event(n) for n in range(FEW + 1, FEW + GIVE_WAY_ENTRIES + 2)))
    return stack


def runner(stack: Stack, stop: threading.Event) -> LiveRunner:
    made = LiveRunner(LATER, stack.graph, stack.ledger, target=stack.target.name, stop=stop)
    made.prepare(1)
    return made


def first_block(stack: Stack) -> Any:
    return next(iter(stack.blocks(0, FEW)))


def test_it_waits_until_the_earlier_stage_has_caught_up(behind: Stack) -> None:
    def catch_up(count: int) -> bool:
        if count == 3:
            behind.fold()
        return False

    stop = Waits(catch_up)
    end = runner(behind, stop).apply(first_block(behind))
    assert (end.seq, stop.count) == (FEW, 3)


def test_it_goes_on_when_the_earlier_stage_does_not_catch_up(behind: Stack) -> None:
    stop = Waits()
    end = runner(behind, stop).apply(first_block(behind))
    bound = round(live.GIVE_WAY_S / live._GIVE_WAY_STEP_S)
    assert (end.seq, stop.count) == (FEW, bound)


def test_a_worker_that_is_told_to_end_does_not_wait(behind: Stack) -> None:
    with pytest.raises(Stopped):
        runner(behind, Waits(lambda _: True)).apply(first_block(behind))
