"""Which part of a graph a proof is about, and what it found: for a person, JSON and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pipelines.graph.port import Graph, Reads
from pipelines.graph.rows import End, FoundEdge, FoundNode
from pipelines.proof.compare import Difference, EdgeChange, NodeChange
from pipelines.proof.sums import digest_text, digested, edge_number_of, node_number
from pipelines.work.stages import PROJECTION
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
    SIMILAR_TO,
    EdgeRow,
    NodeRow,
)

LISTED: Final = 1_000
"""Differences, dead letters and awaited parents that a report names; all are counted."""


@dataclass(slots=True)
class StageFinding:
    """What was found of one stage.

    Attributes:
        entries: of the ledger that were folded; of the columns events that were compared.
        digest: of what the ledger says the stage must have made; empty where nothing was folded.
        difference_count: differences in what it writes; one that concerns two stages is counted by
            both.
        dead_letter_count: entries that it passed without folding them.
        lag_entries: not folded yet, and so not compared.
    """

    entries: int = 0
    digest: str = ""
    difference_count: int = 0
    dead_letter_count: int = 0
    lag_entries: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": not self.difference_count,
            "entries": self.entries,
            "digest": self.digest,
            "difference_count": self.difference_count,
            "dead_letter_count": self.dead_letter_count,
            "lag_entries": self.lag_entries,
        }


@dataclass(slots=True)
class ProofReport:
    """How a graph compares with its ledger, up to the checkpoints.

    Attributes:
        target: whose graph.
        part: of which it is told; empty: all of it.
        stages: what was found of each stage that was compared, in their order; then `columns`,
            if they were.
        compared: nodes and edges that must be there, by label and type.
        differences: of the last look, the first LISTED.
        difference_count: all of them.
        found_count: of the first look, before anything was repaired.
        repaired: how many differences were repaired.
        events: that the ledger holds and the graph has taken in, forgotten ones too.
        system_events: likewise.
        unread: events whose payload, or whose answer of a language model, is not at hand any more;
            what depends on them is not compared.
        dead_letters: what stages could not fold; no differences, for the graph says so itself.
        waiting_parents: tenant and id of events that are only the cause of another so far.
        notes: what was tolerated, and why.
        duration_s: of all looks and repairs.
    """

    target: str = ""
    part: str = ""
    stages: dict[str, StageFinding] = field(default_factory=dict)
    compared: Mapping[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    found_count: int = 0
    repaired: int = 0
    events: int = 0
    system_events: int = 0
    unread: int = 0
    dead_letters: list[Mapping[str, Any]] = field(default_factory=list)
    dead_letter_count: int = 0
    waiting_parents: list[tuple[str, str]] = field(default_factory=list)
    waiting_parent_count: int = 0
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing differs. Dead letters and lag are no differences."""
        return not self.difference_count

    @property
    def digest(self) -> str:
        """Of the first stage that was compared."""
        return next((stage.digest for stage in self.stages.values()), "")

    @property
    def lag_entries(self) -> int:
        """Of the first stage that was compared, which the others are behind."""
        return next((stage.lag_entries for stage in self.stages.values()), 0)

    @property
    def scope(self) -> str:
        """What was compared, in one line."""
        things = ", ".join(f"{number:,} {name}" for name, number in self.compared.items() if number)
        part = f" of {self.part}" if self.part else ""
        return f"compared{part}: {', '.join(self.stages)}: {things or 'nothing is there'}"

    def take_in(self, part: ProofReport) -> None:
        """Add what differs in a part of the graph, of which all else is told already."""
        for name, finding in part.stages.items():
            self.stages[name].difference_count += finding.difference_count
        self.differences = [*self.differences, *part.differences][:LISTED]
        self.difference_count += part.difference_count
        self.found_count += part.found_count
        self.repaired += part.repaired
        self.unread += part.unread
        self.notes += part.notes

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "target": self.target,
            "scope": self.scope,
            "events": self.events,
            "system_events": self.system_events,
            "digest": self.digest,
            "stages": {name: one.as_dict() for name, one in self.stages.items()},
            "compared": dict(self.compared),
            "differences": [difference.as_dict() for difference in self.differences],
            "difference_count": self.difference_count,
            "found_count": self.found_count,
            "repaired": self.repaired,
            "unread": self.unread,
            "waiting_parents": [
                {"tenant": tenant, "event_id": event_id}
                for tenant, event_id in self.waiting_parents
            ],
            "waiting_parent_count": self.waiting_parent_count,
            "dead_letters": list(map(dict, self.dead_letters)),
            "dead_letter_count": self.dead_letter_count,
            "lag_entries": self.lag_entries,
            "notes": list(self.notes),
            "duration_s": round(self.duration_s, 3),
        }


Change = NodeChange | EdgeChange
Tenants = Collection[str] | None
"""None: all."""
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
        among: only these tenants'; what is of one tenant is one that `tenant` names.
        schema: whether indexes, constraints and what is foreign belong to it, though not all does.
    """

    stages: frozenset[str] | None = None
    tenant: str | None = None
    session: str | None = None
    among: frozenset[str] | None = None
    schema: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self == EVERYTHING

    @property
    def tenants(self) -> Tenants:
        """For streams."""
        return self.among if self.tenant is None else frozenset({self.tenant})

    @property
    def has_schema(self) -> bool:
        """Whether indexes, constraints and what is foreign are looked at."""
        return self.schema or self.is_whole

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
    _alike: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.events = set(self.keys)
        for graph in (self.expected, self.held) if self.events else ():
            mentions = graph.edges(REFERENCES.type, sorted(self.events))
            self._entities |= {edge.target for edges in mentions.values() for edge in edges}
            # what is like one of them may be like others instead
            alike = graph.edges(SIMILAR_TO.type, sorted(self.events), by=End.EITHER)
            for edge in (edge for edges in alike.values() for edge in edges):
                self._alike |= {edge.source, edge.target}

    def explains(self, change: Change) -> bool:
        """Whether a difference may be due to one of them."""
        if not self.events:
            return False
        if isinstance(change, EdgeChange):
            ends = {change.pair[0], change.pair[1]}
            if change.difference.type == SIMILAR_TO.type and not ends.isdisjoint(self._alike):
                return True
            return not ends.isdisjoint(self.events | self._entities)
        label = change.difference.type
        if label == FACT_HISTORY.label:
            return any(self._is_in(node) for node in (change.expected, change.held))
        unsure = {
            EVENT.label: self.events,
            FORGOTTEN.label: self.events,
            ENTITY.label: self._entities,
        }
        return change.key in unsure.get(label, ())

    def _is_in(self, node: FoundNode | None) -> bool:
        entries = () if node is None else node.values["entries"] or ()
        return any(str(key[1]) in str(entry) for key in self.events for entry in entries)


def described(
    report: ProofReport,
    graph: Graph,
    entries: Mapping[str, int],
    scope: Scope,
    digests: Mapping[str, int] | None = None,
) -> None:
    """Put what the ledger says into a report: digests, events, dead letters, awaited parents.

    Args:
        report: of the stages that are told of.
        graph: what the ledger comes to.
        entries: how many were folded, by stage.
        scope: which part of the graph it is about.
        digests: by stage, where they were added up before; None: they are now.
    """
    report.part = scope.text
    members = scope.members_of(graph) if scope.session is not None else None
    for name, finding in report.stages.items():
        number = _digest(graph, name, members) if digests is None else digests[name]
        finding.digest = digest_text(number)
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
    dead = [
        dead_letter for dead_letter in graph.dead_letters() if scope.has_stage(dead_letter["stage"])
    ]
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
            names = tuple(p.name for p in edge_row.properties)
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
