"""Sessions of agents as the steps that were taken in them, and the events that tell of those."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from tests.bench.small import Edition, own_edition

STEP_S: Final = 30
"""Between one step and the next."""
Step = tuple[str, Any, str]
"""Type, payload and tool; the tool is empty where there is none."""
Told = tuple[str, float, str | None, str, tuple[Step, ...]]
"""A session: its id, days before, user, agent and steps."""


def said_by_user(text: str) -> Step:
    """What the user said."""
    return "message.user", {"role": "user", "content": text}, ""


def said_by_agent(text: str) -> Step:
    """What the agent said."""
    return "message.assistant", {"role": "assistant", "content": text}, ""


def happened(kind: str, **fields: Any) -> Step:
    """What is of no tool."""
    return kind, fields, ""


def call(tool: str, **arguments: Any) -> Step:
    """What a tool was asked for."""
    return "tool.call", {"arguments": arguments}, tool


def result(tool: str, **fields: Any) -> Step:
    """What it returned."""
    return "tool.result", {"result": fields}, tool


def error(tool: str, text: str) -> Step:
    """How it failed."""
    return "tool.result", {"error": text}, tool


@contextmanager
def edition_of(
    name: str, sessions: Sequence[Told], now: datetime, parents: Literal["all", "results"] = "all"
) -> Iterator[Edition]:
    """A small edition that holds the sessions, and what passes find in them."""
    with own_edition(name) as edition:
        edition.fill(events_of(sessions, now, parents))
        edition.run("consolidate")
        yield edition


def events_of(
    sessions: Sequence[Told], now: datetime, parents: Literal["all", "results"]
) -> Iterator[dict[str, Any]]:
    """The sessions as events.

    Args:
        sessions: as they went.
        now: that their days are counted back from.
        parents: whether each event has the one before it as its parent, or a result its call alone.
    """
    for session, days, user, agent, steps in sessions:
        begin = now - timedelta(days=days)
        before: str | None = None
        for place, (kind, payload, tool) in enumerate(steps):
            event_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{session} {place}"))
            at = begin + timedelta(seconds=STEP_S * place)
            envelope = {
                "event_id": event_id,
                "event_type": kind,
                "occurred_at": f"{at:%Y-%m-%dT%H:%M:%S}.000Z",
                "session_id": session,
                "agent_id": user if kind == "message.user" else agent,
                "trace_id": session,
                "payload": payload,
            }
            optional = {
                "user_id": user,
                "tool_name": tool or None,
                "parent_event_id": before if parents == "all" or kind == "tool.result" else None,
                "status": "failed" if "error" in payload else None,
            }
            yield envelope | {name: value for name, value in optional.items() if value is not None}
            before = event_id
