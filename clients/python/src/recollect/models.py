"""Models of the API's answers and options of its questions; generated.

`python -m tests.client_models` makes this from the API's OpenAPI, and a test compares the two.
Answers take fields that are not known here, so that a newer API can be read.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict


class Answered(BaseModel):
    """Base of everything here."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())


class NodeProvenance(Answered):
    """Where a node comes from: itself an event, or derived from some; null: does not apply."""

    event_id: str | None
    """Of a derived node: the event that recorded it, or the newest that supports it."""
    global_position: str | None
    source: str = "redis"
    occurred_at: str | None
    session_id: str | None
    agent_id: str | None
    trace_id: str | None
    supporting_event_ids: list[str] = Field(default_factory=list)
    """Of a derived node: events it comes from, at most 20; of an entity the newest that
    mention it."""


class Scores(Answered):
    """Why a node stands where it stands."""

    decay_score: float
    """Recency, importance, relevance: 1, 1, 1."""
    relevance_score: float
    """0.5 when nothing was asked."""
    importance_score: int
    rank_score: float
    """What the nodes are sorted by."""


class Node(Answered):
    """A node of the graph."""

    node_id: str
    type: str
    attributes: dict[str, Any]
    """Properties of its type; null: not set."""
    provenance: NodeProvenance
    scores: Scores
    retrieval_reason: str = "direct"
    proactive_signal: str | None = None
    depth: int | None = None
    """Hops from the asked node in a lineage, from a seed in a query."""
    found_by: list[str] = Field(default_factory=list)
    """Channels of a query that found it."""
    pending: bool = False
    """An event that was accepted and is not folded into the graph yet: found by its words
    alone, without edges."""
    content: Any = None
    """The event's payload, with `include: [content]`."""
    content_omitted: str | None = None
    """Why `content` was asked for and is not here."""


class Edge(Answered):
    """An edge between two of the returned nodes."""

    source: str
    target: str
    type: str
    properties: dict[str, Any]


class ScoringWeights(Answered):
    """How `rank_score` weighs."""

    recency: float
    importance: float
    relevance: float


class Capacity(Answered):
    """The bounds, and how far they were used."""

    max_nodes: int
    used_nodes: int
    max_depth: int


class ChannelReport(Answered):
    """How a channel of a query did."""

    status: str
    found: int
    ms: int


class PlanReport(Answered):
    """What was understood of a question."""

    operator: str
    """What answers it."""
    confidence: float
    """That it asks for that."""
    since: str | None = None
    """Of a time that limits it."""
    until: str | None = None
    """Up to this moment, without it."""


class Meta(Answered):
    """How the answer came about."""

    query_ms: int
    nodes_returned: int
    truncated: bool
    """There is more than the bounds let through."""
    truncated_by: list[str]
    """Which bounds."""
    intent: str
    inferred_intents: dict[str, float]
    intent_override: str | None
    seed_nodes: list[str]
    seed_names: dict[str, str] = Field(default_factory=dict)
    """Of the entities that were begun at, by node id."""
    unknown_seeds: list[str] = Field(default_factory=list)
    """Of the `seed_nodes` that were given: those that lead to nothing you see."""
    proactive_nodes_count: int
    scoring_weights: ScoringWeights
    policy_version: str
    """Of the settings that decide what is retrieved; under another one the same question may
    be answered otherwise."""
    capacity: Capacity
    retrieval_method: str | None = None
    """What ranked a query's answer; null: no query."""
    channels: dict[str, ChannelReport] = Field(default_factory=dict)
    """What a query was answered from."""
    user_id: str | None = None
    """Whose view it is beside what is of nobody; `*`: over all users."""
    withheld: int | None = None
    """How much the search itself met and kept back, for it is of other users: a bounded
    count, no census. Null: the key is bound to a user, who is not told."""
    degraded: list[str] = Field(default_factory=list)
    """What the answer had to go without, in words."""
    plan: PlanReport | None = None
    """Of a query; null: no query."""
    confidence: float | None = None
    """That the memory knows what is asked for: an absolute figure, the same for all
    questions. Null: not judged."""
    answered: bool | None = None
    """Whether that is at least the deployment's `answer_threshold`; else the nodes are what
    is nearest."""
    count: int | None = None
    """Where a question asks how often."""
    explained: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Of the first events: the features that counted most in their order."""
    cached: bool = False
    """The same answer as a moment ago."""
    next_cursor: str | None = None
    """Sent again as `cursor`: the next page of the same ranking."""


class Answer(Answered):
    """What the events say to the question, as far as it can be told exactly."""

    type: str
    value: Any = None
    """A number, a list of names, a moment, or the words of the first event; null: nothing is
    known. Of the plans `how_does` and `personalize` lines, each proved by the event of its
    place in `evidence`."""
    evidence: list[str]
    """Ids of the events that prove it, at most 200."""


class AtlasResponse(Answered):
    """Nodes, the best first, the edges between them, and how they were found."""

    nodes: list[Node]
    edges: list[Edge]
    meta: Meta
    answer: Answer | None = None
    """Of a query; null: no query."""


class FieldError(Answered):
    """One broken rule."""

    field: str
    """Name of the field or parameter."""
    rule: str
    """What it should have been."""


class Problem(Answered):
    """RFC 9457, with the broken rules and the id under which the log has the request."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    """Path of the request."""
    errors: list[FieldError] = Field(default_factory=list)
    request_id: str | None = None


class BatchResult(Answered):
    """What became of one event of a batch."""

    status: int
    """201 new, 200 duplicate, else the status of `error`."""
    event_id: str | None
    """As sent, when it was a string."""
    global_position: str | None = None
    duplicate: bool = False
    error: Problem | None = None


class BatchCounts(Answered):
    """How many events had which outcome."""

    accepted: int
    duplicates: int
    conflicts: int
    invalid: int
    unavailable: int


class BatchAccepted(Answered):
    """Outcomes in the order in which the events were sent."""

    results: list[BatchResult]
    counts: BatchCounts


class Provenance(Answered):
    """Where something comes from: the event in the ledger."""

    event_id: str
    global_position: str
    """Opaque; given by the ledger."""
    source: str = "redis"
    occurred_at: str
    """RFC 3339 with zone."""
    session_id: str
    agent_id: str
    trace_id: str


class Change(Answered):
    """An event that the ledger has taken."""

    event_id: str
    """UUID chosen by the producer (version 7 advised); sending it again is safe."""
    event_type: str
    """Dot-namespaced; unknown types are legal."""
    occurred_at: str
    """At most 300 s in the future; kept to the millisecond."""
    session_id: str
    agent_id: str
    trace_id: str
    tenant: str
    schema_version: int
    tool_name: str | None = None
    parent_event_id: str | None = None
    """The event that caused this one; may arrive later."""
    ended_at: str | None = None
    """Not before occurred_at."""
    status: str | None = None
    importance_hint: int | None = None
    user_id: str | None = None
    """The person concerned; not `*`."""
    consent_ref: str | None = None
    payload_ref: str | None = None
    payload: Any = None
    """Any JSON, at most 256 KiB."""
    global_position: str
    """Opaque; given by the ledger."""
    provenance: Provenance
    kind: str | None
    """What it is; null: a statement about the memory itself (`memory.*`)."""


class ChangeList(Answered):
    """A page of changes."""

    changes: list[Change]
    """In the order of the ledger."""
    position: str
    """`from` of the next page. It moves on where there was nothing to be seen, too."""
    is_end: bool
    """Nothing was behind this page."""


class EntityItem(Answered):
    """An entity of a list; those found to be the same are listed each."""

    entity_id: str
    name: str
    type: str | None
    subtype: str | None
    match_score: float | None
    """Of the query; null without one."""


class PageMeta(Answered):
    """How the page came about. `capacity` counts its items, not the nodes around them."""

    query_ms: int
    nodes_returned: int
    truncated: bool
    """There is more than the bounds let through."""
    truncated_by: list[str]
    """Which bounds."""
    intent: str
    inferred_intents: dict[str, float]
    intent_override: str | None
    seed_nodes: list[str]
    seed_names: dict[str, str] = Field(default_factory=dict)
    """Of the entities that were begun at, by node id."""
    unknown_seeds: list[str] = Field(default_factory=list)
    """Of the `seed_nodes` that were given: those that lead to nothing you see."""
    proactive_nodes_count: int
    scoring_weights: ScoringWeights
    policy_version: str
    """Of the settings that decide what is retrieved; under another one the same question may
    be answered otherwise."""
    capacity: Capacity
    retrieval_method: str | None = None
    """What ranked a query's answer; null: no query."""
    channels: dict[str, ChannelReport] = Field(default_factory=dict)
    """What a query was answered from."""
    user_id: str | None = None
    """Whose view it is beside what is of nobody; `*`: over all users."""
    withheld: int | None = None
    """How much the search itself met and kept back, for it is of other users: a bounded
    count, no census. Null: the key is bound to a user, who is not told."""
    degraded: list[str] = Field(default_factory=list)
    """What the answer had to go without, in words."""
    plan: PlanReport | None = None
    """Of a query; null: no query."""
    confidence: float | None = None
    """That the memory knows what is asked for: an absolute figure, the same for all
    questions. Null: not judged."""
    answered: bool | None = None
    """Whether that is at least the deployment's `answer_threshold`; else the nodes are what
    is nearest."""
    count: int | None = None
    """Where a question asks how often."""
    explained: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Of the first events: the features that counted most in their order."""
    cached: bool = False
    """The same answer as a moment ago."""
    next_cursor: str | None = None
    """Sent again as `cursor`: the next page of the same ranking."""
    returned: int
    """Items of the page."""


class EntityList(Answered):
    """A page of entities."""

    entities: list[EntityItem]
    next_cursor: str | None
    meta: PageMeta


class FactEntity(Answered):
    """One end of a fact: the canonical entity of those that are the same."""

    entity_id: str
    name: str
    type: str | None
    subtype: str | None


class FactScores(Answered):
    """Why a fact stands where it stands."""

    composite_score: float
    """entity_match_score x 1 / (1 + hop_distance) x effective_confidence; in an activation,
    what reached both of its ends."""
    entity_match_score: float
    """Of the seed that it scores by."""
    effective_confidence: float
    """The confidence, raised by how often the fact was retrieved."""
    rank_score: float
    """What facts are sorted by: the composite and what recency adds."""


class FactProvenance(Answered):
    """The events in the ledger that say so."""

    event_id: str
    """The first one that says so."""
    source: str = "redis"
    supporting_event_ids: list[str]
    """It and others, at most 20."""
    support_count: int


class Fact(Answered):
    """What one entity is to another, and when."""

    source: FactEntity
    relation: str
    edge_type: str
    target: FactEntity
    fact: str
    """In words."""
    confidence: float
    valid_from: str
    """RFC 3339 with zone."""
    valid_to: str | None
    expired_at: str | None
    source_kind: str
    status: str
    user_id: str | None
    hop_distance: int
    scores: FactScores
    provenance: FactProvenance


class FactSeed(Answered):
    """An entity that the recall began at."""

    entity_id: str
    name: str
    match_score: float
    structural_score: float
    score: float
    community_id: str | None


class FactsMeta(Answered):
    """How the answer came about."""

    query_ms: int
    mode: str
    facts_returned: int
    truncated: bool
    truncated_by: list[str]
    timed_out: bool
    """The activation's time was over: the answer is empty."""
    seed_nodes: list[str]
    """Of the first page; none on those behind it."""
    unknown_seeds: list[str] = Field(default_factory=list)
    """Of the `seed_nodes` that were given: those that lead to nothing you see."""
    seed_channel: str
    """What found the seeds."""
    edge_types: list[str]
    at_timestamp: str
    """RFC 3339 with zone."""
    user_id: str | None
    """Whose view it is beside what is of nobody."""
    withheld: int | None = None
    """How much the search itself met and kept back, for it is of other users: a bounded
    count, no census. Null: the key is bound to a user, who is not told."""
    max_depth: int
    max_facts: int
    cached: bool = False
    """The same answer as a moment ago."""
    next_cursor: str | None = None
    """Sent again as `cursor`: the next page of the same ranking."""


class FactsResponse(Answered):
    """Facts, the best first, the seeds, and how they were found."""

    facts: list[Fact]
    seeds: list[FactSeed]
    meta: FactsMeta


class TraitItem(Answered):
    """What several sessions of a user have in common."""

    name: str
    strength: float
    """The share of the sessions that could show it and do: above 0, at most 1."""
    session_count: int
    """That show it."""
    first_seen: str
    last_seen: str
    holds_until: str
    """Unless it is seen again."""
    event_ids: list[str]
    """That prove it, of the newest sessions first."""
    part_of: str | None = None
    """Of a skill: the name of the one that it is a part of, among the skills: what its tool
    and others are called after, or all that are used together."""


class SessionItem(Answered):
    """A session of a list, by those of its events that the viewer sees."""

    session_id: str
    first_at: str
    """RFC 3339 with zone."""
    last_at: str
    """RFC 3339 with zone."""
    event_count: int
    failed_count: int
    agents: list[str]
    """The first five."""
    user_ids: list[str]
    """The first five."""
    begins: str | None
    """What the first event says."""
    failure: str | None
    """What the last event says that failed."""
    failed_event_id: str | None


class Person(Answered):
    """What is known of a user; every fact names the events that say so."""

    user_id: str
    entity_id: str
    names: list[str]
    """That the user is known by."""
    facts: list[Fact]
    """That hold, the newest first."""
    wishes: list[Fact]
    """What the user prefers and avoids, the newest first."""
    former: list[Fact]
    """That ended. One that was contradicted has `expired_at`, too."""
    patterns: list[TraitItem]
    """Habits: tools that are used one after the other, when sessions begin."""
    skills: list[TraitItem]
    """Tools whose use the user's sessions carry through."""
    interests: list[TraitItem]
    """What the user's own words name again."""
    next_cursor: str | None
    sessions: list[SessionItem]
    """The newest five that the viewer sees."""
    meta: PageMeta


class AskOptions(TypedDict, total=False):
    """Beside the question: `SubgraphQuery`."""

    record_access: bool
    """Count what is shown as read. What is asked as of another time never counts."""
    max_nodes: int
    max_depth: int
    as_of: str | None
    """The clock for recency; default now."""
    as_of_position: str | None
    """What the memory knew then: events behind it are not seen."""
    intent: str | None
    """Override; default: inferred. `who_is`, `how_does` and `personalize` are about the
    person whom the question names, else about the user in whose view it is asked."""
    seed_nodes: list[str] | None
    """Override: where to begin. Node ids, or `entity:<name>` where `_` and `-` read as space.
    Default: chosen from the query."""
    retrieval_method: str
    scoring_weights: dict[str, Any] | None
    """Default: the deployment's, echoed in `meta`."""
    since: str | None
    """Only events that occurred then or later are found."""
    until: str | None
    """Only events that occurred before it."""
    kinds: list[str]
    """Only events of these kinds; empty: all."""
    status: list[str]
    """Only events of these; empty: all."""
    time_zone: str
    """Of the days that the question means and that the answer is told in: an IANA name or an
    offset."""
    diversity: float
    """How far nodes that say the same step back (MMR)."""
    proactive: bool
    """Add nodes nobody asked for that the graph finds relevant."""
    include: list[str]
    """`content`: the events' payloads."""
    max_tokens: int
    """Of the text that `Accept: text/markdown` gives."""


class FactsOptions(TypedDict, total=False):
    """Beside the question: `FactsQuery`."""

    record_access: bool
    """Count what is shown as read. What is asked as of another time never counts."""
    mode: str | None
    """Default: the deployment's (`spreading_activation`)."""
    edge_types: list[str] | str
    """Lower case; empty: all; `auto`: semantic, and those that the words of the query ask
    for."""
    at_timestamp: str | None
    """Facts that were valid then; default `as_of`."""
    as_of: str | None
    """The clock; default now."""
    max_depth: int | None
    """Levels of facts; default `max_hops`."""
    max_facts: int
    seed_nodes: list[str]
    """Begin here: `entity:<hash>`, or `entity:<name>` where `_` and `-` read as space.
    Default: what the query names."""
    query_sensitive_cost: bool | None
    """Prefer paths near to the query; default the deployment's."""
    max_tokens: int
    """Of the text that `Accept: text/markdown` gives."""


class ContextOptions(TypedDict, total=False):
    """Beside the question: `/v1/context/{session_id}`."""

    record_access: bool
    """Count what is shown as read. What is asked as of another time never counts."""
    max_nodes: int
    max_depth: int
    as_of: str | None
    """The clock for recency; default now."""
    as_of_position: str | None
    """What the memory knew then: events behind it are not seen."""
    max_tokens: int
    """Of the text that `Accept: text/markdown` gives."""
