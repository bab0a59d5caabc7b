"""What goes over the wire everywhere: problems, the Atlas form of answers, health."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, RootModel

from api.retrieval.plan import Intent, Operator
from enrichment.names import EntityType
from projections.events import (
    MAX_NAME_CHARACTERS,
    MAX_PAYLOAD_REF_CHARACTERS,
    STATUSES,
    timestamp_ms,
)
from projections.identity import Position
from projections.records import MAX_REASON_CHARACTERS, MAX_REQUEST_REASON_CHARACTERS, MAX_SPLIT
from projections.schema import EDGES, NODES

RetrievalMethod = Literal["intent_weighted", "ppr", "activation"]


class Bound(StrEnum):
    """What cut an answer off."""

    NODES = "max_nodes"
    DEPTH = "max_depth"
    TIME = "timeout_ms"
    LIMIT = "limit"


class Direction(StrEnum):
    """Which way lineage is followed."""

    CAUSES = "causes"
    EFFECTS = "effects"
    BOTH = "both"


Channel = Literal["text", "vector", "entity", "context", "graph", "story", "given", "proactive"]


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
NOW: Final = "now"
"""Behind the last position that the ledger has given out."""
Moment = Annotated[ShownMoment, AfterValidator(_moment)]
UnknownSeeds = Annotated[
    list[str],
    Field(description="Of the `seed_nodes` that were given: those that lead to nothing you see."),
]
Withheld = Annotated[
    int | None,
    Field(
        ge=0,
        description="How much the search itself met and kept back, for it is of other users: a "
        "bounded count, no census. Null: the key is bound to a user, who is not told.",
    ),
]
EventStatus = Literal["pending", "running", "completed", "failed", "timeout"]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]


_STRICT: Final = ConfigDict(extra="forbid")


class Wire(BaseModel):
    """Base of everything here: unknown fields are errors."""

    model_config = _STRICT


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


# The Atlas form. Hundreds of nodes and edges are made for an answer, from what the graph gave us:
# models of pydantic, which looks at each of them, took longer than to rank them.


@dataclass(kw_only=True)
class NodeProvenance:
    """Where a node comes from: itself an event, or derived from some; null: does not apply."""

    __pydantic_config__: ClassVar = _STRICT
    event_id: Annotated[
        str | None,
        Field(
            description="Of a derived node: the event that recorded it, or the newest that "
            "supports it."
        ),
    ]
    global_position: ShownPosition | None
    source: Literal["redis"] = "redis"
    occurred_at: ShownMoment | None
    session_id: str | None
    agent_id: str | None
    trace_id: str | None
    supporting_event_ids: Annotated[
        list[str],
        Field(
            description="Of a derived node: events it comes from, at most 20; of an entity the "
            "newest that mention it.",
        ),
    ] = field(default_factory=list)


@dataclass
class Scores:
    """Why a node stands where it stands."""

    __pydantic_config__: ClassVar = _STRICT
    decay_score: Annotated[
        float, Field(ge=0, le=1, description="Recency, importance, relevance: 1, 1, 1.")
    ]
    relevance_score: Annotated[float, Field(ge=0, le=1, description="0.5 when nothing was asked.")]
    importance_score: Annotated[int, Field(ge=1, le=10)]
    rank_score: Annotated[float, Field(ge=0, description="What the nodes are sorted by.")]


@dataclass
class Node:
    """A node of the graph."""

    __pydantic_config__: ClassVar = _STRICT
    node_id: str
    type: Annotated[
        str,
        Field(json_schema_extra={"enum": [r.label for r in NODES.values() if not r.operational]}),
    ]
    attributes: Annotated[
        dict[str, Any], Field(description="Properties of its type; null: not set.")
    ]
    provenance: NodeProvenance
    scores: Scores
    retrieval_reason: Literal["direct", "proactive"] = "direct"
    proactive_signal: Literal["recurring_pattern", "entity_context", "retrieval_history"] | None = (
        None
    )
    depth: Annotated[
        int | None,
        Field(description="Hops from the asked node in a lineage, from a seed in a query."),
    ] = None
    found_by: Annotated[
        Sequence[Channel], Field(description="Channels of a query that found it.")
    ] = field(default_factory=list)
    pending: Annotated[
        bool,
        Field(
            description="An event that was accepted and is not folded into the graph yet: found by "
            "its words alone, without edges.",
        ),
    ] = False
    content: Annotated[
        Any, Field(description="The event's payload, with `include: [content]`.")
    ] = None
    content_omitted: Annotated[
        Literal["too large", "not in the ledger", "ledger away", "sealed"] | None,
        Field(description="Why `content` was asked for and is not here."),
    ] = None


@dataclass
class Edge:
    """An edge between two of the returned nodes."""

    __pydantic_config__: ClassVar = _STRICT
    source: str
    target: str
    type: Annotated[str, Field(json_schema_extra={"enum": list(EDGES)})]
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


class PlanReport(Wire):
    """What was understood of a question."""

    operator: str = Field(
        description="What answers it.", json_schema_extra={"enum": [one.value for one in Operator]}
    )
    confidence: float = Field(ge=0, le=1, description="That it asks for that.")
    since: ShownMoment | None = Field(default=None, description="Of a time that limits it.")
    until: ShownMoment | None = Field(default=None, description="Up to this moment, without it.")


class Answer(Wire):
    """What the events say to the question, as far as it can be told exactly."""

    type: Literal["events", "value", "count", "list", "tree", "summary"]
    value: Any = Field(
        default=None,
        description="A number, a list of names, a moment, or the words of the first event; null: "
        "nothing is known. Of the plans `how_does` and `personalize` lines, each proved by the "
        "event of its place in `evidence`.",
    )
    evidence: list[str] = Field(description="Ids of the events that prove it, at most 200.")


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
    seed_names: dict[str, str] = Field(
        default_factory=dict, description="Of the entities that were begun at, by node id."
    )
    unknown_seeds: UnknownSeeds = Field(default_factory=list)
    proactive_nodes_count: int
    scoring_weights: ScoringWeights
    policy_version: str = Field(
        description="Of the settings that decide what is retrieved; under another one the same "
        "question may be answered otherwise.",
    )
    capacity: Capacity
    retrieval_method: RetrievalMethod | None = Field(
        default=None, description="What ranked a query's answer; null: no query."
    )
    channels: dict[Channel, ChannelReport] = Field(
        default_factory=dict, description="What a query was answered from."
    )
    user_id: str | None = Field(
        default=None, description="Whose view it is beside what is of nobody; `*`: over all users."
    )
    withheld: Withheld = None
    degraded: list[str] = Field(
        default_factory=list, description="What the answer had to go without, in words."
    )
    plan: PlanReport | None = Field(default=None, description="Of a query; null: no query.")
    confidence: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="That the memory knows what is asked for: an absolute figure, the same for all "
        "questions. Null: not judged.",
    )
    answered: bool | None = Field(
        default=None,
        description="Whether that is at least the deployment's `answer_threshold`; else the nodes "
        "are what is nearest.",
    )
    count: int | None = Field(default=None, description="Where a question asks how often.")
    explained: dict[str, dict[str, float]] = Field(
        default_factory=dict,
        description="Of the first events: the features that counted most in their order.",
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
    answer: Answer | None = Field(default=None, description="Of a query; null: no query.")


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
    schema_version: int | None = Field(default=1, ge=1, le=2**31 - 1)
    tool_name: Name | None = None
    parent_event_id: str | None = Field(
        default=None,
        description="The event that caused this one; may arrive later.",
        json_schema_extra={"format": "uuid"},
    )
    ended_at: Moment | None = Field(default=None, description="Not before occurred_at.")
    status: EventStatus | None = None
    importance_hint: int | None = Field(default=None, ge=1, le=10)
    user_id: Name | None = Field(default=None, description="The person concerned; not `*`.")
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


class Provenance(Wire):
    """Where something comes from: the event in the ledger."""

    event_id: str
    global_position: PositionText
    source: Literal["redis"] = "redis"
    occurred_at: Moment
    session_id: str
    agent_id: str
    trace_id: str


class StoredEvent(EventEnvelope):
    """An event as the ledger has it, absent fields null."""

    tenant: str
    schema_version: int
    global_position: PositionText
    provenance: Provenance


StatementId = Annotated[
    str | None,
    Field(
        description="Of the event that this becomes: with one, sending it again is safe.",
        json_schema_extra={"format": "uuid"},
    ),
]


class _Corrected(Wire):
    event_id: str | None = Field(
        default=None,
        description="Of the event that this becomes. With one, sending the same request again is "
        "safe; without, each is a correction of its own, and the last one counts.",
        json_schema_extra={"format": "uuid"},
    )
    reason: str | None = Field(default=None, min_length=1, max_length=MAX_REASON_CHARACTERS)


Subtype = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$", description="Finer than the type, snake_case.")
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

    This documents the rules; `enrichment.payloads` judges.
    """


class Party(Wire):
    """An entity as a person names it."""

    name: Name
    type: EntityType = "concept"
    subtype: Subtype | None = None


class _CorrectedFact(Wire):
    event_id: StatementId = None
    relation: str = Field(
        min_length=1, max_length=256, description="`Works At` and `worksAt` are `works_at`."
    )
    source: Party | None = Field(
        default=None,
        description="As the fact names it, where that is not the user but the same person.",
    )


class StatedFact(_CorrectedFact):
    """What is so; where there is one value at a time it ends what was held before."""

    correction: Literal["state"]
    target: Party | str | float | bool = Field(description="An entity, or a value.")
    fact: str | None = Field(default=None, max_length=500, description="In words.")
    valid_from: Moment | None = Field(default=None, description="Since when; default: now.")
    valid_to: Moment | None = Field(default=None, description="Until when, exclusive.")


class RetractedFact(_CorrectedFact):
    """What is not so; it stays in the history, as retracted."""

    correction: Literal["retract"]
    target: Party | str | float | bool | None = Field(
        default=None, description="May be left out where there is one value at a time."
    )
    at: Moment | None = Field(default=None, description="No longer so since then; default: now.")
    reason: str | None = Field(default=None, min_length=1, max_length=MAX_REASON_CHARACTERS)


class UserCorrection(
    RootModel[Annotated[StatedFact | RetractedFact, Field(discriminator="correction")]]
):
    """What a user, or somebody for them, says about what is known of them.

    This documents the rules; `enrichment.payloads` judges.
    """


class ReconsolidationRequest(Wire):
    """Asks for a pass of consolidation: of a session, of an agent, else of the whole tenant.

    This documents the rules; `enrichment.payloads` judges.
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
        max_length=MAX_REQUEST_REASON_CHARACTERS,
        description="For people.",
    )
