"""What a store holds that no row of the schema knows, and what it lacks of indexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pipelines.graph.port import Census, FoundEdge, FoundNode, Graph, Transaction
from pipelines.proof.compare import Difference
from projections.schema import EDGES, NODES, constraint_names, index_definitions

CONSTRAINT, INDEX = "constraint", "index"
LABEL, TYPE, PROPERTY, STRAY = "label", "edge type", "property", "stray"
"""What kind of thing a difference of the store's own schema is about."""


def census_differences(census: Census) -> Iterator[Difference]:
    """What is foreign in a store, and which of its indexes and constraints are missing."""
    yield from (_of("extra", LABEL, name) for name in sorted(census.labels.keys() - NODES.keys()))
    yield from (_of("extra", TYPE, name) for name in sorted(census.types.keys() - EDGES.keys()))
    for owner, names in foreign_properties(census).items():
        yield from (_of("extra", PROPERTY, owner, name) for name in sorted(names))
    yield from (_of("extra", STRAY, name) for name in sorted(census.stray))
    indexes = index_definitions().keys() - constraint_names() - census.indexes
    yield from (_of("missing", INDEX, name) for name in sorted(indexes))
    constraints = constraint_names() - census.constraints
    yield from (_of("missing", CONSTRAINT, name) for name in sorted(constraints))


def foreign_properties(census: Census) -> dict[str, frozenset[str]]:
    """Properties that a row does not know, by its label or type."""
    foreign = {
        **{
            label: names - {p.name for p in NODES[label].stored()}
            for label, names in census.node_properties.items()
            if label in NODES
        },
        **{
            type_: names - {p.name for p in EDGES[type_].properties}
            for type_, names in census.edge_properties.items()
            if type_ in EDGES
        },
    }
    return {owner: frozenset(names) for owner, names in sorted(foreign.items()) if names}


def mend_schema(graph: Graph) -> None:
    """Create what is missing of indexes and constraints."""
    graph.ensure_schema()


def remove_unknown(transaction: Transaction, census: Census) -> None:
    """Delete what the schema does not know: labels, types, strays, and properties of the known."""
    labels = census.labels.keys() - NODES.keys()
    types = census.types.keys() - EDGES.keys()
    if labels or types or census.stray:
        transaction.remove_foreign(labels, types)
    for owner, names in foreign_properties(census).items():
        if owner in NODES:
            _strip_nodes(transaction, owner, names)
        else:
            _strip_edges(transaction, owner, names)


def _strip_nodes(transaction: Transaction, label: str, names: frozenset[str]) -> None:
    ours = [p.name for p in NODES[label].stored()]
    held = cast(Iterator[FoundNode], transaction.stream(label, (*ours, *names)))
    bad = [node for node in held if _has_any(node.values, names)]
    transaction.restore_nodes(
        label, [node._replace(values={n: node.values[n] for n in ours}) for node in bad]
    )


def _strip_edges(transaction: Transaction, type_: str, names: frozenset[str]) -> None:
    ours = [p.name for p in EDGES[type_].properties]
    held = list(cast(Iterator[FoundEdge], transaction.stream(type_, (*ours, *names))))
    bad = {(e.source, e.target, e.label) for e in held if _has_any(e.values, names)}
    transaction.restore_edges(
        type_,
        [
            edge._replace(values={n: edge.values[n] for n in ours})
            for edge in held
            if (edge.source, edge.target, edge.label) in bad
        ],
    )


def _has_any(values: Any, names: frozenset[str]) -> bool:
    return any(values[name] is not None for name in names)


def _of(kind: Any, type_: str, *key: str) -> Difference:
    return Difference(kind, "schema", type_, key)
