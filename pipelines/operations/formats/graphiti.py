"""Graphiti: episodes, as `EpisodicNode.model_dump_json()` or a query of the graph gives them.

Shape (getzep/graphiti, `graphiti_core/nodes.py`, `EpisodicNode` and `EpisodeType`): `uuid`, `name`,
`group_id`, `source` (message, json, text), `source_description`, `content`, `valid_at` (when it
happened), `created_at` (when Graphiti was told). A message is written `actor: words`.

A group is a session. Entities, their facts and communities are made of the episodes: they are told
as left out, and come about again. Groups that stand for people: import each with its `--user`.
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
)
from pipelines.operations.formats.zep import DERIVED
from projections.traces.messages import MODEL, USER, Message, Part, parsed

FORM: Final = "graphiti"
_ACTOR: Final = re.compile(r"\s*([^\n:]{1,60}?)\s*:\s+(.+)", re.DOTALL)
_ASSISTANTS: Final = ("assistant", "ai", "bot", "agent", "system")
_BOOKKEEPING: Final = ("uuid", "labels", "entity_edges", "created_at", "episode_metadata")


def sniff(record: Any) -> bool:
    """Whether it is a node or an edge of Graphiti: each is in a group."""
    return isinstance(record, dict) and {"uuid", "group_id"} <= record.keys()


def events(record: Any, given: Given) -> Iterator[Told]:
    """The event of an episode.

    Raises:
        InvalidInput: it has no time.
    """
    fields = Fields(record)
    if "content" not in fields:
        yield Unmapped("(record)", DERIVED)
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
    talk = Talk(FORM, fields.text("group_id") or FORM, None)
    yield from conversation(talk, [turn], given)
    yield from fields.unread(_BOOKKEEPING)
