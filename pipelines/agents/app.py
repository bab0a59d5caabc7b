"""A stage as a Faust app: one agent that hands blocks to a runner, in order within a partition."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Protocol, cast

import faust
from faust.app import BootStrategy
from faust.types import EventT, StreamT

from pipelines import telemetry
from pipelines.adapters.block import Block
from pipelines.collector import collect_rarely
from pipelines.settings import Settings
from pipelines.stages import group_name
from pipelines.transport import LEDGER_TOPIC, BlockSchema, Consumer, Start
from projections.errors import Fenced, RecollectError

logger = logging.getLogger(__name__)


class Folder(Protocol):
    """What applies blocks: a Runner. Both methods block, and are called in threads."""

    def checkpoint(self, partition: int) -> Start:
        """Where the partition goes on."""

    def apply(self, block: Block) -> object:
        """Fold the block and move the checkpoint, or raise and change nothing."""


MakeFolder = Callable[[threading.Event], Folder]
"""Connects and prepares; called in a thread, again after a failure. The event means: stop."""


class Work:
    """The runner behind an app, made when first needed, and how blocks get to it."""

    def __init__(self, make_folder: MakeFolder, concurrency: int) -> None:
        self.stop = threading.Event()
        self._make_folder = make_folder
        self._folder: Folder | None = None
        self._making = threading.Lock()
        # Threads of their own: checkpoints that wait for an absent Neo4j must not hold up blocks.
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="apply")
        self._room = asyncio.Semaphore(concurrency)
        self._turns: dict[int, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, partition: int) -> Start:
        """The partition's checkpoint; see `transport.Positions`."""
        return await asyncio.to_thread(lambda: self._ready().checkpoint(partition))

    def _ready(self) -> Folder:
        with self._making:
            if self._folder is None:
                self._folder = self._make_folder(self.stop)
                collect_rarely()
            return self._folder

    async def run(self, stream: StreamT[Block]) -> None:
        """The agent. Nothing that happens to a block leaves this loop: Faust would lose others."""
        async for event in cast(faust.Stream[Block], stream).noack().events():
            task = asyncio.create_task(self._apply(event))
            self._tasks.add(task)  # the event loop keeps only a weak reference
            task.add_done_callback(self._tasks.discard)

    async def _apply(self, event: EventT[Block]) -> None:
        """Apply one block after its partition's earlier ones. The transport bounds how many wait.

        Locks and semaphores are fair, so blocks of a partition keep their order.
        """
        partition = event.message.partition
        turn = self._turns.setdefault(partition, asyncio.Lock())
        consumer = cast(Consumer, event.app.consumer)
        try:
            async with turn, self._room:
                with consumer.in_hand(event) as block:
                    if block is not None:
                        await asyncio.get_running_loop().run_in_executor(
                            self._threads, lambda: self._ready().apply(block)
                        )
        except Fenced as error:
            logger.info("partition %d: %s", partition, error)
        except RecollectError as error:
            if not self.stop.is_set():
                logger.error("partition %d stands still: %s", partition, error)


class WithoutWeb(BootStrategy):
    """No web server, whatever the command line says: `faust worker` would bind 0.0.0.0."""

    enable_web = False


class StageApp(faust.App):
    """A stage on a target as a Faust app; its id is the consumer group.

    The transport reads `settings` and `positions` from it.
    """

    BootStrategy: ClassVar[Any] = WithoutWeb

    def __init__(
        self, stage: str, settings: Settings, target: str, make_folder: MakeFolder
    ) -> None:
        # Before Faust's own: it may build the transport as soon as it runs.
        self.settings = settings
        self.positions = Work(make_folder, settings.worker_concurrency)
        self._labels = {"stage": stage, "target": target}
        super().__init__(
            group_name(stage, target),
            broker="redisstreams://",
            datadir=str(settings.data_dir / "faust"),
            broker_commit_interval=0.5,
            stream_wait_empty=True,
            logging_config=telemetry.logging_config(settings),
            worker_redirect_stdouts=False,
        )
        ledger = self.topic(LEDGER_TOPIC, partitions=settings.partitions, schema=BlockSchema())
        self.agent(ledger, name=stage)(self.positions.run)

    async def on_first_start(self) -> None:
        """No folders, which is all that Faust does here: a worker keeps nothing on disk."""

    async def on_start(self) -> None:
        """Metrics as everywhere else in the project."""
        telemetry.prepare_stage(**self._labels)
        consumer = cast(Consumer, self.consumer)
        telemetry.PARTITIONS_HELD.labels(**self._labels).set_function(consumer.partitions_held)
        if self.settings.metrics_port:
            telemetry.serve_metrics(self.settings.metrics_host, self.settings.metrics_port)
        await super().on_start()

    async def on_stop(self) -> None:
        """Retries end at once; blocks that are being applied are finished."""
        self.positions.stop.set()
        await super().on_stop()


def run(app: StageApp) -> int:
    """Run a worker in this process until SIGTERM or SIGINT; its exit code."""
    worker = faust.Worker(app, loglevel=app.settings.log_level, quiet=True)
    worker.spinner = None  # it writes to stdout, which is the command's own
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
