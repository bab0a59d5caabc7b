"""What a graph must show of all recorded decisions together, as elements that can be compared.

The fold is asked once more, for all decisions of a tenant in one batch and of a graph that holds
nothing: how decisions are cut into batches does not matter, so what comes out is what the graph
must have come to, whatever it went through. What only counts up (accesses, retrievals, the sums of
sessions) is no decision, and not here.

A few decisions say something of what another stage made, if it is there, and a tombstone keeps
where its event stood; what must be known for that is an argument (`Known`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from consolidation import NAME
from consolidation.access_counts import FactPlace, ShownFact
from consolidation.forgetting import EventKey
from consolidation.forgetting_payloads import EventsForgotten, FactsExpired, PairsDropped
from consolidation.stage import Derived, Facts, consolidate
from pipelines.proof.comparison import Difference
from pipelines.proof.expected_enrichment import frozen
from projections.digest import element_digest
from projections.operations import Operations
from projections.schema import (
    COMMUNITY,
    CONSOLIDATION_REQUEST,
    EDGES,
    ENTITY,
    EVENT,
    FORGOTTEN,
    LINKED_TO,
    MEMBER_OF,
    NODES,
    PASS,
    RELATES_TO,
    SUMMARIZES,
    SUMMARY,
    Certainty,
    Merge,
    NodeRow,
    Property,
)
from projections.structural import SessionKey

WHOLE: Final = (SUMMARY, COMMUNITY, PASS, CONSOLIDATION_REQUEST)
"""Nodes that decisions alone make."""
DECIDED: Final = tuple(
    (NODES[label], name)
    for label, name in (
        (SUMMARY.label, "gone"),
        (SUMMARY.label, "link_count"),
        (COMMUNITY.label, "gone"),
        (FORGOTTEN.label, "tier"),
        (FORGOTTEN.label, "recalled"),
        (FORGOTTEN.label, "parted_from"),
        (EVENT.label, "importance_boost"),
        (EVENT.label, "parted_from"),
        (ENTITY.label, "status"),
    )
)
"""Single properties that decisions set; each is an element of its own (`Event.importance_boost`),
with the position of its decision."""
LINKS: Final = (SUMMARIZES, MEMBER_OF, LINKED_TO)
FADED: Final = f"{RELATES_TO.type}.faded_at"
"""The one decided property of an edge that enrichment made."""
PLACED: Final = ("session_id", "occurred_at", "summary_id")
"""What is compared of a tombstone itself."""

VALUE, DECIDED_AT = "value", "decided_at"


class Element(NamedTuple):
    """A node, one decided property of a node, or an edge.

    Attributes:
        element: node or edge.
        type: label, label and property, or edge type.
        key: tenant and id; of an edge tenant, id of its start, label and id of its end, and the
            properties that tell parallel edges apart.
    """

    element: str
    type: str
    key: tuple[Any, ...]

    def difference(
        self, kind: str, fields: Mapping[str, tuple[Any, Any]] | None = None
    ) -> Difference:
        """How the graph differs here."""
        return Difference(kind, self.element, self.type, self.key, dict(fields or {}))  # type: ignore[arg-type]  # the words of Difference


Elements = dict[Element, dict[str, Any]]
"""With their properties; positions are lists of two numbers."""


def compared(row: NodeRow) -> tuple[Property, ...]:
    """Properties of a node that are compared."""
    return tuple(p for p in row.owned(NAME) if p.certainty is not Certainty.APPROXIMATE)


class Place(NamedTuple):
    """Where an event stands; what it counts for by the rules."""

    session_id: str
    occurred_at_ms: int
    importance: int


@dataclass(frozen=True, slots=True)
class Known:
    """What must be known of the rest to say what follows from decisions.

    Attributes:
        places: of forgotten events that the ledger holds.
        events: events that have a node, be it a placeholder, of those that lost similar ones.
        facts: facts that there are, of those that expired.
    """

    places: Mapping[EventKey, Place] = field(default_factory=dict)
    events: Set[EventKey] = frozenset()
    facts: Set[FactPlace] = frozenset()


class Named(NamedTuple):
    """What `Known` should tell about."""

    forgotten: set[EventKey]
    parted: set[EventKey]
    expired: set[FactPlace]


def named(decisions: Iterable[Derived]) -> Named:
    """What decisions name that something must be known of."""
    found = Named(set(), set(), set())
    for one in decisions:
        tenant = one.event.tenant
        match one.decision:
            case EventsForgotten(events=events):
                found.forgotten.update((tenant, event_id) for event_id, _ in events)
            case PairsDropped(pairs=pairs):
                found.parted.update((tenant, first) for first, _ in pairs)
            case FactsExpired(facts=keys):
                found.expired.update((tenant, key) for key in keys)
    return found


def expected_elements(decisions: Sequence[Derived], known: Known | None = None) -> Elements:
    """What follows from all decisions of a tenant."""
    known = known or Known()
    shown = dict.fromkeys(known.facts, ShownFact())
    made = consolidate(decisions, Facts(present=known.events, shown_facts=shown))
    return {
        **dict(_nodes(made)),
        **dict(_tombstones(made, known.places)),
        **dict(_decided(made)),
        **dict(_edges(made)),
        **dict(_faded(made)),
    }


def session_elements(
    elements: Elements, session: SessionKey, summaries: Set[Any], events: Set[EventKey]
) -> Elements:
    """Those of a session: its summaries with what they list and link to, and about its events.

    Args:
        elements: of which to choose.
        session: tenant and id.
        summaries: keys of the session's Summary nodes (`summaries_of`).
        events: keys of its events.
    """

    def is_own(element: Element) -> bool:
        label = element.type.partition(".")[0]
        if element.element == "edge":
            return label in _OF_SUMMARIES and element.key[:2] in summaries
        return element.key in (summaries if label == SUMMARY.label else events)

    return {one: values for one, values in elements.items() if is_own(one)}


_OF_SUMMARIES = (SUMMARIZES.type, LINKED_TO.type)


def summaries_of(elements: Elements, session: SessionKey) -> set[tuple[Any, ...]]:
    """Keys of the Summary nodes that are about a session."""
    return {
        one.key
        for one, values in elements.items()
        if one[:2] == ("node", SUMMARY.label) and (one.key[0], values["session_id"]) == session
    }


def _nodes(made: Operations) -> Iterator[tuple[Element, dict[str, Any]]]:
    for (label, key), node in made.merge_nodes.items():
        if NODES[label] in WHOLE:
            values = {p.name: frozen(node.values[p.name]) for p in compared(NODES[label])}
            yield Element("node", label, key), values


def _decided(made: Operations) -> Iterator[tuple[Element, dict[str, Any]]]:
    known = {(row.label, name) for row, name in DECIDED}
    for (label, key, name), one in made.decide_nodes.items():
        if (label, name) in known:
            values = {VALUE: frozen(one.value), DECIDED_AT: tuple(one.position)}
            yield Element("node", f"{label}.{name}", key), values


def _tombstones(
    made: Operations, places: Mapping[EventKey, Place]
) -> Iterator[tuple[Element, dict[str, Any]]]:
    """Tombstones of all that left once, or was only told to come back, which has no place."""
    for label, key, name in made.decide_nodes:
        if (label, name) != (FORGOTTEN.label, "recalled"):
            continue
        left = made.merge_nodes.get((label, key))
        place = places.get((key[0], key[1])) if left is not None else None
        values = (
            place.session_id if place else None,
            place.occurred_at_ms if place else None,
            left.values["summary_id"] if left is not None else None,
        )
        yield Element("node", label, key), dict(zip(PLACED, values, strict=True))


def _faded(made: Operations) -> Iterator[tuple[Element, dict[str, Any]]]:
    for edge in made.set_edges.values():
        values = edge.values
        if edge.type == RELATES_TO.type and values["faded_at"] is not None:
            key = (*edge.source, ENTITY.label, *edge.target[1:])
            parallel = tuple(values[name] for name in RELATES_TO.key)
            yield Element("edge", FADED, (*key, *parallel)), {VALUE: values["faded_at"]}


def _edges(made: Operations) -> Iterator[tuple[Element, dict[str, Any]]]:
    for edge in made.merge_edges.values():
        row = EDGES[edge.type]
        if row in LINKS:
            values = {p.name: frozen(edge.values[p.name]) for p in row.carried(NAME)}
            parallel = tuple(values[name] for name in row.key)
            label = edge.label or row.target
            key = (*edge.source, label, *edge.target[1:], *parallel)
            yield Element("edge", edge.type, key), values


def element_differences(expected: Elements, found: Elements) -> Iterator[Difference]:
    """Everything that is not the same."""
    for element in expected.keys() - found.keys():
        yield element.difference("missing")
    for element in found.keys() - expected.keys():
        yield element.difference("extra")
    for element in expected.keys() & found.keys():
        should, does = expected[element], found[element]
        if should != does:
            fields = {
                name: (value, does.get(name))
                for name, value in should.items()
                if does.get(name) != value
            }
            yield element.difference("different", fields)


def elements_number(found: Elements, excluding: Set[Element] = frozenset()) -> int:
    """Digest of elements: of all that is recorded, positions left out."""
    return sum(
        element_digest(
            element.type, *element.key, *(values[name] for name in _recorded(element, values))
        )
        for element, values in found.items()
        if element not in excluding
    )


def _recorded(element: Element, values: Mapping[str, Any]) -> list[str]:
    """Names of the values that a digest covers."""
    label = element.type.partition(".")[0]
    row = NODES[label] if element.element == "node" else EDGES[label]
    positions = {p.name for p in row.properties if p.certainty is Certainty.POSITION}
    return [name for name in values if name not in positions and name != DECIDED_AT]


def decided_property(row: NodeRow, name: str) -> Property:
    """The row of a property that decisions set."""
    found = row.property(name)
    if found.merge is not Merge.DECIDED:
        raise AssertionError(f"{row.label}.{name} is set by no decision")
    return found
