"""Which part of a graph a proof is about, what nobody can judge of it, and what it comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, cast

from pipelines.graph.port import Graph, Reads
from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.proof.compare import EdgeChange, NodeChange
from pipelines.proof.report import LISTED, ProofReport
from pipelines.work.stages import PROJECTION
from projections.digest import digest_text, digested, edge_number_of, node_number
from projections.operations import Key
from projections.schema import (
    DEAD_LETTER,
    EDGES,
    ENTITY,
    EVENT,
    FACT_HISTORY,
    FORGOTTEN,
    NODES,
    REFERENCES,
    EdgeRow,
    NodeRow,
)

Change = NodeChange | EdgeChange
Tenants = Collection[str] | None
Member = tuple[str, Key]
"""A node: its label and its key."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is told of, and repaired.

    Attributes:
        stages: what these write; None: all.
        tenant: only this one's; None: all.
        session: only this session of the tenant: its events, whatever else names it, and the edges
            that start at these.
    """

    stages: frozenset[str] | None = None
    tenant: str | None = None
    session: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self == EVERYTHING

    @property
    def tenants(self) -> Tenants:
        """For streams."""
        return None if self.tenant is None else (self.tenant,)

    @property
    def text(self) -> str:
        """What of a graph it is, for a person; empty: all of it."""
        parts = (("session", self.session), ("tenant", self.tenant))
        return ", ".join(f"{name} {value}" for name, value in parts if value is not None)

    def has_stage(self, name: str) -> bool:
        """Whether it is about what a stage writes."""
        return self.stages is None or name in self.stages

    def covers(self, row: NodeRow | EdgeRow) -> bool:
        """Whether it is about a label or an edge type, or a property of one."""
        writers = {p.stage for p in row.properties} | {row.stage}
        return self.stages is None or not self.stages.isdisjoint(writers)

    def may_have(self, change: Change) -> bool:
        """Whether it is about what differs, whichever session that belongs to."""
        return self.stages is None or not self.stages.isdisjoint(change.stages)

    def has(self, change: Change, members: Set[Member]) -> bool:
        """Whether it is about what differs; `members` are the nodes of its session."""
        if isinstance(change, EdgeChange):
            inside = (EDGES[change.difference.type].source, change.pair[0]) in members
        elif (change.difference.type, change.key) in members:
            inside = True
        else:
            node = change.expected or change.held
            inside = node is not None and node.values.get("session_id") == self.session
        return inside and self.may_have(change)

    def members_of(self, graph: Graph) -> set[Member]:
        """The nodes of the session in a graph: its events and whatever else names it."""
        members: set[Member] = set()
        for label, row in NODES.items():
            if "session_id" not in (*row.key, *(p.name for p in row.properties)):
                continue
            if any(index[:2] == ("tenant", "session_id") for index in row.indexes):
                nodes = graph.find(label, ("tenant", "session_id"), [(self.tenant, self.session)])
                members |= {(label, node.key) for some in nodes.values() for node in some}
            else:
                members |= {
                    (label, node.key)
                    for node in _nodes(graph, label, ("session_id",), self.tenants)
                    if node.values["session_id"] == self.session
                }
        return members


EVERYTHING: Final = Scope()


@dataclass(slots=True)
class Unread:
    """What depends on events that nobody can read any more as they were read once.

    Args:
        keys: of those events.
        expected, held: the graphs that are compared.
    """

    keys: Iterable[Key]
    expected: Reads
    held: Reads
    events: set[Key] = field(default_factory=set)
    _entities: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.events = set(self.keys)
        for graph in (self.expected, self.held) if self.events else ():
            mentions = graph.edges(REFERENCES.type, sorted(self.events))
            self._entities |= {edge.target for edges in mentions.values() for edge in edges}

    def explains(self, change: Change) -> bool:
        """Whether a difference may be due to one of them."""
        if not self.events:
            return False
        if isinstance(change, EdgeChange):
            ends = {change.pair[0], change.pair[1]}
            return not ends.isdisjoint(self.events | self._entities)
        label = change.difference.type
        if label == FACT_HISTORY.label:
            return any(self._is_in(node) for node in (change.expected, change.held))
        unsure = {EVENT.label: self.events, ENTITY.label: self._entities}
        return change.key in unsure.get(label, ())

    def _is_in(self, node: FoundNode | None) -> bool:
        entries = () if node is None else node.values["entries"] or ()
        return any(str(key[1]) in str(entry) for key in self.events for entry in entries)


def described(report: ProofReport, graph: Graph, entries: Mapping[str, int], scope: Scope) -> None:
    """Put what the ledger says into a report: digests, events, dead letters, awaited parents."""
    report.part = scope.text
    members = scope.members_of(graph) if scope.session is not None else None
    for name, finding in report.stages.items():
        finding.digest = digest_text(_digest(graph, name, members))
    gone = {node.key for node in _nodes(graph, FORGOTTEN.label)}
    events = {key for key in gone if members is None or (FORGOTTEN.label, key) in members}
    for node in _nodes(graph, EVENT.label):
        if node.visible and (members is None or (EVENT.label, node.key) in members):
            events.add(node.key)
        elif members is None and not node.visible and node.key not in gone:
            report.waiting_parent_count += 1
            if len(report.waiting_parents) < LISTED:
                report.waiting_parents.append((str(node.key[0]), str(node.key[1])))
    if members is not None:
        report.compared = Counter(label for label, _ in members)
    report.events = len(events)
    dead = [one for one in graph.dead_letters() if scope.has_stage(one["stage"])]
    report.dead_letter_count, report.dead_letters = len(dead), dead[:LISTED]
    for letter in dead:
        report.stages[letter["stage"]].dead_letter_count += 1
    if scope.is_whole:
        passed = len(graph.dead_letters(PROJECTION.name))
        report.system_events = entries[PROJECTION.name] - passed - report.events


def held_digest(graph: Graph, stage: str, *, tenant: str) -> str:
    """What a graph comes to that nobody proves: the digest of its ledger, if it is right."""
    return digest_text(_digest(graph, stage, None, (tenant,)))


def _digest(graph: Graph, stage: str, members: Set[Member] | None, tenants: Tenants = None) -> int:
    """Sum of the numbers of what a stage has written; of a session, of what starts at its nodes."""
    number = 0
    for label, row in NODES.items():
        if label != DEAD_LETTER.label and (names := digested(row, stage)):
            for node in _nodes(graph, label, names, tenants):
                if node.visible and (members is None or (label, node.key) in members):
                    number += node_number(row, stage, node.key, node.values)
    for type_, edge_row in EDGES.items():
        if edge_row.written_by(stage):
            names = [p.name for p in edge_row.properties]
            for edge in cast(Iterator[FoundEdge], graph.stream(type_, names, tenants=tenants)):
                if members is None or (edge_row.source, edge.source) in members:
                    number += edge_number_of(
                        edge_row, stage, edge.source, edge.target, values=edge.values
                    )
    return number


def _nodes(
    graph: Graph, label: str, properties: Iterable[str] = (), tenants: Tenants = None
) -> Iterator[FoundNode]:
    return cast(Iterator[FoundNode], graph.stream(label, tuple(properties), tenants=tenants))
