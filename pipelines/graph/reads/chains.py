"""Every event as it stands in the chain of its session, for the fast look of verify."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pipelines.graph.client import GraphClient
from pipelines.graph.cypher import own_edges
from pipelines.graph.patterns import index_seek
from pipelines.graph.questions import comparable
from projections.identity import SessionKey
from projections.schema import EDGES, EVENT, FORGOTTEN, EdgeRow

_KEY = len(EVENT.key)


def event_edges() -> tuple[EdgeRow, ...]:
    """Edge types that start at an Event and belong to Stage 1, in the order of the columns."""
    return tuple(
        row for row in EDGES.values() if row.source == EVENT.label and row.stage == EVENT.stage
    )


def _event_columns() -> str:
    """[key and values], then a list of [target key…, value…] for each edge type of the events."""
    values = ", ".join(
        [*(f"e.{name}" for name in EVENT.key)]
        + [comparable(p, f"e.{p.name}") for p in EVENT.owned("projection")]
    )
    edges = ", ".join(
        f"[(e)-[r:{row.type}]->(n){_own(row)} "
        "| [n.tenant, n.event_id"
        + "".join(f", r.{p.name}" for p in row.carried("projection"))
        + "]]"
        for row in event_edges()
    )
    return f"[{values}], {edges}"


def _own(row: EdgeRow) -> str:
    test = own_edges(row, EVENT.stage, "r")
    return f" WHERE {test}" if test else ""


_CHAIN = ", ".join(EVENT.indexes[0])
_CHAIN_ORDER = ", ".join(f"e.{name}" for name in EVENT.indexes[0])
STREAM_EVENTS = (
    f"MATCH (e:{EVENT.label}) USING INDEX e:{EVENT.label}({_CHAIN}) "
    "WHERE e.tenant IS NOT NULL AND e.session_id IS NOT NULL "
    "AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL "
    f"RETURN {_event_columns()} ORDER BY {_CHAIN_ORDER}"
)
"""Session by session in the order of the chain; the index delivers that order."""
EVENTS_OF = (
    "UNWIND $sessions AS session CALL (session) { "
    f"MATCH (e:{EVENT.label}) {index_seek('e', EVENT, EVENT.indexes[0])} "
    "WHERE e.tenant = session[0] AND e.session_id = session[1] "
    "AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL "
    f"RETURN e ORDER BY {_CHAIN_ORDER} }} RETURN {_event_columns()}"
)
_CHAINS_AT_ONCE = 100
_STREAM_TOMBSTONES = (
    f"MATCH (f:{FORGOTTEN.label}) WHERE NOT coalesce(f.recalled, false) RETURN f.tenant, f.event_id"
)


class ChainEvent(NamedTuple):
    """An event with the edges of Stage 1 that start at it.

    Attributes:
        key: tenant, id.
        values: in the order of the schema's row.
        edges: for each of `event_edges` a list of [target tenant, target id, value…].
    """

    key: tuple[str, str]
    values: tuple[Any, ...]
    edges: tuple[list[list[Any]], ...]


class ChainReader(GraphClient):
    """Reads the chains of one target. All methods raise GraphUnavailable."""

    def events(self) -> Iterator[ChainEvent]:
        """Every event, session by session in the chain's order, with bounded memory."""
        return self._events(STREAM_EVENTS)

    def events_of(self, sessions: Sequence[SessionKey]) -> Iterator[ChainEvent]:
        """Likewise those of some sessions, in the order of these."""
        for first in range(0, len(sessions), _CHAINS_AT_ONCE):
            some = [list(session) for session in sessions[first : first + _CHAINS_AT_ONCE]]
            yield from self._events(EVENTS_OF, sessions=some)

    def _events(self, statement: str, **parameters: Any) -> Iterator[ChainEvent]:
        types = len(event_edges())
        for record in self.stream(statement, **parameters):
            values, *edges = (
                record  # a slice of a record is another record, at five times the price
            )
            if list in map(type, values):  # never a value of ours; keys and values are hashed
                values = _frozen(values)
            yield ChainEvent((values[0], values[1]), tuple(values[_KEY:]), tuple(edges[:types]))

    def tombstones(self) -> set[tuple[str, str]]:
        """Keys of all forgotten events."""
        return {(record[0], record[1]) for record in self.stream(_STREAM_TOMBSTONES)}


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
