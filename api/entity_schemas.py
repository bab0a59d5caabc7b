"""What goes over the wire of browsing: entities, summaries, episodes, and judgements of answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.query_schemas import MAX_FACTS, Fact, TimeoutMs
from api.schemas import Edge, Moment, Name, Node, PositionText, Wire
from enrichment.payloads import MAX_COMMENT_CHARACTERS, MAX_JUDGED
from enrichment.ports import EntityType

MAX_PAGE = 500
MAX_PLACE_CHARACTERS = 2_048
"""Of the cursor of a list."""

SummaryScope = Literal["episode", "session", "agent"]


class PageQuery(Wire):
    """Parameters of every list."""

    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    cursor: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_PLACE_CHARACTERS,
        description="Opaque: `next_cursor` of the page before, with the same parameters.",
    )
    timeout_ms: TimeoutMs = 5_000
    min_position: PositionText | None = Field(
        default=None,
        description="Wait until the projection has this position; what is derived from it follows.",
    )


class EntitiesQuery(PageQuery):
    """Parameters of the list of entities."""

    query: Name | None = Field(
        default=None, description="Words of names, or how they begin. Default: all, by name."
    )
    type: EntityType | None = None


class EntityQuery(PageQuery):
    """Parameters of one entity; pages are of its events, the newest first."""

    as_of: Moment | None = Field(
        default=None, description="Events until then, facts that were valid then; default now."
    )
    user_id: Name | None = Field(
        default=None, description="Only events and facts of this user and of nobody."
    )
    max_facts: int = Field(default=50, ge=0, le=MAX_FACTS)


class SummaryQuery(PageQuery):
    """Parameters of a summary; pages are of the summaries it is made from."""


class PageMeta(Wire):
    """How the answer came about."""

    query_ms: int = Field(ge=0)
    returned: int
    truncated: bool = Field(description="There is another page.")


class EntityItem(Wire):
    """An entity of a list; those found to be the same are listed each."""

    entity_id: str = Field(examples=["entity:" + "0f" * 16])
    name: str
    type: str | None
    subtype: str | None
    match_score: float | None = Field(description="Of the query; null without one.")


class EntityList(Wire):
    """A page of entities."""

    entities: list[EntityItem]
    next_cursor: str | None
    meta: PageMeta


class EntityProvenance(Wire):
    """The events that made it."""

    event_id: str | None = Field(description="The first event that mentions it.")
    source: Literal["redis"] = "redis"
    supporting_event_ids: list[str] = Field(description="The newest of this page, at most 20.")


class EntityDetails(Wire):
    """An entity; of several that are the same, the canonical one."""

    entity_id: str
    name: str
    canonical_name: str | None
    type: str | None
    subtype: str | None
    status: str
    first_seen: Moment | None
    last_seen: Moment | None
    mention_count: int = Field(description="Events that mention it under any of its names.")
    provenance: EntityProvenance


class Alias(Wire):
    """Another entity that was found to be the same."""

    entity_id: str
    name: str
    type: str | None
    mention_count: int
    confidence: float | None
    justification: str | None


class CommunityItem(Wire):
    """Entities that belong together."""

    community_id: str
    name: str | None
    summary: str | None
    member_count: int | None
    updated_at: Moment | None
    event_id: str | None = Field(description="The decision in the ledger.")


class EntityResponse(Wire):
    """An entity with its names, facts, community, and a page of the events that mention it."""

    entity: EntityDetails
    aliases: list[Alias]
    community: CommunityItem | None
    facts: list[Fact]
    events: list[Node]
    edges: list[Edge] = Field(description="From the events to the entity, under each of its names.")
    next_cursor: str | None
    meta: PageMeta


class SummaryItem(Wire):
    """What an episode, a session or an agent comes to."""

    summary_id: str = Field(examples=["summary:" + "0f" * 16])
    scope: SummaryScope
    scope_id: str
    session_id: str | None
    content: str | None
    level: int | None
    event_count: int | None
    importance_total: int | None
    failed_count: int | None
    time_range: list[Moment] | None = Field(description="Of the events: first and last.")
    created_at: Moment | None
    source_event_ids: list[str] = Field(
        description="Of an episode: the events, also those that were forgotten since. "
        "`GET /v1/events/{id}` has them all."
    )
    event_id: str | None = Field(description="The decision in the ledger that wrote it.")


class SessionLinkItem(Wire):
    """Another session, and what connects it."""

    summary_id: str
    scope: SummaryScope
    scope_id: str
    reason: str
    score: float | None
    evidence: list[str]
    resolution_event_id: str | None
    event_id: str | None = Field(description="The decision in the ledger.")


class SummaryResponse(Wire):
    """A summary, a page of those it is made from, and the sessions it is linked to."""

    summary: SummaryItem
    children: list[SummaryItem]
    links: list[SessionLinkItem]
    next_cursor: str | None
    meta: PageMeta


class EpisodeList(Wire):
    """A page of a session's episodes, in order."""

    episodes: list[SummaryItem]
    next_cursor: str | None
    meta: PageMeta


class FeedbackBody(Wire):
    """Which nodes of an answer were useful."""

    useful: list[str] = Field(default_factory=list, max_length=MAX_JUDGED)
    not_useful: list[str] = Field(default_factory=list, max_length=MAX_JUDGED)
    comment: str | None = Field(default=None, min_length=1, max_length=MAX_COMMENT_CHARACTERS)
    event_id: str | None = Field(
        default=None,
        description="Of the event that this becomes: with one, sending it again is safe.",
        json_schema_extra={"format": "uuid"},
    )
