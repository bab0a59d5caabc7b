"""From entities, summaries and communities to what is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.answers import atlas_node
from api.entity_schemas import (
    Alias,
    CommunityItem,
    EntityDetails,
    EntityItem,
    EntityProvenance,
    EntityResponse,
    PageMeta,
    SessionLinkItem,
    SummaryItem,
)
from api.fact_answers import COMMUNITY_PREFIX, fact_of
from api.retrieval.facts import MAX_SOURCES, RecalledFact
from api.retrieval.recall import ENTITY_PREFIX
from api.schemas import Edge
from consolidation.decay import NEUTRAL_RELEVANCE
from pipelines.graph.reader import GraphNode
from pipelines.graph.reads.entities import EntityNode, Link, Mention
from pipelines.graph.reads.facts import EntityName
from projections.events import timestamp_text
from projections.schema import REFERENCES

SUMMARY_PREFIX = "summary:"
ACTIVE = "active"


def moment(time_ms: int | None) -> str | None:
    """A time on the wire."""
    return None if time_ms is None else timestamp_text(time_ms)


def entity_item(entity: EntityName, score: float | None) -> EntityItem:
    """An entity of a list."""
    return EntityItem(
        entity_id=ENTITY_PREFIX + entity.entity_id,
        name=entity.name,
        type=entity.entity_type,
        subtype=entity.subtype,
        match_score=score,
    )


def shown_name(properties: Mapping[str, Any]) -> str:
    """What an entity is called: by a person, else as it was seen first."""
    for name in ("display_name", "name", "canonical_name"):
        if properties.get(name):
            return str(properties[name])
    return ""


def _shown_type(properties: Mapping[str, Any]) -> str | None:
    return properties.get("corrected_type") or properties.get("entity_type")


def entity_response(
    canonical: str,
    members: Mapping[str, EntityNode],
    *,
    facts: Iterable[RecalledFact],
    events: Sequence[GraphNode],
    mentions: Iterable[Mention],
    now_ms: int,
    next_cursor: str | None,
    meta: PageMeta,
) -> EntityResponse:
    """One entity with all that belongs to it."""
    communities = [one.community for one in members.values() if one.community is not None]
    return EntityResponse(
        entity=_details(canonical, members, events),
        aliases=[_alias(canonical, members, own_id) for own_id in members if own_id != canonical],
        community=community_item(communities[0]) if communities else None,
        facts=[fact_of(one) for one in facts],
        events=[atlas_node(one, now_ms=now_ms, relevance=NEUTRAL_RELEVANCE) for one in events],
        edges=[
            Edge(
                source=one.event_id,
                target=ENTITY_PREFIX + one.entity_id,
                type=REFERENCES.type,
                properties={"role": one.role},
            )
            for one in mentions
        ],
        next_cursor=next_cursor,
        meta=meta,
    )


def _details(
    canonical: str, members: Mapping[str, EntityNode], events: Sequence[GraphNode]
) -> EntityDetails:
    own = members[canonical].node.properties
    known = [one.node.properties for one in members.values()]
    seen = [one for one in known if "first_seen" in one]
    first = min(seen, key=lambda one: int(one["first_seen"]), default={})
    return EntityDetails(
        entity_id=ENTITY_PREFIX + canonical,
        name=shown_name(own),
        canonical_name=own.get("canonical_name"),
        type=_shown_type(own),
        subtype=own.get("subtype"),
        status=own.get("status") or ACTIVE,
        first_seen=moment(first.get("first_seen")),
        last_seen=moment(
            max((one["last_seen"] for one in seen if "last_seen" in one), default=None)
        ),
        mention_count=sum(one.mentions for one in members.values()),
        provenance=EntityProvenance(
            event_id=first.get("first_event_id"),
            supporting_event_ids=[one.node_id for one in events[:MAX_SOURCES]],
        ),
    )


def _alias(canonical: str, members: Mapping[str, EntityNode], own_id: str) -> Alias:
    """A member; what is said of its pair with the canonical one, else of its strongest pair."""
    one = members[own_id]
    said = sorted(one.same, key=lambda pair: (pair[0] != canonical, -(pair[1] or 0.0), pair[0]))
    properties = one.node.properties
    return Alias(
        entity_id=ENTITY_PREFIX + own_id,
        name=shown_name(properties),
        type=_shown_type(properties),
        mention_count=one.mentions,
        confidence=said[0][1] if said else None,
        justification=said[0][2] if said else None,
    )


def community_item(node: GraphNode) -> CommunityItem:
    """A community."""
    known = node.properties
    return CommunityItem(
        community_id=COMMUNITY_PREFIX + node.node_id,
        name=known.get("name"),
        summary=known.get("summary"),
        member_count=known.get("member_count"),
        updated_at=moment(known.get("updated_at")),
        event_id=known.get("event_id"),
    )


def summary_item(node: GraphNode) -> SummaryItem:
    """A summary."""
    known = node.properties
    times = known.get("time_range")
    return SummaryItem(
        summary_id=SUMMARY_PREFIX + node.node_id,
        scope=known["scope"],
        scope_id=known["scope_id"],
        session_id=known.get("session_id"),
        content=known.get("content"),
        level=known.get("level"),
        event_count=known.get("event_count"),
        importance_total=known.get("importance_total"),
        failed_count=known.get("failed_count"),
        time_range=None if times is None else [timestamp_text(one) for one in times],
        created_at=moment(known.get("created_at")),
        source_event_ids=known.get("source_event_ids") or [],
        event_id=known.get("event_id"),
    )


def link_item(link: Link) -> SessionLinkItem:
    """A link to another session."""
    return SessionLinkItem.model_validate(
        {
            **link._asdict(),
            "summary_id": SUMMARY_PREFIX + link.summary_id,
            "evidence": list(link.evidence),
        }
    )
