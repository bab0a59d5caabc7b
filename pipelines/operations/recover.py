"""Recover: after Redis lost acknowledged entries that a graph has folded already.

The ledger is the truth, also when it has forgotten something: what it no longer supports leaves
the graphs, their checkpoints go back to the last entry that is left, the gap itself is written
into the ledger, and the halted partitions take events again. Producers that still have the lost
events can send them again: their ids are free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import structlog

from pipelines.graph.rows import FoundNode
from pipelines.ledger.entries import Entry
from pipelines.ledger.epoch import lost_checkpoints
from pipelines.ledger.ledger import Outcome
from pipelines.ledger.registry import Target
from pipelines.proof.report import ProofReport
from pipelines.proof.verify import verify
from pipelines.work.services import Services
from pipelines.work.stages import STAGES, stages_before
from projections.errors import (
    EventConflict,
    GraphAhead,
    LedgerUnavailable,
    OperationFailed,
    RecollectError,
)
from projections.events import (
    DEFAULT_TENANT,
    PARTITION_KEY,
    Event,
    derived_event_id,
)
from projections.identity import START, Position, partition_of
from projections.operations import Checkpoint
from projections.schema import EVENT

logger = structlog.get_logger(__name__)

GAP_RECORDED = "memory.gap_recorded"
IDS_PER_EVENT = 1_000
"""Lost ids named by one system event; more go into the next."""
_RELEASES = 20
"""At most: a worker looks again every few seconds, so the first is nearly always enough."""
_HALTED = GraphAhead, LedgerUnavailable
"""Outcomes of an append to a partition that is halted, or was until a moment ago."""


@dataclass(frozen=True, slots=True)
class LostEvent:
    """An event that a graph has and the ledger has lost."""

    target: str
    partition: int
    tenant: str
    session_id: str
    event_id: str
    position: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A checkpoint whose entry is gone, and the last entry before it that is left."""

    target: str
    checkpoint: Checkpoint
    last: Entry | None

    @property
    def kept(self) -> Position:
        """Position up to which the ledger is whole."""
        return self.last.position if self.last else START


@dataclass
class RecoverReport:
    """What is lost, and what was done about it."""

    gaps: list[Gap] = field(default_factory=list)
    lost: list[LostEvent] = field(default_factory=list)
    applied: bool = False
    verified: list[ProofReport] = field(default_factory=list)
    nothing_left: list[str] = field(default_factory=list)
    """Targets of whose graphs the ledger supports nothing any more."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": (self.applied or not self.gaps) and all(report.ok for report in self.verified),
            "graph_ahead": bool(self.gaps),
            "nothing_left": self.nothing_left,
            "applied": self.applied,
            "gaps": [
                {
                    "target": gap.target,
                    "stage": gap.checkpoint.stage,
                    "partition": gap.checkpoint.partition,
                    "checkpoint": str(gap.checkpoint.position),
                    "last_entry": str(gap.kept),
                    "entries_lost": gap.checkpoint.seq - (gap.last.seq if gap.last else 0),
                }
                for gap in self.gaps
            ],
            "lost_event_ids": sorted({event.event_id for event in self.lost}),
            "lost": [
                {
                    "target": event.target,
                    "partition": event.partition,
                    "tenant": event.tenant,
                    "session_id": event.session_id,
                    "event_id": event.event_id,
                    "global_position": event.position,
                }
                for event in self.lost
            ],
            "digests": {report.target: report.digest for report in self.verified},
        }


def recover(services: Services, *, apply: bool, everything: bool = False) -> RecoverReport:
    """Find what the ledger lost behind the graphs' checkpoints; with `apply`, go on without it.

    Args:
        services: ledger and targets.
        apply: take what is lost out of the graphs.
        everything: even where nothing would be left of one.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        OperationFailed: the gap could not be written into the ledger, or nothing would be left.
    """
    ledger, missing = services.ledger, services.ledger.missing_checkpoints
    ledger.admit()
    report, past = RecoverReport(), dict[tuple[str, str, int], Gap]()
    services.active()
    targets = services.targets.all()
    for target in targets:
        graph = services.graph(target)
        checkpoints = graph.checkpoints()
        gaps = [
            Gap(target.name, lost, _last_entry(services, lost))
            for lost in lost_checkpoints(missing, checkpoints, graph.checkpoints)
        ]
        begun = sum(checkpoint.position != START for checkpoint in checkpoints)
        if gaps and begun == sum(gap.last is None for gap in gaps):
            report.nothing_left.append(target.name)
        report.gaps += gaps
        past |= _gone_past(gaps, checkpoints)
    report.lost = list(_lost_events(services, targets, report.gaps))
    if not apply:
        return report
    if report.nothing_left and not everything:
        raise OperationFailed(reason="the ledger holds nothing of what a graph was folded from")
    # A checkpoint that still names a lost entry is what finds the gap again, so it goes back last:
    # killed at any point, this is run once more and nothing is left half done.
    ahead = [target.name for target in targets if any(g.target == target.name for g in report.gaps)]
    # Until then no worker folds: what it reads next does not follow the checkpoint's number. And
    # the loss is recorded before the graph, which alone knows the lost ids, is mended.
    _release(services)
    if report.gaps:
        _record(services, report)
    # What was derived from lost events lives on in entities and facts, and so does what lost
    # decisions decided, and what lost events added to sums: all that goes too.
    for gap in past.values():
        _reset(services, gap)
    for name in ahead:
        verify(services, target=name, repair=True, graph_ahead=True)
    for gap in report.gaps:
        _reset(services, gap)
    _release(services)  # a worker may have found the gap once more meanwhile
    report.applied = True
    report.verified = [verify(services, target=name) for name in ahead]
    logger.info("recovered", lost=len(report.lost), gaps=len(report.gaps))
    return report


def _gone_past(
    gaps: Sequence[Gap], checkpoints: Sequence[Checkpoint]
) -> dict[tuple[str, str, int], Gap]:
    """Of later stages that took what came since for what was lost, where they go back to."""
    lost = [gap.checkpoint for gap in gaps]
    return {
        (gap.target, later.stage, later.partition): Gap(gap.target, later, gap.last)
        for gap in gaps
        for later in checkpoints
        if gap.checkpoint.stage in [row.name for row in stages_before(STAGES[later.stage])]
        and later.partition == gap.checkpoint.partition
        and later.position > gap.kept
        and later not in lost
    }


def _release(services: Services) -> None:
    for partition in services.ledger.halted():
        services.ledger.release(partition)


def _last_entry(services: Services, lost: Checkpoint) -> Entry | None:
    """The last entry of the checkpoint's partition that is left at or before its position."""
    ledger = services.ledger
    tail = ledger.tails()[lost.partition]
    if tail.position <= lost.position:
        return ledger.entry_at(lost.partition, tail.position) if tail.seq else None
    last = None
    for entries in ledger.scan(lost.partition, until=lost.position):
        last = entries[-1]
    return last


def _lost_events(
    services: Services, targets: Sequence[Target], gaps: Iterable[Gap]
) -> Iterator[LostEvent]:
    """Events of the gaps' partitions whose position lies beyond what is left."""
    limits = {(gap.target, gap.checkpoint.partition): gap.kept for gap in gaps}
    for target in targets:
        if not any(name == target.name for name, _ in limits):
            continue
        events = services.graph(target).stream(EVENT.label, ("session_id", "global_position"))
        for event in cast(Iterator[FoundNode], events):
            tenant, event_id = event.key
            session_id, position = event.values["session_id"], event.values["global_position"]
            if position is None:
                continue
            partition = partition_of(tenant, session_id, services.ledger.partitions)
            limit = limits.get((target.name, partition))
            if limit is None or Position.parse(position) <= limit:
                continue
            if services.ledger.entry_at(partition, Position.parse(position)) is None:
                yield LostEvent(
                    target=target.name,
                    partition=partition,
                    tenant=tenant,
                    session_id=session_id,
                    event_id=event_id,
                    position=position,
                )


def _reset(services: Services, gap: Gap) -> None:
    """Put the checkpoint back to the last entry that is left, under a new generation."""
    graph = services.graph(services.targets.get(gap.target))
    last = gap.last
    with graph.transaction() as transaction:
        current = transaction.lock(gap.checkpoint.stage, gap.checkpoint.partition)
        if current is None or current.position != gap.checkpoint.position:
            raise OperationFailed(
                reason=f"the checkpoint of partition {gap.checkpoint.partition} in {gap.target} "
                "moved meanwhile; run `recollect recover` again"
            )
        transaction.drop_later_dead_letters(
            current.stage, current.partition, last.seq if last else 0
        )
        transaction.reset(
            Checkpoint(
                stage=current.stage,
                partition=current.partition,
                position=gap.kept,
                seq=last.seq if last else 0,
                digest=last.digest if last else "",
                fold_version=current.fold_version,
                models=current.models,
            )
        )


def _record(services: Services, report: RecoverReport) -> None:
    """Write the gap into the ledger: one system event for each tenant and thousand lost ids."""
    now_ms = services.ledger.now_ms()
    by_tenant: dict[str, list[str]] = {}
    for lost in report.lost:
        by_tenant.setdefault(lost.tenant, []).append(lost.event_id)
    events = []
    gaps = report.as_dict()["gaps"]
    for tenant, ids in (by_tenant or {DEFAULT_TENANT: []}).items():
        unique = sorted(set(ids))
        chunks = [unique[n : n + IDS_PER_EVENT] for n in range(0, len(unique), IDS_PER_EVENT)]
        for number, chunk in enumerate(chunks or [[]], 1):
            events.append(
                Event(
                    tenant=tenant,
                    event_id=derived_event_id(
                        GAP_RECORDED,
                        tenant,
                        str(number),
                        *(
                            f"{gap['target']}/{gap['partition']}/{gap['checkpoint']}"
                            for gap in gaps
                        ),
                    ),
                    event_type=GAP_RECORDED,
                    occurred_at_ms=now_ms,
                    session_id=PARTITION_KEY,
                    agent_id="recollect",
                    trace_id=f"recover-{now_ms}",
                    payload={
                        "gaps": gaps,
                        "lost_event_ids": chunk,
                        "chunk": number,
                        "chunks": max(1, len(chunks)),
                    },
                )
            )
    for outcome in _append(services, events):
        if isinstance(outcome, EventConflict):
            continue  # recorded by a run that was killed before it had done all
        if isinstance(outcome, RecollectError):
            raise OperationFailed(reason=f"the gap could not be recorded: {outcome}")


def _append(services: Services, events: Sequence[Event]) -> Sequence[Outcome]:
    """Append though workers that still find the gap, whenever they look, halt a partition again."""
    outcomes = services.ledger.append(events)
    for _ in range(_RELEASES):
        if not any(isinstance(outcome, _HALTED) for outcome in outcomes):
            break
        _release(services)
        outcomes = services.ledger.append(events)
    return outcomes
