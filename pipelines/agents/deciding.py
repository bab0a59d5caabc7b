"""When a live worker runs a pass of consolidation: by time, when asked for, and to reflect."""

from __future__ import annotations

import asyncio
import threading
from time import monotonic
from typing import NamedTuple

import structlog

from pipelines import telemetry
from pipelines.adapters.consolidation_reads import ConsolidationReader
from pipelines.adapters.pass_reads import PassReads
from pipelines.agents.app import StageApp
from pipelines.consolidate import consolidate
from pipelines.services import Services
from pipelines.settings import Settings
from projections.errors import PassUnderWay, RecollectError

logger = structlog.get_logger(__name__)

REQUESTS_EVERY_S = 5.0
"""Between two looks at requests, of which there are few; the other looks are rarer."""
_REFLECTING_AT_MOST = 1_000
"""Sessions of a tenant that are counted when they are above the limit of reflection."""


class Due(NamedTuple):
    """Why a pass is due, and whose."""

    reason: telemetry.Trigger
    tenants: list[str]


class Decider:
    """Runs passes beside a worker's blocks, one at a time, in a thread, and ends with the worker.

    Only on the active target; of several workers the one that gets the lease.

    Args:
        settings: where ledger and targets are; a pass has connections of its own.
        target: that the worker serves.
    """

    def __init__(self, settings: Settings, target: str) -> None:
        self._services = Services(settings)
        self._target = target
        self._settings = settings
        self._stopping = threading.Event()
        self._pass_ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._looks_at_s = 0.0
        self._rests_until_s = 0.0

    def attach(self, app: StageApp) -> None:
        """Look every few seconds while the app runs, and end with it."""
        every_s = min(REQUESTS_EVERY_S, self._settings.consolidation_look_s)
        app.timer(every_s, name="passes")(self.look)
        app.ends.append(self.end)

    async def look(self) -> None:
        """Begin a pass if one is due and none runs here; returns at once."""
        if self._stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        # A daemon: a question that Neo4j does not answer must not hold up the end of the worker.
        self._thread = threading.Thread(target=self._work, name="pass", daemon=True)
        self._thread.start()

    async def end(self) -> None:
        """End the pass under way at its next step, and wait for it, but not for ever."""
        self._stopping.set()
        self._pass_ends.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, self._settings.stop_timeout_s)
        self._services.close()

    def _work(self) -> None:
        outcome: telemetry.PassOutcome | None = "failed"
        try:
            outcome = self._run()
        except PassUnderWay as error:
            outcome = None
            logger.info("no pass", target=self._target, reason=str(error))
        except RecollectError as error:
            logger.warning("pass failed", target=self._target, reason=str(error))
        finally:
            if outcome is not None:
                telemetry.PASSES.labels(self._target, outcome).inc()
            if outcome == "failed":
                self._rests_until_s = monotonic() + self._settings.consolidation_look_s

    def _run(self) -> telemetry.PassOutcome | None:
        due = self._due()
        if due is None or self._stopping.is_set():
            return None
        self._pass_ends = ends = threading.Event()
        if self._stopping.is_set():  # `end` came in between, and knows the event before this one
            return None
        telemetry.TRIGGERS.labels(self._target, due.reason).inc()
        logger.info("pass is due", target=self._target, reason=due.reason)
        report = consolidate(self._services, tenants=due.tenants, stop=ends)
        return "complete" if report.complete else "out_of_time"

    def _due(self) -> Due | None:
        """Why a pass is due now; None: none is."""
        if monotonic() < self._rests_until_s:
            return None
        target = self._services.active()
        if target.name != self._target:
            return None
        driver = self._services.driver(target)
        reads = PassReads(driver, target.database)
        if requesting := reads.requesting():
            return Due("request", requesting)
        if monotonic() < self._looks_at_s:
            return None
        self._looks_at_s = monotonic() + self._settings.consolidation_look_s
        reader = ConsolidationReader(driver, target.database)
        tenants, ended = reader.tenants(), reads.ended()
        begun_ms = self._services.ledger.now_ms() - 1_000 * self._settings.consolidation_every_s
        late = [
            tenant
            for tenant in tenants
            if (last := ended.get(tenant)) is None
            or not last.complete
            or last.ended_at_ms <= begun_ms
        ]
        if late:
            return Due("timer", late)
        reflecting = {
            tenant: len(found)
            for tenant in tenants
            if (
                found := reader.changed_sessions(
                    tenant,
                    least=self._settings.reflection_importance + 1,
                    limit=_REFLECTING_AT_MOST,
                )
            )
        }
        if not reflecting:
            return None
        telemetry.REFLECTION_TRIGGERS.labels(self._target).inc(sum(reflecting.values()))
        return Due("reflection", list(reflecting))
