"""Consolidate: one pass over the active target's graph, alone, within its time.

A worker's timer and `recollect consolidate` do the same here. A pass holds a lease, so that one
runs at a time, wherever; it reads the graph, appends decisions, and waits until the stage has
applied them: through its workers, or in this process where a partition has none.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import structlog

from pipelines import telemetry
from pipelines.adapters.consolidation_reads import ConsolidationReader
from pipelines.adapters.ledger import Tail
from pipelines.adapters.pass_lease import PassLease
from pipelines.adapters.pass_reads import PassReads
from pipelines.adapters.reports import PASS_REPORT, Report
from pipelines.adapters.targets import Target
from pipelines.live import Decisions, LiveRunner
from pipelines.passes.deciding import PassReport
from pipelines.passes.run import Pass
from pipelines.rebuild import fold_partition
from pipelines.services import Services
from pipelines.stages import CONSOLIDATION, group_name, ready
from projections.events import Event
from projections.identity import partition_of
from projections.system_events import PARTITION_KEY

logger = structlog.get_logger(__name__)

SAMPLE = 1_000
"""Events whose decay score is observed at the end of a pass."""
_POLL_S = 0.05


@dataclass
class ConsolidationReport:
    """What a pass did.

    Attributes:
        now_ms: its clock.
        decisions: events that it appended, those left out that the ledger held already.
        found: by its parts.
        tiers: events of each tier when it ended.
    """

    target: str
    run_id: str
    now_ms: int
    decisions: int
    found: PassReport
    tiers: dict[str, int]
    duration_s: float

    @property
    def complete(self) -> bool:
        """Whether it had time for all that there was to do."""
        return self.found.complete

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self.found)
        found["agents"] = len(self.found.agents)
        return {
            "ok": True,
            "target": self.target,
            "run_id": self.run_id,
            "now_ms": self.now_ms,
            "decisions": self.decisions,
            **found,
            "tiers": self.tiers,
            "duration_s": round(self.duration_s, 3),
        }


def consolidate(
    services: Services,
    *,
    tenants: Iterable[str] | None = None,
    now_ms: int | None = None,
    stop: threading.Event | None = None,
) -> ConsolidationReport:
    """Run a pass on the active target.

    Args:
        services: ledger and targets.
        tenants: only these; None: all.
        now_ms: the clock, of the pass; None: the ledger's.
        stop: of this pass alone; it is ended at the next step once this is set, and the next pass
            goes on there. Set here when its time is over.

    Raises:
        PassUnderWay: another process runs one; nothing was begun.
        LedgerUnavailable, GraphUnavailable: a service is away; what was decided stays decided.
    """
    settings = services.settings
    with PassLease(services.redis, settings.prefix, lease_ms=settings.lease_ms) as lease:
        ended = stop or threading.Event()
        timer = threading.Timer(settings.consolidation_timeout_s, ended.set)
        timer.daemon = True
        timer.start()
        try:
            clock_ms = services.ledger.now_ms() if now_ms is None else now_ms
            return _Run(services, lease, ended, clock_ms).run(tenants)
        finally:
            timer.cancel()
            ended.set()


class _Run:
    def __init__(
        self, services: Services, lease: PassLease, ended: threading.Event, now_ms: int
    ) -> None:
        self._services = services
        self._lease = lease
        self._ended = ended
        self._now_ms = now_ms
        self._target: Target = services.active()
        self._writer = services.writer(self._target)
        self._decide = Decisions(services, self._target.name)
        self._partitions: set[int] = set()
        self._decisions = 0
        self._runner: LiveRunner | None = None

    def run(self, tenants: Iterable[str] | None) -> ConsolidationReport:
        begun = time.monotonic()
        services, target = self._services, self._target
        driver, timeout_s = services.driver(target), services.settings.transaction_timeout_s
        run_id = str(uuid.uuid4())
        log = logger.bind(target=target.name, run_id=run_id)
        log.info("pass begins")
        self._apply_what_came_before()
        found = Pass(
            ConsolidationReader(driver, target.database, timeout_s=timeout_s),
            self._append,
            self._await_applied,
            now_ms=self._now_ms,
            run_id=run_id,
            in_time=self._in_time,
        ).run(tenants)
        reads = PassReads(driver, target.database, timeout_s=timeout_s)
        tiers = reads.tiers(self._now_ms)
        for score in reads.decay_scores(self._now_ms, SAMPLE):
            telemetry.DECAY_SCORES.labels(target.name).observe(score)
        report = ConsolidationReport(
            target.name,
            run_id,
            self._now_ms,
            self._decisions,
            found,
            tiers,
            time.monotonic() - begun,
        )
        values = {f"tier_{tier}": float(number) for tier, number in tiers.items()}
        values |= {"ended_at_s": time.time(), "duration_s": report.duration_s}
        services.reports.put(Report(PASS_REPORT, target.name, values))
        telemetry.observe_pass(target.name, values)
        log.info("pass ended", complete=report.complete, decisions=self._decisions)
        return report

    def _in_time(self) -> bool:
        """Whether the pass may go on; not when another target became the active one."""
        return not self._ended.is_set() and self._lease.held

    def _append(self, events: Sequence[Event]) -> None:
        if not events:
            return
        if not self._decide.may_decide():
            self._ended.set()
            return
        self._decisions += self._decide.append(events)
        partitions = self._services.ledger.partitions
        self._partitions |= {
            partition_of(event.tenant, PARTITION_KEY, partitions) for event in events
        }

    # -- until it is applied -----------------------------------------------------------------------

    def _await_applied(self) -> None:
        """Wait until the graph shows what was appended, or time is over."""
        tails = self._services.ledger.tails()
        wanted = {partition: tails[partition] for partition in self._partitions}
        while self._in_time():
            for found in self._writer.checkpoints(CONSOLIDATION.name):
                tail = wanted.get(found.partition)
                if tail is not None and found.seq >= tail.seq:
                    del wanted[found.partition]
            if not wanted:
                self._partitions.clear()
                return
            if not self._fold(wanted):
                self._ended.wait(_POLL_S)

    def _apply_what_came_before(self) -> None:
        """Where no worker runs, fold as far as the enrichment has come: it is what is looked at."""
        upstream = {
            found.partition: Tail(found.position, found.seq)
            for found in self._writer.checkpoints(str(CONSOLIDATION.upstream))
        }
        self._fold(upstream)

    def _fold(self, until: dict[int, Tail]) -> bool:
        """Fold partitions that nobody holds, in this process; whether there were any."""
        services, target = self._services, self._target
        keys, group = services.ledger.keys, group_name(CONSOLIDATION.name, target.name)
        free = [n for n in sorted(until) if not services.redis.exists(keys.lease(group, n))]
        if not free:
            return False
        if self._runner is None:
            self._runner = LiveRunner(
                ready(CONSOLIDATION, services, target),
                self._writer,
                services.ledger,
                target=target.name,
                max_attempts=services.settings.max_attempts,
                stop=self._ended,
            )
            self._runner.prepare(services.ledger.partitions)
        size = CONSOLIDATION.rebuild_batch_size(services.settings)
        for partition in free:
            for _ in fold_partition(
                services.ledger, self._runner, partition, until[partition], size
            ):
                if not self._in_time():
                    return True
        return True
