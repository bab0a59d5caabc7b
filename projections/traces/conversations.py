"""What was said in a call of a model, from whichever attributes tell it, and what of it is new.

Every call repeats the conversation so far. What stands before the last answer of the model was told
by the span of that answer; new is what stands behind it. That can be seen in one span alone, so
neither the order in which spans arrive nor the requests they arrive in matter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from projections.traces.messages import (
    INSTRUCTING,
    MODEL,
    Message,
    Part,
    is_plain,
    message_of,
    messages_in,
    parsed,
    plain_role,
    plain_words,
    value_digest,
    written_in,
)
from projections.traces.spans import INPUT, OUTPUT, Attributes, Occurrence, Span, said

_INPUTS: Final = ("langfuse.observation.input", "gen_ai.input.messages")
_OUTPUTS: Final = ("langfuse.observation.output", "gen_ai.output.messages")
_INDEXED_INPUTS: Final = ("gen_ai.prompt", "llm.input_messages", "llm.prompts")
_INDEXED_OUTPUTS: Final = ("gen_ai.completion", "llm.output_messages", "llm.choices")

_DETAILS: Final = "gen_ai.client.inference.operation.details"
_EVENT_CONTENT: Final = "gen_ai.event.content"
_EVENT_INPUTS: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_EVENT_OUTPUT: Final = "gen_ai.choice"
_EVENT_PROMPT: Final = "gen_ai.content.prompt"
_EVENT_COMPLETION: Final = "gen_ai.content.completion"
CONTENT_EVENTS: Final = frozenset(
    (_DETAILS, *_EVENT_INPUTS, _EVENT_OUTPUT, _EVENT_PROMPT, _EVENT_COMPLETION)
)
"""Events, of a span or in the log, that tell what was said."""


class NewMessage(NamedTuple):
    """A message that no earlier call has told.

    Attributes:
        message: it.
        repetition: how many equal messages stand before it; a second "yes" is another message.
    """

    message: Message
    repetition: int


class Conversation(NamedTuple):
    """What was said.

    Attributes:
        instructions: beside the messages.
        new: messages that were sent and not told before.
        calls: that results among them answer, by id.
        answers: what came back.
    """

    instructions: tuple[Message, ...]
    new: tuple[NewMessage, ...]
    calls: Mapping[str, Part]
    answers: tuple[Message, ...]


def conversation(span: Span) -> Conversation:
    """What was said in the span; empty where the tracer does not record content."""
    attributes = _with_details(span)
    instructions = messages_in(attributes.get("gen_ai.system_instructions"), "system")
    sent = _told(attributes, _INPUTS, _INDEXED_INPUTS, "user")
    answers = _told(attributes, _OUTPUTS, _INDEXED_OUTPUTS, MODEL)
    if not sent and not answers:
        sent, answers = _from_occurrences(span.occurrences)
    if not sent and not answers:
        sent = written_in(said(attributes, INPUT), "user")
        answers = written_in(said(attributes, OUTPUT), MODEL)
    new = new_messages(sent)
    return Conversation(
        tuple(instructions),
        tuple(new),
        _answered_calls(sent, new),
        tuple(message_of(answer, MODEL)._replace(role=MODEL) for answer in answers),
    )


def new_messages(sent: Sequence[Any]) -> list[NewMessage]:
    """Those behind the last answer of the model; an answer that it is to go on with is none.

    A conversation is repeated in every call, so what was told before is looked at, but not read.
    """
    items = list(sent)
    if all(map(is_plain, items)):
        roles, words = [plain_role(item) for item in items], [plain_words(item) for item in items]
    else:
        items = [message_of(item, "user") for item in items]
        roles, words = [item.role for item in items], [(item.digest(),) for item in items]
    end = len(items)
    while end and roles[end - 1] == MODEL:
        end -= 1
    start = end
    while start and roles[start - 1] != MODEL:
        start -= 1
    before = _repetitions(words, range(start, end))
    new = (
        NewMessage(message_of(items[place], "user"), count)
        for place, count in zip(range(start, end), before, strict=True)
    )
    return [item for item in new if item.message.parts]


def _repetitions(words: Sequence[Any], places: range) -> list[int]:
    """How many equal ones stand before each of these places."""
    if len(places) <= _FEW:
        return [words[:place].count(words[place]) for place in places]
    counts: Counter[str] = Counter()  # to compare each with all before would never end
    repeated: list[int] = []
    for item in words[: places.stop]:
        digest = value_digest(item)
        repeated.append(counts[digest])
        counts[digest] += 1
    return repeated[places.start :]


_FEW: Final = 16
"""New messages of a call that are compared one by one; mostly there are one or two."""


def _answered_calls(sent: Sequence[Any], new: Sequence[NewMessage]) -> dict[str, Part]:
    """The newest call of each id that a new result answers."""
    parts = (part for item in new for part in item.message.parts)
    wanted = {part.call_id for part in parts if part.kind == "result" and part.call_id}
    calls: dict[str, Part] = {}
    for item in reversed(sent):
        if len(calls) == len(wanted):
            break
        if not is_plain(item) or plain_role(item) == MODEL:
            for part in message_of(item, "user").parts:
                if part.kind == "call" and part.call_id in wanted:
                    calls.setdefault(part.call_id, part)
    return calls


def is_instruction(message: Message) -> bool:
    """Whether it tells the model what to keep to."""
    return message.role in INSTRUCTING


def _with_details(span: Span) -> Attributes:
    """The attributes, with those of the span event that tells the same (1.37 and later)."""
    details = [item.attributes for item in span.occurrences if item.name == _DETAILS]
    if not details:
        return span.attributes
    return {name: value for told in (*details, span.attributes) for name, value in told.items()}


def _told(
    attributes: Attributes, names: tuple[str, ...], prefixes: tuple[str, ...], role: str
) -> list[Any]:
    whole = said(attributes, names)
    if whole is not None:
        return written_in(whole, role)
    for prefix in prefixes:
        value = attributes.get(prefix)
        if value is None:
            value = nested(attributes, prefix)
        if value:
            return written_in(value, role)
    return []


def _from_occurrences(occurrences: tuple[Occurrence, ...]) -> tuple[list[Any], list[Any]]:
    """Messages of a generation that told them as events, one each (up to 1.36)."""
    sent: list[Any] = []
    answers: list[Any] = []
    for name, _, attributes in occurrences:
        if (role := _EVENT_INPUTS.get(name)) is not None:
            sent.append(message_of(_event_body(attributes), role))
        elif name == _EVENT_OUTPUT:
            answers.append(message_of(_event_body(attributes), MODEL))
        elif name == _EVENT_PROMPT:
            sent.extend(written_in(attributes.get("gen_ai.prompt"), "user"))
        elif name == _EVENT_COMPLETION:
            answers.extend(written_in(attributes.get("gen_ai.completion"), MODEL))
    return sent, answers


def _event_body(attributes: Attributes) -> Mapping[str, Any]:
    content = parsed(attributes.get(_EVENT_CONTENT))
    body = content if isinstance(content, Mapping) else attributes
    message = body.get("message")
    if isinstance(message, str):  # words, or a message as JSON
        inner = parsed(message)
        return inner if isinstance(inner, Mapping) else {"content": inner}
    return {name: value for name, value in body.items() if not name.startswith("gen_ai.")}


_MAX_STEPS: Final = 12
"""Of a path; OpenInference's have seven."""
_STEP: Final = re.compile(r"\d{1,5}")


def nested(attributes: Attributes, prefix: str) -> list[Any]:
    """Attributes such as `llm.input_messages.0.message.role` as the list that they spell."""
    start = prefix + "."
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(start):
            continue
        *path, last = name[len(start) :].split(".", _MAX_STEPS)
        holder: dict[str, Any] = root
        for step in path:
            inner = holder.setdefault(step, {})
            if not isinstance(inner, dict):  # a.b beside a.b.c
                break
            holder = inner
        else:
            holder[last] = value
    listed = _as_list(root)
    return listed if isinstance(listed, list) else []


def _as_list(value: Any) -> Any:
    """An object whose keys are all numbers as the list in their order, all the way down."""
    if not isinstance(value, dict):
        return value
    if value and all(_STEP.fullmatch(key) for key in value):
        return [_as_list(value[key]) for key in sorted(value, key=int)]
    return {key: _as_list(item) for key, item in value.items()}
