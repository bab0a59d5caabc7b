"""Which part of a graph a proof is about, what nobody can judge of it, and what it comes to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Final, cast

from pipelines.graph.port import FoundEdge, FoundNode, Graph, Reads
from pipelines.proof.compare import EdgeChange, NodeChange
from pipelines.proof.expected import LedgerFold
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
)

Change = NodeChange | EdgeChange
Tenants = Collection[str] | None


@dataclass(frozen=True, slots=True)
class Scope:
    """What is told of, and repaired.

    Attributes:
        stages: what these write; None: all.
        tenant: only this one's; None: all.
        session: only this session of the tenant: its events, whatever joins them to others, and
            nodes that name it.
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

    def may_have(self, change: Change) -> bool:
        """Whether it is about what differs, whichever session that belongs to."""
        return self.stages is None or not self.stages.isdisjoint(change.stages)

    def has(self, change: Change, events: Set[Key]) -> bool:
        """Whether it is about what differs; `events` are those of its session."""
        if isinstance(change, EdgeChange):
            inside = not events.isdisjoint(change.pair[:2])
        else:
            inside = change.key in events or any(
                node is not None and self.session in (*node.key, node.values.get("session_id"))
                for node in (change.expected, change.held)
            )
        return inside and self.may_have(change)

    def events_of(self, graph: Reads) -> set[Key]:
        """Keys of the session's events in a graph."""
        row = (self.tenant, self.session)
        nodes = graph.find(EVENT.label, EVENT.indexes[0][:2], [row])
        return {node.key for node in nodes.get(row, [])}


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
        known = {EVENT.label: self.events, ENTITY.label: self._entities}
        return change.key in known.get(label, ())

    def _is_in(self, node: FoundNode | None) -> bool:
        entries = () if node is None else node.values["entries"] or ()
        return any(str(key[1]) in str(entry) for key in self.events for entry in entries)


def described(report: ProofReport, fold: LedgerFold, scope: Scope) -> None:
    """Put what the ledger says into a report: digests, events, dead letters, awaited parents."""
    graph = fold.graph
    report.part = scope.text
    inside = scope.events_of(graph) if scope.session is not None else None
    for name, finding in report.stages.items():
        finding.digest = digest_text(_digest(graph, name, inside))
    gone = {node.key for node in _nodes(graph, FORGOTTEN.label)}
    events = set(gone) if inside is None else {key for key in inside if key in gone}
    for node in _nodes(graph, EVENT.label):
        if node.visible and (inside is None or node.key in inside):
            events.add(node.key)
        elif inside is None and not node.visible and node.key not in gone:
            report.waiting_parent_count += 1
            if len(report.waiting_parents) < LISTED:
                report.waiting_parents.append((str(node.key[0]), str(node.key[1])))
    report.events = len(events)
    dead = [one for one in graph.dead_letters() if scope.has_stage(one["stage"])]
    report.dead_letter_count, report.dead_letters = len(dead), dead[:LISTED]
    for letter in dead:
        report.stages[letter["stage"]].dead_letter_count += 1
    if scope.is_whole:
        passed = sum(one["stage"] == PROJECTION.name for one in graph.dead_letters())
        report.system_events = fold.entries[PROJECTION.name] - passed - report.events


def _digest(graph: Graph, stage: str, inside: Set[Key] | None) -> int:
    """Sum of the numbers of what a stage has written; of a session, of its events and edges."""
    number = 0
    for label, row in NODES.items():
        if label != DEAD_LETTER.label and (names := digested(row, stage)):
            for node in _nodes(graph, label, names):
                if node.visible and (inside is None or node.key in inside):
                    number += node_number(row, stage, node.key, node.values)
    for type_, edge_row in EDGES.items():
        if edge_row.written_by(stage):
            names = [p.name for p in edge_row.properties]
            for edge in cast(Iterator[FoundEdge], graph.stream(type_, names)):
                if inside is None or edge.source in inside:
                    number += edge_number_of(
                        edge_row, stage, edge.source, edge.target, values=edge.values
                    )
    return number


def _nodes(graph: Graph, label: str, properties: Iterable[str] = ()) -> Iterator[FoundNode]:
    return cast(Iterator[FoundNode], graph.stream(label, tuple(properties)))
