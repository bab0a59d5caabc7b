"""A stage as a Faust app: one agent that hands blocks to a runner, in order within a partition.

`recollect worker STAGE` runs one; `faust -A pipelines.work.app:STAGE worker` is the same with
settings from the environment, for every row of `stages.STAGES`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, ClassVar, Protocol, cast

import faust
from faust.app import BootStrategy
from faust.types import EventT, StreamT

from pipelines.ledger.entries import Block, Entry, Start
from pipelines.local.python_process import collect_rarely, step_back
from pipelines.observe import logs, metrics, progress
from pipelines.work.live import Decisions, LiveRunner
from pipelines.work.poison import PoisonPolicy
from pipelines.work.services import Services, make_fold
from pipelines.work.settings import Settings, load_settings
from pipelines.work.stages import STAGES, Stage, group_name, load
from pipelines.work.transport import LEDGER_TOPIC, LOOPS, BlockSchema, Consumer
from projections.errors import Fenced, RecollectError, Stopped
from projections.identity import Position

logger = logging.getLogger(__name__)


class Folder(Protocol):
    """What applies blocks: a Runner. But for `interrupt` it blocks, and is called in threads."""

    def checkpoint(self, partition: int) -> Start:
        """Where the partition goes on."""

    def read(self, partition: int, after: Start, until: Position) -> Sequence[Entry]:
        """Entries behind a place up to a position, those held out among them."""

    def apply_together(self, blocks: Sequence[Block]) -> Mapping[int, RecollectError | None]:
        """Fold blocks of different partitions and move their checkpoints.

        Returns:
            By partition None, or why its block was not applied; then nothing of it was.
        """

    def interrupt(self) -> None:
        """End all waiting: blocks that need it are not applied."""


MakeFolder = Callable[[threading.Event], Folder]
"""Connects and prepares; called in a thread, again after a failure. The event means: stop."""


class Work:
    """The runner behind an app, made when first needed, and how blocks get to it.

    Args:
        make_folder: makes the runner.
        concurrency: transactions at once.
        together: entries of different partitions that may share one.
    """

    def __init__(self, make_folder: MakeFolder, concurrency: int, together: int) -> None:
        self.stop = threading.Event()
        self._make_folder = make_folder
        self._folder: Folder | None = None
        self._making = threading.Lock()
        # Threads of their own: checkpoints that wait for an absent Neo4j must not hold up blocks.
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="apply")
        self._room = concurrency
        self._together = together
        self._waiting: dict[int, deque[EventT[Block]]] = {}
        self._busy: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, partition: int) -> Start:
        """The partition's checkpoint; see `transport.Positions`."""
        return await asyncio.to_thread(lambda: self._ready().checkpoint(partition))

    async def read(self, partition: int, after: Start, until: Position) -> Sequence[Entry]:
        """See `transport.Positions`."""
        return await asyncio.to_thread(lambda: self._ready().read(partition, after, until))

    def _ready(self) -> Folder:
        with self._making:
            if self._folder is None:
                self._folder = self._make_folder(self.stop)
                if self.stop.is_set():  # `end` came before there was a folder
                    self._folder.interrupt()
                collect_rarely()
            return self._folder

    def end(self) -> None:
        """Finish what is in hand without waiting for anything."""
        self.stop.set()
        if self._folder is not None:
            self._folder.interrupt()

    async def run(self, stream: StreamT[Block]) -> None:
        """The agent. Nothing that happens to a block leaves this loop: Faust would lose others."""
        async for event in cast(faust.Stream[Block], stream).noack().events():
            self._waiting.setdefault(event.message.partition, deque()).append(event)
            self._begin()

    def _begin(self) -> None:
        """Work on what waits, as long as there is room."""
        while self._room and (events := self._take()):
            self._room -= 1
            task = asyncio.create_task(self._apply(events))
            self._tasks.add(task)  # the event loop keeps only a weak reference
            task.add_done_callback(self._tasks.discard)

    def _take(self) -> list[EventT[Block]]:
        """The first waiting block of each partition that nobody works on, a transaction's worth.

        Small blocks go together: a transaction costs as much for one event as for fifty. Who was
        taken goes to the end of the line, so that no partition waits for ever behind busier ones.
        """
        taken: list[EventT[Block]] = []
        entries = 0
        for partition, waiting in list(self._waiting.items()):
            if not waiting or partition in self._busy:
                continue
            size = len(cast(Block, waiting[0].value).entries)
            if taken and entries + size > self._together:
                continue
            entries += size
            taken.append(waiting.popleft())
            self._busy.add(partition)
            self._waiting[partition] = self._waiting.pop(partition)
        return taken

    async def _apply(self, events: Sequence[EventT[Block]]) -> None:
        """Apply blocks of different partitions. The transport bounds how many wait."""
        held: list[tuple[AbstractContextManager[Block | None], Block]] = []
        partitions = {event.message.partition for event in events}
        progress.WORKER.took(partitions)
        outcomes: Mapping[int, RecollectError | None] = {}
        try:
            for event in events:
                hold = cast(Consumer, event.app.consumer).in_hand(event)
                block = hold.__enter__()
                if block is None:
                    hold.__exit__(None, None, None)
                else:
                    held.append((hold, block))
            blocks = [taken for _, taken in held]
            if blocks:
                outcomes = await asyncio.get_running_loop().run_in_executor(
                    self._threads, lambda: self._ready().apply_together(blocks)
                )
        except RecollectError as error:  # of making the folder: no block was touched
            outcomes = dict.fromkeys((taken.partition for _, taken in held), error)
        finally:
            for context, taken in held:
                self._let_go(context, taken, outcomes)
            self._room += 1
            self._busy -= partitions
            progress.WORKER.let_go(partitions)
            self._begin()

    def _let_go(
        self,
        context: AbstractContextManager[Block | None],
        block: Block,
        outcomes: Mapping[int, RecollectError | None],
    ) -> None:
        """Settle the block if it was applied, else let its partition start again."""
        error = outcomes.get(block.partition, Stopped())  # cancelled: nobody knows
        if error is None:
            context.__exit__(None, None, None)
            return
        context.__exit__(type(error), error, None)
        if isinstance(error, Fenced):
            logger.info("partition %d: %s", block.partition, error)
        elif not self.stop.is_set():
            logger.error("partition %d stands still: %s", block.partition, error)


class WithoutWeb(BootStrategy):
    """No web server, whatever the command line says: `faust worker` would bind 0.0.0.0."""

    enable_web = False


class StageApp(faust.App):
    """A stage on a target as a Faust app; its id is the consumer group.

    The transport reads `settings` and `positions` from it.

    Args:
        stage: its name.
        settings: of the process, `batch_size` being the stage's.
        target: its name.
        make_folder: makes what applies blocks.
        metrics: those that only this stage sets.
    """

    BootStrategy: ClassVar[Any] = WithoutWeb

    def __init__(
        self,
        stage: str,
        settings: Settings,
        target: str,
        make_folder: MakeFolder,
        *,
        metrics: Sequence[str] = (),
    ) -> None:
        # Before Faust's own: it may build the transport as soon as it runs.
        self.settings = settings
        self.positions = Work(make_folder, settings.worker_concurrency, settings.batch_size)
        self._labels = {"stage": stage, "target": target}
        self._metrics = metrics
        self.ends: list[Callable[[], Awaitable[None]]] = []
        """What runs beside the agent; awaited when the app stops."""
        super().__init__(
            group_name(stage, target),
            broker="redisstreams://",
            datadir=str(settings.data_dir / "faust"),
            broker_commit_interval=0.5,
            stream_wait_empty=True,
            logging_config=logs.logging_config(settings),
            worker_redirect_stdouts=False,
        )
        ledger = self.topic(LEDGER_TOPIC, partitions=settings.partitions, schema=BlockSchema())
        self.agent(ledger, name=stage)(self.positions.run)

    async def on_first_start(self) -> None:
        """No folders, which is all that Faust does here: a worker keeps nothing on disk."""

    async def on_start(self) -> None:
        """Metrics as everywhere else in the project."""
        metrics.prepare_stage(**self._labels, metrics=self._metrics)
        consumer = cast(Consumer, self.consumer)
        metrics.PARTITIONS_HELD.labels(**self._labels).set_function(consumer.partitions_held)
        progress.WORKER.expect(LOOPS)
        if self.settings.metrics_port:
            metrics.MetricsServer(
                self.settings.metrics_host,
                self.settings.metrics_port,
                problem=progress.WORKER.problem,
            )
        await super().on_start()

    async def on_stop(self) -> None:
        """Waiting ends at once; blocks that are being applied and need none are finished."""
        self.positions.end()
        for end in self.ends:
            await end()
        await super().on_stop()


def make_app(stage: Stage, services: Services, target: str) -> StageApp:
    """The Faust app of a stage on a registered target; connects when the worker starts."""
    settings = services.settings

    def make_runner(stop: threading.Event) -> LiveRunner:
        services.active()  # registers the settings' target in a fresh deployment
        chosen = services.targets.get(target)
        runner = LiveRunner(
            make_fold(stage, services, chosen),
            services.graph(chosen),
            services.ledger,
            target=target,
            policy=PoisonPolicy.of_live_work(settings),
            stop=stop,
            decide=Decisions(services, target),
            board=services.holds,
        )
        runner.prepare(settings.partitions)
        return runner

    sized = settings.model_copy(update={"batch_size": stage.batch_size(settings)})
    app = StageApp(stage.name, sized, target, make_runner, metrics=stage.metrics)
    if stage.beside is not None:
        load(stage.beside)(app, settings, target)
    return app


def run_worker(stage: Stage, settings: Settings, target: str) -> int:
    """Run a worker of a stage in this process until SIGTERM or SIGINT; its exit code.

    Raises:
        ModelUnavailable: a model that the stage runs is not installed; told at once, not when the
            first block comes.
    """
    _prepare_process(stage, settings)
    with Services(settings) as services:
        return run(make_app(stage, services, target))


def run(app: StageApp) -> int:
    """Run a worker in this process until SIGTERM or SIGINT; its exit code."""
    worker = faust.Worker(app, loglevel=app.settings.log_level, quiet=True)
    worker.spinner = None  # it writes to stdout, which is the command's own
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def _prepare_process(stage: Stage, settings: Settings) -> None:
    if nice := stage.nice(settings):
        step_back(nice)
    if stage.check is not None:
        load(stage.check)(settings)
    # Not when the worker starts: by then `faust worker` has put a proxy in stderr's place.
    logs.configure_logging(settings)


@cache
def _app_from_environment(name: str) -> StageApp:
    settings = load_settings()
    _prepare_process(STAGES[name], settings)
    return make_app(STAGES[name], Services(settings), settings.target)


def __getattr__(name: str) -> Any:
    """The app of the stage of that name; made when asked for, so that importing reads nothing."""
    if name in STAGES:
        return _app_from_environment(name)
    raise AttributeError(name)
