"""Events that a viewer may see: by id, of a session, beside each other, and their words.

Every question begins at nodes of the tenant, by a key or an index that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pipelines.graph.patterns import edges_at
from pipelines.graph.reader import (
    EVENT_COLUMNS,
    GraphEdge,
    GraphNode,
    event_node,
    plain_properties,
)
from pipelines.graph.reads.scope import (
    LATER,
    MAX_LATER,
    MAX_SCANNED,
    Asked,
    Scope,
    ScopedReads,
    match_by_id,
    of_viewer,
    passed_over,
    rows_in,
    stands,
    visible,
)
from projections.schema import CAUSED_BY, EDGES, EVENT, FOLLOWS, EdgeRow

EVENTS: Final = f"""
UNWIND $ids AS id
{match_by_id("e", EVENT)}
WHERE {visible(EVENT, "e")}
RETURN {EVENT_COLUMNS} AS node
"""


def _edges_between(rows: Sequence[EdgeRow]) -> str:
    types = "|".join(row.type for row in rows)
    return f"""
UNWIND $ids AS id
{match_by_id("a", EVENT)}
WHERE {visible(EVENT, "a")}
{edges_at("a", types, "e", leaves=True)}
WITH a, r, e
WHERE e:{EVENT.label} AND e.tenant = $tenant AND e.event_id IN $ids AND {visible(EVENT, "e")}
RETURN type(r) AS type, a.event_id AS source, e.event_id AS target, properties(r) AS properties
ORDER BY type, source, target
"""


def _step(row: EdgeRow, forward: bool, then: bool) -> str:
    if then:
        return passed_over(row, forward)
    left, right = ("-", "->") if forward else ("<-", "-")
    return f"{left}[:{row.type}]{right}"


def _neighbours(row: EdgeRow, forward: bool, then: bool) -> str:
    return f"""
UNWIND $ids AS id
{match_by_id("a", EVENT)}
MATCH (a){_step(row, forward, then)}(e:{EVENT.label})
WHERE e.tenant = $tenant AND {visible(EVENT, "a")} AND {visible(EVENT, "e")}
  AND NOT e.event_id IN $seen
WITH DISTINCT e ORDER BY e.occurred_at DESC, e.event_id LIMIT $limit
RETURN {EVENT_COLUMNS} AS node
"""


def _beside(row: EdgeRow) -> str:
    return f"""
UNWIND $ids AS id
{match_by_id("a", EVENT)}
MATCH (a)-[:{row.type}]-(e:{EVENT.label} {{tenant: $tenant}})
WITH DISTINCT e LIMIT {MAX_SCANNED}
WHERE {stands(EVENT, "e")} AND NOT {of_viewer("e")}
RETURN count(e) AS withheld
"""


EVENT_EDGES: Final = tuple(
    row for row in EDGES.values() if row.source == EVENT.label and row.target == EVENT.label
)
EDGES_AMONG: Final = {
    tuple(row.type for row in rows): _edges_between(rows)
    for rows in (EVENT_EDGES, (CAUSED_BY,), (FOLLOWS,))
}
NEIGHBOURS: Final = {
    (row.type, forward, then): _neighbours(row, forward, then)
    for row in (CAUSED_BY, FOLLOWS)
    for forward in (True, False)
    for then in (True, False)
}
"""By type, direction, and whether it is as of a position."""
BESIDE: Final = {row.type: _beside(row) for row in (CAUSED_BY, FOLLOWS)}
SURROUNDINGS: Final = f"""
{match_by_id("e", EVENT, "$id")}
WHERE {visible(EVENT, "e")}
RETURN e.status AS status,
       EXISTS {{ MATCH (e)-[:{CAUSED_BY.type}]-(c:{EVENT.label} {{tenant: $tenant}})
                WHERE {visible(EVENT, "c")} }} AS caused,
       EXISTS {{ MATCH (e)-[:{FOLLOWS.type}]-(f:{EVENT.label} {{tenant: $tenant}})
                WHERE {visible(EVENT, "f")} }} AS followed
"""
FOLLOWED: Final = f"""
UNWIND $event_ids AS id
{match_by_id("a", EVENT)}
MATCH (a)((:{EVENT.label})-[:{FOLLOWS.type}]->{LATER}){{1,{MAX_LATER}}}
      (:{EVENT.label})-[:{FOLLOWS.type}]->(b:{EVENT.label})
WHERE b.tenant = $tenant AND $among[b.event_id] AND {visible(EVENT, "a")} AND {visible(EVENT, "b")}
RETURN a.event_id AS source, b.event_id AS target, a.session_id AS session_id,
       b.occurred_at.epochMillis - a.occurred_at.epochMillis AS delta_ms
ORDER BY source, target
"""
TEXTS: Final = f"""
UNWIND $ids AS id
{match_by_id("e", EVENT)}
WHERE {visible(EVENT, "e")}
RETURN id, coalesce(e.text, e.summary, '') AS text
"""


class Surroundings(NamedTuple):
    """How an event stands: `caused` by another or causing one, `followed` or following one."""

    status: str | None
    caused: bool
    followed: bool


class EventReads(ScopedReads):
    """Events as one viewer sees them."""

    def events(self, event_ids: Sequence[str]) -> dict[str, GraphNode]:
        """The events that are in the graph and in scope, by id."""
        nodes = map(event_node, self._rows(EVENTS, ids=list(event_ids)))
        return {node.node_id: node for node in nodes}

    def neighbours(
        self,
        event_ids: Sequence[str],
        row: EdgeRow,
        *,
        forward: bool,
        seen: Iterable[str],
        limit: int,
    ) -> list[GraphNode]:
        """Events one edge away and not yet seen, the newest first.

        As of a position, the next event of a session is the next one that was known.

        Args:
            event_ids: where the edges start (`forward`) or end.
            row: the type of the edges, CAUSED_BY or FOLLOWS.
            forward: along the direction of the edge.
            seen: ids that are not wanted again.
            limit: how many at most.
        """
        text = NEIGHBOURS[row.type, forward, self._scope.until is not None]
        rows = self._rows(text, ids=list(event_ids), seen=list(seen), limit=limit)
        return [event_node(item) for item in rows]

    def edges_between(
        self, event_ids: Sequence[str], rows: Sequence[EdgeRow] = EVENT_EDGES
    ) -> list[GraphEdge]:
        """Edges both of whose ends are among the events, of the given types or of all."""
        edges = [
            GraphEdge(
                item["type"], item["source"], item["target"], plain_properties(item["properties"])
            )
            for item in self._rows(
                EDGES_AMONG[tuple(row.type for row in rows)], ids=list(event_ids)
            )
        ]
        if self._scope.until is None or FOLLOWS not in rows:
            return edges
        edges += followed_then(self._graph, self._scope, event_ids)
        return sorted(edges, key=lambda edge: (edge.type, edge.source, edge.target))

    def withheld_beside(self, event_ids: Sequence[str], row: EdgeRow) -> int:
        """How many events one edge away are kept from the viewer, of the first MAX_SCANNED."""
        (counted,) = self._rows(BESIDE[row.type], ids=list(event_ids))
        return int(counted["withheld"])

    def surroundings(self, event_id: str) -> Surroundings | None:
        """How an event stands in its graph; None: it is not there."""
        for row in self._rows(SURROUNDINGS, id=event_id):
            return Surroundings(row["status"], row["caused"], row["followed"])
        return None

    def texts(self, event_ids: Sequence[str]) -> dict[str, str]:
        """What events say, as far as it was kept, by id; of an event without content nothing."""
        rows = self._rows(TEXTS, ids=list(event_ids))
        return {row["id"]: row["text"] for row in rows if row["text"]}


def followed_then(graph: Asked, scope: Scope, event_ids: Iterable[str]) -> list[GraphEdge]:
    """Edges of the order of sessions, between the events, that later ones have been put into."""
    ids = list(event_ids)
    rows = rows_in(graph, scope, FOLLOWED, event_ids=ids, among=dict.fromkeys(ids, True))
    return [
        GraphEdge(
            FOLLOWS.type,
            row["source"],
            row["target"],
            {"session_id": row["session_id"], "delta_ms": row["delta_ms"]},
        )
        for row in rows
    ]
