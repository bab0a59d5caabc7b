"""Conversations whose messages have times of their own: one event for each thing said or done.

A message gives `message.<role>` for its words, `agent.thought` for its reasoning, and a `tool.call`
or `tool.result` for each call or result in it, with the payloads that traces have, too.

- Times are kept. What one message holds, and messages of one moment, are a millisecond apart, for
  events of one millisecond have no order.
- A parent is what was answered: of a user's message the last answer, of an answer what was said
  before it, of a call the words beside it, of a result its call.
- Ids are made of the format, the conversation, the message's id and its part, so a conversation
  that has grown adds what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pipelines.operations.formats.mapped import Given, Mapped
from projections.events import derived_event_id, timestamp_text
from projections.traces.drafts import call_payload, fitting, outcome
from projections.traces.messages import (
    INSTRUCTING,
    MODEL,
    USER,
    Message,
    Part,
    message_payload,
    role_word,
)


class Turn(NamedTuple):
    """A message.

    Attributes:
        turn_id: what tells it from the others of its conversation.
        at_ms: when it was written, since the epoch.
        message: it.
        extra: what else the payload of its words holds.
        record: what it is instead, when it is no message: an event `record.imported`.
    """

    turn_id: str
    at_ms: int
    message: Message
    extra: Mapping[str, Any] = MappingProxyType({})
    record: Any = None


class Talk(NamedTuple):
    """What the messages of a conversation share.

    Attributes:
        form: name of the format; ids are made of it.
        session_id: of their events.
        user_id: the person concerned; None: nobody.
        agent_id: who answers.
    """

    form: str
    session_id: str
    user_id: str | None
    agent_id: str = MODEL


def conversation(talk: Talk, turns: Iterable[Turn], given: Given) -> Iterator[Mapped]:
    """The events of a conversation, in the order of time."""
    thread = _Thread(talk._replace(user_id=talk.user_id or given.user_id))
    for turn in sorted(turns, key=lambda turn: turn.at_ms):
        yield from thread.events(turn)


class _Thread:
    """A conversation so far, as far as the next message may answer it."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._at_ms = -1
        self._last: str | None = None
        self._answer: str | None = None
        self._call: str | None = None
        self._calls: dict[str, tuple[str, str | None]] = {}

    def events(self, turn: Turn) -> Iterator[Mapped]:
        message = turn.message
        if turn.record is not None:
            agent_id = self._talk.form
            yield self._event(
                turn, "record", "record.imported", agent_id=agent_id, payload=turn.record
            )
            return
        words = tuple(part for part in message.parts if part.kind in ("text", "media"))
        for number, part in enumerate(message.parts):
            if part.kind == "thought":
                yield self._event(
                    turn, f"thought.{number}", "agent.thought", payload={"text": part.text}
                )
        if any(part.text.strip() or part.kind == "media" for part in words):
            yield self._words(turn, message._replace(parts=words))
        for number, part in enumerate(message.parts):
            if part.kind == "call":
                yield self._called(turn, part, number)
            elif part.kind == "result":
                yield self._returned(turn, part, number)

    def _words(self, turn: Turn, message: Message) -> Mapped:
        role = message.role
        if role == USER:
            agent, parent = message.name or self._talk.user_id or USER, self._answer
        elif role == MODEL:
            agent, parent = message.name or self._talk.agent_id, self._last
        else:
            agent, parent = message.name or role, None if role in INSTRUCTING else self._last
        event = self._event(
            turn,
            "words",
            f"message.{role_word(role)}",
            agent_id=agent,
            parent_event_id=parent,
            payload={**message_payload(message), **turn.extra},
        )
        if role == MODEL:
            self._answer = self._last
        return event

    def _called(self, turn: Turn, part: Part, number: int) -> Mapped:
        event = self._event(
            turn, f"call.{number}", "tool.call", tool_name=part.name, payload=call_payload(part)
        )
        self._call = self._last
        if part.call_id and self._last:
            self._calls[part.call_id] = self._last, part.name
        return event

    def _returned(self, turn: Turn, part: Part, number: int) -> Mapped:
        call, name = self._calls.get(part.call_id or "", (self._call, None))
        return self._event(
            turn,
            f"result.{number}",
            "tool.result",
            agent_id="tool",
            tool_name=part.name or name,
            status="failed" if part.failed else "completed",
            parent_event_id=call or self._last,
            payload=outcome(part),
        )

    def _event(self, turn: Turn, part: str, event_type: str, **fields: Any) -> Mapped:
        talk = self._talk
        self._at_ms = max(turn.at_ms, self._at_ms + 1)
        envelope = {
            "event_id": derived_event_id(talk.form, talk.session_id, turn.turn_id, part),
            "event_type": event_type,
            "occurred_at": timestamp_text(self._at_ms),
            "session_id": talk.session_id,
            "trace_id": talk.session_id,
            "agent_id": talk.agent_id,
            "user_id": talk.user_id,
            "parent_event_id": self._last,
            **fields,
        }
        envelope["payload"] = fitting(envelope["payload"])
        self._last = str(envelope["event_id"])
        return Mapped({name: value for name, value in envelope.items() if value is not None})
