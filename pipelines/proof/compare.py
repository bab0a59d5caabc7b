"""Two stores compared, row of the schema by row: what one must hold against what the other holds.

Both sides stream a label or a type in the order of keys, so that one of each is in memory. What
counts as the same is said by each property's certainty: folded, recorded and positions exactly, in
value and in type; approximate ones within a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

from pipelines.graph.port import Graph, Transaction
from pipelines.graph.rows import Census, FoundEdge, FoundNode
from projections.operations import Key
from projections.schema import (
    DEAD_LETTER,
    EDGES,
    NODES,
    Certainty,
    EdgeRow,
    Kind,
    NodeRow,
    Property,
    constraint_names,
    index_definitions,
)

RELATIVE_TOLERANCE: Final = 1e-3
"""Of approximate numbers, relative to the larger one, and of the cosine of approximate vectors."""

T = TypeVar("T")
Change = tuple[Any, Any]
"""Expected, found."""
EdgePair = tuple[Key, Key, str]
"""Source, target, and the label of the target."""


class Difference(NamedTuple):
    """One thing that the graph and the ledger disagree about.

    Attributes:
        kind: missing from the graph, extra in it, or different.
        element: a node, the edges of a type between two nodes, the store's own schema, what the
            columns in memory hold of the graph, or something in a session.
        type: label or edge type; of the schema and of columns what kind of thing it is.
        key: of the node; of edges source and target; of a session tenant and id.
        fields: property → (expected, found), for `different`.
    """

    kind: Literal["missing", "extra", "different"]
    element: Literal["node", "edge", "schema", "column", "session"]
    type: str
    key: tuple[Any, ...]
    fields: Mapping[str, Change] = MappingProxyType({})

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": self.kind,
            "element": self.element,
            "type": self.type,
            "key": list(self.key),
            "fields": {
                name: {"expected": expected, "found": held}
                for name, (expected, held) in self.fields.items()
            },
        }

    def __str__(self) -> str:
        """One line for a person."""
        name = f"{self.kind} {self.element} {self.type} {' '.join(map(str, self.key))}"
        if not self.fields:
            return name
        return f"{name}: " + ", ".join(
            f"{field} is {held!r}, should be {expected!r}"
            for field, (expected, held) in self.fields.items()
        )


class NodeChange(NamedTuple):
    """A node that differs; `expected` None: it must not be there, `held` None: it is not."""

    difference: Difference
    key: Key
    expected: FoundNode | None
    held: FoundNode | None

    @property
    def stages(self) -> frozenset[str]:
        """Whose rules it breaks: the stages that write what differs."""
        row = NODES[self.difference.type]
        if row is DEAD_LETTER:
            return frozenset({str(self.key[0])})
        return _stages_of(row, row.stored(), self.difference.fields)


class EdgeChange(NamedTuple):
    """Edges of a type between two nodes that differ.

    Attributes:
        difference: what is told of them.
        pair: their ends.
        expected: all that must be there.
        held: all that are.
    """

    difference: Difference
    pair: EdgePair
    expected: tuple[FoundEdge, ...]
    held: tuple[FoundEdge, ...]

    @property
    def stages(self) -> frozenset[str]:
        """Whose rules they break: the stages that write what differs."""
        row = EDGES[self.difference.type]
        if row.shared_by is None:
            return _stages_of(row, row.properties, self.difference.fields)
        name, values = row.shared_by
        both = [*self.expected, *self.held]
        odd = {edge.values[name] for edge in both if (edge in self.expected) != (edge in self.held)}
        return frozenset(s for s, value in values.items() if value in odd) or frozenset({row.stage})


def compared_properties(row: NodeRow | EdgeRow) -> tuple[Property, ...]:
    """What is compared of a node or an edge: all that the row stores but its key."""
    stored = row.stored() if isinstance(row, NodeRow) else row.properties
    return tuple(p for p in stored if isinstance(row, EdgeRow) or p.name not in row.key)


def node_changes(
    row: NodeRow, expected: Iterable[FoundNode], held: Iterable[FoundNode]
) -> Iterator[NodeChange]:
    """Nodes of a label that differ, of two streams in the order of keys."""
    properties = compared_properties(row)
    for should, does in _paired(expected, held, lambda node: node.key):
        if does is None and should is not None:
            difference = Difference("missing", "node", row.label, row_key(should.key))
            yield NodeChange(difference, should.key, should, None)
        elif should is None and does is not None:
            difference = Difference("extra", "node", row.label, row_key(does.key))
            yield NodeChange(difference, does.key, None, does)
        elif should is not None and does is not None:
            fields = _changes(properties, should.values, does.values)
            if should.visible != does.visible:
                fields["visible"] = (should.visible, does.visible)
            if fields:
                key = row_key(does.key)
                difference = Difference("different", "node", row.label, key, fields=fields)
                yield NodeChange(difference, does.key, should, does)


def edge_changes(
    row: EdgeRow, expected: Iterable[FoundEdge], held: Iterable[FoundEdge]
) -> Iterator[EdgeChange]:
    """Pairs of nodes whose edges of a type differ, of two streams in the order of their ends."""
    properties = compared_properties(row)
    left = _by_pair(expected)
    right = _by_pair(held)
    for should, does in _paired(left, right, lambda edges: _pair_of(edges[0])):
        if should is None and does is not None:
            yield _edge_change("extra", row, (), does)
        elif does is None and should is not None:
            yield _edge_change("missing", row, should, ())
        elif should is not None and does is not None:
            fields = _copies_differ(properties, should, does)
            if fields:
                yield _edge_change("different", row, should, does, fields=fields)


def same(p: Property, expected: Any, held: Any) -> bool:
    """Whether a value is what it must be: to the graph 1, 1.0 and true are three values."""
    if p.certainty is not Certainty.APPROXIMATE or expected is None or held is None:
        return type(expected) is type(held) and bool(expected == held)
    if p.kind is Kind.VECTOR:
        return _alike(expected, held)
    if p.kind is Kind.FLOAT:
        return type(held) is float and math.isclose(expected, held, rel_tol=RELATIVE_TOLERANCE)
    return bool(expected == held)


def row_key(key: Key) -> tuple[Any, ...]:
    """A key as differences show it."""
    return tuple(key)


def _alike(expected: Sequence[float], held: Any) -> bool:
    if type(held) is not tuple or len(held) != len(expected):
        return False
    if not all(type(number) is float and math.isfinite(number) for number in held):
        return False
    length, other = math.hypot(*expected), math.hypot(*held)
    if not length or not other:
        return length == other
    is_as_long = math.isclose(length, other, rel_tol=RELATIVE_TOLERANCE)
    return is_as_long and _cosine(expected, held) >= 1 - RELATIVE_TOLERANCE


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    dot = math.fsum(a * b for a, b in zip(left, right, strict=True))
    return dot / (math.hypot(*left) * math.hypot(*right) or 1.0)


def _changes(
    properties: Iterable[Property], expected: Mapping[str, Any], held: Mapping[str, Any]
) -> dict[str, Change]:
    return {
        p.name: (expected.get(p.name), held.get(p.name))
        for p in properties
        if not same(p, expected.get(p.name), held.get(p.name))
    }


def _copies_differ(
    properties: Sequence[Property],
    expected: Sequence[FoundEdge],
    held: Sequence[FoundEdge],
) -> dict[str, Change]:
    """What differs between the parallel edges of a pair; both are sorted by the row's key."""
    if len(expected) != len(held):
        return {"copies": (len(expected), len(held))}
    changed: dict[str, Change] = {}
    for should, does in zip(expected, held, strict=True):
        changed |= _changes(properties, should.values, does.values)
    return changed


def _paired(
    expected: Iterable[T], held: Iterable[T], key: Callable[[T], Any]
) -> Iterator[tuple[T | None, T | None]]:
    """Elements of two streams sorted by `key`, side by side; None where a stream has none."""
    left, right = iter(expected), iter(held)
    should, does = next(left, None), next(right, None)
    while should is not None or does is not None:
        if does is None or (should is not None and key(should) < key(does)):
            yield should, None
            should = next(left, None)
        elif should is None or key(does) < key(should):
            yield None, does
            does = next(right, None)
        else:
            yield should, does
            should, does = next(left, None), next(right, None)


def _by_pair(edges: Iterable[FoundEdge]) -> Iterator[tuple[FoundEdge, ...]]:
    return (tuple(copies) for _, copies in groupby(edges, key=_pair_of))


def _pair_of(edge: FoundEdge) -> EdgePair:
    return edge.source, edge.target, edge.label


def _stages_of(
    row: NodeRow | EdgeRow, properties: Iterable[Property], fields: Iterable[str]
) -> frozenset[str]:
    """The writers of those properties that differ; of anything else the row's own stage."""
    writers = {p.name: p.stage for p in properties}
    return frozenset(writers.get(name, row.stage) for name in fields) or frozenset({row.stage})


def _edge_change(
    kind: Literal["missing", "extra", "different"],
    row: EdgeRow,
    expected: tuple[FoundEdge, ...],
    held: tuple[FoundEdge, ...],
    fields: Mapping[str, Change] = MappingProxyType({}),
) -> EdgeChange:
    pair = _pair_of((expected or held)[0])
    source, target, _ = pair
    shared = source[:1] == target[:1]
    key = (*source, *target[1:]) if shared else (*source, *target)
    difference = Difference(kind, "edge", row.type, key, fields=fields)
    return EdgeChange(difference, pair, expected, held)


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
