"""What the API is connected to: the ledger, the registry of targets, the active target's graph.

Nothing here waits for a server at start: the API comes up while Redis or Neo4j is away, says so
in `/health/ready` and answers 503 until they are back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Final, NamedTuple

from pipelines.columns.access import ColumnsAccess
from pipelines.graph.client import Neo4jReader, connect_neo4j
from pipelines.graph.memory_graphs import is_in_memory, require_whole
from pipelines.graph.reader import GraphReader
from pipelines.graph.remote import memory_graph
from pipelines.ledger.command_notes import Comparisons, Rebuilds
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import BesideRedis, Ledger
from pipelines.ledger.registry import Holds, Reports, Target, Targets
from pipelines.models.cache import ByteCache
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable, LedgerUnavailable
from projections.operations import Checkpoint


class OpenGraph(NamedTuple):
    """A graph that is read from: what is shown by its reader, what is found by its columns."""

    reader: GraphReader
    columns: ColumnsAccess
    close: Callable[[], None]


Opens = Callable[[Target, Settings], OpenGraph]
"""Opens the graph of a target: how depends on which store holds it."""
Warms = Callable[[OpenGraph], object]
"""Asks a graph what reads will ask it, so that the first of them is as fast as the others."""
WARM_WITHIN_S: Final = 60.0
"""A graph or a process that is not warm by then is not waited for."""


class _Graph:
    """A graph in use by some requests; closed when it is retired and the last one is done."""

    def __init__(self, target: Target, opened: OpenGraph) -> None:
        self.target = target
        self.open = opened
        self.users = 0
        self.retired = False
        self.warming: Thread | None = None
        self.warm_by_s = 0.0


class ActiveGraph:
    """The graph that reads are answered from; follows the pointer without failing a read."""

    def __init__(self, settings: Settings, opens: Opens) -> None:
        self._settings = settings
        self._opens = opens
        self._lock = Lock()
        self._current: _Graph | None = None
        self._coming: _Graph | None = None

    @property
    def target(self) -> Target | None:
        """The target now; None before the registry was read."""
        current = self._current
        return None if current is None else current.target

    @property
    def is_warmed(self) -> bool:
        """Whether the graph that is read from was warmed before, or still is being."""
        return self._current is not None and self._current.warming is not None

    def follow(self, target: Target, warm: Warms | None = None) -> bool:
        """Read from `target` from now on; whether that is a change.

        Requests under way finish on the graph they began on, and others begin there until the
        columns of the new one are loaded and it is warm, or WARM_WITHIN_S are over. Called by one
        thread, again and again.

        Args:
            target: the active one.
            warm: asks a graph before the one that is read from now is left for it; None: that one
                is left as soon as the columns are loaded.
        """
        current, coming = self._current, self._coming
        if current is not None and place_of(current.target) == place_of(target):
            self._coming = None
            self._retire(coming)
            return False
        if coming is None or place_of(coming.target) != place_of(target):
            self._retire(coming)
            coming = self._coming = _Graph(target, self._opens(target, self._settings))
        if current is not None:
            if not coming.open.columns.state().is_loaded:
                return False
            if warm is not None and not self._need_not_wait(coming, warm):
                return False
        with self._lock:
            self._current, self._coming = coming, None
        self._retire(current)
        return True

    def _need_not_wait(self, coming: _Graph, warm: Warms) -> bool:
        """Whether it is warm, or has taken too long; begins to warm it the first time."""
        if coming.warming is None:
            with self._lock:
                if coming.retired:
                    return False
                coming.users += 1
            coming.warming = Thread(
                target=self._warm, args=(coming, warm), name="warm-up", daemon=True
            )
            coming.warm_by_s = time.monotonic() + WARM_WITHIN_S
            coming.warming.start()
        return not coming.warming.is_alive() or time.monotonic() > coming.warm_by_s

    def _warm(self, graph: _Graph, warm: Warms) -> None:
        with self._given_back(graph):
            warm(graph.open)

    @contextmanager
    def _given_back(self, graph: _Graph) -> Iterator[None]:
        """The end of a use, which may be the last one."""
        try:
            yield
        finally:
            with self._lock:
                graph.users -= 1
                close = graph.retired and graph.users == 0
            if close:
                graph.open.close()

    @contextmanager
    def opened(self) -> Iterator[OpenGraph]:
        """The active target's graph, kept open until the block ends.

        Raises:
            GraphUnavailable: no target is known yet, or it is still folded from the ledger.
        """
        with self._lock:
            graph = self._current
            if graph is None:
                raise GraphUnavailable(reason="no active target is known yet")
            require_whole(graph.target.uri)
            graph.users += 1
        with self._given_back(graph):
            yield graph.open

    @contextmanager
    def reader(self) -> Iterator[GraphReader]:
        """The reader of the active target, as `opened`."""
        with self.opened() as graph:
            yield graph.reader

    def close(self) -> None:
        """Close it once its requests are done."""
        with self._lock:
            graphs = self._current, self._coming
            self._current = self._coming = None
        for graph in graphs:
            self._retire(graph)

    def _retire(self, graph: _Graph | None) -> None:
        if graph is None:
            return
        with self._lock:
            graph.retired = True
            close = graph.users == 0
        if close:
            graph.open.close()


def place_of(target: Target) -> tuple[str, str, str]:
    """What makes it another graph."""
    return target.name, target.uri, target.database


class Connections:
    """Ledger, targets and active graph of one API process.

    Args:
        settings: where they are.
        opens: the graph of a target.
    """

    def __init__(self, settings: Settings, opens: Opens) -> None:
        self._settings = settings
        self._redis = connect_redis(settings)
        self._ledger: Ledger | None = None
        self.targets = Targets(self._redis, settings.prefix)
        self.graph = ActiveGraph(settings, opens)

    @property
    def ledger(self) -> Ledger:
        """The ledger.

        Raises:
            LedgerUnavailable: it could not be opened yet.
        """
        if self._ledger is None:
            raise LedgerUnavailable(reason="it has not been reached since the start")
        return self._ledger

    @property
    def opened(self) -> bool:
        """Whether the ledger was reached once and has the format of the settings."""
        return self._ledger is not None

    @property
    def reports(self) -> Reports:
        """What commands found out last."""
        return Reports(self._redis, self._settings.prefix)

    @property
    def comparisons(self) -> Comparisons:
        """What two targets held differently when they were compared last."""
        return Comparisons(self._redis, self._settings.prefix)

    @property
    def rebuilds(self) -> Rebuilds:
        """Rebuilds that run."""
        return Rebuilds(self._redis, self._settings.prefix)

    @property
    def holds(self) -> Holds:
        """Which stages hold."""
        return Holds(self._redis, self._settings.prefix)

    def open_ledger(self) -> None:
        """Reach the ledger, creating it on an empty server.

        Raises:
            LedgerUnavailable: Redis is away.
            LedgerFormatMismatch: it was created with other settings.
        """
        if self._ledger is None:
            self._ledger = Ledger(
                self._redis,
                prefix=self._settings.prefix,
                partitions=self._settings.partitions,
                id_buckets=self._settings.id_buckets,
                checkpoints=self.checkpoints,
                beside=BesideRedis.of(self._settings, self._redis),
            )

    def cache(self, cache: metrics.Cache) -> ByteCache:
        """One of the caches in Redis, which all processes share."""
        return ByteCache.from_settings(self._redis, self._settings, cache)

    def active_target(self) -> tuple[Target, int]:
        """The active target and its generation; that of the settings while none is registered.

        Raises:
            LedgerUnavailable: Redis is away.
        """
        current = self.targets.active()
        if current is None:
            settings = self._settings
            return Target(settings.target, settings.neo4j_url, settings.neo4j_database), 0
        return self.targets.get(current[0]), current[1]

    def checkpoints(self) -> Mapping[str, Sequence[Checkpoint]]:
        """Checkpoints of all stages in all targets, for the admission of a server process.

        The settings' target counts even when it is not registered: an empty ledger beside a full
        graph is what admission must notice.

        Raises:
            GraphUnavailable: a target is away.
        """
        targets = {target.name: target for target in self.targets.all()}
        if not targets:
            target, _ = self.active_target()
            targets[target.name] = target
        checkpoints = {}
        for target in targets.values():
            if is_in_memory(target.uri):
                checkpoints[target.name] = memory_graph(target.uri, self._settings).checkpoints()
                continue
            with connect_neo4j(target.uri, self._settings) as driver:
                checkpoints[target.name] = Neo4jReader(driver, target.database).checkpoints()
        return checkpoints

    def close(self) -> None:
        """Close all of them."""
        self.graph.close()
        self._redis.close()
