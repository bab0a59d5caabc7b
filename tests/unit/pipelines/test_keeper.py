"""The keeper of a partition, step by step, without services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from faust.types import TP

from pipelines.work.transport.group import Group
from pipelines.work.transport.lane import Keeper, Lane
from projections.identity import Position
from projections.operations import Checkpoint

STEPS = ("start", "xgroup_create", "xpending_range", "xinfo_consumers")


class FakeGroup:
    """Everything a keeper asks for; calls `at` when it comes to `step`."""

    name = "projection@blue"
    worker = "me"

    def __init__(self, step: str, at: Any) -> None:
        self.alive = ["me"]
        self.reading = asyncio.Lock()
        self.redis = self.positions = self.leases = self
        self.released: list[int] = []
        self._step, self._at = step, at

    @asynccontextmanager
    async def redis_calls(self, what: str) -> AsyncIterator[None]:
        yield

    async def start(self, partition: int) -> Checkpoint:
        self._reach("start")
        return Checkpoint("projection", partition, Position(5, 1), 7)

    async def xgroup_create(self, *arguments: Any, **options: Any) -> None:
        self._reach("xgroup_create")

    async def xpending_range(self, *arguments: Any, **options: Any) -> list[Any]:
        self._reach("xpending_range")
        return []

    async def xinfo_consumers(self, *arguments: Any) -> list[Any]:
        self._reach("xinfo_consumers")
        return []

    async def release(self, partition: int) -> None:
        self.released.append(partition)

    def _reach(self, step: str) -> None:
        if step == self._step:
            self._at()


async def nothing() -> None:
    """Nothing is settled."""


def new_lane() -> Lane:
    lane = Lane(TP("ledger", 3), "{rc:3}:ledger", asyncio.Event())
    lane.held = True
    return lane


@pytest.mark.parametrize("step", STEPS)
async def test_a_lane_let_go_while_it_starts_is_given_back(step: str) -> None:
    """Else it would be neither read nor given back, and the partition would stand still."""
    lane = new_lane()
    group = FakeGroup(step, lane.let_go)
    async with asyncio.timeout(3):
        await Keeper(cast(Group, group), lane, nothing).keep()
    assert group.released == [3]
    assert not lane.reading


async def test_a_lane_is_read_from_its_checkpoint_until_it_is_let_go() -> None:
    lane = new_lane()
    group = FakeGroup("", lambda: None)
    keeping = asyncio.create_task(Keeper(cast(Group, group), lane, nothing).keep())
    async with asyncio.timeout(3):
        while not lane.reading:
            lane.changed.clear()
            await lane.changed.wait()
        assert (lane.position, lane.seq) == (Position(5, 1), 7)
        assert not group.released
        lane.let_go()
        await keeping
    assert group.released == [3]
