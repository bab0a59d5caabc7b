"""Chat trajectories become events with stable ids, and answers know what they answer."""

from __future__ import annotations

import copy
import uuid
from typing import Any

import pytest

from pipelines.operations.formats.chat import (
    BASE_MS,
    SPREAD_MINUTES,
    STEP_MS,
    conversation_events,
    is_error,
)
from projections.errors import InvalidInput
from projections.events import Event, parse_event

NOW_MS = BASE_MS + 3 * 365 * 86_400_000


def call(call_id: str | None, name: str = "look_up") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def trajectory(**fields: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Where is my order?"},
        {"role": "assistant", "content": None, "tool_calls": [call("c1")]},
        {"role": "tool", "tool_call_id": "c1", "name": "look_up", "content": "Error: no such id"},
        {"role": "assistant", "content": None, "tool_calls": [call("c1")]},
        {"role": "tool", "tool_call_id": "c1", "name": "look_up", "content": '{"city": "Oslo"}'},
        {"role": "assistant", "content": "In Oslo."},
        {"role": "user", "content": "Thanks."},
    ]
    return {"task_id": 7, "trial": 0, "traj": messages, **fields}


def events(source: Any) -> list[Event]:
    return [
        parse_event(mapped.envelope, now_ms=NOW_MS)
        for mapped in conversation_events(source)
        if mapped.envelope is not None
    ]


def test_every_message_is_one_event_typed_by_its_role() -> None:
    assert [event.event_type for event in events(trajectory())] == [
        "message.system",
        "message.user",
        "tool.call",
        "tool.result",
        "tool.call",
        "tool.result",
        "message.assistant",
        "message.user",
    ]


def test_parents_are_what_a_message_answers() -> None:
    found = events(trajectory())
    places = {event.event_id: place for place, event in enumerate(found)}
    # The repeated call id: each result belongs to the newest call of that id.
    assert [places.get(event.parent_event_id or "") for event in found] == [
        None,
        None,
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_agents_tools_and_outcomes_are_taken_from_the_messages() -> None:
    found = events(trajectory(agent="airline-agent"))
    assert [(e.agent_id, e.tool_name, e.status) for e in found] == [
        ("system", None, None),
        ("user", None, None),
        ("airline-agent", "look_up", None),
        ("tool", "look_up", "failed"),
        ("airline-agent", "look_up", None),
        ("tool", "look_up", "completed"),
        ("airline-agent", None, None),
        ("user", None, None),
    ]


def test_the_payload_is_the_whole_message() -> None:
    source = trajectory()
    assert [event.payload for event in events(source)] == source["traj"]


def test_the_same_conversation_gives_the_same_events_whatever_else_the_file_says() -> None:
    assert events(trajectory()) == events(copy.deepcopy(trajectory(reward=1.0)))


def test_ids_are_name_based_uuids() -> None:
    assert {uuid.UUID(event.event_id).version for event in events(trajectory())} == {5}


@pytest.mark.parametrize(
    "other",
    [
        trajectory(trial=1),
        trajectory(task_id=8),
        trajectory(traj=[*trajectory()["traj"], {"role": "user", "content": "###STOP###"}]),
        trajectory(id="order-1"),
    ],
    ids=["another trial", "another task", "other messages", "an id of its own"],
)
def test_other_conversations_share_nothing(other: dict[str, Any]) -> None:
    ours, theirs = events(trajectory()), events(other)
    assert not {e.event_id for e in ours} & {e.event_id for e in theirs}
    assert not {e.session_id for e in ours} & {e.session_id for e in theirs}


def test_a_conversation_with_its_own_id_may_grow() -> None:
    short, grown = trajectory(id="order-1"), trajectory(id="order-1")
    grown["traj"].append({"role": "assistant", "content": "You are welcome."})
    assert events(grown)[:-1] == events(short)


def test_times_rise_by_a_fixed_step_and_lie_in_the_year_after_the_base() -> None:
    times = [event.occurred_at_ms for event in events(trajectory())]
    assert times == [times[0] + place * STEP_MS for place in range(len(times))]
    assert BASE_MS <= times[0] < BASE_MS + SPREAD_MINUTES * 60_000


def test_one_message_with_several_calls_is_one_event_and_each_result_finds_it() -> None:
    found = events(
        [
            {"role": "user", "content": "Both, please."},
            {"role": "assistant", "tool_calls": [call("a", "weather"), call("b", "clock")]},
            {"role": "tool", "tool_call_id": "b", "content": "12:00"},
            {"role": "tool", "tool_call_id": "a", "content": "rain"},
            {"role": "assistant", "content": "Noon, rain."},
        ]
    )
    assert [event.tool_name for event in found] == [None, None, "clock", "weather", None]
    assert [event.parent_event_id for event in found[1:]] == [
        found[0].event_id,
        found[1].event_id,
        found[1].event_id,
        found[3].event_id,
    ]


def test_the_older_function_call_shape_is_understood() -> None:
    found = events(
        [
            {"role": "assistant", "function_call": {"name": "clock", "arguments": "{}"}},
            {"role": "function", "name": "clock", "content": "12:00"},
        ]
    )
    assert [event.event_type for event in found] == ["tool.call", "tool.result"]
    assert found[1].parent_event_id == found[0].event_id


def test_the_person_concerned_is_named() -> None:
    source = trajectory(info={"task": {"user_id": "mia_li_3668"}})
    assert {event.user_id for event in events(source)} == {"mia_li_3668"}


def test_a_broken_message_is_reported_by_field_and_the_others_go_on() -> None:
    source = trajectory()
    source["traj"][1] = {"role": "narrator"}
    source["traj"][2]["tool_calls"][0]["function"] = {}
    mapped = list(conversation_events(source))
    assert [m.place for m in mapped if m.error] == [1, 2]
    assert [m.error.errors[0][0] for m in mapped if m.error] == [
        "messages[1].role",
        "messages[2].tool_calls[0].function.name",
    ]
    assert len([m for m in mapped if m.envelope]) == 6


@pytest.mark.parametrize("source", [3, None, "text", {}, {"messages": "none"}])
def test_what_is_no_conversation_is_refused(source: Any) -> None:
    with pytest.raises(InvalidInput):
        list(conversation_events(source))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Error: payment method not found", True),
        ("  ERROR 500", True),
        ('{"error": "timeout"}', True),
        ('{"error": null, "rows": []}', False),
        ('{"isError": true}', True),
        ('{"status": "failed"}', True),
        ('{"status": "available"}', False),
        ("{not json", False),
        ("No errors found", False),
        ("", False),
        (None, False),
        ([{"type": "text", "text": "fine"}], False),
    ],
)
def test_failed_results_are_told_from_others(content: Any, expected: bool) -> None:
    assert is_error(content) is expected
