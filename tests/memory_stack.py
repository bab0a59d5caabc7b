"""A ledger, its graph and a worker's runner, driven by a test block by block; here in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from pipelines.graph.port import Graph
from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.ledger.entries import Block, Entry
from pipelines.ledger.ledger import Appended
from pipelines.ledger.registry import Target
from pipelines.models.derivations import Derivations
from pipelines.models.installed import with_settings
from pipelines.models.loaded import models_in_use
from pipelines.operations import dead_letters
from pipelines.work.folds import StageFold
from pipelines.work.runner import Runner
from projections.errors import Fenced
from projections.events import Event
from projections.identity import Position
from projections.schema import EVENT
from tests.factories import sessions
from tests.fakes.ledger import FakeLedger
from tests.fakes.stages import PROJECTING, QUICK
from tests.faulty_graph import FaultyGraph
from tests.graph_dump import Dump, dump
from tests.simulation.doubles import SimulatedServices

PARTITIONS = 2


class LedgerStack:
    """What a worker would do on one target, whichever ledger and graph these are."""

    services: Any
    ledger: Any
    target: Target
    graph: Graph

    def new_runner(self, rules: StageFold = PROJECTING, **options: Any) -> Runner:
        return Runner(rules, self.graph, target=self.target.name, **{"policy": QUICK, **options})

    def append(self, *events: Event) -> list[Appended]:
        outcomes = self.ledger.append(events)
        accepted = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
        assert len(accepted) == len(events), outcomes
        return accepted

    def fold(self, size: int = 500, runner: Runner | None = None) -> None:
        """Fold what the ledger has, partition by partition."""
        runner = runner or self.runner
        for partition in range(self.ledger.partitions):
            while entries := self.ledger.read(
                partition, runner.checkpoint(partition).position, size
            ):
                runner.apply(Block(partition, tuple(entries)))

    def prepare(self) -> None:
        """Make the runner of the first stage, and what it needs on the graph."""
        self.runner = self.new_runner()
        self.runner.prepare(self.ledger.partitions)

    def fill(self, count: int = 4, length: int = 5) -> list[Event]:
        """Append and fold some sessions."""
        events = sessions(count, length)
        self.append(*events)
        self.fold()
        return events

    def blocks(self, partition: int, size: int = 500) -> Iterator[Block]:
        for entries in self.ledger.scan(partition, count=size):
            yield Block(partition, tuple(entries))

    def models(self, **chosen: Any) -> Any:
        """As `pipelines.models.loaded.Models`, with these for its embedder and recognizer."""
        raise NotImplementedError

    def dump(self) -> Any:
        """The whole graph but checkpoints, to compare with another of the same kind."""
        raise NotImplementedError

    def nodes(self, label: str, *names: str) -> dict[str, dict[str, Any]]:
        """Visible nodes of a label by the last part of their keys."""
        nodes = cast(Iterator[FoundNode], self.graph.stream(label, names))
        return {str(node.key[-1]): dict(node.values) for node in nodes if node.visible}

    def edges(self, type_: str, *names: str) -> list[list[Any]]:
        """Edges of a type, sorted: the last parts of both ends' keys, and the values."""
        edges = cast(Iterator[FoundEdge], self.graph.stream(type_, names))
        return [
            [edge.source[-1], edge.target[-1], *(edge.values[name] for name in names)]
            for edge in edges
        ]

    def event_ids(self) -> list[str]:
        """Of events and of their placeholders, sorted."""
        return [node.key[1] for node in cast(Iterator[FoundNode], self.graph.stream(EVENT.label))]

    def letters(self) -> list[dict[str, Any]]:
        """The dead letters of the active target."""
        return dead_letters.list_(self.services).dead_letters


class MemoryStack(LedgerStack):
    """All of it in this process, without models: `FakeLedger`, and a store with faults on demand.

    Args:
        partitions: of the ledger.
        ledger: one that is there already, real or not, to fold it into a graph of its own.
        models: as `pipelines.models.loaded.Models`; by default words stand in for them.
    """

    graph: FaultyGraph

    def __init__(
        self,
        partitions: int = PARTITIONS,
        *,
        ledger: Any = None,
        models: Any = None,
    ) -> None:
        self.graph = FaultyGraph()
        self.ledger = ledger or FakeLedger(partitions=partitions)
        self.services = SimulatedServices(self.ledger, self.ledger.partitions)
        if models is not None:
            self.services.models = models
        self.services.graphs = cast(Any, {"blue": self.graph})
        self.target = self.services.active()
        self.prepare()

    def models(self, **chosen: Any) -> Any:
        """Nothing is kept; also what commands on this target use from now on."""
        self.services.models = SimpleNamespace(
            load=lambda: None,
            resolver=None,
            derivations=Derivations(None),
            language_model=None,
            names=with_settings(models_in_use(**chosen), self.services.settings),
            **chosen,
        )
        return self.services.models

    def append_raw(self, partition: int, data: bytes) -> Entry:
        """Bytes in the ledger that the append script never saw."""
        server = self.ledger.server
        stream = server.streams.setdefault(partition, [])
        server.clock = Position(server.clock.ms, server.clock.seq + 1)
        seq = stream[-1].seq + 1 if stream else 1
        entry = Entry(partition, server.clock, seq, data, None)
        stream.append(entry)
        return entry

    def dump(self) -> Dump:
        return dump(self.graph)

    def again(self) -> MemoryStack:
        """The same ledger with an empty graph."""
        return MemoryStack(ledger=self.ledger, models=self.services.models)

    def set_fold_version(self, version: int) -> None:
        """As a worker with other rules would leave every checkpoint."""
        for held in self.graph.checkpoints():
            with self.graph.transaction() as transaction:
                transaction.reset(replace(held, fold_version=version))


class Worker:
    """A thread that folds what comes, as the live worker does, until it is stopped."""

    def __init__(self, stack: LedgerStack, size: int = 20) -> None:
        self._stop = threading.Event()
        self._stack = stack
        self._size = size
        self._thread = threading.Thread(target=self._work)
        self.error: BaseException | None = None

    def _work(self) -> None:
        runner = self._stack.new_runner(stop=self._stop)
        ledger = self._stack.ledger
        try:
            while not self._stop.is_set():
                idle = True
                for partition in range(ledger.partitions):
                    at = runner.checkpoint(partition).position
                    entries = ledger.read(partition, at, self._size)
                    if entries:
                        idle = False
                        try:
                            runner.apply(Block(partition, tuple(entries)))
                        except Fenced:
                            continue
                if idle:
                    self._stop.wait(0.01)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
