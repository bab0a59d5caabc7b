"""Whose memory is read, as of when, and what of it may be seen.

Events behind a position are left out. Where one of them came late and was spliced in between two
others, the edge of the session's order that stood there before is given instead of the two that
replaced it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from pipelines.graph.reader import (
    EVENT_COLUMNS,
    IS_EVENT,
    GraphEdge,
    GraphNode,
    GraphRead,
    SessionCandidate,
    candidates_of,
    candidates_text,
    event_node,
)
from pipelines.graph.rows import DEFAULT_IMPORTANCE, ids_by_label
from projections.identity import Position
from projections.schema import CAUSED_BY, EVENT, FOLLOWS, EdgeRow, NodeRow

MAX_SCANNED: Final = 400
"""Edges of one type at one node that are looked at: a hub costs no more than that."""


class Scope(NamedTuple):
    """Whose memory is read, and as of when.

    Attributes:
        user_id: events and facts of this user or of nobody; None: of nobody.
        now_ms: the clock, for facts that hold or not.
        until: events behind this position are not seen.
    """

    tenant: str
    user_id: str | None
    now_ms: int
    until: Position | None = None

    def parameters(self) -> dict[str, Any]:
        """As the questions take them."""
        return {
            "tenant": self.tenant,
            "user_id": self.user_id,
            "now": self.now_ms,
            "until": None if self.until is None else until_parameter(self.until),
        }


def visible(row: NodeRow, variable: str) -> str:
    """Cypher that is true of a node that a reader in scope may see."""
    tests = [f"NOT {variable}:{row.placeholder}"]
    if row is EVENT:
        tests += [
            f"CASE WHEN {variable}.user_id IS NULL THEN true "
            f"ELSE coalesce({variable}.user_id = $user_id, false) END",
            f"CASE WHEN $until IS NULL THEN true ELSE {known(variable)} END",
        ]
    if any(prop.name == "gone" for prop in row.properties):
        tests.append(f"NOT coalesce({variable}.gone, false)")
    return " AND ".join(tests)


def ids_by_parameter(node_ids: Iterable[str]) -> dict[str, list[str]]:
    """Own ids by the name of the parameter: `event_ids`, `entity_ids` and so on."""
    return {f"{label.lower()}_ids": ids for label, ids in ids_by_label(node_ids).items()}


def collected(graph: GraphRead, text: str, **parameters: Any) -> list[Any]:
    """All rows of a question in one record: a record costs the driver as much as a hundred rows."""
    (record,) = graph.rows(text, **parameters)
    return list(record["rows"])


MAX_LATER: Final = 200
"""Events in a row that came later and are passed over: an order with more between is not shown."""
_MAX_INTEGER: Final = 2**63 - 1


def until_parameter(position: Position) -> list[int]:
    """A position as `$until`: the database holds integers of 63 bits, which no event is behind."""
    return [min(part, _MAX_INTEGER) for part in position]


def known(variable: str) -> str:
    """Cypher that is true of an event that is not behind the position `$until`."""
    position = f"split({variable}.global_position, '-')"
    return f"[toInteger({position}[0]), toInteger({position}[1])] <= $until"


_LATER = f"(x:{EVENT.label} WHERE x.tenant = $tenant AND NOT {known('x')})"
FOLLOWED: Final = f"""
UNWIND $event_ids AS id
MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})
MATCH (a)((:{EVENT.label})-[:{FOLLOWS.type}]->{_LATER}){{1,{MAX_LATER}}}
      (:{EVENT.label})-[:{FOLLOWS.type}]->(b:{EVENT.label})
WHERE b.tenant = $tenant AND $among[b.event_id]
RETURN a.event_id AS source, b.event_id AS target, a.session_id AS session_id,
       b.occurred_at.epochMillis - a.occurred_at.epochMillis AS delta_ms
ORDER BY source, target
"""
CANDIDATES: Final = candidates_text(f"AND {known('e')}")


def passed_over(row: EdgeRow, forward: bool) -> str:
    """Cypher of the step to the next event; of the order of sessions, to the next known one."""
    left, right = ("-", "->") if forward else ("<-", "-")
    step = f"{left}[:{row.type}]{right}"
    if row is not FOLLOWS:
        return step
    return f"((:{EVENT.label}){step}{_LATER}){{0,{MAX_LATER}}}(:{EVENT.label}){step}"


def _neighbours(row: EdgeRow, forward: bool) -> str:
    return f"""
UNWIND $ids AS id
MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})
MATCH (a){passed_over(row, forward)}(e:{EVENT.label})
WHERE e.tenant = $tenant AND {IS_EVENT} AND {known("e")} AND NOT e.event_id IN $seen
WITH DISTINCT e ORDER BY e.occurred_at DESC, e.event_id LIMIT $limit
RETURN {EVENT_COLUMNS} AS node
"""


NEIGHBOURS: Final = {
    (row.type, forward): _neighbours(row, forward)
    for row in (CAUSED_BY, FOLLOWS)
    for forward in (True, False)
}


def followed_then(
    graph: GraphRead, tenant: str, event_ids: Iterable[str], until: Position
) -> list[GraphEdge]:
    """Edges of the order of sessions, between the events, that later ones have been put into."""
    ids = list(event_ids)
    rows = graph.rows(
        FOLLOWED,
        tenant=tenant,
        event_ids=ids,
        among=dict.fromkeys(ids, True),
        until=until_parameter(until),
    )
    return [
        GraphEdge(
            FOLLOWS.type,
            row["source"],
            row["target"],
            {"session_id": row["session_id"], "delta_ms": row["delta_ms"]},
        )
        for row in rows
    ]


class KnownThen:
    """Questions as `GraphRead` answers them, about what was known at a position.

    Args:
        graph: the transaction.
        until: events behind this position are not seen.
    """

    def __init__(self, graph: GraphRead, until: Position) -> None:
        self._graph = graph
        self._until = until

    def events(self, tenant: str, event_ids: Sequence[str]) -> dict[str, GraphNode]:
        """Those of the events that were known, by id."""
        nodes = self._graph.events(tenant, event_ids)
        return {
            own_id: node
            for own_id, node in nodes.items()
            if Position.parse(node.properties["global_position"]) <= self._until
        }

    def session_candidates(
        self, tenant: str, session_id: str, limit: int
    ) -> tuple[list[SessionCandidate], int]:
        """As of `GraphRead`."""
        rows = self._graph.rows(
            CANDIDATES,
            tenant=tenant,
            session_id=session_id,
            limit=limit,
            default_importance=DEFAULT_IMPORTANCE,
            until=until_parameter(self._until),
        )
        return candidates_of(rows)

    def neighbours(
        self,
        tenant: str,
        event_ids: Sequence[str],
        row: EdgeRow,
        *,
        forward: bool,
        seen: Iterable[str],
        limit: int,
    ) -> list[GraphNode]:
        """As of `GraphRead`; the next event of a session is the next one that was known."""
        rows = self._graph.rows(
            NEIGHBOURS[row.type, forward],
            tenant=tenant,
            ids=list(event_ids),
            seen=list(seen),
            limit=limit,
            until=until_parameter(self._until),
        )
        return [event_node(item) for item in rows]

    def edges_between(
        self, tenant: str, event_ids: Sequence[str], rows: Sequence[EdgeRow] | None = None
    ) -> list[GraphEdge]:
        """As of `GraphRead`, between events all of which were known."""
        edges = self._graph.edges_between(tenant, event_ids, rows)
        if rows is None or FOLLOWS in rows:
            edges += followed_then(self._graph, tenant, event_ids, self._until)
        return sorted(edges, key=lambda edge: (edge.type, edge.source, edge.target))


EventReads = GraphRead | KnownThen


def reads_until(graph: GraphRead, position: str | None) -> EventReads:
    """What is known, or what was known at a position."""
    return graph if position is None else KnownThen(graph, Position.parse(position))
