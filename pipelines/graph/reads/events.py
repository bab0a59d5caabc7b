"""Events that a viewer may see: by id, of a session, beside each other, and their words.

Every question has the tenant in the key of its patterns and goes by a key or an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pipelines.graph.reader import (
    EVENT_COLUMNS,
    GraphEdge,
    GraphNode,
    GraphRead,
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
    of_viewer,
    passed_over,
    rows_in,
    stands,
    visible,
)
from pipelines.graph.rows import DEFAULT_IMPORTANCE
from projections.schema import CAUSED_BY, EDGES, EVENT, FOLLOWS, EdgeRow

SESSION_USERS: Final = 50
"""The last events of a session among which its user is looked for."""

EVENTS: Final = f"""
UNWIND $ids AS id
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
WHERE {visible(EVENT, "e")}
RETURN {EVENT_COLUMNS} AS node
"""
# Named, for a plan made while the graph was empty scans all labels; the index answers only when
# each of its columns is asked for, if only to exist.
OF_SESSION: Final = f"""
MATCH (e:{EVENT.label})
USING INDEX e:{EVENT.label}({", ".join(EVENT.indexes[0])})
WHERE e.tenant = $tenant AND e.session_id = $session_id
  AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL"""
NEWEST: Final = ", ".join(f"e.{name} DESC" for name in EVENT.indexes[0])
SESSION_USER: Final = f"""
{OF_SESSION}
WITH e ORDER BY {NEWEST} LIMIT {SESSION_USERS}
RETURN head(collect(e.user_id)) AS user_id
"""
# The decay score falls with age alone once importance and access count are given, so the best k
# of each such group contain the best k of the session: the formula stays in one place, in Python,
# and a session of 100,000 events sends a few hundred rows.
CANDIDATES: Final = f"""
{OF_SESSION} AND {stands(EVENT, "e")}
WITH e, {of_viewer("e")} AS shown,
     coalesce(e.importance_score, e.importance_hint, $default_importance) AS importance,
     coalesce(e.access_count, 0) AS access_count, e.occurred_at.epochMillis AS occurred_at,
     coalesce(e.last_accessed_at.epochMillis, 0) AS accessed_at
WITH e, shown, importance, access_count, occurred_at,
     CASE WHEN accessed_at > occurred_at THEN accessed_at ELSE occurred_at END AS used_at
ORDER BY used_at DESC, occurred_at DESC, e.event_id
WITH shown, importance, access_count, count(e) AS total,
     collect([e.event_id, occurred_at, used_at])[..$limit] AS best
RETURN shown, importance, access_count, total, CASE WHEN shown THEN best ELSE [] END AS best
"""


def _edges_between(rows: Sequence[EdgeRow]) -> str:
    types = "|".join(row.type for row in rows)
    return f"""
UNWIND $ids AS id
MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})-[r:{types}]->
      (e:{EVENT.label} {{tenant: $tenant}})
WHERE {visible(EVENT, "a")} AND {visible(EVENT, "e")} AND e.event_id IN $ids
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
MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})
MATCH (a){_step(row, forward, then)}(e:{EVENT.label})
WHERE e.tenant = $tenant AND {visible(EVENT, "a")} AND {visible(EVENT, "e")}
  AND NOT e.event_id IN $seen
WITH DISTINCT e ORDER BY e.occurred_at DESC, e.event_id LIMIT $limit
RETURN {EVENT_COLUMNS} AS node
"""


def _beside(row: EdgeRow) -> str:
    return f"""
UNWIND $ids AS id
MATCH (:{EVENT.label} {{tenant: $tenant, event_id: id}})-[:{row.type}]-
      (e:{EVENT.label} {{tenant: $tenant}})
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
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: $id}})
WHERE {visible(EVENT, "e")}
RETURN e.status AS status,
       EXISTS {{ MATCH (e)-[:{CAUSED_BY.type}]-(c:{EVENT.label} {{tenant: $tenant}})
                WHERE {visible(EVENT, "c")} }} AS caused,
       EXISTS {{ MATCH (e)-[:{FOLLOWS.type}]-(f:{EVENT.label} {{tenant: $tenant}})
                WHERE {visible(EVENT, "f")} }} AS followed
"""
FOLLOWED: Final = f"""
UNWIND $event_ids AS id
MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})
MATCH (a)((:{EVENT.label})-[:{FOLLOWS.type}]->{LATER}){{1,{MAX_LATER}}}
      (:{EVENT.label})-[:{FOLLOWS.type}]->(b:{EVENT.label})
WHERE b.tenant = $tenant AND $among[b.event_id] AND {visible(EVENT, "a")} AND {visible(EVENT, "b")}
RETURN a.event_id AS source, b.event_id AS target, a.session_id AS session_id,
       b.occurred_at.epochMillis - a.occurred_at.epochMillis AS delta_ms
ORDER BY source, target
"""
TEXTS: Final = f"""
UNWIND $ids AS id
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
WHERE {visible(EVENT, "e")}
RETURN id, coalesce(e.text, e.summary, '') AS text
"""


class SessionCandidate(NamedTuple):
    """What ranking needs to know of an event.

    Attributes:
        used_at_ms: the later of occurred_at and the last access.
        importance: 1 to 10.
        access_count: how often a read has returned it.
    """

    event_id: str
    occurred_at_ms: int
    used_at_ms: int
    importance: int
    access_count: int


class SessionCandidates(NamedTuple):
    """The events of a session that may be its best.

    Attributes:
        total: events of the session that the viewer may see.
        withheld: that the viewer may not.
    """

    best: list[SessionCandidate]
    total: int
    withheld: int


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

    def session_candidates(self, session_id: str, limit: int) -> SessionCandidates:
        """Events among which the session's `limit` best by decay score are, and how many it has."""
        rows = self._rows(
            CANDIDATES,
            session_id=session_id,
            limit=limit,
            default_importance=DEFAULT_IMPORTANCE,
        )
        best = [
            SessionCandidate(
                event_id,
                occurred_at,
                used_at,
                importance=row["importance"],
                access_count=row["access_count"],
            )
            for row in rows
            for event_id, occurred_at, used_at in row["best"]
        ]
        total = sum(row["total"] for row in rows if row["shown"])
        return SessionCandidates(best, total, sum(row["total"] for row in rows) - total)

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


def session_user(graph: GraphRead, tenant: str, session_id: str) -> str | None:
    """The user of a session, by its last events; None: they are of nobody."""
    (row,) = graph.rows(SESSION_USER, tenant=tenant, session_id=session_id)
    user_id: str | None = row["user_id"]
    return user_id


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
