"""What goes over the wire everywhere: problems, the Atlas form of answers, health."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from api.retrieval.intent import Intent
from api.retrieval.traverse import Bound
from projections.events import MAX_NAME_CHARACTERS, timestamp_ms
from projections.positions import Position
from projections.schema import EDGES, NODES

RetrievalMethod = Literal["intent_weighted", "ppr", "activation"]
Channel = Literal["text", "vector", "entity", "context", "graph", "given", "proactive"]


def _position(text: str) -> str:
    Position.parse(text)
    return text


def _moment(text: str) -> str:
    timestamp_ms(text)
    return text


# Of an answer, which the graph gave us: not read again to be sure.
ShownPosition = Annotated[
    str, Field(description="Opaque; given by the ledger.", examples=["1707644400000-0"])
]
ShownMoment = Annotated[
    str,
    Field(
        description="RFC 3339 with zone.",
        examples=["2026-02-11T10:30:00.000Z"],
        json_schema_extra={"format": "date-time"},
    ),
]
PositionText = Annotated[ShownPosition, AfterValidator(_position)]
Moment = Annotated[ShownMoment, AfterValidator(_moment)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]


class Wire(BaseModel):
    """Base of everything here: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


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


# The Atlas form


class NodeProvenance(Wire):
    """Where a node comes from: itself an event, or derived from some; null: does not apply."""

    event_id: str | None = Field(
        description="Of a derived node: the event that recorded it, or the newest that supports it."
    )
    global_position: ShownPosition | None
    source: Literal["redis"] = "redis"
    occurred_at: ShownMoment | None
    session_id: str | None
    agent_id: str | None
    trace_id: str | None
    supporting_event_ids: list[str] = Field(
        default_factory=list, description="Of a derived node: events it comes from, at most 20."
    )


class Scores(Wire):
    """Why a node stands where it stands."""

    decay_score: float = Field(ge=0, le=1, description="Recency, importance, relevance: 1, 1, 1.")
    relevance_score: float = Field(ge=0, le=1, description="0.5 when nothing was asked.")
    importance_score: int = Field(ge=1, le=10)
    rank_score: float = Field(ge=0, description="What the nodes are sorted by.")


# What is sent is JSON already. `Any`, for pydantic looks at each of a `JsonValue` in Python.
class Node(Wire):
    """A node of the graph."""

    node_id: str
    type: str = Field(
        json_schema_extra={"enum": [r.label for r in NODES.values() if not r.operational]}
    )
    attributes: dict[str, Any] = Field(description="Properties of its type; null: not set.")
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
    content: Any = Field(
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
    properties: dict[str, Any]


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
