"""The memory of a graph, row by row, as GraphML and as PROV-JSON.

Told are the nodes that can be retrieved, and every edge between them. What a file about the graph
holds follows from the rows of the schema, so a new label or type is exported without another word.
Vectors are left out: they are made from the texts again, and three quarters of the bytes.
Bookkeeping (checkpoints, tombstones, histories) is no memory.

GraphML (graphml.graphdrawing.org/xmlns) is what NetworkX, Gephi and yEd read. It is written piece
by piece with the standard library, for NetworkX would hold all of it. Lists are JSON texts, times
RFC 3339 texts, for GraphML has neither.

PROV-JSON (the W3C member submission of 2013-04-24) follows the schema's PROV column. An event is
two things in PROV: an *activity*, which began and ended, and an *entity*, its record, which that
activity generated (`<id>.record`). Its agent is an agent that the activity was associated with.
Entities of the memory, summaries and communities are entities. RELATIONS says what becomes of each
type of edge. PROV-JSON is one object with a member for each kind of statement, so the parts are
collected in temporary files, and joined at the end: one pass over the graph, and one record in
memory.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import IO, Any, Final, NamedTuple, cast
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import orjson

from pipelines.graph.port import Graph
from pipelines.graph.rows import RETRIEVED, FoundEdge, FoundNode, wire_id
from pipelines.ledger.command_notes import Progress
from pipelines.operations.export.events import EXPORTING, ExportReport
from projections.events import timestamp_text
from projections.operations import Key
from projections.schema import (
    ABSTRACTED_FROM,
    CAUSED_BY,
    COMMUNITY,
    DERIVED_FROM,
    EDGES,
    EVENT,
    FOLLOWS,
    LINKED_TO,
    MEMBER_OF,
    PARENT_SKILL,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    SUMMARIZES,
    TRAIT,
    TRAIT_EDGES,
    EdgeRow,
    Kind,
    NodeRow,
    Property,
)

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


PREFIX: Final = "recollect"
NAMESPACE: Final = "urn:recollect:"
_IN_MEMORY_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 16
_COLLECTION: Final = {"$": "prov:Collection", "type": "prov:QUALIFIED_NAME"}


class Relation(NamedTuple):
    """What an edge is in PROV: the statement, and the roles of its source and its target."""

    name: str
    source: str
    target: str


RELATIONS: Final[Mapping[str, Relation | None]] = {
    CAUSED_BY.type: Relation("wasInformedBy", "prov:informed", "prov:informant"),
    REFERENCES.type: Relation("used", "prov:activity", "prov:entity"),
    # loosely: alike is all that they are
    SIMILAR_TO.type: Relation("wasDerivedFrom", "prov:generatedEntity", "prov:usedEntity"),
    RELATES_TO.type: Relation("wasInfluencedBy", "prov:influencee", "prov:influencer"),
    LINKED_TO.type: Relation("wasInfluencedBy", "prov:influencee", "prov:influencer"),
    SAME_AS.type: Relation("alternateOf", "prov:alternate1", "prov:alternate2"),
    SUMMARIZES.type: Relation("alternateOf", "prov:alternate1", "prov:alternate2"),
    MEMBER_OF.type: Relation("hadMember", "prov:entity", "prov:collection"),
    **dict.fromkeys(
        (row.type for row in TRAIT_EDGES.values()),
        Relation("wasInfluencedBy", "prov:influencer", "prov:influencee"),
    ),
    **dict.fromkeys(
        (row.type for row in (ABSTRACTED_FROM, DERIVED_FROM, PARENT_SKILL)),
        Relation("wasDerivedFrom", "prov:generatedEntity", "prov:usedEntity"),
    ),
    # PROV has no term for it, and the times of activities say the same
    FOLLOWS.type: None,
}
_OF_ACTIVITIES: Final = ("prov:informed", "prov:informant", "prov:activity")
"""Roles of an event as what happened; in any other it is its record."""


def prov_json(
    graph: Graph, tenant: str | None, report: ExportReport, progress: Progress
) -> Iterator[bytes]:
    """The document, piece by piece, once the graph was read.

    Raises:
        GraphUnavailable: the graph went away.
        OSError: there is no room for temporary files.
    """
    with ExitStack() as opened:
        members = _Members(opened)
        for node in nodes(graph, tenant, report, progress):
            _tell_node(node, members)
        for edge in edges(graph, tenant, report, progress):
            relation = RELATIONS[edge.row.type]
            if relation is None:
                continue
            ends = {
                relation.source: _end(edge.source, edge.row.source, relation.source),
                relation.target: _end(edge.target, edge.target_label, relation.target),
            }
            members.relate(relation.name, {**ends, **_attributes(edge.row.type, edge.values)})
        left_out = [name for name, row in RELATIONS.items() if row is None and report.written[name]]
        for name in left_out:
            del report.written[name]
            report.notes.append(f"{name} is not in the file: PROV has no term for it")
        yield from members.document()


class _Members:
    """The members of the document, each in a temporary file of its own."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self._files: dict[str, IO[bytes]] = {}
        self._agents: set[str] = set()
        self._statements = 0

    def add(self, member: str, own_id: str, attributes: Mapping[str, Any]) -> None:
        out = self._files.get(member)
        if out is None:
            out = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - on the stack
            self._opened.enter_context(out)
            self._files[member] = out
        out.write(b",\n" if out.tell() else b"\n")
        out.write(orjson.dumps(own_id) + b": " + orjson.dumps(attributes))

    def relate(self, name: str, attributes: Mapping[str, Any]) -> None:
        self._statements += 1
        self.add(name, f"_:{self._statements}", attributes)

    def agent(self, tenant: str, agent_id: str) -> str:
        """The name of an agent, told once."""
        name = f"{PREFIX}:{tenant}/agent.{quote(agent_id, safe='')}"
        if name not in self._agents:
            self._agents.add(name)
            self.add("agent", name, {"prov:label": agent_id})
        return name

    def document(self) -> Iterator[bytes]:
        yield b'{"prefix": ' + orjson.dumps({PREFIX: NAMESPACE})
        for member, out in self._files.items():
            yield b",\n" + orjson.dumps(member) + b": {"
            out.seek(0)
            while chunk := out.read(_CHUNK_BYTES):
                yield chunk
            yield b"}"
        yield b"}\n"


def _tell_node(node: NodeRecord, members: _Members) -> None:
    attributes = _attributes(node.row.label, node.values)
    if node.is_placeholder:
        attributes["recollect:placeholder"] = True
    if node.row is not EVENT:
        if node.row is COMMUNITY:
            attributes["prov:type"] = _COLLECTION
        members.add("entity", _name(node.node_id), attributes)
        return
    activity, record = _name(node.node_id), _record(node.node_id)
    times = {"prov:startTime": "occurred_at", "prov:endTime": "ended_at"}
    told = {role: node.values[name] for role, name in times.items() if name in node.values}
    members.add("activity", activity, {**told, **attributes})
    if not node.is_placeholder:
        members.add("entity", record, {"prov:label": node.values.get("summary", node.node_id)})
        members.relate("wasGeneratedBy", {"prov:entity": record, "prov:activity": activity})
        agent = members.agent(node.node_id.partition("/")[0], node.values["agent_id"])
        members.relate("wasAssociatedWith", {"prov:activity": activity, "prov:agent": agent})


def _attributes(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known, under our own names; an attribute with no value is none in PROV."""
    told = {f"{PREFIX}:{name}": value for name, value in values.items() if value != []}
    return {f"{PREFIX}:what": what, **told}


def _end(node_id: str, label: str, role: str) -> str:
    is_record = label == EVENT.label and role not in _OF_ACTIVITIES
    return _record(node_id) if is_record else _name(node_id)


def _record(node_id: str) -> str:
    return f"{_name(node_id)}.record"


def _name(node_id: str) -> str:
    """A qualified name; a colon would have to be escaped in other notations of PROV."""
    return f"{PREFIX}:{node_id.replace(':', '.')}"
