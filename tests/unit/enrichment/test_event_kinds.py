"""The kind of an event, by its payload's shape, its type, its tool and its status."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrichment.event_kinds import (
    EventKind,
    event_kind,
    is_failed,
    is_of_tool,
    is_resolution,
)
from enrichment.features import features
from enrichment.text import event_text
from projections.events import Event
from tests.factories import event
from tests.strategies import events, json_values

CALL, RESULT, FAILURE = EventKind.CALL, EventKind.RESULT, EventKind.FAILURE
MESSAGE, INSTRUCTION, OTHER = EventKind.MESSAGE, EventKind.INSTRUCTION, EventKind.OTHER
TOOL_CALL = {"id": "c1", "function": {"name": "get_user", "arguments": "{}"}}


def kind(event_type: str, payload: Any = None, **fields: Any) -> EventKind:
    return event_kind(event(event_type=event_type, payload=payload, **fields))


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"role": "user", "content": "Hi."}, MESSAGE),
        ({"role": "planner", "content": "Hi."}, MESSAGE),
        ({"role": "system", "content": "Be kind."}, INSTRUCTION),
        ({"role": "developer", "content": "Be kind."}, INSTRUCTION),
        ({"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}, CALL),
        ({"role": "assistant", "function_call": {"name": "get_user"}}, CALL),
        ({"role": "assistant", "content": [{"type": "tool_use", "input": {}}]}, CALL),
        ({"role": "tool", "content": "ok"}, RESULT),
        ({"role": "tool", "content": '{"error": "no such user"}'}, FAILURE),
        ({"role": "tool", "content": "no such user", "is_error": True}, FAILURE),
        ({"role": "user", "content": [{"type": "tool_result", "content": "ok"}]}, RESULT),
        (
            {"role": "user", "content": [{"type": "tool_result", "is_error": True}, "And now?"]},
            FAILURE,
        ),
    ],
)
def test_a_chat_message_is_what_it_holds_and_whose_it_is(payload: Any, expected: EventKind) -> None:
    assert kind("step.taken", payload) is expected
    assert kind("step.taken", orjson.dumps(payload).decode()) is expected


@pytest.mark.parametrize(
    ("event_type", "payload", "fields", "expected"),
    [
        ("tool.call", {"arguments": {}}, {}, CALL),
        ("tool.call", {"arguments": {}}, {"status": "failed"}, CALL),
        ("tool.execute", {"arguments": {}, "result": "ok"}, {}, CALL),
        ("tool.call.started", None, {}, CALL),
        ("tool.call", {"arguments": {}, "error": "no such user"}, {}, FAILURE),
        ("search.run", {"name": "search", "arguments": {}}, {}, CALL),
        ("search.run", {"input": "x", "output": "y"}, {"tool_name": "search"}, RESULT),
        ("search.run", {"result": "y"}, {"tool_name": "search"}, RESULT),
        ("search.run", {"hits": 3}, {"tool_name": "search", "status": "completed"}, RESULT),
        ("search.run", {"hits": 3}, {"tool_name": "search"}, OTHER),
        ("tool.execute", {"result": "y"}, {}, RESULT),
        ("tool.result", "anything", {}, RESULT),
        ("tool.result", "no", {"status": "timeout"}, FAILURE),
        ("tool.result", {"is_error": True}, {}, FAILURE),
        ("tool.completed", {"arguments": {}, "result": "y"}, {}, RESULT),
        ("tool.failed", {"reason": "no such user"}, {}, FAILURE),
        ("tool.call.failed", {"arguments": {}}, {}, FAILURE),
    ],
)
def test_a_use_of_a_tool_is_its_call_what_it_returned_or_its_failure(
    event_type: str, payload: Any, fields: dict[str, Any], expected: EventKind
) -> None:
    assert kind(event_type, payload, **fields) is expected


@pytest.mark.parametrize(
    ("event_type", "payload", "fields", "expected"),
    [
        ("message.user", "Hi.", {}, MESSAGE),
        ("message.response", "Hi.", {}, MESSAGE),
        ("message.error", "The error is back.", {}, MESSAGE),
        ("message.user", "Hi.", {"status": "failed"}, FAILURE),
        ("message.sent", {"message": "Your code", "code": "A1"}, {}, MESSAGE),
        ("system.message", "Be kind.", {}, INSTRUCTION),
        ("agent.thought", "Let me see.", {}, EventKind.THOUGHT),
        ("plan.made", {"steps": []}, {}, EventKind.THOUGHT),
        ("decision.made", "Use Valkey.", {}, EventKind.DECISION),
        ("llm.response", "Hi.", {}, RESULT),
        ("deploy.failed", {"service": "x"}, {}, FAILURE),
        ("deploy.finished", None, {"status": "failed"}, FAILURE),
        ("deploy.finished", {"error": "x"}, {}, FAILURE),
        ("deploy.finished", {"message": "no disk", "code": "E28"}, {}, FAILURE),
        ("deploy.finished", {"message": "ok", "code": "0"}, {"status": "completed"}, OTHER),
        ("error.resolved", None, {}, OTHER),
        ("error.handled", None, {"status": "completed"}, OTHER),
        ("session.started", {"order": "4711"}, {}, OTHER),
    ],
)
def test_any_other_event_is_what_its_type_and_status_say(
    event_type: str, payload: Any, fields: dict[str, Any], expected: EventKind
) -> None:
    assert kind(event_type, payload, **fields) is expected


def test_content_from_elsewhere_takes_the_place_of_the_payload() -> None:
    assert event_kind(event(payload="see the store"), {"error": "no disk"}) is FAILURE


def test_a_status_tells_of_a_failure_whatever_the_kind() -> None:
    told = [is_failed(FAILURE, None), is_failed(CALL, "timeout"), is_failed(CALL, "completed")]
    assert told == [True, True, False]


def test_a_tool_is_named_by_the_envelope_or_meant_by_the_type() -> None:
    told = [is_of_tool("search.run", "search"), is_of_tool("tool.run", None), is_of_tool("x", None)]
    assert told == [True, True, False]


def test_a_resolution_says_so_in_its_type() -> None:
    told = [is_resolution("incident.rolled_back"), is_resolution("incident.opened")]
    assert told == [True, False]


FIELDS = "role content tool_calls function_call name arguments input error message code status"
shapes = st.dictionaries(
    st.sampled_from([*FIELDS.split(), "result", "output", "is_error"]),
    json_values | st.sampled_from(["user", "tool", "system", "failed"]),
)


@given(
    made=events(),
    payload=shapes | json_values | shapes.map(lambda made: orjson.dumps(made).decode()),
    event_type=st.sampled_from(["tool.call", "tool.completed", "message.user", "a.failed", "a.b"]),
)
def test_everything_that_is_derived_from_an_event_goes_by_one_kind(
    made: Event, payload: Any, event_type: str
) -> None:
    made = made._replace(payload=payload, event_type=event_type)
    decided = event_kind(made)
    assert (event_text(made).kind, features(made).kind) == (decided, decided)
