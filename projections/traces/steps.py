"""Tools, retrievals and the like: a call and its result. Plans and decisions. Failed scopes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from projections.events import timestamp_text
from projections.traces.conversations import conversation, nested
from projections.traces.drafts import (
    Context,
    Draft,
    ToldCall,
    call_event_id,
    call_key,
    outcome,
    result_event_id,
)
from projections.traces.messages import Part, message_of, parsed, returned
from projections.traces.spans import (
    ARGUMENTS,
    INPUT,
    OUTPUT,
    QUERY,
    RESULT,
    RETRIEVED,
    SOURCE,
    TOOL_CALL_ID,
    TOOL_NAME,
    SpanKind,
    failure,
    said,
    text_of,
)


class Step(NamedTuple):
    """How a kind of span becomes a call and a result: a word of the types, and where to look."""

    word: str
    names: tuple[str, ...]
    arguments: tuple[str, ...]
    result: tuple[str, ...]


STEPS: Final[Mapping[SpanKind, Step]] = {
    SpanKind.TOOL: Step("tool", TOOL_NAME, ARGUMENTS, RESULT),
    SpanKind.RETRIEVAL: Step("retrieval", SOURCE, QUERY, RETRIEVED),
    SpanKind.STORE: Step("memory_store", SOURCE, QUERY, RETRIEVED),
    SpanKind.CHECK: Step("guardrail", TOOL_NAME, INPUT, OUTPUT),
}
SINGLES: Final[Mapping[SpanKind, str]] = {
    SpanKind.PLAN: "agent.plan",
    SpanKind.DECISION: "agent.decision",
}
"""Kinds that become one event, of this type."""

_CALL_RANK: Final = 1
"""A tool knows less of why it is called than the model that calls it."""
_MEMORY: Final = "gen_ai.memory."


class _Told(NamedTuple):
    """What a span tells of a call."""

    name: str
    arguments: Any
    result: Part
    key: str | None
    call: ToldCall | None = None


def step_drafts(context: Context) -> list[Draft]:
    """A call, and what came of it."""
    word, told = STEPS[context.kind].word, _told(context)
    wrong = failure(context.span)
    call_id = {"call_id": told.result.call_id} if told.result.call_id else {}
    is_shared = told.key is not None or told.call is not None
    call = context.draft(
        _call_id(context, told),
        f"{word}.call",
        context.start_ms,
        rank=_CALL_RANK,
        is_shared=is_shared,
        tool_name=told.name,
        ended_at=timestamp_text(context.end_ms),
        parent_event_id=context.cause(),
        payload={"arguments": {} if told.arguments is None else told.arguments, **call_id},
    )
    status = "failed" if told.result.failed else "completed"
    result = context.draft(
        _result_id(context, told),
        f"{word}.result",
        # Later than its call, which the model that asks for it tells a millisecond after its end.
        max(context.end_ms, context.start_ms + 2),
        is_shared=told.key is not None,
        own_id=None if told.key is None else context.span_event_id("result"),
        tool_name=told.name,
        status=status if wrong is None else wrong.status,
        parent_event_id=call.event_id,
        payload=outcome(told.result),
    )
    return [call, result]


def step_id(context: Context) -> str:
    """The event of the call."""
    return _call_id(context, _told(context))


def _told(context: Context) -> _Told:
    attributes, step = context.span.attributes, STEPS[context.kind]
    arguments = parsed(said(attributes, step.arguments))
    if isinstance(arguments, Mapping) and arguments.keys() == _OBSERVED:
        arguments = _observed(arguments)
    result = _returned(parsed(_result_value(context, step)))
    name = text_of(attributes, step.names) or _span_name(context)
    if context.kind is SpanKind.STORE:
        name = text_of(attributes, ("gen_ai.operation.name",)) or name
        arguments = _of_memory(attributes, arguments)
    elif context.kind is SpanKind.RETRIEVAL and isinstance(arguments, str):
        arguments = {"query": arguments}
    wrong = failure(context.span)
    if wrong is not None:
        result = result._replace(value=wrong.error, failed=True)
    call_id = text_of(attributes, TOOL_CALL_ID) or result.call_id
    call = None
    if context.kind is SpanKind.TOOL:
        trace, span_id = (context.tenant, context.span.trace_id), context.span.span_id
        call = context.calls.of_tool(trace, span_id, name, (call_id, arguments))
    if call is not None:
        result = result._replace(call_id=call.call_id)
        return _Told(name, arguments, result, key=call.key, call=call)
    result = result._replace(call_id=call_id)
    return _Told(name, arguments, result, call_key(call_id, name, arguments))


_OBSERVED: Final = {"args", "kwargs"}


def _observed(arguments: Mapping[str, Any]) -> Any:
    """Arguments of a function as Langfuse's decorator writes them down."""
    placed, named = arguments["args"], arguments["kwargs"]
    if not placed:
        return named
    return placed[0] if isinstance(placed, list) and len(placed) == 1 and not named else arguments


def _span_name(context: Context) -> str:
    """The name of the span, without the operation before it."""
    name = context.span.name.strip()
    return name.removeprefix("execute_tool ").strip() or context.kind.value


def _result_value(context: Context, step: Step) -> Any:
    """What the span says was returned; of documents their words, whoever lists them."""
    attributes = context.span.attributes
    if context.kind is SpanKind.RETRIEVAL:
        documents = nested(attributes, "retrieval.documents")
        documents = documents or nested(attributes, "reranker.output_documents")
        if documents:
            return [
                item["document"] if isinstance(item, Mapping) and "document" in item else item
                for item in documents
            ]
    return said(attributes, step.result)


def _returned(value: Any) -> Part:
    """A result, which may be the message that the tool's framework made of it."""
    if isinstance(value, Mapping):
        inner = value.get("output")
        held = inner if len(value) == 1 and isinstance(inner, Mapping) else value
        data = held.get("data") if isinstance(held.get("data"), Mapping) else held
        data = held["kwargs"] if isinstance(held.get("kwargs"), Mapping) else data
        if isinstance(data, Mapping) and "tool_call_id" in data and "content" in data:
            part = next(iter(message_of({**data, "role": "tool"}, "tool").parts), None)
            if part is not None:
                return part
    return returned(value, name=None, call_id=None)


def _of_memory(attributes: Mapping[str, Any], query: Any) -> dict[str, Any]:
    """What a memory was asked for, or given."""
    told = {
        name.removeprefix(_MEMORY): parsed(value)
        for name, value in attributes.items()
        if name.startswith(_MEMORY)
    }
    told.pop("records", None) if query is not None else None
    told.pop("query.text", None)
    return {**({"query": query} if query is not None else {}), **told}


def _call_id(context: Context, told: _Told) -> str:
    tenant, span = context.tenant, context.span
    if told.call is not None:
        return told.call.event_id
    if told.key is None:
        return context.span_event_id("call")
    return call_event_id(tenant, span.trace_id, told.key)


def _result_id(context: Context, told: _Told) -> str:
    tenant, span = context.tenant, context.span
    if told.key is None:
        return context.span_event_id("result")
    return result_event_id(tenant, span.trace_id, told.key, told.result)


def single_drafts(context: Context) -> list[Draft]:
    """A plan or a decision: what the agent settled on."""
    span, talk = context.span, conversation(context.span)
    words = [part.text for answer in talk.answers for part in answer.parts if part.text]
    wrong = failure(span)
    if not words and wrong is None:
        return []
    payload: dict[str, Any] = {"text": "\n".join(words)} if words else {}
    if wrong is not None:
        payload["error"] = wrong.error
    return [
        context.draft(
            context.span_event_id(context.kind.value),
            SINGLES[context.kind],
            context.end_ms,
            status="completed" if wrong is None else wrong.status,
            parent_event_id=context.cause(),
            payload=payload,
        )
    ]


def scope_drafts(context: Context) -> list[Draft]:
    """An agent or a workflow is where things happen; that it failed is one of them."""
    wrong = failure(context.span)
    if wrong is None:
        return []
    return [
        context.draft(
            context.span_event_id("failed"),
            "agent.failed",
            context.end_ms,
            status=wrong.status,
            parent_event_id=context.cause(),
            payload={"error": wrong.error},
        )
    ]
