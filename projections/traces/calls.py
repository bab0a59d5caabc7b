"""Calls of tools and their results, which several spans tell of: how they are told apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

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
