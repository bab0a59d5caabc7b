"""The edges that a walk follows, and the nodes and edges that an answer shows.

Every question has the tenant in the key of its patterns, goes by a key or an index, and is bounded
before it sorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from enrichment.names import VALUE
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
    MAX_SCANNED,
    Scope,
    collected,
    fact_visible,
    ids_by_parameter,
    passed_over,
    stands,
    visible,
)
from pipelines.graph.rows import PREFIXES, RETRIEVED, StepEdge, ids_by_label, wire_id
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    EDGE_CAPS,
    EDGES,
    ENTITY,
    EVENT,
    FOLLOWS,
    MEMBER_OF,
    NODES,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
    EdgeRow,
    NodeRow,
)


class _Branch(NamedTuple):
    """Edges of one type at a node of one label, towards one label."""

    row: EdgeRow
    left: str
    right: str
    to: NodeRow
    order: str


_NEWEST = "m.occurred_at DESC, m.event_id"
_BRANCHES: Final[Mapping[str, tuple[_Branch, ...]]] = {
    EVENT.label: (
        _Branch(FOLLOWS, left="-", right="-", to=EVENT, order="r.delta_ms, m.event_id"),
        _Branch(
            CAUSED_BY,
            left="-",
            right="-",
            to=EVENT,
            order=f"coalesce(r.confidence, 1.0) DESC, {_NEWEST}",
        ),
        _Branch(SIMILAR_TO, left="-", right="-", to=EVENT, order="r.score DESC, m.event_id"),
        _Branch(REFERENCES, left="-", right="->", to=ENTITY, order="m.entity_id"),
        _Branch(SUMMARIZES, left="<-", right="-", to=SUMMARY, order="m.level, m.summary_id"),
    ),
    ENTITY.label: (
        _Branch(REFERENCES, left="<-", right="-", to=EVENT, order=_NEWEST),
        _Branch(
            RELATES_TO,
            left="-",
            right="-",
            to=ENTITY,
            order="r.confidence DESC, r.valid_from DESC, m.entity_id",
        ),
        _Branch(SAME_AS, left="-", right="-", to=ENTITY, order="m.entity_id"),
        _Branch(MEMBER_OF, left="-", right="->", to=COMMUNITY, order="m.community_id"),
    ),
    SUMMARY.label: (
        _Branch(
            SUMMARIZES, left="-", right="->", to=EVENT, order=f"m.importance_score DESC, {_NEWEST}"
        ),
        _Branch(SUMMARIZES, left="-", right="-", to=SUMMARY, order="m.level DESC, m.summary_id"),
    ),
    COMMUNITY.label: (_Branch(MEMBER_OF, left="<-", right="-", to=ENTITY, order="m.entity_id"),),
}
_EDGE_VISIBLE: Final = {
    RELATES_TO.type: f"{FACT_HOLDS} AND {fact_visible('r')}",
    SAME_AS.type: "NOT coalesce(r.retracted, false)",
}
_QUALITIES: Final = ("confidence", "score", "delta_ms")
_NONE: Final = [None] * len(_QUALITIES)
_UNSAID: Final[Mapping[str, Any]] = {}


def _quality(row: EdgeRow) -> str:
    properties = {prop.name for prop in row.properties}
    return "[" + ", ".join(f"r.{n}" if n in properties else "null" for n in _QUALITIES) + "]"


def _branch_text(branch: _Branch) -> str:
    row, to = branch.row, branch.to
    # What an event that is seen mentions, and what a fact that is seen joins, is seen.
    seen_by_it = to is ENTITY and row in (REFERENCES, RELATES_TO)
    tests = [stands(to, "m") if seen_by_it else visible(to, "m")]
    if row.type in _EDGE_VISIBLE:
        tests.append(_EDGE_VISIBLE[row.type])
    id_name = to.key[1]
    # A literal ("dark mode") is everybody's, so no path leads through it.
    closed = f"coalesce(m.subtype = '{VALUE}', false)" if to is ENTITY else "false"
    view = "r.edge_type" if row is RELATES_TO else "''"
    at = "r.valid_from.epochMillis" if row is RELATES_TO else "null"
    if to is EVENT:
        at = "m.occurred_at.epochMillis"
    return f"""
    MATCH (n){branch.left}[r:{row.type}]{branch.right}(m:{to.label} {{tenant: $tenant}})
    WITH n, r, m LIMIT {MAX_SCANNED}
    WITH n, r, m WHERE {" AND ".join(tests)}
    WITH n, r, m ORDER BY {branch.order} LIMIT $caps.{row.type}
    RETURN [type(r), startNode(r) = n, '{PREFIXES.get(to.label, "")}' + m.{id_name}, {view},
            {_quality(row)}, {closed}, {at}] AS edge"""


def _followed_then_text(forward: bool) -> str:
    """The next event of the session that was known at `$until`, over those that were not."""
    return f"""
    MATCH (n){passed_over(FOLLOWS, forward)}(m:{EVENT.label})
    WHERE m.tenant = $tenant AND {visible(EVENT, "m")}
    RETURN ['{FOLLOWS.type}', {str(forward).lower()}, m.event_id, '',
            [null, null, abs(m.occurred_at.epochMillis - n.occurred_at.epochMillis)], false,
            m.occurred_at.epochMillis] AS edge"""


def _branches(row: NodeRow, then: bool) -> Iterable[str]:
    for branch in _BRANCHES[row.label]:
        if then and branch.row is FOLLOWS:
            yield from map(_followed_then_text, (True, False))
        else:
            yield _branch_text(branch)


def _steps_text(row: NodeRow, then: bool) -> str:
    id_name = row.key[1]
    branches = "\n    UNION ALL".join(_branches(row, then))
    return f"""
  UNWIND ${row.label.lower()}_ids AS id
  MATCH (n:{row.label} {{tenant: $tenant, {id_name}: id}})
  WHERE {visible(row, "n")}
  CALL (n) {{{branches}
  }}
  RETURN '{PREFIXES.get(row.label, "")}' + id AS node_id, edge"""


def _level_text(then: bool) -> str:
    texts = "\n  UNION ALL".join(_steps_text(row, then) for row in RETRIEVED)
    return f"CALL () {{{texts}\n}}\nRETURN collect([node_id, edge]) AS rows"


STEPS: Final = {then: _level_text(then) for then in (False, True)}
"""One level of a walk, for all nodes of the frontier at once; by whether it is as of a position."""


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
        f"CASE WHEN type(r) = '{row.type}' THEN {_EDGE_VISIBLE[row.type]} ELSE true END"
        for row in rows
        if row.type in _EDGE_VISIBLE
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


def steps(
    graph: GraphRead,
    scope: Scope,
    node_ids: Iterable[str],
    caps: Mapping[str, int] = EDGE_CAPS,
) -> list[StepEdge]:
    """The edges around some nodes, at most `caps` of each type at each node, the best of them."""
    text = STEPS[scope.until is not None]
    rows = collected(graph, scope, text, caps=caps, **ids_by_parameter(node_ids))
    return [_step_edge(node_id, *edge) for node_id, edge in rows]


def _step_edge(
    here: str,
    type_: str,
    forward: bool,
    there: str,
    view: str | None,
    qualities: Sequence[Any],
    closed: bool,
    at_ms: int | None,
) -> StepEdge:
    properties = _UNSAID
    if qualities != _NONE:
        properties = {n: v for n, v in zip(_QUALITIES, qualities, strict=True) if v is not None}
    source, target = (here, there) if forward else (there, here)
    return StepEdge(
        type=type_,
        source=source,
        target=target,
        view=view or "",
        properties=properties,
        reached=there,
        closed=closed,
        at_ms=at_ms,
    )


def nodes(graph: GraphRead, scope: Scope, node_ids: Iterable[str]) -> dict[str, GraphNode]:
    """The nodes that are in the graph and in scope, by wire id."""
    nodes = {}
    for label, row in collected(graph, scope, NODES_OF, **ids_by_parameter(node_ids)):
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
