"""A message in one form, whoever wrote it down.

Understood are the parts of the GenAI conventions (`text`, `reasoning`, `tool_call`,
`tool_call_response`, media), the chat shapes of OpenAI and Anthropic, LangChain's, and the nested
attributes of OpenInference. What is in none of these shapes is kept as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

import orjson

PartKind = Literal["text", "thought", "call", "result", "media"]

_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function": "tool",
    "developer": "developer",
}
MODEL: Final = "assistant"
"""Role of the model."""
USER: Final = "user"
"""Role of who speaks to it."""
INSTRUCTING: Final = ("system", "developer")
_WRAPPERS: Final = ("message", "data", "kwargs")
"""Fields that hold a whole message: OpenInference's and Langfuse's, LangChain's."""
_MAX_WRAPPERS: Final = 3
_TEXTS: Final = ("text", "input_text", "output_text")
_THOUGHTS: Final = ("reasoning", "thinking")
_CALLS: Final = ("tool_call", "tool_use", "function_call", "server_tool_call")
_RESULTS: Final = (
    *("tool_call_response", "tool_result", "function_call_output"),
    "server_tool_call_response",
)
_WORDS: Final = ("content", "text", "thinking", "reasoning", "summary", "refusal")
_RETURNED: Final = ("response", "result", "output", "content")
_IDS: Final = ("id", "call_id", "tool_call_id", "tool_use_id")
_ARGUMENTS: Final = ("arguments", "args", "input")
_SHOWN_MEDIA: Final = ("modality", "mime_type", "uri", "file_id", "url", "name")


MAX_DEPTH: Final = 48
"""Of JSON in a text; what is nested deeper stays a text."""


class Part(NamedTuple):
    """A part of a message.

    Attributes:
        kind: what it is.
        text: of a text or a thought.
        name: of the tool.
        call_id: of a call, or of the call that a result answers.
        value: arguments, a result, or what is shown of media.
        failed: the result tells of a failure.
    """

    kind: PartKind
    text: str = ""
    name: str | None = None
    call_id: str | None = None
    value: Any = None
    failed: bool = False


class Message(NamedTuple):
    """A message; `name` of who speaks, if it is told."""

    role: str
    parts: tuple[Part, ...]
    name: str | None = None

    def digest(self) -> str:
        """The same for the same words, however they were written down."""
        words = [[part.kind, part.text.strip(), part.call_id, part.value] for part in self.parts]
        return value_digest([self.role, self.name, words])


def value_digest(value: Any) -> str:
    """A digest of a JSON value."""
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return blake2b(data, digest_size=16).hexdigest()


def parsed(value: Any) -> Any:
    """The JSON object or array that a text holds; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            read = orjson.loads(value)
        except ValueError:
            read = _read_loosely(value)
            if read is None:
                return value
        if value.count("{") + value.count("[") > MAX_DEPTH and not is_shallow(read, MAX_DEPTH):
            return value
        return read
    return value


def _read_loosely(text: str) -> Any:
    """JSON as Python and JavaScript write it: with NaN, or half a surrogate pair; None: it is none.

    NaN is told as text, the half as U+FFFD.
    """
    try:
        told = json.dumps(json.loads(text, parse_constant=str), ensure_ascii=False)
        return orjson.loads(told.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError):
        return None


def is_shallow(value: Any, levels: int) -> bool:
    """Whether a JSON value is nested less deep than so many levels."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        inside = [item.values() if isinstance(item, dict) else item for item in level]
        level = [item for items in inside for item in items if isinstance(item, dict | list)]
        if not level:
            return True
    return False


def messages_in(value: Any, role: str = "user") -> list[Message]:
    """The messages that an attribute holds.

    Args:
        value: structured, JSON text, or bare words.
        role: whose the words are where no role is told.
    """
    return [message_of(item, role) for item in written_in(value, role)]


def written_in(value: Any, role: str) -> list[Any]:
    """As `messages_in`, each still as it was written: `message_of` reads it."""
    value = parsed(value)
    if value in (None, "", [], {}):
        return []
    if isinstance(value, Mapping):
        inner = _listed(value)
        if inner is not None:
            return written_in(inner, role)
    if isinstance(value, list):
        if all(isinstance(item, list) for item in value):  # a batch: LangChain's list of lists
            return [message for item in value for message in written_in(item, role)]
        if all(isinstance(item, Mapping) and _is_message(item) for item in value):
            return value
        if all(_is_part(item) for item in value):
            return [Message(role, tuple(_parts(value)))]
    return [value]


def is_plain(item: Any) -> bool:
    """Whether it tells its role at the top, so that this can be seen without reading it."""
    return (
        type(item) is dict and type(item.get("role")) is str and item.keys().isdisjoint(_WRAPPERS)
    )


def plain_role(item: Mapping[str, Any]) -> str:
    """The role of a plain message."""
    role = str(item["role"]).lower()
    return _ROLES.get(role, role)


def plain_words(item: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a plain message says, to be compared with others of the same list."""
    return (item["role"], item.get("parts"), item.get("content"), item.get("contents"))


def _listed(value: Mapping[str, Any]) -> Any:
    """What holds the messages of a call: its `messages`, its only argument, its choices."""
    for name in ("messages", "choices", "message"):
        if name in value:
            return value[name]
    arguments = value.get("args")
    if isinstance(arguments, list) and len(arguments) == 1 and not value.get("kwargs"):
        return arguments[0]
    return None


def _is_message(item: Mapping[str, Any]) -> bool:
    return "role" in item or any(isinstance(item.get(name), Mapping) for name in _WRAPPERS)


def _is_part(item: Any) -> bool:
    if isinstance(item, Mapping):
        return isinstance(item.get("type"), str)
    return isinstance(item, str)


def message_of(value: Any, role: str) -> Message:
    """One message; of the role, if it tells none."""
    if isinstance(value, Message):
        return value
    value = parsed(value)
    if not isinstance(value, Mapping):
        return Message(role, (Part("text", _as_text(value)),))
    raw = _unwrapped(value)
    told = raw.get("role") or raw.get("type")
    if isinstance(told, str) and told != "message":
        role = _ROLES.get(told.lower(), told.lower())
    name = raw.get("name")
    parts = tuple(_message_parts(raw, role))
    if role == "tool":
        parts = (_tool_message(raw, parts),) if parts and parts[0].kind != "result" else parts
    elif not parts and not _is_empty(raw):
        parts = (Part("text", _as_text(raw)),)
    return Message(role, parts, name if isinstance(name, str) and role != "tool" else None)


def _is_empty(raw: Mapping[str, Any]) -> bool:
    """Whether it has the shape of a message, and only says nothing."""
    return "role" in raw or "content" in raw or "parts" in raw


def _unwrapped(value: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(_MAX_WRAPPERS):
        held = (parsed(value[name]) for name in _WRAPPERS if name in value)
        inner = next((item for item in held if isinstance(item, dict)), None)
        if inner is None or "content" in value or "parts" in value:
            return value
        value = {**{k: v for k, v in value.items() if k in ("role", "type")}, **inner}
    return value


def _message_parts(raw: Mapping[str, Any], role: str) -> Iterator[Part]:
    words: list[Part] = []
    for name in ("parts", "content", "contents"):
        value = raw.get(name)
        # a tool's words may be JSON, and are its result; others' are words
        value = parsed(value) if name != "content" or role != "tool" else value
        if isinstance(value, list):
            here = list(_parts(value))
        else:
            here = [] if value in (None, "") else [Part("text", _as_text(value))]
        # some tracers write the same words twice: as a text, and as a list of parts
        words.extend([part for part in here if part not in words] if words else here)
    yield from words
    calls = parsed(raw.get("tool_calls"))
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping):
            yield _call(call)
    if isinstance(raw.get("function_call_name"), str):
        arguments = parsed(raw.get("function_call_arguments_json"))
        yield Part("call", name=raw["function_call_name"], value=arguments)


def _parts(items: Iterable[Any]) -> Iterator[Part]:
    for item in items:
        if item == "" or item is None:
            continue
        if not isinstance(item, Mapping):
            yield Part("text", _as_text(item))
            continue
        inner = item.get("message_content")
        part = _part(inner if isinstance(inner, Mapping) else item)
        if part is not None:
            yield part


def _part(item: Mapping[str, Any]) -> Part | None:
    kind = item.get("type")
    words = next((item[name] for name in _WORDS if isinstance(item.get(name), str)), None)
    if words is None and kind in _TEXTS:  # which a tracer has not written as one
        words = next((_as_text(item[name]) for name in _WORDS if item.get(name)), None)
    if kind in _CALLS:
        return _call(item)
    if kind in _RESULTS:
        return _result(item)
    if kind in _THOUGHTS:
        return Part("thought", words) if words else None
    if kind in _TEXTS or (kind is None and words is not None):
        return Part("text", words) if words else None
    shown = {name: item[name] for name in _SHOWN_MEDIA if isinstance(item.get(name), str)}
    if isinstance(shown.get("url"), str) and shown["url"].startswith("data:"):
        del shown["url"]  # the image itself
    words = item.get("text")  # the content of an image is the image
    words = words if isinstance(words, str) else ""
    return Part("media", words, value={"type": str(kind or "part"), **shown})


def _call(item: Mapping[str, Any]) -> Part:
    inner = item.get("tool_call")
    item = inner if isinstance(inner, Mapping) else item
    function = item.get("function")
    holder = function if isinstance(function, Mapping) else item
    arguments = next((holder[name] for name in _ARGUMENTS if name in holder), None)
    return Part(
        "call",
        name=_first_text(holder, ("name", "tool_name")),
        call_id=_first_text(item, _IDS),
        value=parsed(arguments),
    )


def _result(item: Mapping[str, Any]) -> Part:
    value = next((item[name] for name in _RETURNED if item.get(name) is not None), None)
    return returned(
        value,
        name=_first_text(item, ("name", "tool_name")),
        call_id=_first_text(item, ("tool_call_id", "tool_use_id", *_IDS)),
        failed=item.get("is_error") is True or item.get("status") == "error",
    )


def _tool_message(raw: Mapping[str, Any], parts: tuple[Part, ...]) -> Part:
    return returned(
        "\n".join(part.text for part in parts),
        name=_first_text(raw, ("name", "tool_name")),
        call_id=_first_text(raw, ("tool_call_id", "id")),
        failed=raw.get("is_error") is True or raw.get("status") == "error",
    )


def returned(value: Any, *, name: str | None, call_id: str | None, failed: bool = False) -> Part:
    """What a tool returned; it failed, too, when it says so itself."""
    value = parsed(value)
    if isinstance(value, list) and value and all(_is_part(item) for item in value):
        texts = [part.text for part in _parts(value)]
        value = parsed("\n".join(text for text in texts if text)) if any(texts) else value
    return Part("result", name=name, call_id=call_id, value=value, failed=failed or _failed(value))


def _failed(value: Any) -> bool:
    """Whether what a tool returned tells of a failure, by the rules of the chat import."""
    if isinstance(value, str):
        return value.lstrip()[:5].lower() == "error"
    if not isinstance(value, Mapping):
        return False
    return (
        bool(value.get("error"))
        or value.get("is_error") is True
        or value.get("isError") is True
        or value.get("status") in ("error", "failed")
    )


def _first_text(holder: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((holder[n] for n in names if isinstance(holder.get(n), str) and holder[n]), None)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def role_word(role: str) -> str:
    """The role as a word of an event's type; some frameworks have roles of their own."""
    return role if role.isascii() and role.isalpha() and role.islower() else "other"


def message_payload(message: Message) -> dict[str, Any]:
    """The message in the chat shape: words as one text, media beside them by what is shown."""
    parts = [part for part in message.parts if part.kind != "result"]
    name = {"name": message.name} if message.name else {}
    if all(part.kind in ("text", "thought") for part in parts):
        content: Any = "\n".join(part.text for part in parts)
    else:
        content = [_content_part(part) for part in parts]
    return {"role": message.role, "content": content, **name}


def _content_part(part: Part) -> dict[str, Any]:
    if part.kind == "media":
        return {**part.value, **({"text": part.text} if part.text else {})}
    if part.kind == "call":
        return {"type": "tool_use", "name": part.name, "input": part.value}
    return {"type": "text", "text": part.text}
