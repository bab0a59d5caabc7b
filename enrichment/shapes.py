"""What a payload is: a message, a call, a result, an error, words, or any other JSON.

The rules, the first that fits; a payload that is a JSON text is read as that JSON where a value
is expected.

1. nothing, or an empty value: `none`;
2. a chat message (`role` with `content`, `tool_calls` or `function_call`; content is a string or
   a list of parts): a `call` when it has calls, a `result` or an `error` when it is of the tool
   role or has only results for parts, else a `message`;
3. an error: a true `error`, a `status` of failed or error, a `message` with a code, the type of an
   exception or a traceback (unless the event is completed or itself a message), or an event whose
   status is failed or timeout;
4. a call: `arguments`, `args`, `input`, `parameters`, `tool_input` or `kwargs` beside a tool's
   name (`name`, `tool`, `tool_name`, `function`), in the payload or in the envelope;
5. a result: `result`, `output` or `response`, or whatever an event of a result type carries;
6. words: a string, or an object with its words in `text`, `content`, `message` or `body`;
   a `message` when the event's type says so, else `text`;
7. anything else: `json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import orjson

from enrichment.derived import TextKind
from projections.events import Event

FAILED = ("failed", "timeout")
"""Statuses of an event that did not do what it was to do."""

_ARGUMENTS = ("arguments", "args", "input", "parameters", "tool_input", "kwargs")
_TOOL = ("name", "tool", "tool_name", "function")
_RESULT = ("result", "output", "response")
_WORDS = ("text", "content", "message", "body")
_REASON = ("message", "detail", "reason", "description", "error")
_TRACE = ("traceback", "stack", "stacktrace", "stack_trace")
_CODE = ("code", "exception", "exception_type", "error_code", "error_type", "errno", *_TRACE)
_PLUMBING = frozenset(("role", "tool_call_id", "call_id", "type", "is_error", "isError"))
_TRACE_LINES = 5
_PART_DEPTH = 5
_TEXT_PARTS = ("text", "input_text", "output_text")
_TOOL_ROLES = ("tool", "function")
_RESULT_TYPES = frozenset(("result", "results", "output", "response", "returned"))
_CALL_TYPES = frozenset(("call", "called", "invoke", "invoked", "execute"))


class Shape(NamedTuple):
    """A payload taken apart.

    Attributes:
        kind: which rule fitted.
        speaker: who or what it comes from: for a call, a result and an error the tool if there is
            one, else the agent.
        words: what is language in it, in order.
        fields: what is structure in it: arguments, values returned, whatever else was there.
        tools: the tools that it calls or that answer in it.
    """

    kind: TextKind
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
    tools = (event.tool_name,) if event.tool_name else ()
    if value is None or value in ("", {}, []):
        failed = event.status in FAILED
        return Shape("error" if failed else "none", event.tool_name or event.agent_id, tools=tools)
    if isinstance(value, str) and is_result_type(event):
        value = parsed(value)
    if isinstance(value, Mapping):
        found = _message(event, value) or _error(event, value) or _call(event, value)
        if found is not None:
            return found
    if event.status in FAILED:
        words, fields = _words_and_fields(value)
        return Shape("error", event.tool_name or event.agent_id, words, fields, tools)
    if isinstance(value, Mapping):
        return _result(event, value) or _plain(event, value)
    if is_result_type(event):
        words, fields = _words_and_fields(value)
        return Shape("result", event.tool_name or event.agent_id, words, fields, tools)
    if isinstance(value, str):
        kind: TextKind = "message" if _is_message_type(event) else "text"
        return Shape(kind, event.agent_id, (value,), None, tools)
    return Shape("json", event.agent_id, (), value, tools)


def parsed(text: Any) -> Any:
    """The JSON object or array that a string holds; anything else as it is."""
    if isinstance(text, str) and text.lstrip()[:1] in ("{", "["):
        try:
            return orjson.loads(text)
        except (orjson.JSONDecodeError, UnicodeError):
            return text
    return text


def is_result_type(event: Event) -> bool:
    """Whether the event's type says that something was returned."""
    return event.event_type.rpartition(".")[2] in _RESULT_TYPES


def _is_message_type(event: Event) -> bool:
    return "message" in event.event_type.split(".")


def _message(event: Event, value: Mapping[str, Any]) -> Shape | None:
    role = value.get("role")
    if not isinstance(role, str) or not ({"content", "tool_calls", "function_call"} & value.keys()):
        return None
    words, blocks = _content(value.get("content"))
    calls = _calls(value) + [_one_call(block) for block in blocks if "input" in block]
    if calls:
        tools = tuple(dict.fromkeys(tool for tool, _ in calls if tool))
        if len(calls) == 1:
            tool, arguments = calls[0]
            return Shape("call", tool or event.tool_name or event.agent_id, words, arguments, tools)
        # the arguments of several tools stay apart under their names
        return Shape("call", event.agent_id, words, [{t or "call": a} for t, a in calls], tools)
    parts = value.get("content")
    results = _is_list(parts) and parts and all(_is_part(p, ("tool_result",)) for p in parts)
    if role in _TOOL_ROLES or results:
        return _returned(event, value, words)
    name = value.get("name")
    fields = [block for block in blocks if block] or None
    speaker = name if isinstance(name, str) and name else event.agent_id
    return Shape("message", speaker, words, fields)


def _returned(event: Event, message: Mapping[str, Any], words: tuple[str, ...]) -> Shape:
    """The result that a message of the tool role carries."""
    name = message.get("name")
    tool = name if isinstance(name, str) and name else event.tool_name
    tools = (tool,) if tool else ()
    speaker = tool or event.agent_id
    value = parsed("\n".join(words)) if words else message.get("content")
    if isinstance(value, Mapping):
        error = _error(event, value)
        if error is not None:
            return error._replace(speaker=speaker, tools=tools)
    said, fields = _words_and_fields(value)
    parts = message.get("content")
    wrong = _is_list(parts) and any(isinstance(p, Mapping) and p.get("is_error") for p in parts)
    kind: TextKind = "error" if wrong or event.status in FAILED else "result"
    return Shape(kind, speaker, said, fields, tools)


def _content(content: Any, depth: int = 0) -> tuple[tuple[str, ...], list[Mapping[str, Any]]]:
    """Words of a message's content, and the parts that are calls or hold no words."""
    if isinstance(content, str):
        return ((content,) if content else ()), []
    words: list[str] = []
    blocks: list[Mapping[str, Any]] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, Mapping):
            text = part.get("text")
            inner = part.get("content")
            if isinstance(text, str):
                words.append(text)
            elif isinstance(inner, str | list) and inner and depth < _PART_DEPTH:
                words.extend(_content(inner, depth + 1)[0])
            elif "input" in part:
                blocks.append(part)
            elif isinstance(part.get("type"), str):
                words.append(f"[{part['type']}]")  # an image, a sound: that it was there
    return tuple(words), blocks


def _calls(message: Mapping[str, Any]) -> list[tuple[str | None, Any]]:
    calls = message.get("tool_calls")
    found = [_one_call(c) for c in calls if isinstance(c, Mapping)] if _is_list(calls) else []
    function = message.get("function_call")
    if not found and isinstance(function, Mapping):
        found.append(_one_call(function))
    return found


def _one_call(call: Mapping[str, Any]) -> tuple[str | None, Any]:
    """(tool, arguments) of a call in any of the common shapes."""
    function = call.get("function")
    inner = function if isinstance(function, Mapping) else call
    tool = next((inner[k] for k in _TOOL if isinstance(inner.get(k), str) and inner[k]), None)
    arguments = next((inner[k] for k in _ARGUMENTS if inner.get(k) is not None), None)
    return tool, parsed(arguments)


def _error(event: Event, value: Mapping[str, Any]) -> Shape | None:
    error = value.get("error")
    coded = (
        isinstance(value.get("message"), str)
        and any(value.get(k) for k in _CODE)
        and event.status != "completed"
        and not _is_message_type(event)
    )
    if not (error or coded or value.get("status") in ("failed", "error")):
        return None
    details = parsed(error)
    inside: Mapping[str, Any] = details if isinstance(details, Mapping) else {}
    reason = next(
        (h[k] for h in (inside, value) for k in _REASON if isinstance(h.get(k), str) and h[k]),
        None,
    )
    words = [reason] if isinstance(reason, str) else []
    for trace in (h.get(k) for h in (inside, value) for k in _TRACE):
        lines = trace.strip().splitlines() if isinstance(trace, str) else []
        words.extend(line.strip() for line in lines[-_TRACE_LINES:] if line.strip() != reason)
    rest = {
        key: item
        for key, item in {**value, **inside}.items()
        if key not in _TRACE and key not in _PLUMBING and item is not details and item != reason
    }
    tools = (event.tool_name,) if event.tool_name else ()
    if not isinstance(details, str | Mapping | bool | None):
        rest["error"] = details
    return Shape("error", event.tool_name or event.agent_id, tuple(words), rest or None, tools)


def _call(event: Event, value: Mapping[str, Any]) -> Shape | None:
    key = next((k for k in _ARGUMENTS if k in value), None)
    if key is None and not isinstance(value.get("function"), Mapping):
        return None
    tool, arguments = _one_call(value)
    tool = tool or event.tool_name
    called = event.event_type.rpartition(".")[2] in _CALL_TYPES
    if not tool and not called:
        return None
    if is_result_type(event) or (key == "input" and any(k in value for k in _RESULT)):
        return None  # a result that repeats what it was asked
    rest = {k: v for k, v in value.items() if k not in (key, "id", *_TOOL, *_PLUMBING)}
    if arguments is None or isinstance(arguments, Mapping):
        fields: Any = {**rest, **(arguments or {})}
        words: tuple[str, ...] = ()
    else:
        words, inner = _words_and_fields(arguments)
        fields = {**rest, "arguments": inner} if inner is not None else rest
    return Shape("call", tool or event.agent_id, words, fields or None, (tool,) if tool else ())


def _result(event: Event, value: Mapping[str, Any]) -> Shape | None:
    key = next((k for k in _RESULT if k in value), None)
    if not is_result_type(event) and (key is None or not event.tool_name):
        return None
    tools = (event.tool_name,) if event.tool_name else ()
    speaker = event.tool_name or event.agent_id
    if key is None:
        words, fields = _words_and_fields(value)
        return Shape("result", speaker, words, fields, tools)
    words, fields = _words_and_fields(value[key])
    rest = {k: v for k, v in value.items() if k != key and k not in _PLUMBING}
    if isinstance(fields, Mapping):
        fields = {**rest, **fields}
    elif fields is None:
        fields = rest or None
    else:
        fields = {**rest, key: fields}
    return Shape("result", speaker, words, fields, tools)


def _plain(event: Event, value: Mapping[str, Any]) -> Shape:
    tools = (event.tool_name,) if event.tool_name else ()
    words, rest = _words_and_fields(value)
    if not words:
        return Shape("json", event.agent_id, (), value, tools)
    kind: TextKind = "message" if _is_message_type(event) else "text"
    return Shape(kind, event.agent_id, words, rest, tools)


def _words_and_fields(value: Any) -> tuple[tuple[str, ...], Any]:
    """Language and structure of a value: a string, a list of parts, an object with words in it."""
    value = parsed(value)
    if isinstance(value, str):
        return (value,), None
    if _is_list(value) and value and all(_is_part(part, _TEXT_PARTS) for part in value):
        return _content(value)[0], None
    if isinstance(value, Mapping):
        for key in _WORDS:
            words = value.get(key)
            if isinstance(words, str) and words.strip():
                rest = {k: v for k, v in value.items() if k != key and k not in _PLUMBING}
                return (words,), rest or None
            if (
                key == "content"
                and _is_list(words)
                and all(_is_part(p, _TEXT_PARTS) for p in words)
            ):
                return _content(words)[0], None
    return (), value


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_part(part: Any, types: tuple[str, ...]) -> bool:
    return isinstance(part, Mapping) and part.get("type") in types
