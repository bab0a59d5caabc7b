"""Runs a seed, says what broke, and finds the shortest part of its history that still breaks it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.simulation.doubles import Clock, Killed
from tests.simulation.properties import check
from tests.simulation.steps import Step, draw
from tests.simulation.world import World, no_luck


class Failure(NamedTuple):
    """What broke, in one line, and where."""

    reason: str
    where: str


def carry_out(
    seed: int,
    steps: Sequence[Step],
    trace: Callable[[str], None] = lambda line: None,
) -> Failure | None:
    """Carry out a history; None: all properties hold."""
    clock = Clock()
    try:
        with no_luck(seed, clock):
            world = World(clock, trace)
            for step in steps:
                world.carry_out(step)
            trace("settle")
            world.settle()
            check(world)
    except (Exception, Killed) as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc(limit=-6))
    return None


def run(seed: int, trace: Callable[[str], None] = lambda line: None) -> Failure | None:
    """Carry out the history of a seed."""
    return carry_out(seed, draw(seed), trace)


def shrink(seed: int, steps: Sequence[Step]) -> list[Step]:
    """The shortest history that was found, of those that leave steps out and still fail alike."""
    current = list(steps)
    failure = carry_out(seed, current)
    kind = _kind(failure)
    size = len(current) // 2
    while size:
        first = 0
        while first < len(current):
            shorter = current[:first] + current[first + size :]
            if _kind(carry_out(seed, shorter)) == kind:
                current = shorter
            else:
                first += size
        size //= 2
    return current


def _kind(failure: Failure | None) -> str:
    return "" if failure is None else failure.reason.split(":")[0]
