"""What is known about a span beside itself: whose it is, and what caused it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from projections.traces.attributes import (
    AGENT,
    AGENT_OF_RESOURCE,
    SESSION,
    UNNAMED_AGENT,
    USER,
    SpanKind,
    text_of,
)
from projections.traces.calls import ToldCalls
from projections.traces.drafts import NS_PER_MS, Draft, envelope, otlp_id
from projections.traces.telemetry import Span


class Whose(NamedTuple):
    """Session and user; None where none is named."""

    session_id: str | None
    user_id: str | None

    def or_else(self, *others: Whose) -> Whose:
        """The first that is named, of each."""
        session_id, user_id = self
        for other in others:
            session_id = session_id or other.session_id
            user_id = user_id or other.user_id
        return Whose(session_id, user_id)


def whose_is_it(span: Span) -> Whose:
    """What the span itself, or what sent it, names."""
    return Whose(
        text_of(span.attributes, SESSION) or text_of(span.resource, SESSION),
        text_of(span.attributes, USER) or text_of(span.resource, USER),
    )


_NO_NAME = "unknown_service"
"""What SDKs call a service that nobody has named; the program's file may follow."""


class Context(NamedTuple):
    """A span that is to become events.

    Attributes:
        span: it.
        kind: of it.
        tenant: whose ledger it is for.
        origin: its place in the request.
        own: what it names itself; ids are made of this, which no other span can change.
        whose: the same, filled from spans above and beside it.
        cause: the event of the nearest span above it, computed when asked for.
        calls: that models told of, in spans that began before.
    """

    span: Span
    kind: SpanKind
    tenant: str
    origin: int
    own: Whose
    whose: Whose
    cause: Callable[[], str | None]
    calls: ToldCalls

    @property
    def start_ms(self) -> int:
        """Begin."""
        return self.span.start_ns // NS_PER_MS

    @property
    def end_ms(self) -> int:
        """End, never before the begin."""
        return max(self.span.end_ns // NS_PER_MS, self.start_ms)

    @property
    def agent(self) -> str:
        """Who did it: the agent, else the service."""
        span = self.span
        named = text_of(span.attributes, AGENT) or text_of(span.resource, AGENT_OF_RESOURCE)
        return UNNAMED_AGENT if named is None or named.startswith(_NO_NAME) else named

    def span_event_id(self, part: str) -> str:
        """The id of an event that only this span tells of."""
        return otlp_id(self.tenant, self.span.trace_id, self.span.span_id, part)

    def draft(
        self,
        event_id: str,
        event_type: str,
        time_ms: int,
        *,
        rank: int = 0,
        is_shared: bool = False,
        own_id: str | None = None,
        **fields: Any,
    ) -> Draft:
        """A draft of this span; fields beyond the envelope's frame that are None are left out."""
        frame: Mapping[str, Any] = {
            "event_id": event_id,
            "session_id": self.whose.session_id or self.span.trace_id,
            "agent_id": self.agent,
            "trace_id": self.span.trace_id,
            "user_id": self.whose.user_id,
        }
        told = envelope(event_type, time_ms, {**frame, **fields})
        return Draft(
            event_id=event_id,
            rank=rank,
            time_ms=time_ms,
            envelope=told,
            origin=self.origin,
            is_shared=is_shared,
            own_id=own_id,
        )
