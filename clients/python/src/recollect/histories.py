"""Histories: what a framework keeps in order, as events of a session, read back by their ids.

The id of an event says where in its history it stands: it is derived from session, user, name of
the history and its number, the *place*. So the ledger, which is never behind itself, tells what is
at a place; the first free place is the end; of two who write at the end one is refused (409), and
takes the next. Places have no gaps, as nobody writes before the place below is taken.

What is added together is written under ids of its own first, and named by the event at the place,
which comes last: all of it is in the history, or nothing. Events never change: each is read once.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic_core import from_json

from recollect.async_memory import AsyncMemory
from recollect.calls import Call, Plan, exchange, model_reader
from recollect.errors import EventConflict, NotFound, api_error
from recollect.events import moment_text, new_event_id, now_ns
from recollect.memory import Memory
from recollect.models import BatchAccepted
from recollect.sessions import Session

AnyMemory: TypeAlias = "Memory | AsyncMemory"
Stored: TypeAlias = Mapping[str, Any]
"""An event as the ledger has it."""
T = TypeVar("T")

BESIDE: Final = "history"
"""Field of a payload for what the history needs and the memory does not read."""
_WITH: Final = "with"
_NAMESPACE: Final = uuid.UUID("0b8f6c1e-6f6e-5d0c-9a4e-3a6c7d0f2b11")
_NS_PER_MS: Final = 1_000_000


class Draft(NamedTuple):
    """An event to be added.

    Attributes:
        event_type: of the event.
        payload: of the event; an object.
        agent: who acts.
        event_id: unless it comes to stand at a place.
        trace: that it belongs to; default the session's.
        beside: what the history needs to know of it.
    """

    event_type: str
    payload: Mapping[str, Any] | None
    agent: str
    event_id: str
    parent: str | None = None
    tool: str | None = None
    status: str | None = None
    trace: str | None = None
    beside: Mapping[str, Any] = {}


class History:
    """Events of a session in the order in which they were added.

    Args:
        memory: that writes and reads.
        session: in which they happen.
        name: of the history, of which a session may have several.
    """

    def __init__(self, memory: AnyMemory, session: Session, name: str) -> None:
        self._memory = memory
        self.session = session
        self._name = name
        self._taken = 0
        self._places: dict[int, Stored] = {}
        self._events: dict[str, Stored] = {}

    def end(self) -> Plan[int]:
        """The first free place. One read if nobody else has added since, else about 2 log2 n."""
        taken, step = self._taken - 1, 1
        while (yield from self.read(taken + step)) is not None:
            taken, step = taken + step, step * 2
        free = taken + step
        while free - taken > 1:
            middle = (free + taken) // 2
            if (yield from self.read(middle)) is None:
                free = middle
            else:
                taken = middle
        self._taken = max(self._taken, free)
        return free

    def read(self, place: int) -> Plan[Stored | None]:
        """The event at a place; None: it is free."""
        if place not in self._places:
            event = yield from self._event(self._id(place))
            if event is None:
                return None
            self._places[place] = event
        return self._places[place]

    def at(self, place: int) -> Plan[Stored]:
        """The event at a place that is taken."""
        event = yield from self.read(place)
        assert event is not None, place
        return event

    def events(self, place: int) -> Plan[list[Stored]]:
        """All events that were added together with the one at the place, in order."""
        last = yield from self.at(place)
        before = []
        for event_id in added_with(last):
            if event_id not in self._events:
                event = yield from self._event(event_id)
                if event is None:  # erased since
                    continue
                self._events[event_id] = event
            before.append(self._events[event_id])
        return [*before, last]

    def likely_end(self) -> Plan[int]:
        """Where to add next, without asking where that is known; `add` tells if it is wrong."""
        if self._taken:
            return self._taken
        return (yield from self.end())

    def append(self, drafts: Sequence[Draft], place: int) -> Plan[None]:
        """Add drafts together, at the place or at the first free one above it.

        Raises:
            ApiError: the API refuses one of them: `errors` names field and rule.
        """
        begin_ns = yield from self._begin_ns()
        yield from self._add_before(drafts[:-1], begin_ns)
        while not (yield from self.add(drafts, place, begin_ns)):
            place = yield from self.end()
            begin_ns = yield from self._begin_ns()

    def add(self, drafts: Sequence[Draft], place: int, begin_ns: int | None = None) -> Plan[bool]:
        """Write the last draft at the place, naming the others; False: the place is taken.

        The very same event by another client counts as this one: what must not be done twice for
        one event says who did it.

        Raises:
            EventConflict: it is taken by something that this client may not see.
            ApiError: the API refuses it: `errors` names field and rule.
        """
        *before, last = drafts
        begin_ns = begin_ns or (yield from self._begin_ns())
        names = {_WITH: [draft.event_id for draft in before]} if before else {}
        last = last._replace(event_id=self._id(place), beside={**last.beside, **names})
        body = self._json(last, begin_ns + len(before) * _NS_PER_MS)
        call: Call[dict[str, Any]] = Call("POST", "/v1/events", from_json, body=body)
        try:
            accepted = yield from exchange(call, is_repeatable=True)
        except EventConflict:
            if (yield from self.read(place)) is None:
                raise
            return False
        self._memory.note_accepted(self.session.id, accepted["global_position"])
        self._places[place] = from_json(body)
        self._taken = max(self._taken, place + 1)
        return True

    def _add_before(self, drafts: Sequence[Draft], begin_ns: int) -> Plan[None]:
        for start in range(0, len(drafts), _AT_ONCE):
            part = [
                self._json(draft, begin_ns + (start + number) * _NS_PER_MS)
                for number, draft in enumerate(drafts[start : start + _AT_ONCE])
            ]
            body = b'{"events":[' + b",".join(part) + b"]}"
            call = Call("POST", "/v1/events/batch", model_reader(BatchAccepted), body=body)
            accepted = yield from exchange(call, is_repeatable=True)
            for event, result in zip(part, accepted.results, strict=True):
                if result.error is not None:
                    raise api_error(result.error)
                stored = from_json(event)
                self._events[stored["event_id"]] = stored
                self._memory.note_accepted(self.session.id, result.global_position)

    def _begin_ns(self) -> Plan[int]:
        """When the next may have happened: now, and after what is there. ns since the epoch.

        What is added together is a millisecond apart, as times are what orders a session.
        """
        begin_ns = now_ns()
        if self._taken:
            last_ms = round(happened_at((yield from self.at(self._taken - 1))).timestamp() * 1000)
            begin_ns = max(begin_ns, (last_ms + 1) * _NS_PER_MS)
        return begin_ns

    def _event(self, event_id: str) -> Plan[Stored | None]:
        query = {"record_access": False, "user_id": self.session.user}
        told = {name: value for name, value in query.items() if value is not None}
        path = f"/v1/events/{quote(event_id, safe='')}"
        try:
            call: Call[Stored] = Call("GET", path, from_json, query=told)
            return (yield from exchange(call, is_repeatable=True))
        except NotFound:
            return None

    def _id(self, place: int) -> str:
        parts = (self.session.id, self.session.user or "", self._name, str(place))
        return str(uuid.uuid5(_NAMESPACE, "\x1f".join(parts)))

    def _json(self, draft: Draft, at_ns: int) -> bytes:
        payload = draft.payload
        if draft.beside:
            payload = {**(payload or {}), BESIDE: dict(draft.beside)}
        envelope = {
            "event_id": draft.event_id,
            "event_type": draft.event_type,
            "occurred_at": moment_text(at_ns),
            "session_id": self.session.id,
            "trace_id": draft.trace or self.session.trace,
            "agent_id": draft.agent,
            "user_id": self.session.user,
            "parent_event_id": draft.parent,
            "tool_name": draft.tool,
            "status": draft.status,
            "payload": payload,
        }
        given = {name: value for name, value in envelope.items() if value is not None}
        # What has no form in JSON could not be given back as it was: a TypeError or ValueError.
        return json.dumps(given, allow_nan=False, ensure_ascii=False).encode()


_AT_ONCE: Final = 100


def added_with(event: Stored) -> Sequence[str]:
    """Ids of the events that were added together with that at a place, before it."""
    ids: Sequence[str] = beside(event).get(_WITH, ())
    return ids


def happened_at(event: Stored) -> datetime:
    """When it happened."""
    return datetime.fromisoformat(event["occurred_at"].replace("Z", "+00:00"))


def beside(event: Stored) -> Mapping[str, Any]:
    """What the history needs to know of an event."""
    payload = event.get("payload")
    told = payload.get(BESIDE) if isinstance(payload, Mapping) else None
    return told if isinstance(told, Mapping) else {}


def plain(event: Stored) -> dict[str, Any]:
    """The payload without that."""
    return {name: value for name, value in event["payload"].items() if name != BESIDE}


def new_id() -> str:
    """For an event that stands at no place."""
    return new_event_id(now_ns())


def carry_out(memory: AnyMemory, plan: Plan[T]) -> T:
    """Carry a plan out, for code that blocks.

    Raises:
        TypeError: the memory is one for code that awaits.
    """
    if isinstance(memory, AsyncMemory):
        plan.close()
        raise TypeError("code that blocks needs a Memory, not an AsyncMemory")
    return memory.carry_out(plan)


def awaited(memory: AnyMemory, plan: Plan[T]) -> Awaitable[T]:
    """Carry a plan out, for code that awaits; of a memory that blocks in a thread."""
    if isinstance(memory, AsyncMemory):
        return memory.carry_out(plan)
    return asyncio.to_thread(memory.carry_out, plan)
