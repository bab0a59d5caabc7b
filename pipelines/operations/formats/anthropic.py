"""Anthropic: messages of the API with their requests, and conversations as claude.ai exports them.

Shapes (anthropics/anthropic-sdk-python, `types/message.py`; exports as the readers of several
public projects expect them):

- a message: `type: message`, `role: assistant`, `content[]` of `text`, `thinking`, `tool_use` …,
  `usage`. The API tells no time, so the record around it must: `created_at` or `timestamp`, beside
  `request` and `response` (or `message`, or the fields of the message themselves);
- an export: `uuid`, `name`, `chat_messages[]` with `uuid`, `sender` (human, assistant), `text` or
  `content[]`, `created_at`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pipelines.operations.formats.mapped import Fields, Given, Talk, Told, Turn, conversation
from pipelines.operations.formats.spans import (
    INPUT,
    OUTPUT,
    SESSION_NAMES,
    SETTINGS,
    Step,
    told_with_past,
)
from projections.traces.messages import message_of

FORM: Final = "anthropic"
_TIME: Final = ("created_at", "timestamp")
_BOOKKEEPING: Final = (
    *SETTINGS,
    *("type", "role", "stop_reason", "stop_sequence", "stop_details", "container", "custom_id"),
)


def sniff(record: Any) -> bool:
    """Whether it is a message, alone or within a record, or an exported conversation."""
    if not isinstance(record, dict):
        return False
    parts = (record, record.get("response"), record.get("message"))
    return "chat_messages" in record or any(
        isinstance(part, dict) and part.get("type") == "message" and part.get("role") == "assistant"
        for part in parts
    )


def events(record: Any, given: Given) -> Iterator[Told]:
    """The events of one call, or of one conversation.

    Raises:
        InvalidInput: it is neither, or has no time.
    """
    fields = Fields(record)
    if "chat_messages" in fields:
        yield from _conversation(fields, given)
        return
    answer = fields
    for name in ("response", "message"):
        if name in fields:
            answer = fields.inner(name)
    request = fields.inner("request") if "request" in fields else fields
    yield from _call(fields, request, answer, given)
    for part in {id(part): part for part in (fields, request, answer)}.values():
        yield from part.unread(_BOOKKEEPING)


def _call(fields: Fields, request: Fields, answer: Fields, given: Given) -> Iterator[Told]:
    message_id = answer.text("id", required=True) or ""
    at_ms = fields.ms(given, *_TIME, required=True) or 0
    usage, metadata = answer.inner("usage"), request.inner("metadata")
    session = fields.text(*SESSION_NAMES) or metadata.text(*SESSION_NAMES)
    step = Step(
        form=FORM,
        trace=session or message_id,
        step=message_id,
        name="chat",
        start_ms=at_ms,
        end_ms=fields.ms(given, "ended_at") or at_ms,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": answer.text("model"),
            "gen_ai.system_instructions": request.get("system"),
            INPUT: request.list("messages") or None,
            OUTPUT: [{"role": "assistant", "content": answer.list("content")}],
            "gen_ai.usage.input_tokens": usage.get("input_tokens"),
            "gen_ai.usage.output_tokens": usage.get("output_tokens"),
            "gen_ai.conversation.id": session or message_id,
            "user.id": fields.text("user_id") or metadata.text("user_id"),
        },
    )
    yield from told_with_past(step, given)
    yield from metadata.unread()


def _conversation(fields: Fields, given: Given) -> Iterator[Told]:
    """An exported conversation; `human` is the user's role, and what was attached is named."""
    turns: list[Turn] = []
    left_out: list[Told] = []
    for number, raw in enumerate(fields.list("chat_messages")):
        message = Fields(raw, f"chat_messages[{number}].")
        content = message.get("content") or message.get("text") or ""
        message.get("text")  # the same words once more
        shown = {"role": message.text("sender", required=True), "content": content}
        turns.append(
            Turn(
                turn_id=message.text("uuid") or str(number),
                at_ms=message.ms(given, "created_at", required=True) or 0,
                message=message_of(shown, "user"),
            )
        )
        left_out += message.unread(("updated_at", "parent_message_uuid"))
    session = fields.text("uuid", required=True) or ""
    user = fields.inner("account").text("uuid")
    yield from conversation(Talk(FORM, session, user), turns, given)
    yield from left_out
    yield from fields.unread(("name", "created_at", "updated_at", "summary"))
