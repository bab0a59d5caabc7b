"""The agent without a client: it is traced by the GenAI conventions, and the exporter is ours."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Tracer

from tests.five_ways.story import AGENT, SESSION, TURNS, USER, Call, Door, Turn

Message = dict[str, Any]


def run(door: Door) -> None:
    """Tell the story."""
    exporter = OTLPSpanExporter(
        endpoint=f"{door.url}/v1/traces",
        headers={"Authorization": f"Bearer {door.key}", "X-Tenant": door.tenant},
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "desk"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("five-ways")
    conversation: list[Message] = []
    for turn in TURNS:
        with _spanned(tracer, "invoke_agent"):
            _carry_out(tracer, turn, conversation)
    provider.shutdown()


def _carry_out(tracer: Tracer, turn: Turn, conversation: list[Message]) -> None:
    conversation.append(message("user", {"type": "text", "content": turn.asked}))
    for call in turn.calls:
        asked = {"type": "tool_call", "id": call.call_id, "name": call.tool}
        answer = message("assistant", {**asked, "arguments": call.arguments})
        _call_model(tracer, conversation, answer)
        result = _execute(tracer, call)
        returned = {"type": "tool_call_response", "id": call.call_id, "response": result}
        conversation.append(message("tool", returned))
    _call_model(
        tracer, conversation, message("assistant", {"type": "text", "content": turn.answer})
    )


def _call_model(tracer: Tracer, conversation: list[Message], answer: Message) -> None:
    with _spanned(tracer, "chat") as span:
        span.set_attribute("gen_ai.input.messages", json.dumps(conversation))
        span.set_attribute("gen_ai.output.messages", json.dumps([answer]))
    conversation.append(answer)


def message(role: str, part: dict[str, Any]) -> Message:
    return {"role": role, "parts": [part]}


def _execute(tracer: Tracer, call: Call) -> Any:
    try:
        with _spanned(tracer, "execute_tool") as span:
            span.set_attribute("gen_ai.tool.name", call.tool)
            span.set_attribute("gen_ai.tool.call.id", call.call_id)
            span.set_attribute("gen_ai.tool.call.arguments", json.dumps(call.arguments))
            result = call.carry_out()
            span.set_attribute("gen_ai.tool.call.result", json.dumps(result))
    except ConnectionError as error:
        return f"Error: {error}"
    return result


@contextmanager
def _spanned(tracer: Tracer, operation: str) -> Iterator[Span]:
    with tracer.start_as_current_span(operation) as span:
        span.set_attribute("gen_ai.operation.name", operation)
        span.set_attribute("gen_ai.conversation.id", SESSION)
        span.set_attribute("gen_ai.agent.name", AGENT)
        span.set_attribute("user.id", USER)
        yield span
        time.sleep(0.005)  # no step of a real agent is over in the millisecond in which it began
