"""A graph in memory whose commits go wrong when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.graph.memory import MemoryGraph, MemoryTransaction
from pipelines.graph.rows import FoundNode
from projections.operations import Checkpoint, Key


class FaultyGraph(MemoryGraph):
    """The store itself, with a place for faults around each commit.

    Attributes:
        unsettled: partitions of stages whose commits show their checkpoints and no nodes yet, as a
            server may for some milliseconds.
        before_commit, after_commit: called around each commit; what they raise is what the caller
            of the transaction gets. Before it nothing is kept, after it all is.
        commits: how many there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unsettled: set[tuple[str, int]] = set()
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None
        self.commits = 0

    @contextmanager
    def transaction(self) -> Iterator[MemoryTransaction]:
        with super().transaction() as transaction:
            if self.unsettled:
                self._hide_nodes(transaction)
            yield transaction
            self.before_commit()
        self.commits += 1
        self.after_commit()

    def _hide_nodes(self, transaction: MemoryTransaction) -> None:
        """Of this transaction, until it has waited for the locks."""
        nodes, lock = transaction.nodes, transaction.lock

        def locked(stage: str, partition: int) -> Checkpoint | None:
            self.unsettled.discard((stage, partition))
            return lock(stage, partition)

        def shown(*asked: Any) -> dict[Key, FoundNode]:
            return {} if self.unsettled else nodes(*asked)

        transaction.nodes, transaction.lock = shown, locked  # type: ignore[method-assign, assignment]

    def settle(self, stage: str, partitions: Iterable[int]) -> None:
        self.unsettled.difference_update((stage, partition) for partition in partitions)
