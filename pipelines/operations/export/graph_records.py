"""The memory of a graph, row by row: nodes that can be retrieved, and every edge between them.

What a file about the graph holds follows from the rows of the schema, so a new label or type is
exported without another word. Vectors are left out: they are made from the texts again, and three
quarters of the bytes. Bookkeeping (checkpoints, tombstones, histories) is no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from pipelines.graph.port import Graph
from pipelines.graph.rows import RETRIEVED, FoundEdge, FoundNode, wire_id
from pipelines.operations.export.selection import EXPORTING, ExportReport
from pipelines.work.services import Progress
from projections.events import timestamp_text
from projections.operations import Key
from projections.schema import EDGES, TRAIT, EdgeRow, Kind, NodeRow, Property

EXPORTED: Final = (*RETRIEVED, TRAIT)
"""Labels that are memory, also what no answer to a question holds."""
_STEP = 500
"""Of progress."""
_UNWRITTEN = (Kind.VECTOR, Kind.BYTES)


class NodeRecord(NamedTuple):
    """A node; `values` by property, without those that it does not have.

    Attributes:
        is_placeholder: it was asked for before it came, and holds its key alone.
    """

    row: NodeRow
    node_id: str
    is_placeholder: bool
    values: dict[str, Any]


class EdgeRecord(NamedTuple):
    """An edge between two nodes by their ids; `target_label` of the node where it ends."""

    row: EdgeRow
    source: str
    target: str
    target_label: str
    values: dict[str, Any]


def written(row: NodeRow | EdgeRow) -> list[Property]:
    """The properties that a file holds of a row."""
    return [p for p in row.properties if p.kind not in _UNWRITTEN]


def record_id(label: str, key: Key) -> str:
    """What tells a node from every other: its tenant, and its id on the wire."""
    return f"{key[0]}/{wire_id(label, str(key[1]))}"


def nodes(
    graph: Graph, tenant: str | None, report: ExportReport, progress: Progress
) -> Iterator[NodeRecord]:
    """All nodes of the memory, label by label, in the order of their keys.

    Raises:
        GraphUnavailable: the graph went away.
    """
    for row in EXPORTED:
        properties = written(row)
        for streamed in _stream(graph, row.label, properties, tenant):
            node = cast(FoundNode, streamed)
            _count(row.label, report, progress)
            node_id, values = record_id(row.label, node.key), _told(properties, node.values)
            yield NodeRecord(row, node_id, not node.visible, values)


def edges(
    graph: Graph, tenant: str | None, report: ExportReport, progress: Progress
) -> Iterator[EdgeRecord]:
    """All edges, type by type, in the order of their ends. Raises as `nodes` does."""
    for row in EDGES.values():
        properties = written(row)
        for streamed in _stream(graph, row.type, properties, tenant):
            edge = cast(FoundEdge, streamed)
            _count(row.type, report, progress)
            yield EdgeRecord(
                row=row,
                source=record_id(row.source, edge.source),
                target=record_id(edge.label, edge.target),
                target_label=edge.label,
                values=_told(properties, edge.values),
            )


def _count(name: str, report: ExportReport, progress: Progress) -> None:
    report.written[name] += 1
    if report.written[name] % _STEP == 0:
        progress(report.written.total(), None, EXPORTING)


def _stream(
    graph: Graph, name: str, properties: Sequence[Property], tenant: str | None
) -> Iterator[FoundNode | FoundEdge]:
    tenants = None if tenant is None else (tenant,)
    names = [p.name for p in properties]
    return cast(Iterator[FoundNode | FoundEdge], graph.stream(name, names, tenants=tenants))


def _told(properties: Sequence[Property], values: Any) -> dict[str, Any]:
    """Times as texts, lists as lists."""
    told: dict[str, Any] = {}
    for p in properties:
        value = values[p.name]
        if value is None:
            continue
        if p.kind is Kind.TIME:
            value = timestamp_text(value)
        elif p.kind is Kind.TIMES:
            value = [timestamp_text(item) for item in value]
        elif isinstance(value, tuple):
            value = list(value)
        told[p.name] = value
    return told
