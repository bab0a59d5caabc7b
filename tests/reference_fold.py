"""The fold of Stage 1 said in one step, from all events, to compare the real one with."""

from __future__ import annotations

from collections.abc import Iterable, Set
from itertools import pairwise
from typing import Any, NamedTuple

from pipelines.proof.sums import MODULUS, POSITION, edge_number, element_digest
from projections.events import Event
from projections.identity import Link, Position, SessionKey
from projections.operations import MergeEdge
from projections.schema import EVENT
from projections.structural import (
    direct_cause,
    event_node,
    follows_edge,
    retained,
    stage_values,
)


class SessionGraph(NamedTuple):
    """What the fold makes of one session, or what a graph holds of it.

    Values stand in the order of the schema's rows. `edges` starts at the session's events: each
    edge by (type, source key, target key) with the values of every parallel edge found; a fold
    has exactly one.
    """

    nodes: dict[tuple[str, str], tuple[Any, ...]]
    edges: dict[tuple[str, tuple[Any, ...], tuple[Any, ...]], list[tuple[Any, ...]]]


def follows_chain(session: SessionKey, links: Iterable[Link]) -> list[MergeEdge]:
    """All edges of a session, from all its retained events in any order."""
    return [follows_edge(session, a, b) for a, b in pairwise(sorted(set(links)))]


def session_graph(
    events: Iterable[tuple[Position, Event]], tombstones: Set[tuple[str, str]] = frozenset()
) -> SessionGraph:
    """The fold of whole sessions from scratch, all their events given, in any order.

    The reference that `project` must agree with however the events were cut and shuffled.
    """
    graph = SessionGraph({}, {})
    sessions: dict[SessionKey, list[Link]] = {}
    placed = {event.key: (position, event) for position, event in events}
    for event in retained((event for _, event in placed.values()), tombstones):
        graph.nodes[event.key] = stage_values(event_node(event, placed[event.key][0]))
        cause = direct_cause(event)
        if cause is not None:
            graph.edges[cause.type, cause.source, cause.target] = [stage_values(cause)]
        sessions.setdefault((event.tenant, event.session_id), []).append(
            Link(event.occurred_at_ms, event.event_id)
        )
    for session, links in sessions.items():
        for edge in follows_chain(session, links):
            graph.edges[edge.type, edge.source, edge.target] = [stage_values(edge)]
    return graph


def graph_number(graph: SessionGraph) -> int:
    """Digest of a session's nodes and edges."""
    number = sum(
        element_digest(EVENT.label, *key, *values[:POSITION]) for key, values in graph.nodes.items()
    )
    for (type_, source, target), copies in graph.edges.items():
        number += sum(edge_number(type_, source, target, values) for values in copies)
    return number % MODULUS
