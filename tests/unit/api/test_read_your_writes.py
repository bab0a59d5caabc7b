"""Who waits for a position sees the event that stands there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from api.services import Deadline, Services, wait_until_projected
from pipelines.graph.answers.reader import PortReader
from pipelines.work.stages import PROJECTION
from projections.identity import Position
from tests.memory_stack import PARTITIONS, MemoryStack


@pytest.fixture
def stack() -> MemoryStack:
    made = MemoryStack()
    made.fill()
    return made


def services_of(stack: MemoryStack) -> Services:
    async def read(work: Callable[[], Any], timeout_ms: int) -> Any:
        return work()

    reader = PortReader(stack.graph)
    graph = SimpleNamespace(reader=lambda: nullcontext(reader))
    connections = SimpleNamespace(graph=graph)
    given = SimpleNamespace(ledger=lambda: stack.ledger, read=read, connections=connections)
    return cast(Services, given)


def wait_for(stack: MemoryStack, position: Position) -> None:
    services = services_of(stack)
    anyio.run(lambda: wait_until_projected(services, position, Deadline(5_000)))


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_a_read_begins_once_all_of_the_commit_can_be_read(
    stack: MemoryStack, partition: int
) -> None:
    stack.graph.unsettled = {(PROJECTION.name, partition)}
    wait_for(stack, stack.ledger.tails()[partition].position)
    assert not stack.graph.unsettled


def test_of_a_position_between_entries_all_partitions_count(stack: MemoryStack) -> None:
    stack.graph.unsettled = {(PROJECTION.name, partition) for partition in range(PARTITIONS)}
    first, *_ = next(iter(stack.ledger.scan(0)))
    wait_for(stack, Position(first.position.ms - 1, 999_999))
    assert not stack.graph.unsettled
