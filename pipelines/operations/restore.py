"""Bring back what was forgotten: decide it, wait for the marks, fold the entries once more.

The ledger kept everything, so an event comes back as it was, with its edges: it is folded again
through the stages that come before consolidation, by the runner of live work and replay. Its
tombstone stays, marked: that tells an older decision that it is too late. Each step looks at what
the graph shows and does what is left; whoever was interrupted is taken up by whoever asks again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import structlog

from consolidation.decisions import recall_events
from consolidation.forgetting_payloads import recalled_payloads
from pipelines.graph.port import Reads, pages
from pipelines.graph.rows import FoundNode
from pipelines.ledger.command_notes import Progress
from pipelines.ledger.ledger import Tail
from pipelines.ledger.registry import Target
from pipelines.work.catch_up import fold_unserved
from pipelines.work.live import Decisions
from pipelines.work.poison import PoisonPolicy
from pipelines.work.recalled import fold_again
from pipelines.work.runner import Runner
from pipelines.work.services import MakeFold, Services, make_fold
from pipelines.work.stages import CONSOLIDATION, Stage, stages_before
from projections.errors import GraphUnavailable
from projections.events import PARTITION_KEY, Event
from projections.identity import Position, partition_of
from projections.operations import Key
from projections.schema import EVENT, FORGOTTEN, SUMMARIZES, SUMMARY

logger = structlog.get_logger(__name__)

TOMBSTONES_AT_ONCE = 1_000
_POLL_S = 0.05
_GONE = ("session_id", "occurred_at", "recalled", "recalled_decided_at")


class Selection(NamedTuple):
    """Which forgotten events: of the tenant, within all that is named.

    Attributes:
        event_ids: these; None: not by id.
        summary_id: those that this Summary lists, or those below it; the bare hash.
        session_id: of this session.
        since_ms: that occurred at that moment or later.
        until_ms: that occurred until then.
    """

    tenant: str
    event_ids: tuple[str, ...] | None = None
    summary_id: str | None = None
    session_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


class Gone(NamedTuple):
    """An event that was forgotten.

    Attributes:
        recalled: it may come back.
        decided_at: position of the decision that it left, or that it may come back.
        back: it is there again, enriched.
    """

    tenant: str
    event_id: str
    recalled: bool
    decided_at: Position | None
    back: bool


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
    for page in tombstones(services.graph(active), selection):
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


def _decisions(tenant: str, away: Sequence[Gone], now_ms: int, *, accessed: bool) -> list[Event]:
    """Events that say who comes back."""
    payloads = recalled_payloads((one.event_id for one in away), accessed=accessed)
    return recall_events(tenant, payloads, (one.decided_at for one in away), now_ms)


class _Returning:
    """One target to which events come back."""

    def __init__(self, services: Services, target: Target, prepare: MakeFold) -> None:
        self._services = services
        self._target = target
        self._graph = services.graph(target)
        self._prepare = prepare
        self._made: dict[str, Runner] = {}

    def _runner(self, stage: Stage) -> Runner:
        if stage.name not in self._made:
            services, target = self._services, self._target
            self._made[stage.name] = Runner(
                self._prepare(stage, services, target),
                self._graph,
                target=target.name,
                policy=PoisonPolicy.of_command(services.settings),
            )
        return self._made[stage.name]

    def await_marks(self, partition: int, tail: Tail, patience_s: float) -> bool:
        """Wait until the decisions are applied, here where no worker runs; False: not in time."""
        end = time.monotonic() + patience_s
        while True:
            seqs = {c.partition: c.seq for c in self._graph.checkpoints(CONSOLIDATION.name)}
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
        for page in tombstones(self._graph, selection):
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


# -- who was forgotten -----------------------------------------------------------------------------


def tombstones(
    graph: Reads, selection: Selection, *, page: int = TOMBSTONES_AT_ONCE
) -> Iterator[list[Gone]]:
    """Tombstones of the selected events, page by page."""
    if selection.summary_id is not None:
        listed = _listed(graph, (selection.tenant, selection.summary_id))
        named = selection.event_ids
        chosen = listed if named is None else listed & set(named)
        nodes = _by_id(graph, selection, sorted(chosen), page)
    elif selection.event_ids is not None:
        nodes = _by_id(graph, selection, sorted(set(selection.event_ids)), page)
    else:
        nodes = _by_place(graph, selection, page)
    for some in nodes:
        yield _gone(graph, some)


def _by_id(
    graph: Reads, selection: Selection, ids: Sequence[str], page: int
) -> Iterator[list[FoundNode]]:
    for start in range(0, len(ids), page):
        keys = [(selection.tenant, event_id) for event_id in ids[start : start + page]]
        nodes = graph.nodes(FORGOTTEN.label, keys, _GONE)
        yield [node for node in nodes.values() if _is_within(node, selection)]


def _by_place(graph: Reads, selection: Selection, page: int) -> Iterator[list[FoundNode]]:
    row = [selection.tenant, *([] if selection.session_id is None else [selection.session_id])]
    since_ms, until_ms = selection.since_ms, selection.until_ms
    return pages(
        graph,
        FORGOTTEN.label,
        FORGOTTEN.indexes[0],
        row,
        properties=_GONE,
        size=page,
        least={} if since_ms is None else {"occurred_at": since_ms},
        most={} if until_ms is None else {"occurred_at": until_ms},
    )


def _is_within(node: FoundNode, selection: Selection) -> bool:
    """Whether an event that was found by its id is in the rest of the selection too."""
    session_id, at_ms = node.values["session_id"], node.values["occurred_at"]
    if selection.session_id not in (None, session_id):
        return False
    if at_ms is None:
        return selection.since_ms is None and selection.until_ms is None
    since_ms = at_ms if selection.since_ms is None else selection.since_ms
    until_ms = at_ms if selection.until_ms is None else selection.until_ms
    return bool(since_ms <= at_ms <= until_ms)


def _gone(graph: Reads, nodes: Sequence[FoundNode]) -> list[Gone]:
    events = graph.nodes(EVENT.label, [node.key for node in nodes], ("importance_score",))
    back = {
        key
        for key, event in events.items()
        if event.visible and event.values["importance_score"] is not None
    }
    shown = []
    for node in nodes:
        decided_at = node.values["recalled_decided_at"]
        position = None if decided_at is None else Position(*decided_at)
        recalled = bool(node.values["recalled"])
        shown.append(
            Gone(
                tenant=node.key[0],
                event_id=node.key[1],
                recalled=recalled,
                decided_at=position,
                back=node.key in back,
            )
        )
    return shown


def _listed(graph: Reads, key: Key) -> set[str]:
    """The events that a Summary lists, or those up to two levels below it."""
    keys: set[Key] = {key}
    listed: set[str] = set()
    for _ in range(3):
        nodes = graph.nodes(SUMMARY.label, keys, ("level", "source_event_ids"))
        for node in nodes.values():
            if node.values["level"] == 1:
                listed.update(node.values["source_event_ids"])
        below = graph.edges(SUMMARIZES.type, keys, label=SUMMARY.label)
        keys = {edge.target for edges in below.values() for edge in edges}
    return listed
