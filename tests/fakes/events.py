"""Events for tests: valid, with defaults, told apart by a number."""

from __future__ import annotations

import uuid
from typing import Any

from projections.events import Event

_START_MS = 1_770_000_000_000


def numbered_event(number: int, **fields: Any) -> Event:
    """The event of that number; sessions take turns."""
    event = Event(
        tenant="default",
        event_id=str(uuid.UUID(int=number)),
        event_type="agent.message.sent",
        occurred_at_ms=_START_MS + number,
        session_id=f"session-{number % 7}",
        agent_id="agent-1",
        trace_id="trace-1",
        payload={"text": f"message {number}"},
    )
    return event._replace(**fields)
