"""Fill a target's store from files, where its files are in reach: a tenth of the work of Bolt.

The ledger is folded in memory by processes beside each other, share by share of the tenants, and
what came of it is written as files, which Neo4j loads into an empty store. Then the store is read
and added up: it holds what was folded if all sums are the same. Checkpoints come last, so that a
store without them is one that was not filled to the end, and is begun anew. What arrived meanwhile
is folded as ever.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.entries import Entry
from pipelines.ledger.registry import Target
from pipelines.local.data_folder import exclusive_lock, live_servers, run_dir, target_dir
from pipelines.local.private_files import private_folder
from pipelines.local.servers import Neo4jServer
from pipelines.local.services import drop_target, ensure_target
from pipelines.proof.compare import census_differences
from pipelines.proof.report import ProofReport
from pipelines.proof.shares import (
    BYTES_AN_EVENT,
    MB,
    NOT_IN_FILES,
    PROCESS_MB,
    Folded,
    FoldTask,
    fold_shares,
    processes_of,
    shares_of,
    split,
    together,
)
from pipelines.proof.sums import StoredSums
from pipelines.work.poison import PoisonPolicy
from pipelines.work.services import Services, make_fold
from pipelines.work.stages import Stage
from projections.errors import OperationFailed
from projections.operations import Checkpoint
from projections.schema import CHECKPOINT, DEAD_LETTER, EDGES, NODES

LOADING: Final = "loading the files"
FILES_FROM: Final = 5_000
"""Entries from which on files pay: before, a second start of Java costs more than it saves."""
DISK_AN_EVENT: Final = 15_000
"""Bytes of its files, and of the store that they are loaded into."""
Route = Literal["bolt", "files"]
Result = TypeVar("Result")


@dataclass
class Loaded:
    """A target that was filled.

    Attributes:
        target: registered nowhere yet.
        report: what its ledger says, and whether it holds that.
        seconds: by step.
    """

    target: Target
    report: ProofReport
    seconds: dict[str, float]


@dataclass(frozen=True)
class LoadPlan:
    """How a new target would be filled.

    Attributes:
        route: through files, or through Bolt, as any other target.
        entries: that the ledger holds.
        processes: that fold beside each other.
        shares: of the tenants, each folded whole by one of them.
        memory_mb: what all of them take at once, if tenants are alike.
        disk_mb: of the files and the store.
    """

    route: Route
    entries: int
    processes: int
    shares: int
    memory_mb: int
    disk_mb: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan(services: Services, route: Route | None = None) -> LoadPlan:
    """How a new target would be filled by a route, or by the one that suits the ledger."""
    entries = sum(tail.seq for tail in services.ledger.tails())
    settings = services.settings
    processes = processes_of(settings)
    shares = shares_of(entries, processes, settings.rebuild_memory_mb)
    chosen: Route = route or ("files" if entries >= FILES_FROM else "bolt")
    if chosen == "bolt":
        processes = shares = 1
    folded_at_once = entries * processes // shares if chosen == "files" else 0
    return LoadPlan(
        chosen,
        entries,
        processes,
        shares,
        memory_mb=processes * PROCESS_MB + folded_at_once * BYTES_AN_EVENT // MB,
        disk_mb=entries * DISK_AN_EVENT // MB,
    )


def load_target(
    services: Services, stages: Sequence[Stage], name: str, progress: Progress
) -> Loaded:
    """Make a new embedded target of that name, filled with all that the ledger holds now.

    Args:
        services: ledger and targets; the data folder is its own.
        stages: which fold, in their order.
        name: of the target, registered nowhere; what is left of it is deleted.
        progress: called with done, total and what is being done.

    Raises:
        OperationFailed: another process fills it, files could not be loaded, or the store does not
            hold what was folded.
        LedgerUnavailable: Redis is away.
        ModelUnavailable: a model that has to run is not installed.
    """
    data_dir = services.settings.data_dir
    lock = run_dir(data_dir) / f"load-{name}.lock"
    with exclusive_lock(lock, f"another process fills {name}"):
        return _Load(services, stages, name, progress).run()


class _Load:
    def __init__(
        self, services: Services, stages: Sequence[Stage], name: str, progress: Progress
    ) -> None:
        self._services = services
        self._settings = services.settings
        self._stages = stages
        self._name = name
        self._progress = progress
        self._home = target_dir(self._settings.data_dir, name)
        self._seconds: dict[str, float] = {}

    def run(self) -> Loaded:
        data_dir = self._settings.data_dir
        if self._name in live_servers(data_dir):
            drop_target(data_dir, self._name)
        shutil.rmtree(self._home, ignore_errors=True)
        folder = private_folder(private_folder(self._home) / "bulk")
        folded = self._timed("fold", lambda: self._fold(folder))
        self._progress(0, None, LOADING)
        self._timed("load", lambda: Neo4jServer(self._home).load(folded.files.arguments()))
        shutil.rmtree(folder)
        uri = self._timed("start", lambda: ensure_target(data_dir, self._name))
        target = Target(self._name, uri, self._settings.neo4j_database, "building")
        graph = self._services.neo4j_graph(target)
        self._progress(0, None, "making the indexes")
        self._timed("index", lambda: self._index(graph, folded))
        self._timed("prove", lambda: self._prove(graph, folded))
        with graph.transaction() as transaction:
            transaction.restore_nodes(DEAD_LETTER.label, folded.letters)
            transaction.restore_nodes(CHECKPOINT.label, folded.checkpoints)
        folded.report.duration_s = self._seconds["prove"]
        return Loaded(target, folded.report, self._seconds)

    def _timed(self, step: str, work: Callable[[], Result]) -> Result:
        begun = time.perf_counter()
        result = work()
        self._seconds[step] = round(time.perf_counter() - begun, 3)
        return result

    # -- folding -----------------------------------------------------------------------------------

    def _fold(self, folder: Path) -> Folded:
        ledger = self._services.ledger
        tails = ledger.tails()
        last = [ledger.entry_at(n, t.position, t.seq) for n, t in enumerate(tails) if t.seq]
        until = ends_at(self._services, self._stages, filter(None, last))
        chosen = plan(self._services, "files")
        tasks = [
            FoldTask(
                settings=self._settings,
                stages=tuple(stage.name for stage in self._stages),
                until=until,
                share=share,
                shares=chosen.shares,
                policy=PoisonPolicy.of_command(self._settings),
                folder=private_folder(folder / str(share)),
            )
            for share in range(chosen.shares)
        ]
        split(ledger, until, [folder / str(task.share) for task in tasks], self._progress)
        parts = fold_shares(tasks, processes=chosen.processes, progress=self._progress)
        return together(parts, until)

    def _index(self, graph: Neo4jGraph, folded: Folded) -> None:
        """Begin to make the indexes, and set what the files lack.

        Constraints are there then; the rest is made while the store is read, which needs none.
        """
        graph.ensure_schema(awaited=False)
        folded.files.restore(graph)

    # -- proving -----------------------------------------------------------------------------------

    def _prove(self, graph: Neo4jGraph, folded: Folded) -> None:
        """See that the store holds what was folded, and wait for its indexes.

        Raises:
            OperationFailed: it does not.
        """
        counts = folded.stored.counts
        total = sum(counts.values())
        stored = StoredSums()
        stored.add_all(
            graph.held([name for name in counts if counts[name]]),
            total=total,
            progress=self._progress,
            what="comparing the store with what was folded",
        )
        graph.ensure_schema()
        census = graph.census()
        there = {**census.labels, **census.types}
        names = [name for name in (*NODES, *EDGES) if name not in NOT_IN_FILES]
        other = stored.differing(folded.stored)
        wrong = [name for name in names if name in other or there.get(name, 0) != counts[name]]
        schema = list(census_differences(census))
        if wrong or schema:
            what = ", ".join([*wrong, *map(str, schema)])
            raise OperationFailed(reason=f"{self._name} does not hold what was folded: {what}")


def ends_at(
    services: Services, stages: Sequence[Stage], last: Iterable[Entry]
) -> tuple[Checkpoint, ...]:
    """Where each stage stands once it has folded up to the last entry of each partition."""
    folds = [make_fold(stage, services, services.active()) for stage in stages]
    return tuple(
        Checkpoint(
            rules.stage.name,
            entry.partition,
            position=entry.position,
            seq=entry.seq,
            digest=entry.digest,
            fold_version=rules.stage.fold_version,
            models=rules.models,
        )
        for entry in last
        for rules in folds
    )
