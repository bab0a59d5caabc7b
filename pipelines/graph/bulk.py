"""A graph as the files that `neo4j-admin database import` loads into an empty store.

Loading costs a tenth of writing the same through Bolt. A file holds a table of one label or one
edge type, with a header that says types; nodes are numbered, and edges name their ends by number.
What the format cannot say is left out of the files and told of, so that it is written afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, cast

import orjson
import pyarrow
import pyarrow.compute
import pyarrow.csv

from pipelines.graph.memory import MemoryGraph
from pipelines.graph.port import Graph
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.identity import Key
from projections.schema import EDGES, NODES, EdgeRow, Kind, NodeRow, Property

BETWEEN_ELEMENTS: Final = "\x1e"
"""Stands between the elements of a list; a list with an element that holds it is left out."""
OPTIONS: Final = (
    "--id-type=integer",
    "--array-delimiter=U+001E",
    "--multiline-fields=true",
    "--trim-strings=false",
    "--bad-tolerance=0",
    "--strict=true",
    "--path-pattern-style=none",
)
"""Of the command, which fit these files."""
_TOGETHER: Final = 5_000
"""Rows that are turned at once."""
_RESTORED: Final = 1_000
"""Nodes, or pairs of nodes, that are restored at once."""
_TYPES: Final = {
    Kind.STRING: "string",
    Kind.INTEGER: "long",
    Kind.FLOAT: "double",
    Kind.BOOLEAN: "boolean",
    Kind.TIME: "datetime",
    Kind.STRINGS: "string[]",
    Kind.INTEGERS: "long[]",
    Kind.TIMES: "datetime[]",
    Kind.VECTOR: "double[]",
}
_FLOATS: Final = "float[]"
_ARROW: Final = {
    Kind.INTEGER: pyarrow.int64(),
    Kind.FLOAT: pyarrow.float64(),
    Kind.BOOLEAN: pyarrow.bool_(),
    Kind.TIME: pyarrow.timestamp("ms", "UTC"),
}
_LISTS: Final = {Kind.STRINGS, Kind.INTEGERS, Kind.TIMES}
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


See = Callable[[str, FoundNode | FoundEdge], None]


def unseen(name: str, item: FoundNode | FoundEdge) -> None:
    """Nobody looks."""


@dataclass
class BulkFiles:
    """What was written.

    Attributes:
        nodes: labels joined by `:`, and a file of such nodes.
        edges: type, and a file of such edges.
        left_nodes: by label nodes that the files hold in part, with the values that they lack.
        left_edges: edges by type that the files do not hold.
    """

    nodes: list[tuple[str, Path]] = field(default_factory=list)
    edges: list[tuple[str, Path]] = field(default_factory=list)
    left_nodes: dict[str, list[FoundNode]] = field(default_factory=dict)
    left_edges: dict[str, list[FoundEdge]] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """Options and files, as the command takes them."""
        return [
            *OPTIONS,
            *(f"--nodes={labels}={path}" for labels, path in self.nodes),
            *(f"--relationships={type_}={path}" for type_, path in self.edges),
        ]

    def add(self, other: BulkFiles) -> None:
        """Take in the files of another graph, of another share."""
        self.nodes += other.nodes
        self.edges += other.edges
        for label, nodes in other.left_nodes.items():
            self.left_nodes.setdefault(label, []).extend(nodes)
        for type_, edges in other.left_edges.items():
            self.left_edges.setdefault(type_, []).extend(edges)

    def restore(self, graph: Graph) -> None:
        """Write what the files lack into the graph that was loaded from them."""
        for label, nodes in self.left_nodes.items():
            lacking: dict[tuple[str, ...], list[FoundNode]] = {}
            for node in nodes:
                lacking.setdefault(tuple(node.values), []).append(node)
            for names, alike in lacking.items():
                for some in _parts(iter(alike), _RESTORED):
                    with graph.transaction() as transaction:
                        transaction.restore_values(label, names, some)
        for type_, edges in self.left_edges.items():
            for pairs in _parts(_by_pair(edges), _RESTORED):
                with graph.transaction() as transaction:
                    transaction.restore_edges(type_, chain.from_iterable(pairs))


def write_files(
    graph: MemoryGraph,
    folder: Path,
    *,
    without: Collection[str] = (),
    share: int = 0,
    see: See = unseen,
) -> BulkFiles:
    """Write a whole graph, placeholders too.

    Args:
        graph: which nobody changes meanwhile.
        folder: empty, and this process's own.
        without: labels that are left out, where no edge ends.
        share: number of this graph among those that are loaded together.
        see: called with the label or type of each node and edge, and the node or edge as it is
            held: what it has not is missing, and the vector of an index is an array.

    Raises:
        OSError: the files could not be written.
    """
    writer = _Writer(graph, folder, see, first=share << 40)
    for label, row in NODES.items():
        if label not in without:
            writer.write_nodes(row)
    for edge_row in EDGES.values():
        writer.write_edges(edge_row)
    return writer.files


class _Writer:
    def __init__(self, graph: MemoryGraph, folder: Path, see: See, *, first: int) -> None:
        self.files = BulkFiles()
        self._graph = graph
        self._folder = folder
        self._see = see
        self._next = first
        self._numbers: dict[str, dict[Key, int]] = {}

    def write_nodes(self, row: NodeRow) -> None:
        properties = row.stored()
        numbers = self._numbers[row.label] = {}
        tables: dict[bool, _Table] = {}
        for part in _parts(cast(Iterator[FoundNode], self._graph.held(row.label))):
            for node in part:
                self._see(row.label, node)
                numbers[node.key] = self._next
                self._next += 1
            for visible in {node.visible for node in part}:
                nodes = [node for node in part if node.visible is visible]
                if visible not in tables:
                    tables[visible] = self._node_table(row, properties, nodes[0])
                ids = [numbers[node.key] for node in nodes]
                left = tables[visible].write([ids], [node.values for node in nodes])
                if left:
                    lacking = self.files.left_nodes.setdefault(row.label, [])
                    lacking += [nodes[n]._replace(values=left[n]) for n in sorted(left)]
        _close(tables.values())

    def _node_table(self, row: NodeRow, properties: Sequence[Property], node: FoundNode) -> _Table:
        labels = row.label if node.visible else f"{row.label}:{row.placeholder}"
        path = self._folder / f"{labels.replace(':', '-')}.csv"
        self.files.nodes.append((labels, path))
        return _Table(path, [":ID"], _typed(row, properties, node.key), row.vector)

    def write_edges(self, row: EdgeRow) -> None:
        table: _Table | None = None
        nothing = dict.fromkeys(p.name for p in row.properties)
        listed = [p.name for p in row.properties if p.kind in _LISTS]
        for pairs in _parts(_by_pair(cast(Iterator[FoundEdge], self._graph.held(row.type)))):
            edges: list[FoundEdge] = []
            for copies in pairs:  # restored are all edges of a pair, so none of them is written
                if not listed or all(_is_writable(edge, listed) for edge in copies):
                    edges += copies
                else:
                    left = self.files.left_edges.setdefault(row.type, [])
                    left += [e._replace(values={**nothing, **e.values}) for e in copies]
                for edge in copies:
                    self._see(row.type, edge)
            if table is None:
                path = self._folder / f"{row.type}.csv"
                self.files.edges.append((row.type, path))
                table = _Table(path, [":START_ID", ":END_ID"], row.properties)
            sources = [self._numbers[row.source][edge.source] for edge in edges]
            targets = [self._numbers[edge.label][edge.target] for edge in edges]
            table.write([sources, targets], [edge.values for edge in edges])
        _close([] if table is None else [table])


def _by_pair(edges: Iterable[FoundEdge]) -> Iterator[list[FoundEdge]]:
    """Edges between the same two nodes together, of a stream in the order of its ends."""
    return (list(copies) for _, copies in groupby(edges, attrgetter("source", "target", "label")))


class _Table:
    """One file: numbers first, then a column for each property.

    Args:
        path: of the file.
        ids: headers of the numbers.
        properties: of the columns.
        searched: the vector of an index, whose numbers have four bytes.
    """

    def __init__(
        self,
        path: Path,
        ids: Sequence[str],
        properties: Sequence[Property],
        searched: str | None = None,
    ) -> None:
        self._properties = properties
        self._searched = searched
        types = {p.name: _FLOATS if p.name == searched else _TYPES[p.kind] for p in properties}
        names = [*ids, *(f"{name}:{type_}" for name, type_ in types.items())]
        kinds = [pyarrow.int64()] * len(ids)
        kinds += [
            pyarrow.string() if p.kind is Kind.TIME else _ARROW.get(p.kind, pyarrow.string())
            for p in properties
        ]
        self._schema = pyarrow.schema(list(zip(names, kinds, strict=True)))
        # Nothing is no value, and nothing between quotes is an empty one.
        options = pyarrow.csv.WriteOptions(quoting_style="all_valid")
        self._writer = pyarrow.csv.CSVWriter(str(path), self._schema, write_options=options)

    def write(
        self, ids: Sequence[Sequence[int]], values: Sequence[Any]
    ) -> dict[int, dict[str, Any]]:
        """Add rows; returns by row what it holds and the format cannot say."""
        left: dict[int, dict[str, Any]] = {}
        columns = [pyarrow.array(column, pyarrow.int64()) for column in ids]
        for p in self._properties:
            column = [held.get(p.name) for held in values]
            columns.append(_column(p, column, left))
        self._writer.write(pyarrow.table(columns, schema=self._schema))
        return left

    def close(self) -> None:
        self._writer.close()


def _typed(row: NodeRow, properties: Sequence[Property], key: Key) -> list[Property]:
    """Properties with the types that the parts of the key have."""
    whole = {name for name, part in zip(row.key, key, strict=True) if isinstance(part, int)}
    return [Property(p.name, Kind.INTEGER) if p.name in whole else p for p in properties]


def _column(p: Property, values: list[Any], left: dict[int, dict[str, Any]]) -> pyarrow.Array[Any]:
    if p.kind is Kind.TIME:
        return _times(values)
    if p.kind in _LISTS:
        for n, value in enumerate(values):
            if value is not None and not _can_join(value):
                left.setdefault(n, {})[p.name] = value
                values[n] = None
    if p.kind is Kind.VECTOR:
        return pyarrow.array([None if value is None else _vector(value) for value in values])
    if p.kind is Kind.TIMES:
        texts = [None if value is None else _times(value).to_pylist() for value in values]
        return pyarrow.array([None if text is None else _joined(text) for text in texts])
    if p.kind is Kind.INTEGERS:
        return pyarrow.array(
            [None if value is None else _joined(map(str, value)) for value in values]
        )
    if p.kind is Kind.STRINGS:
        texts = [None if value is None else _joined(value) for value in values]
        return pyarrow.array(texts, pyarrow.string())
    return pyarrow.array(values, _ARROW.get(p.kind, pyarrow.string()))


def _times(milliseconds: Sequence[int | None]) -> pyarrow.Array[Any]:
    times = pyarrow.array(milliseconds, _ARROW[Kind.TIME])
    return pyarrow.compute.strftime(times, format=_TIME_FORMAT)


def _vector(numbers: Any) -> str:
    """The shortest digits that give the same numbers; half as many where these have four bytes."""
    text = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)
    return text[1:-1].decode().replace(",", BETWEEN_ELEMENTS)


def _joined(elements: Iterable[str]) -> str:
    return BETWEEN_ELEMENTS.join(elements)


def _can_join(elements: Sequence[Any]) -> bool:
    """An empty list would be none, and an empty element would be no element."""
    return bool(elements) and all(
        element != "" and BETWEEN_ELEMENTS not in str(element) for element in elements
    )


def _is_writable(edge: FoundEdge, listed: Iterable[str]) -> bool:
    lists = map(edge.values.get, listed)
    return all(one is None or _can_join(one) for one in lists)


def _parts(items: Iterator[Any], most: int = _TOGETHER) -> Iterator[list[Any]]:
    while part := list(islice(items, most)):
        yield part


def _close(tables: Iterable[_Table]) -> None:
    for table in tables:
        table.close()
