"""What reads of the graph return, and how its nodes are called on the wire: records, no driver.

Modules that only calculate with these records (most of `api.retrieval`) load nothing else of the
graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

from projections.identity import Key, Link, Position, SessionKey
from projections.schema import COMMUNITY, ENTITY, EVENT, RELATES_TO, SUMMARY

RETRIEVED: Final = (EVENT, ENTITY, SUMMARY, COMMUNITY)
"""Labels that an answer may hold."""
PREFIXES: Final = {row.label: f"{row.label.lower()}:" for row in RETRIEVED if row is not EVENT}
ENTITY_PREFIX: Final = PREFIXES[ENTITY.label]
SUMMARY_PREFIX: Final = PREFIXES[SUMMARY.label]
COMMUNITY_PREFIX: Final = PREFIXES[COMMUNITY.label]
DEFAULT_IMPORTANCE: Final = 5
"""Of an event for which neither the producer nor a stage has said anything."""

Signal = Literal["recurring_pattern", "entity_context", "retrieval_history"]
"""Why an event is relevant that nobody asked for."""


_NOT_EVENTS: Final = tuple(PREFIXES.values())


def wire_id(label: str, own_id: str) -> str:
    """An id as clients see it."""
    return PREFIXES.get(label, "") + own_id


def label_and_id(node_id: str) -> tuple[str, str]:
    """What a wire id means."""
    if is_event(node_id):  # as most are
        return EVENT.label, node_id
    for label, prefix in PREFIXES.items():
        if node_id.startswith(prefix):
            return label, node_id[len(prefix) :]
    return EVENT.label, node_id


def is_event(node_id: str) -> bool:
    """Whether a wire id is an event's."""
    return not node_id.startswith(_NOT_EVENTS)


def ids_by_label(node_ids: Iterable[str]) -> dict[str, list[str]]:
    """Own ids of each label that can be retrieved, in order."""
    ids: dict[str, list[str]] = {row.label: [] for row in RETRIEVED}
    for node_id in node_ids:
        label, own_id = label_and_id(node_id)
        ids[label].append(own_id)
    return ids


class Hit(NamedTuple):
    """An event that a channel found; `score` as of the channel, higher is better."""

    event_id: str
    score: float


class Hits(NamedTuple):
    """What a channel found: the best first, and ids of what is kept from the viewer."""

    shown: list[Hit]
    withheld: list[str]


class SessionEvent(NamedTuple):
    """One of the last events of a session."""

    event_id: str
    occurred_at_ms: int
    importance: int
    user_id: str | None
    agent_id: str


class SessionCandidate(NamedTuple):
    """What ranking needs to know of an event.

    Attributes:
        used_at_ms: the later of occurred_at and the last access.
        importance: 1 to 10.
        access_count: how often a read has returned it.
    """

    event_id: str
    occurred_at_ms: int
    used_at_ms: int
    importance: int
    access_count: int


class SessionCandidates(NamedTuple):
    """The events of a session that may be its best.

    Attributes:
        total: events of the session that the viewer may see.
        withheld: that the viewer may not.
    """

    best: list[SessionCandidate]
    total: int
    withheld: int


class StepEdge(NamedTuple):
    """An edge met on a walk, between wire ids; `source` and `target` as in the graph.

    Attributes:
        view: the edge type of a fact (semantic, temporal …); empty for all others.
        properties: those that tell its quality.
        reached: the end that it leads to.
        closed: that is not walked on from.
        at_ms: since when it is so, where that is known.
    """

    type: str
    source: str
    target: str
    view: str
    properties: Mapping[str, Any]
    reached: str
    closed: bool
    at_ms: int | None


class EntitySurroundings(NamedTuple):
    """How an entity stands in the graph.

    Attributes:
        degree: facts at either end.
        edge_types: distinct ones among them.
        is_same: as another entity.
    """

    degree: int
    edge_types: int
    community_id: str | None
    is_same: bool


class Signalled(NamedTuple):
    """An event that the graph finds relevant beside the question; `score` from 0 to 1."""

    event_id: str
    signal: Signal
    score: float


class Least(NamedTuple):
    """How sure the graph must be of what nobody asked for, which is noise if it is wrong.

    Attributes:
        score: likeness to a session whose resolution is known, 0 to 1.
        importance: of an event about an entity of the question, 1 to 10.
        accesses: of an event that the session was shown before.
        most: events a signal.
    """

    score: float = 0.6
    importance: int = 8
    accesses: int = 3
    most: int = 5


LEAST: Final = Least()


class EntityName(NamedTuple):
    """An entity as it is found: `names` are the ones it is searched by."""

    entity_id: str
    name: str
    entity_type: str | None
    subtype: str | None
    names: tuple[str, ...]


class FactEnd(NamedTuple):
    """One end of a fact."""

    entity_id: str
    name: str
    entity_type: str | None
    subtype: str | None


class FactRow(NamedTuple):
    """A fact as the graph has it; times are milliseconds since the epoch.

    Attributes:
        properties: of the edge, by name; absent ones left out.
    """

    source: FactEnd
    target: FactEnd
    properties: Mapping[str, Any]

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from every other."""
        values = (self.properties.get(name) for name in RELATES_TO.key)
        return (self.source.entity_id, self.target.entity_id, *values)


class FoundNode(NamedTuple):
    """A node as a read returns it.

    Attributes:
        key: values of the row's key.
        visible: False for a placeholder.
        values: the properties that were asked for, by name.
        bare: it holds its key and nothing else.
    """

    key: Key
    visible: bool
    values: Mapping[str, Any]
    bare: bool


class FoundEdge(NamedTuple):
    """An edge as a read returns it; `label` is that of the node where it ends."""

    source: Key
    target: Key
    label: str
    values: Mapping[str, Any]


class End(StrEnum):
    """By which of its ends an edge is looked up."""

    SOURCE = "source"
    TARGET = "target"
    EITHER = "either"
    """For types that are read as undirected; of a loop, once."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a session's chain, by the place of its first and its last member.

    The bounds are places, not events: none needs to be there. A low bound behind everything
    (`LAST`) asks for the end of the chain.

    Attributes:
        anyway: ids of events that count even where `having` says that they do not.
    """

    session: SessionKey
    low: Link
    high: Link
    anyway: frozenset[str] = frozenset()


LAST = Link(253_402_300_800_000, "")
"""A place behind every event: the end of the year 9999."""


class Counts(NamedTuple):
    """Nodes by label and edges by type, over all tenants; placeholders are not counted."""

    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    placeholders: int


class Census(NamedTuple):
    """What kinds of things a store holds, whoever wrote them.

    Attributes:
        labels: how many nodes, by label; the second label of placeholders is none.
        types: how many edges, by type.
        node_properties, edge_properties: names that occur, by label and by type.
        indexes, constraints: names of those that are online.
        stray: by label or type, how many nodes lack a part of their key, or bear the second label
            of a placeholder alone, and how many edges join other labels than their row says. No
            read shows them; `remove_foreign` deletes them.
    """

    labels: Mapping[str, int]
    types: Mapping[str, int]
    node_properties: Mapping[str, frozenset[str]]
    edge_properties: Mapping[str, frozenset[str]]
    indexes: frozenset[str]
    constraints: frozenset[str]
    stray: Mapping[str, int] = {}


class Advanced(NamedTuple):
    """Where a transaction moved a checkpoint: the entry that it stands at, and its number."""

    stage: str
    partition: int
    position: Position
    seq: int


class Change(NamedTuple):
    """What one transaction may have changed, by keys; values are to be read again.

    Attributes:
        chain: of the first checkpoint that it locked, as STAGE/PARTITION; empty: it locked none.
        number: in its chain, from 1, without gaps, in the order of the commits.
        nodes: keys by label of nodes that were made or written.
        removed: keys by label of nodes that were deleted with all of their edges, whatever their
            type and whichever end they were at; such a node may have been made again since.
        edges: by type pairs (source, target, label of the target) between which edges were
            written or deleted.
        cleared: by type keys of sources, any of whose edges of the type may be gone.
        advanced: the checkpoints that were moved, none twice.
        everything: more may have changed than keys can tell, so all is to be read again.
    """

    chain: str
    number: int
    nodes: Mapping[str, tuple[Key, ...]]
    removed: Mapping[str, tuple[Key, ...]]
    edges: Mapping[str, tuple[tuple[Key, Key, str], ...]]
    cleared: Mapping[str, tuple[Key, ...]]
    advanced: tuple[Advanced, ...]
    everything: bool


class FeedPlace(NamedTuple):
    """How far a change feed is.

    Attributes:
        identity: of the feed; another one when the graph was emptied or is another.
        numbers: of the last change of each chain; a chain that is missing is before its first.
    """

    identity: str
    numbers: Mapping[str, int]


class Changes(NamedTuple):
    """A stretch of the change feed.

    Attributes:
        place: behind the changes.
        changes: of each chain in its order; between chains there is none.
        more: whether there were further ones.
    """

    place: FeedPlace
    changes: tuple[Change, ...]
    more: bool
