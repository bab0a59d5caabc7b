"""What a graph should hold against what it holds: differences by id, and what mends them."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any, Literal, NamedTuple

from projections.operations import (
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operations,
    RemoveEdge,
    RemoveNode,
)
from projections.schema import EDGES, EVENT
from projections.structural import SessionGraph


class Difference(NamedTuple):
    """One thing that the graph and the ledger disagree about.

    Attributes:
        kind: missing from the graph, extra in it, or different.
        element: node or edge.
        type: label or edge type.
        key: tenant and event id of a node; tenant and both event ids of an edge.
        fields: property → (expected, found), for `different`.
    """

    kind: Literal["missing", "extra", "different"]
    element: Literal["node", "edge"]
    type: str
    key: tuple[Any, ...]
    fields: dict[str, tuple[Any, Any]] = {}  # noqa: RUF012  never changed

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": self.kind,
            "element": self.element,
            "type": self.type,
            "key": list(self.key),
            "fields": {
                name: {"expected": expected, "found": found}
                for name, (expected, found) in self.fields.items()
            },
        }

    def __str__(self) -> str:
        """One line for a person."""
        name = f"{self.kind} {self.element} {self.type} {' '.join(map(str, self.key))}"
        if not self.fields:
            return name
        return f"{name}: " + ", ".join(
            f"{field} is {found!r}, should be {expected!r}"
            for field, (expected, found) in self.fields.items()
        )


def differences(expected: SessionGraph, found: SessionGraph) -> Iterator[Difference]:
    """Everything that is not the same, nodes first."""
    names = [p.name for p in EVENT.owned("projection")]
    for key in sorted(expected.nodes.keys() | found.nodes.keys()):
        should, does = expected.nodes.get(key), found.nodes.get(key)
        if does is None:
            yield Difference("missing", "node", EVENT.label, key)
        elif should is None:
            yield Difference("extra", "node", EVENT.label, key)
        elif not _same(should, does):
            yield Difference(
                "different", "node", EVENT.label, key, field_differences(names, should, does)
            )
    for edge in sorted(expected.edges.keys() | found.edges.keys(), key=repr):
        type_, source, target = edge
        key = (*source, *target[1:]) if source[0] == target[0] else (*source, *target)
        should_edges, does_edges = expected.edges.get(edge, []), found.edges.get(edge, [])
        properties = [p.name for p in EDGES[type_].carried("projection")]
        if not does_edges:
            yield Difference("missing", "edge", type_, key)
        elif not should_edges:
            yield Difference("extra", "edge", type_, key)
        elif not _same_edges(should_edges, does_edges):
            if len(does_edges) == 1:
                yield Difference(
                    "different",
                    "edge",
                    type_,
                    key,
                    field_differences(properties, should_edges[0], does_edges[0]),
                )
            else:
                yield Difference("extra", "edge", type_, key, {"copies": (1, len(does_edges))})


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Equal in value and type: to the graph 1, 1.0 and true are three values."""
    return a == b and all(type(x) is type(y) for x, y in zip(a, b, strict=True))


def _same_edges(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]]) -> bool:
    return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))


def field_differences(
    names: list[str], expected: tuple[Any, ...], found: tuple[Any, ...]
) -> dict[str, tuple[Any, Any]]:
    """Property → (expected, found), of those that are not the same in value and type."""
    return {
        name: (should, does)
        for name, should, does in zip(names, expected, found, strict=True)
        if should != does or type(should) is not type(does)
    }


def repairs(
    expected: SessionGraph, found: SessionGraph, elsewhere: Set[tuple[str, str]] = frozenset()
) -> Operations:
    """Operations that make exactly the difference good and touch nothing else.

    An extra node is removed with its edges; where one of them was rightly there (the node stands
    where a parent is still to come), the next look finds it missing and brings it back. An extra
    node of `elsewhere` belongs to another session, which takes it back with all that others wrote
    to it.
    """
    operations = Operations()
    for key in expected.nodes.keys() | found.nodes.keys():
        should = expected.nodes.get(key)
        if should is None:
            if key not in elsewhere:
                operations.add(RemoveNode(EVENT.label, key))
        elif not _same(should, found.nodes.get(key, ())):
            names = [p.name for p in EVENT.owned("projection")]
            named = dict(zip(names, should, strict=True))
            operations.add(MergeNode(label=EVENT.label, key=key, values=named))
    removed = {op.key for op in operations.remove_nodes.values()}
    for edge in expected.edges.keys() | found.edges.keys():
        type_, source, target = edge
        should_edges, does_edges = expected.edges.get(edge, []), found.edges.get(edge, [])
        if _same_edges(should_edges, does_edges) and target not in removed:
            continue
        if does_edges and source not in removed and target not in removed:
            operations.add(RemoveEdge(type=type_, source=source, target=target))
        for values in should_edges:
            if target not in expected.nodes:
                operations.add(EnsureNode(EVENT.label, target))
            names = [p.name for p in EDGES[type_].carried("projection")]
            named = dict(zip(names, values, strict=True))
            operations.add(MergeEdge(type=type_, source=source, target=target, values=named))
    return operations
