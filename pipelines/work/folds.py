"""A stage at work on one target: what it asks, derives and folds. `Runner` drives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.graph.port import Transaction
from pipelines.work.stages import Stage
from projections.errors import FoldVersionMismatch, ModelsMismatch
from projections.events import Event
from projections.identity import Position
from projections.operations import Checkpoint, Operations

Placed = tuple[Position, Event]
"""An event and where the ledger keeps it."""


def as_they_are(events: Sequence[Placed]) -> Sequence[Any]:
    """Nothing is derived from an event alone."""
    return events


def within_partitions(_: Sequence[Any]) -> None:
    """What an entry says is about its own session."""


def unnoted(_: Sequence[tuple[int, int, Event]]) -> None:
    """Nothing is noted of what is derived."""


def uncounted(target: str, operations: Operations) -> None:
    """Nothing of a batch is counted but its operations."""


@dataclass(frozen=True, slots=True)
class StageFold:
    """A pure function from events, and the facts it asks for, to graph operations.

    Attributes:
        stage: whose row it is.
        gather: reads those facts, in the transaction and under the checkpoint's lock.
        gather_to_decide: the same and what decisions are made of, where somebody decides; None:
            nothing more is needed.
        fold: what was derived, and the facts → operations.
        derive: what can be said of each event alone, before the transaction; models run here.
            Called again with the same events when a transaction is tried again.
        reach: of what was derived from a batch, the position up to which the stage's upstream
            must have folded every partition; None: their own entries are enough.
        models: which models the graph depends on, beside the rules; empty: none.
        answer: decides what the rules left open; asked by live workers, after the commit.
        interrupt: ends what `derive` and `answer` wait for; from then on they raise Stopped where
            they would have to wait.
        count: counts in metrics what a batch does to a target, by its name.
        note: called with what was derived: partition, number within it and event of each entry.
    """

    stage: Stage
    gather: Callable[[Transaction, Sequence[Any]], Any]
    fold: Callable[[Sequence[Any], Any], Operations]
    derive: Callable[[Sequence[Placed]], Sequence[Any]] = as_they_are
    gather_to_decide: Callable[[Transaction, Sequence[Any]], Any] | None = None
    reach: Callable[[Sequence[Any]], Position | None] = within_partitions
    models: str = ""
    answer: Callable[[Sequence[Any]], Sequence[Event]] | None = None
    interrupt: Callable[[], None] | None = None
    count: Callable[[str, Operations], None] = uncounted
    note: Callable[[Sequence[tuple[int, int, Event]]], None] = unnoted

    def refuse_other(self, checkpoint: Checkpoint) -> None:
        """See that a graph was folded by these rules and models: never are two mixed in one.

        Raises:
            FoldVersionMismatch, ModelsMismatch: it was not, and has to be rebuilt.
        """
        name, version = self.stage.name, self.stage.fold_version
        if checkpoint.fold_version != version:
            raise FoldVersionMismatch(stage=name, found=checkpoint.fold_version, expected=version)
        if checkpoint.models != self.models:
            raise ModelsMismatch(
                stage=name, found=checkpoint.models or "none", expected=self.models
            )
