"""Stage 3, the half that applies: what was decided becomes graph. Read this first.

`derive` reads what an entry decides, `wanted` says what must be known of the graph about a batch,
`consolidate` turns both into operations. Of two decisions about one subject the later position
stays, and a subject tells the position that it shows, so entries that come again change nothing.
Only the sums of sessions count up: by the transaction that moves the checkpoint, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from consolidation import NAME
from consolidation.access_counts import Access, AccessCounts, FactPlace, NodeKey, ShownFact
from consolidation.decisions import (
    Decision,
    Passes,
    RequestKey,
    Scopes,
    ShownPass,
    Sums,
    parse_decision,
)
from consolidation.forgetting import DroppedPairs, EventKey, Leaving, Tombstone, Tombstones
from consolidation.forgetting_payloads import (
    Accessed,
    EntitiesArchived,
    EntitiesRecalled,
    EventsForgotten,
    EventsRecalled,
    FactsExpired,
    PairsDropped,
)
from consolidation.hierarchy import (
    Communities,
    CommunityKey,
    DecidedNode,
    EntityKey,
    Hierarchy,
    ShownCommunity,
    ShownSummary,
    SummaryKey,
    TraitKey,
    Traits,
    agent_key,
    episode_key,
    keys_around,
    session_key,
    user_key,
)
from consolidation.payloads import (
    AgentDecided,
    BoostsDecided,
    CommunityChunk,
    CommunityGone,
    EpisodeDecided,
    LinksDecided,
    PassDecided,
    Requested,
    SessionDecided,
    SummariesGone,
    TraitsDecided,
)
from enrichment.importance import importance_score
from enrichment.names import ACTIVE
from enrichment.payloads import Feedback
from enrichment.text import event_text
from projections.events import SYSTEM_EVENTS, Event, is_system_event
from projections.identity import Link, Position, SessionKey
from projections.operations import (
    DecideNode,
    MergeNode,
    Operations,
    RemoveEdge,
)
from projections.schema import DERIVED_FROM, ENTITY, EVENT, FORGOTTEN, SIMILAR_TO, SUMMARIZES
from projections.structural import Neighbours

PROJECTION: Final = EVENT.stage
"""The stage whose chains are bridged."""

ARCHIVED: Final = "archived"


class Derived(NamedTuple):
    """An entry, and what it decides; None: it is an ordinary event."""

    position: Position
    event: Event
    decision: Decision | None = None


class Counted(NamedTuple):
    """What the graph knows of an ordinary event.

    Attributes:
        importance: of its node, or of its tombstone.
        forgotten: it has a tombstone.
        placed: the tombstone tells its session.
    """

    importance: int | None = None
    forgotten: bool = False
    placed: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """What the graph says, read after the checkpoint's lock was taken."""

    counting: bool = False
    """Whether this transaction is the one that moves the checkpoint."""
    counted: Mapping[EventKey, Counted] = field(default_factory=dict)
    scopes: Mapping[SessionKey, Sums] = field(default_factory=dict)
    summaries: Mapping[SummaryKey, ShownSummary] = field(default_factory=dict)
    communities: Mapping[CommunityKey, ShownCommunity] = field(default_factory=dict)
    traits: Mapping[TraitKey, DecidedNode] = field(default_factory=dict)
    joined: Mapping[EntityKey, Position] = field(default_factory=dict)
    entities: Set[EntityKey] = frozenset()
    tombstones: Mapping[EventKey, Tombstone] = field(default_factory=dict)
    present: Set[EventKey] = frozenset()
    leaving: Mapping[EventKey, Leaving] = field(default_factory=dict)
    neighbours: Mapping[tuple[SessionKey, Link], Neighbours] = field(default_factory=dict)
    listed: Set[tuple[str, str, str]] = frozenset()
    """(tenant, summary id, event id) of recalled events that a Summary lists."""
    proving: Set[tuple[str, str, str]] = frozenset()
    """(tenant, trait id, event id) of recalled events that prove a Trait."""
    parted: Mapping[EventKey, Sequence[str]] = field(default_factory=dict)
    accesses: Mapping[NodeKey, Access] = field(default_factory=dict)
    shown_facts: Mapping[FactPlace, ShownFact] = field(default_factory=dict)
    came: Mapping[EventKey, Position] = field(default_factory=dict)
    """Of events that are named, where the ledger has them; those without a node or a dead letter
    are missing."""
    passes: Mapping[str, ShownPass] = field(default_factory=dict)
    requests: Mapping[RequestKey, Position] = field(default_factory=dict)


@dataclass(slots=True)
class Wanted:
    """What must be known of the graph about a batch: keys, by what is asked about them."""

    sessions: set[SessionKey] = field(default_factory=set)
    """Whose summaries were made."""
    summaries: set[SummaryKey] = field(default_factory=set)
    communities: dict[CommunityKey, bool] = field(default_factory=dict)
    """True: with its members."""
    traits: set[TraitKey] = field(default_factory=set)
    entities: set[EntityKey] = field(default_factory=set)
    members: set[EventKey] = field(default_factory=set)
    """Events of which node and tombstone matter."""
    forgotten: dict[EventKey, str | None] = field(default_factory=dict)
    """Events that leave, and the Summary that names them."""
    recalled: set[EventKey] = field(default_factory=set)
    parted: set[EventKey] = field(default_factory=set)
    """Events that lose similar ones, leave or come back."""
    accessed: set[NodeKey] = field(default_factory=set)
    """Nodes of which accesses are counted."""
    facts: set[FactPlace] = field(default_factory=set)
    tenants: set[str] = field(default_factory=set)
    """That had a pass, or were asked for one."""
    requests: set[RequestKey] = field(default_factory=set)


def derive(entries: Sequence[tuple[Position, Event]]) -> list[Derived]:
    """What the entries decide; system events of other stages are left out.

    Raises:
        InvalidEvent: a decision breaks the rules of its payload.
    """
    entries_derived = []
    for position, event in entries:
        if not is_system_event(event.event_type):
            entries_derived.append(Derived(position, event))
        elif (row := SYSTEM_EVENTS.get(event.event_type)) is not None and row.owner == NAME:
            decision = parse_decision(event)
            if decision is not None:
                entries_derived.append(Derived(position, event, decision))
    return entries_derived


# -- what to ask the graph -------------------------------------------------------------------------


def wanted(batch: Sequence[Derived]) -> Wanted:
    """What must be known of the graph to apply the batch's decisions."""
    wants = Wanted()
    for derived in batch:
        if derived.decision is not None:
            _want_hierarchy(wants, derived.event.tenant, derived.decision)
            _want_others(wants, derived.event, derived.decision)
            _want_accesses(wants, derived.event.tenant, derived.decision)
    return wants


def reach(batch: Sequence[Derived]) -> Position | None:
    """Position up to which everything must be enriched, in every partition; None: nothing else.

    A decision was made of a graph that showed all that came before it, and what is forgotten too
    early would never be enriched.
    """
    return max((one.position for one in batch if one.decision is not None), default=None)


def _want_hierarchy(wants: Wanted, tenant: str, decision: Decision) -> None:
    match decision:
        case EpisodeDecided(summary=summary, event_ids=event_ids):
            session = session_key(tenant, summary.session_id, summary.user_ids)
            wants.summaries.update((episode_key(tenant, decision), session))
            wants.members.update((tenant, event_id) for event_id in event_ids)
        case SessionDecided(summary=summary, gone=gone):
            wants.sessions.add((tenant, summary.session_id))
            session, agents = keys_around(tenant, summary)
            wants.summaries.update((session, *agents))
            wants.summaries.update((tenant, one) for one in gone)
        case AgentDecided(summary=summary):
            wants.summaries.add(agent_key(tenant, summary.agent_id, summary.user_ids))
        case SummariesGone(summary_ids=gone):
            wants.summaries.update((tenant, one) for one in gone)
        case LinksDecided(session_id=session_id, user_ids=user_ids, links=links):
            wants.summaries.add(session_key(tenant, session_id, user_ids))
            wants.summaries.update(
                session_key(tenant, link.session_id, link.user_ids) for link in links
            )


def _want_others(wants: Wanted, event: Event, decision: Decision) -> None:
    tenant = event.tenant
    match decision:
        case BoostsDecided(boosts=boosts):
            wants.members.update((tenant, boost) for boost in boosts)
        case EventsForgotten(summary_id=summary_id, events=events):
            wants.forgotten.update(((tenant, one), summary_id) for one, _ in events)
            wants.members.update((tenant, one) for one, _ in events)
            wants.parted.update((tenant, one) for one, _ in events)
        case EventsRecalled(event_ids=event_ids):
            wants.recalled.update((tenant, event_id) for event_id in event_ids)
            wants.members.update((tenant, event_id) for event_id in event_ids)
            wants.parted.update((tenant, event_id) for event_id in event_ids)
        case PairsDropped(pairs=pairs):
            wants.members.update((tenant, second) for _, second in pairs)
            wants.parted.update((tenant, second) for _, second in pairs)
        case CommunityChunk():
            key = (tenant, decision.community_id)
            wants.communities[key] = wants.communities.get(key, False) or decision.chunk == 0
            wants.entities.update((tenant, entity_id) for entity_id in decision.entity_ids)
        case CommunityGone():
            wants.communities.setdefault((tenant, decision.community_id), False)
        case TraitsDecided(traits=traits, gone=gone):
            wants.traits.update((tenant, one) for one in (*(t.trait_id for t in traits), *gone))
            wants.traits.update((tenant, one.parent_id) for one in traits if one.parent_id)
            wants.members.update(
                (tenant, event_id) for trait in traits for event_id in trait.event_ids
            )
            wants.entities.add(user_key(tenant, decision.user_id))
            wants.summaries.update(
                (tenant, one) for trait in traits for one in trait.summary_ids or ()
            )
        case PassDecided():
            wants.tenants.add(tenant)
            wants.requests.update((tenant, request_id) for request_id in decision.request_ids)
        case Requested():
            wants.tenants.add(tenant)


def _want_accesses(wants: Wanted, tenant: str, decision: Decision) -> None:
    event_ids: Iterable[str] = ()
    match decision:
        case Accessed() | Feedback():
            event_ids = decision.events
            wants.accessed.update((ENTITY.label, tenant, entity) for entity in decision.entities)
            if isinstance(decision, Accessed):
                wants.facts.update((tenant, key) for key in decision.facts)
        case FactsExpired(facts=keys):
            wants.facts.update((tenant, key) for key in keys)
        case EventsRecalled():
            event_ids = decision.event_ids
    wants.members.update((tenant, event_id) for event_id in event_ids)
    wants.accessed.update((EVENT.label, tenant, event_id) for event_id in event_ids)


# -- the fold --------------------------------------------------------------------------------------


def consolidate(batch: Sequence[Derived], facts: Facts) -> Operations:
    """Operations that bring a graph, for which `facts` hold, up to the batch."""
    return _Fold(facts).apply(batch)


class _Fold:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._operations = Operations()
        self._scopes = Scopes(facts.scopes)
        self._hierarchy = Hierarchy(facts.summaries)
        self._communities = Communities(facts.communities, facts.joined, facts.entities)
        self._traits = Traits(facts.traits, facts.entities)
        self._tombstones = Tombstones(
            facts.tombstones, facts.leaving, facts.neighbours, facts.present
        )
        self._accesses = AccessCounts(
            facts.accesses, facts.shown_facts, self._came, self._tombstones.away
        )
        self._dropped_pairs = DroppedPairs(facts.parted, self._came, self._tombstones.away)
        self._passes = Passes(facts.passes, facts.requests)

    def apply(self, batch: Sequence[Derived]) -> Operations:
        for derived in sorted(batch, key=lambda operation: operation.position):
            if derived.decision is not None:
                self._take(derived.position, derived.event, derived.decision)
            elif self._facts.counting:
                self._count(derived.event)
        operations = self._operations
        operations.extend(self._hierarchy.operations(self._tombstones))
        self._tombstones.operations(operations, PROJECTION)
        self._list_recalled()
        operations.extend(self._communities.operations())
        operations.extend(self._traits.operations(self._hierarchy, self._tombstones))
        operations.extend(self._accesses.operations())
        operations.extend(self._dropped_pairs.operations())
        operations.extend(self._passes.operations())
        operations.extend(self._scopes.operations())
        return operations

    def _count(self, event: Event) -> None:
        counted = self._facts.counted.get(event.key, Counted())
        importance = counted.importance
        if importance is None:
            # left before it was enriched, or could not be enriched: the rules say what follows
            importance = importance_score(event, event_text(event))
        if counted.forgotten and not counted.placed:
            values = {
                "session_id": event.session_id,
                "user_id": event.user_id,
                "occurred_at": event.occurred_at_ms,
                "importance_score": importance,
                "summary_id": None,
                "vector": None,
            }
            self._operations.add(MergeNode(label=FORGOTTEN.label, key=event.key, values=values))
        self._scopes.count((event.tenant, event.session_id), importance)

    def _take(self, position: Position, event: Event, decision: Decision) -> None:
        match decision:
            case EpisodeDecided() | SessionDecided() | AgentDecided():
                self._take_summary(position, event, decision)
            case SummariesGone():
                self._hierarchy.take_gone(position, event, decision)
            case LinksDecided():
                self._hierarchy.take_links(position, event, decision)
            case CommunityChunk() | CommunityGone() | TraitsDecided():
                self._take_found(position, event, decision)
            case PassDecided():
                self._passes.take_pass(position, event, decision)
            case Requested():
                self._passes.take_request(position, event, decision)
            case Accessed() | Feedback():
                if self._facts.counting:
                    self._accesses.take(position, event, decision)
            case _:
                self._take_departure(position, event, decision)

    def _take_summary(
        self,
        position: Position,
        event: Event,
        decision: EpisodeDecided | SessionDecided | AgentDecided,
    ) -> None:
        match decision:
            case EpisodeDecided():
                self._hierarchy.take_episode(position, event, decision)
            case SessionDecided():
                if self._hierarchy.take_session(position, event, decision):
                    session = (event.tenant, decision.summary.session_id)
                    self._scopes.see(session, decision.seen_events, decision.seen_importance)
            case AgentDecided():
                self._hierarchy.take_agent(position, event, decision)

    def _take_found(
        self,
        position: Position,
        event: Event,
        decision: CommunityChunk | CommunityGone | TraitsDecided,
    ) -> None:
        match decision:
            case CommunityChunk():
                self._communities.take_chunk(position, event, decision)
            case CommunityGone():
                self._communities.take_gone(position, event, decision)
            case TraitsDecided():
                self._traits.take(position, event, decision)

    def _take_departure(self, position: Position, event: Event, decision: Decision) -> None:
        tenant, at_ms = event.tenant, event.occurred_at_ms
        match decision:
            case BoostsDecided(boosts=boosts):
                self._tombstones.boost(tenant, position, boosts)
            case EventsForgotten():
                self._tombstones.forget(tenant, position, decision)
                self._accesses.forget(tenant, (one for one, _ in decision.events))
                self._dropped_pairs.move(position, tenant, (one for one, _ in decision.events))
            case EventsRecalled(event_ids=event_ids, accessed=accessed):
                back = self._tombstones.recall(tenant, position, event_ids)
                self._dropped_pairs.move(position, tenant, back)
                if accessed and self._facts.counting:
                    self._accesses.recall(position, tenant, back, at_ms)
            case FactsExpired(facts=keys):
                self._accesses.expire(tenant, keys, at_ms)
            case PairsDropped(pairs=pairs):
                self._dropped_pairs.part(position, tenant, pairs)
                self._operations.on_behalf_of(SIMILAR_TO.stage).extend(
                    RemoveEdge(
                        type=SIMILAR_TO.type, source=(tenant, first), target=(tenant, second)
                    )
                    for first, second in pairs
                )
            case EntitiesArchived(entity_ids=ids) | EntitiesRecalled(entity_ids=ids):
                status = ARCHIVED if isinstance(decision, EntitiesArchived) else ACTIVE
                self._operations.extend(
                    DecideNode(
                        label=ENTITY.label,
                        key=(tenant, own_id),
                        name="status",
                        value=status,
                        position=position,
                    )
                    for own_id in ids
                )

    def _came(self, key: EventKey, position: Position) -> bool:
        at = self._facts.came.get(key)
        return self._tombstones.back(key) or (at is not None and at <= position)

    def _list_recalled(self) -> None:
        """What comes back is a member and a proof again, unless the batch says so anew."""
        for (tenant, event_id), summary_id in self._tombstones.recalled():
            summary = (tenant, summary_id)
            if self._hierarchy.written(summary):
                continue
            if (tenant, summary_id, event_id) in self._facts.listed:
                listed = self._tombstones.listed_by(SUMMARIZES, summary, (tenant, event_id))
                self._operations.extend(listed)
        for tenant, trait_id, event_id in sorted(self._facts.proving):
            trait, key = (tenant, trait_id), (tenant, event_id)
            if self._tombstones.back(key) and not self._traits.written(trait):
                self._operations.extend(self._tombstones.listed_by(DERIVED_FROM, trait, key))
