"""Consolidate: one pass over the active target's graph, alone, within its time.

A worker's timer and `recollect consolidate` do the same here. A pass holds a lease, so that one
runs at a time, wherever; it reads the graph, appends decisions, and waits until the stage has
applied them: through workers, or, for a person, in this process where a partition has none.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import structlog

from consolidation.decay import HOUR_MS
from consolidation.decisions import recall_events
from consolidation.forgetting_payloads import recalled_payloads
from consolidation.retention import ExplainedRow, Tier
from enrichment.prompts import WORDING
from pipelines.ledger.epoch import PASS_PATIENCE_S, PassLease
from pipelines.ledger.erasing import DONE, erasures
from pipelines.ledger.ledger import Tail
from pipelines.ledger.registry import CONSOLIDATE_REPORT, Report, Target
from pipelines.observe import metrics
from pipelines.operations.passes.deciding import PassReport, Words
from pipelines.operations.passes.forgetting import forgetting_plan
from pipelines.operations.passes.retained import ShownEntity, ages, shown_entities
from pipelines.operations.passes.run import CommunitySettings, Pass
from pipelines.operations.passes.scopes import PassScope, tenants_of
from pipelines.operations.past_answers import AnswerSample, PastAnswers
from pipelines.operations.restore import Selection, recall_forgotten
from pipelines.work.catch_up import fold_unserved
from pipelines.work.live import Decisions, LiveRunner
from pipelines.work.poison import PoisonPolicy
from pipelines.work.services import Services, make_fold
from pipelines.work.settings import Settings
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT, Stage
from projections.errors import OperationFailed, StageBehind
from projections.events import PARTITION_KEY, Event
from projections.identity import partition_of

logger = structlog.get_logger(__name__)

SAMPLE = 1_000
"""Events whose decay score is observed at the end of a pass that looked at everything."""
_POLL_S = 0.05
WORDING_SHARE = 2
"""Waiting for a language model takes at most one part in so many of a pass' time."""
LAG_PATIENCE_S = 60.0
"""For the stages before it, without any move of theirs, when a person asks for a pass."""


@dataclass
class ConsolidationReport:
    """What a pass did.

    Attributes:
        now_ms: its clock.
        decisions: events that it appended, those left out that the ledger held already.
        found: by its parts.
        tiers: events of each tier when it, or the last one that looked at everything, ended.
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
        parts = asdict(self.found)
        parts["agents"] = len(self.found.agents)
        del parts["told"]
        return {
            "ok": True,
            "target": self.target,
            "run_id": self.run_id,
            "now_ms": self.now_ms,
            "decisions": self.decisions,
            **parts,
            "tiers": self.tiers,
            "duration_s": round(self.duration_s, 3),
        }


def consolidate(
    services: Services,
    *,
    scopes: Sequence[PassScope] | None = None,
    now_ms: int | None = None,
    stop: threading.Event | None = None,
    folds: bool = True,
    patience_s: float = 0.0,
) -> ConsolidationReport:
    """Run a pass on the active target.

    Args:
        services: ledger and targets.
        scopes: only these; None: all tenants.
        now_ms: the clock, of the pass; None: the ledger's.
        stop: of this pass alone; it is ended at the next step once this is set, and the next pass
            goes on there. Set here when its time is over.
        folds: fold here what no worker folds, of all stages; else wait for workers.
        patience_s: for a pass that another process runs, to end.

    Raises:
        PassUnderWay: another process runs one for longer than that; nothing was begun.
        OperationFailed: the target was never enriched, and nothing enriches it.
        LedgerUnavailable, GraphUnavailable: a service is away; what was decided stays decided.
    """
    settings = services.settings
    with services.pass_lease(patience_s) as lease:
        ended = stop or threading.Event()
        timer = threading.Timer(settings.consolidation_timeout_s, ended.set)
        timer.daemon = True
        timer.start()
        try:
            clock_ms = services.ledger.now_ms() if now_ms is None else now_ms
            return _Run(services, lease, ended, clock_ms, folds=folds).run(scopes)
        finally:
            timer.cancel()
            ended.set()


def redecide(services: Services, *, now_ms: int | None = None) -> ConsolidationReport:
    """Ask anew about everything on the active target, under the rules and settings of now.

    What was forgotten or archived comes back first; then a pass looks at all tenants as if nothing
    were decided yet. What it decides is behind the earlier decisions in the ledger and so takes
    their place, here and in every graph that is rebuilt. Pairs that were dropped stay parted, and
    facts that faded stay so: the ledger knows no way back for them.

    It takes the time that it takes. One that was interrupted leaves a graph that is right, where
    some is decided anew and the rest as before; asked again, it begins again.

    Args:
        services: ledger and targets.
        now_ms: the clock, of the pass; None: the ledger's.

    Raises:
        PassUnderWay: another process still runs a pass after `PASS_PATIENCE_S`; nothing was begun.
        OperationFailed: the target was never enriched, and nothing enriches it; or what was
            forgotten could not all be brought back.
        LedgerUnavailable, GraphUnavailable: a service is away; what was decided stays decided.
    """
    with services.pass_lease(PASS_PATIENCE_S) as lease:
        clock_ms = services.ledger.now_ms() if now_ms is None else now_ms
        return _Run(services, lease, threading.Event(), clock_ms, folds=True).redecide()


def last_whole_s(services: Services, target: str) -> float:
    """When a pass last had looked at all tenants to the end, in Unix time; 0: never."""
    return services.reports.last(CONSOLIDATE_REPORT, target).get("whole_at_s", 0.0)


class PlannedForgetting(NamedTuple):
    """What a pass would forget of a tenant's events, and which past answers showed such."""

    rows: list[ExplainedRow]
    answers: PastAnswers


def planned_forgetting(
    services: Services, *, tenants: Iterable[str] | None = None, now_ms: int | None = None
) -> dict[str, PlannedForgetting]:
    """What a pass would forget of each tenant's events, why the rest stays, what answers lose.

    Nothing is decided, and a pass that is under way does not matter. Of a tenant whose forgetting
    is switched off it is told as if it were on.

    Args:
        services: ledger and targets.
        tenants: only these; None: all.
        now_ms: the clock; None: the ledger's.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
    """
    ledger, graph = services.ledger, services.graph(services.active())
    ledger_ms = ledger.now_ms()
    clock_ms = ledger_ms if now_ms is None else now_ms
    planned = {}
    for tenant in tenants_of(graph) if tenants is None else tenants:
        policy = replace(services.settings.retention_of(tenant), enabled=True)
        # What an answer showed since then is too young to leave, so the newest answers tell
        # nothing; by a clock before the events' arrival an access makes nothing younger.
        young_ms = round(policy.cold_after_h * HOUR_MS) if clock_ms >= ledger_ms else 0
        answers = AnswerSample(ledger, tenant, max(clock_ms, ledger_ms) - young_ms + 1)
        rows = forgetting_plan(graph, tenant, policy, clock_ms, leaves=answers.leaves)
        planned[tenant] = PlannedForgetting(rows, answers.told())
    return planned


def _communities(settings: Settings) -> CommunitySettings:
    every_ms = round(1_000 * settings.communities_every_s)
    return CommunitySettings(every_ms, settings.communities_chunk_edges)


def make_words(services: Services) -> Words | None:
    """What words summaries in a pass, if the settings ask for it; None: the rules alone.

    While somebody is being erased nothing is sent: the graph may still hold what they said.
    """
    settings = services.settings
    if settings.llm_url is None or WORDING not in settings.llm_tasks:
        return None
    model = services.models.language_model
    if model is None or any(each["step"] != DONE for each in erasures(services.ledger.vault)):
        return None
    return Words(
        model,
        model.model,
        concurrency=settings.llm_concurrency,
        within_s=settings.consolidation_timeout_s / WORDING_SHARE,
    )


def _unarchived(tenant: str, page: Iterable[ShownEntity], now_ms: int) -> list[Event]:
    """Decisions that the archived ones of some entities come back."""
    archived = {one.entity.entity_id: one.decided_at for one in page if one.entity.archived}
    payloads = recalled_payloads(entity_ids=archived)
    return recall_events(tenant, payloads, archived.values(), now_ms)


class _Run:
    def __init__(
        self,
        services: Services,
        lease: PassLease,
        ended: threading.Event,
        now_ms: int,
        *,
        folds: bool,
    ) -> None:
        self._begun = time.monotonic()
        self._services = services
        self._lease = lease
        self._ended = ended
        self._now_ms = now_ms
        self._target: Target = services.active()
        self._graph = services.graph(self._target)
        self._decide = Decisions(services, self._target.name)
        self._partitions: set[int] = set()
        self._decisions = 0
        self._folds = folds
        self._runners: dict[str, LiveRunner] = {}

    def run(self, scopes: Sequence[PassScope] | None) -> ConsolidationReport:
        """Look at these scopes; None: at all tenants."""
        if self._folds:
            self._require_enriched()
            self._fold()
            self._await_enriched()
        return self._pass(scopes)

    def redecide(self) -> ConsolidationReport:
        """Look at all tenants as if nothing were decided."""
        self._require_enriched()
        self._fold()
        self._bring_back()
        return self._pass(None, anew=True)

    def _pass(
        self, scopes: Sequence[PassScope] | None, *, anew: bool = False
    ) -> ConsolidationReport:
        settings, target = self._services.settings, self._target
        run_id = str(uuid.uuid4())
        log = logger.bind(target=target.name, run_id=run_id)
        log.info("pass begins")
        running = Pass(
            self._graph,
            self._append,
            self._await_applied,
            now_ms=self._now_ms,
            run_id=run_id,
            in_time=self._in_time,
            policy_of=settings.retention_of,
            communities=_communities(settings),
            anew=anew,
        )
        running.words = make_words(self._services)
        report = running.run() if scopes is None else running.run_scopes(scopes)
        duration_s = time.monotonic() - self._begun
        tiers = self._tell(duration_s, whole=scopes is None and report.complete)
        log.info("pass ended", complete=report.complete, decisions=self._decisions)
        return ConsolidationReport(
            target=target.name,
            run_id=run_id,
            now_ms=self._now_ms,
            decisions=self._decisions,
            found=report,
            tiers=tiers,
            duration_s=duration_s,
        )

    def _bring_back(self) -> None:
        """Let everything come back that was forgotten or archived, as old as it is."""
        services, target = self._services, self._target
        for tenant in tenants_of(self._graph):
            events = recall_forgotten(
                services, Selection(tenant), accessed=False, now_ms=self._now_ms, prepare=make_fold
            )
            if target.name in events.waiting:
                raise OperationFailed(
                    reason=f"{target.name} has not brought back yet what {tenant} forgot; "
                    "see to its workers, and ask again"
                )
            for page in shown_entities(self._graph, tenant, now_ms=self._now_ms, confidence=0.0):
                self._append(_unarchived(tenant, page, self._now_ms))
        self._await_applied()

    def _tell(self, duration_s: float, *, whole: bool) -> dict[str, int]:
        """Tell metrics and status what there is after the pass; returns the events by tier."""
        services, target = self._services, self._target
        before = services.reports.last(CONSOLIDATE_REPORT, target.name)
        tiers = {tier.value: round(before.get(f"tier_{tier}", 0)) for tier in Tier}
        # a pass of a few sessions would take longer to count all events than for its work
        if whole or not before:
            tiers, scores = ages(self._graph, self._now_ms, SAMPLE)
            for score in scores:
                metrics.DECAY_SCORES.labels(target.name).observe(score)
        now_s = time.time()
        values = {f"tier_{tier}": float(number) for tier, number in tiers.items()}
        values |= {"ended_at_s": now_s, "duration_s": duration_s}
        values["whole_at_s"] = now_s if whole else before.get("whole_at_s", 0.0)
        services.reports.put(Report(CONSOLIDATE_REPORT, target.name, values))
        metrics.observe_pass(target.name, values)
        return tiers

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
            for checkpoint in self._graph.checkpoints(CONSOLIDATION.name):
                tail = wanted.get(checkpoint.partition)
                if tail is not None and checkpoint.seq >= tail.seq:
                    del wanted[checkpoint.partition]
            if not wanted:
                self._graph.settle(CONSOLIDATION.name, self._partitions)
                self._partitions.clear()
                return
            if not (self._folds and self._fold()):
                self._ended.wait(_POLL_S)

    def _require_enriched(self) -> None:
        if not self._graph.checkpoints(ENRICHMENT.name):
            raise OperationFailed(
                reason=f"{self._target.name} was never enriched, and a pass looks at what events "
                "mean; start `recollect worker enrichment` first"
            )

    def _await_enriched(self) -> None:
        """Wait for what the ledger held when the pass was asked for, while the stage moves.

        Raises:
            StageBehind: it does not.
        """
        tails = self._services.ledger.tails()
        before, moved_s = -1, time.monotonic()
        while behind := self._behind(tails):
            if behind != before:
                before, moved_s = behind, time.monotonic()
                logger.info("waiting for the stages before", entries=behind)
            elif time.monotonic() - moved_s > LAG_PATIENCE_S:
                raise StageBehind(stage=ENRICHMENT.name, target=self._target.name, entries=behind)
            if not self._in_time():
                return
            if not self._fold():
                self._ended.wait(_POLL_S)
        self._graph.settle(ENRICHMENT.name, range(len(tails)))

    def _behind(self, tails: Sequence[Tail]) -> int:
        seqs = {c.partition: c.seq for c in self._graph.checkpoints(ENRICHMENT.name)}
        return sum(max(0, tail.seq - seqs.get(n, 0)) for n, tail in enumerate(tails))

    def _fold(self) -> bool:
        """Fold what no worker holds; whether there was any."""
        return fold_unserved(self._services, self._target, self._runner, self._in_time)

    def _runner(self, stage: Stage) -> LiveRunner:
        services, target = self._services, self._target
        if stage.name not in self._runners:
            self._runners[stage.name] = runner = LiveRunner(
                make_fold(stage, services, target),
                self._graph,
                services.ledger,
                target=target.name,
                policy=PoisonPolicy.of_command(services.settings),
                stop=self._ended,
                decide=self._decide,
            )
            runner.prepare(services.ledger.partitions)
        return self._runners[stage.name]
