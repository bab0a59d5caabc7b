"""Spans become events: which, in whose words, caused by what."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from api.otlp.log_records import spans_of
from api.otlp.protobuf import read_log_records
from enrichment.event_kinds import EventKind, event_kind
from enrichment.payloads import offered_event
from enrichment.text import event_text
from projections.traces.drafts import ToldCalls
from projections.traces.mapping import map_spans
from projections.traces.spans import STATUS_ERROR, Occurrence, Span
from tests.otlp_factories import (
    BEGIN_NS,
    TRACE,
    asks,
    chat,
    envelopes,
    logs_request,
    mapped,
    returns,
    span,
    text,
    tool,
    types,
)

CALL = "call_VSPygqKTWdrhaFErNvMV18Yl"
NOW_MS = BEGIN_NS // 1_000_000 + 10**9
ASKED = [text("system", "Be brief."), text("user", "Refund order 4711")]
ORDER = {"order": 4711}


def read(envelope: dict[str, Any]) -> tuple[EventKind, str]:
    """How Stage 2 reads an event: its kind and its text."""
    event = offered_event(envelope, now_ms=NOW_MS, tenant="acme")
    return event_kind(event), event_text(event).text


def only(spans: list[Span], event_type: str) -> dict[str, Any]:
    """The one event of that type."""
    (event,) = [event for event in envelopes(spans) if event["event_type"] == event_type]
    return event


def conversation() -> list[Span]:
    """Two calls of a model, a tool between them, in an agent."""
    call = asks(CALL, "refund", ORDER, "I refund it.")
    done = returns(CALL, {"refunded": 84})
    return [
        span("run", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "pay"}, lasts=9),
        chat("first", ASKED, [call], parent="run"),
        tool("refund", CALL, ORDER, {"refunded": 84}, at=2, parent="run"),
        chat("second", [*ASKED, call, done], [text("assistant", "Done.")], at=4, parent="run"),
    ]


def test_a_conversation_is_told_once() -> None:
    events = envelopes(conversation())
    assert [(event["event_type"], *read(event)) for event in events] == [
        ("message.system", "instruction", "Be brief."),
        ("message.user", "message", "Refund order 4711"),
        ("message.assistant", "message", "I refund it."),
        ("tool.call", "call", "order: 4711"),
        ("tool.result", "result", "refunded: 84"),
        ("message.assistant", "message", "Done."),
    ]


def test_what_caused_an_event_is_its_parent() -> None:
    events = envelopes(conversation())
    places = {event["event_id"]: place for place, event in enumerate(events)}
    parents = [places.get(event.get("parent_event_id", "")) for event in events]
    assert parents == [None, None, 1, 2, 3, 4]


def test_who_spoke_is_the_agent() -> None:
    assert [event["agent_id"] for event in envelopes(conversation())] == [
        *("system", "user", "desk", "desk", "desk", "desk"),
    ]


def test_a_call_has_the_time_of_the_model_and_the_end_of_the_tool() -> None:
    call = only(conversation(), "tool.call")
    assert (call["tool_name"], call["payload"]) == (
        "refund",
        {"arguments": ORDER, "call_id": CALL},
    )
    assert call["occurred_at"] == "2026-02-02T02:40:01.001Z"
    assert call["ended_at"] == "2026-02-02T02:40:03.000Z"


def test_a_tool_that_fails_tells_why() -> None:
    spans = [tool("refund", CALL, ORDER, at=0, error="gateway timeout")]
    result = only(spans, "tool.result")
    assert result["status"] == "failed"
    assert result["parent_event_id"] == only(spans, "tool.call")["event_id"]
    kind, words = read(result)
    assert kind is EventKind.FAILURE
    assert words.startswith("gateway timeout")


def test_a_timeout_is_one() -> None:
    error = {"error.type": "asyncio.TimeoutError"}
    assert only([tool("x", CALL, {}, at=0, attributes=error)], "tool.result")["status"] == "timeout"


def test_a_stack_trace_is_not_what_went_wrong() -> None:
    thrown = {
        "exception.message": "no",
        "exception.type": "GatewayError",
        "exception.stacktrace": 'Traceback:\n  File "/a.py", line 1, in f',
    }
    spans = [
        tool("x", CALL, {}, at=0, occurrences=(Occurrence("exception", 0, thrown),), status_code=2)
    ]
    error = only(spans, "tool.result")["payload"]["error"]
    assert error == {"message": "no", "exception_type": "GatewayError"}


def test_an_exception_that_was_handled_is_no_failure() -> None:
    thrown = Occurrence("exception", BEGIN_NS, {"exception.message": "once"})
    spans = [tool("x", CALL, {}, 1, at=0, occurrences=(thrown,))]
    assert only(spans, "tool.result")["status"] == "completed"


def test_a_tool_that_failed_for_the_model_is_one_failure() -> None:
    call = asks(CALL, "refund", ORDER)
    answer = returns(CALL, "The gateway did not answer; try again later.")
    spans = [
        tool("refund", CALL, ORDER, at=2, error="gateway timeout"),
        chat("second", [*ASKED, call, answer], [text("assistant", "Sorry.")], at=4),
    ]
    assert types(spans) == ["tool.call", "tool.result", "message.assistant"]
    assert only(spans, "tool.result")["status"] == "failed"


def test_without_spans_of_tools_prompts_tell_of_them() -> None:
    spans = [item for item in conversation() if item.name != "refund"]
    result = only(spans, "tool.result")
    assert result["payload"] == {"result": {"refunded": 84}, "call_id": CALL}
    assert (result["tool_name"], result["status"]) == ("refund", "completed")
    assert result["parent_event_id"] == only(spans, "tool.call")["event_id"]


def test_a_result_that_begins_with_error_is_a_failure() -> None:
    call = asks(CALL, "refund", ORDER)
    spans = [chat("x", [*ASKED, call, returns(CALL, "Error: gateway timeout")], [])]
    assert read(only(spans, "tool.result")) == (EventKind.FAILURE, "Error: gateway timeout")


def test_a_call_without_an_id_is_its_span_s() -> None:
    spans = [tool(name, None, ORDER, at=at, tool="refund") for name, at in (("a", 0), ("b", 5))]
    assert types(spans) == ["tool.call", "tool.result"] * 2


def test_an_id_that_is_given_twice_is_told_apart_by_arguments() -> None:
    spans = [
        chat("a", ASKED, [asks("call_1", "refund", {"order": 1})]),
        tool("t", "call_1", {"order": 1}, "ok", at=2, tool="refund"),
        chat("b", ASKED, [asks("call_1", "refund", {"order": 2})], at=4),
        tool("u", "call_1", {"order": 2}, "ok", at=6, tool="refund"),
    ]
    assert types(spans).count("tool.call") == types(spans).count("tool.result") == 2


# -- conversations ---------------------------------------------------------------------------------


def test_a_second_yes_is_another_message() -> None:
    asked = [text("user", "yes")]
    again = [*asked, text("assistant", "Shall I pay?"), text("user", "yes")]
    spans = [chat("a", asked, []), chat("b", again, [], at=3)]
    assert types(spans) == ["message.user", "message.user"]


def test_repetitions_are_counted_alike_among_few_and_many() -> None:
    sent = [text("user", str(number % 3)) for number in range(40)]
    few = [text("assistant", "Go on."), *sent[:5]]
    for messages in (sent, few):
        ids = {event["event_id"] for event in envelopes([chat("x", messages, [])])}
        assert len(ids) == len(messages) - (messages is few)
    both = {event["event_id"] for event in envelopes([chat("x", sent, []), chat("y", few, [])])}
    assert len(both) == len(sent)


def test_a_prompt_of_many_messages_is_read_in_time() -> None:
    spans = [chat("x", [{"role": "user", "content": "hi"}] * 10_000, [])]
    begin_s = time.process_time()
    assert len(envelopes(spans)) == 10_000
    assert time.process_time() - begin_s < 30


def test_the_same_prompt_sent_again_is_the_same_message() -> None:
    failed: dict[str, Any] = {"attributes": {"error.type": "rate_limited"}, "status_code": 2}
    spans = [chat("a", ASKED, [], **failed), chat("b", ASKED, [text("assistant", "Hi")], at=3)]
    assert types(spans) == ["message.system", "message.user", "llm.failed", "message.assistant"]
    failure = only(spans, "llm.failed")
    assert failure["parent_event_id"] == only(spans, "message.user")["event_id"]


def test_of_equal_messages_the_earliest_is_taken() -> None:
    spans = [chat("b", ASKED, [], at=3), chat("a", ASKED, [])]
    assert only(spans, "message.user")["occurred_at"] == "2026-02-02T02:40:00.000Z"


def test_what_was_said_in_another_trace_is_not_told_again() -> None:
    session = {"gen_ai.conversation.id": "c-1"}
    first = chat("a", ASKED, [text("assistant", "Which?")], attributes=session)
    history = [*ASKED, text("assistant", "Which?"), text("user", "4711")]
    later = chat("b", history, [], attributes=session, trace_id="ab" * 16, at=60)
    assert types([first, later]) == [
        *("message.system", "message.user", "message.assistant", "message.user"),
    ]
    assert {event["session_id"] for event in envelopes([first, later])} == {"c-1"}


def test_instructions_beside_the_messages_are_told_once_a_session() -> None:
    told = {
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be kind."}]),
        "session.id": "s-1",
    }
    spans = [
        chat(name, [text("user", name)], [], at=at, attributes=told, trace_id=trace)
        for name, at, trace in (("a", 0, TRACE), ("b", 5, "ab" * 16))
    ]
    assert only(spans, "message.system")["payload"] == {"role": "system", "content": "Be kind."}


def test_words_the_model_is_to_go_on_with_hide_no_question() -> None:
    assert types([chat("x", [*ASKED, text("assistant", "{")], [])]) == [
        *("message.system", "message.user"),
    ]


def test_thoughts_are_thoughts() -> None:
    answer = {
        "role": "assistant",
        "parts": [
            {"type": "reasoning", "content": "The order is paid."},
            {"type": "text", "content": "I refund it."},
        ],
    }
    thought, said = envelopes([chat("x", [], [answer])])
    assert read(thought) == (EventKind.THOUGHT, "The order is paid.")
    assert read(said) == (EventKind.MESSAGE, "I refund it.")


def test_media_are_shown_by_what_they_are() -> None:
    image = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "iVBOR"}
    words = {"type": "text", "content": "What is this?"}
    event = only([chat("x", [{"role": "user", "parts": [words, image]}], [])], "message.user")
    assert "iVBOR" not in json.dumps(event)
    assert read(event)[1].startswith("What is this?")


def test_a_call_without_content_is_still_there() -> None:
    spans = [span("chat", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5"})]
    (event,) = envelopes(spans)
    assert (event["event_type"], event["status"]) == ("llm.call", "completed")
    assert event["payload"] == {"model": "gpt-5"}


# -- other conventions -----------------------------------------------------------------------------

CALLED = {"id": CALL, "type": "function", "function": {"name": "refund", "arguments": '{"o": 1}'}}

GENERATIONS: dict[str, Span] = {
    "1.37 as JSON text": chat("x", ASKED, [asks(CALL, "refund", {"o": 1}, "I do.")]),
    "1.37 structured": span(
        "x",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": ASKED,
            "gen_ai.output.messages": [asks(CALL, "refund", {"o": 1}, "I do.")],
        },
    ),
    "1.37 as an event": span(
        "x",
        {"gen_ai.operation.name": "chat"},
        occurrences=(
            Occurrence(
                "gen_ai.client.inference.operation.details",
                BEGIN_NS,
                {
                    "gen_ai.input.messages": json.dumps(ASKED),
                    "gen_ai.output.messages": [asks(CALL, "refund", {"o": 1}, "I do.")],
                },
            ),
        ),
    ),
    "1.36 events": span(
        "x",
        {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"},
        occurrences=(
            Occurrence("gen_ai.system.message", BEGIN_NS, {"content": "Be brief."}),
            Occurrence("gen_ai.user.message", BEGIN_NS, {"content": "Refund order 4711"}),
            Occurrence(
                "gen_ai.choice",
                BEGIN_NS,
                {
                    "index": 0,
                    "message": json.dumps(
                        {"role": "assistant", "content": "I do.", "tool_calls": [CALLED]}
                    ),
                },
            ),
        ),
    ),
    "1.36 events as JSON": span(
        "x",
        {"gen_ai.operation.name": "chat"},
        occurrences=(
            Occurrence(
                "gen_ai.system.message",
                BEGIN_NS,
                {"gen_ai.event.content": '{"role": "system", "content": "Be brief."}'},
            ),
            Occurrence(
                "gen_ai.user.message",
                BEGIN_NS,
                {"gen_ai.event.content": '{"content": "Refund order 4711"}'},
            ),
            Occurrence(
                "gen_ai.choice",
                BEGIN_NS,
                {
                    "gen_ai.event.content": json.dumps(
                        {"message": {"content": "I do.", "tool_calls": [CALLED]}}
                    )
                },
            ),
        ),
    ),
    "prompt and completion": span(
        "x",
        {
            "gen_ai.system": "openai",
            "gen_ai.prompt": json.dumps(
                [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Refund order 4711"},
                ]
            ),
            "gen_ai.completion": json.dumps(
                [{"role": "assistant", "content": "I do.", "tool_calls": [CALLED]}]
            ),
        },
    ),
    "prompt by numbers": span(
        "x",
        {
            "llm.request.type": "chat",
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "Be brief.",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": "Refund order 4711",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "I do.",
            "gen_ai.completion.0.tool_calls.0.id": CALL,
            "gen_ai.completion.0.tool_calls.0.name": "refund",
            "gen_ai.completion.0.tool_calls.0.arguments": '{"o": 1}',
        },
    ),
    "openinference": span(
        "x",
        {
            "openinference.span.kind": "LLM",
            "input.value": "{}",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": "Be brief.",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.contents.0.message_content.type": "text",
            "llm.input_messages.1.message.contents.0.message_content.text": "Refund order 4711",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "I do.",
            "llm.output_messages.0.message.tool_calls.0.tool_call.id": CALL,
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "refund",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"o": 1}',
        },
    ),
    "langfuse": span(
        "x",
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.input": json.dumps(
                {
                    "messages": [
                        {"role": "system", "content": "Be brief."},
                        {"role": "user", "content": "Refund order 4711"},
                    ]
                }
            ),
            "langfuse.observation.output": json.dumps(
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "I do."},
                        {"type": "tool_use", "id": CALL, "name": "refund", "input": {"o": 1}},
                    ],
                }
            ),
        },
    ),
}


@pytest.mark.parametrize("name", GENERATIONS)
def test_every_generation_tells_the_same(name: str) -> None:
    events = envelopes([GENERATIONS[name]])
    told = [(event["event_type"], event["payload"].get("content")) for event in events[:3]]
    assert told == [
        ("message.system", "Be brief."),
        ("message.user", "Refund order 4711"),
        ("message.assistant", "I do."),
    ]
    call = events[3]
    assert (call["event_type"], call["tool_name"]) == ("tool.call", "refund")
    assert call["payload"] == {"arguments": {"o": 1}, "call_id": CALL}
    expected = {event["event_id"] for event in envelopes([GENERATIONS["1.37 as JSON text"]])}
    assert {event["event_id"] for event in events} == expected


TOOLS: dict[str, dict[str, Any]] = {
    "gen_ai": {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "refund",
        "gen_ai.tool.call.arguments": {"order": 4711},
        "gen_ai.tool.call.result": {"refunded": 84},
    },
    "openinference": {
        "openinference.span.kind": "TOOL",
        "tool.name": "refund",
        "tool.parameters": '{"order": 4711}',
        "output.value": '{"refunded": 84}',
    },
    "openinference of LangChain": {
        "openinference.span.kind": "TOOL",
        "tool.name": "refund",
        "input.value": '{"order": 4711}',
        "output.value": json.dumps(
            {"type": "tool", "data": {"content": '{"refunded": 84}', "tool_call_id": CALL}}
        ),
    },
    "langfuse": {
        "langfuse.observation.type": "tool",
        "gen_ai.tool.name": "refund",
        "langfuse.observation.input": '{"args": [], "kwargs": {"order": 4711}}',
        "langfuse.observation.output": '{"refunded": 84}',
    },
    "traceloop": {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "refund",
        "traceloop.entity.input": '{"order": 4711}',
        "traceloop.entity.output": '{"refunded": 84}',
    },
}


@pytest.mark.parametrize("name", TOOLS)
def test_every_convention_tells_of_tools(name: str) -> None:
    call, result = envelopes([span("x", TOOLS[name])])
    assert (call["tool_name"], result["tool_name"]) == ("refund", "refund")
    assert (read(call), read(result)) == (
        (EventKind.CALL, "order: 4711"),
        (EventKind.RESULT, "refunded: 84"),
    )
    assert ("call_id" in result["payload"]) == ("LangChain" in name)


def test_langfuse_goes_before_gen_ai_before_openinference() -> None:
    words = {
        "langfuse.observation.input": "from langfuse",
        "gen_ai.input.messages": json.dumps([text("user", "from gen_ai")]),
        "llm.input_messages.0.message.content": "from openinference",
        "input.value": "from anybody",
    }
    attributes = {"openinference.span.kind": "LLM", **words}
    heard = []
    for name in words:
        heard.append(only([span("x", attributes)], "message.user")["payload"]["content"])
        del attributes[name]
    assert heard == ["from langfuse", "from gen_ai", "from openinference", "from anybody"]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (
            {
                "openinference.span.kind": "RETRIEVER",
                "input.value": "refund policy",
                "retrieval.documents.0.document.content": "Paid orders only.",
                "retrieval.documents.0.document.id": "d1",
            },
            [
                ("retrieval.call", "call", "query: refund policy"),
                ("retrieval.result", "result", "result.content: Paid orders only.\nresult.id: d1"),
            ],
        ),
        (
            {
                "gen_ai.operation.name": "search_memory",
                "gen_ai.memory.store.id": "prefs",
                "gen_ai.memory.query.text": "units",
                "gen_ai.memory.records": '[{"content": "User prefers metric units"}]',
            },
            [
                ("memory_store.call", "call", "query: units\nstore.id: prefs"),
                ("memory_store.result", "result", "result.content: User prefers metric units"),
            ],
        ),
        (
            {"openinference.span.kind": "GUARDRAIL", "input.value": "hi", "output.value": "ok"},
            [("guardrail.call", "call", "hi"), ("guardrail.result", "result", "ok")],
        ),
        (
            {"gen_ai.operation.name": "plan", "gen_ai.output.messages": [text("assistant", "1.")]},
            [("agent.plan", "thought", "1.")],
        ),
        (
            {"openinference.span.kind": "DECISION", "output.value": "Escalate."},
            [("agent.decision", "decision", "Escalate.")],
        ),
    ],
)
def test_other_spans_become_what_they_are(
    attributes: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    events = envelopes([span("x", attributes)])
    assert [(event["event_type"], *read(event)) for event in events] == expected


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "invoke_agent", "input.value": "hi"},
        {"gen_ai.operation.name": "invoke_workflow"},
        {"openinference.span.kind": "CHAIN", "input.value": "hi", "output.value": "ho"},
        {"gen_ai.operation.name": "embeddings"},
        {"gen_ai.operation.name": "something_new"},
    ],
)
def test_scopes_say_nothing(attributes: dict[str, Any]) -> None:
    told = mapped([span("x", attributes)])
    assert (told.drafts, told.scopes, told.ignored) == ([], 1, 0)


def test_an_agent_that_failed_says_so() -> None:
    attributes = {"gen_ai.operation.name": "invoke_agent"}
    spans = [span("x", attributes, status_code=STATUS_ERROR, status_message="ten steps and no end")]
    assert read(only(spans, "agent.failed")) == (EventKind.FAILURE, "ten steps and no end")


def test_what_is_not_of_genai_is_ignored() -> None:
    told = mapped([span("GET /", {"http.route": "/"}), span("SELECT", {"db.system": "pg"})])
    assert (told.drafts, told.scopes, told.ignored) == ([], 0, 2)


# -- whose -----------------------------------------------------------------------------------------


def whose(spans: list[Span]) -> set[tuple[str, str | None]]:
    return {(event["session_id"], event.get("user_id")) for event in envelopes(spans)}


@pytest.mark.parametrize(
    ("attributes", "session"),
    [
        ({"gen_ai.conversation.id": "c", "session.id": "s", "langfuse.session.id": "l"}, "c"),
        ({"session.id": "s", "langfuse.session.id": "l"}, "s"),
        ({"langfuse.session.id": "l"}, "l"),
        ({}, TRACE),
    ],
)
def test_the_session_is_the_conversation_else_the_trace(
    attributes: dict[str, str], session: str
) -> None:
    assert whose([chat("x", ASKED, [], attributes=attributes)]) == {(session, None)}


@pytest.mark.parametrize("name", ["user.id", "enduser.id", "langfuse.user.id"])
def test_the_user_is_named(name: str) -> None:
    spans = [chat("x", ASKED[1:], [], attributes={name: "maya"})]
    assert whose(spans) == {(TRACE, "maya")}
    assert envelopes(spans)[0]["agent_id"] == "maya"


def test_what_lies_in_a_span_is_of_its_session() -> None:
    scope = {"gen_ai.operation.name": "invoke_agent", "session.id": "s", "user.id": "maya"}
    spans = [tool("t", CALL, ORDER, 1, at=1, parent="run"), span("run", scope, lasts=9)]
    assert whose(spans) == {("s", "maya")}


def test_a_service_that_nobody_named_is_no_agent() -> None:
    spans = [tool("t", CALL, ORDER, 1, at=1, resource={"service.name": "unknown_service:python"})]
    assert {event["agent_id"] for event in envelopes(spans)} == {"agent"}


def test_an_agent_as_a_tool_is_caused_by_the_call() -> None:
    spans = [
        chat("inner", [text("user", "Check the gateway")], [], at=2, parent="sub"),
        span("sub", {"gen_ai.operation.name": "invoke_agent"}, at=1, parent="proxy"),
        span("proxy", {"rpc.system": "grpc"}, at=1, parent="t"),
        tool("t", CALL, {}, at=1, lasts=9, tool="ask_expert"),
    ]
    call = only(spans, "tool.call")["event_id"]
    assert only(spans, "message.user")["parent_event_id"] == call
    alone = only(spans[:3], "message.user")
    assert "parent_event_id" not in alone
    assert alone["event_id"] == only(spans, "message.user")["event_id"]


def test_spans_in_a_circle_end() -> None:
    spans = [tool(a, None, {}, at=0, parent=b) for a, b in (("a", "b"), ("b", "a"), ("c", "c"))]
    assert types(spans).count("tool.call") == 3


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"trace_id": "00" * 16}, "trace_id"),
        ({"trace_id": "ab"}, "trace_id"),
        ({"span_id": ""}, "span_id"),
        ({"start_ns": 0}, "start_time_unix_nano"),
    ],
)
def test_a_span_without_a_frame_is_refused(fields: dict[str, Any], rule: str) -> None:
    ((place, reason),) = mapped([chat("x", ASKED, [], **fields)]).refused
    assert place == 0
    assert reason.startswith(rule)


# -- bounds ----------------------------------------------------------------------------------------


def test_texts_are_cut_where_they_have_no_room() -> None:
    long = text("user", "word " * 200_000)
    event = only([chat("x", [long], [])], "message.user")
    assert event["payload"]["content"].endswith("[cut: 1,000,000 characters]")
    offered_event(event, now_ms=NOW_MS, tenant="acme")


@pytest.mark.parametrize(
    "value",
    [
        "\x00\x1b[31m",
        "[" * 5_000,
        "[" * 900 + "]" * 900,
        '{"a":' * 200 + "1" + "}" * 200,
        json.dumps(["x" * 20] * 50_000),
        json.dumps({"n": 2**63, "f": 1e300, "": None}),
        "{" + '"é":1,' * 10 + '"b":2}',
        '{"a": "\\ud83d"}',
    ],
)
def test_any_value_makes_a_valid_event(value: str) -> None:
    for attributes in (
        {"gen_ai.input.messages": value, "gen_ai.output.messages": value},
        {"openinference.span.kind": "TOOL", "input.value": value, "output.value": value},
    ):
        for event in envelopes([span("x", attributes)]):
            offered_event(event, now_ms=NOW_MS, tenant="acme")


# -- logs ------------------------------------------------------------------------------------------


def logged(*records: Any) -> list[Span]:
    return spans_of(read_log_records(logs_request(records).SerializeToString())).spans


@pytest.mark.parametrize("word", ["NaN", '"half \\ud83d of it"'], ids=["nan", "surrogate"])
def test_json_as_its_writers_write_it_is_read(word: str) -> None:
    """Python writes NaN, and JavaScript half of what it has cut through."""
    told = [*ASKED, text("assistant", "It is done."), text("user", "Thanks")]
    written = json.dumps(told)[:-1] + f', {{"role": "user", "value": {word}, "content": "Bye"}}]'
    spans = [span("chat", {"gen_ai.operation.name": "chat", "gen_ai.input.messages": written})]
    said = [event["payload"]["content"] for event in envelopes(spans)]
    assert said == ["Thanks", "Bye"]


def test_words_in_no_known_shape_are_kept_as_json() -> None:
    parts = [{"type": "text", "content": {"order": 4711}}]
    written = [{"role": "user", "parts": parts}]
    event = only([chat("x", written, [])], "message.user")
    assert event["payload"]["content"] == '{"order":4711}'


def test_records_of_a_message_each_are_put_together() -> None:
    spans = logged(
        ("gen_ai.system.message", "x", {}, {"content": "Be brief."}),
        ("gen_ai.user.message", "x", {}, {"content": "Refund order 4711"}),
        ("gen_ai.choice", "x", {}, {"message": {"content": "I do.", "tool_calls": [CALLED]}}),
    )
    expected = envelopes([GENERATIONS["1.37 as JSON text"]])
    assert [event["event_id"] for event in envelopes(spans)] == [
        event["event_id"] for event in expected
    ]


def test_one_record_of_a_whole_call_is_read_and_its_span_adds_nothing() -> None:
    details = "gen_ai.client.inference.operation.details"
    told = {"gen_ai.input.messages": json.dumps(ASKED), "session.id": "s-1"}
    spans = logged((details, "x", told, None))
    bare = span("x", {"gen_ai.operation.name": "chat", "session.id": "s-1"})
    assert types([*spans]) == ["message.system", "message.user"]
    assert "llm.call" in types([bare])
    assert whose(spans) == {("s-1", None)}


def test_a_tool_that_fails_at_once_comes_after_its_call() -> None:
    """Begun and over in the millisecond in which the model had asked for it."""
    asked = chat("asks", [text("user", "Refund")], [asks(CALL, "refund", {})], at=0, lasts=1)
    failed = tool("refund", CALL, {}, at=1, lasts=0, error="no")
    told = {event["event_type"]: event["occurred_at"] for event in envelopes([asked, failed])}
    assert told["message.user"] < told["tool.call"] < told["tool.result"]


# -- tools whose spans do not know the id of their call --------------------------------------------


def openinference_tool(name: str, arguments: Any, result: Any, **more: Any) -> Span:
    told = arguments if isinstance(arguments, str) else json.dumps(arguments)
    attributes = {"openinference.span.kind": "TOOL", "tool.name": name, "input.value": told}
    attributes["tool.parameters"] = json.dumps({"type": "object", "properties": {"order": {}}})
    return span(f"{name} {more}", {**attributes, "output.value": json.dumps(result)}, **more)


def of_requests(*requests: list[Span], calls: ToldCalls, tenant: str = "acme") -> list[Any]:
    """What one process makes of requests, one after the other."""
    drafts = [draft for spans in requests for draft in map_spans(spans, tenant, None, calls).drafts]
    events = {draft.event_id: draft.envelope for draft in drafts}
    return [
        (event["event_type"], event["payload"].get("call_id"))
        for event in sorted(events.values(), key=lambda event: event["occurred_at"])
        if event["event_type"].startswith("tool.")
    ]


@pytest.mark.parametrize("told", [ORDER, str(ORDER), "4711"])
def test_a_tool_without_a_call_id_carries_out_what_its_model_asked_for(told: Any) -> None:
    asked = chat("first", ASKED, [asks(CALL, "refund", ORDER)])
    done = openinference_tool("refund", told, {"refunded": 84}, at=2)
    wanted = [("tool.call", CALL), ("tool.result", CALL)]
    calls = ToldCalls()
    assert of_requests([asked], [done], calls=calls) == wanted
    assert of_requests([done], [asked, done], calls=calls) == wanted
    assert of_requests([done, asked], calls=ToldCalls()) == wanted


def test_equal_calls_are_carried_out_one_after_the_other() -> None:
    other = CALL[::-1]
    asked = chat("first", ASKED, [asks(CALL, "refund", ORDER), asks(other, "refund", ORDER)])
    spans = [openinference_tool("refund", ORDER, {"at": at}, at=at) for at in (3, 2, 4)]
    told = of_requests([asked, *spans], calls=ToldCalls())
    assert told.count(("tool.call", CALL)) == told.count(("tool.result", CALL)) == 1
    assert told.count(("tool.call", other)) == told.count(("tool.result", other)) == 1
    assert told.count(("tool.call", None)) == told.count(("tool.result", None)) == 1


@pytest.mark.parametrize(
    ("change", "tenant"),
    [
        ({"trace_id": TRACE[::-1]}, "acme"),
        ({"attributes": {"tool.name": "cancel"}}, "acme"),
        ({"attributes": {"input.value": '{"order": 4712}'}}, "acme"),
        ({}, "globex"),
    ],
)
def test_a_call_of_another_trace_tool_or_tenant_is_another(
    change: dict[str, Any], tenant: str
) -> None:
    done = openinference_tool("refund", ORDER, {"refunded": 84}, at=2)
    attributes = {**done.attributes, **change.pop("attributes", {})}
    calls = ToldCalls()
    of_requests([chat("first", ASKED, [asks(CALL, "refund", ORDER)])], calls=calls)
    told = of_requests([done._replace(attributes=attributes, **change)], calls=calls, tenant=tenant)
    assert told == [("tool.call", None), ("tool.result", None)]


def test_calls_of_traces_long_ago_are_forgotten() -> None:
    calls = ToldCalls(most_traces=2)
    asked = chat("first", ASKED, [asks(CALL, "refund", ORDER)])
    done = openinference_tool("refund", ORDER, {"refunded": 84}, at=2)
    others = [asked._replace(trace_id=f"{number:032x}") for number in (1, 2)]
    of_requests([asked, *others], calls=calls)
    assert of_requests([done], calls=calls) == [("tool.call", None), ("tool.result", None)]


def test_a_schema_of_a_tool_is_not_what_it_was_called_with() -> None:
    call, _ = envelopes([openinference_tool("refund", ORDER, {"refunded": 84})])
    assert call["payload"]["arguments"] == ORDER


def test_words_that_stand_twice_in_a_message_are_said_once() -> None:
    message = "llm.output_messages.0.message"
    told = span(
        "answer",
        {
            "openinference.span.kind": "LLM",
            f"{message}.role": "assistant",
            f"{message}.content": "Done.",
            f"{message}.contents.0.message_content.type": "text",
            f"{message}.contents.0.message_content.text": "Done.",
        },
    )
    assert only([told], "message.assistant")["payload"]["content"] == "Done."


def test_in_one_millisecond_causes_come_first() -> None:
    for order in range(20):
        call_id = f"{CALL}{order}"
        done = tool("refund", call_id, {"order": order}, "done", at=0, lasts=0)
        sent = [*ASKED, returns(call_id, "done")]
        after = chat("next", sent, [text("assistant", "Done.")], at=0.001, lasts=0)
        *_, result, answer = envelopes([after, done])
        assert result["occurred_at"] == answer["occurred_at"]
        assert answer["parent_event_id"] == result["event_id"]
