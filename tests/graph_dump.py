"""A whole graph as plain data, read through the port: what two stores must agree about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from pipelines.graph.port import Graph
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.operations import Key
from projections.schema import EDGES, NODES, Kind


class Dump(NamedTuple):
    """By (label, key) visibility and values; by (type, source, target, label) each copy's values.

    What is not there, and what is None, is left out; vectors are rounded to the 4 bytes a number
    that they were computed with.
    """

    nodes: dict[tuple[str, Key], tuple[bool, dict[str, Any]]]
    edges: dict[tuple[str, Key, Key, str], list[dict[str, Any]]]


def dump(graph: Graph) -> Dump:
    """Everything but checkpoints."""
    nodes: dict[tuple[str, Key], tuple[bool, dict[str, Any]]] = {}
    for label, row in NODES.items():
        if label == "Checkpoint":
            continue
        kinds = {p.name: p.kind for p in row.stored()}
        for node in cast(Iterator[FoundNode], graph.stream(label, tuple(kinds))):
            nodes[label, node.key] = (node.visible, _plain(node.values, kinds))
    edges: dict[tuple[str, Key, Key, str], list[dict[str, Any]]] = {}
    for type_, edge_row in EDGES.items():
        kinds = {p.name: p.kind for p in edge_row.properties}
        for edge in cast(Iterator[FoundEdge], graph.stream(type_, tuple(kinds))):
            place = (type_, edge.source, edge.target, edge.label)
            edges.setdefault(place, []).append(_plain(edge.values, kinds))
    return Dump(nodes, edges)


def _plain(values: Any, kinds: dict[str, Kind]) -> dict[str, Any]:
    return {
        name: tuple(round(number, 6) for number in value) if kinds[name] is Kind.VECTOR else value
        for name, value in values.items()
        if value is not None
    }
