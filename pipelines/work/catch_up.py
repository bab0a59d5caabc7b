"""Fold what a graph is behind with: partitions up to the tails, and events that were recalled.

A partition that no worker serves is folded here. Recalled events come back for who asks by
`operations.restore`; here they do for a graph that is rebuilt, and where some were left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import structlog

from consolidation.forgetting import EventKey
from pipelines.graph.port import Graph
from pipelines.ledger.entries import Block
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.registry import Target
from pipelines.work.poison import UNBRAKED
from pipelines.work.recalled import fold_again, returning
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

logger = structlog.get_logger(__name__)


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
