"""The small edition: one process that holds the graph in memory, folds into it, and serves the API.

No Java and no Neo4j; the ledger is the same. The graph begins empty with the process and is folded
from the ledger, which runs no model again, for what they said is kept. Whatever else works on the
graph asks this process for it (`pipelines.graph.remote`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from pipelines.columns.follower import SWITCH_S
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.memory_graphs import SMALL_URI, graph_socket, held
from pipelines.graph.remote import GraphServer
from pipelines.local.shared_server import end_broken
from pipelines.models.loaded import require_models
from pipelines.observe import logs
from pipelines.operations.api import serve_api
from pipelines.operations.decider import Decider
from pipelines.work.services import Services, require_edition
from pipelines.work.settings import Settings
from pipelines.work.stage_threads import LOOK, StageThreads
from pipelines.work.stages import STAGES
from projections.errors import RecollectError

logger = structlog.get_logger(__name__)

_TARGETS_EVERY_S: Final = 1.0


def run_small(settings: Settings) -> None:
    """Hold the graph, fold into it and serve the API, until SIGTERM or SIGINT.

    Raises:
        OperationFailed: the ledger is of the other edition.
        ModelUnavailable: a model is not installed.
        LedgerUnavailable: Redis is away.
    """
    require_models(settings)
    threading.excepthook = _end_unless_client
    # Questions must not wait 5 ms, as is usual, whenever something is being folded.
    sys.setswitchinterval(SWITCH_S)
    logs.configure_logging(settings)
    alone = settings.model_copy(update={"api_processes": 1})
    with Services(settings, loads_models=False) as services:
        require_edition(services.targets, small=True)
        # What is folded anew needs none of them, and what comes next should not wait for them.
        threading.Thread(target=services.models.load, name="load-models", daemon=True).start()
        with _graph_served(settings), _folded(services):
            serve_api(alone)


def _end_unless_client(problem: threading.ExceptHookArgs) -> None:
    """A stage that broke would stand still unseen: the process ends, and is started again."""
    if problem.thread is not None and problem.thread.name in {*STAGES, LOOK}:
        end_broken(problem)
    threading.__excepthook__(problem)


@contextmanager
def _graph_served(settings: Settings) -> Iterator[None]:
    graph = held(SMALL_URI, MemoryGraph)
    assert graph is not None
    limit_s = settings.transaction_timeout_s
    server = GraphServer(graph, graph_socket(settings), transaction_s=limit_s)
    server.start()
    try:
        yield
    finally:
        server.stop()


@contextmanager
def _folded(services: Services) -> Iterator[None]:
    """Fold into every target meanwhile: a rebuilt Neo4j is kept in step until it is moved to."""
    works: dict[str, StageThreads] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                _settle(services, works)
            except RecollectError as error:
                logger.info("targets are looked for later", reason=str(error))
            stop.wait(_TARGETS_EVERY_S)

    _settle(services, works)
    thread = threading.Thread(target=look, name="targets", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for work in works.values():
            work.stop()


def _settle(services: Services, works: dict[str, StageThreads]) -> None:
    registered = services.targets.all() or [services.active()]  # an emptied ledger knows of none
    wanted = {t.name: t for t in registered if t.state != "building"}
    for name in works.keys() - wanted.keys():
        works.pop(name).stop()
    for name in wanted.keys() - works.keys():
        work = StageThreads(services, wanted[name], Decider)
        work.start()
        works[name] = work
