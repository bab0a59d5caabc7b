"""The memory of one tenant as columns: events, entities, and what leads from one to another.

It holds what is asked in order to find and to rank; what is shown is read from the graph by key.
Everything is set from what the graph holds now, so that to set it again changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from enrichment.event_kinds import RETRY
from enrichment.names import Role
from pipelines.columns import entities as entity_columns
from pipelines.columns import events as event_columns
from pipelines.columns.entities import Entities, Fact
from pipelines.columns.events import Events
from pipelines.columns.tables import Edge, Edges
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.operations import Key
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    ENTITY,
    EVENT,
    LINKED_TO,
    MEMBER_OF,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
)

SUBJECT: Final[Role] = "subject"
"""The role of somebody who speaks or acts."""
TARGET: Final[Role] = "target"
"""The role of what a call acts on."""
NODE_PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    EVENT.label: event_columns.PROPERTIES,
    ENTITY.label: entity_columns.PROPERTIES,
    SUMMARY.label: ("user_ids", "gone", "decided_at", "level"),
    COMMUNITY.label: ("user_ids", "gone", "decided_at"),
}
"""Of a node, that are read from the graph."""
EDGE_PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    CAUSED_BY.type: ("confidence", "rule"),
    SIMILAR_TO.type: ("score",),
    REFERENCES.type: ("role",),
    RELATES_TO.type: Fact._fields[2:],
    SAME_AS.type: ("confidence", "retracted"),
    MEMBER_OF.type: (),
    SUMMARIZES.type: (),
    LINKED_TO.type: ("score", "resolution_event_id", "effect_event_id", "cause_event_id"),
}
"""Of an edge, that are read from the graph; FOLLOWS is the order of the events themselves."""


class SessionLink(NamedTuple):
    """What joins a session to another one.

    Attributes:
        other_id: summary of the other session.
        score: how sure that is, 0 to 1.
        resolution_id: the event that resolved it there, of one that failed alike; None: none did.
        effect_id: a failure of this session that names what the other one changed.
        cause_id: the event that changed it.
    """

    other_id: str
    score: float
    resolution_id: str | None
    effect_id: str | None
    cause_id: str | None


class Made:
    """A summary or a community: of whose events, and when it was decided."""

    __slots__ = ("decided_at", "level", "stands", "user_ids")

    def __init__(self) -> None:
        self.stands = False
        self.user_ids: tuple[str, ...] | None = None
        self.decided_at: tuple[int, ...] | None = None
        self.level = 0


Part = int | str
"""Of a summary: the row of an event, or the id of a summary."""


class Tenant:
    """The columns of one tenant.

    Attributes:
        causes: from effect to cause; marked are those of the rule RETRY.
        similar: each once, from the smaller event id.
        mentions: from an event to an entity; marked is who speaks or acts, 1 scores what a call
            acts on.
        summaries, communities: by id.
        above: ids of the summaries that were made from a part.
        below: the parts that a summary was made from.
        members: rows of the entities of a community.
        links: of a summary, by id.
    """

    def __init__(self) -> None:
        self.events = Events()
        self.entities = Entities()
        self.causes = Edges()
        self.similar = Edges()
        self.mentions = Edges()
        self.summaries: dict[str, Made] = {}
        self.communities: dict[str, Made] = {}
        self.above: dict[Part, set[str]] = {}
        self.below: dict[str, set[Part]] = {}
        self.members: dict[str, set[int]] = {}
        self.links: dict[str, list[SessionLink]] = {}

    def set_node(self, label: str, own_id: str, node: FoundNode | None) -> None:
        """A node as the graph holds it; None: it does not."""
        stands = node is not None and node.visible
        values: Mapping[str, Any] = {} if node is None else node.values
        if label == EVENT.label and stands:
            self._put_event(own_id, values)
        elif label == EVENT.label:
            self.events.remove(own_id)
        elif label == ENTITY.label and stands:
            self.entities.put(own_id, values)
        elif label == ENTITY.label:
            self.entities.remove(own_id)
        else:
            derived = self._made(label).setdefault(own_id, Made())
            derived.stands = stands and not values.get("gone")
            derived.user_ids = values.get("user_ids")
            derived.decided_at = values.get("decided_at")
            derived.level = values.get("level") or 0

    def _put_event(self, event_id: str, values: Mapping[str, Any]) -> None:
        """An event; it moves among those that mention an entity if its time is another now."""
        row = self.events.row(event_id)
        moves = self.events.place(row)[0] != values["occurred_at"]
        mentioned = {edge.target for edge in self.mentions.out(row)} if moves else set()
        for entity in mentioned:
            self.entities.unmention(entity, row)
        self.events.put(event_id, values)
        for entity in mentioned:
            self.entities.mention(entity, row, self.events.place)

    def _made(self, label: str) -> dict[str, Made]:
        return {SUMMARY.label: self.summaries, COMMUNITY.label: self.communities}[label]

    def add_edge(self, type_: str, edge: FoundEdge) -> None:
        """An edge that the graph holds, of a type of EDGE_PROPERTIES."""
        _ADDING[type_](self, edge)

    def drop_edges(self, type_: str, source: Key, target: Key | None, label: str = "") -> None:
        """The edges between two nodes are not as they were; without a target all of the source.

        Args:
            type_: of EDGE_PROPERTIES.
            source: where they begin.
            target: where they end.
            label: of the target, where the type may end at several.
        """
        _DROPPING[type_](self, source[1], None if target is None else target[1], label)

    def forget_edges(self, label: str, own_id: str) -> None:
        """Drop all edges of a node that left the graph, at whichever end it was."""
        if label == EVENT.label:
            row = self.events.row(own_id)
            for edges in (self.causes, self.similar):
                edges.drop(row)
                for edge in list(edges.into(row)):
                    edges.drop(edge.source, row)
            self._drop_mentions(own_id, None, "")
            self._forget_part(row)
        elif label == ENTITY.label:
            self._forget_entity(own_id)
        elif label == SUMMARY.label:
            self._drop_parts(own_id, None, "")
            self._forget_part(own_id)
            self.links.pop(own_id, None)
            for links in self.links.values():
                links[:] = [link for link in links if link.other_id != own_id]
        elif label == COMMUNITY.label:
            for row in self.members.pop(own_id, set()):
                self.entities.all[row].communities.discard(own_id)

    def _forget_part(self, part: Part) -> None:
        for summary_id in self.above.pop(part, set()):
            self.below[summary_id].discard(part)

    def _forget_entity(self, entity_id: str) -> None:
        row = self.entities.row(entity_id)
        entity = self.entities.all[row]
        for event in set(entity.mentions):
            self.mentions.drop(event, row)
        del entity.mentions[:]
        for fact in list(entity.facts):
            for end in {fact.source, fact.target}:
                self.entities.all[end].facts.remove(fact)
        for other in list(entity.same):
            self.entities.all[other].same.pop(row, None)
        entity.same.clear()
        self._drop_members(entity_id, None, "")

    # -- between events ----------------------------------------------------------------------------

    def _add_cause(self, edge: FoundEdge) -> None:
        sure, rule = edge.values["confidence"], edge.values["rule"]
        self._add(self.causes, edge, math.nan if sure is None else sure, mark=rule == RETRY)

    def _add_similar(self, edge: FoundEdge) -> None:
        self._add(self.similar, edge, edge.values["score"])

    def _add(self, edges: Edges, edge: FoundEdge, score: float, *, mark: bool = False) -> None:
        source, target = self.events.row(edge.source[1]), self.events.row(edge.target[1])
        edges.add(Edge(source, target, score, mark))

    def _drop_causes(self, source_id: str, target_id: str | None, label: str) -> None:
        self.causes.drop(self.events.row(source_id), self._event(target_id))

    def _drop_similar(self, source_id: str, target_id: str | None, label: str) -> None:
        self.similar.drop(self.events.row(source_id), self._event(target_id))

    def _event(self, event_id: str | None) -> int | None:
        return None if event_id is None else self.events.row(event_id)

    # -- between events and entities ---------------------------------------------------------------

    def _add_mention(self, edge: FoundEdge) -> None:
        event, entity = self.events.row(edge.source[1]), self.entities.row(edge.target[1])
        role = edge.values["role"]
        self.mentions.add(Edge(event, entity, float(role == TARGET), role == SUBJECT))
        self.entities.mention(entity, event, self.events.place)

    def _drop_mentions(self, source_id: str, target_id: str | None, label: str) -> None:
        event = self.events.row(source_id)
        target = None if target_id is None else self.entities.row(target_id)
        for entity in {edge.target for edge in self.mentions.out(event)}:
            if target in (None, entity):
                self.entities.unmention(entity, event)
        self.mentions.drop(event, target)

    # -- between entities --------------------------------------------------------------------------

    def _add_fact(self, edge: FoundEdge) -> None:
        source, target = self.entities.row(edge.source[1]), self.entities.row(edge.target[1])
        fact = Fact(source, target, **edge.values)
        for row in {source, target}:
            self.entities.all[row].facts.append(fact)

    def _drop_facts(self, source_id: str, target_id: str | None, label: str) -> None:
        source = self.entities.row(source_id)
        facts = [fact for fact in self.entities.all[source].facts if fact.source == source]
        if target_id is not None:
            target = self.entities.row(target_id)
            facts = [fact for fact in facts if fact.target == target]
        for fact in facts:
            for row in {fact.source, fact.target}:
                self.entities.all[row].facts.remove(fact)

    def _add_same(self, edge: FoundEdge) -> None:
        if not edge.values["retracted"]:
            source, target = self.entities.row(edge.source[1]), self.entities.row(edge.target[1])
            self.entities.all[source].same[target] = edge.values["confidence"]
            self.entities.all[target].same[source] = edge.values["confidence"]

    def _drop_same(self, source_id: str, target_id: str | None, label: str) -> None:
        source = self.entities.row(source_id)
        ids = [one.entity_id for one in map(self.entities.all.__getitem__, self._same(source))]
        for other_id in ids if target_id is None else [target_id]:
            other = self.entities.row(other_id)
            self.entities.all[source].same.pop(other, None)
            self.entities.all[other].same.pop(source, None)

    def _same(self, source: int) -> list[int]:
        """Rows of the entities that edges lead to, which begin at the smaller id."""
        entity = self.entities.all[source]
        return [row for row in entity.same if self.entities.all[row].entity_id > entity.entity_id]

    def _add_member(self, edge: FoundEdge) -> None:
        row, community_id = self.entities.row(edge.source[1]), edge.target[1]
        self.entities.all[row].communities.add(community_id)
        self.members.setdefault(community_id, set()).add(row)

    def _drop_members(self, source_id: str, target_id: str | None, label: str) -> None:
        row = self.entities.row(source_id)
        communities = self.entities.all[row].communities
        for community_id in list(communities) if target_id is None else [target_id]:
            communities.discard(community_id)
            self.members.get(community_id, set()).discard(row)

    # -- from what consolidation made --------------------------------------------------------------

    def _add_part(self, edge: FoundEdge) -> None:
        summary_id, part = edge.source[1], self._part(edge.target[1], edge.label)
        self.below.setdefault(summary_id, set()).add(part)
        self.above.setdefault(part, set()).add(summary_id)

    def _drop_parts(self, source_id: str, target_id: str | None, label: str) -> None:
        parts = self.below.get(source_id, set())
        for part in list(parts) if target_id is None else [self._part(target_id, label)]:
            parts.discard(part)
            self.above.get(part, set()).discard(source_id)

    def _part(self, own_id: str, label: str) -> Part:
        return self.events.row(own_id) if label == EVENT.label else own_id

    def _add_link(self, edge: FoundEdge) -> None:
        link = SessionLink(
            other_id=edge.target[1],
            score=edge.values["score"],
            resolution_id=edge.values["resolution_event_id"],
            effect_id=edge.values["effect_event_id"],
            cause_id=edge.values["cause_event_id"],
        )
        if link.resolution_id is not None or link.cause_id is not None:
            self.links.setdefault(edge.source[1], []).append(link)

    def _drop_links(self, source_id: str, target_id: str | None, label: str) -> None:
        stay = [one for one in self.links.get(source_id, ()) if target_id is not None]
        self.links[source_id] = [one for one in stay if one.other_id != target_id]

    def summaries_of(self, row: int) -> Iterator[str]:
        """The summaries of an event's episode and session."""
        for summary_id in sorted(self.above.get(row, ())):
            yield summary_id
            yield from sorted(self.above.get(summary_id, ()))


# Not of each tenant: one that refers to itself stays in memory long after it was put aside.
_ADDING: Final[Mapping[str, Callable[[Tenant, FoundEdge], None]]] = {
    CAUSED_BY.type: Tenant._add_cause,
    SIMILAR_TO.type: Tenant._add_similar,
    REFERENCES.type: Tenant._add_mention,
    RELATES_TO.type: Tenant._add_fact,
    SAME_AS.type: Tenant._add_same,
    MEMBER_OF.type: Tenant._add_member,
    SUMMARIZES.type: Tenant._add_part,
    LINKED_TO.type: Tenant._add_link,
}
_DROPPING: Final[Mapping[str, Callable[[Tenant, str, str | None, str], None]]] = {
    CAUSED_BY.type: Tenant._drop_causes,
    SIMILAR_TO.type: Tenant._drop_similar,
    REFERENCES.type: Tenant._drop_mentions,
    RELATES_TO.type: Tenant._drop_facts,
    SAME_AS.type: Tenant._drop_same,
    MEMBER_OF.type: Tenant._drop_members,
    SUMMARIZES.type: Tenant._drop_parts,
    LINKED_TO.type: Tenant._drop_links,
}
