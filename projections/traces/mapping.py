"""Spans become envelopes: a function of the spans of one request, and of calls told before.

- A call of a model: `message.system`, `message.user` and `tool.result` of what is new in what was
  sent; `agent.thought`, `message.assistant` and `tool.call` of what came back; `llm.failed` when it
  failed; `llm.call` when the tracer records no content (`chats`; all others here).
- A tool: `tool.call` and `tool.result`. A retrieval, a memory, a guardrail likewise, under
  `retrieval`, `memory_store`, `guardrail`.
- A plan, a decision: `agent.plan`, `agent.decision`.
- An agent, a workflow: nothing, but `agent.failed` when it failed.
- A chain, an embedding, and what is not of GenAI (HTTP, databases): nothing.

A parent is what caused an event: of an answer the last message that was sent, of a result its call,
of what has no such cause in its own span the nearest span above it, in the same request, that
became an event. A span above that came in another request is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from projections.events import timestamp_text
from projections.traces.chats import chat_drafts, trigger_of
from projections.traces.conversations import conversation, nested
from projections.traces.drafts import (
    Context,
    Draft,
    ToldCall,
    ToldCalls,
    Whose,
    call_event_id,
    call_key,
    merged,
    outcome,
    result_event_id,
    whose_is_it,
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
    SPAN_ID_CHARACTERS,
    TOOL_CALL_ID,
    TOOL_NAME,
    TRACE_ID_CHARACTERS,
    Span,
    SpanKind,
    failure,
    said,
    span_kind,
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


_NOTHING: Final = "0" * TRACE_ID_CHARACTERS


class Mapped(NamedTuple):
    """What became of the spans of a request.

    Attributes:
        drafts: one an event, in the order of time.
        scopes: spans of GenAI that say nothing of their own.
        ignored: spans that are not of GenAI.
        refused: place of a span, and why it is none.
    """

    drafts: list[Draft]
    scopes: int
    ignored: int
    refused: list[tuple[int, str]]


def map_spans(
    spans: Sequence[Span],
    tenant: str,
    user_id: str | None = None,
    calls: ToldCalls | None = None,
) -> Mapped:
    """The events of spans, whatever their order.

    Args:
        spans: of one request.
        tenant: the caller's.
        user_id: the caller's; None: whom a span names, or nobody.
        calls: that models told of in requests before; those of this one are added.
    """
    request = _Request(spans, tenant, user_id, calls or ToldCalls())
    drafts: list[Draft] = []
    refused: list[tuple[int, str]] = []
    scopes = ignored = 0
    for place in request.order:
        span, kind = spans[place], request.kinds[place]
        if kind is None:
            ignored += 1
        elif (rule := _broken_rule(span)) is not None:
            refused.append((place, rule))
        elif told := _DRAFTS[kind](request.context(place)):
            drafts.extend(told)
        else:
            scopes += 1
    return Mapped(merged(drafts), scopes, ignored, refused)


def _broken_rule(span: Span) -> str | None:
    """What of the frame of a span is not as the protocol says."""
    if len(span.trace_id) != TRACE_ID_CHARACTERS or span.trace_id == _NOTHING:
        return "trace_id: 16 bytes, not all zero"
    if len(span.span_id) != SPAN_ID_CHARACTERS or span.span_id == _NOTHING[:SPAN_ID_CHARACTERS]:
        return "span_id: 8 bytes, not all zero"
    if not span.start_ns:
        return "start_time_unix_nano: required"
    return None


def _no_drafts(_: Context) -> list[Draft]:
    return []


_DRAFTS: Final[dict[SpanKind, Callable[[Context], list[Draft]]]] = {
    SpanKind.CHAT: chat_drafts,
    SpanKind.SCOPE: scope_drafts,
    SpanKind.PART: _no_drafts,
    **dict.fromkeys(STEPS, step_drafts),
    **dict.fromkeys(SINGLES, single_drafts),
}


class _Request:
    """The spans of a request, and what lies above each."""

    def __init__(
        self, spans: Sequence[Span], tenant: str, user_id: str | None, calls: ToldCalls
    ) -> None:
        self._spans = spans
        self._tenant = tenant
        self._calls = calls
        self.kinds = [span_kind(span) for span in spans]
        self._places = {
            (span.trace_id, span.span_id): place
            for place, span in enumerate(spans)
            if not span.is_log
        }
        # As they began: a model before the tools that it asks for.
        self.order = sorted(
            range(len(spans)), key=lambda place: (spans[place].start_ns, spans[place].span_id)
        )
        of_caller = Whose(None, user_id)
        self._whose = [whose_is_it(span).or_else(of_caller) for span in spans]
        self._of_trace = self._named_by_trace()
        self._effects: dict[int, str | None] = {}

    def context(self, place: int) -> Context:
        """What is known about a span."""
        span = self._spans[place]
        kind = self.kinds[place]
        assert kind is not None
        named_here = self._whose[place]
        return Context(
            span=span,
            kind=kind,
            tenant=self._tenant,
            origin=place,
            own=named_here,
            whose=named_here.or_else(
                *self._above(place), self._of_trace.get(span.trace_id, named_here)
            ),
            cause=lambda: self._cause(place),
            calls=self._calls,
        )

    def _named_by_trace(self) -> dict[str, Whose]:
        """Session and user that the earliest spans of a trace name, for those that name none."""
        named: dict[str, Whose] = {}
        for place in self.order:
            named_here = self._whose[place]
            if named_here.session_id or named_here.user_id:
                trace = self._spans[place].trace_id
                named[trace] = named[trace].or_else(named_here) if trace in named else named_here
        return named

    def _ancestors(self, place: int) -> list[int]:
        """Places of the spans above it in this request, the nearest first."""
        seen: dict[int, None] = {}
        span = self._spans[place]
        above = self._places.get((span.trace_id, span.span_id if span.is_log else span.parent_id))
        while above is not None and above != place and above not in seen:
            seen[above] = None
            if len(seen) == _MAX_ABOVE:
                break
            span = self._spans[above]
            above = self._places.get((span.trace_id, span.parent_id))
        return list(seen)

    def _above(self, place: int) -> list[Whose]:
        named_here = self._whose[place]
        if named_here.session_id and named_here.user_id:
            return []
        return [self._whose[above] for above in self._ancestors(place)]

    def _cause(self, place: int) -> str | None:
        """The event of the nearest span above that became one."""
        return next(filter(None, map(self._effect, self._ancestors(place))), None)

    def _effect(self, place: int) -> str | None:
        """The event that causes what lies in a span."""
        if place not in self._effects:
            kind, event_id = self.kinds[place], None
            if kind is not None and _broken_rule(self._spans[place]) is None:
                if kind in STEPS:
                    event_id = step_id(self.context(place))
                elif kind is SpanKind.CHAT:
                    event_id = trigger_of(self.context(place))
            self._effects[place] = event_id
        return self._effects[place]


_MAX_ABOVE: Final = 64
"""Spans above a span that are looked at; also what ends a circle."""
