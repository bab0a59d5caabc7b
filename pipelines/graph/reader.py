"""The read side of the graph: what the API and commands ask, and how Neo4j is asked.

Every question about memory takes the tenant first and has it in the key of each pattern, so a
reader cannot leave its tenant by accident. Placeholders (causes that have not come yet) are
invisible to all of them. Texts are made from `projections.schema` once; values are parameters.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import neo4j
from neo4j.time import DateTime

from pipelines.graph.client import GraphClient, limited_rows
from pipelines.graph.questions import COUNTS, counts_of
from pipelines.graph.rows import Counts
from projections.errors import QueryTimeout
from projections.identity import Position
from projections.operations import Checkpoint
from projections.schema import (
    CHECKPOINT,
    DEAD_LETTER,
    DROPPED,
    EVENT,
    Kind,
    NodeRow,
    Property,
)

T = TypeVar("T")


STATUS_TIMEOUT_MS = 30_000
"""Limit of the questions that ask for bookkeeping, which are small; but a Neo4j that has just
started on a busy machine takes many seconds to plan the first of them."""

# Vectors and the text that full-text search reads stay in the graph.
HIDDEN = frozenset({"text"})


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
        prop for prop in row.properties if prop.kind is not Kind.VECTOR and prop.name not in HIDDEN
    )


def _value(variable: str, prop: Property) -> str:
    """Cypher for one property; times come as milliseconds."""
    if prop.kind is Kind.TIME:
        return f"{variable}.{prop.name}.epochMillis"
    if prop.kind is Kind.TIMES:
        return f"[at IN {variable}.{prop.name} | at.epochMillis]"
    return f"{variable}.{prop.name}"


def node_columns(variable: str, row: NodeRow, **instead: str) -> str:
    """Cypher of a map with what a reader may see of a node; `instead` of some values, others."""
    columns = {name: f"{variable}.{name}" for name in row.key if name != "tenant"}
    columns |= {prop.name: _value(variable, prop) for prop in _shown(row)}
    return "{" + ", ".join(f"{name}: {text}" for name, text in (columns | instead).items()) + "}"


EVENT_COLUMNS = node_columns("e", EVENT)


_CHECKPOINTS = f"""
MATCH (c:{CHECKPOINT.label}) WHERE $stage IS NULL OR c.stage = $stage
RETURN {node_columns("c", CHECKPOINT)} AS node ORDER BY c.stage, c.partition
"""
_DEAD_LETTERS = f"""
MATCH (d:{DEAD_LETTER.label})
WHERE ($stage IS NULL OR d.stage = $stage) AND ($tenant IS NULL OR d.tenant = $tenant)
  AND ($partition IS NULL OR d.partition = $partition) AND ($seq IS NULL OR d.seq = $seq)
RETURN {node_columns("d", DEAD_LETTER)} AS node
ORDER BY d.stage, d.partition, d.seq SKIP $skip LIMIT $limit
"""
_DEAD_LETTER_COUNTS = f"""
MATCH (d:{DEAD_LETTER.label}) WHERE d.kind <> '{DROPPED}'
RETURN d.stage AS stage, count(d) AS number
"""


class GraphRead(ABC):
    """Questions of one read; made by `GraphReader.read`."""

    @abstractmethod
    def rows(self, text: str, **parameters: Any) -> list[Any]:
        """The rows of one question, by name; for adapters that ask their own.

        Raises:
            QueryTimeout: the time was over before it could be asked.
        """

    @abstractmethod
    def counts(self) -> Counts:
        """How much there is of each kind; the store keeps these numbers."""

    @abstractmethod
    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """Checkpoints of one stage or of all, sorted by stage and partition."""

    @abstractmethod
    def dead_letters(
        self,
        stage: str | None = None,
        *,
        partition: int | None = None,
        seq: int | None = None,
        skip: int = 0,
        limit: int = 100,
        tenant: str | None = None,
    ) -> list[DeadLetter]:
        """Dead letters sorted by stage, partition and number; `tenant`: of that one alone."""

    @abstractmethod
    def dead_letter_counts(self) -> dict[str, int]:
        """How many dead letters each stage has that nobody dropped; without any it is missing."""


class Deadline:
    """The time limit of one read."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.until_s = time.monotonic() + timeout_ms / 1000

    def remaining_s(self) -> float:
        """What is left.

        Raises:
            QueryTimeout: nothing is.
        """
        remaining_s = self.until_s - time.monotonic()
        if remaining_s <= 0:
            raise QueryTimeout(timeout_ms=self.timeout_ms, reason="no time left")
        return remaining_s


class Neo4jRead(GraphRead):
    """Questions that Neo4j answers.

    Each is a transaction of its own: Neo4j reads what is committed when it looks, so that one
    around several would see no more of a whole, and would cost two round trips more.
    """

    def __init__(self, session: neo4j.Session, deadline: Deadline) -> None:
        self._session = session
        self._deadline = deadline

    def rows(self, text: str, **parameters: Any) -> list[neo4j.Record]:
        """See `GraphRead`."""
        # The server ends a query at its limit, but looks only now and then: no new one is begun.
        return limited_rows(self._session, text, parameters, self._deadline.remaining_s())

    def counts(self) -> Counts:
        """See `GraphRead`."""
        return counts_of(row["counted"] for row in self.rows(COUNTS))

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """See `GraphRead`."""
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
        self,
        stage: str | None = None,
        *,
        partition: int | None = None,
        seq: int | None = None,
        skip: int = 0,
        limit: int = 100,
        tenant: str | None = None,
    ) -> list[DeadLetter]:
        """See `GraphRead`."""
        place = {"stage": stage, "partition": partition, "seq": seq}
        rows = self.rows(_DEAD_LETTERS, **place, tenant=tenant, skip=skip, limit=limit)
        return [DeadLetter(*(row["node"][name] for name in DeadLetter._fields)) for row in rows]

    def dead_letter_counts(self) -> dict[str, int]:
        """See `GraphRead`."""
        return {row["stage"]: row["number"] for row in self.rows(_DEAD_LETTER_COUNTS)}


class GraphReader(ABC):
    """Reads one graph; safe to share between threads."""

    @abstractmethod
    def read(self, work: Callable[[GraphRead], T], *, timeout_ms: int) -> T:
        """Run `work`, whose questions end after `timeout_ms` in all.

        `work` may run a second time when a connection was stale.

        Raises:
            QueryTimeout: the time was over.
            GraphUnavailable: the graph is away, or asks to try again.
            GraphRejected: it refused a question.
        """

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """Checkpoints of one stage or of all, sorted by stage and partition."""
        return self.read(lambda graph: graph.checkpoints(stage), timeout_ms=STATUS_TIMEOUT_MS)

    def counts(self) -> Counts:
        """How much there is of each kind; the store keeps these numbers."""
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


class Neo4jReader(GraphClient, GraphReader):
    """Reads one database of one Neo4j, which ends what takes longer than its limit."""

    def read(self, work: Callable[[GraphRead], T], *, timeout_ms: int) -> T:
        """See `GraphReader`."""
        deadline = Deadline(timeout_ms)
        return self.attempt(
            lambda session, _: work(Neo4jRead(session, deadline)),
            deadline.until_s,
            timeout_ms=timeout_ms,
        )


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
