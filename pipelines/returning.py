"""Bring back what was recalled: its entries are folded once more through the earlier stages.

The consolidation marks the tombstone of a recalled event, which then keeps nobody out any more.
What is missing is what projection and enrichment make of the event. `recalling` does that for who
asks; here it is done for a graph that is rebuilt, and for what was left behind. The mark stays, so
whoever looks next goes on where this ended.
"""

from __future__ import annotations

import structlog

from consolidation.chains import EventKey
from pipelines.adapters.ledger import Entry
from pipelines.adapters.pass_reads import PassReads
from pipelines.adapters.targets import Target
from pipelines.runner import Runner
from pipelines.services import Services
from pipelines.stages import ENRICHMENT, PROJECTION, ready

logger = structlog.get_logger(__name__)

AT_ONCE = 500
"""Events; each is one transaction of a stage for every partition."""


def missing(services: Services, target: Target) -> frozenset[EventKey]:
    """Recalled events that a target has not again, so many as are brought back at once."""
    reads = PassReads(services.driver(target), target.database)
    enriched = bool(services.writer(target).checkpoints(ENRICHMENT.name))
    return frozenset(reads.returning(AT_ONCE, enriched=enriched))


def bring_back(services: Services, target: Target) -> int:
    """Fold recalled events that the target has not again; returns how many came back.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        ModelUnavailable: the target is enriched, and a model is not installed here.
    """
    writer = services.writer(target)
    enriched = bool(writer.checkpoints(ENRICHMENT.name))
    runners: list[Runner] = []
    came, before = 0, frozenset[EventKey]()
    while keys := missing(services, target):
        if keys == before:
            logger.warning("not brought back", target=target.name, events=len(keys))
            break
        before = keys
        if not runners:
            stages = (PROJECTION, ENRICHMENT) if enriched else (PROJECTION,)
            runners = [
                Runner(ready(stage, services, target), writer, target=target.name)
                for stage in stages
            ]
        by_partition: dict[int, list[Entry]] = {}
        for entry in services.ledger.find_many(sorted(keys)).values():
            by_partition.setdefault(entry.partition, []).append(entry)
        for runner in runners:
            for partition, entries in sorted(by_partition.items()):
                runner.refold(partition, sorted(entries, key=lambda entry: entry.position))
        came += len(keys)
    if came:
        logger.info("brought back", target=target.name, events=came)
    return came
