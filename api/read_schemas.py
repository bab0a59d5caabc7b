"""What goes over the wire of reads: their parameters and bounds, and the answers of browsing."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Annotated, Final, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from api.retrieval.plan import Intent
from api.retrieval.query_terms import MAX_NAMING_CHARACTERS
from api.schemas import (
    Direction,
    Edge,
    EventStatus,
    Meta,
    Moment,
    Name,
    Node,
    PositionText,
    RetrievalMethod,
    StatementId,
    UnknownSeeds,
    Wire,
    Withheld,
)
from consolidation.summary_payloads import Scope as SummaryScope
from enrichment.event_kinds import EventKind
from enrichment.names import EntityType
from enrichment.vocabulary import EdgeType
from pipelines.graph.reads.scope import Within
from projections.events import timestamp_ms
from projections.records import MAX_COMMENT_CHARACTERS, MAX_JUDGED

MAX_NODES: Final = 500
MAX_DEPTH: Final = 10
MIN_TIMEOUT_MS: Final = 100
MAX_TIMEOUT_MS: Final = 30_000
MAX_QUERY_CHARACTERS: Final = 8_192
MAX_SEED_NODES: Final = 50
MAX_CURSOR_CHARACTERS: Final = 40_000


_OFFSET: Final = re.compile(r"(?P<sign>[+-])(?P<hours>[01]\d|2[0-3]):(?P<minutes>[0-5]\d)")
TimeoutMs = Annotated[
    int,
    Field(ge=MIN_TIMEOUT_MS, le=MAX_TIMEOUT_MS, description="Enforced in the database."),
]
MaxTokens = Annotated[
    int,
    Field(ge=50, le=32_000, description="Of the text that `Accept: text/markdown` gives."),
]


UserId = Annotated[
    Name | None,
    Field(
        description="In whose view: what comes from this user's events, and what comes from "
        "nobody's. `*` is the view over all users, for keys that may. Default: the key's user, "
        "else that of the events of the session that is asked about, else nobody.",
    ),
]


def _behind_since(until: str | None, info: ValidationInfo) -> str | None:
    since = info.data.get("since")
    if since and until and timestamp_ms(since) >= timestamp_ms(until):
        raise ValueError("must be after since")
    return until


Until = Annotated[Moment | None, AfterValidator(_behind_since)]
"""The end of a stretch of time that a request limits itself to; `since` stands before it."""


class CountedRead(Wire):
    """What every read that shows something has."""

    record_access: bool = Field(
        default=True,
        description="Count what is shown as read. What is asked as of another time never counts.",
    )


class LedgerReadQuery(CountedRead):
    """Parameters of a read from the ledger, which always has what it has accepted."""

    user_id: UserId = None
    min_position: PositionText | None = Field(
        default=None, description="Accepted for symmetry: the ledger is never behind itself."
    )


class GraphReadQuery(CountedRead):
    """Parameters of every read from the graph."""

    user_id: UserId = None
    max_nodes: int = Field(default=100, ge=1, le=MAX_NODES)
    max_depth: int = Field(default=3, ge=1, le=MAX_DEPTH)
    timeout_ms: TimeoutMs = 5_000
    min_position: PositionText | None = Field(
        default=None,
        description="Read your writes: wait until the graph has this position. 504 if it does not "
        "get there within `timeout_ms`.",
    )
    as_of: Moment | None = Field(default=None, description="The clock for recency; default now.")
    as_of_position: PositionText | None = Field(
        default=None, description="What the memory knew then: events behind it are not seen."
    )


class AskedWeights(Wire):
    """How the rank of a query shall weigh; at least one above 0."""

    recency: float = Field(default=0.0, ge=0, le=100)
    importance: float = Field(default=0.0, ge=0, le=100)
    relevance: float = Field(default=1.0, ge=0, le=100)

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.recency + self.importance + self.relevance <= 0:
            raise ValueError("at least one weight must be above 0")
        return self


SeedReference = Annotated[str, Field(min_length=1, max_length=600)]


class SubgraphQuery(GraphReadQuery):
    """A question, who asks it, and optionally how it shall be answered."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARACTERS,
        description="The user's message or question, as it is.",
        examples=["Why do my customers' payments keep failing?"],
    )
    session_id: Name = Field(description="The session in which it is asked.")
    agent_id: Name = Field(description="The agent that asks.")
    intent: Intent | None = Field(
        default=None,
        description="Override; default: inferred. `who_is`, `how_does` and `personalize` are about "
        "the person whom the question names, else about the user in whose view it is asked.",
    )
    seed_nodes: list[SeedReference] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_SEED_NODES,
        description="Override: where to begin. Node ids, or `entity:<name>` where `_` and `-` read "
        "as space. Default: chosen from the query.",
    )
    retrieval_method: RetrievalMethod = "intent_weighted"
    scoring_weights: AskedWeights | None = Field(
        default=None, description="Default: the deployment's, echoed in `meta`."
    )
    since: Moment | None = Field(
        default=None, description="Only events that occurred then or later are found."
    )
    until: Until = Field(default=None, description="Only events that occurred before it.")
    kinds: list[EventKind] = Field(
        default_factory=list, max_length=8, description="Only events of these kinds; empty: all."
    )
    status: list[EventStatus] = Field(
        default_factory=list, max_length=5, description="Only events of these; empty: all."
    )
    session: Name | None = Field(default=None, description="Only events of this session.")
    time_zone: str = Field(
        default="UTC",
        max_length=64,
        description="Of the days that the question means and that the answer is told in: an IANA "
        "name or an offset.",
        examples=["Europe/Berlin", "+02:00"],
    )
    diversity: float = Field(
        default=0.0, ge=0, le=1, description="How far nodes that say the same step back (MMR)."
    )
    proactive: bool = Field(
        default=True, description="Add nodes nobody asked for that the graph finds relevant."
    )
    include: list[Literal["content"]] = Field(
        default_factory=list, max_length=4, description="`content`: the events' payloads."
    )
    max_tokens: MaxTokens = 2_000
    cursor: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_CURSOR_CHARACTERS,
        description="`next_cursor` of the page before, with the same query.",
    )

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        zone_of(name)
        return name

    def zone(self) -> tzinfo:
        """The time zone."""
        return zone_of(self.time_zone)

    def within(self) -> Within | None:
        """What the search is limited to; None: nothing."""
        within = Within(
            since_ms=None if self.since is None else timestamp_ms(self.since),
            until_ms=None if self.until is None else timestamp_ms(self.until),
            kinds=tuple(self.kinds),
            statuses=tuple(self.status),
            session_id=self.session,
        )
        return None if within == Within() else within


def zone_of(name: str) -> tzinfo:
    """The time zone of an IANA name or of an offset.

    Raises:
        ValueError: there is none.
    """
    if (offset := _OFFSET.fullmatch(name)) is not None:
        delta = timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"]))
        return timezone(-delta if offset["sign"] == "-" else delta)
    if name in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:  # a name may be a folder
        raise ValueError("an IANA time zone or an offset such as +02:00") from error


class ContextQuery(GraphReadQuery):
    """Parameters of a session's context. `max_depth` is echoed: a session has no depth."""

    query: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_QUERY_CHARACTERS,
        description="What the context is for: what answers it comes first. Default: what is "
        "recent, important and often read.",
    )
    max_tokens: MaxTokens = 2_000


class LineageQuery(GraphReadQuery):
    """Parameters of a lineage."""

    intent: Intent | None = Field(
        default=None,
        description="Default why. `when` and `how_does` follow the session's order, others causes.",
    )
    direction: Direction = Field(default=Direction.CAUSES)


MAX_FACTS = 500
MAX_FACT_CURSOR_CHARACTERS = 60_000
"""Of the rest of a ranking of MAX_FACTS facts, none of which shares an end with another."""

RecallMode = Literal["bfs", "activation"]
SeedChannel = Literal["text", "embedding", "given", "none"]


class FactsQuery(CountedRead):
    """A recall of facts: what is known of the entities that a text names."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARACTERS,
        description=f"The first {MAX_NAMING_CHARACTERS} characters name entities.",
        examples=["Who owns the checkout service?"],
    )
    session_id: Name | None = Field(
        default=None, description="Names the user if `user_id` does not."
    )
    agent_id: Name | None = None
    user_id: UserId = None
    mode: RecallMode | None = Field(
        default=None, description="Default: the deployment's (`spreading_activation`)."
    )
    edge_types: Annotated[list[EdgeType], Field(max_length=16)] | Literal["auto"] = Field(
        default_factory=list,
        description="Lower case; empty: all; `auto`: semantic, and those that the words of the "
        "query ask for.",
    )
    at_timestamp: Moment | None = Field(
        default=None, description="Facts that were valid then; default `as_of`."
    )
    as_of: Moment | None = Field(default=None, description="The clock; default now.")
    max_depth: int | None = Field(
        default=None, ge=1, le=MAX_DEPTH, description="Levels of facts; default `max_hops`."
    )
    max_facts: int = Field(default=30, ge=1, le=MAX_FACTS)
    seed_nodes: list[SeedReference] = Field(
        default_factory=list,
        max_length=MAX_SEED_NODES,
        description="Begin here: `entity:<hash>`, or `entity:<name>` where `_` and `-` read as "
        "space. Default: what the query names.",
    )
    query_sensitive_cost: bool | None = Field(
        default=None, description="Prefer paths near to the query; default the deployment's."
    )
    timeout_ms: TimeoutMs = 5_000
    min_position: PositionText | None = None
    max_tokens: MaxTokens = 2_000
    cursor: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_FACT_CURSOR_CHARACTERS,
        description="`next_cursor` of the page before, with the same query. A narrative has none.",
    )


class FactEntity(Wire):
    """One end of a fact: the canonical entity of those that are the same."""

    entity_id: str = Field(examples=["entity:" + "0f" * 16])
    name: str
    type: str | None
    subtype: str | None


class FactScores(Wire):
    """Why a fact stands where it stands."""

    composite_score: float = Field(
        ge=0,
        description="entity_match_score x 1 / (1 + hop_distance) x effective_confidence; in an "
        "activation, what reached both of its ends.",
    )
    entity_match_score: float = Field(ge=0, le=1, description="Of the seed that it scores by.")
    effective_confidence: float = Field(
        ge=0, le=1, description="The confidence, raised by how often the fact was retrieved."
    )
    rank_score: float = Field(
        ge=0, description="What facts are sorted by: the composite and what recency adds."
    )


class FactProvenance(Wire):
    """The events in the ledger that say so."""

    event_id: str = Field(description="The first one that says so.")
    source: Literal["redis"] = "redis"
    supporting_event_ids: list[str] = Field(description="It and others, at most 20.")
    support_count: int = Field(ge=1)


class Fact(Wire):
    """What one entity is to another, and when."""

    source: FactEntity
    relation: str
    edge_type: EdgeType
    target: FactEntity
    fact: str = Field(description="In words.")
    confidence: float = Field(ge=0, le=1)
    valid_from: Moment
    valid_to: Moment | None
    expired_at: Moment | None
    source_kind: str
    status: str
    user_id: str | None
    hop_distance: int = Field(ge=0)
    scores: FactScores
    provenance: FactProvenance


class FactSeed(Wire):
    """An entity that the recall began at."""

    entity_id: str
    name: str
    match_score: float = Field(ge=0, le=1)
    structural_score: float = Field(ge=0, le=1)
    score: float = Field(ge=0, le=1)
    community_id: str | None


class FactsMeta(Wire):
    """How the answer came about."""

    query_ms: int = Field(ge=0)
    mode: RecallMode
    facts_returned: int
    truncated: bool
    truncated_by: list[str]
    timed_out: bool = Field(description="The activation's time was over: the answer is empty.")
    seed_nodes: list[str] = Field(description="Of the first page; none on those behind it.")
    unknown_seeds: UnknownSeeds = Field(default_factory=list)
    seed_channel: SeedChannel = Field(description="What found the seeds.")
    edge_types: list[EdgeType]
    at_timestamp: Moment
    user_id: str | None = Field(description="Whose view it is beside what is of nobody.")
    withheld: Withheld = None
    max_depth: int
    max_facts: int
    cached: bool = Field(default=False, description="The same answer as a moment ago.")
    next_cursor: str | None = Field(
        default=None, description="Sent again as `cursor`: the next page of the same ranking."
    )


class FactsResponse(Wire):
    """Facts, the best first, the seeds, and how they were found."""

    facts: list[Fact]
    seeds: list[FactSeed]
    meta: FactsMeta


MAX_PAGE = 500
MAX_PLACE_CHARACTERS = 2_048
"""Of the cursor of a list."""


class PageQuery(CountedRead):
    """Parameters of every list."""

    user_id: UserId = None
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
    max_facts: int = Field(default=50, ge=0, le=MAX_FACTS)


class SummaryQuery(PageQuery):
    """Parameters of a summary; pages are of the summaries it is made from."""


class CommunityQuery(PageQuery):
    """Parameters of a community; pages are of its members."""


class PageMeta(Meta):
    """How the page came about. `capacity` counts its items, not the nodes around them."""

    returned: int = Field(description="Items of the page.")


class AtlasPage(Wire):
    """A page of what the memory holds: its nodes, and the edges between them."""

    nodes: list[Node] = Field(description="What the page is about, then the page in its order.")
    edges: list[Edge]
    next_cursor: str | None
    meta: PageMeta


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
    mention_count: int = Field(
        description="Events that mention it under any of its names, at most 10,000 of each."
    )
    provenance: EntityProvenance


class EntityAlias(Wire):
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


class EntityResponse(AtlasPage):
    """An entity with its names, facts, community, and a page of the events that mention it."""

    entity: EntityDetails
    aliases: list[EntityAlias]
    community: CommunityItem | None
    facts: list[Fact]
    events: list[Node]


class CommunityList(AtlasPage):
    """A page of communities, by id."""

    communities: list[CommunityItem]


class CommunityResponse(AtlasPage):
    """A community, and a page of the entities in it, by id."""

    community: CommunityItem
    members: list[EntityItem]


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
    user_ids: list[str] | None = Field(
        description="From whose events it was made; empty: from nobody's, everybody sees it; "
        "null: nobody wrote it down, it is for operators."
    )


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


class SummaryResponse(AtlasPage):
    """A summary, a page of those it is made from, and the sessions it is linked to."""

    summary: SummaryItem
    summaries: list[SummaryItem] = Field(
        description="All that the viewer sees of the same session, episode or agent: the user's "
        "own, then the shared one; to an operator (`user_id=*`) the shared one, then each user's. "
        "`summary` is the first."
    )
    children: list[SummaryItem]
    links: list[SessionLinkItem]


class EpisodeList(AtlasPage):
    """A page of a session's episodes, in order."""

    episodes: list[SummaryItem]


class FeedbackBody(Wire):
    """Which nodes of an answer were useful."""

    useful: list[str] = Field(default_factory=list, max_length=MAX_JUDGED)
    not_useful: list[str] = Field(default_factory=list, max_length=MAX_JUDGED)
    comment: str | None = Field(default=None, min_length=1, max_length=MAX_COMMENT_CHARACTERS)
    event_id: StatementId = None
