"""Stage 1, projection: Event nodes, FOLLOWS and direct CAUSED_BY.

The graph after a batch depends on the set of events folded so far and on nothing else: not on
their order of arrival, not on how they were cut into batches, not on how often they came.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from projections.errors import UnknownSystemEvent
from projections.events import SYSTEM_EVENTS, Event, is_system_event
from projections.identity import Link, Position, SessionKey
from projections.operation_rules import edge_values, node_values
from projections.operations import (
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operation,
    Operations,
    RemoveEdge,
)
from projections.schema import CAUSED_BY, DIRECT, EVENT, FOLLOWS

FOLD_VERSION = 3
"""Rises when the rules below change what the graph holds."""


class Neighbours(NamedTuple):
    """Who stands directly before and after an event in the graph, itself left out."""

    before: Link | None
    after: Link | None
    present: bool
    """Whether the graph holds the event itself already."""


_ALONE = Neighbours(None, None, False)


def neighbours_in(chain: Sequence[Link], link: Link) -> Neighbours:
    """Who stands next to an event in a sorted stretch of its chain that reaches beyond it."""
    place = bisect_left(chain, link)
    present = place < len(chain) and chain[place] == link
    after = place + present
    return Neighbours(
        chain[place - 1] if place else None,
        chain[after] if after < len(chain) else None,
        present,
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What Stage 1 must know of the graph about a batch."""

    sessions: Mapping[SessionKey, Sequence[Link]]
    """The batch's events by session, sorted."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the graph says, read after the checkpoint's lock was taken."""

    neighbours: Mapping[tuple[SessionKey, Link], Neighbours] = field(default_factory=dict)
    tombstones: Set[tuple[str, str]] = frozenset()
    """Keys (tenant, event_id) that were forgotten and stay so."""


def retained(
    events: Iterable[Event], tombstones: Set[tuple[str, str]] = frozenset()
) -> list[Event]:
    """The events that become nodes: neither system events nor tombstoned.

    Raises:
        UnknownSystemEvent: for a `memory.` type that no stage owns.
    """
    retained_events = []
    for event in events:
        if is_system_event(event.event_type):
            if event.event_type not in SYSTEM_EVENTS:
                raise UnknownSystemEvent(event_type=event.event_type)
        elif not tombstones or event.key not in tombstones:
            retained_events.append(event)
    return retained_events


def wanted_facts(events: Sequence[Event]) -> Wanted:
    """Which neighbours the batch needs."""
    sessions: dict[SessionKey, list[Link]] = {}
    for event in retained(events):
        sessions.setdefault((event.tenant, event.session_id), []).append(
            Link(event.occurred_at_ms, event.event_id)
        )
    for links in sessions.values():
        links.sort()
    return Wanted(sessions)


def project(events: Sequence[tuple[Position, Event]], facts: Facts) -> Operations:
    """Operations that fold the events into a graph for which `facts` hold."""
    operations = Operations()
    keys = {e.key for e in retained((event for _, event in events), facts.tombstones)}
    sessions: dict[SessionKey, list[Link]] = {}
    for position, event in events:
        if event.key not in keys:
            continue
        operations.add(event_node(event, position))
        cause = direct_cause(event)
        if cause is not None:
            operations.add(cause)
            parent = (event.tenant, event.parent_event_id)
            if parent not in keys:
                operations.add(EnsureNode(EVENT.label, parent))
        sessions.setdefault((event.tenant, event.session_id), []).append(
            Link(event.occurred_at_ms, event.event_id)
        )
    for session, links in sessions.items():
        operations.extend(follows_splice(session, links, facts.neighbours))
    return operations


def event_node(event: Event, position: Position) -> MergeNode:
    """The Event node."""
    return MergeNode(
        label=EVENT.label,
        key=(event.tenant, event.event_id),
        values={
            "event_type": event.event_type,
            "occurred_at": event.occurred_at_ms,
            "session_id": event.session_id,
            "agent_id": event.agent_id,
            "trace_id": event.trace_id,
            "tool_name": event.tool,
            "status": event.status,
            "ended_at": event.ended_at_ms,
            "parent_event_id": event.parent_event_id,
            "user_id": event.user_id,
            "consent_ref": event.consent_ref,
            "schema_version": event.schema_version,
            "payload_ref": event.payload_ref,
            "importance_hint": event.importance_hint,
            "global_position": str(position),
        },
    )


def direct_cause(event: Event) -> MergeEdge | None:
    """The edge to the cause that the producer named, in the event's own tenant."""
    if event.parent_event_id is None:
        return None
    return MergeEdge(
        type=CAUSED_BY.type,
        source=(event.tenant, event.event_id),
        target=(event.tenant, event.parent_event_id),
        values={"mechanism": DIRECT},
    )


def follows_edge(session: SessionKey, earlier: Link, later: Link) -> MergeEdge:
    """The edge between two neighbours of a chain."""
    tenant, session_id = session
    return MergeEdge(
        type=FOLLOWS.type,
        source=(tenant, earlier.event_id),
        target=(tenant, later.event_id),
        values={
            "session_id": session_id,
            "delta_ms": later.occurred_at_ms - earlier.occurred_at_ms,
        },
    )


def follows_splice(
    session: SessionKey,
    links: Iterable[Link],
    neighbours: Mapping[tuple[SessionKey, Link], Neighbours],
) -> list[Operation]:
    """Operations that put events into the chain of their session.

    Of the chain in the graph only the neighbours of each new event are known. Sort them together
    with the new ones: two that stand side by side there, at least one of them new, are neighbours
    in the new chain, because everything that could stand between is known. What was adjacent
    before and is not now is removed.
    """
    new = set(links)
    around = {link: neighbours.get((session, link), _ALONE) for link in new}
    if all(places.after is None and not places.present for places in around.values()):
        # the usual case: everything comes after what is there, so no link is cut
        tail = {places.before for places in around.values() if places.before is not None}
        if len(tail) <= 1:
            return [follows_edge(session, a, b) for a, b in pairwise(sorted(new | tail))]
    chained = set(new)
    before: set[tuple[Link, Link]] = set()
    for link, neighbour in around.items():
        chained.update(n for n in (neighbour.before, neighbour.after) if n is not None)
        if neighbour.present:
            if neighbour.before is not None:
                before.add((neighbour.before, link))
            if neighbour.after is not None:
                before.add((link, neighbour.after))
        elif neighbour.before is not None and neighbour.after is not None:
            before.add((neighbour.before, neighbour.after))
    chain = sorted(chained)
    after = {(a, b) for a, b in pairwise(chain) if a in new or b in new}
    tenant, _ = session
    operations: list[Operation] = [
        RemoveEdge(type=FOLLOWS.type, source=(tenant, a.event_id), target=(tenant, b.event_id))
        for a, b in before - after
    ]
    operations.extend(follows_edge(session, a, b) for a, b in after)
    return operations


def stage_values(operation: MergeNode | MergeEdge) -> tuple[Any, ...]:
    """An operation's values in the order of the schema's row."""
    if isinstance(operation, MergeNode):
        return node_values(operation.label, operation.stage)(operation.values)
    return edge_values(operation.type, operation.stage)(operation.values)
