"""The text of an event: what was said, asked for or returned, in words, bounded and clean.

A payload is taken apart by what the event is (`event_kinds`):

- a chat message: its words, its calls with their arguments, or what a tool returned;
- an error: what went wrong, the end of the traceback, then the rest;
- a call: the arguments, what stands beside them first;
- a result: what was returned, what stands beside it first;
- anything else: words (a string, or an object with its words in `text`, `content`, `message` or
  `body`) with the other fields, or fields alone.

Its text is what is language in it, then its fields as lines `key: value`, nested keys joined by a
dot, keys in order. A list of plain values is one line. Nothing depends on how the JSON was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
from enrichment.ports import EventText
from enrichment.vocabulary import cut
from projections.events import TOOL_KEYS, Event

TEXT_CHARACTERS = 4_000
"""Longest text of an event. The embedding reads about the first 1,000, the language model needs
about 0.1 s for this many; what a tool returned beyond it is listings."""
STORED_CHARACTERS = 2_000
"""Of the text, what the graph keeps for full-text search and narrative."""
VALUE_CHARACTERS = 1_000
"""Longest value of one field, so that one of many does not fill the whole text."""
MAX_LINES = 200
MAX_DEPTH = 6
MAX_ITEMS = 50
"""Of a list of plain values, how many go on its line."""

_KEY_CHARACTERS = 100
_SPEAKER_CHARACTERS = 200
_BINARY_SAMPLE = 4_096
_BINARY_SHARE = 0.1
_LANGUAGE_WORDS = 4

INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffd\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, bidi marks, zero-width marks, lone surrogates, what decoding left over. The
joiners U+200C and U+200D stay: Persian words and families of emoji are written with them."""
_BINARY = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd\ud800-\udfff]")
# The look-behind lets a match begin only where such a run begins, which keeps this linear.
_DATA = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{256,}")
_BLANKS = re.compile(r"[^\S\n]+")
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_EMPTY_LINES = re.compile(r" ?\n(?: ?\n)+ ?")
_KEY = re.compile(r"^[^\s:][^:\s]{0,120}:(?: |$)", re.MULTILINE)


def event_text(event: Event, content: Any = None) -> EventText:
    """The text of an event.

    Args:
        event: whose text it is.
        content: used instead of the payload: what `payload_ref` points to.

    Returns:
        At most TEXT_CHARACTERS, without control characters, with whom or what it comes from.
    """
    payload = shape(event, content)
    parts = [clean_text(words) for words in payload.words]
    parts.extend(_lines(payload.fields))
    text = cut("\n".join(part for part in parts if part), TEXT_CHARACTERS)
    speaker = clean_text((payload.speaker or "")[: 2 * _SPEAKER_CHARACTERS]).replace("\n", " ")
    return EventText(
        kind=payload.kind,
        text=text,
        speaker=cut(speaker, _SPEAKER_CHARACTERS) or None,
        only_fields=not payload.words and bool(payload.fields) and payload.kind not in TOOL_USE,
    )


def stored_text(text: str) -> str:
    """The beginning of a text that the graph keeps: at most STORED_CHARACTERS."""
    return cut(text, STORED_CHARACTERS)


def clean_text(text: str) -> str:
    """Text without what cannot be read: control characters, bidi marks, long runs of data.

    Whitespace runs become one space, empty lines one; linear in the length of the text.
    """
    sample = text[:_BINARY_SAMPLE]
    if len(_BINARY.findall(sample)) > len(sample) * _BINARY_SHARE:
        return f"[binary, {len(text):,} characters]"
    text = _DATA.sub(lambda run: f"[data, {len(run[0]):,} characters]", text)
    # what the text is cut from; cleaning only makes it shorter
    text = INVISIBLE.sub("", _LINE_ENDS.sub("\n", text[: 4 * TEXT_CHARACTERS]))
    return _EMPTY_LINES.sub("\n\n", _BLANKS.sub(" ", text)).strip()


def key_spans(text: EventText) -> list[tuple[int, int]]:
    """Stretches of the text that are keys of fields, each with its colon."""
    return [match.span() for match in _KEY.finditer(text.text)] if text.structured else []


def language_spans(text: EventText) -> list[tuple[int, int]]:
    """Stretches of the text that are language, not the keys and short values of fields.

    A language model reads all of it, but what it says about `origin: JFK` is worth nothing; a
    value of at least four words that is no list of them is taken for a sentence.
    """
    if not text.structured:
        return [(0, len(text.text))] if text.text else []
    spans: list[tuple[int, int]] = []
    place = 0
    for line in text.text.split("\n"):
        key = _KEY.match(line)
        start = key.end() if key else 0
        words = len(line[start:].split())
        if words >= _LANGUAGE_WORDS and line.count(",", start) < words - 1:
            spans.append((place + start, place + len(line)))
        place += len(line) + 1
    return spans


def _lines(fields: Any) -> list[str]:
    lines: list[str] = []
    length = 0
    for line in _field_lines(fields, "", 0):
        lines.append(line)
        length += len(line)
        if len(lines) >= MAX_LINES or length > TEXT_CHARACTERS:
            break
    return lines


def _field_lines(value: Any, path: str, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        if depth >= MAX_DEPTH:
            yield _line(path, "…")
            return
        for key in sorted(value, key=str):
            name = "_".join(_value(str(key)[:_KEY_CHARACTERS]).split())
            yield from _field_lines(value[key], f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list | tuple):
        if any(isinstance(item, Mapping | list | tuple) for item in value):
            if depth >= MAX_DEPTH:
                yield _line(path, "…")
                return
            for item in value:
                yield from _field_lines(item, path, depth + 1)
        elif value:
            items = [_value(item) for item in value[:MAX_ITEMS]]
            missing = ", …" if len(value) > MAX_ITEMS else ""
            joined = ", ".join(item for item in items if item)
            yield _line(path, cut(joined, VALUE_CHARACTERS) + missing)
    elif value is not None or path:
        yield _line(path, _value(value))


def _line(path: str, value: str) -> str:
    return cut(f"{path}: {value}".rstrip() if path else value, 2 * VALUE_CHARACTERS)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return cut(clean_text(value), VALUE_CHARACTERS)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


_WORDS = ("text", "content", "message", "body")
_REASON = ("message", "detail", "reason", "description", "error")
_PLUMBING = frozenset(
    ("role", "tool_call_id", "call_id", "type", "is_error", "isError", "duration_ms")
)
"""What stands beside what was said or returned, and says nothing of it."""
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
    tool = event.tool
    tools = (tool,) if tool else ()
    by_tool = Shape(kind, tool or event.agent_id, tools=tools)
    if value is None or value in ("", {}, []):
        return by_tool
    read = parsed_json(value)
    if isinstance(read, Mapping) and is_chat_message(read):
        return _message(event, kind, read)
    if kind not in TOOL_USE:
        words, fields = ((value,), None) if isinstance(value, str) else _words_and_fields(value)
        return Shape(kind, event.agent_id, words, fields, tools=tools)
    if isinstance(read, Mapping):
        if event.tool_name is None and tool is not None and kind is not EventKind.CALL:
            read = {k: v for k, v in read.items() if k not in TOOL_KEYS or v != tool}
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
            return Shape(kind, tool or event.tool or event.agent_id, words, arguments, tools=tools)
        # the arguments of several tools stay apart under their names
        fields = [{tool or "call": arguments} for tool, arguments in calls]
        return Shape(kind, event.agent_id, words, fields, tools=tools)
    name = message.get("name")
    named = name if isinstance(name, str) and name else None
    if kind in TOOL_USE:
        return _returned(event, kind, message, named or event.tool)
    return Shape(kind, named or event.agent_id, words, [part for part in parts if part] or None)


def _returned(event: Event, kind: EventKind, message: Mapping[str, Any], tool: str | None) -> Shape:
    """What a tool returned in a message."""
    bare = Shape(kind, tool or event.agent_id, tools=(tool,) if tool else ())
    value = returned_value(message)
    if isinstance(value, Mapping) and reports_error(event, value):
        return _error(bare, value)
    return _returned_value(bare, value)


def _returned_value(bare: Shape, value: Any) -> Shape:
    words, fields = _read_out(value)
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
    others = {
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
        others["error"] = details
    return bare._replace(words=tuple(words), fields=others or None)


def _call(event: Event, value: Mapping[str, Any]) -> Shape:
    tool, key, arguments = called_tool(value), argument_field(value), _arguments(value)
    if key is None and not isinstance(value.get("function"), Mapping):
        tool, arguments = None, value  # all of it is what the tool is called with
    tool = tool or event.tool
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
    tools = (tool,) if tool else ()
    return Shape(EventKind.CALL, tool or event.agent_id, words, fields or None, tools=tools)


def _result(bare: Shape, value: Mapping[str, Any]) -> Shape:
    key = next((name for name in OUTCOME_FIELDS if name in value), None)
    if key is None:
        return _returned_value(bare, value)
    words, fields = _read_out(value[key])
    beside = {k: v for k, v in value.items() if k != key and k not in _PLUMBING}
    if isinstance(fields, Mapping):
        fields = {**beside, **fields}
    elif fields is None:
        fields = beside or None
    else:
        fields = {**beside, key: fields}
    return bare._replace(words=words, fields=fields)


def _read_out(value: Any) -> tuple[tuple[str, ...], Any]:
    """Language and structure of what a tool returned, also of JSON that came as its words."""
    words, fields = _words_and_fields(value)
    read = [parsed_json(text) for text in words]
    if not read or any(isinstance(item, str) for item in read):
        return words, fields
    inner = read[0] if len(read) == 1 else read
    if fields is None:
        return (), inner
    if isinstance(inner, Mapping) and isinstance(fields, Mapping):
        return (), {**fields, **inner}
    return (), [fields, inner]


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
                others = {k: v for k, v in value.items() if k != key and k not in _PLUMBING}
                return (words,), others or None
            if key == "content" and is_list(words) and all(is_part(p, _TEXT_PARTS) for p in words):
                return message_content(words)[0], None
    return (), value


RETURNED_VERB = "returned"
FAILED_VERB = "failed"
TIMED_OUT_VERB = "timed out"
_VERBS = (RETURNED_VERB, FAILED_VERB, TIMED_OUT_VERB)
"""What stands behind the name of a tool in the line of what came of its use."""


def summary_body(line: str, speaker: str | None, event_type: str) -> str:
    """What a line that `summary` made says, without whom or what it comes from.

    Args:
        line: of the event.
        speaker: of its text.
        event_type: of the event.
    """
    leads = [f"{speaker} {verb}" for verb in _VERBS] if speaker else []
    for lead in (*leads, speaker, event_type):
        if lead and (line == lead or line.startswith(f"{lead}: ")):
            return line[len(lead) + 2 :]
    return line
