"""Chat trajectories as envelopes: a pure mapping, one event for each message.

A trajectory is a conversation in the OpenAI chat shape: an object whose `messages` (tau-bench
calls it `traj`) is a list of messages with `role`, `content`, `tool_calls`, `tool_call_id`,
`name`; a bare list of messages is one too. `docs/reference/import.md` is the table.

Nothing here depends on the file, the place in it or the clock: the same conversation gives the
same bytes wherever it comes from, so that importing it twice adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from projections.errors import InvalidInput
from projections.events import canonical_json, derived_event_id, timestamp_ms, timestamp_text

BASE_MS = timestamp_ms("2024-01-01T00:00:00Z")
"""Conversations begin within the year after this moment."""
SPREAD_MINUTES = 365 * 24 * 60
"""A conversation begins this many minutes after BASE_MS at most; its identity says which."""
STEP_MS = 15_000
"""From one message to the next."""

MESSAGES = ("messages", "traj")
IDENTITY = ("session_id", "conversation_id", "id")
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class Mapped(NamedTuple):
    """What became of one message: an envelope, or the rules it broke."""

    place: int
    envelope: dict[str, Any] | None
    error: InvalidInput | None = None


class Conversation(NamedTuple):
    """What the events of a conversation share."""

    session_id: str
    identity: str
    agent_id: str
    user_id: str | None
    begins_ms: int


def conversation_events(trajectory: Any) -> Iterator[Mapped]:
    """Envelopes of a trajectory's messages, in their order.

    A message that breaks a rule is yielded as its error and the others go on; what follows it is
    answered to the message before it.

    Raises:
        InvalidInput: when `trajectory` is no conversation at all.
    """
    fields, messages = _parts(trajectory)
    conversation = _conversation(fields, messages)
    thread = _Thread()
    for index, message in enumerate(messages):
        errors = _broken_rules(message, f"messages[{index}]")
        if errors:
            yield Mapped(index, None, InvalidInput(errors))
            continue
        event_id = derived_event_id("chat", conversation.identity, str(index))
        yield Mapped(
            index, _envelope(conversation, message, index=index, event_id=event_id, thread=thread)
        )
        thread.add(event_id, message)


def _parts(trajectory: Any) -> tuple[Mapping[str, Any], Sequence[Any]]:
    """The fields of the conversation as such, and its messages."""
    if isinstance(trajectory, list):
        return {}, trajectory
    if not isinstance(trajectory, Mapping):
        raise InvalidInput((("(conversation)", "an object or a list of messages"),))
    for name in MESSAGES:
        if name in trajectory:
            messages = trajectory[name]
            if not isinstance(messages, list):
                raise InvalidInput(((name, "a list of messages"),))
            return trajectory, messages
    raise InvalidInput((("messages", "required: a list of messages (`traj` will do)"),))


def _conversation(fields: Mapping[str, Any], messages: Sequence[Any]) -> Conversation:
    """Identity: the producer's id, else task, trial and a digest of the messages.

    The digest is needed because task ids repeat: over trials, over models and over data sets.
    """
    given = next((fields[name] for name in IDENTITY if fields.get(name) not in (None, "")), None)
    if given is not None:
        if not isinstance(given, str | int) or isinstance(given, bool):
            raise InvalidInput((("id", "a string or an integer"),))
        session_id = str(given)
        identity = f"id:{session_id}"
    else:
        try:
            content = canonical_json(messages)
        except ValueError as error:
            raise InvalidInput((("messages", str(error)),)) from error
        digest = blake2b(content, digest_size=16).hexdigest()
        labels = [
            f"{name.removesuffix('_id')}-{fields[name]}"
            for name in ("task_id", "trial")
            if isinstance(fields.get(name), str | int)
        ]
        session_id = "-".join(["chat", *labels, digest[:12]])
        identity = "-".join([*labels, digest])
    agent = fields.get("agent_id") or fields.get("agent")
    return Conversation(
        session_id=session_id,
        identity=identity,
        agent_id=agent if isinstance(agent, str) else "assistant",
        user_id=_user_id(fields),
        begins_ms=invented_begin_ms(identity),
    )


def invented_begin_ms(identity: str) -> int:
    """When a conversation begins that does not say it: its identity decides."""
    minutes = int.from_bytes(blake2b(identity.encode("utf-8", "replace"), digest_size=8).digest())
    return BASE_MS + minutes % SPREAD_MINUTES * 60_000


def _user_id(fields: Mapping[str, Any]) -> str | None:
    """The person concerned: the trajectory's `user_id`, else tau-bench's `info.task.user_id`."""
    user: Any = fields.get("user_id")
    if user is None:
        user = fields
        for name in ("info", "task", "user_id"):
            user = user.get(name) if isinstance(user, Mapping) else None
    return user if isinstance(user, str) and user else None


class _Thread:
    """What was said so far, as far as the next message may answer it."""

    def __init__(self) -> None:
        self.last: str | None = None
        self.assistant: str | None = None
        self.call: str | None = None
        self.calls: dict[str, tuple[str, str | None]] = {}  # call id → event, tool

    def parent(self, message: Mapping[str, Any]) -> str | None:
        """The event that `message` answers."""
        match message["role"]:
            case "system" | "developer":
                return None
            case "user":
                return self.assistant
            case "assistant":
                return self.last
            case _:
                call = self.calls.get(message.get("tool_call_id") or "")
                return call[0] if call else self.call or self.last

    def tool(self, message: Mapping[str, Any]) -> str | None:
        """The tool a result comes from: as the message says, else as its call said."""
        name = message.get("name")
        if name:
            return str(name)
        call = self.calls.get(message.get("tool_call_id") or "")
        return call[1] if call else None

    def add(self, event_id: str, message: Mapping[str, Any]) -> None:
        self.last = event_id
        if message["role"] == "assistant":
            self.assistant = event_id
            calls = tool_calls(message)
            if calls:
                self.call = event_id
            # Ids repeat within a file and, in some models, within a conversation: the newest
            # call of that id is the one a result answers.
            for call_id, name in calls:
                if call_id:
                    self.calls[call_id] = (event_id, name)


def tool_calls(message: Mapping[str, Any]) -> list[tuple[str | None, str | None]]:
    """(call id, tool name) of each call in an assistant message; `function_call` has no id."""
    calls: list[tuple[str | None, str | None]] = []
    for call in message.get("tool_calls") or ():
        calls.append((call.get("id"), (call.get("function") or {}).get("name")))
    if not calls and message.get("function_call"):
        calls.append((None, message["function_call"].get("name")))
    return calls


def is_error(content: Any) -> bool:
    """Whether a tool's result says that the call failed.

    Text that begins with `error` (any case), or a JSON object with a true `error`, `is_error` or
    `isError`, or a `status` of error or failed.
    """
    if isinstance(content, str):
        text = content.lstrip()
        if text[:5].lower() == "error":
            return True
        if not text.startswith("{"):
            return False
        try:
            content = orjson.loads(text)
        except orjson.JSONDecodeError:
            return False
    if not isinstance(content, Mapping):
        return False
    if any(content.get(name) for name in ("error", "is_error", "isError")):
        return True
    return content.get("status") in ("error", "failed")


def _envelope(
    conversation: Conversation,
    message: Mapping[str, Any],
    *,
    index: int,
    event_id: str,
    thread: _Thread,
) -> dict[str, Any]:
    envelope: dict[str, Any] = {
        "event_id": event_id,
        "occurred_at": timestamp_text(conversation.begins_ms + index * STEP_MS),
        "session_id": conversation.session_id,
        "trace_id": conversation.session_id,
        "payload": dict(message),
    }
    match message["role"]:
        case "assistant":
            calls = tool_calls(message)
            envelope["event_type"] = "tool.call" if calls else "message.assistant"
            envelope["agent_id"] = message.get("name") or conversation.agent_id
            tools = {name for _, name in calls}
            if len(tools) == 1:  # several tools in one message are told by the payload alone
                envelope["tool_name"] = tools.pop()
        case "tool" | "function":
            envelope["event_type"] = "tool.result"
            envelope["agent_id"] = "tool"
            envelope["tool_name"] = thread.tool(message)
            envelope["status"] = "failed" if is_error(message.get("content")) else "completed"
        case role:
            envelope["event_type"] = f"message.{role}"
            envelope["agent_id"] = role
    envelope["parent_event_id"] = thread.parent(message)
    envelope["user_id"] = conversation.user_id
    return {name: value for name, value in envelope.items() if value is not None}


def _broken_rules(message: Any, field: str) -> tuple[tuple[str, str], ...]:
    """Pairs of (field, rule) for what the mapping relies on; the envelope's own rules follow."""
    if not isinstance(message, Mapping):
        return ((field, "an object"),)
    errors: list[tuple[str, str]] = []
    if message.get("role") not in ROLES:
        errors.append((f"{field}.role", f"one of {', '.join(ROLES)}"))
    for name in ("tool_call_id", "name"):
        if not isinstance(message.get(name), str | None):
            errors.append((f"{field}.{name}", "a string"))
    calls = message.get("tool_calls")
    if not isinstance(calls, list | None):
        errors.append((f"{field}.tool_calls", "a list of calls"))
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            errors.append((f"{field}.tool_calls[{place}].function.name", "a string"))
        elif not isinstance(call.get("id"), str | None):
            errors.append((f"{field}.tool_calls[{place}].id", "a string"))
    function_call = message.get("function_call")
    if function_call is not None and (
        not isinstance(function_call, Mapping) or not isinstance(function_call.get("name"), str)
    ):
        errors.append((f"{field}.function_call.name", "a string"))
    return tuple(errors)
