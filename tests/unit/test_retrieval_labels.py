"""Labels of the questions over tau-bench: what they are for a conversation that one can read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bench.retrieval_methods.__main__ import DATA, chosen
from tests.bench.retrieval_methods.label import INTENTS, Question, questions, sampled


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    made = {"id": f"call-{tool}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def result(tool: str, value: Any) -> dict[str, Any]:
    made = {"role": "tool", "tool_call_id": f"call-{tool}", "name": tool}
    return {**made, "content": value if isinstance(value, str) else json.dumps(value)}


def conversation() -> dict[str, Any]:
    said = [
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": "Please cancel ABC123."},
        call("get_reservation_details", reservation_id="ABC123"),
        result("get_reservation_details", {"reservation_id": "ABC123", "cabin": "economy"}),
        {"role": "assistant", "content": "Shall I?"},
        {"role": "user", "content": "Yes."},
        call("cancel_reservation", reservation_id="ABC123"),
        result("cancel_reservation", {"reservation_id": "ABC123", "status": "cancelled"}),
        {"role": "assistant", "content": "Done."},
    ]
    return {"task_id": 1, "trial": 0, "info": {"task": {"user_id": "mia"}}, "traj": said}


def asked(intent: str, *conversations: dict[str, Any]) -> dict[str, Question]:
    return {one.text: one for one in questions(conversations) if one.intent == intent}


def test_why_is_the_last_word_the_first_naming_and_the_last_result() -> None:
    (found,) = asked("why", conversation()).values()
    assert found.text == "Why did the agent cancel reservation ABC123?"
    assert found.gold == {(0, 5), (0, 1), (0, 3)}
    assert found.ignored == {(0, 6), (0, 7)}


def test_when_is_what_stands_next_to_it() -> None:
    found = asked("when", conversation())
    before = found["What happened right before the agent cancelled reservation ABC123?"]
    after = found["What happened right after the agent cancelled reservation ABC123?"]
    assert before.gold == {(0, 5), (0, 4)}
    assert after.gold == {(0, 7), (0, 8)}
    assert before.ignored == {(0, 6)}


def test_what_is_every_record_of_it() -> None:
    found = asked("what", conversation(), conversation())
    assert found["What are the details of reservation ABC123?"].gold == {
        (number, index) for number in (0, 1) for index in (3, 7)
    }


def test_related_are_the_same_actions_elsewhere() -> None:
    assert asked("related", conversation()) == {}
    (found,) = asked("related", conversation(), conversation()).values()
    assert found.gold == {(1, 6), (1, 7)}
    assert found.ignored == {(0, 6), (0, 7)}
    assert found.conversation == 0


@pytest.mark.skipif(not DATA.exists(), reason="the conversations of tau-bench are not here")
def test_there_are_more_than_fifty_questions_of_every_kind() -> None:
    conversations = chosen(DATA, 15)
    found = sampled(conversations, 15)
    assert len(found) >= 50
    assert {one.intent for one in found} == set(INTENTS)
    assert all(sum(one.intent == intent for one in found) >= 10 for intent in INTENTS)
    assert found == sampled(conversations, 15)
    for one in found:
        assert one.gold
        assert all(
            conversations[number]["traj"][index]["role"] != "system" for number, index in one.gold
        )
