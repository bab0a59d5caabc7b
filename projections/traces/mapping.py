"""Spans become envelopes: a function of the spans of one request, and of calls told before.

- A call of a model: `message.system`, `message.user` and `tool.result` of what is new in what was
  sent; `agent.thought`, `message.assistant` and `tool.call` of what came back; `llm.failed` when it
  failed; `llm.call` when the tracer records no content.
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

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from projections.traces.chats import chat_drafts, trigger_of
from projections.traces.drafts import Context, Draft, ToldCalls, Whose, merged, whose_is_it
from projections.traces.spans import (
    SPAN_ID_CHARACTERS,
    TRACE_ID_CHARACTERS,
    Span,
    SpanKind,
    span_kind,
)
from projections.traces.steps import (
    SINGLES,
    STEPS,
    scope_drafts,
    single_drafts,
    step_drafts,
    step_id,
)

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
