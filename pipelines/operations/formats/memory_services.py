"""Other memories: what mem0, Zep and Graphiti export.

mem0 gives memories with their times, as `get_all` and the exports of the platform give them. Shape
(mem0ai/mem0, `mem0/configs/base.py`, `MemoryItem`, and the fields that `get_all` adds): `id`,
`memory`, `user_id`, `agent_id`, `run_id`, `actor_id`, `role`, `metadata`, `categories`,
`created_at`, `updated_at`. A memory is what is held true since it was last changed: that is its
time, and a memory that was changed is another event. When it was first made stands in the payload.

Zep gives messages of a thread, and episodes of its graph, with their times. Shapes
(getzep/zep-python, `src/zep_cloud/types/message.py` and `episode.py`): a message has `uuid`,
`role_type` (user, assistant, system, tool …), `role` or `name` (who), `content`, `created_at`; an
episode the same, with `source` (text, json, message) and `session_id` or `thread_id`. A thread is
an object with `messages[]`, `thread_id` or `session_id`, and `user_id`.

Graphiti gives episodes, as `EpisodicNode.model_dump_json()` or a query of the graph does. Shape
(getzep/graphiti, `graphiti_core/nodes.py`, `EpisodicNode` and `EpisodeType`): `uuid`, `name`,
`group_id`, `source` (message, json, text), `source_description`, `content`, `valid_at` (when it
happened), `created_at` (when Graphiti was told). A message is written `actor: words`. A group is a
session. Entities, their facts and communities are made of the episodes: they are told as left out,
and come about again. Groups that stand for people: import each with its `--user`.
"""

from __future__ import annotations

import re
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
from projections.events import timestamp_text
from projections.traces.messages import MODEL, USER, Message, Part, parsed

MEM0: Final = "mem0"
_OF_MEM0: Final = (
    *(
        "hash",
        "score",
        "owner",
        "organization",
        "org_id",
        "project_id",
        "app_id",
        "expiration_date",
    ),
    *("internal_metadata", "immutable", "input", "type", "deleted_at", "version"),
)


def is_mem0(record: Any) -> bool:
    """Whether it is a memory."""
    return isinstance(record, dict) and {"id", "memory", "created_at"} <= record.keys()


def mem0_events(record: Any, given: Given) -> Iterator[Told]:
    """The event of a memory.

    Raises:
        InvalidInput: it has no id, no words or no time.
    """
    fields = Fields(record)
    words = fields.text("memory", required=True) or ""
    first_ms = fields.ms(given, "created_at", required=True) or 0
    at_ms = fields.ms(given, "updated_at") or first_ms
    user, run = fields.text("user_id"), fields.text("run_id")
    extra = {
        "categories": fields.get("categories"),
        "metadata": fields.get("metadata"),
        "first_remembered_at": timestamp_text(first_ms) if at_ms != first_ms else None,
    }
    turn = Turn(
        turn_id=f"{fields.text('id', required=True)}@{at_ms}",
        at_ms=at_ms,
        message=Message("memory", (Part("text", words),), fields.text("actor_id", "role")),
        extra={name: value for name, value in extra.items() if value},
    )
    session = run or (f"{MEM0}-{user}" if user else MEM0)
    talk = Talk(MEM0, session, user, fields.text("agent_id") or MEM0)
    yield from conversation(talk, [turn], given)
    yield from fields.unread(_OF_MEM0)


ZEP: Final = "zep"
_DERIVED: Final = "made from the episodes, and made from them again here"
_SESSION: Final = ("thread_id", "session_id")
_OF_ZEP: Final = (
    *("uuid", "processed", "token_count", "updated_at", "score", "relevance", "id", "project_uuid"),
    *("created_at", "deleted_at", "ended_at", "total_count", "row_count", "response_count"),
)


def is_zep(record: Any) -> bool:
    """Whether it is a thread, a message, an episode or a fact."""
    if not isinstance(record, dict):
        return False
    names = record.keys()
    if isinstance(record.get("messages"), list):
        return any(map(_is_zep_message, record["messages"][:1]))
    return _is_zep_message(record) or {"fact", "source_node_uuid", "created_at"} <= names


def _is_zep_message(raw: Any) -> bool:
    return (
        isinstance(raw, dict)
        and {"content", "created_at"} <= raw.keys()
        and not ({"role_type", "source"}.isdisjoint(raw) or "group_id" in raw)
    )


def zep_events(record: Any, given: Given) -> Iterator[Told]:
    """The events of a thread, of a message or of an episode.

    Raises:
        InvalidInput: a message has no words or no time.
    """
    fields = Fields(record)
    if "fact" in fields:
        yield Unmapped("fact", _DERIVED)
        return
    listed = fields.list("messages")
    inside = [Fields(raw, f"messages[{n}].") for n, raw in enumerate(listed)] or [fields]
    turns = [
        _zep_turn(message, raw, given)
        for message, raw in zip(inside, listed or [record], strict=True)
    ]
    session = fields.text(*_SESSION) or fields.text("graph_id") or fields.text("user_id") or ZEP
    yield from conversation(Talk(ZEP, session, fields.text("user_id")), turns, given)
    for message in inside:
        yield from message.unread(_OF_ZEP)
    if listed:
        yield from fields.unread(_OF_ZEP)


def _zep_turn(message: Fields, raw: Any, given: Given) -> Turn:
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


GRAPHITI: Final = "graphiti"
_ACTOR: Final = re.compile(r"\s*([^\n:]{1,60}?)\s*:\s+(.+)", re.DOTALL)
_ASSISTANTS: Final = ("assistant", "ai", "bot", "agent", "system")
_OF_GRAPHITI: Final = ("uuid", "labels", "entity_edges", "created_at", "episode_metadata")


def is_graphiti(record: Any) -> bool:
    """Whether it is a node or an edge of Graphiti: each is in a group."""
    return isinstance(record, dict) and {"uuid", "group_id"} <= record.keys()


def graphiti_events(record: Any, given: Given) -> Iterator[Told]:
    """The event of an episode.

    Raises:
        InvalidInput: it has no time.
    """
    fields = Fields(record)
    if "content" not in fields:
        yield Unmapped("(record)", _DERIVED)
        return
    content = fields.text("content", required=True) or ""
    source = fields.text("source") or "text"
    about = {}
    if source != "json":  # whose event is the record alone
        about = {"name": fields.text("name"), "source": fields.text("source_description")}
    extra: dict[str, Any] = {name: value for name, value in about.items() if value}
    role, actor = source, None
    if source == "message":
        match = _ACTOR.fullmatch(content)
        actor, content = (match[1], match[2]) if match else (None, content)
        role = MODEL if (actor or "").lower().startswith(_ASSISTANTS) else USER
        extra.pop("name", None)  # of the episode, not of who speaks
    turn = Turn(
        turn_id=fields.text("uuid", required=True) or "",
        at_ms=fields.ms(given, "valid_at", "created_at", required=True) or 0,
        message=Message(role, (Part("text", content),), actor),
        extra=extra,
        record=parsed(content) if source == "json" else None,
    )
    talk = Talk(GRAPHITI, fields.text("group_id") or GRAPHITI, None)
    yield from conversation(talk, [turn], given)
    yield from fields.unread(_OF_GRAPHITI)
