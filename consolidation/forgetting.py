"""What leaves the graph, and comes back, as decided; what is left when it leaves.

FOLLOWS is the chain of a session's retained events, so it is bridged. A retained event that names
a forgotten one as its cause keeps the edge, to a placeholder, as it does when its cause never
came: so the graph is what the projection makes of the retained events, and a cause that comes back
finds its effects.

Besides events similar pairs, entities and facts leave (which: `retention`). Similar pairs that were
dropped are remembered at their first end, so that they are not made again: an event that is folded
once more (it was recalled) looks for its neighbours once more. Its list goes with it: to the
tombstone when it is forgotten, and back when it is recalled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from consolidation.decay import (
    Retrievals,
    effective_confidence,
    retrieval_count,
)
from consolidation.forgetting_payloads import EventsForgotten, FactKey
from consolidation.retention import RetentionPolicy, Tier
from projections.identity import Link, Position, SessionKey
from projections.operations import (
    DecideNode,
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operation,
    Operations,
    RemoveNode,
)
from projections.schema import CAUSED_BY, DIRECT, EVENT, FORGOTTEN, EdgeRow
from projections.structural import Neighbours, follows_edge

EventKey = tuple[str, str]
"""(tenant, event_id)"""


class Leaving(NamedTuple):
    """The node of an event that leaves; a placeholder has neither session nor time.

    Attributes:
        session_id, occurred_at_ms, importance, user_id: as the graph has them.
        vector: whole numbers of what it says, as the tombstone has them.
        effects: ids of the events that name it as their cause.
        causes: by id of each placeholder that it names as its cause, the ids of all events that
            have an edge to that one, and an empty string for every other node.
    """

    session_id: str | None = None
    occurred_at_ms: int | None = None
    importance: int | None = None
    effects: tuple[str, ...] = ()
    causes: Mapping[str, tuple[str, ...]] = {}
    user_id: str | None = None
    vector: str | None = None

    def link(self, event_id: str) -> Link | None:
        """Its place in the chain of its session; None: it has none."""
        if self.session_id is None or self.occurred_at_ms is None:
            return None
        return Link(self.occurred_at_ms, event_id)


def leaving_links(leaving: Mapping[EventKey, Leaving]) -> dict[SessionKey, list[Link]]:
    """The places of the leaving events by session, sorted."""
    sessions: dict[SessionKey, list[Link]] = {}
    for (tenant, event_id), node in leaving.items():
        link = node.link(event_id)
        if link is not None:
            sessions.setdefault((tenant, str(node.session_id)), []).append(link)
    for links in sessions.values():
        links.sort()
    return sessions


def bridges(
    session: SessionKey, leaving: Collection[Link], neighbours: Mapping[Link, Neighbours]
) -> list[MergeEdge]:
    """The edges that close the gaps in a chain, one for each run of neighbours that leave.

    Args:
        session: whose chain it is.
        leaving: the events that leave, all of them in the chain.
        neighbours: of each of them, while it is still there.
    """
    edges = []
    gone = set(leaving)
    for link in sorted(gone):
        before, after, _ = neighbours[link]
        if before is None or before in gone:
            continue
        while after in gone:
            after = neighbours[after].after
        if after is not None:
            edges.append(follows_edge(session, before, after))
    return edges


def removals(leaving: Iterable[EventKey], nodes: Mapping[EventKey, Leaving]) -> Iterator[Operation]:
    """Operations that take events away, with the placeholders that nobody needs any longer."""
    gone = set(leaving)
    for key in gone:
        yield RemoveNode(EVENT.label, key)
        for cause_id, others in nodes.get(key, Leaving()).causes.items():
            cause = (key[0], cause_id)
            if cause not in gone and all((key[0], other) in gone for other in others):
                yield RemoveNode(EVENT.label, cause)


def rewired(
    leaving: Iterable[EventKey],
    nodes: Mapping[EventKey, Leaving],
    neighbours: Mapping[tuple[SessionKey, Link], Neighbours],
) -> Iterator[Operation]:
    """What the projection would have made without the events: bridges, and waiting effects."""
    gone = set(leaving)
    for session, links in leaving_links(
        {k: node for k, node in nodes.items() if k in gone}
    ).items():
        around = {link: neighbours[session, link] for link in links}
        yield from bridges(session, links, around)
    for key in gone:
        effects = [(key[0], effect) for effect in nodes.get(key, Leaving()).effects]
        for effect in effects:
            if effect not in gone:
                yield EnsureNode(EVENT.label, key)
                yield MergeEdge(
                    type=CAUSED_BY.type, source=effect, target=key, values={"mechanism": DIRECT}
                )


# -- as decided ------------------------------------------------------------------------------------


class Tombstone(NamedTuple):
    """What was last decided of an event that is, or was, forgotten.

    Attributes:
        recalled: it came back, or is about to.
        decided_at: position of that decision.
        summary_id: of the Summary that it was a member of, if that is known.
    """

    recalled: bool
    decided_at: Position
    summary_id: str | None = None


class Tombstones:
    """Tombstones and boosts of events, while decisions are applied in their order.

    Args:
        tombstones: that the graph has, of the events that the decisions name.
        nodes: of the events that are to leave.
        neighbours: of those of them that stand in a chain.
        present: events that have a node, be it a placeholder.
    """

    def __init__(
        self,
        tombstones: Mapping[EventKey, Tombstone],
        nodes: Mapping[EventKey, Leaving],
        neighbours: Mapping[tuple[SessionKey, Link], Neighbours],
        present: Set[EventKey],
    ) -> None:
        self._shown = tombstones
        self._nodes = nodes
        self._neighbours = neighbours
        self._present = present
        self._now: dict[EventKey, Tombstone] = {}
        self._removed: dict[EventKey, tuple[Tier, Position]] = {}
        self._boosts: list[tuple[EventKey, float, Position]] = []

    def of(self, key: EventKey) -> Tombstone | None:
        """What was last decided of an event."""
        return self._now.get(key) or self._shown.get(key)

    def forget(self, tenant: str, position: Position, decided: EventsForgotten) -> None:
        """Members of a Summary leave."""
        for event_id, tier in decided.events:
            key = (tenant, event_id)
            before = self.of(key)
            if before is None or before.decided_at <= position:
                summary_id = before.summary_id if before else None
                self._now[key] = Tombstone(False, position, summary_id or decided.summary_id)
                self._removed[key] = tier, position

    def recall(self, tenant: str, position: Position, event_ids: Sequence[str]) -> list[str]:
        """Events come back; those of which nothing newer was decided, are returned."""
        back = []
        for event_id in event_ids:
            key = (tenant, event_id)
            before = self.of(key)
            if before is None or before.decided_at <= position:
                self._now[key] = Tombstone(True, position, before.summary_id if before else None)
                back.append(event_id)
        return back

    def boost(self, tenant: str, position: Position, boosts: Mapping[str, float]) -> None:
        """Events gain importance."""
        for event_id, boost in boosts.items():
            self._boosts.append(((tenant, event_id), boost, position))

    def away(self, key: EventKey) -> bool:
        """Whether an event is forgotten, and was not recalled."""
        tombstone = self.of(key)
        return tombstone is not None and not tombstone.recalled

    def back(self, key: EventKey) -> bool:
        """Whether an event was recalled: it is there again, or is about to be."""
        tombstone = self.of(key)
        return tombstone is not None and tombstone.recalled

    def recalled(self) -> Iterator[tuple[EventKey, str]]:
        """Events that this batch recalls, and the Summary that each was a member of."""
        for key, tombstone in self._now.items():
            if tombstone.recalled and tombstone.summary_id is not None:
                yield key, tombstone.summary_id

    def ensured(self, key: EventKey) -> Iterator[Operation]:
        """A placeholder for an event that something leads to, unless it is there, or is away.

        It may come later than the decision, in a partition that is behind.
        """
        if not self.away(key) and (key not in self._present or key in self._removed):
            yield EnsureNode(EVENT.label, key)

    def listed_by(
        self, row: EdgeRow, source: tuple[str, str], key: EventKey
    ) -> Iterator[Operation]:
        """The edge from what is made from an event, unless that is away."""
        yield from self.ensured(key)
        if not self.away(key):
            yield MergeEdge(type=row.type, source=source, target=key, values={})

    def operations(self, operations: Operations, owner: str) -> None:
        """Add tombstones, removals and boosts; what the projection owns on behalf of `owner`."""
        operations.extend(self._made())
        operations.extend(removals(self._removed, self._nodes))
        if self._removed:
            bridging = rewired(self._removed, self._nodes, self._neighbours)
            operations.on_behalf_of(owner).extend(bridging)
        for key, boost, position in self._boosts:
            tombstone = self.of(key)
            if tombstone is None or (tombstone.recalled and tombstone.decided_at < position):
                operations.add(
                    DecideNode(
                        label=EVENT.label,
                        key=key,
                        name="importance_boost",
                        value=boost,
                        position=position,
                    )
                )

    def _made(self) -> Iterator[Operation]:
        for key, (tier, position) in self._removed.items():
            node, tombstone = self._nodes.get(key, Leaving()), self.of(key)
            values = {
                "session_id": node.session_id,
                "user_id": node.user_id,
                "occurred_at": node.occurred_at_ms,
                "importance_score": node.importance,
                "summary_id": tombstone.summary_id if tombstone else None,
                "vector": node.vector,
            }
            yield MergeNode(label=FORGOTTEN.label, key=key, values=values)
            yield DecideNode(
                label=FORGOTTEN.label, key=key, name="tier", value=tier.value, position=position
            )
        for key, tombstone in self._now.items():
            yield DecideNode(
                label=FORGOTTEN.label,
                key=key,
                name="recalled",
                value=tombstone.recalled,
                position=tombstone.decided_at,
            )


class SimilarEdge(NamedTuple):
    """A SIMILAR_TO edge.

    Attributes:
        first: event id, the smaller of the two.
        second: event id.
        score: plain cosine.
        hot: whether one of its ends is in the hot tier.
    """

    first: str
    second: str
    score: float
    hot: bool = False


def similar_departures(
    edges: Iterable[SimilarEdge], policy: RetentionPolicy
) -> list[tuple[str, str]]:
    """The pairs that are no longer similar, sorted.

    An event keeps its `similar_keep` best edges, so an edge goes when it is not among the best of
    either end; a popular event may keep more, those that are the best its neighbours have. What
    scores below `similar_score` goes whatever its rank. A hot end keeps all its edges. Of equal
    scores the smaller other end ranks first.

    Args:
        edges: all those of every event whose edges may go; each once.
        policy: of the tenant.
    """
    if not policy.enabled:
        return []
    ranked: dict[str, list[tuple[float, str]]] = {}
    given = list(edges)
    for edge in given:
        ranked.setdefault(edge.first, []).append((-edge.score, edge.second))
        ranked.setdefault(edge.second, []).append((-edge.score, edge.first))
    best = {
        event_id: {other for _, other in sorted(others)[: policy.similar_keep]}
        for event_id, others in ranked.items()
    }
    return sorted(
        (edge.first, edge.second)
        for edge in given
        if not edge.hot
        and (
            edge.score < policy.similar_score
            or (edge.second not in best[edge.first] and edge.first not in best[edge.second])
        )
    )


class RetainedEntity(NamedTuple):
    """What archiving asks of an entity.

    Attributes:
        entity_id: within the tenant.
        edges: of any type, in either direction.
        access_count: how many reads returned it.
        archived: already.
    """

    entity_id: str
    edges: int
    access_count: int = 0
    archived: bool = False


def archived_entities(entities: Iterable[RetainedEntity], policy: RetentionPolicy) -> list[str]:
    """Ids of the entities to archive, sorted: without edges, and hardly asked for."""
    return sorted(
        entity.entity_id
        for entity in entities
        if policy.enabled
        and not entity.archived
        and entity.edges == 0
        and entity.access_count < policy.entity_min_accesses
    )


def returning_entities(entities: Iterable[RetainedEntity]) -> list[str]:
    """Ids of archived entities that have edges again, sorted; forgetting need not be enabled."""
    return sorted(entity.entity_id for entity in entities if entity.archived and entity.edges > 0)


class RetainedFact(NamedTuple):
    """What expiring asks of a fact.

    Attributes:
        key: of its edge.
        confidence: 0 to 1.
        valid_to_ms: exclusive; None: open.
        retrievals: as stored; None: never retrieved.
        expired: already.
    """

    key: FactKey
    confidence: float
    valid_to_ms: int | None = None
    retrievals: Retrievals | None = None
    expired: bool = False


def expiring_facts(
    facts: Iterable[RetainedFact],
    policy: RetentionPolicy,
    now_ms: int,
) -> list[FactKey]:
    """Keys of the facts to expire, sorted: they ended, and hardly anything speaks for them.

    A fact that begins later than `now_ms` is not valid now either, but it has its time before it:
    it stays.
    """
    return sorted(
        fact.key
        for fact in facts
        if policy.enabled
        and not fact.expired
        and fact.valid_to_ms is not None
        and fact.valid_to_ms <= now_ms
        and effective_confidence(fact.confidence, retrieval_count(fact.retrievals, now_ms))
        < policy.fact_min_confidence
    )


MAX_DROPPED: Final = 500
"""Ids that an event keeps, the largest: those of version 7 are the latest."""


class DroppedPairs:
    """What events were parted from, while decisions are applied in their order.

    Args:
        shown: by event, as node or tombstone has it.
        came: whether the ledger held an event at a position.
        away: whether an event is forgotten, and was not recalled.
    """

    def __init__(
        self,
        shown: Mapping[EventKey, Iterable[str]],
        came: Callable[[EventKey, Position], bool],
        away: Callable[[EventKey], bool],
    ) -> None:
        self._parted = {key: set(ids) for key, ids in shown.items()}
        self._came = came
        self._away = away
        self._decided: dict[tuple[str, EventKey], tuple[Position, list[str]]] = {}

    def part(self, position: Position, tenant: str, pairs: Iterable[tuple[str, str]]) -> None:
        """Pairs are dropped.

        The second end remembers: of ids of version 7 the later one, which has few edges to what is
        before it, while any number of later ones may have one to the first.
        """
        for first, second in pairs:
            self._parted.setdefault((tenant, second), set()).add(first)
            self._decide(position, (tenant, second))

    def move(self, position: Position, tenant: str, event_ids: Iterable[str]) -> None:
        """Events leave, or come back."""
        for event_id in event_ids:
            if self._parted.get((tenant, event_id)):
                self._decide(position, (tenant, event_id))

    def _decide(self, position: Position, key: EventKey) -> None:
        """The tombstone has the list while the event is away, the event while it is there."""
        away = self._away(key)
        if not away and not self._came(key, position):
            return
        ids = sorted(self._parted[key])[-MAX_DROPPED:]
        self._decided[FORGOTTEN.label if away else EVENT.label, key] = position, ids
        if away:  # with all that its node held
            self._decided.pop((EVENT.label, key), None)

    def operations(self) -> Iterator[DecideNode]:
        """The lists, where they belong."""
        for (label, key), (position, ids) in self._decided.items():
            yield DecideNode(label=label, key=key, name="parted_from", value=ids, position=position)
