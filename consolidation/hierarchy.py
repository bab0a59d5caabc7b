"""Nodes that decisions write anew or take away: summaries with their links, and communities."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from consolidation.forgetting import Tombstones
from consolidation.payloads import (
    AgentDecided,
    CommunityChunk,
    CommunityGone,
    EpisodeDecided,
    LinksDecided,
    SessionDecided,
    SessionLink,
    SummariesGone,
    Trait,
    TraitsDecided,
)
from consolidation.summary_payloads import (
    AgentSummary,
    EpisodeSummary,
    Scope,
    SessionSummary,
    Summary,
    summary_id,
)
from enrichment.names import user_entity_id
from enrichment.vectors import vector_of
from projections.events import Event, canonical_json
from projections.identity import Position
from projections.operations import (
    ClearEdges,
    DecideNode,
    EnsureNode,
    Key,
    MergeEdge,
    MergeNode,
    Operation,
    RemoveEdge,
    RemoveNode,
)
from projections.schema import (
    ABSTRACTED_FROM,
    COMMUNITY,
    DERIVED_FROM,
    ENTITY,
    EVENT,
    LINKED_TO,
    MEMBER_OF,
    PARENT_SKILL,
    SUMMARIZES,
    SUMMARY,
    TRAIT,
    TRAIT_EDGES,
)


class DecidedNode(NamedTuple):
    """What was last decided of a node.

    Attributes:
        decided_at: position of that decision; None: there was none.
        gone: whether it said that the node is no more. What is left of it then is a placeholder
            that remembers this, so that an older decision does not bring it back.
    """

    decided_at: Position | None = None
    gone: bool = False

    def outranks(self, position: Position) -> bool:
        """Whether what was decided is newer than a decision at that position."""
        return self.decided_at is not None and self.decided_at > position


class DecidedNodes:
    """The subjects of one label, while decisions are applied in their order."""

    def __init__(self, label: str, shown: Mapping[Key, DecidedNode]) -> None:
        self._label = label
        self._shown = shown
        self._now: dict[Key, DecidedNode] = {}
        self._went: set[Key] = set()
        self._came_back: dict[Key, Position] = {}
        self.nodes: dict[Key, MergeNode] = {}
        """What was decided of those that are there."""

    def of(self, key: Key) -> DecidedNode:
        """What was last decided."""
        return self._now.get(key) or self._shown.get(key, DecidedNode())

    def write(self, position: Position, node: MergeNode) -> bool:
        """Decide what a node holds; False: what it shows is newer."""
        if self.of(node.key).outranks(position):
            return False
        if self.of(node.key).gone:
            self._came_back[node.key] = position
        self._now[node.key] = DecidedNode(position)
        self.nodes[node.key] = node
        return True

    def remove(self, position: Position, key: Key) -> bool:
        """Decide that a node is no more; False: what it shows is newer."""
        if self.of(key).outranks(position):
            return False
        self._now[key] = DecidedNode(position, True)
        self._went.add(key)
        self._came_back.pop(key, None)
        self.nodes.pop(key, None)
        return True

    def operations(self) -> Iterator[Operation]:
        """The nodes as decided."""
        for key, (decided_at, gone) in self._now.items():
            if key in self._went:
                yield RemoveNode(self._label, key)
            if not gone:
                yield self.nodes[key]
            turned_at = decided_at if gone else self._came_back.get(key)
            if turned_at:
                yield DecideNode(
                    label=self._label, key=key, name="gone", value=gone, position=turned_at
                )


# -- summaries -------------------------------------------------------------------------------------

SummaryKey = tuple[str, str]
"""(tenant, summary_id)"""

LEVELS: dict[Scope, int] = {"episode": 1, "session": 2, "agent": 3}


class ShownSummary(NamedTuple):
    """What the graph shows of a summary.

    Attributes:
        subject: what was last decided of it.
        linked_at: position of the decision that its links show.
        above: ids of the summaries that are made from it.
    """

    subject: DecidedNode = DecidedNode()
    linked_at: Position | None = None
    above: frozenset[str] = frozenset()


Users = Collection[str] | None
"""Whose summary it is, sorted; empty: everybody's; None: nobody wrote it down."""


def summary_key(tenant: str, scope: Scope, scope_id: str, user_ids: Users) -> SummaryKey:
    """The key of a summary."""
    return tenant, summary_id(tenant, scope, scope_id, user_ids)


def episode_key(tenant: str, decided: EpisodeDecided) -> SummaryKey:
    """The key of an episode's summary."""
    user_ids = () if decided.unowned_id else decided.summary.user_ids
    return summary_key(tenant, "episode", decided.summary.scope_id, user_ids)


def session_key(tenant: str, session_id: str, user_ids: Users) -> SummaryKey:
    """The key of a session's summary."""
    return summary_key(tenant, "session", session_id, user_ids)


def agent_key(tenant: str, agent_id: str, user_ids: Users) -> SummaryKey:
    """The key of an agent's summary."""
    return summary_key(tenant, "agent", agent_id, user_ids)


def keys_around(tenant: str, summary: SessionSummary) -> tuple[SummaryKey, set[SummaryKey]]:
    """The key of a session's summary, and those of its agents', which are made from it."""
    agents = {agent_key(tenant, who.agent_id, summary.user_ids) for who in summary.participants}
    return session_key(tenant, summary.session_id, summary.user_ids), agents


class Hierarchy:
    """Summaries and links, while decisions are applied in their order."""

    def __init__(self, shown: Mapping[SummaryKey, ShownSummary]) -> None:
        self._shown = shown
        self._decided = DecidedNodes(
            SUMMARY.label, {key: one.subject for key, one in shown.items()}
        )
        self._members: dict[SummaryKey, tuple[SummaryKey, tuple[str, ...]]] = {}
        self._agents: dict[SummaryKey, set[str]] = {}
        self._links: dict[SummaryKey, tuple[Position, Event, tuple[SessionLink, ...]]] = {}
        self._ends: set[SummaryKey] = set()
        """Where edges began or ended, also those that a later decision of the batch took away: the
        graph must not depend on how decisions were cut into batches."""

    def take_episode(self, position: Position, event: Event, decided: EpisodeDecided) -> None:
        """An episode's summary and its members."""
        key, summary = episode_key(event.tenant, decided), decided.summary
        if self._decided.write(
            position, _node(key, summary, position, event, event_ids=decided.event_ids)
        ):
            above = session_key(event.tenant, summary.session_id, summary.user_ids)
            self._members[key] = above, decided.event_ids
            self._ends.add(above)

    def take_session(self, position: Position, event: Event, decided: SessionDecided) -> bool:
        """A session's summary; False: the one shown is newer."""
        key, agents = keys_around(event.tenant, decided.summary)
        if not self._decided.write(position, _node(key, decided.summary, position, event)):
            return False
        self._agents[key] = {agent for _, agent in agents}
        self._ends.update(agents)
        self._take_away(position, event, decided.gone)
        return True

    def take_agent(self, position: Position, event: Event, decided: AgentDecided) -> None:
        """An agent's summary."""
        summary = decided.summary
        key = agent_key(event.tenant, summary.agent_id, summary.user_ids)
        self._decided.write(position, _node(key, summary, position, event))

    def take_gone(self, position: Position, event: Event, decided: SummariesGone) -> None:
        """Summaries that are no more."""
        self._take_away(position, event, decided.summary_ids)

    def _take_away(self, position: Position, event: Event, gone: Iterable[str]) -> None:
        for own_id in gone:
            self._decided.remove(position, (event.tenant, own_id))

    def take_links(self, position: Position, event: Event, decided: LinksDecided) -> None:
        """All links of a session's summary."""
        key = session_key(event.tenant, decided.session_id, decided.user_ids)
        shown = self._shown.get(key, ShownSummary()).linked_at
        decided_at = self._links[key][0] if key in self._links else shown
        if decided_at is None or decided_at <= position:
            self._links[key] = position, event, decided.links
            self._ends.add(key)
            self._ends.update(
                session_key(event.tenant, link.session_id, link.user_ids) for link in decided.links
            )

    def written(self, key: SummaryKey) -> bool:
        """Whether this batch says what the summary is made from, or that it is no more."""
        return key in self._decided.nodes or self._decided.of(key).gone

    def is_gone(self, key: SummaryKey) -> bool:
        """Whether a summary that was asked for is no more."""
        return self._decided.of(key).gone

    def operations(self, tombstones: Tombstones) -> Iterator[Operation]:
        """The summaries, their edges and their links as decided."""
        yield from self._decided.operations()
        for key in self._ends:
            if not self._decided.of(key).gone:
                yield EnsureNode(SUMMARY.label, key)
        for key, (above, event_ids) in self._members.items():
            if key in self._decided.nodes:
                yield ClearEdges(SUMMARIZES.type, key)
                yield from self._below(key, {above[1]})
                for event_id in event_ids:
                    yield from tombstones.listed_by(SUMMARIZES, key, (key[0], event_id))
        for key, agents in self._agents.items():
            if not self._decided.of(key).gone:
                yield from self._below(key, agents)
        for key, (position, event, links) in self._links.items():
            if not self._decided.of(key).gone:
                yield from self._links_of(key, position, event, links)

    def _below(self, key: SummaryKey, above: set[str]) -> Iterator[Operation]:
        """The edges from what is made from a summary, and from nothing else."""
        for other in sorted(self._shown.get(key, ShownSummary()).above - above):
            yield RemoveEdge(
                type=SUMMARIZES.type, source=(key[0], other), target=key, label=SUMMARY.label
            )
        for other in sorted(above):
            yield from self._summarizes((key[0], other), key)

    def _links_of(
        self, key: SummaryKey, position: Position, event: Event, links: Sequence[SessionLink]
    ) -> Iterator[Operation]:
        yield ClearEdges(LINKED_TO.type, key)
        yield DecideNode(
            label=SUMMARY.label, key=key, name="link_count", value=len(links), position=position
        )
        for link in links:
            yield from self._link(key, event, link)

    def _summarizes(self, above: SummaryKey, key: SummaryKey) -> Iterator[Operation]:
        if not self._decided.of(above).gone:
            yield MergeEdge(
                type=SUMMARIZES.type, source=above, target=key, values={}, label=SUMMARY.label
            )

    def _link(self, key: SummaryKey, event: Event, link: SessionLink) -> Iterator[Operation]:
        other = session_key(key[0], link.session_id, link.user_ids)
        if not self._decided.of(other).gone:
            yield MergeEdge(
                type=LINKED_TO.type,
                source=key,
                target=other,
                values={
                    "reason": link.reason,
                    "score": link.score,
                    "evidence": link.evidence,
                    "resolution_event_id": link.resolution_event_id,
                    "effect_event_id": link.effect_event_id,
                    "cause_event_id": link.cause_event_id,
                    "event_id": event.event_id,
                },
            )


def _node(
    key: SummaryKey,
    summary: Summary,
    position: Position,
    event: Event,
    event_ids: tuple[str, ...] | None = None,
) -> MergeNode:
    return MergeNode(
        label=SUMMARY.label,
        key=key,
        values={
            "scope": summary.scope,
            "scope_id": summary.scope_id,
            "session_id": None if isinstance(summary, AgentSummary) else summary.session_id,
            "user_ids": summary.user_ids,
            "content": summary.content,
            "worded_by": None if isinstance(summary, EpisodeSummary) else summary.worded_by,
            "level": LEVELS[summary.scope],
            "event_count": summary.event_count,
            "importance_total": summary.importance_total,
            "failed_count": summary.failed_count,
            "time_range": (summary.started_at_ms, summary.ended_at_ms),
            "source_digest": summary.digest,
            "source_event_ids": event_ids,
            "gist": canonical_json(summary.payload()).decode(),
            "created_at": event.occurred_at_ms,
            "event_id": event.event_id,
            "decided_at": tuple(position),
        },
    )


# -- communities -----------------------------------------------------------------------------------

CommunityKey = tuple[str, str]
EntityKey = tuple[str, str]


class ShownCommunity(NamedTuple):
    """What the graph shows of a community.

    Attributes:
        subject: what was last decided of it.
        run_id: of the pass that decided it.
        members: (entity id, run id) of each.
    """

    subject: DecidedNode = DecidedNode()
    run_id: str | None = None
    members: tuple[tuple[str, str], ...] = ()


class Communities:
    """Communities, while decisions are applied in their order.

    Args:
        shown: those that the decisions name.
        joined: by entity, the position of the decision that its membership shows.
        present: entities that have a node, be it a placeholder.
    """

    def __init__(
        self,
        shown: Mapping[CommunityKey, ShownCommunity],
        joined: Mapping[EntityKey, Position],
        present: Set[EntityKey],
    ) -> None:
        self._shown = shown
        self._decided = DecidedNodes(
            COMMUNITY.label, {key: one.subject for key, one in shown.items()}
        )
        self._present = present
        self._joined = dict(joined)
        self._runs = {key: one.run_id for key, one in shown.items()}
        self._renewed: dict[CommunityKey, str] = {}
        self._edges: dict[EntityKey, tuple[CommunityKey, str, Position]] = {}

    def take_chunk(self, position: Position, event: Event, decided: CommunityChunk) -> None:
        """A chunk of a community's members; the first one says what it is."""
        key = (event.tenant, decided.community_id)
        if decided.chunk == 0:
            if not self._decided.write(position, self._node(key, position, event, decided)):
                return
            self._renew(key, decided.run_id)
        elif self._runs.get(key) != decided.run_id and self._decided.of(key).outranks(position):
            return
        for entity_id in decided.entity_ids:
            entity = (event.tenant, entity_id)
            joined_at = self._joined.get(entity)
            if joined_at is None or joined_at <= position:
                self._joined[entity] = position
                self._edges[entity] = key, decided.run_id, position

    def take_gone(self, position: Position, event: Event, decided: CommunityGone) -> None:
        """A community is no more."""
        key = (event.tenant, decided.community_id)
        if self._decided.remove(position, key):
            self._runs[key] = None
            self._renewed.pop(key, None)

    def _renew(self, key: CommunityKey, run_id: str) -> None:
        """Forget the members that another pass named."""
        self._runs[key] = self._renewed[key] = run_id
        for entity, (community, of_run, position) in list(self._edges.items()):
            if community == key and of_run != run_id:
                self._edges[entity] = key, "", position

    def _node(
        self, key: CommunityKey, position: Position, event: Event, decided: CommunityChunk
    ) -> MergeNode:
        before = self._decided.nodes.get(key)
        text, centroid = decided.text, vector_of(decided.centroid)
        return MergeNode(
            label=COMMUNITY.label,
            key=key,
            values={
                "name": text.name if text else None,
                "summary": text.summary if text else None,
                "worded_by": text.worded_by if text else None,
                "fingerprint": decided.fingerprint,
                "member_count": decided.member_count,
                "user_id": decided.user_id,
                "user_ids": _owners(decided),
                "created_at": before.values["created_at"] if before else event.occurred_at_ms,
                "updated_at": event.occurred_at_ms,
                "centroid": None if centroid is None else centroid.tolist(),
                "run_id": decided.run_id,
                "event_id": event.event_id,
                "decided_at": tuple(position),
            },
        )

    def operations(self) -> Iterator[Operation]:
        """The communities and their members as decided."""
        yield from self._decided.operations()
        for key, run_id in self._renewed.items():
            for entity_id, of_run in self._shown.get(key, ShownCommunity()).members:
                if of_run != run_id:
                    yield RemoveEdge(type=MEMBER_OF.type, source=(key[0], entity_id), target=key)
        for entity, (key, run_id, position) in self._edges.items():
            if entity not in self._present:  # enrichment of another partition is behind
                yield EnsureNode(ENTITY.label, entity)
            yield ClearEdges(MEMBER_OF.type, entity)
            if run_id and not self._decided.of(key).gone:
                yield EnsureNode(COMMUNITY.label, key)
                yield MergeEdge(
                    type=MEMBER_OF.type,
                    source=entity,
                    target=key,
                    values={"run_id": run_id, "decided_at": tuple(position)},
                )


def _owners(decided: CommunityChunk) -> tuple[str, ...] | None:
    """Whose a community is; that of a user's facts always said so."""
    if decided.user_ids is None and decided.user_id is not None:
        return (decided.user_id,)
    return decided.user_ids


# -- traits ----------------------------------------------------------------------------------------

TraitKey = tuple[str, str]
"""(tenant, trait_id)"""


def user_key(tenant: str, user_id: str) -> EntityKey:
    """The key of a user's entity."""
    return tenant, user_entity_id(tenant, user_id)


class Traits:
    """What is derived of users, while decisions are applied in their order.

    Args:
        shown: those that the decisions name.
        present: entities that have a node, be it a placeholder.
    """

    def __init__(self, shown: Mapping[TraitKey, DecidedNode], present: Set[EntityKey]) -> None:
        self._decided = DecidedNodes(TRAIT.label, shown)
        self._present = present
        self._shown_by: dict[TraitKey, tuple[str, ...]] = {}
        self._named: dict[str, set[tuple[str, str]]] = {EVENT.label: set(), TRAIT.label: set()}
        """What traits lead to: events and parents, also of decisions that others outrank."""
        self._users: dict[TraitKey, EntityKey] = {}
        """Also of those that a later decision of the batch took away; see `Hierarchy._ends`."""

    def take(self, position: Position, event: Event, decided: TraitsDecided) -> None:
        """What is new of a user."""
        for trait in decided.traits:
            node = _trait_node(position, event, decided.user_ids, trait)
            if self._decided.write(position, node):
                self._users[node.key] = user_key(event.tenant, decided.user_id)
                self._shown_by[node.key] = trait.summary_ids or ()
                self._named[EVENT.label].update(
                    (event.tenant, event_id) for event_id in trait.event_ids
                )
                if trait.parent_id is not None:
                    self._named[TRAIT.label].add((event.tenant, trait.parent_id))
        for own_id in decided.gone:
            self._decided.remove(position, (event.tenant, own_id))

    def written(self, key: TraitKey) -> bool:
        """Whether this batch says what the trait is derived from, or that it is no more."""
        return key in self._decided.nodes or self._decided.of(key).gone

    def operations(self, summaries: Hierarchy, tombstones: Tombstones) -> Iterator[Operation]:
        """The traits, whose they are, the sessions that show them, and what proves them."""
        yield from self._decided.operations()
        for key, user in self._users.items():
            if user not in self._present:  # enrichment of another partition is behind
                yield EnsureNode(ENTITY.label, user)
            if (node := self._decided.nodes.get(key)) is not None:
                row = TRAIT_EDGES[node.values["kind"]]
                yield MergeEdge(type=row.type, source=user, target=key)
        for key, summary_ids in self._shown_by.items():
            yield from self._seen_in(key, [(key[0], one) for one in summary_ids], summaries)
        for event in sorted(self._named[EVENT.label]):
            yield from tombstones.ensured(event)
        for parent in sorted(self._named[TRAIT.label]):
            if not self._decided.of(parent).gone:
                yield EnsureNode(TRAIT.label, parent)
        for key, node in self._decided.nodes.items():
            yield from self._proofs(key, node, tombstones)

    def _seen_in(
        self, key: TraitKey, sessions: Iterable[SummaryKey], summaries: Hierarchy
    ) -> Iterator[Operation]:
        told = [summary for summary in sessions if not summaries.is_gone(summary)]
        for summary in told:
            yield EnsureNode(SUMMARY.label, summary)
        if key in self._decided.nodes:
            yield ClearEdges(ABSTRACTED_FROM.type, key)
            for summary in told:
                yield MergeEdge(type=ABSTRACTED_FROM.type, source=key, target=summary)

    def _proofs(
        self, key: TraitKey, node: MergeNode, tombstones: Tombstones
    ) -> Iterator[Operation]:
        """The edges of a trait to the events that prove it, and to the skill above it."""
        yield ClearEdges(DERIVED_FROM.type, key)
        for event_id in node.values["event_ids"]:
            yield from tombstones.listed_by(DERIVED_FROM, key, (key[0], event_id))
        yield ClearEdges(PARENT_SKILL.type, key)
        parent = key[0], node.values["parent_id"]
        if parent[1] is not None and not self._decided.of(parent).gone:
            yield MergeEdge(type=PARENT_SKILL.type, source=key, target=parent)


def _trait_node(
    position: Position, event: Event, user_ids: tuple[str, ...], trait: Trait
) -> MergeNode:
    return MergeNode(
        label=TRAIT.label,
        key=(event.tenant, trait.trait_id),
        values={
            "kind": trait.kind,
            "name": trait.name,
            "user_id": user_ids[0],
            "user_ids": user_ids,
            "strength": trait.strength,
            "session_count": trait.session_count,
            "first_seen": trait.first_seen_ms,
            "last_seen": trait.last_seen_ms,
            "holds_until": trait.holds_until_ms,
            "event_ids": trait.event_ids,
            "parent_id": trait.parent_id,
            "event_id": event.event_id,
            "decided_at": tuple(position),
        },
    )
