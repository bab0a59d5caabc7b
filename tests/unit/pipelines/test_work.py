"""Which blocks a worker takes next."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.ledger.entries import Entry
from pipelines.work.app import Work
from projections.errors import RecollectError
from projections.operations import Checkpoint
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


class Slow:
    """A folder that takes its time to be made."""

    def __init__(self) -> None:
        self.interrupted = False

    def checkpoint(self, partition: int) -> Checkpoint:
        return Checkpoint("slow", partition)

    def read(self, *_: object) -> list[Entry]:
        """The ledger has nothing to object to what was read."""
        return []

    def apply_together(self, blocks: object) -> dict[int, RecollectError | None]:
        raise NotImplementedError

    def interrupt(self) -> None:
        self.interrupted = True


@pytest.mark.parametrize("when", ["while it is made", "when it is there"])
def test_a_folder_is_interrupted_whenever_the_end_comes(when: str) -> None:
    folder = Slow()

    def make(stop: threading.Event) -> Slow:
        if when == "while it is made":
            work.end()
        return folder

    work = Work(make, 1, 1)
    work._ready()
    if when == "when it is there":
        assert not folder.interrupted
        work.end()
    assert (folder.interrupted, work.stop.is_set()) == (True, True)
