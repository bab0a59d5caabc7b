"""The graph as GraphML (graphml.graphdrawing.org/xmlns), which NetworkX, Gephi and yEd read.

Written piece by piece with the standard library, for NetworkX would hold all of it. Lists are JSON
texts, times RFC 3339 texts, for GraphML has neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

import orjson

from pipelines.graph.port import Graph
from pipelines.operations.export.graph_records import EXPORTED, edges, nodes, written
from pipelines.operations.export.selection import ExportReport
from pipelines.work.services import Progress
from projections.schema import EDGES, EdgeRow, Kind, NodeRow

_TYPES: Final = {Kind.INTEGER: "long", Kind.FLOAT: "double", Kind.BOOLEAN: "boolean"}
_HEAD: Final = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
"""
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


def graphml(
    graph: Graph, tenant: str | None, report: ExportReport, progress: Progress
) -> Iterator[bytes]:
    """The document, piece by piece.

    Raises:
        GraphUnavailable: the graph went away.
    """
    yield _HEAD.encode()
    yield from _keys("node", EXPORTED, ("label", "placeholder"))
    yield from _keys("edge", EDGES.values(), ("type",))
    yield b'<graph id="recollect" edgedefault="directed">\n'
    for node in nodes(graph, tenant, report, progress):
        placeholder = {"placeholder": True} if node.is_placeholder else {}
        data = _data("node", {"label": node.row.label, **placeholder, **node.values})
        yield f"<node id={quoteattr(node.node_id)}>{data}</node>\n".encode()
    for edge in edges(graph, tenant, report, progress):
        data = _data("edge", {"type": edge.row.type, **edge.values})
        ends = f"source={quoteattr(edge.source)} target={quoteattr(edge.target)}"
        yield f"<edge {ends}>{data}</edge>\n".encode()
    yield b"</graph>\n</graphml>\n"


def _keys(
    domain: str, rows: Iterable[NodeRow | EdgeRow], own_names: Iterable[str]
) -> Iterator[bytes]:
    """Declarations: GraphML knows a property by one type, whichever label or type has it."""
    types: dict[str, str] = {}
    for row in rows:
        for p in written(row):
            type_ = _TYPES.get(p.kind, "string")
            types[p.name] = type_ if types.get(p.name, type_) == type_ else "string"
    own_types = {name: "boolean" if name == "placeholder" else "string" for name in own_names}
    for name, type_ in {**types, **own_types}.items():
        yield (
            f'<key id="{domain}.{name}" for="{domain}" attr.name="{name}" attr.type="{type_}"/>\n'
        ).encode()


def _data(domain: str, values: Mapping[str, Any]) -> str:
    return "".join(
        f'<data key="{domain}.{name}">{escape(_text(value))}</data>'
        for name, value in values.items()
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = orjson.dumps(value).decode() if isinstance(value, list) else str(value)
    return _ILLEGAL.sub("\ufffd", text)
