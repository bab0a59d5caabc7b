"""What the runner does with blocks that take too long, and with several at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from pipelines.graph.rows import FoundNode
from pipelines.ledger.entries import Block
from pipelines.work.runner import Runner
from pipelines.work.stages import PROJECTION
from projections.errors import Fenced, GraphRejected, Stopped, TransactionTimeout
from projections.operations import Operations
from projections.schema import EVENT
from tests.factories import block, event_id, session
from tests.fakes.stages import PROJECTING, QUICK
from tests.faulty_graph import FaultyGraph


class SlowGraph(FaultyGraph):
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


class Faulty(FaultyGraph):
    """Refuses every transaction with one particular event in it."""

    def __init__(self, poison: str) -> None:
        super().__init__()
        self.poison = poison

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with super().transaction() as transaction:
            apply = transaction.apply

            def checked(operations: Operations, stage: str) -> None:
                if any(key[1] == self.poison for _, key in operations.merge_nodes):
                    raise GraphRejected(reason="poison")
                apply(operations, stage)

            transaction.apply = checked  # type: ignore[method-assign]  # of this transaction
            yield transaction


def count(graph: FaultyGraph) -> int:
    return sum(node.visible for node in cast(Iterator[FoundNode], graph.stream(EVENT.label)))


def checkpoints(graph: FaultyGraph) -> Sequence[Any]:
    return list(graph.checkpoints("projection"))


def test_a_block_that_takes_too_long_is_halved_until_it_fits() -> None:
    graph = SlowGraph(most=3)
    runner = Runner(PROJECTING, graph, target="blue")
    graph.ensure_checkpoints("projection", 1, PROJECTION.fold_version)

    end = runner.apply(block(*session("s", range(1, 11))))

    assert end.seq == 10
    assert max(size for size in graph.sizes if size <= 3) == 3
    assert count(graph) == 10


def test_a_single_event_that_takes_too_long_is_tried_until_told_to_stop_and_never_given_up() -> (
    None
):
    graph = SlowGraph(most=0)
    runner = Runner(PROJECTING, graph, target="blue", stop=Impatient(20))
    graph.ensure_checkpoints("projection", 1, PROJECTION.fold_version)

    with pytest.raises(Stopped):
        runner.apply(block(*session("s", [1])))

    assert len(graph.sizes) >= 19
    assert [checkpoint.seq for checkpoint in checkpoints(graph)] == [0]


def two_blocks() -> list[Block]:
    return [
        block(*session("a", range(1, 4)), partition=0),
        block(*session("b", range(4, 9)), partition=1),
    ]


def test_blocks_of_several_partitions_share_one_transaction() -> None:
    graph = FaultyGraph()
    runner = Runner(PROJECTING, graph, target="blue")
    graph.ensure_checkpoints("projection", 2, PROJECTION.fold_version)

    outcomes = runner.apply_together(two_blocks())

    assert outcomes == {0: None, 1: None}
    assert graph.commits == 1
    assert [checkpoint.seq for checkpoint in checkpoints(graph)] == [3, 5]
    assert count(graph) == 8


def test_a_poison_event_in_one_block_does_not_touch_the_other() -> None:
    graph = Faulty(poison=event_id(5))
    runner = Runner(PROJECTING, graph, target="blue", policy=replace(QUICK, max_attempts=2))
    graph.ensure_checkpoints("projection", 2, PROJECTION.fold_version)

    outcomes = runner.apply_together(two_blocks())

    assert outcomes == {0: None, 1: None}
    assert [checkpoint.seq for checkpoint in checkpoints(graph)] == [3, 5]
    assert count(graph) == 7
    with graph.transaction() as transaction:
        assert [one["seq"] for one in transaction.dead_letters_of("projection", 1)] == [2]


def test_a_block_that_is_fenced_leaves_the_others_applied() -> None:
    graph = FaultyGraph()
    runner = Runner(PROJECTING, graph, target="blue")
    graph.ensure_checkpoints("projection", 2, PROJECTION.fold_version)
    first, second = two_blocks()
    late = block(*session("b", range(4, 9)), partition=1, first_seq=7)

    outcomes = runner.apply_together([first, late])

    assert outcomes[0] is None
    assert isinstance(outcomes[1], Fenced)
    assert [checkpoint.seq for checkpoint in checkpoints(graph)] == [3, 0]
    assert runner.apply_together([second]) == {1: None}
