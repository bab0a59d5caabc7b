"""From what a graph holds into columns: everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from pipelines.columns.tenant import EDGE_PROPERTIES, NODE_PROPERTIES, Tenant
from pipelines.graph.port import Reads
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.operations import Key

LabelledNode = tuple[str, FoundNode]
TypedEdge = tuple[str, FoundEdge]


def columns_of(graph: Reads) -> dict[str, Tenant]:
    """The columns of each tenant of a graph, by name.

    Raises:
        GraphUnavailable: it is away.
    """
    return columns_from(nodes_of(graph), edges_of(graph))


def columns_from(nodes: Iterable[LabelledNode], edges: Iterable[TypedEdge]) -> dict[str, Tenant]:
    """The columns of each tenant, by name, from its nodes and then from its edges."""
    tenants: dict[str, Tenant] = {}
    for label, node in nodes:
        tenant_of(tenants, node.key).set_node(label, node.key[1], node)
    for type_, edge in edges:
        put_edge(tenants, type_, edge)
    return tenants


def put_edge(tenants: dict[str, Tenant], type_: str, edge: FoundEdge) -> None:
    """Set an edge in the columns of its tenant.

    One between two tenants is in those of neither: no stage makes one, and an id is of one tenant.
    """
    if edge.source[0] == edge.target[0]:
        tenant_of(tenants, edge.source).add_edge(type_, edge)


def tenant_of(tenants: dict[str, Tenant], key: Key) -> Tenant:
    """The columns that a key belongs to; new ones for a new tenant."""
    tenant = tenants.get(key[0])
    if tenant is None:
        tenant = tenants[key[0]] = Tenant()
    return tenant


def nodes_of(graph: Reads) -> Iterator[LabelledNode]:
    """All nodes of a graph that columns hold, with their labels."""
    for label, properties in NODE_PROPERTIES.items():
        for node in cast(Iterator[FoundNode], graph.stream(label, properties)):
            yield label, node


def edges_of(graph: Reads) -> Iterator[TypedEdge]:
    """All edges of a graph that columns hold, with their types."""
    for type_, properties in EDGE_PROPERTIES.items():
        for edge in cast(Iterator[FoundEdge], graph.stream(type_, properties)):
            yield type_, edge
