"""The read side of the graph: what the API and commands ask.

Every question about memory takes the tenant first and has it in the key of each pattern, so a
reader cannot leave its tenant by accident. Placeholders (causes that have not come yet) are
invisible to all of them. Texts are made from `projections.schema` once; values are parameters.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from neo4j.time import DateTime

from pipelines.graph.rows import Counts
from projections.errors import QueryTimeout
from projections.operations import Checkpoint
from projections.schema import (
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


class LettersAsked(NamedTuple):
    """Which dead letters are asked for; None: whichever it is. `limit` of them, behind `skip`."""

    stage: str | None = None
    partition: int | None = None
    seq: int | None = None
    tenant: str | None = None
    skip: int = 0
    limit: int = 100


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


def _columns(variable: str, row: NodeRow) -> dict[str, str]:
    columns = {name: f"{variable}.{name}" for name in row.key if name != "tenant"}
    return columns | {prop.name: _value(variable, prop) for prop in _shown(row)}


def node_columns(variable: str, row: NodeRow, **instead: str) -> str:
    """Cypher of a map with what a reader may see of a node; `instead` of some values, others."""
    columns = _columns(variable, row) | instead
    return "{" + ", ".join(f"{name}: {text}" for name, text in columns.items()) + "}"


def node_values(variable: str, row: NodeRow) -> str:
    """The same as a list, in the order of `column_names`: of many nodes names take longest."""
    return f"[{', '.join(_columns(variable, row).values())}]"


def column_names(row: NodeRow) -> tuple[str, ...]:
    """Of what a reader may see of a node."""
    return tuple(_columns("", row))


EVENT_COLUMNS = node_columns("e", EVENT)


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
    def dead_letters(self, wanted: LettersAsked) -> list[DeadLetter]:
        """Dead letters sorted by stage, partition and number."""

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

    @abstractmethod
    def settle(
        self, stage: str, partitions: Iterable[int], *, timeout_ms: int | None = None
    ) -> None:
        """Return once all can be read that `checkpoints` has told; see `Graph.settle`.

        Raises:
            QueryTimeout: the time was over.
            GraphUnavailable: the graph is away, or asks to try again.
        """

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """Checkpoints of one stage or of all, sorted by stage and partition."""
        return self.read(lambda graph: graph.checkpoints(stage), timeout_ms=STATUS_TIMEOUT_MS)

    def counts(self) -> Counts:
        """How much there is of each kind; the store keeps these numbers."""
        return self.read(lambda graph: graph.counts(), timeout_ms=STATUS_TIMEOUT_MS)

    def dead_letter_counts(self) -> dict[str, int]:
        """How many dead letters each stage has; a stage without any is missing."""
        return self.read(lambda graph: graph.dead_letter_counts(), timeout_ms=STATUS_TIMEOUT_MS)


def event_node(row: Mapping[str, Any]) -> GraphNode:
    """The event of a row with EVENT_COLUMNS as `node`."""
    properties = {name: value for name, value in row["node"].items() if value is not None}
    return GraphNode(EVENT.label, properties.pop("event_id"), properties)


def plain_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties with the driver's times as milliseconds."""
    return {
        name: round(value.to_native().timestamp() * 1000) if isinstance(value, DateTime) else value
        for name, value in properties.items()
    }
