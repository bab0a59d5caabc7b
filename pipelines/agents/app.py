"""A stage as a Faust app: one agent that hands blocks to a runner, in order within a partition."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, cast

import faust
from faust.app import BootStrategy
from faust.types import EventT, StreamT

from pipelines.adapters.block import Block
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


class WithoutWeb(BootStrategy):
    """No web server, whatever the command line says: `faust worker` would bind 0.0.0.0."""

    enable_web = False


class StageApp(faust.App):
    """A Faust app over the ledger. The transport reads `settings` and `positions` from it."""

    BootStrategy: ClassVar[Any] = WithoutWeb

    def __init__(self, app_id: str, settings: Settings, make_folder: MakeFolder) -> None:
        # Before Faust's: it may build the transport as soon as it runs.
        self.settings = settings
        self.positions = Work(make_folder, settings.worker_concurrency)
        super().__init__(
            app_id,
            broker="redisstreams://",
            datadir=str(settings.data_dir / "faust"),
            broker_commit_interval=0.5,
            stream_wait_empty=True,
            topic_partitions=settings.partitions,
        )

    async def on_stop(self) -> None:
        """Retries end at once, blocks that are being applied are finished."""
        self.positions.stop.set()
        await super().on_stop()


class Work:
    """The runner behind an app, made when first needed, and how blocks get to it."""

    def __init__(self, make_folder: MakeFolder, concurrency: int) -> None:
        self.stop = threading.Event()
        self._make_folder = make_folder
        self._folder: Folder | None = None
        self._making = threading.Lock()
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
            return self._folder

    async def run(self, stream: StreamT[Block]) -> None:
        """The agent. Nothing that happens to a block leaves this loop: Faust would lose others."""
        async for event in cast(faust.Stream[Block], stream).noack().events():
            task = asyncio.create_task(self._apply(event))
            self._tasks.add(task)  # the loop itself keeps only a weak reference
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
                        await asyncio.to_thread(lambda: self._ready().apply(block))
        except Fenced as error:
            logger.info("partition %d: %s", partition, error)
        except RecollectError as error:
            if not self.stop.is_set():
                logger.error("partition %d stands still: %s", partition, error)


def stage_app(stage: str, settings: Settings, target: str, make_folder: MakeFolder) -> StageApp:
    """The Faust app of a stage on a target; its id is the consumer group."""
    app = StageApp(group_name(stage, target), settings, make_folder)
    ledger = app.topic(LEDGER_TOPIC, partitions=settings.partitions, schema=BlockSchema())
    app.agent(ledger, name=stage)(app.positions.run)
    return app
