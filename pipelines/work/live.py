"""Live work: a runner that watches its ledger, and what it decides.

The workers' Faust apps (`agents`) drive it, and so does a pass of consolidation where no worker
runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipelines.graph.port import Graph
from pipelines.ledger.entries import Block, Entry, Start
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.work.folds import StageFold
from pipelines.work.poison import Board, PoisonPolicy
from pipelines.work.runner import Runner
from pipelines.work.services import Services
from projections.errors import EventConflict, GraphAhead, RecollectError, SubjectErased
from projections.events import Event
from projections.identity import Position
from projections.operations import Checkpoint
from projections.schema import HELD_OUT

GIVE_WAY_ENTRIES = 200
"""Entries that an earlier stage may be behind the ledger before a later one lets it go first."""
GIVE_WAY_S = 2.0
"""Longest wait before a block: a stage that is always behind must not stop the later one."""
_GIVE_WAY_STEP_S = 0.05
LOOK_EVERY_S = 5.0
"""Between two looks whether entries that were held out have been put right."""
_AT_ONCE = 1_000
"""Entries that are read anew, at most."""


class LiveRunner(Runner):
    """A runner whose partitions start only where the ledger still has the checkpoint's entry.

    Admission compares the two when a server process is new; but a block that was read before a
    crash may be folded after that, so each start compares again.

    A stage that stands on another lets it go first: the system's priorities hold for processes,
    but both ask one Neo4j, which knows none.
    """

    def __init__(
        self,
        rules: StageFold,
        graph: Graph,
        ledger: Ledger,
        *,
        target: str,
        policy: PoisonPolicy | None = None,
        stop: threading.Event,
        decide: Callable[[Sequence[Event]], None] | None = None,
        board: Board | None = None,
    ) -> None:
        super().__init__(
            rules,
            graph,
            target=target,
            policy=policy,
            stop=stop,
            decide=decide,
            board=board,
        )
        self.ledger = ledger
        self._looking = threading.Lock()
        self._next_look_s = time.monotonic() + LOOK_EVERY_S

    def checkpoint(self, partition: int) -> Checkpoint:
        """Where the partition goes on.

        Raises:
            GraphAhead: the ledger lost the entry; the partition is halted until `recover`.
        """
        self._bring_back()
        first = super().checkpoint(partition)
        if not self.ledger.missing_checkpoints([first]):
            return first
        self.ledger.halt(self.target, first)
        again = super().checkpoint(partition)
        if not self.ledger.missing_checkpoints([again]):  # `recover` was at work
            self.ledger.release(partition)
            return again
        self._forget(again)
        raise GraphAhead(
            partition=partition, position=str(first.position), reason="its entry is gone"
        )

    def read(self, partition: int, after: Start, until: Position) -> Sequence[Entry]:
        """See `transport.Positions`."""
        return self.ledger.read(partition, after.position, _AT_ONCE, until, after_seq=after.seq)

    def apply_together(self, blocks: Sequence[Block]) -> dict[int, RecollectError | None]:
        """As every runner, and now and then what was held out before."""
        outcomes = super().apply_together(blocks)
        self._bring_back()
        return outcomes

    def _again(self, entry: Entry) -> Entry:
        """The entry with what opens it; of one that is held out, what the ledger says by now."""
        if not entry.fault:
            return entry.opened_by(self.ledger.vault)
        now = self.ledger.entry_at(entry.partition, entry.position, entry.seq)
        return entry if now is None else now._replace(position=entry.position)

    def _bring_back(self) -> None:
        """Fold entries at their places that were held out and have been put right.

        Of those that an earlier stage has not brought back yet, the next look is for. What goes
        wrong is left to it, too: the dead letters are still there.
        """
        with self._looking:
            now_s = time.monotonic()
            if now_s < self._next_look_s:
                return
            self._next_look_s = now_s + LOOK_EVERY_S
        try:
            letters = self.graph.dead_letters()
            upstream = self.stage.upstream
            waiting = {
                (one["partition"], one["seq"]) for one in letters if one["stage"] == upstream
            }
            for letter in letters:
                place = letter["partition"], letter["seq"]
                is_mine = letter["stage"] == self.stage.name and letter["kind"] == HELD_OUT
                if is_mine and place not in waiting:
                    self._bring_back_one(letter)
        except RecollectError as error:
            self._log.info("held-out entries are looked at later", reason=str(error))

    def _bring_back_one(self, letter: Mapping[str, Any]) -> None:
        position = Position.parse(letter["position"])
        entry = self.ledger.entry_at(letter["partition"], position, letter["seq"])
        if entry is not None and not entry.fault:
            failed = self.refold(letter["partition"], [entry])
            self._log.info(
                "folded, having been put right",
                partition=letter["partition"],
                position=str(entry.position),
                failed=[reason for _, reason in failed],
            )

    def _await_upstream(self, ends: Sequence[Checkpoint], derived: Sequence[Any]) -> None:
        super()._await_upstream(ends, derived)
        if self.stage.upstream is None:
            return
        until = self.rules.reach(derived)
        if until is not None:
            upstream = self.stage.upstream
            self.retries.wait_until(
                lambda: self._has_passed(upstream, until), f"the {upstream} goes first"
            )
            self.graph.settle(upstream, range(self.ledger.partitions))
        for _ in range(round(GIVE_WAY_S / _GIVE_WAY_STEP_S)):
            if self._behind(self.stage.upstream) <= GIVE_WAY_ENTRIES:
                return
            self.retries.pause(_GIVE_WAY_STEP_S)

    def _has_passed(self, stage: str, until: Position) -> bool:
        """Whether a stage has folded every entry up to a position, in all partitions.

        Positions are handed out in order over all partitions: what comes later is behind `until`.
        A rebuild and a replay need not ask: there each stage folds all before the next.
        """
        tails = self.ledger.tails()
        return all(
            checkpoint.position >= until or checkpoint.seq >= tails[checkpoint.partition].seq
            for checkpoint in self.graph.checkpoints(stage)
        )

    def _behind(self, stage: str) -> int:
        passed = sum(checkpoint.seq for checkpoint in self.graph.checkpoints(stage))
        return sum(tail.seq for tail in self.ledger.tails()) - passed


class Decisions:
    """Appends what a live worker decided, if its target is the active one.

    Others only apply what is recorded. A decision has an id of its own, so one that was appended
    before a crash comes back as a duplicate, or in other words as a conflict: then the ledger's
    version is the one that counts, and everybody reads it there.
    """

    def __init__(self, services: Services, target: str) -> None:
        self._services = services
        self._target = target

    def __call__(self, events: Sequence[Event]) -> None:
        """Append them.

        Raises:
            LedgerUnavailable: then the transaction that decided is not committed, and tried again.
        """
        if self.may_decide():
            self.append(events)

    def may_decide(self) -> bool:
        """Whether the target is the active one."""
        return self._services.active().name == self._target

    def append(self, events: Sequence[Event]) -> int:
        """Append them, whichever target is active; how many the ledger did not hold already.

        Raises:
            LedgerUnavailable: some of the front may have been appended.
        """
        new = 0
        for outcome in self._services.ledger.append(events):
            if isinstance(outcome, Appended):
                new += not outcome.duplicate
            elif not isinstance(outcome, EventConflict | SubjectErased):
                raise outcome
        return new
