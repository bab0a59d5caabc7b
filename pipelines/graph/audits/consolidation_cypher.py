"""What verify asks of a consolidated graph, as Cypher. No driver, no socket."""

from __future__ import annotations

from typing import Final

from consolidation import NAME
from pipelines.graph.questions import comparable
from pipelines.proof.expected_consolidation import (
    DECIDED,
    LINKS,
    PLACED,
    WHOLE,
    compared,
    decided_property,
)
from projections.schema import (
    DECIDED_AT,
    ENTITY,
    EVENT,
    FORGOTTEN,
    NODES,
    RELATES_TO,
    SCOPE,
    EdgeRow,
    Kind,
    NodeRow,
    Property,
)

SUMS: Final = ("event_count", "importance_total", "seen_events", "seen_importance")
"""Properties of a Scope; the others follow from them."""


_REMEMBERED = (FORGOTTEN, "parted_from")


def _key(row: NodeRow, variable: str) -> str:
    return "[" + ", ".join(f"{variable}.{name}" for name in row.key) + "]"


def _value(property_: Property, value: str) -> str:
    if property_.kind is Kind.TIMES:
        return f"[t IN {value} | t.epochMillis]"
    return comparable(property_, value)


def _nodes(row: NodeRow) -> str:
    hidden = f" WHERE NOT n:{row.placeholder}" if row.placeholder else ""
    values = ", ".join(_value(p, f"n.{p.name}") for p in compared(row))
    return f"MATCH (n:{row.label}){hidden} RETURN {_key(row, 'n')}, [{values}]"


def _decided(row: NodeRow, name: str) -> str:
    value = _value(decided_property(row, name), f"n.{name}")
    # what a tombstone remembers, once its event came back, is a copy of what that shows
    shown = " AND NOT coalesce(n.recalled, false)" if (row, name) == _REMEMBERED else ""
    return (
        f"MATCH (n:{row.label}) WHERE n.{name} IS NOT NULL{shown} "
        f"RETURN {_key(row, 'n')}, {value}, n.{name}{DECIDED_AT}"
    )


def _targets(row: EdgeRow) -> list[NodeRow]:
    return [NODES[label] for label in (row.target, row.other_target) if label is not None]


def _edges(row: EdgeRow, target: NodeRow) -> str:
    values = ", ".join(_value(p, f"r.{p.name}") for p in row.carried(NAME))
    return (
        f"MATCH (a:{row.source})-[r:{row.type}]->(b:{target.label}) "
        f"RETURN {_key(NODES[row.source], 'a')}, {_key(target, 'b')}, [{values}]"
    )


STREAM_NODES: Final = {row.label: _nodes(row) for row in WHOLE}
"""By label: key, and the values that are compared."""
STREAM_DECIDED: Final = {(row.label, name): _decided(row, name) for row, name in DECIDED}
"""By label and name: key, value, position."""
STREAM_EDGES: Final = {
    (row.type, target.label): _edges(row, target) for row in LINKS for target in _targets(row)
}
"""By type and label of the end: keys of both ends, and values."""
STREAM_TOMBSTONES: Final = (
    f"MATCH (n:{FORGOTTEN.label}) RETURN {_key(FORGOTTEN, 'n')}, "
    f"[{', '.join(_value(FORGOTTEN.property(name), f'n.{name}') for name in PLACED)}]"
)
"""Key, and what is compared of each."""
_FACT = {p.name: _value(p, f"r.{p.name}") for p in RELATES_TO.properties}
STREAM_FADED: Final = (
    f"MATCH (a:{ENTITY.label})-[r:{RELATES_TO.type}]->(b:{ENTITY.label}) "
    "WHERE r.faded_at IS NOT NULL "
    f"RETURN [a.tenant, a.entity_id, '{ENTITY.label}', b.entity_id, "
    f"{', '.join(_FACT[name] for name in RELATES_TO.key)}], {_FACT['faded_at']}"
)
"""Key of the element, and when."""
STREAM_SCOPES: Final = (
    f"MATCH (s:{SCOPE.label}) RETURN {_key(SCOPE, 's')}, "
    f"[{', '.join(f'coalesce(s.{name}, 0)' for name in SUMS)}]"
)


def remove_nodes_text(row: NodeRow) -> str:
    """Deletes nodes with their edges; rows of keys."""
    pattern = ", ".join(f"{name}: k[{n}]" for n, name in enumerate(row.key))
    return f"UNWIND $keys AS k MATCH (n:{row.label} {{{pattern}}}) DETACH DELETE n"


def clear_decided_text(row: NodeRow, name: str) -> str:
    """Takes a decided property away, and when it was decided; rows of keys."""
    pattern = ", ".join(f"{part}: k[{n}]" for n, part in enumerate(row.key))
    return (
        f"UNWIND $keys AS k MATCH (n:{row.label} {{{pattern}}}) "
        f"REMOVE n.{name}, n.{name}{DECIDED_AT}"
    )


def remove_edges_text(row: EdgeRow, target: NodeRow) -> str:
    """Deletes all edges of the type between two nodes; rows [tenant, start, end]."""
    source = NODES[row.source].key[1]
    return (
        f"UNWIND $keys AS k MATCH (:{row.source} {{tenant: k[0], {source}: k[1]}})"
        f"-[r:{row.type}]->(:{target.label} {{tenant: k[0], {target.key[1]}: k[2]}}) DELETE r"
    )


SET_SCOPES: Final = (
    f"UNWIND $rows AS row MERGE (s:{SCOPE.label} {{tenant: row[0], session_id: row[1]}}) "
    "SET s.event_count = row[2], s.importance_total = row[3], s.seen_events = row[4], "
    "s.seen_importance = row[5], "
    "s.pending_events = CASE WHEN row[2] > row[4] THEN row[2] - row[4] ELSE 0 END, "
    "s.pending_importance = CASE WHEN row[3] > row[5] THEN row[3] - row[5] ELSE 0 END"
)
"""Rows [tenant, session id, the four sums]."""

SET_PLACES: Final = (
    f"UNWIND $rows AS row MATCH (f:{FORGOTTEN.label} {{tenant: row[0], event_id: row[1]}}) "
    "SET f.session_id = row[2], f.occurred_at = CASE WHEN row[3] IS NULL THEN NULL "
    "ELSE datetime({epochMillis: row[3]}) END, f.summary_id = row[4], "
    "f.importance_score = coalesce(f.importance_score, row[5])"
)
"""Rows [tenant, event id, session id, time in ms, summary id, importance if there is none]."""
CLEAR_FADED: Final = (
    f"UNWIND $keys AS k MATCH (a:{ENTITY.label} {{tenant: k[0], entity_id: k[1]}})"
    f"-[r:{RELATES_TO.type}]->(b:{ENTITY.label} {{tenant: k[0], entity_id: k[3]}}) "
    "WHERE r.relation = k[4] AND r.edge_type = k[5] "
    "AND r.valid_from = datetime({epochMillis: k[6]}) AND r.event_id = k[7] REMOVE r.faded_at"
)
"""Keys as STREAM_FADED has them."""
PRESENT_EVENTS: Final = (
    f"UNWIND $keys AS k MATCH (e:{EVENT.label} {{tenant: k[0], event_id: k[1]}}) "
    "RETURN e.tenant AS tenant, e.event_id AS event_id"
)
"""Placeholders too."""
COUNTED = (
    f"UNWIND $keys AS k OPTIONAL MATCH (e:{EVENT.label} {{tenant: k[0], event_id: k[1]}}) "
    f"OPTIONAL MATCH (f:{FORGOTTEN.label} {{tenant: k[0], event_id: k[1]}}) "
    "RETURN k[0] AS tenant, k[1] AS event_id, "
    "coalesce(e.importance_score, f.importance_score) AS importance, "
    "f IS NOT NULL AND NOT coalesce(f.recalled, false) AS forgotten, "
    "f.session_id IS NOT NULL AS placed"
)
FACTS = (
    f"UNWIND $keys AS k MATCH (a:{ENTITY.label} {{tenant: k[0], entity_id: k[1]}}) "
    f"MATCH (b:{ENTITY.label} {{tenant: k[0], entity_id: k[4]}}) "
    f"MATCH (a)-[r:{RELATES_TO.type}]->(b) WHERE r.relation = k[2] AND r.edge_type = k[3] "
    "AND r.valid_from = datetime({epochMillis: k[5]}) AND r.event_id = k[6] "
    "RETURN k AS key, r.retrieval_count AS weight, "
    "r.last_retrieved_at.epochMillis AS last_ms, r.faded_at.epochMillis AS faded_at_ms"
)
"""Rows [tenant, source, relation, edge type, target, valid_from in ms, event id]."""
