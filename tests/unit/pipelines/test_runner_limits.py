"""What the runner does with a block that takes longer than a transaction may."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from pipelines.runner import Runner, Stopped
from pipelines.stages import PROJECTION
from projections.errors import TransactionTimeout
from projections.operations import Operations
from tests.factories import block, session
from tests.fakes.graph import FakeGraphWriter


class SlowGraph(FakeGraphWriter):
    """Stops every transaction that writes more than so many nodes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.sizes: list[int] = []

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with super().transaction() as transaction:
            apply = transaction.apply

            def limited(operations: Operations, stage: str) -> None:
                self.sizes.append(len(operations.merge_nodes))
                if self.sizes[-1] > self.most:
                    raise TransactionTimeout(reason="too long")
                apply(operations, stage)

            transaction.apply = limited  # type: ignore[method-assign]  # of this transaction
            yield transaction


class Impatient(threading.Event):
    """Set after a number of waits, so that a runner that retries for ever ends."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self.left = waits

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        if self.left <= 0:
            self.set()
        return self.is_set()


def checkpoints(writer: FakeGraphWriter) -> Sequence[Any]:
    return list(writer.checkpoints("projection"))


def test_a_block_that_takes_too_long_is_halved_until_it_fits() -> None:
    writer = SlowGraph(most=3)
    runner = Runner(PROJECTION, writer.as_writer(), target="blue")
    writer.ensure_checkpoints("projection", 1, PROJECTION.fold_version)

    end = runner.apply(block(*session("s", range(1, 11))))

    assert end.seq == 10
    assert max(size for size in writer.sizes if size <= 3) == 3
    assert len(writer.graph.visible().nodes) == 10


def test_a_single_event_that_takes_too_long_is_tried_until_told_to_stop_and_never_given_up() -> (
    None
):
    writer = SlowGraph(most=0)
    runner = Runner(PROJECTION, writer.as_writer(), target="blue", stop=Impatient(20))
    writer.ensure_checkpoints("projection", 1, PROJECTION.fold_version)

    with pytest.raises(Stopped):
        runner.apply(block(*session("s", [1])))

    assert len(writer.sizes) >= 19
    assert [checkpoint.seq for checkpoint in checkpoints(writer)] == [0]
