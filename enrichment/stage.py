"""Stage 2, enrichment: the composition. Read this first.

`derive_event` says what can be said of one event alone (models have run before), `enrich` turns a
batch of that and what the graph knows into graph operations. The graph up to a checkpoint depends
on the set of entries up to it: an event's inferred causes are derived again when a late event comes
to stand before it, and so is whom it is like; a fact's intervals are computed from all that was
said of it, and an entity keeps the name of its earliest mention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from enrichment import NAME, causality
from enrichment.causality import WINDOW
from enrichment.clauses import text_facts
from enrichment.derived import Derived
from enrichment.entities import mentions
from enrichment.event_kinds import TOOL_USE, EventKind
from enrichment.facts import Assertion, Mention, Party
from enrichment.features import Features, features
from enrichment.histories import Fact, Group, entry_of, group_of, groups_of, intervals
from enrichment.histories import merge as merged_entries
from enrichment.importance import importance_score
from enrichment.keywords import keywords, summary
from enrichment.names import MAX_FACTS, entity_id
from enrichment.outcomes import Changes, Place, changes
from enrichment.payloads import (
    EntityCorrected,
    EntityRenamed,
    EntityRetyped,
    FactAsserted,
    FactRetracted,
    SameAsFound,
    parse_statement,
    stated_fact,
    stated_pairs,
    stated_retraction,
)
from enrichment.persons import (
    Belonging,
    Bond,
    belongings,
    corrected_facts,
    persons_decided,
    speaks_as_user,
)
from enrichment.ports import Analysis, EventText
from enrichment.records import changed_facts, structured_facts
from enrichment.resolution import KnownEntity, Newcomer, comparisons, decisions, is_comparable
from enrichment.similarity import Near, similar_edges
from enrichment.text import stored_text
from enrichment.vectors import as_text, vector_of, whole_numbers
from enrichment.wishes import told_once, wish_facts
from enrichment.writes import MAX_CLAIMS, UNDECLARED, Tools
from projections.events import SYSTEM_EVENTS, Event, is_system_event
from projections.identity import Link, Position, SessionKey
from projections.operations import (
    ClearEdges,
    DecideNode,
    EnsureNode,
    Key,
    MergeEdge,
    MergeNode,
    Operation,
    Operations,
    RemoveEdge,
    RemoveNode,
    SetNode,
)
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    FACT_HISTORY,
    FORGOTTEN,
    INFERRED,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
)

EventKey = tuple[str, str]
EntityKey = tuple[str, str]
HistoryKey = tuple[str, str]


class Member(NamedTuple):
    """An event of a session's chain, as the graph places it.

    Attributes:
        folded: whether it was enriched before, and is not part of the batch.
        gone: it was forgotten. It keeps its place, so that what later events take for their causes
            does not depend on when it left; its own edges, and those to it, would have left too.
    """

    link: Link
    features: Features | None
    folded: bool
    gone: bool = False


class Undecided(NamedTuple):
    """What the graph says of that about which the batch may give rise to decisions.

    Attributes:
        entities: those of the batch that the graph has already.
        namesakes: for each of the others, what it may be the same as, and the cosine of the names.
        bonds: of the names that the batch shows to be a user's, the users they were joined with
            before.
    """

    entities: Set[EntityKey]
    namesakes: Mapping[EntityKey, Sequence[tuple[KnownEntity, float]]]
    bonds: Mapping[EntityKey, Sequence[Bond]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the graph says, read after the checkpoint's lock was taken."""

    present: Set[EventKey] = frozenset()
    """Events of the batch that have a node."""
    forgotten: Set[EventKey] = frozenset()
    """Events of the batch that have none because they left."""
    blank: Set[EventKey] = frozenset()
    """Events of the batch whose tombstones were made before they were enriched."""
    stretches: Mapping[SessionKey, Sequence[Sequence[Member]]] = field(default_factory=dict)
    """Of each session the stretches around the batch's events, in the chain's order."""
    histories: Mapping[HistoryKey, Sequence[str]] = field(default_factory=dict)
    near: Mapping[EventKey, Sequence[Near]] = field(default_factory=dict)
    """Whom the batch's events, and the later ones that they concern, are to be joined with."""
    edges: Mapping[EventKey, Mapping[str, float]] = field(default_factory=dict)
    """The SIMILAR_TO that those have to what is before them."""
    undecided: Undecided | None = None
    """What decisions are made of; None: the recorded ones are applied, and none is made."""


# -- one event alone -------------------------------------------------------------------------------


def derive_event(
    position: Position,
    event: Event,
    text: EventText,
    analysis: Analysis,
    *,
    content: object = None,
    tools: Tools = UNDECLARED,
) -> Derived:
    """Everything that an event says by itself, but the vectors of its text and its names.

    Args:
        position: where the ledger keeps it.
        event: no system event.
        text: of `event_text`.
        analysis: of the text; empty when degraded.
        content: the payload behind `payload_ref`.
        tools: that are declared to write, or not to.
    """
    mentioned = mentions(event, text, analysis, content)
    stated = [
        *changed_facts(event, text, content, position_ms=position.ms),
        *structured_facts(event, text, content, position_ms=position.ms),
        *told_once(
            text_facts(event, text, analysis, mentioned, position_ms=position.ms),
            wish_facts(event, text, analysis, position_ms=position.ms),
        ),
        *corrected_facts(event, text, position_ms=position.ms),
    ]
    room = MAX_FACTS - MAX_CLAIMS if text.kind in TOOL_USE else MAX_FACTS
    return Derived(
        position=position,
        event=event,
        text=text,
        keywords=keywords(text, analysis),
        summary=summary(event, text, analysis),
        importance=importance_score(event, text),
        mentions=mentioned,
        assertions=tuple(one._replace(ordinal=n) for n, one in enumerate(stated[:room])),
        by_user=speaks_as_user(event, text.kind, content),
        features=features(event, content, position_ms=position.ms, tools=tools),
    )


def derive_statement(position: Position, event: Event) -> Derived:
    """What a system event of this stage says.

    Raises:
        InvalidEvent: it breaks the rules of its payload.
    """
    statement = parse_statement(event.event_type, event.payload)
    bare = Derived(position, event, EventText(EventKind.OTHER, ""), statement=statement)
    if isinstance(statement, FactAsserted):
        return bare._replace(assertions=(stated_fact(event, statement, position_ms=position.ms),))
    if isinstance(statement, FactRetracted):
        withdrawn = stated_retraction(event, statement, position_ms=position.ms)
        return bare._replace(retractions=(withdrawn,))
    return bare


def is_ours(event: Event) -> bool:
    """Whether the event is a system event that this stage applies."""
    row = SYSTEM_EVENTS.get(event.event_type)
    return row is not None and row.owner == NAME


def wanted_names(derived: Derived) -> dict[str, str]:
    """Names whose vectors tell which entities are the same: entity id → the name to embed."""
    tenant = derived.event.tenant
    return {
        entity_id(tenant, mention.canonical_name, mention.entity_type): mention.canonical_name
        for mention in derived.mentions
        if is_comparable(mention)
    }


# -- what to ask the graph -------------------------------------------------------------------------


def wanted_links(batch: Sequence[Derived]) -> dict[SessionKey, list[Link]]:
    """The batch's events by session, sorted."""
    sessions: dict[SessionKey, list[Link]] = {}
    for derived in batch:
        if not is_system_event(derived.event.event_type):
            key = (derived.event.tenant, derived.event.session_id)
            sessions.setdefault(key, []).append(
                Link(derived.event.occurred_at_ms, derived.event.event_id)
            )
    for links in sessions.values():
        links.sort()
    return sessions


def written(
    batch: Iterable[Derived], stretches: Mapping[SessionKey, Sequence[Sequence[Member]]]
) -> Changes:
    """What the batch changes about the writes that succeeded in its sessions.

    Args:
        batch: events that have a place in their sessions.
        stretches: around them.
    """
    fresh = {one.event.key for one in batch if one.features is not None}
    tenants: dict[str, list[list[Place]]] = {}
    for (tenant, _), several in stretches.items():
        tenants.setdefault(tenant, []).extend(
            [Place(member.features, (tenant, member.link.event_id) in fresh) for member in stretch]
            for stretch in several
        )
    return changes(tenants)


def wanted_groups(
    batch: Sequence[Derived], writes: Changes | None = None
) -> dict[HistoryKey, Group]:
    """The groups of facts that the batch says something about."""
    groups: dict[HistoryKey, Group] = {}
    for assertion in (*writes.made, *writes.gone) if writes is not None else ():
        group = group_of(assertion)
        groups[group.tenant, group.history_id] = group
    for derived in batch:
        touched = [group_of(said) for said in derived.assertions]
        touched += [group for retraction in derived.retractions for group in groups_of(retraction)]
        groups.update({(group.tenant, group.history_id): group for group in touched})
    return groups


def wanted_bonds(batch: Iterable[Derived], writes: Changes) -> list[Belonging]:
    """What the batch shows to be a user's; the graph is asked what it joined the names with."""
    by_event: dict[str, list[Assertion]] = {}
    for fact in writes.made:
        for event_id in {fact.event_id, fact.confirmed_by or fact.event_id}:
            by_event.setdefault(event_id, []).append(fact)
    return [
        shown
        for derived in batch
        if derived.features is not None
        for shown in belongings(
            derived.event,
            derived.position,
            spoken=derived.by_user,
            assertions=[*derived.assertions, *by_event.get(derived.event.event_id, ())],
        )
    ]


def newcomers(batch: Sequence[Derived], existing: Set[EntityKey]) -> dict[EntityKey, Newcomer]:
    """The entities that the batch mentions and the graph does not have, by their first mention."""
    first_mentions: dict[EntityKey, Newcomer] = {}
    for derived in batch:
        for mention in derived.mentions:
            own_id = entity_id(derived.event.tenant, mention.canonical_name, mention.entity_type)
            key = (derived.event.tenant, own_id)
            before = first_mentions.get(key)
            if key in existing or (before is not None and before.position <= derived.position):
                continue
            entity = KnownEntity(
                entity_id=own_id,
                canonical_name=mention.canonical_name,
                entity_type=mention.entity_type,
                subtype=mention.subtype,
                exact=mention.exact,
            )
            first_mentions[key] = Newcomer(
                entity, derived.names.get(own_id), derived.event, derived.position
            )
    return first_mentions


# -- the fold --------------------------------------------------------------------------------------


def enrich(batch: Sequence[Derived], facts: Facts) -> Operations:
    """Operations that bring a graph, for which `facts` hold, up to the batch.

    An event that was forgotten before it was enriched (a dead letter, tried again) leaves behind
    what it would have left: entities, facts, causes among the events around it, its importance.
    """
    operations = Operations()
    present = [
        derived
        for derived in batch
        if is_system_event(derived.event.event_type) or derived.event.key in facts.present
    ]
    forgotten = [derived for derived in batch if derived.event.key in facts.forgotten]
    entities = _Entities()
    for derived in present:
        if derived.statement is not None:
            operations.extend(_statement_operations(derived))
        else:
            operations.extend(_event_operations(derived, entities))
    for derived in forgotten:
        for mention in derived.mentions:
            entities.meet(derived.event, mention, derived.names)
    operations.extend(_inferred([*present, *forgotten], facts))
    operations.extend(_facts([*present, *forgotten], facts, entities))
    operations.extend(similar_edges(facts.near, facts.edges))
    operations.extend(entities.operations())
    blank = (_tombstone(derived) for derived in batch if derived.event.key in facts.blank)
    operations.on_behalf_of(FORGOTTEN.stage).extend(blank)
    if facts.undecided is not None:
        entities_known, namesakes, bonds = facts.undecided
        compared = comparisons(newcomers(present, entities_known), namesakes)
        shown = wanted_bonds(present, written([*present, *forgotten], facts.stretches))
        operations.decisions = [*decisions(compared), *persons_decided(shown, bonds)]
        operations.questions = compared
    return operations


def _event_operations(derived: Derived, entities: _Entities) -> Iterable[Operation]:
    event = derived.event
    yield SetNode(
        label=EVENT.label,
        key=event.key,
        values={
            "kind": derived.text.kind.value,
            "text": stored_text(derived.text.text) or None,
            "speaker": derived.text.speaker,
            "keywords": list(derived.keywords),
            "summary": derived.summary or None,
            "importance_score": derived.importance,
            "embedding": vector_of(derived.embedding),
            "embedding_model": derived.model,
        },
    )
    yield ClearEdges(REFERENCES.type, event.key)
    for mention in derived.mentions:
        key = entities.meet(event, mention, derived.names)
        spelled = mention.name if mention.name != mention.canonical_name else None
        values = {"role": mention.role, "name": spelled}
        yield MergeEdge(type=REFERENCES.type, source=event.key, target=key, values=values)


def _tombstone(derived: Derived) -> MergeNode:
    """What a tombstone tells of its event, where it does not tell it yet."""
    spoken = [] if derived.embedding is None else whole_numbers([derived.embedding])
    values = {
        "session_id": derived.event.session_id,
        "user_id": derived.event.user_id,
        "occurred_at": derived.event.occurred_at_ms,
        "importance_score": derived.importance,
        "summary_id": None,
        "vector": as_text(*spoken) if spoken else None,
    }
    return MergeNode(label=FORGOTTEN.label, key=derived.event.key, values=values)


def _statement_operations(derived: Derived) -> Iterable[Operation]:
    tenant, statement = derived.event.tenant, derived.statement
    if isinstance(statement, EntityCorrected | SameAsFound):
        for pair in stated_pairs(tenant, statement):
            ends = [(tenant, end) for end in pair.entity_ids]
            yield from (EnsureNode(ENTITY.label, end) for end in ends)
            yield MergeEdge(
                type=SAME_AS.type,
                source=ends[0],
                target=ends[1],
                values={
                    "confidence": pair.confidence / 10_000,
                    "justification": pair.justification or pair.method,
                    "retracted": not pair.same,
                    "event_id": derived.event.event_id,
                    "decided_at": tuple(derived.position),
                },
            )
    if isinstance(statement, EntityCorrected):
        key = (tenant, statement.entity_id)
        if isinstance(statement, EntityRenamed):
            yield DecideNode(
                label=ENTITY.label,
                key=key,
                name="display_name",
                value=statement.name,
                position=derived.position,
            )
        elif isinstance(statement, EntityRetyped):
            yield DecideNode(
                label=ENTITY.label,
                key=key,
                name="corrected_type",
                value=statement.type,
                position=derived.position,
            )


def _inferred(batch: Sequence[Derived], facts: Facts) -> Iterable[Operation]:
    """Inferred causes of the batch's events, and again of those that come next in their session.

    A late event may be a cause of the `WINDOW` events behind it, and pushes the oldest of their
    causes out of reach; so the edges of each of them are cleared and derived anew.
    """
    fresh = {one.event.key for one in batch if one.features is not None}
    for (tenant, _), stretches in facts.stretches.items():
        done: set[str] = set()
        for stretch in stretches:
            gone = {member.link.event_id for member in stretch if member.gone}
            dirty_until = -1
            for place, member in enumerate(stretch):
                event_id = member.link.event_id
                if (tenant, event_id) in fresh:
                    dirty_until = place + WINDOW
                elif not member.folded or place > dirty_until:
                    continue
                if member.features is None or member.gone or event_id in done:
                    continue
                done.add(event_id)
                before = [
                    other.features
                    for other in stretch[max(0, place - WINDOW) : place]
                    if other.features is not None
                ]
                for operation in inferred_operations(tenant, before, member.features):
                    if isinstance(operation, ClearEdges) or operation.target[1] not in gone:
                        yield operation


def inferred_operations(
    tenant: str, before: Sequence[Features], effect: Features
) -> Iterable[ClearEdges | MergeEdge]:
    """What makes the inferred causes of one event those that the rules find."""
    key = (tenant, effect.event_id)
    yield ClearEdges(CAUSED_BY.type, key)
    for cause in causality.inferred_causes(before, effect):
        yield MergeEdge(
            type=CAUSED_BY.type,
            source=key,
            target=(tenant, cause.cause_event_id),
            values={
                "mechanism": INFERRED,
                "rule": cause.rule,
                "confidence": cause.confidence,
                "evidence": cause.evidence,
            },
        )


def _facts(batch: Sequence[Derived], facts: Facts, entities: _Entities) -> Iterable[Operation]:
    """Histories with what the batch adds, and the edges whose intervals change by it."""
    _meet_ends(batch, entities)
    writes = written(batch, facts.stretches)
    stated = [assertion for derived in batch for assertion in derived.assertions]
    new = _rows((*stated, *writes.made))
    gone = _rows(writes.gone)
    for derived in batch:
        for withdrawn in derived.retractions:
            for group in groups_of(withdrawn):
                key = (group.tenant, group.history_id)
                new.setdefault(key, []).append(entry_of(withdrawn))
    groups = wanted_groups(batch, writes)
    for key in sorted(groups):
        group, old = groups[key], facts.histories.get(key, ())
        now = merged_entries(old, new.get(key, ()), gone.get(key, ()))
        if not now:  # the lock made it, or what was said proved to be wrong
            yield RemoveNode(FACT_HISTORY.label, key)
        if now == list(old):
            continue
        if now:
            yield MergeNode(label=FACT_HISTORY.label, key=key, values={"entries": now})
        before = _fact_edges(group, old)
        after = _fact_edges(group, now)
        # an edge that only changes is not taken away: it bears what others say of it
        for edge in (before[place] for place in before.keys() - after.keys()):
            parallel = {name: edge.values[name] for name in RELATES_TO.key}
            yield RemoveEdge(
                type=edge.type, source=edge.source, target=edge.target, values=parallel
            )
        yield from (edge for place, edge in after.items() if before.get(place) != edge)


def _meet_ends(batch: Iterable[Derived], entities: _Entities) -> None:
    """Take in the entities that facts are between.

    Those of a call that fails too: which entities there are does not depend on which result
    belongs to which call.
    """
    for derived in batch:
        ends = [(assertion.source, assertion.target) for assertion in derived.assertions]
        if derived.features is not None:
            ends += [(claim.source, claim.target) for claim in derived.features.claims]
        for source, target in ends:
            entities.meet(derived.event, source)
            entities.meet(derived.event, target)


def _rows(assertions: Iterable[Assertion]) -> dict[HistoryKey, list[str]]:
    """What is said, by the history that keeps it."""
    rows: dict[HistoryKey, list[str]] = {}
    for assertion in assertions:
        group = group_of(assertion)
        rows.setdefault((group.tenant, group.history_id), []).append(entry_of(assertion))
    return rows


def _fact_edges(group: Group, entries: Iterable[str]) -> dict[Key, MergeEdge]:
    edges = (fact_edge(group.tenant, fact) for fact in intervals(group, entries))
    return {edge.place: edge for edge in edges}


def fact_edge(tenant: str, fact: Fact) -> MergeEdge:
    """The edge of a fact."""
    return MergeEdge(
        type=RELATES_TO.type,
        source=(tenant, fact.source_id),
        target=(tenant, fact.target_id),
        values={
            "relation": fact.relation,
            "edge_type": fact.edge_type,
            "valid_from": fact.valid_from_ms,
            "event_id": fact.event_id,
            "fact": fact.fact,
            "confidence": fact.confidence / 10_000,
            "valid_to": fact.valid_to_ms,
            "expired_at": fact.expired_at_ms,
            "source": fact.source_kind,
            "status": fact.status,
            "user_id": fact.user_id,
            "supporting_event_ids": fact.supporting_event_ids,
            "support_count": fact.support_count,
        },
    )


@dataclass(slots=True)
class _Entity:
    """An entity of a batch; `first` is (time, event, name, subtype, user) of its first mention."""

    canonical_name: str
    entity_type: str
    first: tuple[int, str, str, str, str]
    last_ms: int
    vector: bytes | None


class _Entities:
    """The entities of a batch: of several mentions the earliest names it, the latest dates it."""

    def __init__(self) -> None:
        self._met: dict[EntityKey, _Entity] = {}

    def meet(
        self, event: Event, party: Mention | Party, vectors: Mapping[str, bytes] | None = None
    ) -> EntityKey:
        """Take a mention, or one end of a fact, in; the key of its entity."""
        own_id = entity_id(event.tenant, party.canonical_name, party.entity_type)
        key = (event.tenant, own_id)
        vector = (vectors or {}).get(own_id)
        named = (party.name, party.subtype or "", event.user_id or "")
        first = (event.occurred_at_ms, event.event_id, *named)
        entity = self._met.get(key)
        if entity is None:
            self._met[key] = _Entity(
                canonical_name=party.canonical_name,
                entity_type=party.entity_type,
                first=first,
                last_ms=event.occurred_at_ms,
                vector=vector,
            )
        else:
            entity.first = min(entity.first, first)
            entity.last_ms = max(entity.last_ms, event.occurred_at_ms)
            entity.vector = entity.vector or vector
        return key

    def operations(self) -> Iterable[Operation]:
        """The nodes."""
        for key, met in self._met.items():
            first_ms, first_event_id, name, subtype, user_id = met.first
            yield MergeNode(
                label=ENTITY.label,
                key=key,
                values={
                    "canonical_name": met.canonical_name,
                    "entity_type": met.entity_type,
                    "name": name,
                    "subtype": subtype or None,
                    "first_seen": first_ms,
                    "first_event_id": first_event_id,
                    "first_user_id": user_id or None,
                    "last_seen": met.last_ms,
                    "embedding": vector_of(met.vector),
                },
            )
