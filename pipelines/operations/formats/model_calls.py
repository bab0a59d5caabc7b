"""Calls of models as their makers answer them: OpenAI and Anthropic; and exports of claude.ai.

OpenAI: chat completions and responses with their times, alone, with the request, or of a batch.
Shapes (openai/openai-python, `types/chat/chat_completion.py`, `types/responses/response.py` and
`response_function_tool_call.py`; a line of a batch's output as the platform's guide shows it):

- a completion: `object: chat.completion`, `created` (seconds), `choices[].message`, `usage`;
- a response: `object: response`, `created_at`, `output[]` of `message`, `function_call` (whose
  `call_id` results answer, not its `id`), `reasoning` and others, `instructions`, `usage`;
- `{"request": …, "response": …}`, or `response.body` of a batch; what was asked stands in
  `request`, or beside the answer (`messages`, `input`).

The session is `metadata.session_id`, `thread_id` or `conversation_id`, a response's
`conversation.id`, else the call itself: a call that names none is a session of its own.

Anthropic: messages of the API with their requests, and conversations as claude.ai exports them.
Shapes (anthropics/anthropic-sdk-python, `types/message.py`; exports as the readers of several
public projects expect them):

- a message: `type: message`, `role: assistant`, `content[]` of `text`, `thinking`, `tool_use` …,
  `usage`. The API tells no time, so the record around it must: `created_at` or `timestamp`, beside
  `request` and `response` (or `message`, or the fields of the message themselves);
- an export: `uuid`, `name`, `chat_messages[]` with `uuid`, `sender` (human, assistant), `text` or
  `content[]`, `created_at`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pipelines.operations.formats.mapped import Fields, Given, Talk, Told, Turn, conversation
from pipelines.operations.formats.spans import (
    INPUT,
    OUTPUT,
    SESSION_NAMES,
    SETTINGS,
    Step,
    told_with_past,
)
from projections.errors import InvalidInput
from projections.traces.messages import message_of

OPENAI: Final = "openai"
_OBJECTS: Final = ("chat.completion", "response")
_OF_OPENAI: Final = (
    *SETTINGS,
    *("object", "id", "status", "background", "max_tool_calls", "previous_response_id"),
    *("prompt_cache_key", "safety_identifier", "request_id", "status_code", "custom_id"),
    *("method", "url"),
)


def is_openai(record: Any) -> bool:
    """Whether it is a completion or a response, alone or within a record of one."""
    if not isinstance(record, dict):
        return False
    inner = record.get("response")
    body = inner.get("body") if isinstance(inner, dict) else None
    return any(isinstance(x, dict) and x.get("object") in _OBJECTS for x in (record, inner, body))


def openai_events(record: Any, given: Given) -> Iterator[Told]:
    """The events of one call: what was new in what was asked, and what came back.

    Raises:
        InvalidInput: it is no call, or has no time.
    """
    outer = Fields(record)
    request, answer = outer, outer
    if "response" in outer:
        request, response = outer.inner("request"), outer.inner("response")
        answer = response.inner("body") if "body" in response else response
        yield from response.unread(_OF_OPENAI) if answer is not response else ()
    yield from _openai_call(outer, request, answer, given)
    for fields in {id(fields): fields for fields in (outer, request, answer)}.values():
        yield from fields.unread(_OF_OPENAI)


def _openai_call(outer: Fields, request: Fields, answer: Fields, given: Given) -> Iterator[Told]:
    call_id = answer.text("id", required=True)
    at_ms = answer.ms(given, "created_at", "created", required=True)
    end_ms = answer.ms(given, "completed_at") or at_ms
    metadata, usage = answer.inner("metadata"), answer.inner("usage")
    session = outer.text(*SESSION_NAMES) or metadata.text(*SESSION_NAMES)
    session = session or answer.inner("conversation").text("id")
    wrong = answer.get("error") or outer.get("error") or answer.get("incomplete_details")
    instructions = answer.get("instructions") or request.get("instructions")
    step = Step(
        form=OPENAI,
        trace=session or str(call_id),
        step=str(call_id),
        name="chat",
        start_ms=at_ms or 0,
        end_ms=end_ms or 0,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": answer.text("model"),
            "gen_ai.system_instructions": instructions if isinstance(instructions, str) else None,
            INPUT: _sent(request, answer) or None,
            OUTPUT: _came_back(answer),
            "gen_ai.usage.input_tokens": usage.get("input_tokens", "prompt_tokens"),
            "gen_ai.usage.output_tokens": usage.get("output_tokens", "completion_tokens"),
            "gen_ai.conversation.id": session or str(call_id),
            "user.id": request.text("user") or answer.text("user") or metadata.text("user_id"),
        },
        error=None if wrong is None else _reason(wrong),
    )
    yield from told_with_past(step, given)
    yield from metadata.unread()


def _sent(request: Fields, answer: Fields) -> list[Any]:
    """What was asked: messages of the chat, or items of a response."""
    asked_of = request if "messages" in request or "input" in request else answer
    value = asked_of.get("messages", "input")
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return grouped(value if isinstance(value, list) else [])


def _came_back(answer: Fields) -> list[Any]:
    if "choices" in answer:
        choices = [Fields(choice, "choices.") for choice in answer.list("choices")]
        return [message for choice in choices if (message := choice.get("message")) is not None]
    return grouped(answer.list("output"))


def grouped(items: list[Any]) -> list[Any]:
    """Items of a response as messages: what the model did in one go is one of them."""
    messages: list[Any] = []
    for item in items:
        if not isinstance(item, dict) or ("role" in item and item.get("type") in (None, "message")):
            messages.append(item)
            continue
        is_result = str(item.get("type")).endswith("_output")
        role = "tool" if is_result else "assistant"
        last = messages[-1] if messages and isinstance(messages[-1], dict) else {}
        if role == "tool" or last.get("role") != role or not isinstance(last.get("content"), list):
            messages.append({"role": role, "content": []})
        messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], _part(item)]}
    return messages


def _part(item: dict[str, Any]) -> dict[str, Any]:
    """An item that is no message, as a part of one."""
    match item.get("type"):
        case "function_call" | "custom_tool_call":
            arguments = item.get("arguments", item.get("input"))
            call = {"name": item.get("name"), "arguments": arguments}
            return {"type": "tool_call", "id": item.get("call_id"), **call}
        case "function_call_output" | "custom_tool_call_output":
            return {"type": "tool_result", "id": item.get("call_id"), "output": item.get("output")}
        case "reasoning":
            listed = [item.get(name) for name in ("summary", "content")]
            parts = [part for parts in listed if isinstance(parts, list) for part in parts]
            words = [str(part.get("text", "")) for part in parts if isinstance(part, dict)]
            return {"type": "reasoning", "text": "\n".join(words)}
        case kind:  # a search, code, a picture: a tool of the platform
            others = {k: v for k, v in item.items() if k not in ("type", "id", "status")}
            return {"type": "tool_call", "id": item.get("id"), "name": kind, "arguments": others}


def _reason(wrong: Any) -> str:
    if isinstance(wrong, dict):
        return str(wrong.get("message") or wrong.get("reason") or wrong.get("code") or "failed")
    if not isinstance(wrong, str):
        raise InvalidInput((("error", "an object or a text"),))
    return wrong


ANTHROPIC: Final = "anthropic"
_TIME: Final = ("created_at", "timestamp")
_OF_ANTHROPIC: Final = (
    *SETTINGS,
    *("type", "role", "stop_reason", "stop_sequence", "stop_details", "container", "custom_id"),
)


def is_anthropic(record: Any) -> bool:
    """Whether it is a message, alone or within a record, or an exported conversation."""
    if not isinstance(record, dict):
        return False
    parts = (record, record.get("response"), record.get("message"))
    return "chat_messages" in record or any(
        isinstance(part, dict) and part.get("type") == "message" and part.get("role") == "assistant"
        for part in parts
    )


def anthropic_events(record: Any, given: Given) -> Iterator[Told]:
    """The events of one call, or of one conversation.

    Raises:
        InvalidInput: it is neither, or has no time.
    """
    fields = Fields(record)
    if "chat_messages" in fields:
        yield from _conversation(fields, given)
        return
    answer = fields
    for name in ("response", "message"):
        if name in fields:
            answer = fields.inner(name)
    request = fields.inner("request") if "request" in fields else fields
    yield from _anthropic_call(fields, request, answer, given)
    for part in {id(part): part for part in (fields, request, answer)}.values():
        yield from part.unread(_OF_ANTHROPIC)


def _anthropic_call(
    fields: Fields, request: Fields, answer: Fields, given: Given
) -> Iterator[Told]:
    message_id = answer.text("id", required=True) or ""
    at_ms = fields.ms(given, *_TIME, required=True) or 0
    usage, metadata = answer.inner("usage"), request.inner("metadata")
    session = fields.text(*SESSION_NAMES) or metadata.text(*SESSION_NAMES)
    step = Step(
        form=ANTHROPIC,
        trace=session or message_id,
        step=message_id,
        name="chat",
        start_ms=at_ms,
        end_ms=fields.ms(given, "ended_at") or at_ms,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": answer.text("model"),
            "gen_ai.system_instructions": request.get("system"),
            INPUT: request.list("messages") or None,
            OUTPUT: [{"role": "assistant", "content": answer.list("content")}],
            "gen_ai.usage.input_tokens": usage.get("input_tokens"),
            "gen_ai.usage.output_tokens": usage.get("output_tokens"),
            "gen_ai.conversation.id": session or message_id,
            "user.id": fields.text("user_id") or metadata.text("user_id"),
        },
    )
    yield from told_with_past(step, given)
    yield from metadata.unread()


def _conversation(fields: Fields, given: Given) -> Iterator[Told]:
    """An exported conversation; `human` is the user's role, and what was attached is named."""
    turns: list[Turn] = []
    left_out: list[Told] = []
    for number, raw in enumerate(fields.list("chat_messages")):
        message = Fields(raw, f"chat_messages[{number}].")
        content = message.get("content") or message.get("text") or ""
        message.get("text")  # the same words once more
        shown = {"role": message.text("sender", required=True), "content": content}
        turns.append(
            Turn(
                turn_id=message.text("uuid") or str(number),
                at_ms=message.ms(given, "created_at", required=True) or 0,
                message=message_of(shown, "user"),
            )
        )
        left_out += message.unread(("updated_at", "parent_message_uuid"))
    session = fields.text("uuid", required=True) or ""
    user = fields.inner("account").text("uuid")
    yield from conversation(Talk(ANTHROPIC, session, user), turns, given)
    yield from left_out
    yield from fields.unread(("name", "created_at", "updated_at", "summary"))
