"""SWE-agent: a trajectory file (`.traj`), one agent's run on one issue.

Shape (SWE-agent/SWE-agent, `sweagent/types.py`): `trajectory[]` of `thought`, `action`,
`observation`, `execution_time` (seconds); `history[]` of messages with `role`, `content`,
`is_demo`; `info` with `exit_status`, `submission`; `environment`.

A file holds no time of the day. The run begins where the chat import would let it begin, and each
step takes STEP_MS and its `execution_time`: durations are kept, the day is invented, and said to
be. What was asked is told by the history, what was done by the trajectory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pipelines.operations.formats.chat import STEP_MS, invented_begin_ms
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
from projections.traces.messages import (
    INSTRUCTING,
    MODEL,
    USER,
    Message,
    Part,
    message_of,
    returned,
)

FORM: Final = "swe-agent"
MAX_STEP_S: Final = 86_400
_SETTINGS: Final = ("replay_config", "environment", "environment_name", "attempts", "attempt_data")
_OF_A_STEP: Final = ("response", "state", "query", "extra_info", "tool_calls", "tool_call_ids")
"""What a step was made from: the thought, the action and the next observation say the same."""
_OF_THE_RUN: Final = ("model_stats", "swe_agent_hash", "swe_agent_version", "swe_rex_version")


def sniff(record: Any) -> bool:
    """Whether it is a trajectory."""
    return isinstance(record, dict) and isinstance(record.get("trajectory"), list)


def events(record: Any, given: Given) -> Iterator[Told]:
    """The events of one run.

    Raises:
        InvalidInput: a step is none.
    """
    fields = Fields(record)
    steps, history = fields.list("trajectory"), fields.list("history")
    digest = digest_of([steps, history])
    session = f"{FORM}-{fields.text('environment') or 'run'}-{digest[:12]}"
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
    yield from conversation(Talk(FORM, session, None, "swe-agent"), turns, given)
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
