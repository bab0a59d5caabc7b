"""From what a graph holds into columns: everything, or what its changes name, read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from pipelines.columns.tenant import EDGE_PROPERTIES, NODE_PROPERTIES, Tenant
from pipelines.graph.port import Reads
from pipelines.graph.rows import Change, End, FoundEdge, FoundNode
from projections.operations import Key
from projections.schema import EDGES, EdgeRow

Pair = tuple[Key, Key, str]
"""Source, target and its label."""


@dataclass
class Readings:
    """What is to be set, in this order.

    Attributes:
        removed: by label keys of nodes that have lost all of their edges.
        nodes: by label and key; None: there is none.
        cleared: by type keys of sources whose edges of the type are all among `edges`.
        pairs: by type pairs whose edges are all among `edges`.
        edges: that there are, with their types.
    """

    removed: dict[str, dict[Key, None]] = field(default_factory=dict)
    nodes: dict[tuple[str, Key], FoundNode | None] = field(default_factory=dict)
    cleared: dict[str, dict[Key, None]] = field(default_factory=dict)
    pairs: dict[str, dict[Pair, None]] = field(default_factory=dict)
    edges: list[TypedEdge] = field(default_factory=list)

    def set_in(self, tenants: dict[str, Tenant]) -> None:
        """Set all of it in the columns of the tenants, by name."""
        for label, keys in self.removed.items():
            for key in keys:
                tenant_of(tenants, key).forget_edges(label, key[1])
        for (label, key), node in self.nodes.items():
            tenant_of(tenants, key).set_node(label, key[1], node)
        for type_, sources in self.cleared.items():
            for source in sources:
                tenant_of(tenants, source).drop_edges(type_, source, None)
        for type_, pairs in self.pairs.items():
            for source, target, label in pairs:
                if source[0] == target[0]:
                    tenant_of(tenants, source).drop_edges(type_, source, target, label)
        for type_, edge in self.edges:
            put_edge(tenants, type_, edge)


def readings_of(graph: Reads, changes: Iterable[Change]) -> Readings:
    """Read what changes name.

    Raises:
        GraphUnavailable: the graph is away.
    """
    told = Readings()
    nodes: dict[str, dict[Key, None]] = {}
    for change in changes:
        for noted in (change.removed, change.nodes):
            _note(nodes, noted, NODE_PROPERTIES)
        _note(told.removed, change.removed, NODE_PROPERTIES)
        _note(told.cleared, change.cleared, EDGE_PROPERTIES)
        for type_, pairs in change.edges.items():
            if type_ in EDGE_PROPERTIES:
                told.pairs.setdefault(type_, {}).update(dict.fromkeys(pairs))
    for label, named in nodes.items():
        held = graph.nodes(label, named, NODE_PROPERTIES[label])
        told.nodes.update(((label, key), held.get(key)) for key in named)
    for label, keys in told.removed.items():
        # Made again, by a transaction whose change may have been told before: chains have no order
        # among each other. So the edges that it has now count, whoever told of them.
        again = [key for key in keys if told.nodes[label, key] is not None]
        for type_, pair in _around(graph, label, again):
            told.pairs.setdefault(type_, {})[pair] = None
    for type_ in EDGE_PROPERTIES.keys() & (told.pairs.keys() | told.cleared.keys()):
        whole = told.cleared.get(type_, {})
        told.pairs[type_] = {
            pair: None for pair in told.pairs.get(type_, {}) if pair[0] not in whole
        }
        told.edges += _edges_from(graph, type_, whole)
        told.edges += _edges_between(graph, type_, told.pairs[type_])
    return told


def _note(
    noted: dict[str, dict[Key, None]], told: Mapping[str, Iterable[Key]], names: Iterable[str]
) -> None:
    for name in told.keys() & set(names):
        noted.setdefault(name, {}).update(dict.fromkeys(told[name]))


def _around(graph: Reads, label: str, keys: list[Key]) -> Iterator[tuple[str, Pair]]:
    """The pairs between which nodes have edges, with the types of these."""
    for row in (EDGES[type_] for type_ in EDGE_PROPERTIES if keys):
        for target in _targets(row):
            ends = [
                end for end, at in ((End.SOURCE, row.source), (End.TARGET, target)) if at == label
            ]
            for end in ends:
                for edges in graph.edges(row.type, keys, by=end, label=target).values():
                    yield from ((row.type, (e.source, e.target, target)) for e in edges)


def _edges_from(graph: Reads, type_: str, sources: Iterable[Key]) -> Iterator[TypedEdge]:
    """All edges of a type that begin at nodes."""
    for target in _targets(EDGES[type_]):
        held = graph.edges(type_, sources, EDGE_PROPERTIES[type_], label=target)
        yield from ((type_, edge) for edges in held.values() for edge in edges)


def _edges_between(graph: Reads, type_: str, pairs: Iterable[Pair]) -> Iterator[TypedEdge]:
    """The edges of a type between nodes."""
    for target in _targets(EDGES[type_]):
        ends = [(source, end) for source, end, label in pairs if label == target]
        held = graph.between(type_, ends, EDGE_PROPERTIES[type_], label=target)
        yield from ((type_, edge) for edges in held.values() for edge in edges)


def _targets(row: EdgeRow) -> list[str]:
    """Labels that edges of a type may end at."""
    return [label for label in (row.target, row.other_target) if label]


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
