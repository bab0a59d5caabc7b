"""What the API knows without asking in a request: active target, lag, memory, halted partitions.

Three threads: one follows the pointer to the active target several times a second; two look once a
second, one at the ledger and one at the graph. So a Neo4j that hangs holds up neither a switch nor
what is known about the ledger, and takes no event down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Lock, Thread
from typing import Any, Final

from api.connections import Connections
from pipelines.graph.reader import GraphReader
from pipelines.graph.rows import Counts
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.registry import CONSOLIDATE_REPORT, verified_stage
from pipelines.observe import logs, metrics
from pipelines.work.settings import Settings
from pipelines.work.stages import ENRICHMENT, PROJECTION, STAGES
from projections.errors import (
    GraphError,
    LedgerError,
    LedgerFormatMismatch,
    QueryTimeout,
    RecollectError,
)
from projections.identity import Position
from projections.operations import Checkpoint

REPLANNED_AT: Final = 4
"""Times as many of a label or a type: `dbms.cypher.statistics_divergence_threshold` is 0.75."""
FOLLOW_EVERY_S = 0.3
SAMPLE_EVERY_S = 1.0
COUNT_EVERY_S = 10.0
STALE_AFTER_S = 15.0
"""What was seen longer ago says nothing any more: who looks hangs."""
TOO_OLD = "the last look is too old"
COLUMNS_LOADING: Final = "they are being read from the graph"

SAMPLE_TIMEOUT_MS = 1_000

Checkpoints = Mapping[int, Checkpoint]
"""Of one stage, by partition."""

_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen last; replaced as a whole.

    Attributes:
        ledger_at_s: when the ledger was looked at, monotonic time.
        graph_at_s: likewise the graph.
        ledger_error: why the ledger cannot be used; None: it can.
        graph_error: why the active target's graph cannot be read.
        columns_error: why questions cannot be answered from its columns: they are being loaded, or
            nobody holds them.
        target: name of the target whose checkpoints are meant.
        halted: partition → reason.
        lag_entries: of the projection, all partitions; None before the first look.
        lag_seconds: age of the oldest entry not projected.
        memory_ratio: share of Redis' maxmemory in use; None without a limit.
    """

    ledger_at_s: float = 0.0
    graph_at_s: float = 0.0
    ledger_error: str | None = "not reached yet"
    graph_error: str | None = "not reached yet"
    columns_error: str | None = "not reached yet"
    target: str | None = None
    halted: Mapping[int, str] = field(default_factory=dict)
    lag_entries: int | None = None
    lag_seconds: float | None = None
    memory_ratio: float | None = None

    def ingest_error(self, partitions: int) -> str | None:
        """Why no event is taken; None: events are, if perhaps not of every partition."""
        if self.ledger_error is not None:
            return self.ledger_error
        if len(self.halted) >= partitions:
            return "every partition is halted; see `recollect recover`"
        return None

    def overloaded(self, settings: Settings) -> str | None:
        """Why events must wait; None: they need not."""
        if self.lag_entries is not None and self.lag_entries > settings.overload_lag_entries:
            return f"{self.lag_entries:,} events wait to be projected"
        if self.lag_seconds is not None and self.lag_seconds > settings.overload_lag_seconds:
            return f"an event has waited {self.lag_seconds:.0f} s to be projected"
        return self.full(settings)

    def full(self, settings: Settings) -> str | None:
        """Why no event at all may come; None: there is room."""
        if self.memory_ratio is not None and self.memory_ratio > settings.overload_memory_ratio:
            return f"Redis uses {self.memory_ratio:.0%} of its memory"
        return None


class Watch:
    """Keeps `sample` and the active graph up to date until stopped.

    Args:
        settings: of the process.
        connections: that it keeps up to date.
        fresh: called when a graph is read from that was not a moment ago (of another target, or
            one whose server is back), or that has outgrown the plans that were made of it; with
            whether its server has been started, and so knows no plan of any question.
    """

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        fresh: Callable[[bool], object] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._fresh = fresh
        self._stop = Event()
        self._models = {row.name: row.models_here(settings) for row in STAGES.values()}
        self._checkpoints: Mapping[str, Checkpoints] = {}
        self._checkpoints_of: str | None = None
        self._admitted = False
        self._has_seen_graph = False
        self._graph_was_away = False
        self._counted_at_s = -COUNT_EVERY_S
        self.counts: Counts | None = None
        self._planned_at: Counts | None = None
        self._threads: list[Thread] = []
        self._replacing = Lock()
        self.sample = Sample()

    def note_planned(self, counts: Counts | None) -> None:
        """The questions of a query have been planned, for a graph of that size (of `counts`).

        The database plans a question again when what it counts has grown fourfold: `fresh` is
        called then, so that this is done before somebody asks and waits.
        """
        self._planned_at = counts

    def ingest_error(self) -> str | None:
        """Why no event can be taken; None: it can."""
        if _is_old(self.sample.ledger_at_s):
            return TOO_OLD
        return self.sample.ingest_error(self._settings.partitions)

    def read_error(self) -> str | None:
        """Why the graph cannot be read; None: it can."""
        return TOO_OLD if _is_old(self.sample.graph_at_s) else self.sample.graph_error

    def columns_error(self) -> str | None:
        """Why no question can be answered from the columns; None: it can."""
        return TOO_OLD if _is_old(self.sample.graph_at_s) else self.sample.columns_error

    def answered_from(self) -> dict[int, Position] | None:
        """Until where each partition was in the graph a moment ago; None: not known.

        Projected, and enriched if that stage has begun: what it finds in an event changes answers.
        """
        if self._checkpoints_of is None or self._checkpoints_of != self._target_name():
            return None
        held: dict[int, Position] = {}
        for stage in (PROJECTION, ENRICHMENT):
            for partition, checkpoint in self._checkpoints.get(stage.name, {}).items():
                before = held.get(partition, checkpoint.position)
                held[partition] = min(before, checkpoint.position)
        return held

    def start(self) -> None:
        """Look once, then go on in the background.

        Raises:
            LedgerFormatMismatch: the settings are not those the ledger was created with.
        """
        self.follow()
        self.look_at_graph()
        self.look_at_ledger()
        for name, work, every_s in (
            ("follow-target", self.follow, FOLLOW_EVERY_S),
            ("look-at-graph", self.look_at_graph, SAMPLE_EVERY_S),
            ("look-at-ledger", self.look_at_ledger, SAMPLE_EVERY_S),
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
                self._fresh(False)
            _log.info("reading from target", target=target.name, generation=generation)

    def look_at_ledger(self) -> None:
        """Look at the ledger, and how far the graph is behind it by what was seen of it last.

        Raises:
            LedgerFormatMismatch: the settings are not those the ledger was created with.
        """
        seen: dict[str, Any] = {"ledger_error": None}
        try:
            self._connections.open_ledger()
            seen |= self._look_at_ledger(self._connections.ledger)
        except LedgerFormatMismatch:
            raise
        except (LedgerError, GraphError) as error:
            self._admitted = False
            seen["ledger_error"] = str(error)
        if seen["ledger_error"] != self.sample.ledger_error:
            _log.info("ledger", state=seen["ledger_error"] or "ready")
        self._replace(**seen, ledger_at_s=time.monotonic())

    def look_at_graph(self) -> None:
        """Look at the active target's graph."""
        name, error = self._target_name(), self._look_at_graph()
        if error != self.sample.graph_error:
            _log.info("graph", state=error or "ready", target=name)
        if error is None:
            if self._graph_was_away and self._has_seen_graph:
                self._fresh(True)  # before anybody is told that the graph is back
            self._has_seen_graph, self._graph_was_away = True, False
        seen = {"graph_error": error, "columns_error": self._look_at_columns()}
        self._replace(target=name, graph_at_s=time.monotonic(), **seen)

    def _replace(self, **changes: Any) -> None:
        with self._replacing:
            self.sample = replace(self.sample, **changes)

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
            # One that was slow has its plans still; to ask for them anew would make it slower.
            self._graph_was_away |= not isinstance(error, QueryTimeout)
            return str(error)
        return None

    def _look_at_columns(self) -> str | None:
        try:
            with self._connections.graph.opened() as graph:
                state = graph.columns.state()
        except GraphError as error:
            return str(error)
        return None if state.is_loaded else state.reason or COLUMNS_LOADING

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
            self.counts = counts
            if self._planned_at is not None and _has_outgrown(self._planned_at, counts):
                self._planned_at = None
                self._fresh(False)

    def _look_at_ledger(self, ledger: Ledger) -> dict[str, Any]:
        _refuse_risk(ledger)
        tails = ledger.tails()
        used, limit = ledger.memory()
        # 0: somebody emptied Redis while it ran, and nobody has sent an event since.
        if not self._admitted or not ledger.epoch():
            ledger.admit()
            self._admitted = True
        halted = ledger.halted()
        held_out = ledger.held_out()
        for kind, number in held_out._asdict().items():
            metrics.ENTRIES_HELD_OUT.labels(kind).set(number)
        archived = ledger.archive.boundaries(range(ledger.partitions))
        metrics.ARCHIVE_ENTRIES.set(sum(boundary.seq for boundary in archived))
        metrics.ARCHIVE_STOPPED.set(bool(ledger.archive.told().get("problem")))
        metrics.LEDGER_EPOCH.set(ledger.epoch())
        metrics.LEDGER_PARTITIONS.set(ledger.partitions)
        metrics.HALTED_PARTITIONS.set(len(halted))
        metrics.REDIS_MEMORY_USED.set(used)
        metrics.REDIS_MEMORY_MAX.set(limit)
        self._export_reports()
        self._export_holds()
        seen: dict[str, Any] = {
            "halted": halted,
            "memory_ratio": used / limit if limit else None,
            "lag_entries": None,
            "lag_seconds": None,
        }
        target, held = self._checkpoints_of, self._checkpoints
        if target is None:
            return seen
        for stage, checkpoints in held.items():
            entries = lag_entries(tails, checkpoints)
            seconds = lag_seconds(ledger, checkpoints, entries)
            row = STAGES[stage]
            metrics.observe_lag(stage, target, entries, seconds, lag_metric=row.lag_metric)
            if row.upstream is None:  # ingest is held against its lag; the others never slow it
                seen["lag_entries"] = sum(entries.values())
                seen["lag_seconds"] = max(seconds.values(), default=0.0)
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


def _refuse_risk(ledger: Ledger) -> None:
    """Take no events while Redis may lose them: somebody may set it so at any time.

    Raises:
        LedgerError: it may.
    """
    reason = ledger.risk()
    metrics.LEDGER_AT_RISK.set(bool(reason))
    if reason:
        raise LedgerError(reason=reason)


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


def _is_old(at_s: float) -> bool:
    return time.monotonic() - at_s > STALE_AFTER_S


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
        oldest_ms = ledger.oldest_behind_ms(partition, after) if behind else None
        ages[partition] = 0.0 if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000
    return ages


def lag_entries(tails: Sequence[Tail], checkpoints: Checkpoints) -> dict[int, int]:
    """Entries behind each partition's checkpoint; a graph ahead of its ledger counts as 0.

    That state halts the partition and is reported as such, not as lag.
    """
    return {
        partition: max(0, tail.seq - checkpoints.get(partition, _nothing(partition)).seq)
        for partition, tail in enumerate(tails)
    }


def _has_outgrown(planned: Counts, now: Counts) -> bool:
    pairs = ((planned.nodes, now.nodes), (planned.edges, now.edges))
    return any(
        number >= REPLANNED_AT * max(1, before.get(kind, 0))
        for before, after in pairs
        for kind, number in after.items()
    )
