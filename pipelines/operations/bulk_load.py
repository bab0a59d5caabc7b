"""Fill a target's store from files, where its files are in reach: a tenth of the work of Bolt.

The ledger is folded in memory by processes beside each other, share by share of the tenants, and
what came of it is written as files, which Neo4j loads into an empty store. Then the store is read
and added up: it holds what was folded if all sums are the same. Checkpoints come last, so that a
store without them is one that was not filled to the end, and is begun anew. What arrived meanwhile
is folded as ever.
"""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from pipelines.graph.bulk import BulkFiles, write_files
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.rows import FoundNode
from pipelines.ledger.entries import Entry
from pipelines.ledger.registry import Target
from pipelines.local.data_folder import exclusive_lock, live_servers, run_dir, target_dir
from pipelines.local.private_files import private_folder
from pipelines.local.processes import usable_cores
from pipelines.local.python_process import ChildTask, step_back, take
from pipelines.local.servers import Neo4jServer
from pipelines.local.services import drop_target, ensure_target
from pipelines.observe.logs import configure_logging
from pipelines.operations.ledger_shares import entries_of, share_of, split
from pipelines.proof.compare import census_differences
from pipelines.proof.expected import LedgerFold
from pipelines.proof.report import EVERYTHING, LISTED, ProofReport, StageFinding, described
from pipelines.proof.sums import MODULUS, StoredSums, digest_text
from pipelines.work.poison import PoisonPolicy
from pipelines.work.services import Progress, Services, make_fold
from pipelines.work.settings import Settings
from pipelines.work.stages import PROJECTION, STAGES, Stage
from projections.errors import OperationFailed, RecollectError
from projections.operations import Checkpoint
from projections.schema import CHECKPOINT, DEAD_LETTER, EDGES, NODES

LOADING: Final = "loading the files"
FILES_FROM: Final = 5_000
"""Entries from which on files pay: before, a second start of Java costs more than it saves."""
MB: Final = 2**20
BYTES_AN_EVENT: Final = 20_000
"""Of memory, while all stages of an event are folded."""
PROCESS_MB: Final = 300
"""A folding process that has folded nothing."""
DISK_AN_EVENT: Final = 15_000
"""Bytes of its files, and of the store that they are loaded into."""
_COMPARED_AT_ONCE: Final = 5_000
_LAST: Final = (CHECKPOINT.label, DEAD_LETTER.label)
"""What is not of one tenant, and not in the files."""
Route = Literal["bolt", "files"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class FoldTask:
    """Fold the tenants of one share, and write files.

    Attributes:
        settings: with the ledger and the derivations.
        stages: names of those that fold, in their order.
        until: of every stage and partition where it ends.
        share: of how many (`shares`) this one is.
        folder: where its entries are, and where the files go.
    """

    settings: Settings
    stages: tuple[str, ...]
    until: tuple[Checkpoint, ...]
    share: int
    shares: int
    folder: Path


@dataclass
class Folded:
    """What folding came to, of one share or of all.

    Attributes:
        files: that were written.
        sums: of all that a store must hold, by label and type.
        report: as a proof tells of it: events, digests, dead letters, awaited parents.
        checkpoints, letters: nodes that go last.
    """

    files: BulkFiles = field(default_factory=BulkFiles)
    sums: Counter[str] = field(default_factory=Counter)
    report: ProofReport = field(default_factory=ProofReport)
    checkpoints: list[FoundNode] = field(default_factory=list)
    letters: list[FoundNode] = field(default_factory=list)


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
    processes = max(1, min(usable_cores(), settings.worker_concurrency))
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


def shares_of(entries: int, processes: int, memory_mb: int) -> int:
    """Into how many shares the tenants are split, so that those folded at once fit the memory."""
    for_events = max(memory_mb - processes * PROCESS_MB, PROCESS_MB)
    at_once = for_events * MB // BYTES_AN_EVENT
    return processes * max(1, -(-entries // at_once))


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
        entries = sum(tail.seq for tail in tails)
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
                folder=private_folder(folder / str(share)),
            )
            for share in range(chosen.shares)
        ]
        split(ledger, until, [task.folder for task in tasks], self._progress)
        total = chosen.shares * sum(one.seq for one in until)
        parts = run(
            tasks,
            processes=chosen.processes,
            total=total,
            progress=self._progress,
            what="folding the ledger",
        )
        return _together(parts, entries)

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
        counts = folded.files.counts
        total = sum(counts.values())
        stored = StoredSums()
        for done, (name, item) in enumerate(graph.held([name for name in counts if counts[name]])):
            stored.add(name, item)
            if done % _COMPARED_AT_ONCE == 0:
                self._progress(min(done, total), total, "comparing the store with what was folded")
        graph.ensure_schema()
        census = graph.census()
        there = {**census.labels, **census.types}
        names = [name for name in (*NODES, *EDGES) if name not in _LAST]
        wrong = [
            name
            for name in names
            if there.get(name, 0) != counts.get(name, 0)
            or (stored.sums[name] - folded.sums[name]) % MODULUS
        ]
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


def run(
    tasks: Sequence[FoldTask],
    *,
    processes: int,
    total: int,
    progress: Progress,
    what: str,
) -> list[Any]:
    """What each task came to, so many at a time in children; progress adds up what they send.

    Raises:
        OperationFailed: one of them ended without a word; the others are ended.
        RecollectError: whatever one of them met.
    """
    guard = threading.Lock()
    children: set[ChildTask] = set()
    done = Counter[int]()
    is_over = threading.Event()

    def one(number: int) -> Any:
        with guard:
            if is_over.is_set():
                return None
            child = ChildTask(__name__, tasks[number])
            children.add(child)
        with child:
            for message in child.messages():
                if isinstance(message, int):
                    with guard:
                        done[number] = message
                        progress(min(done.total(), total), total, what)
                elif isinstance(message, RecollectError):
                    raise message
                else:
                    return message
        raise OperationFailed(reason=f"a process that was {what} ended without a result")

    with ThreadPoolExecutor(processes, thread_name_prefix="errand") as pool:
        futures = [pool.submit(one, number) for number in range(len(tasks))]
        try:
            return [future.result() for future in futures]
        finally:
            with guard:
                is_over.set()
                running = list(children)
            for child in running:
                child.end()


def _together(parts: Sequence[Folded], entries: int) -> Folded:
    """What all shares came to."""
    whole = Folded()
    letters: dict[Any, FoundNode] = {}
    digests: Counter[str] = Counter()
    report = whole.report
    for part in parts:
        whole.files.add(part.files)
        whole.sums.update(part.sums)
        whole.checkpoints = whole.checkpoints or part.checkpoints
        letters |= {node.key: node for node in part.letters}
        for name, finding in part.report.stages.items():
            digests[name] += int(finding.digest, 16)
        report.events += part.report.events
        report.waiting_parent_count += part.report.waiting_parent_count
        report.waiting_parents += part.report.waiting_parents
    whole.letters = [letters[key] for key in sorted(letters)]
    report.waiting_parents = report.waiting_parents[:LISTED]
    report.stages = {
        name: StageFinding(entries=entries, digest=digest_text(digests[name]))
        for name in parts[0].report.stages
    }
    report.dead_letters = [node.values for node in whole.letters[:LISTED]]
    report.dead_letter_count = len(whole.letters)
    for node in whole.letters:
        report.stages[str(node.key[0])].dead_letter_count += 1
    passed = report.stages[PROJECTION.name].dead_letter_count
    report.system_events = entries - passed - report.events
    counts = {**whole.files.counts, DEAD_LETTER.label: len(whole.letters)}
    report.compared = {name: number for name, number in counts.items() if number}
    return whole


# -- the children --------------------------------------------------------------------------------


def main() -> None:
    """A child: a task from the parent, progress and the result to it, or the error that it met."""
    task, send = take()
    configure_logging(task.settings)
    gc.disable()  # nothing that a fold leaves behind is in a cycle: to look was a tenth of its time
    step_back(task.settings.rebuild_nice)
    try:
        send(fold_share(task, send))
    except RecollectError as error:
        send(error)


def fold_share(task: FoldTask, tell: Callable[[int], None]) -> Folded:
    """Fold what a share of the tenants did, and write it as files."""

    def of_share(tenant: str) -> bool:
        return share_of(tenant, task.shares) == task.share

    with Services(task.settings, loads_models=False) as services:  # most often none has to run
        active = services.active()
        fold = LedgerFold(
            services.ledger,
            [make_fold(STAGES[name], services, active) for name in task.stages],
            policy=PoisonPolicy.of_command(task.settings),
            tenants=of_share,
            read=lambda _, to: entries_of(task.folder, to.partition, services.ledger.vault),
            progress=lambda done, total, what: tell(done),
        )
        fold.advance(MemoryGraph(), task.until)
        folded = Folded(report=ProofReport(stages={name: StageFinding() for name in task.stages}))
        stored = StoredSums(task.stages)
        folded.files = write_files(
            fold.graph, task.folder, without=_LAST, share=task.share, see=stored.add
        )
        folded.sums = stored.sums
        described(folded.report, fold.graph, fold.entries, EVERYTHING, digests=stored.digests)
        for label, nodes in (
            (CHECKPOINT.label, folded.checkpoints),
            (DEAD_LETTER.label, folded.letters),
        ):
            names = [p.name for p in NODES[label].stored()]
            nodes += cast(Iterator[FoundNode], fold.graph.stream(label, names))
        return folded
