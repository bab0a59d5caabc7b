"""A payload taken apart: what is language in it, what is structure, and who or what it comes from.

What an event is decides how its payload is read (`event_kinds`):

- a chat message: its words, its calls with their arguments, or what a tool returned;
- an error: what went wrong, the end of the traceback, then the rest;
- a call: the arguments, what stands beside them first;
- a result: what was returned, what stands beside it first;
- anything else: words (a string, or an object with its words in `text`, `content`, `message` or
  `body`) with the other fields, or fields alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from enrichment.event_kinds import (
    OUTCOME_FIELDS,
    TOOL_FIELDS,
    TOOL_USE,
    TRACE_FIELDS,
    EventKind,
    argument_field,
    called_tool,
    calls_in,
    event_kind,
    is_chat_message,
    is_list,
    is_part,
    message_content,
    parsed_json,
    reports_error,
    returned_value,
)
from projections.events import Event

_WORDS = ("text", "content", "message", "body")
_REASON = ("message", "detail", "reason", "description", "error")
_PLUMBING = frozenset(("role", "tool_call_id", "call_id", "type", "is_error", "isError"))
_TRACE_LINES = 5
_TEXT_PARTS = ("text", "input_text", "output_text")


class Shape(NamedTuple):
    """A payload taken apart.

    Attributes:
        kind: of the event.
        speaker: who or what it comes from: for a call, a result and a failure the tool if there
            is one, else the agent.
        words: what is language in it, in order.
        fields: what is structure in it: arguments, values returned, whatever else was there.
        tools: the tools that it calls or that answer in it.
    """

    kind: EventKind
    speaker: str | None
    words: tuple[str, ...] = ()
    fields: Any = None
    tools: tuple[str, ...] = ()


def shape(event: Event, content: Any = None) -> Shape:
    """Takes an event's payload apart.

    Args:
        event: whose payload it is.
        content: used instead of the payload: what `payload_ref` points to.
    """
    value = event.payload if content is None else content
    kind = event_kind(event, content)
    tools = (event.tool_name,) if event.tool_name else ()
    by_tool = Shape(kind, event.tool_name or event.agent_id, tools=tools)
    if value is None or value in ("", {}, []):
        return by_tool
    read = parsed_json(value)
    if isinstance(read, Mapping) and is_chat_message(read):
        return _message(event, kind, read)
    if kind not in TOOL_USE:
        words, fields = ((value,), None) if isinstance(value, str) else _words_and_fields(value)
        return Shape(kind, event.agent_id, words, fields, tools)
    if isinstance(read, Mapping):
        if kind is EventKind.FAILURE and reports_error(event, read):
            return _error(by_tool, read)
        if kind is EventKind.CALL:
            return _call(event, read)
        if kind is EventKind.RESULT:
            return _result(by_tool, read)
    return _returned_value(by_tool, read)


def _message(event: Event, kind: EventKind, message: Mapping[str, Any]) -> Shape:
    words, parts = message_content(message.get("content"))
    if kind is EventKind.CALL:
        calls = [(called_tool(call), _arguments(call)) for call in calls_in(message)]
        tools = tuple(dict.fromkeys(tool for tool, _ in calls if tool))
        if len(calls) == 1:
            tool, arguments = calls[0]
            return Shape(kind, tool or event.tool_name or event.agent_id, words, arguments, tools)
        # the arguments of several tools stay apart under their names
        return Shape(kind, event.agent_id, words, [{t or "call": a} for t, a in calls], tools)
    name = message.get("name")
    named = name if isinstance(name, str) and name else None
    if kind in TOOL_USE:
        return _returned(event, kind, message, named or event.tool_name)
    fields = [part for part in parts if part] or None
    return Shape(kind, named or event.agent_id, words, fields)


def _returned(event: Event, kind: EventKind, message: Mapping[str, Any], tool: str | None) -> Shape:
    """What a tool returned in a message."""
    bare = Shape(kind, tool or event.agent_id, tools=(tool,) if tool else ())
    value = returned_value(message)
    if isinstance(value, Mapping) and reports_error(event, value):
        return _error(bare, value)
    return _returned_value(bare, value)


def _returned_value(bare: Shape, value: Any) -> Shape:
    words, fields = _words_and_fields(value)
    return bare._replace(words=words, fields=fields)


def _arguments(call: Mapping[str, Any]) -> Any:
    function = call.get("function")
    holder = function if isinstance(function, Mapping) else call
    key = argument_field({name: value for name, value in holder.items() if value is not None})
    return None if key is None else parsed_json(holder[key])


def _error(bare: Shape, value: Mapping[str, Any]) -> Shape:
    """What went wrong, then the rest."""
    error = value.get("error")
    details = parsed_json(error)
    inside: Mapping[str, Any] = details if isinstance(details, Mapping) else {}
    reason = next(
        (h[k] for h in (inside, value) for k in _REASON if isinstance(h.get(k), str) and h[k]),
        None,
    )
    words = [reason] if isinstance(reason, str) else []
    for trace in (h.get(k) for h in (inside, value) for k in TRACE_FIELDS):
        lines = trace.strip().splitlines() if isinstance(trace, str) else []
        words.extend(line.strip() for line in lines[-_TRACE_LINES:] if line.strip() != reason)
    rest = {
        key: item
        for key, item in {**value, **inside}.items()
        if key not in TRACE_FIELDS
        and key not in _PLUMBING
        and item is not details
        and item != reason
    }
    if not error and not words:
        return _returned_value(bare, value)
    if not isinstance(details, str | Mapping | bool | None):
        rest["error"] = details
    return bare._replace(words=tuple(words), fields=rest or None)


def _call(event: Event, value: Mapping[str, Any]) -> Shape:
    tool, key, arguments = called_tool(value), argument_field(value), _arguments(value)
    if key is None and not isinstance(value.get("function"), Mapping):
        tool, arguments = None, value  # all of it is what the tool is called with
    tool = tool or event.tool_name
    beside = (
        {}
        if arguments is value
        else {k: v for k, v in value.items() if k not in (key, "id", *TOOL_FIELDS, *_PLUMBING)}
    )
    words: tuple[str, ...] = ()
    if arguments is None or isinstance(arguments, Mapping):
        fields: Any = {**beside, **(arguments or {})}
    else:
        words, inner = _words_and_fields(arguments)
        fields = {**beside, "arguments": inner} if inner is not None else beside
    return Shape(
        EventKind.CALL, tool or event.agent_id, words, fields or None, (tool,) if tool else ()
    )


def _result(bare: Shape, value: Mapping[str, Any]) -> Shape:
    key = next((name for name in OUTCOME_FIELDS if name in value), None)
    if key is None:
        return _returned_value(bare, value)
    words, fields = _words_and_fields(value[key])
    beside = {k: v for k, v in value.items() if k != key and k not in _PLUMBING}
    if isinstance(fields, Mapping):
        fields = {**beside, **fields}
    elif fields is None:
        fields = beside or None
    else:
        fields = {**beside, key: fields}
    return bare._replace(words=words, fields=fields)


def _words_and_fields(value: Any) -> tuple[tuple[str, ...], Any]:
    """Language and structure of a value: a string, a list of parts, an object with words in it."""
    value = parsed_json(value)
    if isinstance(value, str):
        return (value,), None
    if is_list(value) and value and all(is_part(part, _TEXT_PARTS) for part in value):
        return message_content(value)[0], None
    if isinstance(value, Mapping):
        for key in _WORDS:
            words = value.get(key)
            if isinstance(words, str) and words.strip():
                rest = {k: v for k, v in value.items() if k != key and k not in _PLUMBING}
                return (words,), rest or None
            if key == "content" and is_list(words) and all(is_part(p, _TEXT_PARTS) for p in words):
                return message_content(words)[0], None
    return (), value
