"""The graph as PROV-JSON (the W3C member submission of 2013-04-24), by the schema's PROV column.

An event is two things in PROV: an *activity*, which began and ended, and an *entity*, its record,
which that activity generated (`<id>.record`). Its agent is an agent that the activity was
associated with. Entities of the memory, summaries and communities are entities. RELATIONS says
what becomes of each type of edge.

PROV-JSON is one object with a member for each kind of statement, so the parts are collected in
temporary files, and joined at the end: one pass over the graph, and one record in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from pipelines.graph.port import Graph
from pipelines.operations.export.graph_records import NodeRecord, edges, nodes
from pipelines.operations.export.selection import ExportReport
from pipelines.work.services import Progress
from projections.schema import (
    ABSTRACTED_FROM,
    CAUSED_BY,
    COMMUNITY,
    DERIVED_FROM,
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
    TRAIT_EDGES,
)

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
