"""What the causal rules read out of payloads of many shapes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrichment.features import (
    MAX_ARGUMENTS,
    MAX_CALL_IDS,
    MAX_CONSUMED,
    MAX_VALUES,
    Features,
    features,
)
from projections.events import Event
from tests.factories import event, event_id
from tests.strategies import events, json_values

CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "get_user", "arguments": '{"user_id": "mia_li_3668"}'},
}


def of(payload: Any, **fields: Any) -> Features:
    return features(event(1, payload=payload, **fields))


def tool(event_type: str, payload: Any, **fields: Any) -> Features:
    return of(payload, event_type=event_type, tool_name="get_user", **fields)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (of({"role": "system", "content": "policy"}), "instruction"),
        (of({"role": "user", "content": "hello"}), "message"),
        (of({"role": "assistant", "content": "hello"}), "message"),
        (of({"role": "assistant", "content": None, "tool_calls": [CALL]}), "call"),
        (of({"role": "assistant", "function_call": CALL["function"]}), "call"),
        (of({"role": "tool", "tool_call_id": "call-1", "content": "ok"}), "result"),
        (
            of({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}),
            "result",
        ),
        (
            of({"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "input": {}}]}),
            "call",
        ),
        (tool("tool.call", {"arguments": {}}), "call"),
        (tool("tool.execute", {"user_id": "u"}), "call"),
        (tool("search.started", {"args": {"q": "x"}}), "call"),
        (tool("tool.result", "anything"), "result"),
        (tool("tool.failed", {"error": "no such user"}), "failure"),
        (of("text", event_type="agent.message.sent"), "message"),
        (of("text", event_type="agent.thought"), "thought"),
        (of({"order": "4711"}, event_type="session.started"), "other"),
        (of(None, event_type="session.started"), "other"),
    ],
)
def test_kind_of_an_event(made: Features, kind: str) -> None:
    assert made.kind == kind


def test_a_call_consumes_its_arguments_and_produces_nothing() -> None:
    made = of(
        {"role": "assistant", "content": "Looking for Mia-7431.", "tool_calls": [CALL]},
        event_type="tool.call",
    )

    assert made.consumed == {"mia_li_3668"}
    assert made.stated == {"mia_li_3668", "mia-7431", "Looking"}
    assert made.produced == frozenset()
    assert made.call_ids == ("call-1",)


def test_a_result_produces_its_content_but_not_its_own_call_id() -> None:
    made = of({"role": "tool", "tool_call_id": "call_99XY1", "content": '{"id": "card_4421486"}'})

    assert made.call_ids == ("call_99XY1",)
    assert made.produced == {"card_4421486"}
    assert made.consumed == frozenset()


def test_one_event_may_hold_the_call_and_what_came_of_it() -> None:
    made = tool("tool.execute", {"arguments": {"user": "u-77312"}, "result": {"card": "c-4421486"}})

    assert made.kind == "call"
    assert made.consumed == {"u-77312"}
    assert made.produced == {"c-4421486"}


def test_a_result_that_repeats_its_calls_arguments_consumes_them_only_on_its_own() -> None:
    payload = {"arguments": {"user": "u-77312"}, "result": "ok"}

    assert tool("tool.result", payload).consumed == {"u-77312"}
    assert tool("tool.result", payload, parent=2).consumed == frozenset()


def test_any_other_payload_is_output() -> None:
    made = of({"order": "4711", "to": "ana"}, event_type="session.started")

    assert made.produced == {"4711"}
    assert made.consumed == frozenset()
    assert made.recipient == "ana"


@pytest.mark.parametrize(
    ("made", "failed"),
    [
        (tool("tool.result", "no", status="failed"), True),
        (tool("tool.result", "no", status="timeout"), True),
        (tool("tool.result", {"is_error": True}), True),
        (tool("tool.error", "no"), True),
        (tool("tool.result", "yes", status="completed"), False),
        (tool("tool.result", "yes"), False),
    ],
)
def test_what_counts_as_a_failure(made: Features, failed: bool) -> None:
    assert made.failed is failed


def test_an_id_that_cannot_be_printed_is_none() -> None:
    assert of({"role": "tool", "tool_call_id": "c\ud800", "content": "ok"}).call_ids == ()


def test_resolved_content_is_read_instead_of_the_payload() -> None:
    made = features(event(1, payload={"note": "ref-00001"}), {"note": "card_4421486"})

    assert made.produced == {"card_4421486"}


def test_arguments_are_compared_whatever_the_order_of_their_names() -> None:
    first = tool("tool.call", {"arguments": {"a": 1, "b": [2, 3]}})
    second = tool("tool.call", {"arguments": '{"b": [2, 3], "a": 1}'})

    assert len(first.arguments) == 3
    assert first.arguments == second.arguments


def test_features_are_hashable_and_survive_pickling() -> None:
    made = tool("tool.call", {"arguments": {"user": "u-77312"}}, parent=2)

    assert made.parent_event_id == event_id(2)
    assert {pickle.loads(pickle.dumps(made))} == {made}


def bounded(made: Features) -> bool:
    return (
        len(made.produced) <= MAX_VALUES
        and len(made.stated) <= 2 * MAX_VALUES
        and len(made.consumed) <= MAX_CONSUMED
        and len(made.arguments) <= MAX_ARGUMENTS
        and len(made.call_ids) <= MAX_CALL_IDS
    )


@given(events(), st.none() | json_values)
def test_any_event_has_bounded_features(made: Event, content: Any) -> None:
    assert bounded(features(made, content))
    assert features(made, content) == features(made, content)


shapes = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "tool", "system", 7]),
        "content": json_values | st.lists(st.fixed_dictionaries({"type": st.just("tool_use")})),
        "tool_calls": json_values | st.lists(st.fixed_dictionaries({"function": json_values})),
        "function_call": json_values,
        "arguments": json_values,
        "tool_call_id": json_values,
        "result": json_values,
        "to": json_values,
    },
)


@given(shapes, st.sampled_from(["tool.call", "tool.result", "agent.message", "x.y"]))
def test_payloads_that_look_like_chat_and_are_not_are_read_all_the_same(
    payload: Any, event_type: str
) -> None:
    assert bounded(tool(event_type, payload))


@pytest.mark.parametrize(
    "payload",
    [
        {"arguments": list(range(1000, 60_000))},
        {"arguments": {f"name{n}": f"id-{n:05d}" for n in range(20_000)}},
        {"tool_calls": [{"id": f"c{n}", "function": {"arguments": "{}"}} for n in range(2_000)]},
        {"arguments": "\u202e\ud83d\ude00\x00" * 20_000},
        {"arguments": "[" * 200_000},
    ],
)
def test_large_and_strange_payloads_are_bounded(payload: Any) -> None:
    assert bounded(tool("tool.call", payload))
