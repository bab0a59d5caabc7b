"""What verify asks of an enriched graph, as Cypher. No driver, no socket.

Rows are lists in the order of the schema's rows. What cannot be read as what it should be comes
as a text or a null, never as an error: a graph that was tampered with must be readable.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.graph.cypher import own_edges
from pipelines.graph.questions import comparable
from projections.schema import (
    CAUSED_BY,
    DECIDED_AT,
    ENTITY,
    EVENT,
    FACT_HISTORY,
    FORGOTTEN,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    TENANT_TERM,
    VECTOR_DIMENSIONS,
    Certainty,
    EdgeRow,
    Kind,
    Merge,
    NodeRow,
    Property,
    tenant_term_text,
)

STAGE = "enrichment"

ORDER = ", ".join(f"e.{name}" for name in EVENT.indexes[0])
_CHAIN = f"USING INDEX e:{EVENT.label}({', '.join(EVENT.indexes[0])})"
_IN_A_CHAIN = " AND ".join(f"e.{name} IS NOT NULL" for name in EVENT.indexes[0])


def _values(properties: Iterable[Property], variable: str) -> str:
    return ", ".join(comparable(p, f"{variable}.{p.name}") for p in properties)


def folded(row: NodeRow) -> tuple[Property, ...]:
    """Properties of a node that Stage 2 folds, in the schema's order."""
    return tuple(p for p in row.owned(STAGE) if p.certainty is Certainty.FOLDED)


def decided(row: NodeRow) -> tuple[Property, ...]:
    """Properties of a node that decisions set, in the schema's order."""
    return tuple(p for p in row.properties if p.merge is Merge.DECIDED and p.stage == STAGE)


def _edges(row: EdgeRow, source: str, *, skipped: int = 0, more: str = "") -> str:
    """A list of [target key…, value…, more…] of the edges that start at a node."""
    own = own_edges(row, STAGE, "r")
    target = EVENT if row.target == EVENT.label else ENTITY
    keys = ", ".join(f"o.{name}" for name in target.key)
    where = f" WHERE {own}" if own else ""
    values = _values(row.carried(STAGE)[skipped:], "r")
    return f"[({source})-[r:{row.type}]->(o){where} | [{keys}, {values}{more}]]"


def _is_vector(value: str) -> str:
    """Whether a value is a vector that a cosine can be computed of."""
    return (
        f"{value} IS :: LIST<FLOAT NOT NULL> NOT NULL AND size({value}) = {VECTOR_DIMENSIONS} "
        f"AND any(x IN {value} WHERE x <> 0.0)"
    )


_LENGTH = (
    f"CASE WHEN e.{EVENT.vector} IS NULL THEN NULL WHEN {_is_vector(f'e.{EVENT.vector}')} "
    f"THEN sqrt(reduce(s = 0.0, x IN e.{EVENT.vector} | s + x * x)) ELSE -1.0 END"
)
_COSINE = (
    f"CASE WHEN {_is_vector(f'e.{EVENT.vector}')} AND {_is_vector(f'o.{EVENT.vector}')} "
    f"THEN 2 * vector.similarity.cosine(e.{EVENT.vector}, o.{EVENT.vector}) - 1 END"
)
_EVENT_COLUMNS = (
    "e.tenant, e.event_id, e.session_id, "
    f"{comparable(EVENT.property('occurred_at'), 'e.occurred_at')}, e.global_position, "
    f"[{_values(folded(EVENT), 'e')}], e.embedding_model, {_LENGTH}, "
    f"{_edges(REFERENCES, 'e')}, {_edges(CAUSED_BY, 'e', skipped=1)}, "
    f"{_edges(SIMILAR_TO, 'e', more=f', {_COSINE}, elementId(r)')}, "
    f"COUNT {{ (e)-[:{SIMILAR_TO.type}]-() }}"
)
STREAM_EVENTS = (
    f"MATCH (e:{EVENT.label}) {_CHAIN} WHERE {_IN_A_CHAIN} RETURN {_EVENT_COLUMNS} ORDER BY {ORDER}"
)
"""Every event with what Stage 2 wrote to it, session by session in the order of the chain."""
STREAM_SESSION = (
    f"MATCH (e:{EVENT.label}) {_CHAIN} WHERE e.tenant = $tenant AND e.session_id = $session "
    f"AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL "
    f"RETURN {_EVENT_COLUMNS} ORDER BY {ORDER}"
)
STREAM_THINNED = (
    f"MATCH (f:{FORGOTTEN.label}) WHERE f.session_id IS NOT NULL "
    "RETURN DISTINCT f.tenant, f.session_id"
)
"""Sessions from which events were forgotten."""
READ_EVENTS = (
    f"UNWIND $keys AS k MATCH (e:{EVENT.label} {{tenant: k[0], event_id: k[1]}}) "
    f"WHERE e.session_id IS NOT NULL AND e.occurred_at IS NOT NULL RETURN {_EVENT_COLUMNS}"
)

_DECIDED = ", ".join(f"n.{p.name}, n.{p.name}{DECIDED_AT}" for p in decided(ENTITY))
_BARE_COLUMNS = (
    f"n.tenant, n.entity_id, elementId(n), NOT n:{ENTITY.placeholder}, "
    f"[{_values(folded(ENTITY), 'n')}], [{_DECIDED}]"
)
_ENTITY_COLUMNS = (
    f"{_BARE_COLUMNS}, "
    f"{_edges(RELATES_TO, 'n', more=', elementId(r)')}, "
    f"{_edges(SAME_AS, 'n', more=', elementId(r)')}"
)
STREAM_ENTITIES = f"MATCH (n:{ENTITY.label}) RETURN {_ENTITY_COLUMNS}"
"""Every entity with the facts and the sameness that start at it, in no order."""
_BY_KEY = f"UNWIND $keys AS k MATCH (n:{ENTITY.label} {{tenant: k[0], entity_id: k[1]}}) "
READ_ENTITIES = f"{_BY_KEY}RETURN {_ENTITY_COLUMNS}"
READ_BARE_ENTITIES = f"{_BY_KEY}RETURN {_BARE_COLUMNS}, [] AS facts, [] AS same"
"""The same without the edges: of some entities everybody says something."""
_HISTORY_COLUMNS = "h.tenant, h.history_id, elementId(h), h.entries"
STREAM_HISTORIES = f"MATCH (h:{FACT_HISTORY.label}) RETURN {_HISTORY_COLUMNS}"
READ_HISTORIES = (
    f"UNWIND $keys AS k MATCH (h:{FACT_HISTORY.label} {{tenant: k[0], history_id: k[1]}}) "
    f"RETURN {_HISTORY_COLUMNS}"
)

_NUMBERED = [f"n.{p.name}" for p in folded(ENTITY)]
_TIMES = {f"n.{p.name}" for p in folded(ENTITY) if p.kind is Kind.TIME}


def _written(name: str, value: str) -> str:
    if name in _TIMES:
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE datetime({{epochMillis: {value}}}) END"
    return value


OVERWRITE_ENTITIES = (
    f"UNWIND $rows AS row MERGE (n:{ENTITY.label} {{tenant: row[0], entity_id: row[1]}}) SET "
    f"n.{TENANT_TERM} = {tenant_term_text('row[0]')}, "
    + ", ".join(f"{name} = {_written(name, f'row[{n + 3}]')}" for n, name in enumerate(_NUMBERED))
    + "".join(
        f", n.{p.name} = row[{len(_NUMBERED) + 3 + 2 * n}]"
        f", n.{p.name}{DECIDED_AT} = row[{len(_NUMBERED) + 4 + 2 * n}]"
        for n, p in enumerate(decided(ENTITY))
    )
    + f" FOREACH (_ IN CASE WHEN row[2] THEN [1] ELSE [] END | REMOVE n:{ENTITY.placeholder})"
    f" FOREACH (_ IN CASE WHEN row[2] THEN [] ELSE [1] END | SET n:{ENTITY.placeholder})"
)
"""Rows [tenant, entity id, visible, folded value…, decided value and position…], as they are."""
RENAME_ENTITIES = (
    f"UNWIND $rows AS row MATCH (n:{ENTITY.label} {{tenant: row[0], entity_id: row[1]}}) "
    "SET n.lock = true REMOVE n.lock WITH n, row WHERE n.first_event_id = row[2] "
    "SET n.name = row[3], n.subtype = row[4]"
)
"""Rows [tenant, entity id, event id, name, subtype]: where that event is still the earliest."""
REMOVE_NODES = "UNWIND $ids AS id MATCH (n) WHERE elementId(n) = id DETACH DELETE n"
REMOVE_EDGES = "UNWIND $ids AS id MATCH ()-[r]->() WHERE elementId(r) = id DELETE r"
READ_SIMILAR = (
    f"MATCH (e:{EVENT.label} {{tenant: $key[0], event_id: $key[1]}}) "
    f"RETURN [(e)-[r:{SIMILAR_TO.type}]-() | [r.score, elementId(r)]]"
)
RESCORE_SIMILAR = (
    f"UNWIND $rows AS row MATCH ()-[r:{SIMILAR_TO.type}]->() WHERE elementId(r) = row[0] "
    "SET r.score = row[1]"
)
