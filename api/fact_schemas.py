"""What goes over the wire of a recall of facts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.query_schemas import (
    MAX_DEPTH,
    MAX_QUERY_CHARACTERS,
    MAX_SEED_NODES,
    MAX_TIMEOUT_MS,
    MIN_TIMEOUT_MS,
    SeedReference,
)
from api.retrieval import entity_seeds
from api.schemas import Moment, Name, PositionText, Wire
from enrichment.relations import EdgeType

MAX_FACTS = 500
MAX_TOKENS = 32_000
MAX_CURSOR_CHARACTERS = 50_000
"""Of the rest of a ranking of MAX_FACTS facts, none of which shares an end with another."""

RecallMode = Literal["bfs", "activation"]
SeedChannel = Literal["text", "embedding", "given", "none"]


class FactsQuery(Wire):
    """A recall of facts: what is known of the entities that a text names."""

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARACTERS,
        description=f"The first {entity_seeds.MAX_QUERY_CHARACTERS} characters name entities.",
        examples=["Who owns the checkout service?"],
    )
    session_id: Name | None = Field(
        default=None, description="Names the user if `user_id` does not."
    )
    agent_id: Name | None = None
    user_id: Name | None = Field(
        default=None, description="Facts of other users are never returned; those of nobody are."
    )
    mode: RecallMode | None = Field(
        default=None, description="Default: the deployment's (`spreading_activation`)."
    )
    edge_types: list[EdgeType] = Field(
        default_factory=list, max_length=16, description="Lower case; empty: all."
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
    record_access: bool = Field(
        default=True, description="Count the facts as retrieved. `as_of` reads never do."
    )
    timeout_ms: int = Field(default=5_000, ge=MIN_TIMEOUT_MS, le=MAX_TIMEOUT_MS)
    min_position: PositionText | None = None
    max_tokens: int = Field(
        default=2_000, ge=50, le=MAX_TOKENS, description="Of the narrative (text/markdown)."
    )
    cursor: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_CURSOR_CHARACTERS,
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
    seed_channel: SeedChannel = Field(description="What found the seeds.")
    edge_types: list[EdgeType]
    at_timestamp: Moment
    user_id: str | None = Field(description="Whose facts beside those of nobody.")
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
