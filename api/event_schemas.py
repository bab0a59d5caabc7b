"""What goes over the wire of ingest: envelopes, what became of them, events as they are stored."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from api.schemas import Moment, Name, PositionText, Problem, Wire
from projections.events import MAX_NAME_CHARACTERS, MAX_PAYLOAD_REF_CHARACTERS, STATUSES


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
