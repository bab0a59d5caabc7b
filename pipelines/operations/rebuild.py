"""Replay and rebuild: the runner of live work, driven by the ledger instead of a stream.

- `replay`: a stage again over a range, into the same graph.
- `rebuild` in place: the whole ledger again into the same graph, then sweep what it does not
  support.
- `rebuild` into a fresh target: fold, catch up with what flows in meanwhile, verify, switch. A
  rebuild that was killed goes on where the target's checkpoints stand. A new embedded target is
  filled from files first (`load`), and proved as it is filled; what is left goes through Bolt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from threading import Event as Flag
from threading import Lock
from typing import Any

import structlog

from pipelines.ledger.command_notes import Progress, Telling
from pipelines.ledger.entries import Entry
from pipelines.ledger.epoch import lost_checkpoints
from pipelines.ledger.ledger import Tail
from pipelines.ledger.registry import Report, Target
from pipelines.local.services import ensure_target
from pipelines.operations.bulk_load import Loaded, Route, load_target, plan
from pipelines.operations.consolidate import ConsolidationReport, redecide
from pipelines.proof.compare import census_differences
from pipelines.proof.report import ProofReport
from pipelines.proof.verify import verify
from pipelines.work.catch_up import bring_back, fold_partition, fold_unserved
from pipelines.work.poison import PoisonPolicy
from pipelines.work.runner import Runner
from pipelines.work.services import Services, make_fold
from pipelines.work.stages import PROJECTION, STAGES, Stage, group_name, later_stages
from projections.errors import (
    GraphUnavailable,
    LedgerUnavailable,
    OperationFailed,
    UndecodableEntry,
)
from projections.events import DEFAULT_TENANT
from projections.identity import START, Position, partition_of
from projections.operations import Checkpoint

logger = structlog.get_logger(__name__)

HANDOVER_S = 15.0
"""How long a rebuild goes on folding after a switch until a worker has taken the target over."""


@dataclass
class ReplayReport:
    """What a replay did. `failed`: entries that could not be folded, with the reason."""

    stage: str
    target: str
    entries: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)
    duration_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": not self.failed, **asdict(self)}


@dataclass
class RebuildReport:
    """What a rebuild did.

    Attributes:
        route: `files` if the target was filled from files, else `bolt`.
        seconds: of the steps by which it was filled from files.
    """

    target: str
    in_place: bool
    route: Route
    entries: int
    resumed_at: int
    switched: bool
    generation: int | None
    fold_s: float
    duration_s: float
    verified: ProofReport
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the graph equals the ledger."""
        return self.verified.ok

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "target": self.target,
            "in_place": self.in_place,
            "route": self.route,
            "seconds": dict(self.seconds),
            "entries": self.entries,
            "resumed_at": self.resumed_at,
            "entries_per_second": round((self.entries - self.resumed_at) / max(self.fold_s, 1e-9)),
            "switched": self.switched,
            "generation": self.generation,
            "duration_s": round(self.duration_s, 3),
            "events": self.verified.events,
            "digest": self.verified.digest,
            "differences": [difference.as_dict() for difference in self.verified.differences],
            "difference_count": self.verified.difference_count,
            "scope": self.verified.scope,
            "stages": {name: one.as_dict() for name, one in self.verified.stages.items()},
        }


def replay(
    services: Services,
    stage: Stage,
    *,
    after: Position = START,
    until: Position | None = None,
    session: str | None = None,
    tenant: str | None = None,
    target: Target | None = None,
    progress: Progress | None = None,
) -> ReplayReport:
    """Run a stage again over a range of the ledger, into the same graph.

    Entries beyond the checkpoints are left to the workers. Live work goes on meanwhile.

    Args:
        services: ledger and targets.
        stage: which.
        after: the position before the first entry.
        until: position of the last entry; None: the tail.
        session: only this session, of `tenant` or `default`.
        tenant: only this tenant.
        target: default the active one.
        progress: called with done, total and what is being done.
    """
    begun = time.perf_counter()
    chosen = target or services.active()
    report = ReplayReport(stage.name, chosen.name)
    ledger = services.ledger
    runner = Runner(
        make_fold(stage, services, chosen),
        services.graph(chosen),
        target=chosen.name,
        policy=PoisonPolicy.of_command(services.settings),
    )
    owner = tenant or (DEFAULT_TENANT if session else None)
    partitions = (
        [partition_of(str(owner), session, ledger.partitions)]
        if session
        else list(range(ledger.partitions))
    )
    total = sum(tail.seq for n, tail in enumerate(ledger.tails()) if n in partitions)
    guard = Lock()
    seen = 0

    def fold(partition: int, stop: Flag) -> None:
        nonlocal seen
        count = stage.rebuild_batch_size(services.settings)
        for entries in ledger.scan(partition, after, until, count):
            if stop.is_set():
                return
            chosen_entries = list(_matching(entries, owner, session))
            failed = runner.refold(partition, chosen_entries)
            with guard:
                seen += len(entries)
                report.entries += len(chosen_entries)
                report.failed += [
                    {"position": str(entry.position), "partition": partition, "reason": reason}
                    for entry, reason in failed
                ]
                if progress:
                    progress(seen, total, f"replaying {stage.name}")

    _in_threads(fold, partitions, services.settings.worker_concurrency)
    report.duration_s = round(time.perf_counter() - begun, 3)
    return report


@dataclass(frozen=True)
class NewTarget:
    """An embedded target that is to be made, in the data folder of the settings.

    Attributes:
        name: its name, which no registered target has.
        route: how it is filled; None: as suits the ledger.
    """

    name: str
    route: Route | None = None


def rebuild(
    services: Services,
    *,
    into: Target | NewTarget | None = None,
    switch: bool = False,
    progress: Progress | None = None,
) -> RebuildReport:
    """Fold the whole ledger again, in place or into a fresh target.

    Args:
        services: ledger and targets.
        into: the fresh target; None: the active one, in place.
        switch: let `into` answer reads once it is verified.
        progress: called with done, total and what is being done.

    Raises:
        OperationFailed: `into` is kept in step already, or is the graph of another target, or the
            fold differs from the ledger (then nothing is switched).
    """
    name = services.active().name if into is None else into.name
    try:
        return _run(services, into, switch, Telling(services.rebuilds, name, progress))
    finally:
        with suppress(LedgerUnavailable):  # it is forgotten there after a while
            services.rebuilds.end(name)


def _run(
    services: Services, into: Target | NewTarget | None, switch: bool, progress: Progress
) -> RebuildReport:
    if into is None:
        return _rebuild_in_place(services, progress)
    if isinstance(into, Target):
        return _Rebuild(services, into, progress).run(switch)
    if plan(services, into.route).route == "bolt":
        uri = ensure_target(services.settings.data_dir, into.name)
        target = Target(into.name, uri, services.settings.neo4j_database, "building")
        return _Rebuild(services, target, progress).run(switch)
    loaded = load_target(services, _stages_of(services), into.name, progress)
    services.targets.register(loaded.target)
    return _Rebuild(services, loaded.target, progress).run(switch, loaded)


def _rebuild_in_place(services: Services, progress: Progress) -> RebuildReport:
    begun = time.perf_counter()
    target = services.active()
    graph = services.graph(target)
    is_new = not graph.checkpoints(PROJECTION.name)
    entries = 0
    for stage in _stages_of(services) if not is_new else ():
        rules = make_fold(stage, services, target)
        for checkpoint in graph.checkpoints(stage.name):
            if (checkpoint.fold_version, checkpoint.models) != (stage.fold_version, rules.models):
                with graph.transaction() as transaction:
                    locked = transaction.lock(checkpoint.stage, checkpoint.partition)
                    current = locked or checkpoint
                    transaction.reset(
                        replace(current, fold_version=stage.fold_version, models=rules.models)
                    )
        replayed = replay(services, stage, target=target, progress=progress)
        entries = max(entries, replayed.entries)
    _fold_the_rest(services, target, is_new=is_new)
    if is_new:
        entries = sum(row.seq for row in graph.checkpoints(PROJECTION.name))
    fold_s = time.perf_counter() - begun
    verified = verify(services, target=target.name, repair=True, progress=progress)
    return RebuildReport(
        target=target.name,
        in_place=True,
        route="bolt",
        entries=entries,
        resumed_at=0,
        switched=False,
        generation=None,
        fold_s=fold_s,
        duration_s=time.perf_counter() - begun,
        verified=verified,
    )


def _fold_the_rest(services: Services, target: Target, *, is_new: bool) -> None:
    """Fold what no worker holds.

    Where nothing has begun, as on a ledger that an import has filled, all stages begin: workers
    that began there would decide anew what the ledger has recorded further on. Else those that have
    begun go on; such a fold may have been interrupted.
    """
    graph, ledger = services.graph(target), services.ledger
    runners: dict[str, Runner] = {}

    def runner_of(stage: Stage) -> Runner:
        if stage.name not in runners:
            runner = Runner(
                make_fold(stage, services, target),
                graph,
                target=target.name,
                policy=PoisonPolicy.of_command(services.settings),
            )
            runner.prepare(ledger.partitions)
            runners[stage.name] = runner
        return runners[stage.name]

    if is_new:
        graph.ensure_schema()
        for stage in (*later_stages(), PROJECTION):  # when the projection has begun, all have
            runner_of(stage)
    fold_unserved(services, target, runner_of, stages=_stages_of(services))
    bring_back(services, target)


class _Rebuild:
    """One rebuild into a fresh target."""

    def __init__(self, services: Services, target: Target, progress: Progress) -> None:
        self.services = services
        self.target = target
        self.progress = progress
        self.ledger = services.ledger
        self.graph = services.graph(target)
        self.stages = _stages_of(services)
        self._runners: dict[str, Runner] = {}

    def run(self, switch: bool, loaded: Loaded | None = None) -> RebuildReport:
        """Fold what is not folded, prove it unless it was `loaded` and proved, and switch."""
        begun = time.perf_counter()
        resumed_at = self._claim()
        claimed = time.perf_counter()
        self._catch_up()
        fold_s = time.perf_counter() - claimed
        entries = self._folded()
        # It is "building" until it was found right: killed before, the rebuild goes on from here.
        if loaded is None:
            verified = verify(self.services, target=self.target.name, progress=self.progress)
        else:
            verified, resumed_at = loaded.report, 0
            fold_s += sum(loaded.seconds.values())
            begun -= sum(loaded.seconds.values())
        if verified.ok:
            # from here on workers keep it in step; until one does, this process does
            self.services.targets.set_state(self.target.name, "standby")
            self._catch_up()
        generation = None
        if switch:
            if not verified.ok:
                raise OperationFailed(
                    reason=f"{self.target.name} differs from the ledger in "
                    f"{verified.difference_count} places, nothing was switched; "
                    f"`recollect targets drop {self.target.name}` and rebuild again"
                )
            before = self.services.active()
            self._catch_up()
            generation = self.services.targets.activate(self.target.name)
            logger.info("switched", target=self.target.name, generation=generation)
            self._hand_over(before)
        self._report(1.0)
        return RebuildReport(
            target=self.target.name,
            in_place=False,
            route="bolt" if loaded is None else "files",
            entries=entries,
            resumed_at=resumed_at,
            switched=switch,
            generation=generation,
            fold_s=fold_s,
            duration_s=time.perf_counter() - begun,
            verified=verified,
            seconds={} if loaded is None else loaded.seconds,
        )

    def _claim(self) -> int:
        """Register the target; empty it unless it holds the beginning of this very rebuild.

        Returns:
            How many entries are folded already.
        """
        targets = self.services.targets
        self.services.active()
        registered = {target.name: target for target in targets.all()}.get(self.target.name)
        if registered is not None and registered.state in ("active", "standby"):
            name, switch = registered.name, ""
            if registered.state == "standby":  # perhaps a rebuild was killed before its switch
                switch = f"`recollect targets activate {name}` to read from it, or "
            raise OperationFailed(
                reason=f"{name} is {registered.state} and kept in step; {switch}"
                f"`recollect targets drop {name}` before it is rebuilt"
            )
        self._refuse_shared(targets.all())
        targets.register(replace(self.target, state="building"))
        checkpoints = self.graph.checkpoints()
        self._runners = {
            stage.name: Runner(
                make_fold(stage, self.services, self.target),
                self.graph,
                target=self.target.name,
                policy=PoisonPolicy.of_command(self.services.settings),
            )
            for stage in self.stages
        }
        missing = self.ledger.missing_checkpoints
        resumable = (
            registered is not None
            and registered.state == "building"
            and all(self._made(c) for c in checkpoints)
            and not lost_checkpoints(missing, checkpoints, self.graph.checkpoints)
        )
        if not resumable:
            self.graph.clear()
            self._refuse_foreign()
        for runner in self._runners.values():
            runner.prepare(self.ledger.partitions)
        return self._folded()

    def _refuse_foreign(self) -> None:
        """See that an emptied target is empty: what somebody else keeps there is no memory."""
        foreign = [
            census_difference
            for census_difference in census_differences(self.graph.census())
            if census_difference.kind == "extra"
        ]
        if foreign:
            names = ", ".join(f"{one.type} {' '.join(one.key)}" for one in foreign)
            raise OperationFailed(
                reason=f"{self.target.name} holds what is not Recollect's ({names}); "
                "it needs a database of its own"
            )

    def _made(self, checkpoint: Checkpoint) -> bool:
        """Whether this rebuild's own rules folded up to the checkpoint."""
        runner = self._runners.get(checkpoint.stage)
        return runner is not None and (checkpoint.fold_version, checkpoint.models) == (
            runner.stage.fold_version,
            runner.rules.models,
        )

    def _folded(self) -> int:
        """Entries that the first stage has folded."""
        return sum(c.seq for c in self.graph.checkpoints(PROJECTION.name))

    def _refuse_shared(self, others: Iterable[Target]) -> None:
        """A target is emptied first: never the graph of another, by whatever address it goes."""
        store = self._store_id(self.target)
        for other in others:
            if other.name != self.target.name and store == self._store_id(other):
                raise OperationFailed(
                    reason=f"{self.target.name} would share the graph of {other.name} "
                    f"({other.uri}, {other.database})"
                )

    def _store_id(self, target: Target) -> str | None:
        if (target.uri, target.database) == (self.target.uri, self.target.database):
            target = self.target
        try:
            return self.services.graph(target).store_id()
        except GraphUnavailable:
            if target is self.target:
                raise
            return None  # away, so not the one that is here

    def _catch_up(self) -> None:
        """Fold until what is left arrived while the last of it was folded."""
        while True:
            tails = self.ledger.tails()
            behind = {stage.name: self._behind(tails, stage) for stage in self.stages}
            if not any(behind.values()):
                return
            self._fold_to(tails)
            if max(behind.values()) <= self.services.settings.batch_size:
                return

    def _behind(self, tails: Sequence[Tail], stage: Stage) -> int:
        seqs = {c.partition: c.seq for c in self.graph.checkpoints(stage.name)}
        return sum(max(0, tail.seq - seqs.get(n, 0)) for n, tail in enumerate(tails))

    def _fold_to(self, tails: Sequence[Tail]) -> None:
        """Every stage up to the tails, one after the other: a stage needs the one before it."""
        total = len(self.stages) * sum(tail.seq for tail in tails)
        done = total - sum(self._behind(tails, stage) for stage in self.stages)
        guard = Lock()

        def fold(stage: Stage, partition: int, stop: Flag) -> None:
            nonlocal done
            for count in fold_partition(
                ledger=self.ledger,
                runner=self._runners[stage.name],
                partition=partition,
                until=tails[partition],
                count=stage.rebuild_batch_size(self.services.settings),
            ):
                with guard:
                    done += count
                    what = f"{stage.name} of {self.target.name}"
                    self.progress(min(done, total), total, what)
                    self._report(done / max(total, 1))
                if stop.is_set():
                    return

        partitions = list(range(self.ledger.partitions))
        for stage in self.stages:
            _in_threads(partial(fold, stage), partitions, self.services.settings.worker_concurrency)
        if any(stage.decides for stage in self.stages):
            bring_back(self.services, self.target)

    def _report(self, share: float) -> None:
        report = Report("rebuild", self.target.name, {"progress": min(share, 1.0)})
        self.services.reports.put(report)

    def _hand_over(self, before: Target) -> None:
        """Go on folding until a worker holds the partitions, if there are workers at all."""
        keys = self.ledger.keys
        redis = self.services.redis
        served = [
            stage.name
            for stage in self.stages
            if redis.exists(keys.members(group_name(stage.name, before.name)))
        ]
        if not served:
            return
        leases = [
            keys.lease(group_name(name, self.target.name), partition)
            for name in served
            for partition in range(self.ledger.partitions)
        ]
        end = time.monotonic() + HANDOVER_S
        while time.monotonic() < end and redis.exists(*leases) < len(leases):
            self._fold_to(self.ledger.tails())
            time.sleep(0.05)


def _stages_of(services: Services) -> list[Stage]:
    """The stages that the active target has, in the order in which they fold."""
    begun = {checkpoint.stage for checkpoint in services.graph(services.active()).checkpoints()}
    return [PROJECTION, *later_stages(begun)]


def _matching(entries: Iterable[Entry], tenant: str | None, session: str | None) -> Iterable[Entry]:
    if tenant is None:
        yield from entries
        return
    for entry in entries:
        try:
            event = entry.event()
        except UndecodableEntry:
            continue
        if event.tenant == tenant and session in (None, event.session_id):
            yield entry


def _in_threads(call: Callable[[int, Flag], None], partitions: Sequence[int], threads: int) -> None:
    """Call for each partition; the first error, or Ctrl-C, ends the rest and is raised.

    Args:
        call: gets a partition, and what says that it is to return before it is through.
        partitions: which.
        threads: so many at once.
    """
    stop = Flag()

    def guarded(partition: int) -> None:
        if stop.is_set():
            return
        try:
            call(partition, stop)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(threads, thread_name_prefix="fold") as pool:
        try:
            for result in [pool.submit(guarded, partition) for partition in partitions]:
                result.result()
        finally:
            stop.set()


REDECIDABLE = tuple(stage.name for stage in STAGES.values() if stage.decides)
"""Stages whose decisions can be asked for again."""


@dataclass(frozen=True)
class RedecideReport:
    """A rebuild, what was decided anew after it, and how the graph compares then."""

    rebuilt: RebuildReport
    decided: ConsolidationReport
    verified: ProofReport

    @property
    def ok(self) -> bool:
        """Whether the graph is what the ledger holds, and all was decided anew."""
        return self.rebuilt.ok and self.decided.complete and self.verified.ok

    def as_dict(self) -> dict[str, Any]:
        """For JSON: that of the rebuild, `redecided`, and the graph as it is after that."""
        decided, verified = self.decided.as_dict(), self.verified.as_dict()
        same = {name: verified[name] for name in ("digest", "differences", "scope", "stages")}
        return {**self.rebuilt.as_dict(), **same, "ok": self.ok, "redecided": decided}


def rebuild_and_redecide(
    services: Services,
    *,
    into: Target | NewTarget | None = None,
    now_ms: int | None = None,
    progress: Progress | None = None,
) -> RedecideReport:
    """Fold the whole ledger again, then ask consolidation anew about everything.

    Args:
        services: ledger and targets.
        into: a fresh target, which answers reads from then on; None: the active one, in place.
        now_ms: the clock that the decisions bear; None: the ledger's.
        progress: called with done, total and what is being done.

    Raises:
        OperationFailed: the rebuilt graph differs from the ledger, and nothing was decided; or as
            `rebuild` and `redecide`.
        PassUnderWay: another process goes on running a pass; the graph is rebuilt and nothing was
            decided.
    """
    rebuilt = rebuild(services, into=into, switch=into is not None, progress=progress)
    if not rebuilt.ok:
        raise OperationFailed(
            reason=f"{rebuilt.target} differs from the ledger in "
            f"{rebuilt.verified.difference_count} places, nothing was decided anew; "
            "`recollect verify --repair`, and try again"
        )
    if progress:
        progress(0, None, "deciding anew")
    decided = redecide(services, now_ms=now_ms)
    return RedecideReport(rebuilt, decided, verify(services, progress=progress))
