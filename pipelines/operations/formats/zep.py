"""Zep: messages of a thread, and episodes of its graph, with their times.

Shapes (getzep/zep-python, `src/zep_cloud/types/message.py` and `episode.py`): a message has `uuid`,
`role_type` (user, assistant, system, tool …), `role` or `name` (who), `content`, `created_at`; an
episode the same, with `source` (text, json, message) and `session_id` or `thread_id`. A thread is
an object with `messages[]`, `thread_id` or `session_id`, and `user_id`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pipelines.operations.formats.mapped import (
    Fields,
    Given,
    Talk,
    Told,
    Turn,
    Unmapped,
    conversation,
    digest_of,
)
from projections.traces.messages import USER, Message, Part, parsed

FORM: Final = "zep"
DERIVED: Final = "made from the episodes, and made from them again here"
_SESSION: Final = ("thread_id", "session_id")
_BOOKKEEPING: Final = (
    *("uuid", "processed", "token_count", "updated_at", "score", "relevance", "id", "project_uuid"),
    *("created_at", "deleted_at", "ended_at", "total_count", "row_count", "response_count"),
)


def sniff(record: Any) -> bool:
    """Whether it is a thread, a message, an episode or a fact."""
    if not isinstance(record, dict):
        return False
    names = record.keys()
    if isinstance(record.get("messages"), list):
        return any(map(_is_message, record["messages"][:1]))
    return _is_message(record) or {"fact", "source_node_uuid", "created_at"} <= names


def _is_message(raw: Any) -> bool:
    return (
        isinstance(raw, dict)
        and {"content", "created_at"} <= raw.keys()
        and not ({"role_type", "source"}.isdisjoint(raw) or "group_id" in raw)
    )


def events(record: Any, given: Given) -> Iterator[Told]:
    """The events of a thread, of a message or of an episode.

    Raises:
        InvalidInput: a message has no words or no time.
    """
    fields = Fields(record)
    if "fact" in fields:
        yield Unmapped("fact", DERIVED)
        return
    listed = fields.list("messages")
    inside = [Fields(raw, f"messages[{n}].") for n, raw in enumerate(listed)] or [fields]
    turns = [
        _turn(message, raw, given) for message, raw in zip(inside, listed or [record], strict=True)
    ]
    session = fields.text(*_SESSION) or fields.text("graph_id") or fields.text("user_id") or FORM
    yield from conversation(Talk(FORM, session, fields.text("user_id")), turns, given)
    for message in inside:
        yield from message.unread(_BOOKKEEPING)
    if listed:
        yield from fields.unread(_BOOKKEEPING)


def _turn(message: Fields, raw: Any, given: Given) -> Turn:
    role = (message.text("role_type", "source") or "text").removesuffix("_role")
    content = message.text("content", required=True) or ""
    is_json = message.text("source") == "json"
    where = {}
    if not is_json:  # whose event is the record alone
        where = {"source": message.text("source_description"), "metadata": message.get("metadata")}
    return Turn(
        turn_id=message.text("uuid") or digest_of(raw),
        at_ms=message.ms(given, "created_at", required=True) or 0,
        message=Message(
            {"norole": USER, "message": USER, "function": "tool"}.get(role, role),
            (Part("text", content),),
            message.text("name", "role"),
        ),
        extra={name: value for name, value in where.items() if value},
        record=parsed(content) if is_json else None,
    )
