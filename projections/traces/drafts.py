"""Drafts of events: their ids, their envelopes, and how several accounts of one event become one.

An id is derived from what an event *is*, never from when or with what else it arrived:

- what only one span tells (an answer, a failure) from the trace, the span and the part of it;
- a message that was sent from the trace, its content, and how many equal ones stand before it: the
  same message in a second call of the same trace is the same event;
- a call of a tool, and its result, from the trace and the call id where there is one: the answer of
  the model, the span of the tool and the next prompt tell of the same. A call that is carried out
  again under the same id, and ends in another way, has another result under an id of its own span;
- an instruction from the session that the span names (else the trace), its user, and its content:
  it is repeated in every call, and one event.

The ledger keeps the first account that arrives. Within a request the best one is taken: that of the
model for a call, that of the tool for a result, the earliest of equals.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from projections.events import MAX_PAYLOAD_BYTES, derived_event_id, timestamp_text
from projections.traces.messages import Part, value_digest
from projections.traces.spans import (
    AGENT,
    AGENT_OF_RESOURCE,
    SESSION,
    UNNAMED_AGENT,
    USER,
    Span,
    SpanKind,
    plain_float,
    plain_integer,
    text_of,
)

NS_PER_MS: Final = 1_000_000
TEXT_LIMITS: Final = (100_000, 30_000, 8_000, 2_000, 200)
"""Characters that a text of a payload may have: the most with which all of it has room."""
_SPARE_BYTES: Final = 1_024
_MAX_DEPTH: Final = 60


class Draft(NamedTuple):
    """An account of an event.

    Attributes:
        event_id: of the event.
        rank: of several accounts the least is taken.
        time_ms: when it happened, milliseconds since the epoch.
        envelope: the event, as a producer sends it.
        origin: place of its span in the request.
        is_shared: other spans may tell of the same event.
        own_id: of the event when the ledger, or another account, has it with another status.
    """

    event_id: str
    rank: int
    time_ms: int
    envelope: Mapping[str, Any]
    origin: int
    is_shared: bool = False
    own_id: str | None = None

    def apart(self) -> Draft:
        """The same as an event of its own."""
        assert self.own_id is not None
        told = {**self.envelope, "event_id": self.own_id}
        return self._replace(event_id=self.own_id, envelope=told, is_shared=False, own_id=None)

    def ends_as(self, status: object) -> bool:
        """Whether this is one account of an event with that status, not another event."""
        return self.own_id is None or self.envelope.get("status") == status


def otlp_id(*parts: str) -> str:
    """The id of an event of these parts; none of them holds a control character."""
    return derived_event_id("otlp", *parts)


def envelope(event_type: str, time_ms: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """An envelope without the fields that are None."""
    told = {name: value for name, value in fields.items() if value is not None}
    if "payload" in told:
        told["payload"] = fitting(told["payload"])
    return {"event_type": event_type, "occurred_at": timestamp_text(time_ms), **told}


def merged(drafts: Iterable[Draft]) -> list[Draft]:
    """One draft an event, by time and causes first; other accounts fill optional fields."""
    by_id: dict[str, list[Draft]] = {}
    for draft in drafts:
        by_id.setdefault(draft.event_id, []).append(draft)
    events: dict[str, Draft] = {}
    for accounts in by_id.values():
        best = _best(accounts)
        events[best.event_id] = best
        others = [draft for draft in accounts if not draft.ends_as(best.envelope.get("status"))]
        events.update((draft.event_id, draft) for draft in map(Draft.apart, others))
    return sorted(
        events.values(), key=lambda draft: (draft.time_ms, _steps(draft, events), draft.event_id)
    )


def _steps(draft: Draft, events: Mapping[str, Draft]) -> int:
    """How many of its causes stand in the same millisecond; they come before it."""
    for steps in range(_MAX_STEPS):
        cause = events.get(draft.envelope.get("parent_event_id", ""))
        if cause is None or cause.time_ms != draft.time_ms:
            return steps
        draft = cause
    return _MAX_STEPS


_MAX_STEPS: Final = 64
"""Also what ends a circle."""


_FILLED: Final = ("parent_event_id", "ended_at", "user_id", "tool_name")


def _best(accounts: list[Draft]) -> Draft:
    if len(accounts) == 1:
        return accounts[0]
    accounts.sort(key=lambda d: (d.rank, d.time_ms, orjson.dumps(d.envelope)))
    best, *others = accounts
    added = {
        name: other.envelope[name]
        for name in _FILLED
        for other in reversed(others)
        if name not in best.envelope and name in other.envelope
    }
    if added.get("ended_at", best.envelope["occurred_at"]) < best.envelope["occurred_at"]:
        # a call that took no millisecond ended when the model had asked for it
        added["ended_at"] = best.envelope["occurred_at"]
    return best._replace(envelope={**best.envelope, **added}) if added else best


# -- payloads --------------------------------------------------------------------------------------


def fitting(payload: Any) -> Any:
    """The payload with texts cut so that an envelope has room for it, and numbers JSON can hold."""
    for longest in TEXT_LIMITS:
        shorter = _kept(payload, longest, _MAX_DEPTH)
        if len(orjson.dumps(shorter)) <= MAX_PAYLOAD_BYTES - _SPARE_BYTES:
            return shorter
    return _kept(orjson.dumps(shorter).decode(), TEXT_LIMITS[1], 1)  # many short texts


def _kept(value: Any, longest: int, depth: int) -> Any:
    if isinstance(value, str):
        if len(value) <= longest:
            return value
        return f"{value[:longest]}… [cut: {len(value):,} characters]"
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return plain_integer(value)
    if isinstance(value, float):
        return plain_float(value)
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _kept(item, longest, depth - 1) for key, item in value.items()}
    return [_kept(item, longest, depth - 1) for item in value]


_UNIQUE_CHARACTERS: Final = 9
"""Letters and digits of an id that no other call of a trace has: Mistral's have 9, others more.
`call_1` is given again by the next request, and so is the name of a tool."""
_OTHER: Final = re.compile(r"[^A-Za-z0-9]")
_DIGIT: Final = re.compile(r"\d")


def call_key(call_id: str | None, name: str | None, arguments: Any) -> str | None:
    """What tells a call from the others of its trace; None without a call id.

    An id that may be given twice counts only with the tool's name and arguments.
    """
    if call_id is None:
        return None
    if _is_unique(call_id):
        return value_digest(call_id)
    return value_digest([call_id, name, arguments])


def call_event_id(tenant: str, trace_id: str, key: str) -> str:
    """The event of a call."""
    return otlp_id(tenant, trace_id, "call", key)


def result_event_id(tenant: str, trace_id: str, key: str, result: Part) -> str:
    """The event of a result: told by the tool, and in other words by the next prompt."""
    parts = ["result", key]
    if not _is_unique(result.call_id or ""):
        parts.append("failed" if result.failed else value_digest(result.value))
    return otlp_id(tenant, trace_id, *parts)


class ToldCall(NamedTuple):
    """A call that a model's answer told of.

    Attributes:
        event_id: of the call.
        key: as `call_key` gives it.
        call_id: of the model; some tracers do not write it into the span of the tool.
        name: of the tool.
        written: digests of its arguments in the forms in which tools are seen to tell them.
    """

    event_id: str
    key: str | None
    call_id: str | None
    name: str
    written: frozenset[str]


def told_call(event_id: str, key: str | None, call: Part) -> ToldCall:
    """A call as its model tells it."""
    forms = [call.value, str(call.value)]  # as JSON, or as Python prints it
    if isinstance(call.value, Mapping) and len(call.value) == 1:
        (only,) = call.value.values()
        forms += [only, str(only)]  # LangChain's tools of one argument
    digests = frozenset(map(value_digest, forms))
    return ToldCall(event_id, key, call_id=call.call_id, name=call.name or "", written=digests)


class ToldCalls:
    """Calls that models told of, so that spans of tools find theirs, also in later requests.

    What is forgotten costs a call that is there twice: as its model and as its tool tells it.

    Args:
        most_traces: of which calls are remembered; who comes last drives out the first.
    """

    def __init__(self, most_traces: int = 2_000) -> None:
        self._most_traces = most_traces
        self._traces: OrderedDict[tuple[str, str], _Trace] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, tenant: str, trace_id: str, call: ToldCall) -> None:
        """Remember a call; the same one again is the same one."""
        with self._lock:
            trace = self._traces.setdefault((tenant, trace_id), _Trace({}, {}))
            self._traces.move_to_end((tenant, trace_id))
            if len(trace.calls) < _MOST_CALLS:
                trace.calls.setdefault(call.event_id, call)
            while len(self._traces) > self._most_traces:
                self._traces.popitem(last=False)

    def of_tool(
        self, trace: tuple[str, str], span_id: str, name: str, told: tuple[str | None, Any]
    ) -> ToldCall | None:
        """The call that the span of a tool carries out, as far as any model told of it.

        A call belongs to one span; of equal ones the first that was told goes first.

        Args:
            trace: tenant and trace id.
            span_id: of the tool.
            name: of the tool.
            told: call id and arguments, as far as the span tells them.
        """
        call_id, arguments = told
        with self._lock:
            calls, spans = self._traces.get(trace, _Trace({}, {}))
            for call in calls.values():
                if spans.get(call.event_id) == span_id:
                    return call
            digest = None if arguments is None else value_digest(arguments)
            for call in calls.values():
                is_named = call.name == name and (call_id is None or call.call_id == call_id)
                is_meant = call_id is not None or digest is None or digest in call.written
                if is_named and is_meant and call.event_id not in spans:
                    spans[call.event_id] = span_id
                    return call
        return None


class _Trace(NamedTuple):
    """Calls by event, and the spans of tools by the event of the call that they carried out."""

    calls: dict[str, ToldCall]
    spans: dict[str, str]


_MOST_CALLS: Final = 1_000
"""Of a trace."""


def call_payload(call: Part) -> dict[str, Any]:
    """The payload of a call: what the tool is asked for."""
    call_id = {"call_id": call.call_id} if call.call_id else {}
    return {"arguments": {} if call.value is None else call.value, **call_id}


def outcome(result: Part) -> dict[str, Any]:
    """The payload of a result: what was returned, or what went wrong."""
    call_id = {"call_id": result.call_id} if result.call_id else {}
    if not result.failed:
        return {"result": result.value, **call_id}
    error = result.value
    if isinstance(error, Mapping):
        told = error.get("error")
        error = told if isinstance(told, str | Mapping) and told else error
    return {"error": error if isinstance(error, Mapping) else {"message": error}, **call_id}


def _is_unique(call_id: str) -> bool:
    bare = _OTHER.sub("", call_id)
    return len(bare) >= _UNIQUE_CHARACTERS and _DIGIT.search(bare) is not None


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
