"""A call of a model: what was new in what was sent, what came back, and what went wrong."""

from __future__ import annotations

from typing import Any, Final

from projections.events import timestamp_text
from projections.traces.conversations import (
    Conversation,
    NewMessage,
    conversation,
    is_instruction,
)
from projections.traces.drafts import (
    Context,
    Draft,
    call_event_id,
    call_key,
    call_payload,
    otlp_id,
    outcome,
    result_event_id,
    told_call,
)
from projections.traces.messages import (
    USER,
    Message,
    Part,
    message_payload,
    role_word,
    value_digest,
)
from projections.traces.spans import MODEL, TOKENS, failure, said, text_of

_RETOLD: Final = 1
"""Rank of what the tool itself tells better: its result."""


def chat_drafts(context: Context) -> list[Draft]:
    """The events of a call of a model."""
    talk = conversation(context.span)
    drafts = [_instruction(context, message) for message in talk.instructions]
    drafts.extend(_sent_drafts(context, talk))
    drafts.extend(_answer_drafts(context, talk))
    wrong = failure(context.span)
    if wrong is not None:
        drafts.append(
            context.draft(
                context.span_event_id("failed"),
                "llm.failed",
                context.end_ms,
                status=wrong.status,
                parent_event_id=_trigger(context, talk) or context.cause(),
                payload={"error": wrong.error, **_model(context)},
            )
        )
    if drafts or context.span.is_log:
        return drafts
    return [_bare_call(context)]


def trigger_of(context: Context) -> str | None:
    """The event that a call of a model answers: the last message that was sent."""
    return _trigger(context, conversation(context.span))


def _bare_call(context: Context) -> Draft:
    """A call of which nothing is known but that it was made."""
    return context.draft(
        context.span_event_id("call"),
        "llm.call",
        context.start_ms,
        status="completed",
        ended_at=timestamp_text(context.end_ms),
        parent_event_id=context.cause(),
        payload=_model(context) or None,
    )


def _model(context: Context) -> dict[str, Any]:
    attributes = context.span.attributes
    told = {"model": text_of(attributes, MODEL)}
    told.update({name: said(attributes, names) for name, names in TOKENS})
    return {name: value for name, value in told.items() if value is not None}


# -- what was sent ---------------------------------------------------------------------------------


def _instruction(context: Context, message: Message) -> Draft:
    """The same for every call in which the same user's agent is told the same."""
    scope = context.own.session_id or context.span.trace_id
    whose = value_digest([scope, context.own.user_id, context.agent, message.digest()])
    role = message.role
    return context.draft(
        otlp_id(context.tenant, "instruction", whose),
        f"message.{role}",
        max(context.start_ms - _BEFORE_MS, 0),
        is_shared=True,
        agent_id=role,
        payload=message_payload(message),
    )


_BEFORE_MS: Final = 100
"""Instructions come before all messages of a call, of which each is a millisecond apart."""


def _sent_drafts(context: Context, talk: Conversation) -> list[Draft]:
    new = talk.new
    drafts: list[Draft] = []
    for place, item in enumerate(new):
        # messages of a call have no times of their own: the last stands at the begin
        time_ms = max(context.start_ms - min(len(new) - 1 - place, _BEFORE_MS - 1), 0)
        if is_instruction(item.message):
            drafts.append(_instruction(context, item.message))
            continue
        results = [part for part in item.message.parts if part.kind == "result"]
        drafts.extend(_result(context, talk, part, time_ms) for part in results)
        if len(results) < len(item.message.parts):
            drafts.append(_message(context, item, time_ms))
    return drafts


def _message(context: Context, item: NewMessage, time_ms: int) -> Draft:
    role = item.message.role
    speaker = context.whose.user_id or USER if role == USER else item.message.name or role
    return context.draft(
        _message_id(context, item),
        f"message.{role_word(role)}",
        time_ms,
        is_shared=True,
        agent_id=speaker,
        parent_event_id=context.cause(),
        payload=message_payload(item.message),
    )


def _message_id(context: Context, item: NewMessage) -> str:
    trace_id, digest = context.span.trace_id, item.message.digest()
    return otlp_id(context.tenant, trace_id, "message", f"{digest}-{item.repetition}")


def _result(context: Context, talk: Conversation, part: Part, time_ms: int) -> Draft:
    """What a tool returned, told by the prompt that holds it."""
    name, key = _answered(talk, part)
    return context.draft(
        _result_id(context, talk, part),
        "tool.result",
        time_ms,
        rank=_RETOLD,
        is_shared=True,
        tool_name=name,
        status="failed" if part.failed else "completed",
        parent_event_id=key and call_event_id(context.tenant, context.span.trace_id, key),
        payload=outcome(part),
    )


def _answered(talk: Conversation, result: Part) -> tuple[str | None, str | None]:
    """The tool, and the key of the call, that a result answers: the newest of its id."""
    call = talk.calls.get(result.call_id or "")
    name = result.name or (call.name if call is not None else None)
    return name, call_key(result.call_id, name, call.value if call is not None else None)


def _result_id(context: Context, talk: Conversation, part: Part) -> str:
    name, key = _answered(talk, part)
    tenant, trace_id = context.tenant, context.span.trace_id
    if key is None:
        return otlp_id(tenant, trace_id, "result", value_digest([name, part.value]))
    return result_event_id(tenant, trace_id, key, part)


def _trigger(context: Context, talk: Conversation) -> str | None:
    new = [item for item in talk.new if not is_instruction(item.message)]
    if not new:
        return None
    last = new[-1].message.parts[-1]
    return (
        _result_id(context, talk, last) if last.kind == "result" else _message_id(context, new[-1])
    )


# -- what came back --------------------------------------------------------------------------------


def _answer_drafts(context: Context, talk: Conversation) -> list[Draft]:
    drafts: list[Draft] = []
    cause = _trigger(context, talk) or context.cause()
    for place, answer in enumerate(talk.answers):
        thoughts = [part for part in answer.parts if part.kind == "thought"]
        words = [part for part in answer.parts if part.kind in ("text", "media")]
        calls = [part for part in answer.parts if part.kind == "call"]
        for number, part in enumerate(thoughts):
            drafts.append(_thought(context, part, f"thought.{place}.{number}", cause))
        if any(part.text.strip() or part.kind == "media" for part in words):
            said_so = _assistant(
                context, answer._replace(parts=tuple(words)), f"answer.{place}", cause
            )
            drafts.append(said_so)
            parent: str | None = said_so.event_id
        else:
            parent = cause
        drafts.extend(
            _call(context, part, f"call.{place}.{number}", parent)
            for number, part in enumerate(calls)
        )
    return drafts


def _answer_ms(context: Context, later_ms: int = 0) -> int:
    """An answer comes after what it answers, in the same millisecond as well."""
    return max(context.end_ms, context.start_ms + 1) + later_ms


def _thought(context: Context, part: Part, place: str, cause: str | None) -> Draft:
    return context.draft(
        context.span_event_id(place),
        "agent.thought",
        max(_answer_ms(context) - 1, context.start_ms),
        parent_event_id=cause,
        payload={"text": part.text},
    )


def _assistant(context: Context, answer: Message, place: str, cause: str | None) -> Draft:
    payload = message_payload(answer)
    return context.draft(
        context.span_event_id(place),
        "message.assistant",
        _answer_ms(context),
        status="completed",
        parent_event_id=cause,
        payload={**payload, **_model(context)},
    )


def _call(context: Context, part: Part, place: str, cause: str | None) -> Draft:
    key = call_key(part.call_id, part.name, part.value)
    if key is None:
        event_id = context.span_event_id(place)
    else:
        event_id = call_event_id(context.tenant, context.span.trace_id, key)
    context.calls.add(context.tenant, context.span.trace_id, told_call(event_id, key, part))
    return context.draft(
        event_id,
        "tool.call",
        _answer_ms(context, 1),
        is_shared=key is not None,
        tool_name=part.name,
        parent_event_id=cause,
        payload=call_payload(part),
    )
