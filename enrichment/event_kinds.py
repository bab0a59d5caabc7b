"""The kind of an event: decided here, once, from its envelope and payload, and stored on its node.

The rules, the first that fits. A payload that is a JSON text is read as that JSON; words of the
type are those between dots and underscores; an event is of a tool when it has a `tool_name` or
its type says tool or function.

1. A chat message (`role` with `content`, `tool_calls` or `function_call`): a call when it holds
   calls; a result, or a failure, when it is of the tool role or holds results; an instruction when
   it is of the system or developer role; else a message.
2. A payload that reports an error: a true `error` or `is_error`, a `status` of failed or error, a
   `message` beside a code, an exception's type or a traceback (unless the event is completed or a
   message by its type): a failure.
3. A type that speaks of an error (`tool.failed`), unless the event has a status, is a message or
   says that something was resolved: a failure.
4. Arguments beside a tool's name, or a type that says that a tool is called (`tool.call`), unless
   the payload holds an outcome only: a call. Its status tells how it ended.
5. A status of failed or timeout: a failure.
6. A type that says that a tool returned something (`tool.result`, `tool.completed`), or an outcome
   in the payload of a tool's event: a result.
7. A type that says message: a message, or an instruction if it says system or developer, too.
8. A type that speaks of a thought or a plan, or of a decision: a thought, a decision.
9. A type that ends in result, output or response, or a completed event of a named tool: a result.
10. Anything else: other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeGuard

import orjson

from projections.events import TOOL_USE as TOOL_USE
from projections.events import Event, is_tool_type
from projections.events import EventKind as EventKind

RETRY: Final = "retry"
"""The rule of causes by which a later event tells that an earlier one failed."""
OUTCOMES: Final = frozenset((EventKind.RESULT, EventKind.FAILURE))
"""Kinds that tell how something ended."""
OWN_WORDS: Final = frozenset((EventKind.INSTRUCTION, EventKind.THOUGHT, EventKind.DECISION))
"""Kinds that tell an agent nothing new: what it was told to keep to, and what it thought itself."""

FAILED: Final = ("failed", "timeout")
"""Statuses of an event that did not do what it was to do."""

CALL_WORDS: Final = frozenset(
    ("call", "calls", "called", "invoke", "invoked", "execute", "executed", "started")
)
RESULT_WORDS: Final = frozenset(
    ("result", "results", "output", "outputs", "response", "responses", "returned")
)
COMPLETED_WORDS: Final = frozenset(("completed", "finished", "succeeded"))
"""Of a tool they announce what it returned; `task.completed` returns nothing."""
ERROR_WORDS: Final = frozenset(("error", "failed", "failure", "exception", "timeout"))
RESOLVED_WORDS: Final = frozenset(
    ("resolved", "recovered", "fixed", "restored", "mitigated", "rolled")
)
MESSAGE_WORDS: Final = frozenset(("message", "utterance", "chat"))
INSTRUCTION_WORDS: Final = frozenset(("system", "developer", "instruction", "instructions"))
THOUGHT_WORDS: Final = frozenset(("thought", "thinking", "reasoning", "plan", "reflection"))
DECISION_WORDS: Final = frozenset(("decision", "decisions", "decided"))

ARGUMENT_FIELDS: Final = (
    *("arguments", "args", "input", "parameters", "tool_input", "kwargs", "inputs", "params"),
)
OUTCOME_FIELDS: Final = ("result", "output", "response", "results", "outputs", "returned")
TOOL_FIELDS: Final = ("name", "tool", "tool_name", "function")
TRACE_FIELDS: Final = ("traceback", "stack", "stacktrace", "stack_trace")

_CODE_FIELDS = (
    *("code", "exception", "exception_type", "error_code", "error_type", "errno"),
    *TRACE_FIELDS,
)
_TOOL_ROLES = ("tool", "function")
_INSTRUCTING_ROLES = ("system", "developer")
_MESSAGE_FIELDS = frozenset(("content", "tool_calls", "function_call"))
_MAX_PART_DEPTH = 5
_WORD = re.compile(r"[a-z0-9]+")


def event_kind(event: Event, content: Any = None) -> EventKind:
    """The kind of an event.

    Args:
        event: no system event.
        content: used instead of the payload: what `payload_ref` points to.
    """
    value = parsed_json(event.payload if content is None else content)
    fields: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    if is_chat_message(fields):
        return _kind_of_message(event, fields)
    words = type_words(event.event_type)
    if reports_error(event, fields) or _speaks_of_an_error(event.status, words):
        return EventKind.FAILURE
    return (
        _kind_of_tool_use(event, fields, words)
        or _kind_by_words(event, words)
        or _kind_of_an_ending(event)
        or EventKind.OTHER
    )


def is_failed(kind: str | None, status: str | None) -> bool:
    """Whether an event of that kind and status tells that something went wrong."""
    return kind == EventKind.FAILURE or status in FAILED


def is_of_tool(event_type: str, tool_name: str | None) -> bool:
    """Whether an event is of a tool: it names one, or its type says so."""
    return tool_name is not None or is_tool_type(event_type)


def is_resolution(event_type: str) -> bool:
    """Whether the type says that something that went wrong was put right."""
    return not type_words(event_type).isdisjoint(RESOLVED_WORDS)


@lru_cache(maxsize=4_096)  # producers have a few dozen types
def type_words(event_type: str) -> frozenset[str]:
    """The words of an event's type: `tool.call_failed` has tool, call and failed."""
    return frozenset(_WORD.findall(event_type))


def _kind_of_message(event: Event, message: Mapping[str, Any]) -> EventKind:
    if next(calls_in(message), None) is not None:
        return EventKind.CALL
    role = message["role"]
    results = list(content_parts(message, "tool_result"))
    if role in _TOOL_ROLES or results:
        wrong = event.status in FAILED or any(_is_error(holder) for holder in (message, *results))
        value = returned_value(message)
        wrong = wrong or (isinstance(value, Mapping) and reports_error(event, value))
        return EventKind.FAILURE if wrong else EventKind.RESULT
    return EventKind.INSTRUCTION if role in _INSTRUCTING_ROLES else EventKind.MESSAGE


def _kind_of_tool_use(
    event: Event, fields: Mapping[str, Any], words: frozenset[str]
) -> EventKind | None:
    of_tool = is_of_tool(event.event_type, event.tool)
    returned = of_tool and not words.isdisjoint(RESULT_WORDS | COMPLETED_WORDS)
    outcome = any(name in fields for name in OUTCOME_FIELDS)
    if not returned and not _ends_in_result(event.event_type):
        called = not words.isdisjoint(CALL_WORDS)
        key = argument_field(fields)
        if key is not None or isinstance(fields.get("function"), Mapping):
            named = event.tool or called_tool(fields) is not None
            if called or (named and not (key == "input" and outcome)):
                return EventKind.CALL
        elif of_tool and called and not outcome:
            return EventKind.CALL
    if event.status in FAILED:
        return EventKind.FAILURE
    if returned or (outcome and of_tool):
        return EventKind.RESULT
    return None


def _kind_by_words(event: Event, words: frozenset[str]) -> EventKind | None:
    if not words.isdisjoint(MESSAGE_WORDS):
        instructing = not words.isdisjoint(INSTRUCTION_WORDS)
        return EventKind.INSTRUCTION if instructing else EventKind.MESSAGE
    if not words.isdisjoint(DECISION_WORDS):
        return EventKind.DECISION
    return EventKind.THOUGHT if not words.isdisjoint(THOUGHT_WORDS) else None


def _kind_of_an_ending(event: Event) -> EventKind | None:
    ended = event.tool is not None and event.status == "completed"
    return EventKind.RESULT if ended or _ends_in_result(event.event_type) else None


def _ends_in_result(event_type: str) -> bool:
    return event_type.rpartition(".")[2] in RESULT_WORDS


def _speaks_of_an_error(status: str | None, words: frozenset[str]) -> bool:
    names_error = status is None and not words.isdisjoint(ERROR_WORDS)
    return names_error and words.isdisjoint(MESSAGE_WORDS | RESOLVED_WORDS)


# -- what a payload holds --------------------------------------------------------------------------


def parsed_json(value: Any) -> Any:
    """The JSON object or array that a string holds; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return orjson.loads(value)
        except ValueError:  # also lone surrogates and nesting that is too deep
            return value
    return value


def is_chat_message(fields: Mapping[str, Any]) -> bool:
    """Whether the payload has the shape of a chat message."""
    return isinstance(fields.get("role"), str) and not _MESSAGE_FIELDS.isdisjoint(fields)


def reports_error(event: Event, fields: Mapping[str, Any]) -> bool:
    """Whether the payload says that something went wrong."""
    if fields.get("error") or _is_error(fields) or fields.get("status") in ("failed", "error"):
        return True
    return (
        isinstance(fields.get("message"), str)
        and any(fields.get(name) for name in _CODE_FIELDS)
        and event.status != "completed"
        and type_words(event.event_type).isdisjoint(MESSAGE_WORDS)
    )


def _is_error(fields: Mapping[str, Any]) -> bool:
    return fields.get("is_error") is True or fields.get("isError") is True


def argument_field(fields: Mapping[str, Any]) -> str | None:
    """The name of the field that holds the arguments of a call."""
    return next((name for name in ARGUMENT_FIELDS if name in fields), None)


def called_tool(call: Mapping[str, Any]) -> str | None:
    """The name of the tool in a call of any of the common shapes."""
    function = call.get("function")
    inner = function if isinstance(function, Mapping) else call
    names = (inner.get(name) for name in TOOL_FIELDS)
    return next((name for name in names if isinstance(name, str) and name), None)


def calls_in(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The calls of a chat message: a list of them, else one, then those among its parts."""
    listed = message.get("tool_calls")
    calls = [call for call in listed if isinstance(call, Mapping)] if is_list(listed) else []
    single = message.get("function_call")
    if not calls and isinstance(single, Mapping):
        calls = [single]
    yield from calls
    yield from (part for part in message_content(message.get("content"))[1] if "input" in part)


def content_parts(message: Mapping[str, Any], part_type: str) -> Iterator[Mapping[str, Any]]:
    """The parts of that type in the content of a chat message."""
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if is_part(part, (part_type,)):
            yield part


def message_content(
    content: Any, depth: int = 0
) -> tuple[tuple[str, ...], list[Mapping[str, Any]]]:
    """Words of a chat message's content, and the parts that hold an input and no words."""
    if isinstance(content, str):
        return ((content,) if content else ()), []
    words: list[str] = []
    inputs: list[Mapping[str, Any]] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, Mapping):
            text, inner = part.get("text"), part.get("content")
            if isinstance(text, str):
                words.append(text)
            elif isinstance(inner, str | list) and inner and depth < _MAX_PART_DEPTH:
                words.extend(message_content(inner, depth + 1)[0])
            elif "input" in part:
                inputs.append(part)
            elif isinstance(part.get("type"), str):
                words.append(f"[{part['type']}]")  # an image, a sound: that it was there
    return tuple(words), inputs


def returned_value(message: Mapping[str, Any]) -> Any:
    """What a message of the tool role holds: its words, as JSON if they are JSON."""
    words = message_content(message.get("content"))[0]
    return parsed_json("\n".join(words)) if words else message.get("content")


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Whether the value is a list, or a tuple, of anything."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def is_part(part: Any, types: tuple[str, ...]) -> TypeGuard[Mapping[str, Any]]:
    """Whether the value is a part of a message's content, of one of the types."""
    return isinstance(part, Mapping) and part.get("type") in types
