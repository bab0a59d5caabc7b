"""Which blocks a worker takes next."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from pipelines.agents.app import Work
from tests.factories import block, session


def waiting(partition: int, blocks: int, size: int) -> deque[Any]:
    made = block(*session(f"s-{partition}", range(size)), partition=partition)
    return deque(SimpleNamespace(value=made) for _ in range(blocks))


def taken(work: Work) -> list[int]:
    """One turn: what is taken, and done at once."""
    events: list[Any] = list(work._take())
    partitions = [event.value.partition for event in events]
    work._busy.clear()
    return partitions


def test_full_blocks_take_turns_so_that_no_partition_starves() -> None:
    work = Work(lambda stop: None, concurrency=1, together=3)  # type: ignore[arg-type,return-value]  # never made
    work._waiting = {n: waiting(n, blocks=2, size=3) for n in range(3)}

    assert [taken(work) for _ in range(6)] == [[0], [1], [2], [0], [1], [2]]


def test_small_blocks_go_together_up_to_a_transaction() -> None:
    work = Work(lambda stop: None, concurrency=1, together=4)  # type: ignore[arg-type,return-value]  # never made
    work._waiting = {n: waiting(n, blocks=1, size=2) for n in range(3)}

    assert [taken(work), taken(work)] == [[0, 1], [2]]
