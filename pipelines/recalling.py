"""Bring back what was forgotten: decide it, wait for the marks, fold the entries once more.

The ledger kept everything, so an event comes back as it was, with its edges: it is folded again
through the stages that come before consolidation, by the runner of live work and replay. Its
tombstone stays, marked: that tells an older decision that it is too late. Each step looks at what
the graph shows and does what is left; whoever was interrupted is taken up by whoever asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import structlog

from consolidation.departure_payloads import RECALLED_EVENT, recalled_payloads
from enrichment.sameness import DECIDER
from pipelines.adapters.ledger import Entry, Tail
from pipelines.adapters.recall_reads import Gone, Selection, TombstoneReader
from pipelines.adapters.targets import Target
from pipelines.live import Decisions
from pipelines.rebuild import fold_partition
from pipelines.runner import Runner
from pipelines.services import Progress, Services
from pipelines.stages import CONSOLIDATION, ENRICHMENT, PROJECTION, Stage, group_name, ready
from projections.errors import GraphUnavailable
from projections.events import Event, canonical_json, derived_event_id
from projections.identity import partition_of
from projections.positions import START
from projections.system_events import PARTITION_KEY

logger = structlog.get_logger(__name__)

EARLIER = (PROJECTION, ENRICHMENT)
"""The stages that entries are folded through again."""
Prepare = Callable[[Stage, Services, Target], Stage]
ENTRIES_AT_ONCE = 500
"""That are folded again in one transaction."""
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
    now_ms: int | None = None,
    patience_s: float = 300.0,
    prepare: Prepare = ready,
    progress: Progress | None = None,
) -> RecallReport:
    """Bring forgotten events back, on every target that is kept in step.

    Args:
        services: ledger and targets.
        selection: which.
        apply: False: only look at what there is.
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
            decide.append(_decisions(selection.tenant, away, clock_ms))
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


def _decisions(tenant: str, away: Sequence[Gone], now_ms: int) -> list[Event]:
    """Events that say who comes back; the same again after a crash."""
    newest = max((one.decided_at for one in away if one.decided_at), default=START)
    return [
        Event(
            tenant=tenant,
            event_id=derived_event_id(
                RECALLED_EVENT, tenant, canonical_json(payload).decode(), str(newest)
            ),
            event_type=RECALLED_EVENT,
            occurred_at_ms=now_ms,
            session_id=PARTITION_KEY,
            agent_id=DECIDER,
            trace_id=PARTITION_KEY,
            payload=payload,
        )
        for payload in recalled_payloads(one.event_id for one in away)
    ]


class _Returning:
    """One target to which events come back."""

    def __init__(self, services: Services, target: Target, prepare: Prepare) -> None:
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
                services.writer(target),
                target=target.name,
                max_attempts=services.settings.max_attempts,
            )
        return self._made[stage.name]

    def await_marks(self, partition: int, tail: Tail, patience_s: float) -> bool:
        """Wait until the decisions are applied, here where no worker runs; False: not in time."""
        writer = self._services.writer(self._target)
        end = time.monotonic() + patience_s
        while True:
            seqs = {c.partition: c.seq for c in writer.checkpoints(CONSOLIDATION.name)}
            if seqs.get(partition, 0) >= tail.seq:
                return True
            if time.monotonic() >= end:
                return False
            if not self._fold_unserved():
                time.sleep(_POLL_S)

    def _fold_unserved(self) -> bool:
        """Bring partitions that no worker holds up to their tails, stage by stage; any at all?"""
        services, target, found = self._services, self._target, False
        keys, tails = services.ledger.keys, services.ledger.tails()
        for stage in (*EARLIER, CONSOLIDATION):
            group = group_name(stage.name, target.name)
            for partition, tail in enumerate(tails):
                if services.redis.exists(keys.lease(group, partition)):
                    continue
                size = stage.rebuild_batch_size(services.settings)
                runner = self._runner(stage)
                for _ in fold_partition(services.ledger, runner, partition, tail, size):
                    found = True
        return found

    def fold(self, selection: Selection, report: RecallReport, progress: Progress | None) -> None:
        """Fold those of the selected events that are recalled and not there."""
        runners = [self._runner(stage) for stage in EARLIER]
        folded = 0
        for page in self._reader.pages(selection):
            keys = [(one.tenant, one.event_id) for one in page if one.recalled and not one.back]
            done, failed = _fold_entries(self._services, runners, keys)
            folded += done
            report.failed += [{"target": self._target.name, **one} for one in failed]
            report.folded[self._target.name] = folded
            if progress:
                progress(folded, report.away, f"folding again into {self._target.name}")
        logger.info("recalled", target=self._target.name, entries=folded)


def _fold_entries(
    services: Services, runners: Sequence[Runner], keys: Sequence[tuple[str, str]]
) -> tuple[int, list[dict[str, Any]]]:
    """Fold the entries of events again; how many there were, and those that failed."""
    folded, failed = 0, []
    left = iter(keys)
    while some := list(islice(left, ENTRIES_AT_ONCE)):
        found = services.ledger.find_many(some)
        failed += [
            _failure(key, "its entry is not in the ledger") for key in some if key not in found
        ]
        by_partition: dict[int, list[Entry]] = {}
        for entry in found.values():
            by_partition.setdefault(entry.partition, []).append(entry)
        named = {entry.position: key for key, entry in found.items()}
        for partition, entries in sorted(by_partition.items()):
            entries.sort(key=lambda entry: entry.position)
            for runner in runners:
                for entry, reason in runner.refold(partition, entries):
                    failed.append(_failure(named[entry.position], reason))
        folded += len(found)
    return folded, failed


def _failure(key: tuple[str, str], reason: str) -> dict[str, Any]:
    return {"tenant": key[0], "event_id": key[1], "reason": reason}
