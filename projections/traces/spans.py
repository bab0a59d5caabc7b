"""What tracers send, in one form whichever encoding it came in, and what its attributes say.

Ids are lower-case hex, empty where there is none; times are nanoseconds since the epoch, 0 where
none was given. Attributes are JSON values. Tables tell which kind of span it is, whose, and what
went wrong. Several conventions may speak at once: the order is langfuse > gen_ai > openinference >
older and generic names, and within a row the first attribute that says something.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

Attributes = Mapping[str, Any]

STATUS_ERROR: Final = 2
"""`STATUS_CODE_ERROR` of a span."""
TRACE_ID_CHARACTERS: Final = 32
SPAN_ID_CHARACTERS: Final = 16

MAX_RECORDS: Final = 10_000
"""Spans, or log records, of one request; SDKs send 512 at a time."""
MAX_OCCURRENCES: Final = 1_000
"""Events of a span that are read; SDKs keep 128."""

_MAX_SAFE: Final = 2**53 - 1


class TooLarge(ValueError):
    """A request holds more than is read of one; the text says what."""


class Occurrence(NamedTuple):
    """An event of a span: a moment in it, with a name."""

    name: str
    time_ns: int
    attributes: Attributes


class Span(NamedTuple):
    """A span.

    Attributes:
        trace_id: 32 characters.
        span_id: 16 characters.
        parent_id: span id of the parent; empty for a root.
        name: as the tracer chose it.
        start_ns: begin.
        end_ns: end.
        attributes: of the span.
        resource: attributes of what sent it, such as `service.name`.
        occurrences: its events.
        status_code: `STATUS_ERROR` or another number.
        status_message: of an error.
        is_log: made from log records: only what they say counts, not that it was there.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    resource: Attributes
    occurrences: tuple[Occurrence, ...] = ()
    status_code: int = 0
    status_message: str = ""
    is_log: bool = False


class LogRecord(NamedTuple):
    """A log record; `event_name` is empty for one that is no event."""

    trace_id: str
    span_id: str
    event_name: str
    time_ns: int
    body: Any
    attributes: Attributes
    resource: Attributes


def plain_integer(value: int) -> int | str:
    """The number, or its digits where JSON would not keep them all."""
    return value if -_MAX_SAFE <= value <= _MAX_SAFE else str(value)


def plain_float(value: float) -> float | str:
    """The number, or its text where JSON has no such number."""
    return value if -_MAX_SAFE <= value <= _MAX_SAFE else str(value)


def plain_bytes(value: bytes) -> str:
    """Bytes are not language: that they were there is what is kept."""
    return f"[binary, {len(value):,} bytes]"


class SpanKind(StrEnum):
    """What a span is to a memory."""

    CHAT = "chat"
    """A model was asked."""
    TOOL = "tool"
    """A tool was executed."""
    RETRIEVAL = "retrieval"
    """Something was looked up: documents, a memory."""
    STORE = "memory_store"
    """A memory was searched or changed."""
    CHECK = "guardrail"
    """A guardrail or an evaluator judged."""
    PLAN = "plan"
    """An agent made a plan."""
    DECISION = "decision"
    """An agent decided."""
    SCOPE = "scope"
    """Something that other spans lie in, and that says nothing itself but that it failed."""
    PART = "part"
    """A part of the machinery, which says nothing at all: a chain, an embedding."""


class KindRow(NamedTuple):
    """An attribute that says of which kind a span is, by its value."""

    attribute: str
    kinds: Mapping[str, SpanKind]


KINDS: Final[tuple[KindRow, ...]] = (
    KindRow(
        "langfuse.observation.type",
        {
            "generation": SpanKind.CHAT,
            "tool": SpanKind.TOOL,
            "retriever": SpanKind.RETRIEVAL,
            "guardrail": SpanKind.CHECK,
            "evaluator": SpanKind.CHECK,
            "agent": SpanKind.SCOPE,
            "chain": SpanKind.PART,
            "embedding": SpanKind.PART,
        },
    ),
    KindRow(
        "gen_ai.operation.name",
        {
            "chat": SpanKind.CHAT,
            "generate_content": SpanKind.CHAT,
            "text_completion": SpanKind.CHAT,
            "fetch_response": SpanKind.CHAT,
            "execute_tool": SpanKind.TOOL,
            "retrieval": SpanKind.RETRIEVAL,
            "search_memory": SpanKind.STORE,
            "create_memory": SpanKind.STORE,
            "update_memory": SpanKind.STORE,
            "upsert_memory": SpanKind.STORE,
            "delete_memory": SpanKind.STORE,
            "create_memory_store": SpanKind.STORE,
            "delete_memory_store": SpanKind.STORE,
            "plan": SpanKind.PLAN,
            "invoke_agent": SpanKind.SCOPE,
            "invoke_workflow": SpanKind.SCOPE,
            "create_agent": SpanKind.SCOPE,
            "embeddings": SpanKind.PART,
        },
    ),
    KindRow(
        "openinference.span.kind",
        {
            "llm": SpanKind.CHAT,
            "tool": SpanKind.TOOL,
            "retriever": SpanKind.RETRIEVAL,
            "reranker": SpanKind.RETRIEVAL,
            "guardrail": SpanKind.CHECK,
            "evaluator": SpanKind.CHECK,
            "decision": SpanKind.DECISION,
            "agent": SpanKind.SCOPE,
            "chain": SpanKind.PART,
            "embedding": SpanKind.PART,
            "prompt": SpanKind.PART,
        },
    ),
    KindRow("llm.request.type", {"chat": SpanKind.CHAT, "completion": SpanKind.CHAT}),
    KindRow(
        "traceloop.span.kind",
        {
            "tool": SpanKind.TOOL,
            "agent": SpanKind.SCOPE,
            "workflow": SpanKind.SCOPE,
            "task": SpanKind.PART,
        },
    ),
)

_SAYS_CHAT: Final = (
    *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.prompt.0.role"),
    *("gen_ai.request.model", "llm.input_messages.0.message.role"),
)
"""Attributes that only a call of a model has, where nothing says the kind."""
_OURS: Final = ("gen_ai.", "langfuse.observation.", "openinference.", "traceloop.")
"""What attributes of GenAI begin with; the kind of such a span may still be unknown."""


def span_kind(span: Span) -> SpanKind | None:
    """The kind of a span; None: it is not of GenAI (HTTP, a database)."""
    attributes = span.attributes
    for row in KINDS:
        value = attributes.get(row.attribute)
        if isinstance(value, str) and (kind := row.kinds.get(value.lower())) is not None:
            return kind
    if any(name in attributes for name in _SAYS_CHAT):
        return SpanKind.CHAT
    return SpanKind.PART if any(name.startswith(_OURS) for name in attributes) else None


# -- whose it is -----------------------------------------------------------------------------------

SESSION: Final = (
    *("gen_ai.conversation.id", "session.id", "langfuse.session.id"),
    "traceloop.association.properties.session_id",
)
USER: Final = (
    *("user.id", "enduser.id", "langfuse.user.id"),
    "traceloop.association.properties.user_id",
)
AGENT: Final = ("gen_ai.agent.name", "agent.name")
AGENT_OF_RESOURCE: Final = ("gen_ai.agent.name", "service.name")
UNNAMED_AGENT: Final = "agent"

MODEL: Final = (
    *("langfuse.observation.model.name", "gen_ai.response.model", "gen_ai.request.model"),
    "llm.model_name",
)
TOOL_NAME: Final = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name")
TOOL_CALL_ID: Final = ("gen_ai.tool.call.id", "tool.id", "tool_call.id")
ARGUMENTS: Final = (
    *("langfuse.observation.input", "gen_ai.tool.call.arguments", "input.value"),
    *("traceloop.entity.input", "tool.parameters"),  # some write the tool's schema into the last
)
RESULT: Final = (
    *("langfuse.observation.output", "gen_ai.tool.call.result", "output.value"),
    "traceloop.entity.output",
)
QUERY: Final = (
    *("langfuse.observation.input", "gen_ai.retrieval.query.text", "gen_ai.memory.query.text"),
    *("input.value", "traceloop.entity.input"),
)
RETRIEVED: Final = (
    *("langfuse.observation.output", "gen_ai.retrieval.documents", "gen_ai.memory.records"),
    *("output.value", "traceloop.entity.output"),
)
SOURCE: Final = (
    *("gen_ai.data_source.id", "gen_ai.memory.store.id", "gen_ai.memory.store.name"),
    "tool.name",
)
INPUT: Final = ("langfuse.observation.input", "input.value", "traceloop.entity.input")
OUTPUT: Final = ("langfuse.observation.output", "output.value", "traceloop.entity.output")
TOKENS: Final = (
    ("input_tokens", ("gen_ai.usage.input_tokens", "llm.token_count.prompt")),
    ("output_tokens", ("gen_ai.usage.output_tokens", "llm.token_count.completion")),
)


def said(attributes: Attributes, names: tuple[str, ...]) -> Any:
    """What the first of these attributes says that says something."""
    for name in names:
        value = attributes.get(name)
        if value is not None and value != "":
            return value
    return None


def text_of(attributes: Attributes, names: tuple[str, ...]) -> str | None:
    """As `said`, as text."""
    value = said(attributes, names)
    if value is None or isinstance(value, list | Mapping):
        return None
    return str(value)


# -- what went wrong -------------------------------------------------------------------------------

_TIMEOUTS: Final = ("timeout", "timed_out", "deadline")


class Failure(NamedTuple):
    """What went wrong in a span: a status of the envelope, and the error for the payload."""

    status: str
    error: Mapping[str, str]


def failure(span: Span) -> Failure | None:
    """What went wrong, when the span says so; an exception on the way that was handled is none.

    The stack trace stays where traces are kept: it is about the inside of a framework, and would
    be found for what it says instead of the message.
    """
    attributes = span.attributes
    error_type = text_of(attributes, ("error.type",))
    if (
        span.status_code != STATUS_ERROR
        and error_type is None
        and attributes.get("langfuse.observation.level") != "ERROR"
    ):
        return None
    thrown: Attributes = next(
        (item.attributes for item in reversed(span.occurrences) if item.name == "exception"), {}
    )
    error = {
        "message": text_of(thrown, ("exception.message",))
        or text_of(attributes, ("langfuse.observation.status_message", "exception.message"))
        or span.status_message
        or error_type
        or "failed",
        "exception_type": text_of(thrown, ("exception.type",)) or error_type,
    }
    told = {name: value for name, value in error.items() if value}
    return Failure(_status(told.get("exception_type", "")), told)


def _status(error_type: str) -> str:
    lowered = error_type.lower()
    return "timeout" if any(word in lowered for word in _TIMEOUTS) else "failed"
