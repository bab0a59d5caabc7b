"""mem0: memories with their times, as `get_all` and the exports of the platform give them.

Shape (mem0ai/mem0, `mem0/configs/base.py`, `MemoryItem`, and the fields that `get_all` adds): `id`,
`memory`, `user_id`, `agent_id`, `run_id`, `actor_id`, `role`, `metadata`, `categories`,
`created_at`, `updated_at`.

A memory is what is held true since it was last changed: that is its time, and a memory that was
changed is another event. When it was first made stands in the payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pipelines.operations.formats.mapped import Fields, Given, Talk, Told, Turn, conversation
from projections.events import timestamp_text
from projections.traces.messages import Message, Part

FORM: Final = "mem0"
_BOOKKEEPING: Final = (
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


def sniff(record: Any) -> bool:
    """Whether it is a memory."""
    return isinstance(record, dict) and {"id", "memory", "created_at"} <= record.keys()


def events(record: Any, given: Given) -> Iterator[Told]:
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
    session = run or (f"{FORM}-{user}" if user else FORM)
    talk = Talk(FORM, session, user, fields.text("agent_id") or FORM)
    yield from conversation(talk, [turn], given)
    yield from fields.unread(_BOOKKEEPING)
