"""What a live worker does beside its blocks: passes of consolidation, and bringing back.

A pass is due by time, when it is asked for, to reflect on what came to a session, and once nothing
comes any more: what was imported, or said in a session that ended, is not left for hours.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from consolidation.forgetting import EventKey
from pipelines.graph.port import Graph
from pipelines.ledger.erasing import DONE, erasures
from pipelines.ledger.vault import CONSENT
from pipelines.observe import metrics
from pipelines.operations import dead_letters
from pipelines.operations.consolidate import consolidate, last_whole_s
from pipelines.operations.erase import finish
from pipelines.operations.passes.scopes import PassScope, are_requests, changed, due
from pipelines.work.catch_up import bring_back, missing
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stages import CONSOLIDATION
from projections.errors import OperationFailed, PassUnderWay, RecollectError, Stopped

if TYPE_CHECKING:
    from pipelines.work.app import StageApp

logger = structlog.get_logger(__name__)

_REQUESTS_EVERY_S = 5.0
"""Between two looks at requests, of which there are few; the other looks are rarer."""
QUIET_S: Final = 60.0
"""Nothing came for so long, and what did is folded: then a pass looks at what changed."""
_PASS_SHARE: Final = 20
"""Passes in quiet times take at most one part in so many of the time."""


def attach_decider(app: StageApp, settings: Settings, target: str) -> None:
    """Let a worker's app run passes beside its blocks."""
    Decider(settings, target).attach(app)


class Due(NamedTuple):
    """Why a pass is due, and what it is to look at; None: at everything."""

    reason: metrics.Trigger
    scopes: list[PassScope] | None


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
        self.every_s = min(_REQUESTS_EVERY_S, settings.consolidation_look_s)
        self._stopping = threading.Event()
        self._pass_ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._looks_at_s = 0.0
        self._returns_at_s = 0.0
        self._missing: frozenset[EventKey] = frozenset()
        self._rests_until_s = 0.0
        self._tails: list[int] = []
        self._quiet_from_s = 0.0
        self._looked_at: dict[str, int] = {}

    def attach(self, app: StageApp) -> None:
        """Look every few seconds while the app runs, and end with it."""
        app.timer(self.every_s, name="passes")(self.look)
        app.ends.append(self.end)

    @property
    def is_busy(self) -> bool:
        """Whether it looks, or runs a pass."""
        return self._thread is not None and self._thread.is_alive()

    async def look(self) -> None:
        """As `begin`."""
        self.begin()

    def begin(self) -> None:
        """Begin a pass if one is due and none runs here; returns at once."""
        if self._stopping.is_set() or self.is_busy:
            return
        # A daemon: a question that Neo4j does not answer must not hold up the end of the worker.
        self._thread = threading.Thread(target=self._work, name="pass", daemon=True)
        self._thread.start()

    async def end(self) -> None:
        """As `stop`."""
        await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """End the pass under way at its next step, and wait for it, but not for ever."""
        self._stopping.set()
        self._pass_ends.set()
        self._services.stop_asking()
        if self._thread is not None:
            self._thread.join(self._settings.stop_timeout_s)
        self._services.close()

    def _work(self) -> None:
        outcome: metrics.PassOutcome | None = "failed"
        try:
            outcome = self._run()
        except PassUnderWay as error:
            outcome = None
            logger.info("no pass", target=self._target, reason=str(error))
        except Stopped:
            outcome = "out_of_time"
        except RecollectError as error:
            logger.warning("pass failed", target=self._target, reason=str(error))
        finally:
            if outcome is not None:
                metrics.PASSES.labels(self._target, outcome).inc()
            if outcome in ("failed", "out_of_time"):
                self._rests_until_s = monotonic() + self._settings.consolidation_look_s

    def _run(self) -> metrics.PassOutcome | None:
        self._erase()
        self._retry()
        self._bring_back()
        due = self.due()
        if due is None or self._stopping.is_set():
            return None
        self._pass_ends = ends = threading.Event()
        if self._stopping.is_set():  # `end` came in between, and knows the event before this one
            return None
        metrics.TRIGGERS.labels(self._target, due.reason).inc()
        logger.info("pass is due", target=self._target, reason=due.reason)
        begun_s = monotonic()
        report = consolidate(self._services, scopes=due.scopes, stop=ends, folds=False)
        self._quiet_from_s = monotonic() + _PASS_SHARE * (monotonic() - begun_s)
        return "complete" if report.complete else "out_of_time"

    def _erase(self) -> None:
        """Do what is left of erasures that somebody asked for."""
        if not self._is_active():
            return
        vault = self._services.ledger.vault
        for erasure in erasures(vault):
            if erasure["step"] != DONE and (vault.store is not None or CONSENT in erasure):
                logger.info("erasing", subject=erasure["subject"], step=erasure["step"])
                finish(self._services, bytes.fromhex(erasure["subject"]))

    def _retry(self) -> None:
        """Fold dead letters once more that somebody asked for; one that fails again stays."""
        places = self._services.holds.retries(self._target) if self._is_active() else []
        for place in places:
            failed = ["it is gone"]
            with suppress(OperationFailed):
                report = dead_letters.retry(self._services, **place._asdict())
                failed = [str(letter["reason"]) for letter in report.failed]
            self._services.holds.tried(self._target, place)
            logger.info("dead letter tried again", letter=str(place), failed=failed)

    def _is_active(self) -> bool:
        return self._services.active().name == self._target

    def _bring_back(self) -> None:
        """Fold again what was recalled and left behind, also on a target that stands by.

        Whoever recalls does that; only what is still missing at the next look was left behind. It
        takes models, which this process should not load for nothing.
        """
        if monotonic() < self._returns_at_s:
            return
        self._returns_at_s = monotonic() + self._settings.consolidation_look_s
        target = self._services.targets.get(self._target)
        before, self._missing = self._missing, missing(self._services, target)
        if before & self._missing:
            bring_back(self._services, target)

    def due(self) -> Due | None:
        """Why a pass is due now; None: none is."""
        if monotonic() < self._rests_until_s:
            return None
        if not self._is_active():
            return None
        graph = self._services.graph(self._services.active())
        if not are_requests(graph) and monotonic() < self._looks_at_s:
            return self._due_in_quiet(graph)
        self._looks_at_s = monotonic() + self._settings.consolidation_look_s
        late_s = time.time() - last_whole_s(self._services, self._target)
        if late_s >= self._settings.consolidation_every_s:
            return Due("timer", None)
        scopes = due(graph, self._settings.reflection_importance)
        reflecting = sum(scope.least > 1 for scope in scopes)
        metrics.REFLECTION_TRIGGERS.labels(self._target).inc(reflecting)
        if not scopes:
            return self._due_in_quiet(graph)
        return Due("request" if len(scopes) > reflecting else "reflection", scopes)

    def _due_in_quiet(self, graph: Graph) -> Due | None:
        """What changed, once nothing came for a while and all of it is folded."""
        tails = [tail.seq for tail in self._services.ledger.tails()]
        if tails != self._tails:
            self._tails = tails
            self._quiet_from_s = max(self._quiet_from_s, monotonic() + QUIET_S)
        if monotonic() < self._quiet_from_s:
            return None
        self._quiet_from_s = monotonic() + QUIET_S
        folded = {at.partition: at.seq for at in graph.checkpoints(CONSOLIDATION.name)}
        if any(folded.get(partition, 0) < seq for partition, seq in enumerate(tails)):
            return None
        pending = changed(graph)
        # What a pass has left as it was, it would leave again.
        scopes = [PassScope(one) for one in pending if pending[one] != self._looked_at.get(one)]
        self._looked_at = pending
        return Due("quiet", scopes) if scopes else None
