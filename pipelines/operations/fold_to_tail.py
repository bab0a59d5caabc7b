"""Fold partitions up to the tails of the ledger, where no worker does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pipelines.ledger.connect import Block
from pipelines.ledger.ledger import Ledger, Tail
from pipelines.ledger.registry import Target
from pipelines.work.runner import Runner
from pipelines.work.services import Services
from pipelines.work.stages import STAGES, Stage, group_name
from projections.errors import Fenced, Stopped


def fold_partition(
    ledger: Ledger, runner: Runner, partition: int, until: Tail, count: int
) -> Iterator[int]:
    """Fold a partition up to a tail, from where its checkpoint stands; yields entries per block.

    A rival (a worker on the same target) costs a repeated read, never a wrong graph.
    """
    at = runner.checkpoint(partition)
    while at.seq < until.seq:
        entries = ledger.read(partition, at.position, count, until.position)
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
) -> bool:
    """Fold what no worker holds up to the tails, stage by stage; whether there was any.

    Args:
        services: ledger and targets.
        target: into which.
        runner_of: makes, or keeps, the runner of a stage; asked for only where there is something
            to fold.
        in_time: whether to go on with the next block.
    """
    tails, keys = services.ledger.tails(), services.ledger.keys
    folded = False
    for stage in STAGES.values():
        seqs = {
            checkpoint.partition: checkpoint.seq
            for checkpoint in services.graph(target).checkpoints(stage.name)
        }
        group = group_name(stage.name, target.name)
        free = [
            (partition, tail)
            for partition, tail in enumerate(tails)
            if seqs.get(partition, 0) < tail.seq
            and not services.redis.exists(keys.lease(group, partition))
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
