"""The stages of a target on threads of this process: what workers are where there are none.

The same runners as a worker's, driven by the ledger itself. A graph in memory begins empty whenever
its process does. What it was told before is then folded as a rebuild folds it: what was decided is
in the ledger, and nobody decides again. How far that goes is noted once a second; of what a crash
kept from being noted it is decided again, under the same ids.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from pipelines.graph.memory_graphs import is_in_memory, note_folding
from pipelines.ledger.ledger import Tail
from pipelines.ledger.registry import Report, Target
from pipelines.work.catch_up import fold_partition
from pipelines.work.live import Decisions, LiveRunner
from pipelines.work.poison import PoisonPolicy
from pipelines.work.services import Services, make_fold
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES, Stage
from projections.errors import RecollectError, Stopped

logger = structlog.get_logger(__name__)

DECIDED: Final = "decided"
"""Report of how far the stages of a target in memory have decided, by STAGE/PARTITION."""
LOOK: Final = "look"
"""Name of the thread that looks at the others; theirs are those of the stages."""
_POLL_S: Final = 0.05
_AGAIN_S: Final = 1.0
"""After an error, before the next try."""
_NOTE_EVERY_S: Final = 1.0


class Passes(Protocol):
    """Passes of consolidation on one target, begun when they are due."""

    every_s: float
    """Between two looks."""

    def begin(self) -> None:
        """Begin a pass if one is due; returns at once."""

    def stop(self) -> None:
        """End the pass under way, and wait for it."""


class StageThreads:
    """All stages of one target, a thread each, and its passes.

    Args:
        services: ledger and targets; a thread's own graph is the target's.
        target: that is folded into.
        passes: of a target, by its name.
    """

    def __init__(
        self, services: Services, target: Target, passes: Callable[[Settings, str], Passes]
    ) -> None:
        self._services = services
        self._target = target
        self._passes = passes
        self._stop = threading.Event()
        self._graph = services.graph(target)
        self._is_fresh = is_in_memory(target.uri)
        self._decided = services.reports.last(DECIDED, target.name) if self._is_fresh else {}
        self._begun_at: list[Tail] = []
        self._is_whole = threading.Event()
        self._runners: list[LiveRunner] = []
        works = [(stage.name, _Folding(self, stage)) for stage in STAGES.values()]
        self._threads = [
            threading.Thread(target=self._repeat, args=(work,), name=name, daemon=True)
            for name, work in works
        ]
        self._threads.append(threading.Thread(target=self._look, name=LOOK, daemon=True))

    def start(self) -> None:
        """Begin; a graph in memory is not whole before it has what the ledger holds now.

        Raises:
            LedgerUnavailable: Redis is away.
        """
        if self._is_fresh:
            self._begun_at = self._services.ledger.tails()
            self._graph.ensure_schema()
            if any(tail.seq for tail in self._begun_at):
                note_folding(self._target.uri, self._progress)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End at the next block, and wait for it, but not for ever."""
        self._stop.set()
        for runner in self._runners:
            runner.interrupt()
        until_s = time.monotonic() + self._services.settings.stop_timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        if self._is_fresh:
            self._note_decided()

    def _repeat(self, work: _Folding) -> None:
        while not self._stop.is_set():
            try:
                if not work.fold():
                    self._stop.wait(_POLL_S)
            except Stopped:
                return
            except RecollectError as error:
                logger.warning("a stage stands still", stage=work.stage.name, reason=str(error))
                self._stop.wait(_AGAIN_S)

    def _look(self) -> None:
        """Note how far it is, and begin passes that are due."""
        passes: Passes | None = None
        looks_at_s = 0.0
        while not self._stop.wait(_NOTE_EVERY_S if self.is_whole else _POLL_S):
            try:
                if self._is_fresh:
                    self._settle()
                if not self.is_whole:
                    continue
                if passes is None:
                    passes = self._passes(self._services.settings, self._target.name)
                if time.monotonic() >= looks_at_s:
                    looks_at_s = time.monotonic() + passes.every_s
                    passes.begin()
            except RecollectError as error:
                logger.info("looks again later", reason=str(error))
        if passes is not None:
            passes.stop()

    # -- a graph that began empty ------------------------------------------------------------------

    def _settle(self) -> None:
        """Let reads in once all is folded that was there at the start, and note what is decided."""
        if not self._is_whole.is_set():
            if self._left():
                return
            self._is_whole.set()
            note_folding(self._target.uri, None)
            logger.info("the graph is whole", target=self._target.name)
        self._note_decided()

    def _left(self) -> int:
        seqs = {
            (checkpoint.stage, checkpoint.partition): checkpoint.seq
            for checkpoint in self._graph.checkpoints()
        }
        return sum(
            max(0, tail.seq - seqs.get((stage, number), 0))
            for stage in STAGES
            for number, tail in enumerate(self._begun_at)
        )

    def _progress(self) -> str:
        total = len(STAGES) * sum(tail.seq for tail in self._begun_at)
        return f"it is being folded from the ledger: {total - self._left():,} of {total:,} steps"

    def _note_decided(self) -> None:
        reached = {f"{c.stage}/{c.partition}": float(c.seq) for c in self._graph.checkpoints()}
        decided = {name: max(seq, self._decided.get(name, 0.0)) for name, seq in reached.items()}
        if decided != self._decided:
            self._services.reports.put(Report(DECIDED, self._target.name, decided))
            self._decided = decided

    def decided_to(self, stage: Stage, partition: int) -> int:
        """Up to which entry a stage had decided when this process began."""
        return int(self._decided.get(f"{stage.name}/{partition}", 0))

    def runner(self, stage: Stage, *, decides: bool) -> LiveRunner:
        """A runner of a stage.

        Args:
            stage: which.
            decides: whether what it decides is appended.
        """
        services, target = self._services, self._target
        runner = LiveRunner(
            make_fold(stage, services, target),
            self._graph,
            services.ledger,
            target=target.name,
            policy=PoisonPolicy.of_live_work(services.settings),
            stop=self._stop,
            decide=Decisions(services, target.name) if decides else None,
            board=services.holds,
        )
        runner.prepare(services.ledger.partitions)
        self._runners.append(runner)
        return runner

    @property
    def services(self) -> Services:
        """Ledger and targets."""
        return self._services

    @property
    def graph_seqs(self) -> dict[tuple[str, int], int]:
        """How far each stage is, by partition."""
        return {
            (checkpoint.stage, checkpoint.partition): checkpoint.seq
            for checkpoint in self._graph.checkpoints()
        }

    @property
    def stopped(self) -> bool:
        """Whether it is to end."""
        return self._stop.is_set()

    @property
    def is_whole(self) -> bool:
        """Whether it has all that the ledger held at the start."""
        return not self._is_fresh or self._is_whole.is_set()


class _Folding:
    """A stage that goes on from where it is."""

    def __init__(self, work: StageThreads, stage: Stage) -> None:
        self.stage = stage
        self._work = work
        self._before: LiveRunner | None = None
        self._live: LiveRunner | None = None
        self._decided: dict[int, int] = {}

    def fold(self) -> bool:
        """Fold a block of each partition that is behind; whether there was any."""
        services = self._work.services
        if self._live is None:
            partitions = range(services.ledger.partitions)
            self._decided = {n: self._work.decided_to(self.stage, n) for n in partitions}
            self._live = self._work.runner(self.stage, decides=True)
            self._before = self._work.runner(self.stage, decides=False)
        seqs = self._work.graph_seqs
        was_behind = False
        for partition, tail in enumerate(services.ledger.tails()):
            seq = seqs.get((self.stage.name, partition), 0)
            if seq < tail.seq and not self._work.stopped:
                was_behind = True
                self._fold_some(partition, seq, tail)
        return was_behind

    def _fold_some(self, partition: int, seq: int, tail: Tail) -> None:
        settings, stage = self._work.services.settings, self.stage
        size = stage.batch_size if self._work.is_whole else stage.rebuild_batch_size
        count = size(settings)
        runner, left = self._live, self._decided[partition] - seq
        if left > 0:
            runner, count = self._before, min(count, left)
        assert runner is not None
        blocks = fold_partition(
            ledger=self._work.services.ledger,
            runner=runner,
            partition=partition,
            until=tail,
            count=count,
        )
        next(blocks, None)
