"""Bring back what was recalled: its entries are folded once more through the earlier stages.

The consolidation marks the tombstone of a recalled event, which then keeps nobody out any more.
What is missing is what projection and enrichment make of the event. `recalling` does that for who
asks; here it is done for a graph that is rebuilt, and for what was left behind. The mark stays, so
whoever looks next goes on where this ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import structlog

from consolidation.forgetting import EventKey
from pipelines.graph.reads.due_passes import PassReads
from pipelines.ledger.ledger import Entry, Ledger
from pipelines.ledger.registry import Target
from pipelines.work.folds import make_fold
from pipelines.work.poison import UNBRAKED
from pipelines.work.runner import Runner
from pipelines.work.services import Services
from pipelines.work.stages import CONSOLIDATION, ENRICHMENT, stages_before

logger = structlog.get_logger(__name__)

AT_ONCE = 500
"""Events; each is one transaction of a stage for every partition."""


def missing(services: Services, target: Target) -> frozenset[EventKey]:
    """Recalled events that a target has not again, so many as are brought back at once."""
    return frozenset(_Missing(services, target).page())


def bring_back(services: Services, target: Target) -> int:
    """Fold recalled events that the target has not again; returns how many came back.

    Each is tried once: those that cannot come back do not keep back those behind them.

    Raises:
        LedgerUnavailable, GraphUnavailable: a service is away.
        ModelUnavailable: the target is enriched, and a model is not installed here.
    """
    looking = _Missing(services, target)
    runners: list[Runner] = []
    came = left = 0
    before: EventKey | None = None
    while keys := looking.page(before):
        if not runners:
            runners = [
                Runner(
                    make_fold(stage, services, target),
                    services.graph(target),
                    target=target.name,
                    policy=UNBRAKED,
                )
                for stage in looking.stages
            ]
        fold_again(services.ledger, runners, keys)
        still = len(set(keys).intersection(looking.page(before)))
        came, left = came + len(keys) - still, left + still
        before = keys[-1]
    if left:
        logger.warning("not brought back", target=target.name, events=left)
    if came:
        logger.info("brought back", target=target.name, events=came)
    return came


class _Missing:
    """Recalled events that a target has not again, in the order of their keys."""

    def __init__(self, services: Services, target: Target) -> None:
        self._reads = PassReads(services.driver(target), target.database)
        graph = services.graph(target)
        self.stages = [s for s in stages_before(CONSOLIDATION) if graph.checkpoints(s.name)]
        self.enriched = bool(graph.checkpoints(ENRICHMENT.name))

    def page(self, after: EventKey | None = None) -> list[EventKey]:
        """Those behind a key, so many as are brought back at once."""
        return self._reads.returning(AT_ONCE, after=after, enriched=self.enriched)


def fold_again(
    ledger: Ledger, runners: Sequence[Runner], keys: Sequence[EventKey]
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
