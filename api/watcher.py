"""What the API knows without asking in a request: active target, lag, memory, halted partitions.

Two threads: one follows the pointer to the active target several times a second and asks Redis
only, so that a Neo4j that hangs cannot hold up a switch; one samples the rest once a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Thread

from api.connections import Connections
from pipelines.graph.reader import GraphReader
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.registry import CONSOLIDATE_REPORT, verified_stage
from pipelines.observe import logs, metrics
from pipelines.work.settings import Settings
from pipelines.work.stages import PROJECTION, STAGES
from projections.errors import GraphError, LedgerError, LedgerFormatMismatch, RecollectError
from projections.identity import Position
from projections.operations import Checkpoint

FOLLOW_EVERY_S = 0.3
SAMPLE_EVERY_S = 1.0
COUNT_EVERY_S = 10.0
STALE_AFTER_S = 15.0
"""A sample older than this says nothing any more: the sampler hangs."""

SAMPLE_TIMEOUT_MS = 1_000

Checkpoints = Mapping[int, Checkpoint]
"""Of one stage, by partition."""

_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at one moment; replaced as a whole.

    Attributes:
        at_s: monotonic time.
        ledger_error: why the ledger cannot be used; None: it can.
        graph_error: why the active target's graph cannot be read.
        target: name of the target whose checkpoints are meant.
        halted: partition → reason.
        lag_entries: of the projection, all partitions; None before the first look.
        lag_seconds: age of the oldest entry not projected.
        memory_ratio: share of Redis' maxmemory in use; None without a limit.
    """

    at_s: float = 0.0
    ledger_error: str | None = "not reached yet"
    graph_error: str | None = "not reached yet"
    target: str | None = None
    halted: Mapping[int, str] = field(default_factory=dict)
    lag_entries: int | None = None
    lag_seconds: float | None = None
    memory_ratio: float | None = None

    def overloaded(self, settings: Settings) -> str | None:
        """Why events must wait; None: they need not."""
        if self.lag_entries is not None and self.lag_entries > settings.overload_lag_entries:
            return f"{self.lag_entries:,} events wait to be projected"
        if self.lag_seconds is not None and self.lag_seconds > settings.overload_lag_seconds:
            return f"an event has waited {self.lag_seconds:.0f} s to be projected"
        if self.memory_ratio is not None and self.memory_ratio > settings.overload_memory_ratio:
            return f"Redis uses {self.memory_ratio:.0%} of its memory"
        return None


class Watch:
    """Keeps `sample` and the active graph up to date until stopped.

    Args:
        settings: of the process.
        connections: that it keeps up to date.
        switched: called when another target has become the active one.
    """

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        switched: Callable[[], object] = lambda: None,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._switched = switched
        self._stop = Event()
        self._models = {row.name: row.models_here(settings) for row in STAGES.values()}
        self._checkpoints: Mapping[str, Checkpoints] = {}
        self._checkpoints_of: str | None = None
        self._admitted = False
        self._counted_at_s = -COUNT_EVERY_S
        self._threads: list[Thread] = []
        self.sample = Sample()

    @property
    def is_stale(self) -> bool:
        """Whether the last sample is too old to rely on."""
        return time.monotonic() - self.sample.at_s > STALE_AFTER_S

    def projected(self) -> dict[int, Position] | None:
        """Until where each partition was projected a moment ago; None: not known."""
        if self._checkpoints_of is None or self._checkpoints_of != self._target_name():
            return None
        held = self._checkpoints.get(PROJECTION.name, {})
        return {partition: checkpoint.position for partition, checkpoint in held.items()}

    def start(self) -> None:
        """Look once, then go on in the background.

        Raises:
            LedgerFormatMismatch: the settings are not those the ledger was created with.
        """
        self.follow()
        self.look()
        for name, work, every_s in (
            ("follow-target", self.follow, FOLLOW_EVERY_S),
            ("sample", self.look, SAMPLE_EVERY_S),
        ):
            thread = Thread(
                target=self._repeat, args=(work, every_s), name=f"api-{name}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """End the threads; one that waits for a server ends by itself later."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=2 * SAMPLE_EVERY_S)

    def _repeat(self, work: Callable[[], None], every_s: float) -> None:
        while not self._stop.wait(every_s):
            try:
                work()
            except RecollectError as error:
                _log.error("background look failed", error=str(error))

    def follow(self) -> None:
        """Read from the active target."""
        try:
            target, generation = self._connections.active_target()
        except RecollectError:
            return  # Redis is away: the graph known last goes on answering
        before = self._connections.graph.target
        if self._connections.graph.follow(target):
            metrics.TARGET_ACTIVE.labels(target.name).set(1)
            if before is not None and before.name != target.name:
                metrics.TARGET_ACTIVE.labels(before.name).set(0)
                self._switched()
            _log.info("reading from target", target=target.name, generation=generation)

    def look(self) -> None:
        """Take a sample.

        Raises:
            LedgerFormatMismatch: the settings are not those the ledger was created with.
        """
        seen = replace(self.sample, target=self._target_name())
        seen = replace(seen, graph_error=self._look_at_graph())
        try:
            self._connections.open_ledger()
            seen = self._look_at_ledger(self._connections.ledger, seen)
        except LedgerFormatMismatch:
            raise
        except (LedgerError, GraphError) as error:
            self._admitted = False
            seen = replace(seen, ledger_error=str(error))
        if seen.ledger_error != self.sample.ledger_error:
            _log.info("ledger", state=seen.ledger_error or "ready")
        if seen.graph_error != self.sample.graph_error:
            _log.info("graph", state=seen.graph_error or "ready", target=seen.target)
        self.sample = replace(seen, at_s=time.monotonic())

    def _target_name(self) -> str | None:
        target = self._connections.graph.target
        return None if target is None else target.name

    def _look_at_graph(self) -> str | None:
        """Read the checkpoints; those read last stay when Neo4j is away, so lag goes on growing."""
        name = self._target_name()
        if name != self._checkpoints_of:
            self._checkpoints, self._checkpoints_of = {}, None
        try:
            with self._connections.graph.reader() as reader:
                self._checkpoints = by_stage(
                    reader.read(lambda graph: graph.checkpoints(), timeout_ms=SAMPLE_TIMEOUT_MS)
                )
                self._checkpoints_of = name
                if name is not None:
                    self._export_graph(reader, name)
        except GraphError as error:
            return str(error)
        return None

    def _export_graph(self, reader: GraphReader, name: str) -> None:
        for stage, held in self._checkpoints.items():
            stale = is_stale(stage, held.values(), self._models[stage])
            metrics.REBUILD_NEEDED.labels(stage, name).set(stale)
            if STAGES[stage].decides:
                metrics.LAST_RUN.labels(name)  # 0 until a pass has ended
        if time.monotonic() - self._counted_at_s > COUNT_EVERY_S:
            counts = reader.counts()
            metrics.observe_graph(name, counts.nodes, counts.edges)
            none = dict.fromkeys(self._checkpoints, 0)
            for stage, number in {**none, **reader.dead_letter_counts()}.items():
                metrics.DEAD_LETTERS.labels(stage, name).set(number)
            self._counted_at_s = time.monotonic()

    def _look_at_ledger(self, ledger: Ledger, seen: Sample) -> Sample:
        tails = ledger.tails()
        used, limit = ledger.memory()
        if not self._admitted:
            ledger.admit()
            self._admitted = True
        halted = ledger.halted()
        metrics.LEDGER_EPOCH.set(ledger.epoch())
        metrics.LEDGER_PARTITIONS.set(ledger.partitions)
        metrics.HALTED_PARTITIONS.set(len(halted))
        metrics.REDIS_MEMORY_USED.set(used)
        metrics.REDIS_MEMORY_MAX.set(limit)
        self._export_reports()
        self._export_holds()
        seen = replace(
            seen, ledger_error=None, halted=halted, memory_ratio=used / limit if limit else None
        )
        if self._checkpoints_of is None:
            return replace(seen, lag_entries=None, lag_seconds=None)
        for stage, checkpoints in self._checkpoints.items():
            entries = lag_entries(tails, checkpoints)
            seconds = lag_seconds(ledger, checkpoints, entries)
            row = STAGES[stage]
            metrics.observe_lag(
                stage, self._checkpoints_of, entries, seconds, lag_metric=row.lag_metric
            )
            if row.upstream is None:  # ingest is held against its lag; the others never slow it
                seen = replace(
                    seen,
                    lag_entries=sum(entries.values()),
                    lag_seconds=max(seconds.values(), default=0.0),
                )
        return seen

    def _export_holds(self) -> None:
        """Show which stages hold: a worker may have no metrics of its own."""
        if (target := self._target_name()) is not None:
            held = self._connections.holds.of_target(target, STAGES)
            for stage in STAGES:
                metrics.STAGE_HELD.labels(stage, target).set(stage in held)

    def _export_reports(self) -> None:
        """Show what the last `verify` and `rebuild` said; they end before they are scraped."""
        for report in self._connections.reports.all():
            command, target, values = report
            if (stage := verified_stage(report)) is not None:
                metrics.observe_verify(
                    stage,
                    target,
                    differences=int(values["differences"]),
                    duration_s=values["duration_s"],
                    ended_at_s=values["ended_at_s"],
                )
            elif command == "rebuild":
                metrics.REBUILD_PROGRESS.labels(target).set(values["progress"])
            elif command == CONSOLIDATE_REPORT:
                metrics.observe_pass(target, values)


def by_stage(checkpoints: Iterable[Checkpoint]) -> dict[str, Checkpoints]:
    """Checkpoints of the stages that began on a target, and of the one that ingest waits for.

    A stage that no worker was ever started for is not behind: nobody asked for it.
    """
    stages: dict[str, dict[int, Checkpoint]] = {PROJECTION.name: {}}
    for checkpoint in checkpoints:
        if checkpoint.stage in STAGES:  # of others this installation knows nothing
            stages.setdefault(checkpoint.stage, {})[checkpoint.partition] = checkpoint
    return dict(stages)


def is_stale(stage: str, checkpoints: Iterable[Checkpoint], installed: str | None) -> bool:
    """Whether workers of this installation refuse to write into a graph.

    Args:
        stage: that the checkpoints are of.
        checkpoints: of one graph.
        installed: the models of this installation; None: it does not have them all.
    """
    row = STAGES[stage]
    return any(
        held.fold_version != row.fold_version
        or (row.runs_models and installed is not None and held.models != installed)
        for held in checkpoints
    )


def _nothing(partition: int) -> Checkpoint:
    return Checkpoint("", partition)


def lag_seconds(
    ledger: Ledger, checkpoints: Checkpoints, entries: Mapping[int, int]
) -> dict[int, float]:
    """Age of each partition's oldest entry behind its checkpoint; `entries` of `lag_entries`."""
    if not any(entries.values()):
        return dict.fromkeys(entries, 0.0)
    now_ms = ledger.now_ms()
    ages = {}
    for partition, behind in entries.items():
        after = checkpoints.get(partition, _nothing(partition)).position
        oldest = ledger.read(partition, after, 1) if behind else []
        ages[partition] = max(0, now_ms - oldest[0].position.ms) / 1000 if oldest else 0.0
    return ages


def lag_entries(tails: Sequence[Tail], checkpoints: Checkpoints) -> dict[int, int]:
    """Entries behind each partition's checkpoint; a graph ahead of its ledger counts as 0.

    That state halts the partition and is reported as such, not as lag.
    """
    return {
        partition: max(0, tail.seq - checkpoints.get(partition, _nothing(partition)).seq)
        for partition, tail in enumerate(tails)
    }
