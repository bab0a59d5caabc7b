"""Chat trajectories as envelopes, a pure mapping, one event a message; and those of SWE-agent.

A trajectory is a conversation in the OpenAI chat shape: an object whose `messages` (tau-bench
calls it `traj`) is a list of messages with `role`, `content`, `tool_calls`, `tool_call_id`,
`name`; a bare list of messages is one too. `docs/reference/import.md` is the table.

Nothing here depends on the file, the place in it or the clock: the same conversation gives the
same bytes wherever it comes from, so that importing it twice adds nothing.

A trajectory file of SWE-agent (`.traj`) is one agent's run on one issue. Shape
(SWE-agent/SWE-agent, `sweagent/types.py`): `trajectory[]` of `thought`, `action`, `observation`,
`execution_time` (seconds); `history[]` of messages with `role`, `content`, `is_demo`; `info` with
`exit_status`, `submission`; `environment`. A file holds no time of the day. The run begins where
the chat import would let it begin, and each step takes STEP_MS and its `execution_time`: durations
are kept, the day is invented, and said to be. What was asked is told by the history, what was done
by the trajectory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from pipelines.operations.formats.mapped import (
    Fields,
    Given,
    Talk,
    Told,
    Turn,
    Unmapped,
    conversation,
    digest_of,
)
from projections.errors import InvalidInput
from projections.events import canonical_json, derived_event_id, timestamp_ms, timestamp_text
from projections.traces.messages import (
    INSTRUCTING,
    MODEL,
    USER,
    Message,
    Part,
    message_of,
    returned,
)

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


SWE_AGENT: Final = "swe-agent"
MAX_STEP_S: Final = 86_400
_SETTINGS: Final = ("replay_config", "environment", "environment_name", "attempts", "attempt_data")
_OF_A_STEP: Final = ("response", "state", "query", "extra_info", "tool_calls", "tool_call_ids")
"""What a step was made from: the thought, the action and the next observation say the same."""
_OF_THE_RUN: Final = ("model_stats", "swe_agent_hash", "swe_agent_version", "swe_rex_version")


def is_swe_agent(record: Any) -> bool:
    """Whether it is a trajectory."""
    return isinstance(record, dict) and isinstance(record.get("trajectory"), list)


def swe_agent_events(record: Any, given: Given) -> Iterator[Told]:
    """The events of one run.

    Raises:
        InvalidInput: a step is none.
    """
    fields = Fields(record)
    steps, history = fields.list("trajectory"), fields.list("history")
    digest = digest_of([steps, history])
    session = f"{SWE_AGENT}-{fields.text('environment') or 'run'}-{digest[:12]}"
    at_ms = invented_begin_ms(digest)
    yield Unmapped("(times)", "the format holds no time of the day: it is invented")
    turns: list[Turn] = []
    left_out: list[Told] = []
    for number, raw in enumerate(history):
        if not isinstance(raw, dict):
            continue
        if raw.get("is_demo"):
            left_out.append(Unmapped("history[].is_demo", "an example, which did not happen"))
            continue
        if raw.get("role") == MODEL:
            break  # from here on the trajectory tells
        if raw.get("role") in (*INSTRUCTING, USER):
            turns.append(Turn(f"history.{number}", at_ms, _asked(raw)))
            at_ms += STEP_MS
    for number, raw in enumerate(steps):
        step = Fields(raw, f"trajectory[{number}].")
        turns.append(Turn(f"step.{number}", at_ms, _done(step)))
        at_ms += STEP_MS + _lasts_ms(step)
        turns.append(Turn(f"seen.{number}", at_ms, _seen(step)))
        left_out += step.unread(_OF_A_STEP)
    info = fields.inner("info")
    ending = {name: info.get(name) for name in ("exit_status", "submission") if name in info}
    if ending:
        words = Part("text", f"The run ended: {ending.get('exit_status') or 'submitted'}.")
        turns.append(Turn("end", at_ms + STEP_MS, Message(MODEL, (words,)), ending))
    yield from conversation(Talk(SWE_AGENT, session, None, "swe-agent"), turns, given)
    yield from left_out
    yield from info.unread(_OF_THE_RUN)
    yield from fields.unread(_SETTINGS)


def _lasts_ms(step: Fields) -> int:
    seconds = step.get("execution_time") or 0
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_STEP_S:
        raise InvalidInput(((step.place("execution_time"), f"seconds, 0 to {MAX_STEP_S:,}"),))
    return int(1_000 * seconds)


def _asked(raw: dict[str, Any]) -> Message:
    return message_of({"role": raw.get("role"), "content": raw.get("content") or ""}, USER)


def _done(step: Fields) -> Message:
    """What the agent thought, and did: the tool is the first word of the action."""
    thought, action = step.text("thought"), step.text("action")
    parts = [Part("thought", thought)] if thought else []
    if action and (words := action.split()):
        parts.append(Part("call", name=words[0], value={"command": action}))
    return Message(MODEL, tuple(parts))


def _seen(step: Fields) -> Message:
    """What the environment answered, which is the answer to the call of the step."""
    seen = step.get("observation")
    if seen is None:
        return Message("tool", ())
    return Message("tool", (returned(seen, name=None, call_id=None),))
