"""Reading a graph as it is, streamed, to compare it with the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import neo4j

from pipelines.graph import cypher
from pipelines.graph.client import GraphClient
from projections.schema import EVENT
from projections.structural import SessionGraph, SessionKey

_EDGE_TYPES = tuple(row.type for row in cypher.event_edges())
_KEY = len(EVENT.key)


class FoundEvent(NamedTuple):
    """An Event node as it is, with the edges that start at it.

    Attributes:
        values: in the order of the schema's row.
        edges: for each edge type of the events a list of [target tenant, target id, value…].
    """

    key: tuple[str, str]
    values: tuple[Any, ...]
    edges: tuple[list[list[Any]], ...]


class OddEvent(NamedTuple):
    """An Event node outside every chain.

    Attributes:
        bare: it is a placeholder and holds its key alone.
        outgoing, incoming: how many edges.
    """

    tenant: Any
    event_id: Any
    bare: bool
    outgoing: int
    incoming: int
    element_id: str


class GraphAudit(GraphClient):
    """The reading side of verify, on one target."""

    def stream_events(self) -> Iterator[FoundEvent]:
        """Every event, session by session in the chain's order, with bounded memory."""
        for record in self._stream(cypher.STREAM_EVENTS):
            yield _found(record)

    def stream_odd_events(self) -> Iterator[OddEvent]:
        """Placeholders, and nodes in which a property of the chain is missing."""
        for record in self._stream(cypher.STREAM_ODD_EVENTS):
            yield OddEvent(*record)

    def sessions(self) -> Iterator[SessionKey]:
        """Every (tenant, session) that has an event."""
        for record in self._stream(cypher.STREAM_SESSIONS):
            yield (_frozen(record[0]), _frozen(record[1]))

    def positions(self) -> Iterator[tuple[SessionKey, str, str]]:
        """Of every visible event its session, event id and position, in no order."""
        for tenant, session_id, event_id, position in self._stream(cypher.STREAM_POSITIONS):
            yield (tenant, session_id), event_id, position

    def tombstones(self) -> set[tuple[str, str]]:
        """Keys of all forgotten events."""
        return {(record[0], record[1]) for record in self._stream(cypher.STREAM_TOMBSTONES)}

    def hidden_events(self, keys: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of the events that no read sees, though they are more than placeholders."""
        rows = self._stream(cypher.READ_HIDDEN_EVENTS, keys=[list(key) for key in keys])
        return [(record[0], record[1]) for record in rows]

    def show_events(self, keys: Sequence[tuple[str, str]]) -> None:
        """Let reads see events that were hidden."""
        self.write(cypher.SHOW_EVENTS, keys=[list(key) for key in keys])

    def remove_odd_event(self, element_id: str) -> None:
        """Delete a node that nothing supports."""
        self.write(cypher.REMOVE_ODD_EVENT, id=element_id)

    def find_events(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], FoundEvent]:
        """Visible events by key."""
        return {
            found.key: found
            for record in self._stream(cypher.READ_EVENTS, keys=[list(key) for key in keys])
            if not record[1 + len(_EDGE_TYPES)]  # a record knows no index from the end
            for found in [_found(record)]
        }

    def _stream(self, text: str, **parameters: Any) -> Iterator[neo4j.Record]:
        return self.stream(text, **parameters)


def found_sessions(
    records: Iterable[neo4j.Record | Sequence[Any]],
) -> dict[SessionKey, SessionGraph]:
    """What the graph holds of sessions, from the rows of `cypher.READ_SESSIONS`."""
    place = [p.name for p in EVENT.owned("projection")].index("session_id")
    sessions: dict[SessionKey, SessionGraph] = {}
    for record in records:
        event = _found(record)
        session = (event.key[0], event.values[place])
        graph = sessions.setdefault(session, SessionGraph({}, {}))
        graph.nodes[event.key] = event.values
        for type_, edges in zip(_EDGE_TYPES, event.edges, strict=True):
            for edge in edges:
                target = tuple(map(_frozen, edge[:_KEY]))
                graph.edges.setdefault((type_, event.key, target), []).append(tuple(edge[_KEY:]))
    return sessions


def _found(record: neo4j.Record | Sequence[Any]) -> FoundEvent:
    values, *edges = record  # a slice of a record is another record, at five times the price
    if list in map(type, values):  # never a value of ours; keys and values are hashed
        values = _frozen(values)
    return FoundEvent(
        (values[0], values[1]), tuple(values[_KEY:]), tuple(edges[: len(_EDGE_TYPES)])
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
