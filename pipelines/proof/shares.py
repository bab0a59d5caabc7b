"""The ledger folded share by share of the tenants, by processes beside each other.

A tenant's graph follows from its own events alone. So what does not fit into memory together is
folded one share after the other, and each core folds one. What came of a share is told by sums,
and written as files for who wants to load them. For files the ledger is read once and written down
by share, since to read all of it for every share costs 5 µs of processor time an entry and share.
What is written is what the ledger holds: sealed events stay sealed.
"""

from __future__ import annotations

import gc
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from zlib import crc32

from pipelines.graph.bulk import BulkFiles, write_files
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.rows import FoundNode
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.entries import Entry
from pipelines.ledger.sealing import Opener
from pipelines.local.private_files import open_private
from pipelines.local.processes import usable_cores
from pipelines.local.python_process import ChildTask, step_back, take
from pipelines.observe.logs import configure_logging
from pipelines.proof.expected import BLOCK, LedgerFold, ReadLedger, blocks_between
from pipelines.proof.report import EVERYTHING, LISTED, ProofReport, StageFinding, described
from pipelines.proof.sums import READING, StoredSums, digest_text
from pipelines.work.poison import PoisonPolicy
from pipelines.work.services import Services, make_fold
from pipelines.work.settings import Settings
from pipelines.work.stages import PROJECTION, STAGES
from projections.errors import OperationFailed, RecollectError
from projections.identity import START, Position
from projections.operations import Checkpoint
from projections.schema import CHECKPOINT, DEAD_LETTER, EDGES, NODES

FOLDING: Final = "folding the ledger"
MB: Final = 2**20
BYTES_AN_EVENT: Final = 20_000
"""Of memory, while all stages of an event are folded."""
PROCESS_MB: Final = 300
"""A folding process that has folded nothing."""
NOT_IN_FILES: Final = (CHECKPOINT.label, DEAD_LETTER.label)
"""What is not of one tenant: it goes into a store last."""


@dataclass(frozen=True)
class FoldTask:
    """Fold the tenants of one share.

    Attributes:
        settings: with the ledger and the derivations.
        stages: names of those that fold, in their order.
        until: of every stage and partition where it ends.
        share: of how many (`shares`) this one is.
        policy: when an entry is given up.
        folder: where its entries are, and where files of what came of them go; None: the ledger is
            read, no file is written, and the sums are by tenant.
        target: whose dead letters count, and whose rules; None: of a new one.
        may_lack: whether the ledger may have lost what was folded once.
    """

    settings: Settings
    stages: tuple[str, ...]
    until: tuple[Checkpoint, ...]
    share: int
    shares: int
    policy: PoisonPolicy
    folder: Path | None = None
    target: str | None = None
    may_lack: bool = False

    def has(self, tenant: str) -> bool:
        """Whether a tenant is in the share."""
        return share_of(tenant, self.shares) == self.share


@dataclass
class Folded:
    """What folding came to, of one share or of all.

    Attributes:
        files: that were written.
        stored: sums of all that a store must hold.
        report: as a proof tells of it: events, digests, dead letters, awaited parents.
        checkpoints, letters: nodes that go last.
    """

    files: BulkFiles = field(default_factory=BulkFiles)
    stored: StoredSums = field(default_factory=StoredSums)
    report: ProofReport = field(default_factory=ProofReport)
    checkpoints: list[FoundNode] = field(default_factory=list)
    letters: list[FoundNode] = field(default_factory=list)


def processes_of(settings: Settings) -> int:
    """How many processes fold beside each other."""
    return max(1, min(usable_cores(), settings.worker_concurrency))


def shares_of(entries: int, processes: int, memory_mb: int) -> int:
    """Into how many shares the tenants are split, so that those folded at once fit the memory."""
    for_events = max(memory_mb - processes * PROCESS_MB, PROCESS_MB)
    at_once = for_events * MB // BYTES_AN_EVENT
    return processes * max(1, -(-entries // at_once))


def fold_shares(tasks: Sequence[FoldTask], *, processes: int, progress: Progress) -> list[Folded]:
    """What each task came to, so many at a time in children; progress adds up what they send.

    Raises:
        OperationFailed: one of them ended without a word; the others are ended.
        RecollectError: whatever one of them met.
    """
    guard = threading.Lock()
    children: set[ChildTask] = set()
    done = Counter[int]()
    total = sum(checkpoint.seq for task in tasks for checkpoint in task.until)
    is_over = threading.Event()

    def one(number: int) -> Folded:
        with guard:
            if is_over.is_set():
                return Folded()
            child = ChildTask(__name__, tasks[number])
            children.add(child)
        with child:
            for message in child.messages():
                if isinstance(message, int):
                    with guard:
                        done[number] = message
                        progress(min(done.total(), total), total, FOLDING)
                elif isinstance(message, RecollectError):
                    raise message
                elif isinstance(message, Folded):
                    return message
        raise OperationFailed(reason=f"a process that was {FOLDING} ended without a result")

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


def together(parts: Sequence[Folded], until: Iterable[Checkpoint]) -> Folded:
    """What all shares came to, of the stages that end at these checkpoints."""
    whole = Folded(stored=StoredSums(by_tenant=parts[0].stored.by_tenant))
    letters: dict[Any, FoundNode] = {}
    digests: Counter[str] = Counter()
    entries: Counter[str] = Counter()
    for checkpoint in until:
        entries[checkpoint.stage] += checkpoint.seq
    report = whole.report
    for part in parts:
        whole.files.add(part.files)
        whole.stored.update(part.stored)
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
        name: StageFinding(entries=entries[name], digest=digest_text(digests[name]))
        for name in parts[0].report.stages
    }
    report.dead_letters = [node.values for node in whole.letters[:LISTED]]
    report.dead_letter_count = len(whole.letters)
    for node in whole.letters:
        report.stages[str(node.key[0])].dead_letter_count += 1
    projected = report.stages[PROJECTION.name]
    report.system_events = projected.entries - projected.dead_letter_count - report.events
    counts = {**whole.stored.counts, DEAD_LETTER.label: len(whole.letters)}
    report.compared = {name: counts[name] for name in (*NODES, *EDGES) if counts.get(name)}
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
    """Fold what a share of the tenants did; add it up, or write it as files, too."""
    with Services(task.settings, loads_models=False) as services:  # most often none has to run
        target = services.active() if task.target is None else services.target(task.target)
        shown = MemoryGraph() if task.target is None else services.graph(target)
        fold = LedgerFold(
            services.ledger,
            [make_fold(STAGES[name], services, target) for name in task.stages],
            policy=task.policy,
            tenants=task.has,
            read=_written(task, services.ledger.vault),
            may_lack=task.may_lack,
            progress=lambda done, total, what: tell(done),
        )
        with services.models.from_memory() if task.folder is None else nullcontext():
            fold.advance(shown, task.until)
        stored = StoredSums(task.stages, by_tenant=task.folder is None)
        folded = Folded(stored=stored)
        folded.report.stages = {name: StageFinding() for name in task.stages}
        if task.folder is not None:
            folded.files = write_files(
                fold.graph, task.folder, without=NOT_IN_FILES, share=task.share, see=stored.add
            )
        else:
            for name in (*NODES, *EDGES):
                for item in fold.graph.held(name) if name not in NOT_IN_FILES else ():
                    stored.add(name, item)
        described(folded.report, fold.graph, fold.entries, EVERYTHING, digests=stored.digests)
        for label, nodes in (
            (CHECKPOINT.label, folded.checkpoints),
            (DEAD_LETTER.label, folded.letters),
        ):
            names = [p.name for p in NODES[label].stored()]
            nodes += cast(Iterator[FoundNode], fold.graph.stream(label, names))
        return folded


def _written(
    task: FoldTask, keys: Opener
) -> Callable[[Checkpoint, Checkpoint], Iterable[list[Entry]]] | None:
    """What gives the entries that were written into a task's folder."""
    folder = task.folder
    return None if folder is None else lambda _, to: entries_of(folder, to.partition, keys)


# -- entries, by share ---------------------------------------------------------------------------


def share_of(tenant: str, shares: int) -> int:
    """Which of so many shares a tenant is in, the same in every process."""
    return crc32(tenant.encode()) % shares


def split(
    ledger: ReadLedger, until: Iterable[Checkpoint], folders: Sequence[Path], progress: Progress
) -> None:
    """Write down the entries up to checkpoints of stages that all end there, a folder a share.

    The last entry of a partition is in every share, for it tells where the partition ends, and so
    is one of which nobody can tell whose it is.

    Raises:
        LedgerUnavailable, ArchiveDamaged, UndecodableEntry: as `Ledger.read` does.
    """
    ends = {to.partition: to for to in until}
    done, total = 0, sum(to.seq for to in ends.values())
    for to in ends.values():
        with ExitStack() as stack:
            files = [
                stack.enter_context(open_private(_path(folder, to.partition), "wb"))
                for folder in folders
            ]
            start = Checkpoint(to.stage, to.partition, position=START)
            for entries in blocks_between(ledger, start, to):
                rows: list[list[tuple[object, ...]]] = [[] for _ in folders]
                for entry in entries:
                    tenant = None if entry.fault or entry.seq == to.seq else entry.tenant
                    row = (*entry.position, *entry[2:-1])
                    if tenant is not None:
                        rows[share_of(tenant, len(folders))].append(row)
                    else:
                        for of_share in rows:
                            of_share.append(row)
                for file, of_share in zip(files, rows, strict=True):
                    pickle.dump(of_share, file)
                done += len(entries)
                progress(done, total, READING)


def entries_of(folder: Path, partition: int, keys: Opener) -> Iterator[list[Entry]]:
    """The entries of a partition that were written into a folder, a transaction's at a time.

    Args:
        folder: of a share.
        partition: which.
        keys: what opens them.
    """
    entries: list[Entry] = []
    with _path(folder, partition).open("rb") as file:
        while file.peek(1):
            entries += [
                Entry._make((partition, Position(ms, number), *told, keys))
                for ms, number, *told in pickle.load(file)  # noqa: S301  this program wrote it
            ]
            if len(entries) >= BLOCK:
                yield entries
                entries = []
    if entries:
        yield entries


def _path(folder: Path, partition: int) -> Path:
    return folder / f"{partition}.entries"
