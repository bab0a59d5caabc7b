"""Builders of what a consolidation pass reads: what a test does not name does not matter to it."""

from __future__ import annotations

from typing import Any

from consolidation.sources import Cause, Mentioned, SourceEvent
from enrichment.event_kinds import EventKind, event_kind
from enrichment.names import canonical_name, entity_id
from tests.factories import START_MS, event, event_id

MINUTE_MS = 60_000


def source_event(number: int = 1, **fields: Any) -> SourceEvent:
    """A message of agent-1; `at` is its time in milliseconds after START_MS.

    `after` are the numbers of events that the producer named as causes; `mentions` are entities,
    or names of resources that the event is about.
    """
    at = fields.pop("at", number)
    after = fields.pop("after", ())
    mentions = fields.pop("mentions", ())
    event_type = fields.get("event_type", "agent.message.sent")
    envelope = event(number, event_type=event_type, **_named(fields, "tool_name", "status"))
    source = SourceEvent(
        event_id=event_id(number),
        event_type=event_type,
        occurred_at_ms=START_MS + at,
        session_id="session-1",
        agent_id="agent-1",
        trace_id="trace-1",
        entities=tuple(mentioned(one) if isinstance(one, str) else one for one in mentions),
        causes=tuple(Cause(event_id(one), None, 1.0) for one in after),
    )
    return source._replace(kind=event_kind(envelope))._replace(**fields)


def _named(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def mentioned(name: str, role: str = "object", **fields: Any) -> Mentioned:
    """A resource of that name."""
    made = Mentioned("", name, "resource", None, role)._replace(**fields)
    own_id = entity_id("default", canonical_name(name), made.entity_type)
    return made._replace(entity_id=fields.get("entity_id", own_id))


def said(number: int, speaker: str, text: str, **fields: Any) -> SourceEvent:
    """Somebody says something; the agent's id is the speaker."""
    return source_event(
        number,
        **{
            "event_type": "message.sent",
            "agent_id": speaker,
            "speaker": speaker,
            "text": text,
            "summary": f"{speaker}: {text}"[:200],
            **fields,
        },
    )


def called(number: int, tool: str, arguments: str = "", **fields: Any) -> SourceEvent:
    """An agent, `assistant` if not named, calls a tool."""
    return source_event(
        number,
        **{
            "event_type": "tool.call",
            "kind": EventKind.CALL,
            "agent_id": "assistant",
            "tool_name": tool,
            "speaker": tool,
            "text": arguments,
            "summary": f"{tool}: {arguments}" if arguments else tool,
            **fields,
        },
    )


def returned(number: int, tool: str, answer: str = "", **fields: Any) -> SourceEvent:
    """A tool answers; with `error` it fails and says so."""
    error = fields.pop("error", None)
    text = error or answer
    verb = "failed" if error else "returned"
    return source_event(
        number,
        **{
            "event_type": "tool.result",
            "kind": EventKind.FAILURE if error else EventKind.RESULT,
            "agent_id": "tool",
            "tool_name": tool,
            "speaker": tool,
            "status": "failed" if error else "completed",
            "text": text,
            "summary": f"{tool} {verb}: {text}" if text else f"{tool} {verb}",
            **fields,
        },
    )
