"""What a mapper is given, what it gives back, and how a record is read so that nothing goes unsaid.

A mapper is a pure function of one record: the same record gives the same bytes, whatever stands
before it, so that a file may be imported twice, in halves or in another order.

A conversation whose messages have times of their own gives one event for each thing said or done:
`message.<role>` for the words of a message, `agent.thought` for its reasoning, and a `tool.call` or
`tool.result` for each call or result in it, with the payloads that traces have, too.

- Times are kept. What one message holds, and messages of one moment, are a millisecond apart, for
  events of one millisecond have no order.
- A parent is what was answered: of a user's message the last answer, of an answer what was said
  before it, of a call the words beside it, of a result its call.
- Ids are made of the format, the conversation, the message's id and its part, so a conversation
  that has grown adds what is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from projections.errors import InvalidInput
from projections.events import DEFAULT_TENANT, canonical_json, derived_event_id, timestamp_text
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

_MS_PER_S: Final = 1_000
_SECONDS_BELOW: Final = 100_000_000_000
"""Numbers below are seconds since the epoch (until the year 5138), and so on by thousands."""
_NUMBERS_BELOW: Final = 1e20
_TIME_RULE: Final = "a time: ISO 8601, or a number since the epoch"


class Given(NamedTuple):
    """What the command says of all records.

    Attributes:
        tenant: whose they become.
        user_id: of what names no user; None: nobody's.
        zone: of times that name none.
    """

    tenant: str = DEFAULT_TENANT
    user_id: str | None = None
    zone: tzinfo = UTC


class Mapped(NamedTuple):
    """An event of a record; `is_shared` and `own_id` as in `sources.Item`."""

    envelope: Mapping[str, Any]
    is_shared: bool = False
    own_id: str | None = None


class Unmapped(NamedTuple):
    """A part of a record that no event holds: where it is in it, and why."""

    field: str
    reason: str


Told = Mapped | Unmapped
MAX_PLACE_CHARACTERS: Final = 200
NOT_MAPPED: Final = "no event has a place for it"


class Fields:
    """The fields of an object; whoever asks for one maps it, and the others are told at the end.

    Args:
        raw: of the record.
        place: where it stands in the record, ending in a dot; empty for the record itself.

    Raises:
        InvalidInput: it is no object.
    """

    def __init__(self, raw: Any, place: str = "") -> None:
        if not isinstance(raw, Mapping):
            raise InvalidInput(((place.rstrip(".") or "(record)", "an object"),))
        self._raw = raw
        self._place = place
        self._read: set[str] = set()

    def place(self, name: str) -> str:
        """Where a field stands in the record."""
        return self._place + name

    def __contains__(self, name: str) -> bool:
        return self._raw.get(name) is not None

    def get(self, *names: str) -> Any:
        """The first of them that has a value."""
        self._read.update(names)
        return next((self._raw[n] for n in names if self._raw.get(n) not in (None, "")), None)

    def text(self, *names: str, required: bool = False) -> str | None:
        """As `get`, a text; a number is written out.

        Raises:
            InvalidInput: it is none, or is not there and required.
        """
        value = self.get(*names)
        if value is None and not required:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InvalidInput(((self.place(names[0]), "a text" + " (required)" * required),))
        return str(value)

    def ms(self, given: Given, *names: str, required: bool = False) -> int | None:
        """As `get`, a time: milliseconds since the epoch.

        Raises:
            InvalidInput: it is none, or is not there and required.
        """
        value = self.get(*names)
        if value is None and not required:
            return None
        try:
            return moment_ms(value, given.zone)
        except ValueError as error:
            raise InvalidInput(((self.place(names[0]), str(error)),)) from None

    def list(self, name: str) -> list[Any]:
        """A list, empty where there is none.

        Raises:
            InvalidInput: it is something else.
        """
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise InvalidInput(((self.place(name), "a list"),))
        return value

    def inner(self, name: str) -> Fields:
        """The fields of an object in it, none where it is not there or something else."""
        value = self.get(name)
        return Fields(value if isinstance(value, Mapping) else {}, f"{self._place}{name}.")

    def unread(self, but: Collection[str] = ()) -> Iterator[Unmapped]:
        """What has a value and nobody asked for; `but`: fields that tell nothing that happened."""
        for name in filter(lambda name: name not in but, self.others()):
            yield Unmapped(f"{self._place}{name}"[:MAX_PLACE_CHARACTERS], NOT_MAPPED)

    def others(self) -> dict[str, Any]:
        """What has a value, and nobody asked for."""
        return {
            str(name): value
            for name, value in self._raw.items()
            if name not in self._read and value not in (None, "", [], {})
        }


def moment_ms(value: Any, zone: tzinfo = UTC) -> int:
    """Milliseconds since the epoch of a time in any of the common ways to write one.

    A number is seconds, or, by its size, milliseconds, microseconds or nanoseconds since the epoch.
    A text is ISO 8601, or such a number; without a zone it is a time of `zone`.

    Raises:
        ValueError: it is none.
    """
    seconds = _seconds(value, zone) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ValueError(_TIME_RULE)
    if not 0 <= seconds < _NUMBERS_BELOW:  # what is no number fails this, too
        raise ValueError(_TIME_RULE)
    while seconds >= _SECONDS_BELOW:
        seconds /= _MS_PER_S
    return int(seconds * _MS_PER_S)


def _seconds(text: str, zone: tzinfo) -> float:
    """What a text says; at most the largest that is taken for seconds."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise ValueError(_TIME_RULE) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    try:
        seconds = moment.timestamp()
    except (OverflowError, ValueError):
        seconds = -1.0
    return seconds if seconds < _SECONDS_BELOW else -1.0


def digest_of(value: Any) -> str:
    """What tells a record without an id from every other: 32 hexadecimal digits.

    Raises:
        InvalidInput: it holds what JSON has not.
    """
    try:
        return blake2b(canonical_json(value), digest_size=16).hexdigest()
    except ValueError as error:
        raise InvalidInput((("(record)", str(error)),)) from None


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
