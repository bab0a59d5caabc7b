"""The read side of the graph: what the API and `recollect status` ask Neo4j.

Every question about memory takes the tenant first and has it in the key of each pattern, so a
reader cannot leave its tenant by accident. Placeholders (causes that have not come yet) are
invisible to all of them. Texts are made from `projections.schema` once; values are parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import neo4j
from neo4j.time import DateTime

from pipelines.graph.client import GraphClient, limited_rows
from pipelines.graph.questions import COUNTS, counts_of
from pipelines.graph.rows import DEFAULT_IMPORTANCE, Counts
from projections.errors import QueryTimeout
from projections.identity import Position
from projections.operations import Checkpoint
from projections.schema import (
    CHECKPOINT,
    DEAD_LETTER,
    DROPPED,
    EDGES,
    EVENT,
    PLACEHOLDER,
    EdgeRow,
    Kind,
    NodeRow,
    Property,
)

T = TypeVar("T")


STATUS_TIMEOUT_MS = 30_000
"""Limit of the questions that ask for bookkeeping, which are small; but a Neo4j that has just
started on a busy machine takes many seconds to plan the first of them."""

# Vectors and the text that full-text search reads stay in the graph.
_HIDDEN = frozenset({"text"})


class GraphNode(NamedTuple):
    """A node: `properties` by name, absent ones left out, times in milliseconds since the epoch."""

    label: str
    node_id: str
    properties: Mapping[str, Any]


class GraphEdge(NamedTuple):
    """An edge between two nodes, by their ids; times in milliseconds since the epoch."""

    type: str
    source: str
    target: str
    properties: Mapping[str, Any]


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


class DeadLetter(NamedTuple):
    """An entry that a stage could not fold and has passed."""

    stage: str
    partition: int
    seq: int
    position: str
    tenant: str | None
    event_id: str | None
    kind: str | None
    reason: str | None
    attempts: int | None


def _shown(row: NodeRow) -> tuple[Property, ...]:
    return tuple(
        prop for prop in row.properties if prop.kind is not Kind.VECTOR and prop.name not in _HIDDEN
    )


def _value(variable: str, prop: Property) -> str:
    """Cypher for one property; times come as milliseconds."""
    if prop.kind is Kind.TIME:
        return f"{variable}.{prop.name}.epochMillis"
    if prop.kind is Kind.TIMES:
        return f"[at IN {variable}.{prop.name} | at.epochMillis]"
    return f"{variable}.{prop.name}"


def node_columns(variable: str, row: NodeRow) -> str:
    """Cypher of a map with everything of a node that a reader may see."""
    columns = [f"{name}: {variable}.{name}" for name in row.key if name != "tenant"]
    columns += [f"{prop.name}: {_value(variable, prop)}" for prop in _shown(row)]
    return "{" + ", ".join(columns) + "}"


def _coalesce(variable: str, names: Iterable[str], default: str) -> str:
    """The first of the properties that is set; asks only for those that the schema has."""
    properties = {prop.name: prop for prop in EVENT.properties}
    values = [_value(variable, properties[name]) for name in names if name in properties]
    return f"coalesce({', '.join([*values, default])})"


EVENT_COLUMNS = node_columns("e", EVENT)
_IMPORTANCE = _coalesce("e", ("importance_score", "importance_hint"), "$default_importance")
_ACCESS_COUNT = _coalesce("e", ("access_count",), "0")
_LAST_ACCESS = _coalesce("e", ("last_accessed_at",), "0")
IS_EVENT = f"NOT e:{PLACEHOLDER}"

_EVENTS = f"""
UNWIND $ids AS id
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
WHERE {IS_EVENT}
RETURN {EVENT_COLUMNS} AS node
"""

# Named, for a plan made while the graph was empty scans all labels; the index answers only when
# each of its columns is asked for, if only to exist.
_SESSION_INDEX = EVENT.indexes[0]


# The decay score falls with age alone once importance and access count are given, so the best k
# of each such group contain the best k of the session: the formula stays in one place, in Python,
# and a session of 100,000 events sends a few hundred rows.
def candidates_text(test: str = "") -> str:
    """The question for the events of a session that may be its best; `test` narrows it further."""
    return f"""
MATCH (e:{EVENT.label} {{tenant: $tenant, session_id: $session_id}})
USING INDEX e:{EVENT.label}({", ".join(_SESSION_INDEX)})
WHERE {IS_EVENT} AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL {test}
WITH e, {_IMPORTANCE} AS importance, {_ACCESS_COUNT} AS access_count,
     e.occurred_at.epochMillis AS occurred_at, {_LAST_ACCESS} AS accessed_at
WITH e, importance, access_count, occurred_at,
     CASE WHEN accessed_at > occurred_at THEN accessed_at ELSE occurred_at END AS used_at
ORDER BY used_at DESC, occurred_at DESC, e.event_id
WITH importance, access_count, count(e) AS total,
     collect([e.event_id, occurred_at, used_at])[..$limit] AS best
UNWIND best AS row
RETURN row[0] AS event_id, row[1] AS occurred_at, row[2] AS used_at, importance, access_count, total
"""


_CANDIDATES = candidates_text()


def _edges_between(rows: Sequence[EdgeRow]) -> str:
    types = "|".join(row.type for row in rows)
    return f"""
UNWIND $ids AS id
MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})-[r:{types}]->
      (e:{EVENT.label} {{tenant: $tenant}})
WHERE {IS_EVENT} AND e.event_id IN $ids
RETURN type(r) AS type, a.event_id AS source, e.event_id AS target, properties(r) AS properties
ORDER BY type, source, target
"""


def _neighbours(row: EdgeRow, forward: bool) -> str:
    left, right = ("-", "->") if forward else ("<-", "-")
    return f"""
UNWIND $ids AS id
MATCH (:{EVENT.label} {{tenant: $tenant, event_id: id}}){left}[:{row.type}]{right}
      (e:{EVENT.label} {{tenant: $tenant}})
WHERE {IS_EVENT} AND NOT e.event_id IN $seen
WITH DISTINCT e ORDER BY e.occurred_at DESC, e.event_id LIMIT $limit
RETURN {EVENT_COLUMNS} AS node
"""


_CHECKPOINTS = f"""
MATCH (c:{CHECKPOINT.label}) WHERE $stage IS NULL OR c.stage = $stage
RETURN {node_columns("c", CHECKPOINT)} AS node ORDER BY c.stage, c.partition
"""
_DEAD_LETTERS = f"""
MATCH (d:{DEAD_LETTER.label}) WHERE $stage IS NULL OR d.stage = $stage
RETURN {node_columns("d", DEAD_LETTER)} AS node
ORDER BY d.stage, d.partition, d.seq SKIP $skip LIMIT $limit
"""
_DEAD_LETTER_COUNTS = f"""
MATCH (d:{DEAD_LETTER.label}) WHERE d.kind <> '{DROPPED}'
RETURN d.stage AS stage, count(d) AS number
"""


class GraphRead:
    """Questions of one read; made by `GraphReader.read`.

    Each is a transaction of its own: Neo4j reads what is committed when it looks, so that one
    around several would see no more of a whole, and would cost two round trips more.
    """

    def __init__(self, session: neo4j.Session, deadline_s: float, timeout_ms: int) -> None:
        self._session = session
        self._deadline_s = deadline_s
        self._timeout_ms = timeout_ms

    def rows(self, text: str, **parameters: Any) -> list[neo4j.Record]:
        """The rows of one question; for adapters that ask their own.

        Raises:
            QueryTimeout: the time was over before it could be asked.
        """
        # The server ends a query at its limit, but looks only now and then: no new one is begun.
        remaining_s = self._deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise QueryTimeout(timeout_ms=self._timeout_ms, reason="no time left")
        return limited_rows(self._session, text, parameters, remaining_s)

    def events(self, tenant: str, event_ids: Sequence[str]) -> dict[str, GraphNode]:
        """The events that are in the graph, by id."""
        rows = self.rows(_EVENTS, tenant=tenant, ids=list(event_ids))
        return {node.node_id: node for node in map(event_node, rows)}

    def session_candidates(
        self, tenant: str, session_id: str, limit: int
    ) -> tuple[list[SessionCandidate], int]:
        """Events among which the session's `limit` best by decay score are, and its total."""
        rows = self.rows(
            _CANDIDATES,
            tenant=tenant,
            session_id=session_id,
            limit=limit,
            default_importance=DEFAULT_IMPORTANCE,
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
        """Events one edge away and not yet seen, the newest first.

        Args:
            tenant: whose graph.
            event_ids: where the edges start (`forward`) or end.
            row: the type of the edges.
            forward: along the direction of the edge.
            seen: ids that are not wanted again.
            limit: how many at most.
        """
        rows = self.rows(
            _NEIGHBOURS[row.type, forward],
            tenant=tenant,
            ids=list(event_ids),
            seen=list(seen),
            limit=limit,
        )
        return [event_node(item) for item in rows]

    def edges_between(
        self, tenant: str, event_ids: Sequence[str], rows: Sequence[EdgeRow] | None = None
    ) -> list[GraphEdge]:
        """Edges both of whose ends are among the events, of the given types or of all."""
        wanted = _EVENT_EDGES if rows is None else tuple(rows)
        edges = self.rows(_edges_between(wanted), tenant=tenant, ids=list(event_ids))
        return [
            GraphEdge(
                item["type"],
                item["source"],
                item["target"],
                plain_properties(item["properties"]),
            )
            for item in edges
        ]

    def counts(self) -> Counts:
        """How much there is of each kind, from the count store."""
        return counts_of(row["counted"] for row in self.rows(COUNTS))

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """Checkpoints of one stage or of all, sorted by stage and partition."""
        return [
            Checkpoint(
                **{
                    **row["node"],
                    "position": Position.parse(row["node"]["position"]),
                    "models": row["node"]["models"] or "",
                }
            )
            for row in self.rows(_CHECKPOINTS, stage=stage)
        ]

    def dead_letters(
        self, stage: str | None = None, *, skip: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        """Dead letters sorted by stage, partition and number."""
        return [
            DeadLetter(*(row["node"][name] for name in DeadLetter._fields))
            for row in self.rows(_DEAD_LETTERS, stage=stage, skip=skip, limit=limit)
        ]

    def dead_letter_counts(self) -> dict[str, int]:
        """How many dead letters each stage has that nobody dropped; without any it is missing."""
        return {row["stage"]: row["number"] for row in self.rows(_DEAD_LETTER_COUNTS)}


class GraphReader(GraphClient):
    """Reads one database of one Neo4j; safe to share between threads."""

    def read(self, work: Callable[[GraphRead], T], *, timeout_ms: int) -> T:
        """Run `work`, whose questions the database ends after `timeout_ms` in all.

        `work` may run a second time when the connection was stale.

        Raises:
            QueryTimeout: the time was over.
            GraphUnavailable: Neo4j is away or asks to try again.
            GraphRejected: Neo4j refused a query.
        """
        deadline_s = time.monotonic() + timeout_ms / 1000
        return self.attempt(
            lambda session, _: work(GraphRead(session, deadline_s, timeout_ms)),
            deadline_s,
            timeout_ms=timeout_ms,
        )

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """Checkpoints of one stage or of all, sorted by stage and partition."""
        return self.read(lambda graph: graph.checkpoints(stage), timeout_ms=STATUS_TIMEOUT_MS)

    def counts(self) -> Counts:
        """How much there is of each kind, from the count store."""
        return self.read(lambda graph: graph.counts(), timeout_ms=STATUS_TIMEOUT_MS)

    def dead_letters(
        self, stage: str | None = None, *, skip: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        """Dead letters sorted by stage, partition and number."""
        return self.read(
            lambda graph: graph.dead_letters(stage, skip=skip, limit=limit),
            timeout_ms=STATUS_TIMEOUT_MS,
        )

    def dead_letter_counts(self) -> dict[str, int]:
        """How many dead letters each stage has; a stage without any is missing."""
        return self.read(lambda graph: graph.dead_letter_counts(), timeout_ms=STATUS_TIMEOUT_MS)


def candidates_of(rows: Sequence[neo4j.Record]) -> tuple[list[SessionCandidate], int]:
    """The candidates of an answer to `candidates_text`, and how many events there are in all."""
    totals = {(row["importance"], row["access_count"]): row["total"] for row in rows}
    candidates = [
        SessionCandidate(
            event_id=row["event_id"],
            occurred_at_ms=row["occurred_at"],
            used_at_ms=row["used_at"],
            importance=row["importance"],
            access_count=row["access_count"],
        )
        for row in rows
    ]
    return candidates, sum(totals.values())


def event_node(row: neo4j.Record) -> GraphNode:
    """The event of a row with EVENT_COLUMNS as `node`."""
    properties = {name: value for name, value in row["node"].items() if value is not None}
    return GraphNode(EVENT.label, properties.pop("event_id"), properties)


def plain_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties with the driver's times as milliseconds."""
    return {
        name: round(value.to_native().timestamp() * 1000) if isinstance(value, DateTime) else value
        for name, value in properties.items()
    }


_EVENT_EDGES = tuple(
    row for row in EDGES.values() if row.source == EVENT.label and row.target == EVENT.label
)
_NEIGHBOURS = {
    (row.type, forward): _neighbours(row, forward)
    for row in _EVENT_EDGES
    for forward in (True, False)
}
