"""Accesses as a graph shows them, for verify: read as a stream, and set where they are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from consolidation.access_counts import Access, NodeKey
from pipelines.graph.audit import GraphAudit
from pipelines.graph.neo4j import Neo4jTransaction
from projections.schema import ENTITY, EVENT

COUNTED = (EVENT, ENTITY)
_ROWS = 1_000

_STREAM = {
    row.label: f"MATCH (n:{row.label}) WHERE n.access_count IS NOT NULL "
    f"RETURN n.tenant, n.{row.key[1]}, n.access_count, n.last_accessed_at.epochMillis"
    for row in COUNTED
}
_PRESENT = {
    row.label: f"UNWIND $keys AS k MATCH (n:{row.label} {{tenant: k[0], {row.key[1]}: k[1]}}) "
    f"WHERE NOT n:{row.placeholder} RETURN n.tenant, n.{row.key[1]}"
    for row in COUNTED
}
_SET = {
    row.label: f"UNWIND $rows AS r MATCH (n:{row.label} {{tenant: r[0], {row.key[1]}: r[1]}}) "
    "SET n.access_count = r[2], n.last_accessed_at = "
    "CASE WHEN r[3] IS NULL THEN NULL ELSE datetime({epochMillis: r[3]}) END"
    for row in COUNTED
}


class AccessAudit(GraphAudit):
    """The part of verify's reading side that is about accesses, on one target."""

    def shown(self) -> dict[NodeKey, Access]:
        """All nodes that show any."""
        found: dict[NodeKey, Access] = {}
        for label, text in _STREAM.items():
            for tenant, own_id, times, last_ms in self._stream(text):
                found[label, tenant, own_id] = Access(times, last_ms)
        return found

    def present(self, keys: Iterable[NodeKey]) -> set[NodeKey]:
        """Those of the nodes that are there."""
        found: set[NodeKey] = set()
        wanted = sorted(keys)
        for label, text in _PRESENT.items():
            ids = [list(key[1:]) for key in wanted if key[0] == label]
            for first in range(0, len(ids), _ROWS):
                rows = self._stream(text, keys=ids[first : first + _ROWS])
                found |= {(label, tenant, own_id) for tenant, own_id in rows}
        return found


def set_accesses(transaction: Neo4jTransaction, accesses: Mapping[NodeKey, Access]) -> None:
    """Make nodes show these; those that are not there stay so."""
    for label, text in _SET.items():
        rows = [[*key[1:], *one] for key, one in sorted(accesses.items()) if key[0] == label]
        for first in range(0, len(rows), _ROWS):
            transaction.run(text, rows=rows[first : first + _ROWS])
