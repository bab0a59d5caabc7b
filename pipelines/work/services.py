"""The services a command works on: one ledger, the registered targets, their connections.

Built from `Settings`, connects when first asked: a command that only needs Redis runs while
Neo4j is away. It loads both drivers; who only needs a type imports it for type checking. A ledger
is served by the usual edition on Neo4j, or by the small one, all in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Final

from pipelines.graph.answers.reader import PortReader
from pipelines.graph.client import Neo4jReader, connect_neo4j
from pipelines.graph.memory_graphs import SMALL_URI, held, is_in_memory
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.port import Graph
from pipelines.graph.reader import GraphReader
from pipelines.graph.remote import memory_graph
from pipelines.ledger.command_notes import Comparisons, Rebuilds
from pipelines.ledger.connect import RedisClient, connect_redis
from pipelines.ledger.epoch import PassLease
from pipelines.ledger.ledger import BesideRedis, Ledger
from pipelines.ledger.registry import Holds, Reports, Target, Targets
from pipelines.work.folds import StageFold
from pipelines.work.settings import Settings
from pipelines.work.stages import Stage, load
from projections.errors import ConfigurationError, GraphUnavailable, OperationFailed
from projections.operations import Checkpoint

if TYPE_CHECKING:
    from pipelines.graph.client import GraphDriver
    from pipelines.models.loaded import Models


def _new_graph() -> Graph:
    from pipelines.graph.memory import MemoryGraph

    return MemoryGraph()


@dataclass
class Services:
    """Connections made on demand and closed together; a context manager.

    Attributes:
        settings: what to connect to.
        loads_models: a fold that may need models waits until they are loaded; False: they are when
            a text comes of which nothing is kept.
    """

    settings: Settings
    loads_models: bool = True
    _drivers: dict[str, GraphDriver] = field(default_factory=dict, init=False, repr=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    @cached_property
    def redis(self) -> RedisClient:
        """The connection pool of the ledger."""
        client = connect_redis(self.settings)
        self._open.callback(client.close)
        return client

    @cached_property
    def targets(self) -> Targets:
        """The registry of targets, in Redis."""
        return Targets(self.redis, self.settings.prefix)

    @cached_property
    def reports(self) -> Reports:
        """What commands found out last, in Redis."""
        return Reports(self.redis, self.settings.prefix)

    @cached_property
    def comparisons(self) -> Comparisons:
        """What two targets held differently when they were compared last."""
        return Comparisons(self.redis, self.settings.prefix)

    @cached_property
    def rebuilds(self) -> Rebuilds:
        """Rebuilds that run, in Redis."""
        return Rebuilds(self.redis, self.settings.prefix)

    @cached_property
    def holds(self) -> Holds:
        """Which stages hold, in Redis."""
        return Holds(self.redis, self.settings.prefix)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger; creates it on an empty server.

        Raises:
            LedgerUnavailable: Redis is away.
            LedgerFormatMismatch: it was created with other settings.
        """
        return Ledger(
            self.redis,
            prefix=self.settings.prefix,
            partitions=self.settings.partitions,
            id_buckets=self.settings.id_buckets,
            checkpoints=self.checkpoints,
            beside=BesideRedis.of(self.settings, self.redis),
        )

    @cached_property
    def models(self) -> Models:
        """What enriches: one set of models for all that this process does; loaded when used."""
        from pipelines.models.loaded import Models  # half a second, which few commands need

        models = Models(self.settings)
        self._open.callback(models.close)
        return models

    def stop_asking(self) -> None:
        """Ask a language model nothing more; who waits for an answer is told `Stopped`."""
        models: Models | None = vars(self).get("models")  # those that are not made ask nobody
        if models is not None and models.language_model is not None:
            models.language_model.close()

    def active(self) -> Target:
        """The target that reads are answered from.

        What the small edition holds on the data folder is registered and activated when nothing is
        registered, else the settings' target: a fresh deployment needs no extra step.

        Raises:
            ConfigurationError: `neo4j_url` was given, and is not where its target is registered.
        """
        targets, settings = self.targets, self.settings
        current = targets.active()
        if current is None:
            first = Target(settings.target, settings.neo4j_url, settings.neo4j_database, "active")
            if "neo4j_url" not in settings.model_fields_set and self._is_small():
                first = SMALL  # its ledger was emptied
            targets.register(first)
            targets.activate(first.name)
            return targets.get(first.name)
        if "neo4j_url" in settings.model_fields_set:
            self._require_same_url()
        return targets.get(current[0])

    def _is_small(self) -> bool:
        """Whether a process of the small edition runs on the data folder."""
        with suppress(GraphUnavailable):
            return bool(memory_graph(SMALL_URI, self.settings).store_id())
        return False

    def target(self, name: str) -> Target:
        """The registered target of that name.

        Raises:
            UnknownTarget: there is none.
        """
        return self.targets.get(name)

    def _require_same_url(self) -> None:
        """Refuse a URL that would be ignored: ledger or graph may be the wrong one."""
        for target in self.targets.all():
            if target.name == self.settings.target and target.uri != self.settings.neo4j_url:
                raise ConfigurationError(
                    reason=f"neo4j_url: target {target.name} of this ledger is at {target.uri}; if "
                    f"it moved, run `recollect targets move {target.name} URL`"
                )

    def driver(self, target: Target) -> GraphDriver:
        """The driver of a target's server, one for each URI."""
        driver = self._drivers.get(target.uri)
        if driver is None:
            driver = connect_neo4j(target.uri, self.settings)
            self._open.callback(driver.close)
            self._drivers[target.uri] = driver
        return driver

    def graph(self, target: Target, *, timeout_s: float | None = None) -> Graph:
        """A target's graph.

        Args:
            target: registered or not; at `memory://NAME` its graph lives in this process, but
                for that of the small edition, which one process holds for all.
            timeout_s: of one question, and of one transaction; None: as the settings say.
        """
        if target.uri == SMALL_URI:
            return memory_graph(target.uri, self.settings)
        if is_in_memory(target.uri):
            here = held(target.uri, _new_graph)
            assert here is not None
            return here
        return self.neo4j_graph(target, timeout_s=timeout_s)

    def neo4j_graph(self, target: Target, *, timeout_s: float | None = None) -> Neo4jGraph:
        """The same, of a target that is known to be a Neo4j."""
        limit_s = self.settings.transaction_timeout_s if timeout_s is None else timeout_s
        return Neo4jGraph(
            self.driver(target),
            target.database,
            timeout_s=limit_s,
            browsed=self.settings.neo4j_event_search,
        )

    def reader(self, target: Target) -> GraphReader:
        """What reads a target's graph."""
        if is_in_memory(target.uri):
            return PortReader(self.graph(target))
        return Neo4jReader(self.driver(target), target.database)

    def pass_lease(self, patience_s: float) -> PassLease:
        """What one pass of consolidation, or one erasure, holds, wherever it runs.

        Args:
            patience_s: for another that holds it, to end.
        """
        settings = self.settings
        return PassLease(
            self.redis, settings.prefix, lease_ms=settings.lease_ms, patience_s=patience_s
        )

    def checkpoints(self) -> Mapping[str, Sequence[Checkpoint]]:
        """Checkpoints of all stages in all registered targets, by target name.

        The ledger compares them with its own entries before it accepts the first append on a
        server process it has not seen. The settings' target counts even when the registry is
        empty: an empty server beside a full graph is exactly the case to detect.

        Raises:
            GraphUnavailable: a target is away.
        """
        self.active()
        return {target.name: self.graph(target).checkpoints() for target in self.targets.all()}

    def close(self) -> None:
        """Close every connection that was made."""
        self._drivers.clear()
        self._open.close()

    def __enter__(self) -> Services:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


MakeFold = Callable[[Stage, Services, Target], StageFold]


def make_fold(stage: Stage, services: Services, target: Target) -> StageFold:
    """The stage as it runs on a target.

    Raises:
        GraphUnavailable: the target is away, and the stage has to ask it something first.
        ModelUnavailable: a model that it runs is not installed.
    """
    fold: StageFold = load(stage.make)(stage, services, target)
    return fold


SMALL: Final = Target("small", SMALL_URI, "", "active")
"""The target whose graph is in memory."""


def require_edition(targets: Targets, *, small: bool) -> None:
    """See that a ledger may be served by an edition; the first one that asks makes it its own.

    Raises:
        OperationFailed: its active target is of the other one.
    """
    active = targets.active()
    if active is None:
        if small:
            targets.register(SMALL)
            targets.activate(SMALL.name)
        return
    target = targets.get(active[0])
    if small and not is_in_memory(target.uri):
        raise OperationFailed(
            reason=f"this memory is answered from {target.name}, a Neo4j: `recollect up --all`"
        )
    if not small and is_in_memory(target.uri):
        raise OperationFailed(
            reason="this memory is of the small edition: `recollect up --small`. To move it to a "
            "Neo4j, run `recollect rebuild --into NAME --switch` while that runs"
        )
