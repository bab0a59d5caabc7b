"""Workers of both stages in the test's own process, a step at a time or at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from pipelines.local.servers import Neo4jServer, ValkeyServer
from tests.integration.enrichment_support import Enriched
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j, emptied_valkey

PATIENCE_S = 30.0
OF_CLIENTS: Final[dict[str, Any]] = {
    "partitions": PARTITIONS,
    "id_buckets": 64,
    "channel_timeout_ms": 30_000,
    "record_accesses": False,
}
"""Settings of an API that is asked by clients."""


class Workers:
    """Both stages, a step at a time."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._enriched = Enriched(stack)

    def project(self) -> None:
        """Only the first stage."""
        self._stack.fold()

    def fold(self) -> None:
        """Fold what is in the ledger; nobody appends meanwhile."""
        self._stack.fold()
        self._enriched.fold()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Fold what comes, each stage in a thread of its own, until the block ends."""
        with ExitStack() as ending:  # the second stage ends first: it waits for the first
            for fold in (self._stack.fold, self._enriched.fold):
                is_over = threading.Event()
                thread = threading.Thread(target=_work, args=(fold, is_over))
                thread.start()
                ending.callback(thread.join, PATIENCE_S)
                ending.callback(is_over.set)
            yield


def _work(fold: Callable[[], None], is_over: threading.Event) -> None:
    while not is_over.wait(0.1):
        fold()


@contextmanager
def working(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Workers]:
    """Workers over servers that are emptied first."""
    stack = Stack(emptied_valkey(valkey), emptied_neo4j(neo4j))
    stack.graph.ensure_schema()
    try:
        yield Workers(stack)
    finally:
        stack.close()
