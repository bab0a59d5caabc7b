"""The edges that a walk follows, and the nodes and edges that an answer shows.

Every question has the tenant in the key of its patterns, goes by a key or an index, and is bounded
before it sorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pipelines.graph.reader import (
    GraphEdge,
    GraphNode,
    GraphRead,
    node_columns,
    plain_properties,
)
from pipelines.graph.reads.events import followed_then
from pipelines.graph.reads.facts import ENTITY_NODE, FACT_HOLDS, seen_entity
from pipelines.graph.reads.scope import (
    Scope,
    collected,
    fact_visible,
    ids_by_parameter,
    visible,
)
from pipelines.graph.rows import PREFIXES, RETRIEVED, ids_by_label, wire_id
from projections.schema import (
    EDGES,
    ENTITY,
    EVENT,
    NODES,
    RELATES_TO,
    SAME_AS,
    EdgeRow,
    NodeRow,
)

EDGE_VISIBLE: Final = {
    RELATES_TO.type: f"{FACT_HOLDS} AND {fact_visible('r')}",
    SAME_AS.type: "NOT coalesce(r.retracted, false)",
}


def _nodes_text(row: NodeRow) -> str:
    columns = ENTITY_NODE if row is ENTITY else node_columns("n", row)
    return f"""
  UNWIND ${row.label.lower()}_ids AS id
  MATCH (n:{row.label} {{tenant: $tenant, {row.key[1]}: id}})
  WHERE {visible(row, "n")}
  RETURN '{row.label}' AS label, {columns} AS node"""


NODES_OF: Final = (
    "CALL () {" + "\n  UNION ALL".join(map(_nodes_text, RETRIEVED)) + "\n}\n"
    "RETURN collect([label, node]) AS rows"
)
"""Nodes of all kinds with what a reader may see of them."""


def _ends() -> Iterable[tuple[tuple[EdgeRow, ...], NodeRow, NodeRow]]:
    """Edge types by the labels of their ends."""
    pairs: dict[tuple[str, str], list[EdgeRow]] = {}
    for row in EDGES.values():
        for target in filter(None, (row.target, row.other_target)):
            pairs.setdefault((row.source, target), []).append(row)
    for (source, target), rows in pairs.items():
        yield tuple(rows), NODES[source], NODES[target]


def _between_text(rows: Sequence[EdgeRow], source: NodeRow, target: NodeRow) -> str:
    """Edges from one label to another, followed from their source.

    The other end is looked up in a map, which no index answers: were it sought by its key, each
    node of one end would be tried with each of the other.
    """
    types = "|".join(row.type for row in rows)
    tests = [
        f"CASE WHEN type(r) = '{row.type}' THEN {EDGE_VISIBLE[row.type]} ELSE true END"
        for row in rows
        if row.type in EDGE_VISIBLE
    ]
    where = "".join(f" AND {test}" for test in tests)
    a, b = source.key[1], target.key[1]
    return f"""
  UNWIND ${source.label.lower()}_ids AS id
  MATCH (a:{source.label} {{tenant: $tenant, {a}: id}})
  MATCH (a)-[r:{types}]->(b)
  WHERE b:{target.label} AND b.tenant = $tenant
    AND $among['{PREFIXES.get(target.label, "")}' + b.{b}]{where}
  RETURN type(r) AS type, '{PREFIXES.get(source.label, "")}' + id AS source,
         '{PREFIXES.get(target.label, "")}' + b.{b} AS target, properties(r) AS properties"""


EDGES_BETWEEN: Final = (
    "CALL () {" + "\n  UNION ALL".join(_between_text(*end) for end in _ends()) + "\n}\n"
    "WITH type, source, target, properties ORDER BY type, source, target\n"
    "RETURN collect([type, source, target, properties]) AS rows"
)


def nodes(
    graph: GraphRead,
    scope: Scope,
    node_ids: Iterable[str],
    supporting: Mapping[str, Sequence[str]],
) -> dict[str, GraphNode]:
    """The nodes that are in the graph and in scope, by wire id.

    Args:
        graph: the transaction.
        scope: who looks.
        node_ids: wire ids.
        supporting: of entities, by own id: the newest events that mention them. Whoever only asks
            which nodes there are has none.
    """
    nodes = {}
    asked_for = ids_by_parameter(node_ids)
    for label, row in collected(graph, scope, NODES_OF, supporting=supporting, **asked_for):
        properties = {name: value for name, value in row.items() if value is not None}
        if label == ENTITY.label:
            properties = seen_entity(row, scope)
        node_id = wire_id(label, properties.pop(NODES[label].key[1]))
        nodes[node_id] = GraphNode(label, node_id, properties)
    return nodes


def edges_between(graph: GraphRead, scope: Scope, node_ids: Iterable[str]) -> list[GraphEdge]:
    """Edges of every type both of whose ends are among the nodes, sorted.

    Of a session's order those that stood there before events came that are not seen.
    """
    ids = list(node_ids)
    among = dict.fromkeys(ids, True)
    rows = collected(graph, scope, EDGES_BETWEEN, among=among, **ids_by_parameter(ids))
    edges = [
        GraphEdge(type_, source, target, plain_properties(properties))
        for type_, source, target, properties in rows
    ]
    if scope.until is None:
        return edges
    events = ids_by_label(ids)[EVENT.label]
    edges += followed_then(graph, scope, events)
    return sorted(edges, key=lambda edge: (edge.type, edge.source, edge.target))
