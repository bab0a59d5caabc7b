"""Bring back what was forgotten: decide it, wait for the marks, fold the entries once more.

The ledger kept everything, so an event comes back as it was, with its edges: it is folded again
through the stages that come before consolidation, by the runner of live work and replay. Its
tombstone stays, marked: that tells an older decision that it is too late. Each step looks at what
the graph shows and does what is left; whoever was interrupted is taken up by whoever asks again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog

from consolidation.decisions import recall_events
from consolidation.forgetting_payloads import recalled_payloads
from pipelines.graph.reads.tombstones import Gone, Selection, TombstoneReader
from pipelines.ledger.ledger import Tail
from pipelines.ledger.registry import Target
from pipelines.operations.fold_to_tail import fold_unserved
from pipelines.work.folds import MakeFold, make_fold
from pipelines.work.live import Decisions
from pipelines.work.poison import PoisonPolicy
from pipelines.work.restored import fold_again
from pipelines.work.runner import Runner
from pipelines.work.services import Progress, Services
from pipelines.work.stages import CONSOLIDATION, Stage, stages_before
from projections.errors import GraphUnavailable
from projections.events import PARTITION_KEY, Event
from projections.identity import partition_of

logger = structlog.get_logger(__name__)

_POLL_S = 0.05


@dataclass
class RecallReport:
    """What a recall found, and did.

    Attributes:
        found: selected events that were forgotten at some time.
        away: those among them that are not there.
        recalled: events that it decided to bring back.
        folded: entries that were folded again, by target.
        failed: events that could not be, each with the reason.
        waiting: targets that had not applied the decision within the time, or are away.
    """

    tenant: str
    applied: bool
    found: int = 0
    away: int = 0
    recalled: int = 0
    folded: dict[str, int] = field(default_factory=dict)
    failed: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": not (self.failed or self.waiting), **asdict(self)}


def recall_forgotten(
    services: Services,
    selection: Selection,
    *,
    apply: bool = True,
    accessed: bool = True,
    now_ms: int | None = None,
    patience_s: float = 300.0,
    prepare: MakeFold = make_fold,
    progress: Progress | None = None,
) -> RecallReport:
    """Bring forgotten events back, on every target that is kept in step.

    Args:
        services: ledger and targets.
        selection: which.
        apply: False: only look at what there is.
        accessed: somebody asks for them, which counts as an access; else they come back as old as
            they are.
        now_ms: the clock, which the decision bears, and from which the events' age counts then;
            None: the ledger's.
        patience_s: for a target to apply the decision.
        prepare: a stage as it runs on a target.
        progress: called with done, total and what is being done.

    Raises:
        LedgerUnavailable, GraphUnavailable: Redis, or the active target's Neo4j, is away.
    """
    active = services.active()
    report = RecallReport(selection.tenant, apply)
    clock_ms = services.ledger.now_ms() if now_ms is None else now_ms
    decide = Decisions(services, active.name)
    for page in _reader(services, active).pages(selection):
        report.found += len(page)
        report.away += sum(not one.back for one in page)
        away = [one for one in page if not one.recalled]
        if apply and away:
            decide.append(_decisions(selection.tenant, away, clock_ms, accessed=accessed))
            report.recalled += len(away)
    if not apply or not report.away:
        return report
    partition = partition_of(selection.tenant, PARTITION_KEY, services.ledger.partitions)
    tail = services.ledger.tails()[partition]
    for target in services.targets.all():
        if target.state in ("active", "standby"):
            try:
                returning = _Returning(services, target, prepare)
                if returning.await_marks(partition, tail, patience_s):
                    returning.fold(selection, report, progress)
                else:
                    report.waiting.append(target.name)
            except GraphUnavailable:
                if target.name == active.name:
                    raise
                report.waiting.append(target.name)
    return report


def _reader(services: Services, target: Target) -> TombstoneReader:
    timeout_s = services.settings.transaction_timeout_s
    return TombstoneReader(services.driver(target), target.database, timeout_s=timeout_s)


def _decisions(tenant: str, away: Sequence[Gone], now_ms: int, *, accessed: bool) -> list[Event]:
    """Events that say who comes back."""
    payloads = recalled_payloads((one.event_id for one in away), accessed=accessed)
    return recall_events(tenant, payloads, (one.decided_at for one in away), now_ms)


class _Returning:
    """One target to which events come back."""

    def __init__(self, services: Services, target: Target, prepare: MakeFold) -> None:
        self._services = services
        self._target = target
        self._reader = _reader(services, target)
        self._prepare = prepare
        self._made: dict[str, Runner] = {}

    def _runner(self, stage: Stage) -> Runner:
        if stage.name not in self._made:
            services, target = self._services, self._target
            self._made[stage.name] = Runner(
                self._prepare(stage, services, target),
                services.graph(target),
                target=target.name,
                policy=PoisonPolicy.of_command(services.settings),
            )
        return self._made[stage.name]

    def await_marks(self, partition: int, tail: Tail, patience_s: float) -> bool:
        """Wait until the decisions are applied, here where no worker runs; False: not in time."""
        graph = self._services.graph(self._target)
        end = time.monotonic() + patience_s
        while True:
            seqs = {c.partition: c.seq for c in graph.checkpoints(CONSOLIDATION.name)}
            if seqs.get(partition, 0) >= tail.seq:
                return True
            if time.monotonic() >= end:
                return False
            if not fold_unserved(self._services, self._target, self._runner):
                time.sleep(_POLL_S)

    def fold(self, selection: Selection, report: RecallReport, progress: Progress | None) -> None:
        """Fold those of the selected events that are recalled and not there."""
        runners = [self._runner(stage) for stage in stages_before(CONSOLIDATION)]
        folded = 0
        for page in self._reader.pages(selection):
            keys = [(one.tenant, one.event_id) for one in page if one.recalled and not one.back]
            done, failed = fold_again(self._services.ledger, runners, keys)
            folded += done
            report.failed += [
                {"target": self._target.name, "tenant": key[0], "event_id": key[1], "reason": why}
                for key, why in failed
            ]
            report.folded[self._target.name] = folded
            if progress:
                progress(folded, report.away, f"folding again into {self._target.name}")
        logger.info("recalled", target=self._target.name, entries=folded)
