"""Keeps up to date what the API knows without asking in a request (`seen`).

Three threads: one follows the pointer to the active target several times a second; two look once a
second, one at the ledger and one at the graph. So a Neo4j that hangs holds up neither a switch nor
what is known about the ledger, and takes no event down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Final

from api.connections import Connections, Warms, place_of
from api.seen import Checkpoints, Seen
from pipelines.graph.reader import GraphReader
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.registry import CONSOLIDATE_REPORT, Target, verified_stage
from pipelines.observe import logs, metrics
from pipelines.work.settings import Settings
from pipelines.work.stages import PROJECTION, STAGES
from projections.errors import (
    GraphError,
    LedgerError,
    LedgerFormatMismatch,
    QueryTimeout,
    RecollectError,
)
from projections.operations import Checkpoint

FOLLOW_EVERY_S = 0.3
SAMPLE_EVERY_S = 1.0
COUNT_EVERY_S = 10.0
COLUMNS_LOADING: Final = "they are being read from the graph"

SAMPLE_TIMEOUT_MS = 1_000

_log = logs.get_logger(__name__)


class Watch:
    """Keeps `seen` and the active graph up to date until stopped.

    Args:
        settings: of the process.
        connections: that it keeps up to date.
        fresh: called when the server of the graph is back, or another graph is read from that was
            not warmed before; with whether the server has been started, and so knows no plan of
            any question.
        warm: asks the graph of another target, before it is read from.
    """

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        fresh: Callable[[bool], object] = lambda _: None,
        warm: Warms | None = None,
    ) -> None:
        self._connections = connections
        self._fresh = fresh
        self._warm = warm
        self.seen = Seen(settings, self._target_name)
        self._stop = Event()
        self._models = {row.name: row.models_here(settings) for row in STAGES.values()}
        self._admitted = False
        self._has_seen_graph = False
        self._graph_was_away = False
        self._counted_at_s = -COUNT_EVERY_S
        self._threads: list[Thread] = []

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
        graph = self._connections.graph
        before = graph.target
        try:
            target, generation = self._connections.active_target()
            stays = before is not None and place_of(before) == place_of(target)
            warm = self._warm if not stays and self._answers(before) else None
        except RecollectError:
            return  # Redis is away: the graph known last goes on answering
        if graph.follow(target, warm):
            metrics.TARGET_ACTIVE.labels(target.name).set(1)
            if before is not None:
                if before.name != target.name:
                    metrics.TARGET_ACTIVE.labels(before.name).set(0)
                # What was seen is of the graph that was left.
                self._has_seen_graph, self._graph_was_away = False, False
                if not graph.is_warmed:
                    self._fresh(False)
            _log.info("reading from target", target=target.name, generation=generation)

    def _answers(self, target: Target | None) -> bool:
        """Whether reads can go on there; one that is slow, because another is warmed, answers.

        Raises:
            LedgerUnavailable: Redis is away.
        """
        if target is None or self._graph_was_away or self.seen.is_graph_look_old():
            return False
        return any(row.name == target.name for row in self._connections.targets.all())

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
        if seen["ledger_error"] != self.seen.sample.ledger_error:
            _log.info("ledger", state=seen["ledger_error"] or "ready")
        self.seen.note(**seen, ledger_at_s=time.monotonic())

    def look_at_graph(self) -> None:
        """Look at the active target's graph."""
        name, error = self._target_name(), self._look_at_graph()
        if error != self.seen.sample.graph_error:
            _log.info("graph", state=error or "ready", target=name)
        if error is None:
            if self._graph_was_away and self._has_seen_graph:
                self._fresh(True)  # before anybody is told that the graph is back
            self._has_seen_graph, self._graph_was_away = True, False
        seen = {"graph_error": error, "columns_error": self._look_at_columns()}
        self.seen.note(target=name, graph_at_s=time.monotonic(), **seen)

    def _target_name(self) -> str | None:
        target = self._connections.graph.target
        return None if target is None else target.name

    def _look_at_graph(self) -> str | None:
        """Read the checkpoints; those read last stay when Neo4j is away, so lag goes on growing."""
        name = self._target_name()
        if name != self.seen.checkpoints_of:
            self.seen.checkpoints, self.seen.checkpoints_of = {}, None
        try:
            with self._connections.graph.reader() as reader:
                self.seen.checkpoints = by_stage(
                    reader.read(lambda graph: graph.checkpoints(), timeout_ms=SAMPLE_TIMEOUT_MS)
                )
                self.seen.checkpoints_of = name
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
        for stage, held in self.seen.checkpoints.items():
            stale = is_stale(stage, held.values(), self._models[stage])
            metrics.REBUILD_NEEDED.labels(stage, name).set(stale)
            if STAGES[stage].decides:
                metrics.LAST_RUN.labels(name)  # 0 until a pass has ended
        if time.monotonic() - self._counted_at_s > COUNT_EVERY_S:
            counts = reader.counts()
            metrics.observe_graph(name, counts.nodes, counts.edges)
            none = dict.fromkeys(self.seen.checkpoints, 0)
            for stage, number in {**none, **reader.dead_letter_counts()}.items():
                metrics.DEAD_LETTERS.labels(stage, name).set(number)
            self._counted_at_s = time.monotonic()

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
            "refused": ledger.refusal(),
            "halted": halted,
            "memory_ratio": used / limit if limit else None,
            "lag_entries": None,
            "lag_seconds": None,
        }
        target, held = self.seen.checkpoints_of, self.seen.checkpoints
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
