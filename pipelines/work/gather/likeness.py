"""What is alike in a graph: the vectors of its events, held here as far as the graph has come.

An index that is approximate would decide what becomes an edge, so all vectors of a tenant are held
in the process that enriches, some 800 bytes an event, and compared. They are read once, and then
followed by the graph's change feed: before each batch, under a lock of the tenant that one
transaction has at a time, so that two workers never miss each other's events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import Final, NamedTuple, cast

import numpy

from enrichment.derived import Derived
from enrichment.similarity import Embedded, EmbeddedEvents, EventKey, Near
from enrichment.vectors import from_text, whole_numbers
from pipelines.graph.port import Graph, Reads, Transaction
from pipelines.graph.rows import End, FeedPlace, FoundNode
from projections.errors import ChangesLost, GraphUnavailable
from projections.operations import Key
from projections.schema import EVENT, FORGOTTEN, SIMILAR_TO

_HELD: Final = "similar"
_TAKEN_IN: Final = 1_000
"""Events that are taken in at once."""
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    FORGOTTEN.label: ("occurred_at", "user_id", "vector"),
    EVENT.label: ("occurred_at", "user_id", "embedding"),
}
"""What is read of each label; where an event has both nodes, the second counts."""


def hold_alike(transaction: Transaction, tenants: Iterable[str]) -> None:
    """Keep everybody else from changing what is alike in tenants, or from deciding by it.

    Whoever adds an event that says something holds it, and whoever takes one away; before any lock
    of an event, so that nobody waits for the other.
    """
    transaction.hold(f"{_HELD}/{tenant}" for tenant in tenants)


class Neighbours(NamedTuple):
    """Whom events are to be joined with, and whom they are.

    Attributes:
        near: by event, the others before it.
        edges: of those events, by the other end that is before it, and the score.
    """

    near: Mapping[EventKey, Sequence[Near]]
    edges: Mapping[EventKey, Mapping[str, float]]


class Likeness:
    """The vectors of the events of one graph; threads may share it."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._place: FeedPlace | None = None
        self._tenants: dict[str, EmbeddedEvents] = {}

    def neighbours(self, transaction: Transaction, batch: Sequence[Derived]) -> Neighbours:
        """What the batch changes about who is alike.

        Args:
            transaction: it holds what is alike in the batch's tenants from now on.
            batch: events that have a node or a tombstone.
        """
        tenants: dict[str, list[Derived]] = {}
        for derived in batch:
            tenants.setdefault(derived.event.tenant, []).append(derived)
        if not tenants:
            return Neighbours({}, {})
        hold_alike(transaction, tenants)
        near: dict[EventKey, list[Near]] = {}
        with self._guard:
            self._catch_up(transaction.graph)
            for tenant, some in tenants.items():
                events = self._tenants.setdefault(tenant, EmbeddedEvents())
                ids = (one.event.event_id for one in some if one.embedding is None)
                silent = [event_id for event_id in ids if event_id in events]
                near |= {(tenant, event_id): [] for event_id in silent}
                alike = events.neighbours(_embedded(some), silent)
                near |= {(tenant, event.event_id): others for event, others in alike.items()}
        return _with_edges(transaction, near, {one.event.key for one in batch})

    # -- what the graph holds ----------------------------------------------------------------------

    def _catch_up(self, graph: Graph) -> None:
        """Take in all that was committed.

        Raises:
            GraphUnavailable: the graph is away.
        """
        try:
            try:
                self._follow_on(graph)
            except ChangesLost:  # at first, in another graph than before, or after long
                self._load(graph)
                self._follow_on(graph)
        except ChangesLost as error:  # it is being emptied
            raise GraphUnavailable(reason=str(error)) from error

    def _follow_on(self, graph: Graph) -> None:
        while self._follow(graph):
            pass

    def _follow(self, graph: Graph) -> bool:
        """Take in some changes; whether more wait."""
        if self._place is None:
            raise ChangesLost(reason="nothing was read yet")
        told = graph.changes(self._place)
        if any(change.everything for change in told.changes):
            raise ChangesLost(reason="more has changed than keys can tell")
        touched = {
            key: None
            for change in told.changes
            for noted in (change.nodes, change.removed)
            for label in _SHOWN
            for key in noted.get(label, ())
        }
        if touched:
            self._read(graph, touched)
        self._place = told.place
        return told.more

    def _read(self, graph: Reads, keys: Collection[Key]) -> None:
        present: dict[Key, Embedded] = {}
        for label, shown in _SHOWN.items():
            present |= _events_of(label, graph.nodes(label, keys, shown).values())
        for key in keys:
            if key not in present and key[0] in self._tenants:
                self._tenants[key[0]].drop(key[1])
        self._put(present)

    def _put(self, present: Mapping[Key, Embedded]) -> None:
        tenants: dict[str, list[Embedded]] = {}
        for key, event in present.items():
            tenants.setdefault(key[0], []).append(event)
        for tenant, events in tenants.items():
            self._tenants.setdefault(tenant, EmbeddedEvents()).put(*events)

    def _load(self, graph: Graph) -> None:
        """Read everything anew."""
        self._place, self._tenants = None, {}
        place = graph.feed()
        for label, shown in _SHOWN.items():
            nodes = cast(Iterator[FoundNode], graph.stream(label, shown))
            while some := list(islice(nodes, _TAKEN_IN)):
                self._put(_events_of(label, some))
        self._place = place


def _embedded(batch: Iterable[Derived]) -> list[Embedded]:
    spoken = [(one.event, one.embedding) for one in batch if one.embedding is not None]
    numbers = whole_numbers([vector for _, vector in spoken])
    return [
        Embedded(event.event_id, event.occurred_at_ms, event.user_id, one)
        for (event, _), one in zip(spoken, numbers, strict=True)
    ]


def _events_of(label: str, nodes: Iterable[FoundNode]) -> dict[Key, Embedded]:
    """Events as nodes or tombstones have them; without those that say nothing."""
    told = {
        node.key: (at_ms, user_id, vector)
        for node in nodes
        for at_ms, user_id, vector in [[node.values[name] for name in _SHOWN[label]]]
        if node.visible and vector and at_ms is not None
    }
    spoken = [vector for *_, vector in told.values()]
    numbers = (
        map(from_text, spoken)
        if label == FORGOTTEN.label
        else whole_numbers([numpy.array(vector, "<f4").tobytes() for vector in spoken])
    )
    return {
        key: Embedded(key[1], at_ms, user_id, one)
        for (key, (at_ms, user_id, _)), one in zip(told.items(), numbers, strict=True)
    }


def _edges_before(
    transaction: Transaction, nodes: Mapping[Key, FoundNode], events: Collection[EventKey]
) -> dict[EventKey, dict[str, float]]:
    """The edges of events to what is before them; a later one decides about its own."""
    edges: dict[EventKey, dict[str, float]] = {}
    around = transaction.edges(SIMILAR_TO.type, sorted(events), ("score",), by=End.EITHER)
    others = {
        key: {edge.target if edge.source == key else edge.source: edge for edge in some}
        for key, some in around.items()
    }
    unread = {other for some in others.values() for other in some} - nodes.keys()
    times = {
        key: node.values["occurred_at"]
        for key, node in (
            *transaction.nodes(EVENT.label, sorted(unread), ("occurred_at",)).items(),
            *nodes.items(),
        )
    }
    for key, some in others.items():
        place = times[key], key[1]
        edges[key[0], key[1]] = {
            other[1]: edge.values["score"]
            for other, edge in some.items()
            if (times.get(other) or 0, other[1]) < place
        }
    return edges


def _with_edges(
    transaction: Transaction,
    near: Mapping[EventKey, Sequence[Near]],
    enriched: Collection[EventKey],
) -> Neighbours:
    """Leave out who is not there and pairs that were dropped; events stay as they are."""
    ends = {(tenant, other.event_id) for (tenant, _), some in near.items() for other in some}
    shown = ("parted_from", "importance_score", "occurred_at")
    nodes = transaction.lock_nodes(EVENT.label, sorted(ends | near.keys()), shown)
    present = {
        (key[0], key[1])
        for key, node in nodes.items()
        if node.visible and (key in enriched or node.values["importance_score"] is not None)
    }
    parted = {
        (key[0], *sorted((key[1], other)))
        for key, node in nodes.items()
        for other in node.values["parted_from"] or ()
    }
    joined = {
        key: [
            other
            for other in others
            if (key[0], other.event_id) in present
            and (key[0], *sorted((key[1], other.event_id))) not in parted
        ]
        for key, others in near.items()
        if key in present
    }
    return Neighbours(joined, _edges_before(transaction, nodes, joined))
