"""Calls of tools and their results, which several spans tell of: how they are told apart."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from projections.traces.drafts import otlp_id
from projections.traces.messages import Part, value_digest

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
