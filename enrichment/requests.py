"""The payload of `memory.consolidation_requested`: what a pass of consolidation is asked for.

`session_id` or `agent_id` names one session or one agent; without either the whole tenant is meant.
`reason` is for people, nothing reads it. Without a payload the whole tenant is meant, too.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from enrichment.payload_fields import Fields
from projections.errors import InvalidEvent
from projections.events import MAX_NAME_CHARACTERS

REQUESTED_EVENT: Final = "memory.consolidation_requested"
MAX_REASON_CHARACTERS: Final = 1_000


class Asked(NamedTuple):
    """What a pass is to look at; with neither the whole tenant."""

    session_id: str | None = None
    agent_id: str | None = None


def request_payload(asked: Asked, reason: str | None = None) -> dict[str, Any]:
    """The payload."""
    payload = {**asked._asdict(), "reason": reason}
    return {name: value for name, value in payload.items() if value is not None}


def parse_request(payload: Any) -> Asked:
    """What is asked for.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.agent_id`).
    """
    if payload is None:
        return Asked()
    errors: list[tuple[str, str]] = []
    fields = Fields.of(payload, "payload", errors)
    if fields is None:
        raise InvalidEvent(tuple(errors))
    fields.refuse_others("session_id agent_id reason")
    fields.text("reason", MAX_REASON_CHARACTERS)
    asked = Asked(*(fields.text(name, MAX_NAME_CHARACTERS) for name in Asked._fields))
    if fields.has("session_id") and fields.has("agent_id"):
        fields.refuse("agent_id", "not together with session_id")
    if errors:
        raise InvalidEvent(tuple(errors))
    return asked
