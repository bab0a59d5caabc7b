"""Conversations: what a framework calls items or messages, as events that any agent's memory has.

An item is said in parts: words, thoughts, calls of tools, what these returned. Each part is an
event of the session, caused by what came before it, a result by its call; so the memory is the same
whoever keeps the conversation. The item itself rides on the last of its parts, unless that is it.

Nothing is taken back from a ledger. That an item was popped, or all of them cleared, is an event of
its own (a tombstone), behind which the conversation is read without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from recollect.calls import Plan
from recollect.histories import (
    BESIDE,
    AnyMemory,
    Draft,
    History,
    Stored,
    beside,
    new_id,
    plain,
)

CALL: Final = "tool.call"
RESULT: Final = "tool.result"
POPPED: Final = "conversation.popped"
CLEARED: Final = "conversation.cleared"
LOOK_BACK: Final = 100
"""Events in which the call of a result is looked for."""
_ITEMS: Final = "items"
_BY: Final = "by"
_OTHER: Final = "other"


class Part(NamedTuple):
    """What becomes an event.

    Attributes:
        kind: `user`, `assistant`, `system`, `developer`, or anything else, which an agent does.
        event_type: of the event.
        payload: of the event.
        call_id: of a call and of its result: by which they belong together.
        holds: whether an item may ride on it unread: only a chat message is read no further.
    """

    kind: str
    event_type: str
    payload: Mapping[str, Any]
    tool: str | None = None
    status: str | None = None
    call_id: str | None = None
    holds: bool = True

    def is_of_conversation(self) -> bool:
        """Whether it is caused by what was said before."""
        return self.kind != _OTHER


def said(role: str, content: Any, **more: Any) -> Part:
    """Words: a text, or a list of parts as chat messages have it."""
    word = role if role.isascii() and role.isalpha() and role.islower() else "other"
    return Part(role, f"message.{word}", {**more, "role": role, "content": content})


def thought(text: str) -> Part:
    """An agent's words to itself."""
    return Part("thought", "agent.thought", {"text": text}, holds=False)


def called(tool: str, arguments: Any, call_id: str) -> Part:
    """A tool is called, with an object or its JSON."""
    function = {"name": tool, "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    payload = {"role": "assistant", "tool_calls": [call]}
    return Part("call", CALL, payload, tool=tool, call_id=call_id)


def returned(tool: str | None, value: Any, call_id: str, *, is_failed: bool = False) -> Part:
    """What a tool returned: words, or JSON, which may say itself that it is an error."""
    read = as_json(value)
    told = isinstance(read, Mapping) and (read.get("error") or read.get("is_error") is True)
    status = "failed" if is_failed or told else "completed"
    payload = {"role": "tool", "tool_call_id": call_id, "content": value}
    named = {} if tool is None else {"name": tool}
    return Part("result", RESULT, {**named, **payload}, tool=tool, status=status, call_id=call_id)


def happened(event_type: str, payload: Mapping[str, Any]) -> Part:
    """Anything else."""
    return Part(_OTHER, event_type, payload, holds=False)


def message_parts(message: Mapping[str, Any]) -> list[Part]:
    """The parts of a message as chat completions have it; none: it is no such message."""
    role, content, calls = (message.get(name) for name in ("role", "content", "tool_calls"))
    if not isinstance(role, str) or not ("content" in message or calls):
        return []
    if role == "tool":
        is_failed = message.get("status") == "error" or message.get("is_error") is True
        call_id = str(message.get("tool_call_id"))
        return [returned(message.get("name"), content, call_id, is_failed=is_failed)]
    if not calls:
        return [said(**{"content": "", **message})]
    try:
        functions = [(call["id"], call["function"]) for call in calls]
        parts = [called(each["name"], each["arguments"], call_id) for call_id, each in functions]
    except (KeyError, TypeError):
        return []
    return [said(role, content), *parts] if content else parts


def as_json(value: Any) -> Any:
    """The JSON that a text holds; anything else as it is."""
    try:
        return from_json(value) if isinstance(value, str) else value
    except ValueError:
        return value


class Item(NamedTuple):
    """An item of a framework, as JSON, and how it is said."""

    value: Any
    parts: Sequence[Part]


class Standing(NamedTuple):
    """An item that was not taken back, and the event that it rides on."""

    value: Any
    event: Stored


class Conversation:
    """Items in the order in which they were said.

    Args:
        memory: that keeps them.
        session_id: the conversation's.
        agent: who acts; default the memory's.
        user: the person concerned, likewise; part of what the conversation is found by.
    """

    def __init__(
        self,
        memory: AnyMemory,
        session_id: str,
        *,
        agent: str | None = None,
        user: str | None = None,
    ) -> None:
        self.session = memory.session(session_id, agent=agent, user=user)
        self._history = History(memory, self.session, "conversation")

    def add(self, items: Sequence[Item]) -> Plan[None]:
        """Add items together, in order.

        Raises:
            ApiError: the API refuses one: an event is too large, or no valid JSON.
        """
        if not items:
            return
        place = yield from self._history.likely_end()
        latest = yield from self._standing(place, 1)
        before = latest[0].event if latest else None
        drafts = yield from linked(self._history, place, laid_out(items), before)
        yield from self._history.append(drafts, place)

    def items(self, most: int | None = None) -> Plan[list[Any]]:
        """The latest items, the earliest of them first; None: all."""
        end = yield from self._history.end()
        standing = yield from self._standing(end, most)
        return [each.value for each in reversed(standing)]

    def pop(self) -> Plan[Any | None]:
        """Take the latest item back; what it was. None: there is none."""
        while True:
            end = yield from self._history.end()
            latest = yield from self._standing(end, 1)
            if not latest:
                return None
            words = "the last item of the conversation was taken back"
            draft = self._tombstone(POPPED, words, latest[0].event["event_id"])
            if (yield from self._history.add([draft], end)):
                return latest[0].value

    def clear(self) -> Plan[None]:
        """Take all items back."""
        end = yield from self._history.end()
        latest = yield from self._standing(end, 1)
        if latest:
            words = "the conversation was cleared"
            draft = self._tombstone(CLEARED, words, latest[0].event["event_id"])
            yield from self._history.append([draft], end)

    def _tombstone(self, event_type: str, words: str, parent: str) -> Draft:
        # Two that pop at once are two, though they do the same in the same millisecond. The id is
        # where the memory looks for no words.
        payload = {"text": words, "call_id": new_id()}
        return Draft(event_type, payload, self.session.agent, new_id(), parent=parent)

    def _standing(self, end: int, most: int | None) -> Plan[list[Standing]]:
        """What was said before a place and not taken back, the latest first."""
        standing: list[Standing] = []
        popped, place = 0, end
        while place and (most is None or len(standing) < most):
            place -= 1
            last = yield from self._history.at(place)
            if last["event_type"] == CLEARED:
                break
            if last["event_type"] == POPPED:
                popped += 1
                continue
            events = yield from self._history.events(place)
            rows = [Standing(value, event) for event in events for value in _values(event)]
            left = rows[: len(rows) - popped] if popped < len(rows) else []
            popped = max(popped - len(rows), 0)
            standing.extend(reversed(left))
        return standing[:most]


def _values(event: Stored) -> list[Any]:
    """The items that ride on an event."""
    told = beside(event)
    if _ITEMS in told:
        return deepcopy(list(told[_ITEMS]))  # theirs to change
    return [deepcopy(plain(event))]


class Kept:
    """What frameworks keep a conversation in.

    Args:
        session_id: of the conversation.
        memory: a `Memory` or an `AsyncMemory`.
        agent: who acts; default the memory's.
        user: the person concerned; default the memory's.
    """

    def __init__(
        self,
        session_id: str,
        memory: AnyMemory,
        *,
        agent: str | None = None,
        user: str | None = None,
    ) -> None:
        self._memory = memory
        self._conversation = Conversation(memory, session_id, agent=agent, user=user)


def laid_out(items: Sequence[Item]) -> list[tuple[Part, dict[str, Any]]]:
    """The parts of items, each with what rides on it.

    What has no words, or ends in a thought, rides on what comes next.
    """
    rows: list[tuple[Part, dict[str, Any]]] = []
    waiting: list[Any] = []
    for value, parts in items:
        rows.extend((part, {_ITEMS: []}) for part in parts)
        waiting.append(value)
        if not parts:
            continue
        part = parts[-1]
        is_item = waiting == [part.payload] and BESIDE not in part.payload
        if is_item or part.holds:
            # Two that say the same at once have said it twice.
            by = {_BY: new_id()} if part.holds else {}
            rows[-1] = (part, by if is_item else {_ITEMS: waiting, **by})
            waiting = []
    if waiting:
        left = happened("conversation.item", {"text": "more of the conversation"})
        rows.append((left, {_ITEMS: waiting}))
    return rows


def linked(
    history: History,
    place: int,
    rows: Sequence[tuple[Part, Mapping[str, Any]]],
    latest: Stored | None,
) -> Plan[list[Draft]]:
    """Drafts of parts, each caused by what came before it, a result by its call.

    Args:
        history: that they are added to.
        place: where.
        rows: parts, and what rides on each.
        latest: what came before them.
    """
    drafts: list[Draft] = []
    calls: dict[str | None, _Call] = {}
    cause = _cause_of_next(latest)
    for part, rides in rows:
        call = None
        if part.event_type == RESULT:
            call = calls.get(part.call_id) or (yield from _call(history, place, part.call_id))
        draft = Draft(
            part.event_type,
            part.payload,
            history.session.actor(part.kind),
            new_id(),
            parent=cause if call is None else call.event_id,
            tool=part.tool or (None if call is None else call.tool),
            status=part.status,
            beside=rides,
        )
        drafts.append(draft)
        if part.event_type == CALL:  # which is not over before its result
            calls[part.call_id] = _Call(draft.event_id, part.tool)
        else:
            cause = draft.event_id
    return drafts


class _Call(NamedTuple):
    event_id: str
    tool: str | None


def _call(history: History, place: int, call_id: str | None) -> Plan[_Call | None]:
    """A call that was made before the place."""
    for earlier in range(place - 1, max(place - LOOK_BACK, 0) - 1, -1):
        for event in reversed((yield from history.events(earlier))):
            if event["event_type"] == CALL and event["payload"]["tool_calls"][0]["id"] == call_id:
                return _Call(event["event_id"], event.get("tool_name"))
    return None


def _cause_of_next(latest: Stored | None) -> str | None:
    if latest is None:
        return None
    name = "parent_event_id" if latest["event_type"] == CALL else "event_id"
    cause: str | None = latest.get(name)
    return cause
