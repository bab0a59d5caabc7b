"""Communities of the entity graph: found anew, decided about where members or links changed.

The graph is read page by page and kept in arrays; what a community says is read of those that
changed, for their most central members only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple, cast

import numpy as np

from consolidation.communities import (
    DESCRIBED_MEMBERS,
    Community,
    Member,
    centroid,
    communities,
    community_changes,
    community_chunks,
    community_text,
    fact_links,
    owners_of,
    same_links,
    with_ids,
)
from consolidation.label_propagation import (
    EntityGraph,
    EntityLink,
    chunk_size,
    entity_graph,
    propagate,
)
from consolidation.payloads import CommunityChunk, CommunityGone
from consolidation.sources import READ_FACTS, SHARED, Described, InnerFact, LinkingFact, NamedEntity
from enrichment.names import VALUE
from pipelines.graph.port import Reads, pages
from pipelines.graph.rows import End, FoundEdge
from pipelines.observe import logs
from pipelines.operations.passes.deciding import NO_DIGEST, Deciding, PassReport
from pipelines.operations.passes.entity_names import described, entity_nodes, is_named
from projections.events import EVERYONE, Event, derived_event_id
from projections.identity import Position
from projections.operations import Key
from projections.schema import COMMUNITY, ENTITY, MEMBER_OF, RELATES_TO, SAME_AS

COMMUNITIES_AT_ONCE: Final = 200
VECTORS_AT_ONCE: Final = 500
TOLD_MEMBERS: Final = 5 * DESCRIBED_MEMBERS
"""Members that are read for a text: of what is the same, any may be the one that a user knows."""
_ENDED = ("expired_at", "faded_at")
_OWNED = ("valid_from", "valid_to", *_ENDED, "user_id")
_LINKING = tuple(dict.fromkeys((*RELATES_TO.key, *_OWNED, "confidence")))
_TELLING = (*_LINKING, "support_count", "fact")
_RECORDED = ("fingerprint", "user_id", "gone", "decided_at", "gone_decided_at")

_log = logs.get_logger(__name__)


class RecordedCommunity(NamedTuple):
    """A community as the graph shows it.

    Attributes:
        fingerprint: None: it is no more.
        user: whose facts made it, or SHARED.
        decided_at: position of what was decided of it last; None: nothing yet.
        members: entity ids.
    """

    fingerprint: str | None
    user: str
    decided_at: Position | None
    members: tuple[str, ...]


def decide_communities(
    deciding: Deciding, tenant: str, report: PassReport, chunk_edges: int
) -> None:
    """Find the communities of a tenant and decide about those that changed.

    Args:
        deciding: of the pass.
        tenant: whose.
        report: counts what is decided.
        chunk_edges: facts that are read at once; 0: the default, and a warning.
    """
    size = chunk_size(chunk_edges)
    if size != chunk_edges:
        _log.warning("no number of edges to read at once, the default is used", chunk_edges=size)
    recorded = recorded_communities(deciding.graph, tenant)
    if deciding.anew:
        recorded = {key: _undecided(one) for key, one in recorded.items()}
    living = {key: one for key, one in recorded.items() if one.fingerprint is not None}
    graph, owners = _entity_graph(deciding.graph, tenant, deciding.now_ms, size)
    # of one that is to be found anew only the id goes on
    told = {key: one for key, one in living.items() if one.fingerprint}
    before = {member: key for key, one in told.items() for member in one.members}
    groups = communities(graph, propagate(graph, seed=tenant, before=before))
    named = _named(tenant, groups, owners, living)
    changes = community_changes({key: one.fingerprint or "" for key, one in living.items()}, named)
    for key in (*changes.gone, *changes.new, *changes.changed):
        if not deciding.in_time():
            report.complete = False
            return
        report.communities_written += 1
        shown = recorded.get(key)
        decided_at = shown.decided_at if shown is not None else None
        if key in named:
            owner = owners[named[key].members[0].entity_id]
            deciding.append(
                _changed(deciding, tenant, key, named[key], owner=owner, before=decided_at)
            )
        else:
            deciding.append(_gone(deciding, tenant, key, decided_at))


def _entity_graph(
    graph: Reads, tenant: str, now_ms: int, chunk_edges: int
) -> tuple[EntityGraph, dict[str, str]]:
    """The graph of what holds, and the owner of each of its entities."""
    entities = _named_entities(graph, tenant, now_ms)
    owners = owners_of(entities)
    # entities that no fact names would be groups of one each
    linking = [
        link for entity in entities for link in same_links(entity) if link.source_id in owners
    ]

    def chunks() -> Iterator[Sequence[EntityLink]]:
        yield linking
        facts = _facts(graph, tenant, now_ms, _LINKING)
        while chunk := list(islice(facts, chunk_edges)):
            yield list(fact_links(_linking_facts(graph, chunk), owners))

    return entity_graph(chunks()), owners


def _named(
    tenant: str,
    groups: Sequence[Community],
    owners: Mapping[str, str],
    living: Mapping[str, RecordedCommunity],
) -> dict[str, Community]:
    """The communities by id, those of each owner apart."""
    by_owner: dict[str, list[Community]] = {}
    for community in groups:
        by_owner.setdefault(owners[community.members[0].entity_id], []).append(community)
    named: dict[str, Community] = {}
    for owner, group in by_owner.items():
        recorded = {key: one.members for key, one in living.items() if one.user == owner}
        named |= with_ids(group, recorded, tenant=tenant, user_id=user_of(owner))
    return named


def _changed(
    deciding: Deciding,
    tenant: str,
    community_id: str,
    community: Community,
    *,
    owner: str,
    before: Position | None,
) -> list[Event]:
    """Decisions of all chunks of a community."""
    graph = deciding.graph
    central = list(dict.fromkeys(member.canonical_id for member in community.members))
    central = central[:DESCRIBED_MEMBERS]
    told = [member for member in community.members if member.canonical_id in central][:TOLD_MEMBERS]
    facts = _inner_facts(graph, [(tenant, one.entity_id) for one in told], owner, deciding.now_ms)
    text = community_text(community, _described(graph, tenant, told, facts, owner=owner), facts)
    if deciding.words is not None:
        text = deciding.words.community(text)
    members = [member.entity_id for member in community.members]
    chunks = community_chunks(
        community_id,
        community,
        text,
        centroid(_vectors(graph, [(tenant, member) for member in members])),
        run_id=_run_id(tenant, community_id, community.fingerprint, before),
        user_id=user_of(owner),
    )
    return [_decision(deciding, tenant, chunk, before) for chunk in chunks]


def _gone(
    deciding: Deciding, tenant: str, community_id: str, before: Position | None
) -> list[Event]:
    run_id = _run_id(tenant, community_id, "gone", before)
    decided = CommunityGone(community_id=community_id, run_id=run_id)
    return [_decision(deciding, tenant, decided, before)]


def _described(
    graph: Reads,
    tenant: str,
    members: Sequence[Member],
    facts: Sequence[InnerFact],
    *,
    owner: str,
) -> dict[str, Described]:
    """What members are called by whom the community belongs to, by canonical id.

    A user may know of what is the same another one than the canonical, by a fact or a mention.
    """
    view = EVERYONE if owner == SHARED else owner
    nodes = entity_nodes(graph, tenant, [one.entity_id for one in members])
    named = {end for fact in facts for end in (fact.source_id, fact.target_id)}
    names: dict[str, Described] = {}
    for member in sorted(members, key=lambda member: member.entity_id):
        node = nodes.get(member.entity_id)
        if node is None or not (member.entity_id in named or is_named(node, view)):
            continue
        called = described(node, view)
        called = called if is_named(node, view) else called._replace(subtype=None)
        names.setdefault(member.canonical_id, called)
    return names


def _run_id(tenant: str, community_id: str, fingerprint: str, before: Position | None) -> str:
    """Of the decision, not of the pass: a second pass after a crash sends the missing chunks."""
    about = (tenant, community_id, fingerprint, str(before or ""))
    return derived_event_id("community", *about)


def _decision(
    deciding: Deciding,
    tenant: str,
    decided: CommunityChunk | CommunityGone,
    before: Position | None,
) -> Event:
    chunk = decided.chunk if isinstance(decided, CommunityChunk) else None
    about = ("community", decided.community_id, decided.run_id, chunk, before)
    return deciding.decision(tenant, decided.payload(), *about)


# -- what is read ----------------------------------------------------------------------------------


def recorded_communities(graph: Reads, tenant: str) -> dict[str, RecordedCommunity]:
    """All communities by id, those that are no more included."""
    recorded: dict[str, RecordedCommunity] = {}
    by, size = COMMUNITY.key, COMMUNITIES_AT_ONCE
    for page in pages(graph, COMMUNITY.label, by, (tenant,), properties=_RECORDED, size=size):
        keys = [node.key for node in page]
        members = graph.edges(MEMBER_OF.type, keys, by=End.TARGET)
        for node in page:
            fingerprint, user, gone, *positions = (node.values[name] for name in _RECORDED)
            recorded[node.key[1]] = RecordedCommunity(
                None if gone else fingerprint,
                user or SHARED,
                max((Position(*position) for position in positions if position), default=None),
                tuple(edge.source[1] for edge in members.get(node.key, ())),
            )
    return recorded


def _undecided(shown: RecordedCommunity) -> RecordedCommunity:
    return shown if shown.fingerprint is None else shown._replace(fingerprint=NO_DIGEST)


def _facts(graph: Reads, tenant: str, now_ms: int, names: Sequence[str]) -> Iterator[FoundEdge]:
    """The facts of a tenant that hold, some of them in memory at once."""
    stream = cast(Iterator[FoundEdge], graph.stream(RELATES_TO.type, names, tenants=[tenant]))
    return (fact for fact in stream if _holds(fact.values, now_ms))


def _holds(values: Mapping[str, Any], now_ms: int) -> bool:
    since_ms, until_ms = values["valid_from"], values["valid_to"]
    begun = since_ms is not None and since_ms <= now_ms
    over = until_ms is not None and until_ms <= now_ms
    return begun and not over and all(values[name] is None for name in _ENDED)


def _named_entities(graph: Reads, tenant: str, now_ms: int) -> list[NamedEntity]:
    """The entities that facts name, or that are the same as others."""
    users: dict[str, set[str]] = {}
    for fact in _facts(graph, tenant, now_ms, _OWNED):
        for _, entity_id in (fact.source, fact.target):
            users.setdefault(entity_id, set()).add(fact.values["user_id"] or SHARED)
    same: dict[str, list[str]] = {}
    stream = graph.stream(SAME_AS.type, ("retracted",), tenants=[tenant])
    for edge in cast(Iterator[FoundEdge], stream):
        if not edge.values["retracted"]:
            same.setdefault(edge.source[1], []).append(edge.target[1])
    ids = sorted(users.keys() | same.keys())
    return [NamedEntity(own_id, users.get(own_id, ()), same.get(own_id, ())) for own_id in ids]


def _linking_facts(graph: Reads, facts: Sequence[FoundEdge]) -> Iterator[LinkingFact]:
    literals = _literals(graph, facts)
    for fact in facts:
        relation, edge_type, valid_from_ms, event_id = (
            fact.values[name] for name in RELATES_TO.key
        )
        confidence = fact.values["confidence"]
        yield LinkingFact(
            source_id=fact.source[1],
            target_id=fact.target[1],
            literal=fact.target in literals,
            user=fact.values["user_id"] or SHARED,
            confidence=1.0 if confidence is None else confidence,
            key=(relation, edge_type, str(valid_from_ms), event_id),
        )


def _literals(graph: Reads, facts: Iterable[FoundEdge]) -> set[Key]:
    """Those ends of facts that are no entities of their own."""
    ends = graph.nodes(ENTITY.label, {fact.target for fact in facts}, ("subtype",))
    return {key for key, node in ends.items() if node.values["subtype"] == VALUE}


def _inner_facts(graph: Reads, entities: Sequence[Key], user: str, now_ms: int) -> list[InnerFact]:
    """The strongest facts of a user, or of nobody, that name some of few entities."""
    around = graph.edges(RELATES_TO.type, entities, _TELLING, by=End.EITHER)
    strongest: dict[tuple[Any, ...], FoundEdge] = {}
    for entity in entities:
        facts = [
            fact
            for fact in around.get(entity, ())
            if _holds(fact.values, now_ms) and (fact.values["user_id"] or SHARED) == user
        ]
        for fact in nsmallest(5 * READ_FACTS, facts, key=_strength):
            told_apart = (fact.values[name] for name in RELATES_TO.key)
            strongest[fact.source, fact.target, *told_apart] = fact
    literals = _literals(graph, strongest.values())
    return [_inner_fact(fact, literals) for fact in strongest.values()]


def _strength(fact: FoundEdge) -> tuple[float, float, str]:
    """Sorts the most certain first, of these the best supported; what is not told counts most."""
    confidence, support = fact.values["confidence"], fact.values["support_count"]
    return (
        -inf if confidence is None else -confidence,
        -inf if support is None else -support,
        fact.values["fact"] or "",
    )


def _inner_fact(fact: FoundEdge, literals: set[Key]) -> InnerFact:
    confidence, support = fact.values["confidence"], fact.values["support_count"]
    return InnerFact(
        source_id=fact.source[1],
        target_id=None if fact.target in literals else fact.target[1],
        fact=fact.values["fact"] or "",
        confidence=1.0 if confidence is None else confidence,
        support_count=1 if support is None else support,
    )


def _vectors(graph: Reads, entities: Sequence[Key]) -> Iterator[bytes]:
    """The vectors of entities that have one, as little-endian float32."""
    name = "embedding"
    for start in range(0, len(entities), VECTORS_AT_ONCE):
        part = entities[start : start + VECTORS_AT_ONCE]
        nodes = graph.nodes(ENTITY.label, part, (name,))
        for key in part:
            if key in nodes and nodes[key].values[name] is not None:
                yield np.asarray(nodes[key].values[name], dtype="<f4").tobytes()


def user_of(owner: str) -> str | None:
    """The user that owns it; None: it is shared."""
    return None if owner == SHARED else owner
