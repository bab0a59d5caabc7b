"""What a pass reads of the graph, as plain values: no driver, no clock."""

from __future__ import annotations

from typing import NamedTuple


class Mentioned(NamedTuple):
    """An entity that an event mentions, as a REFERENCES edge tells.

    Attributes:
        entity_id: of the canonical one of its sameness component.
        name: for display.
        entity_type: agent, tool, user, service, resource or concept.
        subtype: finer, if known; `value` for a literal.
        role: subject, object, tool, target or participant.
    """

    entity_id: str
    name: str
    entity_type: str
    subtype: str | None
    role: str


class Cause(NamedTuple):
    """A CAUSED_BY edge that starts at the event.

    Attributes:
        event_id: of the cause.
        rule: that found it (`tool_result`, `value_flow`, `retry` or `reply`); None: the producer
            named it.
        confidence: 0 to 1; 1 when the producer named it.
    """

    event_id: str
    rule: str | None
    confidence: float


class SourceEvent(NamedTuple):
    """A retained event, with what enrichment derived from it.

    Attributes:
        importance: 1 to 10, without the boost.
        text: at most 2,000 characters; empty when there is none, or texts are switched off.
        summary: one line, at most 200 characters; it names who spoke or acted.
        speaker: who said it, apart from the text.
        entities: by role and name.
        causes: nearest first.
    """

    event_id: str
    event_type: str
    occurred_at_ms: int
    session_id: str
    agent_id: str
    trace_id: str
    tool_name: str | None = None
    status: str | None = None
    user_id: str | None = None
    importance: int = 5
    text: str = ""
    summary: str = ""
    speaker: str | None = None
    keywords: tuple[str, ...] = ()
    entities: tuple[Mentioned, ...] = ()
    causes: tuple[Cause, ...] = ()
