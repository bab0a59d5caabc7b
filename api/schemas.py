"""What goes over the wire: the Atlas form of answers, envelopes, problems, bounds of queries."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    model_validator,
)

from api.retrieval.intent import Intent
from api.retrieval.traverse import Bound, Direction
from enrichment import requests
from enrichment.enriched import EntityType
from enrichment.statements import MAX_REASON_CHARACTERS, MAX_SPLIT
from projections.events import (
    MAX_NAME_CHARACTERS,
    MAX_PAYLOAD_REF_CHARACTERS,
    STATUSES,
    timestamp_ms,
)
from projections.positions import Position
from projections.schema import EDGES, NODES

MAX_NODES: Final = 500
MAX_DEPTH: Final = 10
MIN_TIMEOUT_MS: Final = 100
MAX_TIMEOUT_MS: Final = 30_000
MAX_QUERY_CHARACTERS: Final = 8_192
MAX_SEED_NODES: Final = 50
MAX_CURSOR_CHARACTERS: Final = 40_000

RetrievalMethod = Literal["intent_weighted", "ppr", "activation"]
Channel = Literal["text", "vector", "entity", "context", "graph", "given", "proactive"]


def _position(text: str) -> str:
    Position.parse(text)
    return text


def _moment(text: str) -> str:
    timestamp_ms(text)
    return text


PositionText = Annotated[
    str,
    AfterValidator(_position),
    Field(description="Opaque; given by the ledger.", examples=["1707644400000-0"]),
]
Moment = Annotated[
    str,
    AfterValidator(_moment),
    Field(
        description="RFC 3339 with zone.",
        examples=["2026-02-11T10:30:00.000Z"],
        json_schema_extra={"format": "date-time"},
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]


class Wire(BaseModel):
    """Base of everything here: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


# Problems


class FieldError(Wire):
    """One broken rule."""

    field: str = Field(description="Name of the field or parameter.")
    rule: str = Field(description="What it should have been.")


class Problem(BaseModel):
    """RFC 9457, with the broken rules and the id under which the log has the request."""

    type: str = Field(examples=["urn:recollect:problem:invalid-input"])
    title: str
    status: int
    detail: str
    instance: str | None = Field(default=None, description="Path of the request.")
    errors: list[FieldError] = Field(default_factory=list)
    request_id: str | None = None


# Events


class EventEnvelope(Wire):
    """An event as producers send it.

    This documents the rules; `projections.events.parse_event` judges.
    """

    event_id: str = Field(
        description="UUID chosen by the producer (version 7 advised); sending it again is safe.",
        examples=["019c4d2e-8f00-7a31-9c54-0d9f6c1b2a77"],
        json_schema_extra={"format": "uuid"},
    )
    event_type: str = Field(
        pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$",
        max_length=MAX_NAME_CHARACTERS,
        description="Dot-namespaced; unknown types are legal.",
        examples=["tool.execute"],
    )
    occurred_at: Moment = Field(description="At most 300 s in the future; kept to the millisecond.")
    session_id: Name
    agent_id: Name
    trace_id: Name
    tenant: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$",
        description="The caller's own; left out, it is filled in.",
    )
    schema_version: int = Field(default=1, ge=1, le=2**31 - 1)
    tool_name: Name | None = None
    parent_event_id: str | None = Field(
        default=None,
        description="The event that caused this one; may arrive later.",
        json_schema_extra={"format": "uuid"},
    )
    ended_at: Moment | None = Field(default=None, description="Not before occurred_at.")
    status: Literal["pending", "running", "completed", "failed", "timeout"] | None = None
    importance_hint: int | None = Field(default=None, ge=1, le=10)
    user_id: Name | None = Field(default=None, description="The person concerned.")
    consent_ref: Name | None = None
    payload_ref: str | None = Field(default=None, max_length=MAX_PAYLOAD_REF_CHARACTERS)
    payload: JsonValue = Field(default=None, description="Any JSON, at most 256 KiB.")


assert set(STATUSES) == {"pending", "running", "completed", "failed", "timeout"}


class EventBatch(Wire):
    """Up to 1,000 events, each judged alone. A bare array of them is accepted too."""

    events: list[EventEnvelope] = Field(max_length=1_000)


class Accepted(Wire):
    """The event is in the ledger."""

    event_id: str
    global_position: PositionText
    duplicate: bool = Field(description="It was there already, with the same content.")


class BatchResult(Wire):
    """What became of one event of a batch."""

    status: Literal[200, 201, 409, 422, 503] = Field(
        description="201 new, 200 duplicate, else the status of `error`."
    )
    event_id: str | None = Field(description="As sent, when it was a string.")
    global_position: PositionText | None = None
    duplicate: bool = False
    error: Problem | None = None


class BatchCounts(Wire):
    """How many events had which outcome."""

    accepted: int
    duplicates: int
    conflicts: int
    invalid: int
    unavailable: int


class BatchAccepted(Wire):
    """Outcomes in the order in which the events were sent."""

    results: list[BatchResult]
    counts: BatchCounts


# Corrections


class _Corrected(Wire):
    event_id: str | None = Field(
        default=None,
        description="Of the event that this becomes. With one, sending the same request again is "
        "safe; without, each is a correction of its own, and the last one counts.",
        json_schema_extra={"format": "uuid"},
    )
    reason: str | None = Field(default=None, min_length=1, max_length=MAX_REASON_CHARACTERS)


Subtype = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9_]{0,63}$", description="Finer than the type, snake_case."),
]
EntityId = Annotated[
    str, Field(pattern=r"^(entity:)?[0-9a-f]{16,64}$", examples=["entity:" + "0f" * 16])
]


class Rename(_Corrected):
    """The name to display; the entity's id and its other names stay."""

    correction: Literal["rename"]
    name: Name


class Retype(_Corrected):
    """What it is shown as, type, subtype or both; its id stays."""

    correction: Literal["retype"]
    type: EntityType | None = None
    subtype: Subtype | None = None


class Alias(_Corrected):
    """The same was seen under another name."""

    correction: Literal["alias"]
    name: Name
    type: EntityType
    subtype: Subtype | None = None


class Split(_Corrected):
    """Entities that it is not the same as."""

    correction: Literal["split"]
    apart_from: list[EntityId] = Field(alias="from", min_length=1, max_length=MAX_SPLIT)


class EntityCorrection(
    RootModel[Annotated[Rename | Retype | Alias | Split, Field(discriminator="correction")]]
):
    """A person's correction of one entity.

    This documents the rules; `enrichment.statements` judges.
    """


# Passes of consolidation


class ReconsolidationRequest(Wire):
    """Asks for a pass of consolidation: of a session, of an agent, else of the whole tenant.

    This documents the rules; `enrichment.requests` judges.
    """

    event_id: str | None = Field(
        default=None,
        description="Of the event that this becomes. With one, sending the same request again is "
        "safe; without, each asks anew.",
        json_schema_extra={"format": "uuid"},
    )
    session_id: Name | None = Field(default=None, description="Not together with agent_id.")
    agent_id: Name | None = None
    reason: str | None = Field(
        default=None,
        min_length=1,
        max_length=requests.MAX_REASON_CHARACTERS,
        description="For people.",
    )


# The Atlas form


class Provenance(Wire):
    """Where something comes from: the event in the ledger."""

    event_id: str
    global_position: PositionText
    source: Literal["redis"] = "redis"
    occurred_at: Moment
    session_id: str
    agent_id: str
    trace_id: str


class NodeProvenance(Wire):
    """Where a node comes from: itself an event, or derived from some; null: does not apply."""

    event_id: str | None = Field(
        description="Of a derived node: the event that recorded it, or the newest that supports it."
    )
    global_position: PositionText | None
    source: Literal["redis"] = "redis"
    occurred_at: Moment | None
    session_id: str | None
    agent_id: str | None
    trace_id: str | None
    supporting_event_ids: list[str] = Field(
        default_factory=list, description="Of a derived node: events it comes from, at most 20."
    )


class StoredEvent(EventEnvelope):
    """An event as the ledger has it, absent fields null."""

    tenant: str
    global_position: PositionText
    provenance: Provenance


class Scores(Wire):
    """Why a node stands where it stands."""

    decay_score: float = Field(ge=0, le=1, description="Recency, importance, relevance: 1, 1, 1.")
    relevance_score: float = Field(ge=0, le=1, description="0.5 when nothing was asked.")
    importance_score: int = Field(ge=1, le=10)
    rank_score: float = Field(ge=0, description="What the nodes are sorted by.")


class Node(Wire):
    """A node of the graph."""

    node_id: str
    type: str = Field(
        json_schema_extra={"enum": [r.label for r in NODES.values() if not r.operational]}
    )
    attributes: dict[str, JsonValue] = Field(description="Properties of its type; null: not set.")
    provenance: NodeProvenance
    scores: Scores
    retrieval_reason: Literal["direct", "proactive"] = "direct"
    proactive_signal: Literal["recurring_pattern", "entity_context", "retrieval_history"] | None = (
        None
    )
    depth: int | None = Field(
        default=None, description="Hops from the asked node in a lineage, from a seed in a query."
    )
    found_by: list[Channel] = Field(
        default_factory=list, description="Channels of a query that found it."
    )
    content: JsonValue = Field(
        default=None, description="The event's payload, with `include: [content]`."
    )
    content_omitted: Literal["too large", "not in the ledger", "ledger away"] | None = Field(
        default=None, description="Why `content` was asked for and is not here."
    )


class Edge(Wire):
    """An edge between two of the returned nodes."""

    source: str
    target: str
    type: str = Field(json_schema_extra={"enum": list(EDGES)})
    properties: dict[str, JsonValue]


class ScoringWeights(Wire):
    """How `rank_score` weighs."""

    recency: float
    importance: float
    relevance: float


class Capacity(Wire):
    """The bounds, and how far they were used."""

    max_nodes: int
    used_nodes: int
    max_depth: int


class ChannelReport(Wire):
    """How a channel of a query did."""

    status: Literal["ok", "timeout", "failed", "unavailable", "off"]
    found: int
    ms: int


class Meta(Wire):
    """How the answer came about."""

    query_ms: int = Field(ge=0)
    nodes_returned: int
    truncated: bool = Field(description="There is more than the bounds let through.")
    truncated_by: list[Bound] = Field(description="Which bounds.")
    intent: Intent
    inferred_intents: dict[Intent, float]
    intent_override: Intent | None
    seed_nodes: list[str]
    proactive_nodes_count: int
    scoring_weights: ScoringWeights
    capacity: Capacity
    retrieval_method: RetrievalMethod | None = Field(
        default=None, description="What ranked a query's answer; null: no query."
    )
    channels: dict[Channel, ChannelReport] = Field(
        default_factory=dict, description="What a query was answered from."
    )
    degraded: list[str] = Field(
        default_factory=list, description="What the answer had to go without, in words."
    )
    cached: bool = Field(default=False, description="The same answer as a moment ago.")
    next_cursor: str | None = Field(
        default=None, description="Sent again as `cursor`: the next page of the same ranking."
    )


class AtlasResponse(Wire):
    """Nodes, the best first, the edges between them, and how they were found."""

    nodes: list[Node]
    edges: list[Edge]
    meta: Meta


# Bounds


class LedgerReadQuery(Wire):
    """Parameters of a read from the ledger, which always has what it has accepted."""

    min_position: PositionText | None = Field(
        default=None, description="Accepted for symmetry: the ledger is never behind itself."
    )


class GraphReadQuery(Wire):
    """Parameters of every read from the graph."""

    max_nodes: int = Field(default=100, ge=1, le=MAX_NODES)
    max_depth: int = Field(default=3, ge=1, le=MAX_DEPTH)
    timeout_ms: int = Field(
        default=5_000, ge=MIN_TIMEOUT_MS, le=MAX_TIMEOUT_MS, description="Enforced in the database."
    )
    min_position: PositionText | None = Field(
        default=None,
        description="Read your writes: wait until the graph has this position. 504 if it does not "
        "get there within `timeout_ms`.",
    )
    as_of: Moment | None = Field(default=None, description="The clock for recency; default now.")


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
    user_id: Name | None = Field(
        default=None,
        description="For whom; default: the user of the session's events. What is of other users "
        "is never returned, what is of nobody is shared.",
    )
    intent: Intent | None = Field(default=None, description="Override; default: inferred.")
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
    diversity: float = Field(
        default=0.0, ge=0, le=1, description="How far nodes that say the same step back (MMR)."
    )
    proactive: bool = Field(
        default=True, description="Add nodes nobody asked for that the graph finds relevant."
    )
    as_of_position: PositionText | None = Field(
        default=None, description="What the memory knew then: events behind it are not seen."
    )
    include: list[Literal["content"]] = Field(
        default_factory=list, max_length=4, description="`content`: the events' payloads."
    )
    record_access: bool = Field(
        default=True, description="Count the nodes as read. Reads `as_of` never do."
    )
    max_tokens: int = Field(
        default=2_000,
        ge=50,
        le=32_000,
        description="Of the evidence that `Accept: text/markdown` gives; estimated.",
    )
    cursor: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_CURSOR_CHARACTERS,
        description="`next_cursor` of the page before, with the same query.",
    )


class ContextQuery(GraphReadQuery):
    """Parameters of a session's context. `max_depth` is echoed: a session has no depth."""


class LineageQuery(GraphReadQuery):
    """Parameters of a lineage."""

    intent: Intent | None = Field(
        default=None, description="Default why. `when` follows the session's order, others causes."
    )
    direction: Direction = Field(default=Direction.CAUSES)


# Health


class Live(Wire):
    """The process answers."""

    status: Literal["live"] = "live"


class Check(Wire):
    """One thing that must be there."""

    ok: bool
    detail: str | None = None


class Ready(Wire):
    """Whether requests can be served, and why not."""

    status: Literal["ready", "not ready"]
    checks: dict[str, Check]
    target: str | None = Field(description="The target that reads are answered from.")
    halted_partitions: dict[str, str] = Field(description="Partition: why it accepts no events.")
    lag_entries: int | None
    lag_seconds: float | None
    overloaded: str | None = Field(
        description="Why events are refused with 429; null: they are not."
    )
