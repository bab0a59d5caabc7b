"""From a graph into columns: everything that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from pipelines.columns.tenant import EDGE_PROPERTIES, NODE_PROPERTIES, Tenant
from pipelines.graph.port import Reads
from pipelines.graph.rows import FoundEdge, FoundNode


def columns_of(graph: Reads) -> dict[str, Tenant]:
    """The columns of each tenant of a graph, by name.

    Raises:
        GraphUnavailable: it is away.
    """
    tenants: dict[str, Tenant] = {}
    for label, properties in NODE_PROPERTIES.items():
        for node in cast(Iterator[FoundNode], graph.stream(label, properties)):
            tenants.setdefault(node.key[0], Tenant()).set_node(label, node.key[1], node)
    for type_, properties in EDGE_PROPERTIES.items():
        for edge in cast(Iterator[FoundEdge], graph.stream(type_, properties)):
            tenants.setdefault(edge.source[0], Tenant()).add_edge(type_, edge)
    return tenants
