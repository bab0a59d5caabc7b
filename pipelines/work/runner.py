"""Gather → fold → apply with position: the one mechanism behind live work, replay and rebuild.

A block of entries is folded in one transaction whose first statement locks and tests the
checkpoint and moves it to the block's end. Whatever happens to this process, to Redis or to Neo4j,
either the whole block is in the graph and the checkpoint behind it, or nothing is.

What may go wrong, and what is done about it:

- retryable (the graph is away, a deadlock, a time-out): again, with backoff, as long as it takes;
  a block that takes longer than a transaction may is halved, which never counts as an attempt;
- fenced (another worker moved the checkpoint): the caller starts again at the checkpoint;
- anything else: the block is halved until the entry at fault is alone, which is tried again, and
  becomes a DeadLetter in the transaction that passes it, unless too many do: see `poison`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import structlog

from pipelines.graph.port import Graph, Transaction
from pipelines.ledger.entries import Block, Entry
from pipelines.observe import metrics
from pipelines.work.folds import Placed, StageFold
from pipelines.work.poison import (
    NEVER_POISON,
    Board,
    Brake,
    GivenUp,
    PoisonPolicy,
    Result,
    Retries,
    describe,
)
from projections.errors import (
    EntryHeldOut,
    Fenced,
    RecollectError,
    UpstreamDeadLetter,
)
from projections.events import Event
from projections.identity import START
from projections.operations import Checkpoint, Operations
from projections.schema import BLOCKED_BY, HELD_OUT, POISON

logger = structlog.get_logger(__name__)


class Runner:
    """Folds blocks of one stage into one target. Threads may share it, one for each partition.

    Args:
        rules: the stage at work: the pure function and what it wants to know.
        graph: of the target.
        target: its name, for logs and metrics.
        policy: when an entry that fails becomes a dead letter.
        stop: set by whoever wants a retrying runner to give up (nothing is lost); see `interrupt`.
        decide: appends decisions to the ledger; None: this runner only applies recorded ones.
        board: where it shows that it holds, and is told to go on.
    """

    def __init__(
        self,
        rules: StageFold,
        graph: Graph,
        *,
        target: str,
        policy: PoisonPolicy | None = None,
        stop: threading.Event | None = None,
        decide: Callable[[Sequence[Event]], None] | None = None,
        board: Board | None = None,
    ) -> None:
        self.rules = rules
        self.stage = rules.stage
        self.graph = graph
        self.decide = decide
        self.target = target
        self.stop = stop or threading.Event()
        self._labels = {"stage": self.stage.name, "target": target}
        self.retries = Retries(self.stop, self._labels)
        self.brake = Brake(
            policy or PoisonPolicy(), **self._labels, retries=self.retries, board=board
        )
        self._known: dict[int, Checkpoint] = {}
        self._log = logger.bind(**self._labels)

    def prepare(self, partitions: int) -> None:
        """Create the target's constraints, indexes and missing checkpoints; wait for Neo4j."""
        self.retries.call(self.graph.ensure_schema)
        self.retries.call(
            lambda: self.graph.ensure_checkpoints(
                self.stage.name, partitions, self.stage.fold_version, self.rules.models
            )
        )

    def checkpoint(self, partition: int) -> Checkpoint:
        """Where the partition goes on, read from the graph.

        Raises:
            GraphUnavailable: Neo4j is away (not retried here).
            FoldVersionMismatch: the graph was folded by other rules.
        """
        for checkpoint in self.graph.checkpoints(self.stage.name):
            if checkpoint.partition == partition:
                self.rules.refuse_other(checkpoint)
                self._known[partition] = checkpoint
                return checkpoint
        # An emptied graph, perhaps another server: folding starts again from the ledger's start.
        self.graph.ensure_schema()
        self.graph.ensure_checkpoints(
            self.stage.name, partition + 1, self.stage.fold_version, self.rules.models
        )
        return self.checkpoint(partition)

    def apply(self, block: Block) -> Checkpoint:
        """Fold a block that starts right after the checkpoint, and move the checkpoint to its end.

        Blocks while it retries.

        Raises:
            Fenced: the checkpoint is elsewhere; read it and start there.
            FoldVersionMismatch: the graph was folded by other rules.
            Stopped: `stop` was set while retrying.
            StageHeld: too many different entries fail, and the policy's patience is over.
        """
        start = self._start_of(block)
        begun = perf_counter()
        try:
            end = self._fold(start, block.entries)
        except NEVER_POISON:
            self._forget(start)  # a part of the block may be in the graph
            raise
        self._note_applied(block, end, begun)
        return end

    def apply_together(self, blocks: Sequence[Block]) -> dict[int, RecollectError | None]:
        """Fold blocks of different partitions, in one transaction if all goes well.

        A transaction costs as much for one entry as for fifty, and live blocks are small. Whatever
        goes wrong with all of them together is found out, and dealt with, one by one.

        Returns:
            By partition None, or the error that `apply` raised; then nothing of the block was
            applied.
        """
        if len(blocks) > 1:
            begun = perf_counter()
            try:
                ends = self._advance_all(sorted(blocks))
                self.brake.passed()
            except Exception as error:  # noqa: BLE001  one by one, each error finds its block
                self._log.debug("applied one by one", blocks=len(blocks), reason=describe(error))
            else:
                for block, end in ends:
                    self._note_applied(block, end, begun)
                return dict.fromkeys(block.partition for block in blocks)
        outcomes: dict[int, RecollectError | None] = {}
        for block in blocks:
            try:
                self.apply(block)
                outcomes[block.partition] = None
            except RecollectError as error:
                outcomes[block.partition] = error
        return outcomes

    def _advance_all(self, blocks: Sequence[Block]) -> list[tuple[Block, Checkpoint]]:
        """One transaction for several partitions, their checkpoints locked in order."""
        moves = []
        entries: list[Entry] = []
        for block in blocks:
            start = self._start_of(block)
            moves.append((block, start, _end_of(start, block.entries)))
            entries += block.entries
        derived = self._derive(entries)
        self._await_upstream([end for _, _, end in moves], derived)
        with self.graph.transaction() as transaction:
            for _, start, end in moves:
                transaction.advance(start, end)
            operations = self._write(transaction, derived)
        self._answer(operations)
        return [(block, end) for block, _, end in moves]

    def _start_of(self, block: Block) -> Checkpoint:
        """The checkpoint, which must stand right before the block.

        Raises:
            Fenced: it does not.
        """
        start = self._known.get(block.partition)
        if start is None:
            start = self.retries.call(lambda: self.checkpoint(block.partition))
        if not self._follows(start, block.entries):
            self._forget(start)
            raise self._fenced(start)
        return start

    def _follows(self, start: Checkpoint, entries: Sequence[Entry]) -> bool:
        """Whether entries stand right behind a checkpoint."""
        first = start.seq + 1
        return [e.seq for e in entries] == list(range(first, first + len(entries)))

    def _note_applied(self, block: Block, end: Checkpoint, begun: float) -> None:
        self._known[block.partition] = end
        metrics.BLOCKS_APPLIED.labels(**self._labels).inc()
        metrics.ENTRIES_APPLIED.labels(**self._labels).inc(len(block.entries))
        self._log.debug(
            "block applied",
            partition=block.partition,
            position=str(end.position),
            entries=len(block.entries),
            request_ids=sorted({e.request_id for e in block.entries if e.request_id})[:20],
            duration_ms=round((perf_counter() - begun) * 1000, 1),
        )

    def interrupt(self) -> None:
        """Stop waiting, also for models: blocks that need it end in Stopped, without a trace."""
        self.stop.set()
        if self.rules.interrupt is not None:
            self.rules.interrupt()

    def refold(self, partition: int, entries: Sequence[Entry]) -> list[tuple[Entry, str]]:
        """Fold entries once more into the same graph, without moving the checkpoint.

        Its lock is taken, and entries beyond it are left to the live worker. An entry that passes
        loses its dead letter. Operations are idempotent, so a graph that holds the entries already
        stays as it is.

        Returns:
            The entries that could not be folded, each with the reason.

        Raises:
            StageHeld: so many different entries fail that it is not their fault.
            FoldVersionMismatch, ModelsMismatch, Stopped: as `apply`.
        """
        if not entries:
            return []

        attempt = partial(self._try, lambda: self._refold_once(partition, entries), entries)
        try:
            attempt()
        except NEVER_POISON:
            raise
        except Exception as error:  # noqa: BLE001  unknown means poison: find the entry
            if len(entries) > 1:
                middle = len(entries) // 2
                return [
                    *self.refold(partition, entries[:middle]),
                    *self.refold(partition, entries[middle:]),
                ]
            try:
                if self.brake.give_up_or_hold(entries[0], attempt, error) is None:
                    return self.refold(partition, entries)
            except GivenUp as given_up:
                return [(entries[0], describe(given_up.error))]
        return []

    # -- one block -----------------------------------------------------------------------------

    def _fold(self, start: Checkpoint, entries: Sequence[Entry]) -> Checkpoint:
        attempt = partial(self._try, lambda: self._advance(start, entries), entries)
        try:
            return attempt()
        except NEVER_POISON:
            raise
        except Exception as error:  # noqa: BLE001  the one place that decides about the unknown
            if len(entries) > 1:
                metrics.BISECTIONS.labels(**self._labels).inc()
                middle = len(entries) // 2
                return self._fold(self._fold(start, entries[:middle]), entries[middle:])
            try:
                return self.brake.try_alone(entries[0], attempt, error)
            except GivenUp as given_up:
                return self._pass_poison(start, entries[0], given_up.error)

    def _try(self, call: Callable[[], Result], entries: Sequence[Entry]) -> Result:
        """One attempt to fold entries, as long as what is in its way passes by itself."""
        result = self.retries.call(call, may_halve=len(entries) > 1)
        self.brake.passed()
        return result

    def _pass_poison(self, start: Checkpoint, entry: Entry, error: Exception) -> Checkpoint:
        """Record the entry as a dead letter and go on behind it."""
        reason = describe(error)
        kind = _kind_of(error)
        end = self.retries.call(lambda: self._advance(start, [entry], poison=(kind, reason)))
        self._note_dead_letter(entry, reason)
        return end

    def _note_dead_letter(self, entry: Entry, reason: str) -> None:
        metrics.DEAD_LETTERS_MADE.labels(**self._labels).inc()
        self._log.error(
            "dead letter",
            partition=entry.partition,
            position=str(entry.position),
            request_id=entry.request_id,
            attempts=self.brake.policy.max_attempts,
            reason=reason,
        )

    def _advance(
        self,
        start: Checkpoint,
        entries: Sequence[Entry],
        poison: tuple[str, str] | None = None,
    ) -> Checkpoint:
        """One transaction. With `poison` (kind, reason) the entry is recorded, not folded."""
        end = _end_of(start, entries)
        operations = Operations()
        derived = self._derive(entries) if poison is None else []
        self._await_upstream([end], derived)
        try:
            with self.graph.transaction() as transaction:
                transaction.advance(start, end)
                if poison is None:
                    operations = self._write(transaction, derived)
                else:
                    self._record(transaction, entries[0], *poison)
        except Fenced:
            return self._explain(start, end)
        self._answer(operations)
        return end

    def _answer(self, operations: Operations) -> None:
        """Decide what the rules left open, outside the transaction: a model may be slow.

        A crash before it leaves the question open for good, which is a missed decision and no
        wrong one.
        """
        if operations.questions and self.decide is not None and self.rules.answer is not None:
            try:
                if decided := self.rules.answer(operations.questions):
                    self.decide(decided)
            except RecollectError as error:
                self._log.warning(
                    "left open", questions=len(operations.questions), reason=str(error)
                )

    def _refold_once(self, partition: int, entries: Sequence[Entry]) -> None:
        withdrawn = _withdrawn(entries)
        derived = self._derive(entries)  # models run before the lock is taken
        with self.graph.transaction() as transaction:
            current = transaction.lock(self.stage.name, partition)
            if current is None:
                return
            self.rules.refuse_other(current)
            passed = [entry for entry in entries if entry.position <= current.position]
            # What was read with a key that is gone by now would come back after an erasure.
            if len(passed) < len(entries) or _withdrawn(entries) != withdrawn:
                derived = self._derive(passed)
            self._write(transaction, derived)
            transaction.drop_dead_letters(
                self.stage.name, partition, [entry.seq for entry in passed]
            )

    def _await_upstream(self, ends: Sequence[Checkpoint], derived: Sequence[Any]) -> None:
        """Wait until the earlier stage has folded these entries too, as long as it takes.

        Raises:
            Stopped: `stop` was set meanwhile.
        """
        upstream = self.stage.upstream
        if upstream is None:
            return

        def passed() -> bool:
            # After a loss it has the number of an entry that another one has now.
            at = {c.partition: (c.seq, c.position) for c in self.graph.checkpoints(upstream)}
            there = [(end, at.get(end.partition, (-1, START))) for end in ends]
            return all(n >= end.seq and place >= end.position for end, (n, place) in there)

        self.retries.wait_until(passed, f"the {upstream} goes first")
        self.graph.settle(upstream, [end.partition for end in ends])

    def _decode(self, entries: Sequence[Entry]) -> list[Placed]:
        begun = perf_counter()
        events = [(entry.position, entry.event()) for entry in map(self._again, entries)]
        self._observe("decode", begun)
        return events

    def _again(self, entry: Entry) -> Entry:
        """The entry, or what the ledger says of it by now."""
        return entry

    def _derive(self, entries: Sequence[Entry]) -> Sequence[Any]:
        events = self._decode(entries)
        begun = perf_counter()
        derived = self.rules.derive(events)
        self.rules.note(
            [
                (entry.partition, entry.seq, event)
                for entry, (_, event) in zip(entries, events, strict=True)
            ]
        )
        self._observe("derive", begun)
        return derived

    def _write(self, transaction: Transaction, derived: Sequence[Any]) -> Operations:
        begun = perf_counter()
        to_decide = self.rules.gather_to_decide if self.decide is not None else None
        facts = (to_decide or self.rules.gather)(transaction, derived)
        begun = self._observe("gather", begun)
        operations = self.rules.fold(derived, facts)
        begun = self._observe("fold", begun)
        transaction.apply(operations, self.stage.name)
        self._observe("write", begun)
        if operations.decisions and self.decide is not None:
            # Before the commit: a crash in between decides again, under the same event ids.
            self.decide(operations.decisions)
        for kind, count in operations.counts().items():
            if count:
                metrics.OPERATIONS.labels(**self._labels, kind=kind).inc(count)
        self.rules.count(self.target, operations)
        return operations

    def _record(self, transaction: Transaction, entry: Entry, kind: str, reason: str) -> None:
        tenant = event_id = None
        with suppress(RecollectError):  # what is no event has no id; its position tells where it is
            tenant, event_id = self._again(entry).event().key
        transaction.add_dead_letter(
            self.stage.name,
            entry.partition,
            entry.seq,
            position=str(entry.position),
            tenant=tenant,
            event_id=event_id,
            kind=kind,
            reason=reason[:1_000],
            attempts=self.brake.policy.max_attempts,
        )

    # -- fences and retries ----------------------------------------------------------------------

    def _explain(self, start: Checkpoint, end: Checkpoint) -> Checkpoint:
        """Why the fence held: a commit of ours whose answer was lost, other rules, or a rival."""
        for checkpoint in self.graph.checkpoints(self.stage.name):
            if checkpoint.partition == start.partition:
                self.rules.refuse_other(checkpoint)
                if checkpoint == end:
                    return end
        metrics.FENCED_BLOCKS.labels(**self._labels).inc()
        raise self._fenced(start)

    def _fenced(self, start: Checkpoint) -> Fenced:
        return Fenced(
            stage=self.stage.name,
            partition=start.partition,
            position=str(start.position),
            generation=start.generation,
        )

    def _forget(self, start: Checkpoint) -> None:
        self._known.pop(start.partition, None)

    def _observe(self, phase: metrics.Phase, begun: float) -> float:
        now = perf_counter()
        metrics.BLOCK_DURATION.labels(**self._labels, phase=phase).observe(now - begun)
        return now


def _withdrawn(entries: Sequence[Entry]) -> int:
    """Another number than before once a key of one of them may have gone."""
    vaults = {id(entry.keys): entry.keys for entry in entries if entry.keys is not None}
    return sum(keys.withdrawn() for keys in vaults.values())


def _kind_of(error: Exception) -> str:
    """Of the dead letter that an entry becomes."""
    if isinstance(error, EntryHeldOut):
        return HELD_OUT
    return BLOCKED_BY if isinstance(error, UpstreamDeadLetter) else POISON


def _end_of(start: Checkpoint, entries: Sequence[Entry]) -> Checkpoint:
    """The checkpoint behind these entries."""
    last = entries[-1]
    return replace(start, position=last.position, seq=last.seq, digest=last.digest)
