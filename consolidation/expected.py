"""What a graph must show of all recorded decisions together, as elements that can be compared.

The fold is asked once more, for all decisions of a tenant in one batch and of a graph that holds
nothing: how decisions are cut into batches does not matter, so what comes out is what the graph
must have come to, whatever it went through. What only counts up (accesses, retrievals, the sums of
sessions) is no decision, and not here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from consolidation.folding import NAME
from consolidation.stage import Derived, Facts, consolidate
from enrichment.expected import frozen
from projections.comparison import Difference
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
    SUMMARIZES,
    SUMMARY,
    Certainty,
    Merge,
    NodeRow,
    Property,
)

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
        (EVENT.label, "importance_boost"),
        (ENTITY.label, "status"),
    )
)
"""Single properties that decisions set; each is an element of its own (`Event.importance_boost`),
with the position of its decision."""
LINKS: Final = (SUMMARIZES, MEMBER_OF, LINKED_TO)

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


def compared(row: NodeRow) -> tuple[tuple[int, Property], ...]:
    """Properties of a node that are compared, and where they stand among those of the stage."""
    return tuple(
        (place, p)
        for place, p in enumerate(row.owned(NAME))
        if p.certainty is not Certainty.APPROXIMATE
    )


def expected_elements(decisions: Sequence[Derived]) -> Elements:
    """What follows from all decisions of a tenant."""
    made = consolidate(decisions, Facts())
    return {**dict(_nodes(made)), **dict(_decided(made)), **dict(_edges(made))}


def _nodes(made: Operations) -> Iterator[tuple[Element, dict[str, Any]]]:
    for (label, key), node in made.merge_nodes.items():
        if NODES[label] in WHOLE:
            values = {p.name: frozen(node.values[place]) for place, p in compared(NODES[label])}
            yield Element("node", label, key), values


def _decided(made: Operations) -> Iterator[tuple[Element, dict[str, Any]]]:
    known = {(row.label, name) for row, name in DECIDED}
    for (label, key, name), one in made.decide_nodes.items():
        if (label, name) in known:
            values = {VALUE: one.value, DECIDED_AT: tuple(one.position)}
            yield Element("node", f"{label}.{name}", key), values


def _edges(made: Operations) -> Iterator[tuple[Element, dict[str, Any]]]:
    for edge in made.merge_edges.values():
        row = EDGES[edge.type]
        if row in LINKS:
            values = {
                p.name: frozen(value)
                for p, value in zip(row.carried(NAME), edge.values, strict=True)
            }
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
