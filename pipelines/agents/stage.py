"""A stage's app with the real runner behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pipelines import logs
from pipelines.adapters.graph_writer import GraphWriter
from pipelines.adapters.ledger import Ledger
from pipelines.agents import app
from pipelines.agents.app import StageApp
from pipelines.runner import Runner
from pipelines.services import Services
from pipelines.settings import Settings
from pipelines.stages import Stage, ready
from projections.errors import EventConflict, GraphAhead, RecollectError, Stopped
from projections.events import Event
from projections.operations import Checkpoint
from projections.positions import Position

GIVE_WAY_ENTRIES = 200
"""Entries that an earlier stage may be behind the ledger before a later one lets it go first."""
GIVE_WAY_S = 2.0
"""Longest wait before a block: a stage that is always behind must not stop the later one."""
_GIVE_WAY_STEP_S = 0.05


class LiveRunner(Runner):
    """A runner whose partitions start only where the ledger still has the checkpoint's entry.

    Admission compares the two when a server process is new; but a block that was read before a
    crash may be folded after that, so each start compares again.

    A stage that stands on another lets it go first: the system's priorities hold for processes,
    but both ask one Neo4j, which knows none.
    """

    def __init__(
        self,
        stage: Stage,
        writer: GraphWriter,
        ledger: Ledger,
        *,
        target: str,
        max_attempts: int,
        stop: threading.Event,
        decide: Callable[[Sequence[Event]], None] | None = None,
    ) -> None:
        super().__init__(
            stage, writer, target=target, max_attempts=max_attempts, stop=stop, decide=decide
        )
        self.ledger = ledger

    def checkpoint(self, partition: int) -> Checkpoint:
        """Where the partition goes on.

        Raises:
            GraphAhead: the ledger lost the entry; the partition is halted until `recover`.
        """
        found = super().checkpoint(partition)
        if not self.ledger.missing_checkpoints([found]):
            return found
        self.ledger.halt(self.target, found)
        again = super().checkpoint(partition)
        if not self.ledger.missing_checkpoints([again]):  # `recover` was at work
            self.ledger.release(partition)
            return again
        self._forget(again)
        raise GraphAhead(
            partition=partition, position=str(found.position), reason="its entry is gone"
        )

    def _await_upstream(self, ends: Sequence[Checkpoint], derived: Sequence[Any]) -> None:
        super()._await_upstream(ends, derived)
        if self.stage.upstream is None:
            return
        until = self.stage.reach(derived)
        if until is not None:
            upstream = self.stage.upstream
            self._await(lambda: self._has_passed(upstream, until))
        for _ in range(round(GIVE_WAY_S / _GIVE_WAY_STEP_S)):
            if self._behind(self.stage.upstream) <= GIVE_WAY_ENTRIES:
                return
            if self.stop.wait(_GIVE_WAY_STEP_S):
                raise Stopped()

    def _has_passed(self, stage: str, until: Position) -> bool:
        """Whether a stage has folded every entry up to a position, in all partitions.

        Positions are handed out in order over all partitions: what comes later is behind `until`.
        A rebuild and a replay need not ask: there each stage folds all before the next.
        """
        tails = self.ledger.tails()
        return all(
            found.position >= until or found.seq >= tails[found.partition].seq
            for found in self.writer.checkpoints(stage)
        )

    def _behind(self, stage: str) -> int:
        passed = sum(found.seq for found in self.writer.checkpoints(stage))
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
        if self._services.active().name != self._target:
            return
        for outcome in self._services.ledger.append(events):
            if isinstance(outcome, RecollectError) and not isinstance(outcome, EventConflict):
                raise outcome


def make_app(stage: Stage, settings: Settings, target: str) -> StageApp:
    """The Faust app of a stage on a registered target; connects when the worker starts."""
    # Not when the worker starts: by then `faust worker` has put a proxy in stderr's place.
    logs.configure_logging(settings)
    return _make_app(stage, Services(settings), target)


def run(stage: Stage, settings: Settings, target: str) -> int:
    """Run a worker in this process until SIGTERM or SIGINT; its exit code."""
    logs.configure_logging(settings)
    with Services(settings) as services:
        return app.run(_make_app(stage, services, target))


def _make_app(stage: Stage, services: Services, target: str) -> StageApp:
    settings = services.settings

    def make_runner(stop: threading.Event) -> Runner:
        services.active()  # registers the settings' target in a fresh deployment
        chosen = services.targets.get(target)
        runner = LiveRunner(
            ready(stage, services, chosen),
            services.writer(chosen),
            services.ledger,
            target=target,
            max_attempts=settings.max_attempts,
            stop=stop,
            decide=Decisions(services, target),
        )
        runner.prepare(settings.partitions)
        return runner

    sized = settings.model_copy(update={"batch_size": stage.batch_size(settings)})
    return StageApp(stage.name, sized, target, make_runner)
