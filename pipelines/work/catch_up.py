"""Fold what a graph is behind with: partitions up to the tails, and events that were recalled.

A partition that no worker serves is folded here. The consolidation marks the tombstone of a
recalled event, which then keeps nobody out any more; what is missing is what projection and
enrichment make of the event, so its entry is folded once more through these. `recalling` does that
for who asks; here it is done for a graph that is rebuilt, and for what was left behind. The mark
stays, so whoever looks next goes on where this ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import structlog

from consolidation.forgetting import EventKey
from pipelines.graph.port import Graph, Reads
from pipelines.ledger.entries import Block, Entry
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.registry import Target
from pipelines.work.poison import UNBRAKED
from pipelines.work.runner import Runner
from pipelines.work.services import Services, make_fold
from pipelines.work.stages import (
    CONSOLIDATION,
    ENRICHMENT,
    STAGES,
    Stage,
    group_name,
    stages_before,
)
from projections.errors import Fenced, Stopped
from projections.schema import DEAD_LETTER, EVENT, FORGOTTEN

logger = structlog.get_logger(__name__)

AT_ONCE = 500
"""Events; each is one transaction of a stage for every partition."""


class FindEntries(Protocol):
    """The ledger, as far as it is asked here."""

    def find_many(self, keys: Sequence[EventKey]) -> Mapping[EventKey, Entry]:
        """Entries by tenant and event id."""
        ...


def returning(graph: Reads, *, enriched: bool) -> list[EventKey]:
    """Recalled events that a graph has not again, by key; those with a dead letter left out.

    Args:
        graph: which.
        enriched: whether it has the second stage, without which none of them is whole.
    """
    marked = graph.find(FORGOTTEN.label, ("recalled",), [(True,)]).get((True,), [])
    keys = [node.key for node in marked]
    nodes = graph.nodes(EVENT.label, keys, ("importance_score",))
    away = [
        key
        for key in keys
        if (node := nodes.get(key)) is None
        or not node.visible
        or (enriched and node.values["importance_score"] is None)
    ]
    dead = graph.find(DEAD_LETTER.label, ("tenant", "event_id"), away)
    return [(key[0], key[1]) for key in away if key not in dead]


def missing(services: Services, target: Target) -> frozenset[EventKey]:
    """Recalled events that a target has not again."""
    graph = services.graph(target)
    return frozenset(returning(graph, enriched=_is_enriched(graph)))


def bring_back(services: Services, target: Target) -> int:
    """Fold recalled events that the target has not again; returns how many came back.

    Each is tried once: those that cannot come back do not keep back those behind them.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        ModelUnavailable: the target is enriched, and a model is not installed here.
    """
    graph = services.graph(target)
    enriched = _is_enriched(graph)
    keys = returning(graph, enriched=enriched)
    if not keys:
        return 0
    runners = [
        Runner(make_fold(stage, services, target), graph, target=target.name, policy=UNBRAKED)
        for stage in _begun_before(graph)
    ]
    fold_again(services.ledger, runners, keys)
    left = len(returning(graph, enriched=enriched))
    came = len(keys) - left
    if left:
        logger.warning("not brought back", target=target.name, events=left)
    if came:
        logger.info("brought back", target=target.name, events=came)
    return came


def _is_enriched(graph: Graph) -> bool:
    return bool(graph.checkpoints(ENRICHMENT.name))


def _begun_before(graph: Graph) -> list[Stage]:
    return [s for s in stages_before(CONSOLIDATION) if graph.checkpoints(s.name)]


def fold_again(
    ledger: FindEntries, runners: Sequence[Runner], keys: Sequence[EventKey]
) -> tuple[int, list[tuple[EventKey, str]]]:
    """Fold the entries of events again, through the stages of some runners in their order.

    Returns:
        How many entries there were, and the events that could not be folded, each with the reason.
    """
    folded, failed = 0, []
    left = iter(keys)
    while some := list(islice(left, AT_ONCE)):
        entries_by_key = ledger.find_many(some)
        failed += [
            (key, "its entry is not in the ledger") for key in some if key not in entries_by_key
        ]
        by_partition: dict[int, list[Entry]] = {}
        for entry in entries_by_key.values():
            by_partition.setdefault(entry.partition, []).append(entry)
        named = {entry.position: key for key, entry in entries_by_key.items()}
        for entries in by_partition.values():
            entries.sort(key=lambda entry: entry.position)
        for runner in runners:
            for partition, entries in sorted(by_partition.items()):
                for entry, reason in runner.refold(partition, entries):
                    failed.append((named[entry.position], reason))
        folded += len(entries_by_key)
    return folded, failed


def fold_partition(
    ledger: Ledger, runner: Runner, partition: int, until: Tail, count: int
) -> Iterator[int]:
    """Fold a partition up to a tail, from where its checkpoint stands; yields entries per block.

    A rival (a worker on the same target) costs a repeated read, never a wrong graph.
    """
    at = runner.checkpoint(partition)
    while at.seq < until.seq:
        entries = ledger.read(partition, at.position, count, until.position, after_seq=at.seq)
        if not entries:
            return
        try:
            moved = runner.apply(Block(partition, tuple(entries)))
        except Fenced:
            moved = runner.checkpoint(partition)
        yield max(0, moved.seq - at.seq)
        at = moved


def fold_unserved(
    services: Services,
    target: Target,
    runner_of: Callable[[Stage], Runner],
    in_time: Callable[[], bool] = lambda: True,
    stages: Iterable[Stage] = STAGES.values(),
) -> bool:
    """Fold what no worker holds up to the tails, stage by stage; whether there was any.

    Args:
        services: ledger and targets.
        target: into which.
        runner_of: makes, or keeps, the runner of a stage; asked for only where there is something
            to fold.
        in_time: whether to go on with the next block.
        stages: of these, in the order in which they fold.
    """
    tails = services.ledger.tails()
    folded = False
    for stage in stages:
        seqs = {
            checkpoint.partition: checkpoint.seq
            for checkpoint in services.graph(target).checkpoints(stage.name)
        }
        group = group_name(stage.name, target.name)
        free = [
            (partition, tail)
            for partition, tail in enumerate(tails)
            if seqs.get(partition, 0) < tail.seq
            and not services.redis.exists(services.ledger.keys.lease(group, partition))
        ]
        for partition, tail in free:
            size = stage.rebuild_batch_size(services.settings)
            blocks = fold_partition(
                ledger=services.ledger,
                runner=runner_of(stage),
                partition=partition,
                until=tail,
                count=size,
            )
            try:
                while in_time() and next(blocks, None) is not None:
                    folded = True
            except Stopped:  # time was over while an earlier stage was waited for
                return True
    return folded
