"""What the causal rules need to know of one event: a small value, made from the event alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from enrichment.event_kinds import (
    ARGUMENT_FIELDS,
    OUTCOME_FIELDS,
    EventKind,
    calls_in,
    content_parts,
    event_kind,
    is_chat_message,
    is_failed,
    parsed_json,
)
from enrichment.values import Values, values_in
from projections.events import Event

MAX_CONSUMED: Final = 200
"""Values of one event's input that are followed, the first in alphabetical order."""
MAX_ARGUMENTS: Final = 64
"""Arguments of a call that are compared with those of another, the first in its order."""
MAX_CALL_IDS: Final = 32
MAX_NAME_CHARACTERS: Final = 200
"""Of a call id or a recipient; a longer one, or one that cannot be printed, is none."""

_CALL_IDS = ("tool_call_id", "call_id", "tool_use_id")
_RECIPIENT = ("to", "recipient", "recipient_id")
_FORM = frozenset(("role", "type", "name", *_CALL_IDS, *_RECIPIENT))
"""Fields that say what a payload is, not what it holds."""
_NOT_OUTPUT = _FORM.union(ARGUMENT_FIELDS, OUTCOME_FIELDS, ("tool_calls", "function_call"))
_NOTHING = Values(frozenset(), frozenset())


class Features(NamedTuple):
    """What the causal rules need of one event.

    Attributes:
        event_id: of the event.
        occurred_at_ms: milliseconds since the epoch, UTC.
        kind: of the event.
        agent_id: who did it.
        trace_id: its trace.
        parent_event_id: the cause that its producer named.
        tool_name: of a call or a result.
        failed: whether it tells of a failure.
        call_ids: those a call gives, or the one a result answers; at most MAX_CALL_IDS.
        recipient: to whom a message goes, when it says so.
        produced: values of its output; at most `values.MAX_VALUES`.
        stated: values of its input, and of what a call's agent says beside it; twice as many.
        consumed: values of its input that are looked for in earlier outputs; at most
            MAX_CONSUMED.
        arguments: digests of a call's arguments with their places; at most MAX_ARGUMENTS. A
            failure has those that it repeats.
    """

    event_id: str
    occurred_at_ms: int
    kind: EventKind
    agent_id: str
    trace_id: str
    parent_event_id: str | None = None
    tool_name: str | None = None
    failed: bool = False
    call_ids: tuple[str, ...] = ()
    recipient: str | None = None
    produced: frozenset[str] = frozenset()
    stated: frozenset[str] = frozenset()
    consumed: frozenset[str] = frozenset()
    arguments: frozenset[bytes] = frozenset()


class _Parts(NamedTuple):
    """A payload taken apart.

    Attributes:
        inputs: what is asked of a tool or an agent, one for each call.
        output: what came of it, or what a message says; None when there is none.
        beside: what stands next to the inputs and is no output.
        call_ids: see `Features`.
    """

    inputs: list[Any]
    output: Any
    beside: Any
    call_ids: list[str]


def features(event: Event, content: Any = None) -> Features:
    """What the causal rules need of an event.

    Args:
        event: any event.
        content: the payload behind `payload_ref`, used instead of `event.payload`.
    """
    payload = parsed_json(event.payload if content is None else content)
    fields: Mapping[str, Any] = payload if isinstance(payload, Mapping) else {}
    parts = _parts(payload)
    kind = event_kind(event, content)
    inputs, output, beside = parts.inputs, parts.output, parts.beside
    if kind is EventKind.CALL:
        if not inputs and output is None and beside is not None:
            inputs, beside = [beside], None
    elif output is None:
        output, beside = beside, None
    else:
        output, beside = [output, beside], None
    asked = values_in(inputs) if inputs else _NOTHING
    stated = asked.stated if beside is None else asked.stated | values_in(beside).stated
    # a result that repeats what its call asked for took in nothing itself
    repeats = kind is EventKind.RESULT and (event.parent_event_id is not None or parts.call_ids)
    asks = kind is EventKind.CALL or (kind is EventKind.FAILURE and bool(inputs))
    return Features(
        event_id=event.event_id,
        occurred_at_ms=event.occurred_at_ms,
        kind=kind,
        agent_id=event.agent_id,
        trace_id=event.trace_id,
        parent_event_id=event.parent_event_id,
        tool_name=event.tool_name,
        failed=is_failed(kind, event.status),
        call_ids=tuple(dict.fromkeys(parts.call_ids))[:MAX_CALL_IDS],
        recipient=next(_names(fields, _RECIPIENT), None),
        produced=values_in(output).stated if output is not None else frozenset(),
        stated=stated,
        consumed=frozenset(() if repeats else sorted(asked.followed)[:MAX_CONSUMED]),
        arguments=_arguments(inputs) if asks else frozenset(),
    )


def _parts(payload: Any) -> _Parts:
    if not isinstance(payload, Mapping):
        return _Parts([], None, payload, [])
    call_ids = list(_names(payload, _CALL_IDS))
    inputs: list[Any] = []
    for call in calls_in(payload):
        inputs.append(_input_of(call))
        call_ids.extend(_names(call, ("id", *_CALL_IDS)))
    if is_chat_message(payload):
        content = payload.get("content")
        if isinstance(content, list):
            content = _said(content)
            for part in content_parts(payload, "tool_result"):
                call_ids.extend(_names(part, _CALL_IDS))
        return _Parts(inputs, None, content, call_ids)
    inputs.extend(payload[name] for name in ARGUMENT_FIELDS if name in payload)
    found = {name: payload[name] for name in OUTCOME_FIELDS if name in payload}
    left = {name: value for name, value in payload.items() if name not in _NOT_OUTPUT}
    return _Parts(inputs, found or None, left or None, call_ids)


def _said(content: list[Any]) -> list[Any]:
    """What the blocks of a message hold, calls left out."""
    said: list[Any] = []
    for block in content:
        if not isinstance(block, Mapping):
            said.append(block)
        elif block.get("type") != "tool_use":
            said.append({name: value for name, value in block.items() if name not in _FORM})
    return said


def _input_of(call: Mapping[str, Any]) -> Any:
    function = call.get("function")
    holder = function if isinstance(function, Mapping) else call
    return [parsed_json(holder[name]) for name in ARGUMENT_FIELDS if name in holder]


def _names(fields: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARACTERS and value.isprintable():
            yield value


def _arguments(inputs: list[Any]) -> frozenset[bytes]:
    """A digest of each argument (scalar or empty container) with its place in the input."""
    found: set[bytes] = set()
    stack: list[tuple[str, Any]] = [("", inputs)]
    while stack and len(found) < MAX_ARGUMENTS:
        path, item = stack.pop()
        item = parsed_json(item)
        inner: list[tuple[str, Any]] = []
        if isinstance(item, Mapping):
            names = sorted(item)[:MAX_ARGUMENTS]
            inner = [(f"{path}.{name}", item[name]) for name in names]
        elif isinstance(item, list | tuple):
            inner = [(f"{path}[{place}]", part) for place, part in enumerate(item[:MAX_ARGUMENTS])]
        if inner:
            stack.extend(reversed(inner))
            continue
        text = f"{path}\x1f{type(item).__name__}\x1f{item}"
        found.add(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())
    return frozenset(found)
