"""Recalled events that a graph has not again: which they are, and folding their entries once more.

The consolidation marks the tombstone of a recalled event, which then keeps nobody out any more;
what is missing is what projection and enrichment make of the event, so its entry is folded once
more through these. The mark stays, so whoever looks next goes on where this ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol

from consolidation.forgetting import EventKey
from pipelines.graph.port import Reads
from pipelines.ledger.entries import Entry
from pipelines.work.runner import Runner
from projections.schema import DEAD_LETTER, EVENT, FORGOTTEN

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
