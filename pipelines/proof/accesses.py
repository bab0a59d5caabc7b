"""The part of Stage 3's verify that looks at what only counts up: accesses of events and entities.

Retrievals of facts are left out: an edge that went and came back began anew, which nobody can tell
later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from consolidation import NAME
from consolidation.access_counts import Access, NodeKey
from consolidation.stage import Derived
from pipelines.graph.audits.accesses import AccessAudit, set_accesses
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.proof.comparison import Difference
from pipelines.proof.expected_accesses import ExpectedAccesses
from projections.events import PARTITION_KEY
from projections.identity import Position, partition_of
from projections.schema import ENTITY, EVENT

_TYPES = {row.label: f"{row.label} (accesses)" for row in (EVENT, ENTITY)}
_LABELS = {name: label for label, name in _TYPES.items()}

Later = Callable[[int, Position], Iterable[Derived]]
"""What a partition holds behind what the last look has read, up to a position."""


def concerns_accesses(difference: Difference) -> bool:
    """Whether a difference is one of those that are found here."""
    return difference.type in _LABELS


def access_differences(expected: ExpectedAccesses, audit: AccessAudit) -> Iterator[Difference]:
    """Where a graph shows other accesses than the ledger holds."""
    should = {key: one for key, one in expected.nodes().items() if one != Access()}
    shown = audit.shown()
    absent = should.keys() - shown.keys()
    there = shown.keys() | (audit.present(absent) if absent else set())
    for key in sorted(there):
        pair = should.get(key, Access()), shown.get(key, Access())
        if pair[0] != pair[1]:
            fields = {
                name: (a, b) for name, a, b in zip(Access._fields, *pair, strict=True) if a != b
            }
            yield Difference("different", "node", _TYPES[key[0]], key[1:], fields)


def mend_accesses(
    differences: Iterable[Difference],
    expected: ExpectedAccesses,
    later: Later,
    graph: Neo4jGraph,
    partitions: int,
) -> None:
    """Set accesses to what the ledger says, up to where the checkpoints stand now.

    Args:
        differences: those that concern accesses are mended.
        expected: up to the last look; goes on from there.
        later: reads what came behind it.
        graph: of the target.
        partitions: of the ledger.
    """
    wrong: dict[int, list[NodeKey]] = {}
    for one in filter(concerns_accesses, differences):
        tenant, own_id = one.key
        partition = partition_of(tenant, PARTITION_KEY, partitions)
        wrong.setdefault(partition, []).append((_LABELS[one.type], tenant, own_id))
    for partition, keys in sorted(wrong.items()):
        with graph.transaction() as transaction:
            current = transaction.lock(NAME, partition)
            if current is None:
                continue
            for decided in later(partition, current.position):
                expected.take(decided)
            now = expected.nodes()
            set_accesses(transaction, {key: now.get(key, Access()) for key in keys})
