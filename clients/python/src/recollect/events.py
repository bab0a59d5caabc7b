"""Events as the ledger takes them: id and time are fixed here, so sending one again is safe."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

from pydantic_core import PydanticSerializationError, from_json, to_json

ROLES: Final = frozenset(("user", "assistant", "system", "developer"))
"""Kinds that are chat messages."""
OWN_WORDS: Final = frozenset(("thought", "plan", "decision"))
"""Kinds that are an agent's words to itself."""
TOOL_FIELDS: Final[Mapping[str, tuple[str, str, str | None]]] = {
    "call": ("tool.call", "arguments", None),
    "result": ("tool.result", "result", "completed"),
    "failure": ("tool.result", "error", "failed"),
}
"""Of the kinds that are about tools: type of the event, field of the payload, status."""
MAX_TOOL_BYTES: Final = 250 * 1024
"""The ledger takes payloads of 256 KiB; what a tool got or gave beyond this is cut."""
_CUT_CHARACTERS: Final = 32_000
_MAX_DEPTH: Final = 100
_MAX_SAFE_NUMBER: Final = 2**53 - 1
_LARGE: Final = re.compile(rb"[\[:,]-?(?:\d{16}|\d(?:\.\d+)?e\+?\d\d)|^-?\d")
"""Where JSON may have a number that is too large."""
_NS_PER_MS: Final = 1_000_000


class Made(NamedTuple):
    """An event, ready to be sent: never changed again."""

    event_id: str
    session_id: str
    json: bytes


def new_event_id(now_ns: int) -> str:
    """A UUID of version 7: ids of one process sort as they were made, to a quarter of a µs."""
    ms, rest_ns = divmod(now_ns, _NS_PER_MS)
    fraction = rest_ns * 4096 // _NS_PER_MS
    chance = int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF
    text = f"{ms:012x}7{fraction:03x}{0x8000_0000_0000_0000 | chance:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def moment_text(moment: datetime | int) -> str:
    """RFC 3339 of a time with zone, or of nanoseconds since the epoch.

    Raises:
        ValueError: the time names no zone.
    """
    if isinstance(moment, int):
        moment = datetime.fromtimestamp(moment / 1e9, timezone.utc)
    elif moment.tzinfo is None:
        raise ValueError("a time needs a zone: datetime.now(timezone.utc)")
    return moment.isoformat(timespec="milliseconds")


def now_ns() -> int:
    """The clock."""
    return time.time_ns()


class Content(NamedTuple):
    """What an event says: its type, payload and status."""

    event_type: str
    payload: Any
    status: str | None = None


def content_of(kind: str, content: Any) -> Content:
    """What a kind and its content become.

    Raises:
        ValueError: there is no such kind.
    """
    if kind in ROLES:
        return Content(f"message.{kind}", {"role": kind, "content": content})
    if kind in OWN_WORDS:
        return Content(f"agent.{kind}", _worded(content))
    if kind in TOOL_FIELDS:
        event_type, field, status = TOOL_FIELDS[kind]
        return Content(event_type, {field: content}, status)
    if "." not in kind:
        names = ", ".join(sorted(ROLES | OWN_WORDS | TOOL_FIELDS.keys()))
        raise ValueError(f"kind: {kind!r} is none of {names}, nor a type with a dot (order.placed)")
    return Content(kind, _worded(content))


def _worded(content: Any) -> Any:
    return {"text": content} if isinstance(content, str) else content


def event_json(fields: Mapping[str, Any], *, is_cut: bool = False) -> bytes:
    """The envelope as JSON, taken now: what changes later in the payload changes nothing here.

    Args:
        fields: of the envelope; those that are None are left out.
        is_cut: whether a payload that is too large is cut, rather than refused by the ledger.
    """
    envelope = {name: value for name, value in fields.items() if value is not None}
    data = json_of(envelope)
    if is_cut and len(data) > MAX_TOOL_BYTES and isinstance(envelope["payload"], dict):
        envelope["payload"] = {
            name: json_of(value).decode()[:_CUT_CHARACTERS]
            for name, value in envelope["payload"].items()
        } | {"cut_from_bytes": len(data)}
        data = json_of(envelope)
    return data


def json_of(value: Any) -> bytes:
    """JSON of anything, as the ledger takes it.

    What has no form in JSON is told by its repr; NaN, and numbers beyond 2^53 - 1, which many
    readers of JSON round, as text; half a surrogate pair as U+FFFD.
    """
    try:
        data = _dumped(value)
    except (PydanticSerializationError, ValueError, RecursionError):
        if isinstance(value, dict) and "payload" in value:
            data = _dumped({**value, "payload": _told(value["payload"], ())})
        else:
            data = _dumped(_told(value, ()))
    if _LARGE.search(data) is None:
        return data
    try:
        return _dumped(_safe(from_json(data)))
    except ValueError:  # too deep for the ledger as well
        return data


def _told(value: Any, around: tuple[int, ...]) -> Any:
    """Of what cannot be dumped as a whole, each part as it can be."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    is_plain = isinstance(value, (Mapping, list, tuple, set, frozenset))
    if is_plain and id(value) not in around and len(around) < _MAX_DEPTH:
        inside = (*around, id(value))
        if isinstance(value, Mapping):
            return {_told(str(k), inside): _told(v, inside) for k, v in value.items()}
        return [_told(each, inside) for each in value]
    try:
        _dumped(value)
    except (PydanticSerializationError, ValueError, RecursionError):
        return ascii(value)
    return value


def _safe(value: Any) -> Any:
    """JSON in which numbers beyond what the ledger takes are texts."""
    if isinstance(value, dict):
        return {key: _safe(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_safe(inner) for inner in value]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if is_number and abs(value) > _MAX_SAFE_NUMBER else value


def _dumped(value: Any) -> bytes:
    if _is_used_up_by_reading(value):
        raise ValueError("an iterator can be read only once: whoever it is for reads it")
    return to_json(value, inf_nan_mode="strings", bytes_mode="base64", serialize_unknown=True)


def _is_used_up_by_reading(value: Any) -> bool:
    """Whether there is an iterator in it (a file, a cursor); what holds others is looked into."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if hasattr(type(inner), "__next__"):
            return True
        if isinstance(inner, _HOLDERS) and id(inner) not in seen:
            seen.add(id(inner))
            items = inner.values() if isinstance(inner, dict) else inner
            waiting.extend(each for each in items if type(each) not in _PLAIN)
    return False


_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_HOLDERS: Final = (dict, list, tuple, set, frozenset)
