"""Communities of the entity graph: found anew, decided about where members or links changed.

The graph is read page by page and kept in arrays; what a community says is read of those that
changed, for their most central members only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from consolidation.communities import (
    DESCRIBED_MEMBERS,
    Community,
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
from consolidation.sources import NamedEntity
from pipelines.graph.reads.communities import CommunityReader, RecordedCommunity, user_of
from pipelines.observe import logs
from pipelines.operations.passes.deciding import Deciding, PassReport
from projections.events import Event, derived_event_id
from projections.identity import Position

_log = logs.get_logger(__name__)


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
    reader = deciding.reader.communities
    size = chunk_size(chunk_edges)
    if size != chunk_edges:
        _log.warning("no number of edges to read at once, the default is used", chunk_edges=size)
    recorded = reader.recorded(tenant)
    living = {key: one for key, one in recorded.items() if one.fingerprint is not None}
    graph, owners = _graph(reader, tenant, deciding.now_ms, size)
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


def _graph(
    reader: CommunityReader, tenant: str, now_ms: int, chunk_edges: int
) -> tuple[EntityGraph, dict[str, str]]:
    """The graph of what holds, and the owner of each of its entities."""
    pages: list[tuple[str, str]] = []
    same: list[EntityLink] = []

    def entities() -> Iterator[NamedEntity]:
        after = ""
        for page in reader.entities(tenant, now_ms):
            pages.append((after, page[-1].entity_id))
            after = page[-1].entity_id
            for entity in page:
                same.extend(same_links(entity))
                yield entity

    owners = owners_of(entities())
    # entities that no fact names would be groups of one each
    linking = [link for link in same if link.source_id in owners]

    def chunks() -> Iterator[Sequence[EntityLink]]:
        yield linking
        for after, last in pages:
            for facts in reader.facts(tenant, after, last, now_ms, chunk_edges=chunk_edges):
                yield list(fact_links(facts, owners))

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
    reader = deciding.reader.communities
    central = list(dict.fromkeys(one.canonical_id for one in community.members))
    central = central[:DESCRIBED_MEMBERS]
    text = community_text(
        community,
        reader.described(tenant, central),
        reader.inner_facts(tenant, central, owner, deciding.now_ms),
    )
    members = [one.entity_id for one in community.members]
    chunks = community_chunks(
        community_id,
        community,
        text,
        centroid(reader.vectors(tenant, members)),
        run_id=_run_id(tenant, community_id, community.fingerprint, before),
        user_id=user_of(owner),
    )
    return [_decision(deciding, tenant, one, before) for one in chunks]


def _gone(
    deciding: Deciding, tenant: str, community_id: str, before: Position | None
) -> list[Event]:
    run_id = _run_id(tenant, community_id, "gone", before)
    decided = CommunityGone(community_id=community_id, run_id=run_id)
    return [_decision(deciding, tenant, decided, before)]


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
