"""Each rule where it speaks and where it keeps silent."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrichment.causality import (
    MAX_CAUSES,
    MAX_EVIDENCE_CHARACTERS,
    PRODUCERS,
    PRODUCERS_AFTER_SPEECH,
    RULES,
    VALUE_CONFIDENCE,
    WINDOW,
    InferredCause,
    features,
    inferred_causes,
)
from enrichment.features import Features
from tests.factories import event, event_id


def heard(number: int, text: Any, **fields: Any) -> Features:
    """A message of another speaker than the agent."""
    return of(number, "message.user", {"content": text, "role": "user"}, agent="user", **fields)


def said(number: int, text: Any, **fields: Any) -> Features:
    """A message of the agent."""
    return of(number, "message.assistant", {"content": text, "role": "assistant"}, **fields)


def call(number: int, arguments: Any, **fields: Any) -> Features:
    """A tool call of the agent."""
    return of(number, "tool.call", {"arguments": arguments}, tool_name="search", **fields)


def result(number: int, content: Any, *, of_call: int | None = None, **fields: Any) -> Features:
    """What the tool returned; to the call of that number when one is given."""
    payload = {"result": content}
    return of(
        number, "tool.result", payload, parent=of_call, agent="tool", tool_name="search", **fields
    )


def of(
    number: int, event_type: str, payload: Any, *, agent: str = "agent-1", **fields: Any
) -> Features:
    return features(event(number, event_type=event_type, agent_id=agent, payload=payload, **fields))


def causes(*made: Features) -> list[tuple[int, str, float]]:
    """(number of the cause, rule, confidence) of the last event."""
    return [
        (int(found.cause_event_id.replace("-", ""), 16), found.rule, found.confidence)
        for found in inferred_causes(made[:-1], made[-1])
    ]


# --- value flow ---------------------------------------------------------------------------------


def test_an_identifier_flows_from_the_result_that_gave_it_to_the_call_that_takes_it() -> None:
    found = inferred_causes(
        [result(1, {"card": "card_4421486"}), said(2, "Thank you.")],
        call(3, {"payment": {"id": "card_4421486"}}),
    )

    assert found == [InferredCause(event_id(1), "value_flow", 0.95, "card_4421486")]


def test_what_a_user_says_flows_whatever_the_case_it_is_written_in() -> None:
    assert causes(heard(1, "It is Mia_Li_3668!"), call(2, {"user": "mia_li_3668"})) == [
        (1, "value_flow", 0.95)
    ]


def test_the_first_output_is_the_cause_not_one_that_repeats_it() -> None:
    made = [heard(1, "id u_77312"), call(2, {"user": "u_77312"}), result(3, {"user": "u_77312"})]

    assert causes(*made, call(4, {"user": "u_77312"})) == [(1, "value_flow", 0.95)]


def test_a_value_that_the_agent_brought_up_itself_has_no_cause_in_its_echo() -> None:
    by_call = [call(1, {"origin": "JFK"}), result(2, [{"origin": "JFK"}], of_call=1)]
    by_message = [said(1, "From JFK?"), heard(2, "Yes, from JFK.")]
    by_thought = [of(1, "agent.thought", "try ref_88123"), result(2, "ref_88123", of_call=9)]

    assert causes(*by_call, call(3, {"origin": "JFK"})) == []
    assert causes(*by_message, call(3, {"origin": "JFK"})) == []
    assert causes(*by_thought, call(3, {"ref": "ref_88123"})) == []


def test_what_the_instructions_hold_has_no_cause() -> None:
    policy = of(1, "message.system", {"role": "system", "content": "use desk_4711x"})

    assert causes(policy, heard(2, "use desk_4711x"), call(3, {"desk": "desk_4711x"})) == []


def test_what_another_agent_says_is_output() -> None:
    handed = said(1, "order_88231 is stuck", agent="agent-2")

    assert causes(handed, call(2, {"order": "order_88231"})) == [(1, "value_flow", 0.95)]


def test_the_arguments_of_another_agents_call_produce_nothing() -> None:
    other = call(1, {"order": "order_88231"}, agent="agent-2")

    assert causes(other, call(2, {"order": "order_88231", "x": 1})) == []


def test_any_other_event_with_a_payload_is_output() -> None:
    started = of(1, "session.started", {"order": "order_88231"}, agent="storefront")

    assert causes(started, call(2, {"order": "order_88231"})) == [(1, "value_flow", 0.95)]


@pytest.mark.parametrize("value", [True, 2, 99, 500, "2024-05-20", "economy", "no", "20th"])
def test_a_value_that_coincides_easily_does_not_flow(value: Any) -> None:
    assert causes(result(1, {"x": value}), call(2, {"y": value})) == []


def test_a_number_or_a_word_flows_when_one_event_puts_it_out() -> None:
    assert causes(result(1, 1625.0), call(2, {"amount": 1625})) == [(1, "value_flow", 0.8)]
    assert causes(result(1, {"to": "Seattle"}), call(2, {"city": "Seattle"})) == [
        (1, "value_flow", 0.75)
    ]


def test_a_number_or_a_word_in_two_outputs_does_not_tell_where_it_comes_from() -> None:
    amounts = [result(1, {"price": 152}), result(2, {"fee": 152})]
    names = [result(1, {"name": "Ivan"}), result(2, {"friend": "Ivan"})]

    assert causes(*amounts, call(3, {"amount": 152})) == []
    assert causes(*names, call(3, {"first_name": "Ivan"})) == []


def test_what_comes_back_after_the_agent_used_it_is_no_second_output() -> None:
    made = [result(1, {"price": 152}), call(2, {"sum": "152 + 103"}), result(3, "paid 152")]

    assert causes(*made, call(4, {"amount": 152})) == [(1, "value_flow", 0.8)]


@pytest.mark.parametrize(("repeats", "expected"), [(0, 1), (1, 0)])
def test_what_somebody_said_may_come_back_in_some_outputs(repeats: int, expected: int) -> None:
    made = [heard(1, "to Seattle")]
    made += [result(n, {"to": "Seattle"}) for n in range(2, PRODUCERS_AFTER_SPEECH + 1 + repeats)]

    assert len(causes(*made, call(99, {"city": "Seattle"}))) == expected


def test_a_word_that_was_said_twice_before_its_use_may_be_two_things() -> None:
    made = [heard(1, "Cancel the flight from JFK."), heard(3, "And now one from JFK to SFO.")]

    assert causes(*made, said(4, "Gladly."), call(5, {"origin": "JFK"})) == []
    assert causes(*made, call(5, {"to": "SFO"})) == [(3, "value_flow", 0.75)]


@pytest.mark.parametrize(("outputs", "expected"), [(0, 1), (1, 0)])
def test_an_identifier_that_nearly_everything_puts_out_does_not_flow(
    outputs: int, expected: int
) -> None:
    made = [result(n, {"model": "gpt-4o-mini"}) for n in range(1, PRODUCERS["identifier"] + 1)]
    made += [result(n, {"model": "gpt-4o-mini"}) for n in range(100, 100 + outputs)]

    assert len(causes(*made, call(999, {"model": "gpt-4o-mini"}))) == expected


def test_a_flow_from_the_parent_is_left_to_the_direct_edge_and_not_given_to_a_repetition() -> None:
    made = [heard(1, "id u_77312"), result(2, {"user": "u_77312"})]

    assert causes(*made, call(3, {"user": "u_77312"}, parent=1)) == []


def test_evidence_names_the_values_the_strongest_first_and_none_cut_short() -> None:
    many = {f"k{n}": f"value-of-{n:04d}" for n in range(40)}
    found = inferred_causes(
        [result(1, {**many, "city": "Seattle", "price": 152})],
        call(2, {**many, "city": "Seattle", "price": 152}),
    )
    few = inferred_causes(
        [result(1, {"a": "Seattle", "b": 152, "c": "id_77312"})],
        call(2, {"a": "Seattle", "b": 152, "c": "id_77312"}),
    )

    assert few[0].evidence == "id_77312, 152, Seattle"
    assert len(found[0].evidence) <= MAX_EVIDENCE_CHARACTERS
    assert all(len(value) == len("value-of-0000") for value in found[0].evidence.split(", "))


def test_the_window_ends_at_two_hundred_events() -> None:
    source = heard(1, "id u_77312")
    between = [said(n, "one moment") for n in range(2, WINDOW + 1)]
    effect = call(999, {"user": "u_77312"})

    assert len(causes(source, *between, effect)) == 1
    assert causes(source, *between, said(998, "nearly there"), effect) == []


def test_of_many_causes_the_strongest_are_given() -> None:
    made = [result(n, {"v": 1000 + n}) for n in range(1, 11)]
    made += [result(n, {"v": f"id_{n:05d}"}) for n in range(11, 21)]
    arguments = [*(1000 + n for n in range(1, 11)), *(f"id_{n:05d}" for n in range(11, 21))]

    found = causes(*made, call(99, arguments))

    assert found == [(n, "value_flow", 0.95) for n in range(11, 11 + MAX_CAUSES)]


# --- tool result --------------------------------------------------------------------------------


def with_id(number: int, call_id: str, *, answer: bool = False, **fields: Any) -> Features:
    if answer:
        payload: Any = {"role": "tool", "tool_call_id": call_id, "content": "ok"}
        return of(number, "tool.result", payload, agent="tool", **fields)
    asked = {"id": call_id, "function": {"name": "search", "arguments": '{"q": 1}'}}
    return of(number, "tool.call", {"role": "assistant", "tool_calls": [asked]}, **fields)


def test_a_result_without_a_parent_answers_the_newest_call_of_its_id() -> None:
    made = [with_id(1, "c1"), with_id(2, "c1"), with_id(3, "c2")]

    assert causes(*made, with_id(4, "c1", answer=True)) == [(2, "tool_result", 0.98)]


def test_a_result_whose_call_id_nobody_gave_answers_no_call() -> None:
    assert causes(with_id(1, "c1"), with_id(2, "c9", answer=True)) == []


def test_a_result_without_call_id_answers_the_newest_unanswered_call_of_its_tool() -> None:
    calls = [call(1, {"q": 1}), call(2, {"q": 2})]

    assert causes(*calls, result(3, "ok")) == [(2, "tool_result", 0.85)]
    assert causes(*calls, result(3, "ok"), result(4, "ok")) == [(1, "tool_result", 0.85)]
    assert causes(*calls, result(3, "ok", of_call=2), result(4, "ok")) == [(1, "tool_result", 0.85)]
    assert causes(*calls, result(3, "ok"), result(4, "ok"), result(5, "ok")) == []


def test_a_result_answers_no_call_of_another_tool_or_another_trace() -> None:
    assert causes(call(1, {"q": 1}, trace_id="trace-2"), result(2, "ok")) == []
    assert causes(of(1, "tool.call", {"arguments": {}}, tool_name="other"), result(2, "ok")) == []


def test_a_result_with_a_parent_needs_no_rule() -> None:
    assert causes(call(1, {"q": 1}), result(2, "ok", of_call=1)) == []


# --- retry --------------------------------------------------------------------------------------

ROUTE = {"from": "JFK", "to": "SEA", "seats": 2}


def test_the_same_call_after_its_failure_is_a_retry() -> None:
    made = [call(1, ROUTE), result(2, "Error", of_call=1, status="failed"), said(3, "Again.")]

    assert causes(*made, call(4, ROUTE)) == [(2, "retry", 0.9)]


def test_a_call_that_changed_a_third_of_its_arguments_is_a_retry() -> None:
    made = [call(1, ROUTE), result(2, "Error", of_call=1, status="timeout")]

    assert causes(*made, call(3, {**ROUTE, "seats": 1})) == [(2, "retry", 0.75)]
    assert causes(*made, call(3, {"from": "JFK", "to": "LAX", "seats": 1})) == []


def test_a_call_that_failed_itself_is_retried() -> None:
    assert causes(call(1, ROUTE, status="failed"), call(2, ROUTE)) == [(1, "retry", 0.9)]


def test_the_newest_of_several_failures_is_retried() -> None:
    made = [call(1, ROUTE), result(2, "Error", status="failed")]
    made += [call(3, ROUTE), result(4, "Error", status="failed")]

    assert causes(*made, call(5, ROUTE)) == [(4, "retry", 0.9)]


def test_a_failure_that_was_mended_meanwhile_is_not_retried() -> None:
    made = [call(1, ROUTE), result(2, "Error", of_call=1, status="failed")]
    made += [call(3, ROUTE), result(4, "ok", of_call=3)]

    assert causes(*made, call(5, ROUTE)) == []


@pytest.mark.parametrize(
    "effect",
    [
        call(3, {"from": "LHR"}),
        call(3, ROUTE, agent="agent-2"),
        of(3, "tool.call", {"arguments": ROUTE}, tool_name="other"),
        call(3, ROUTE, parent=2),
        call(3, None),
    ],
)
def test_another_call_is_no_retry(effect: Features) -> None:
    made = [call(1, ROUTE), result(2, "Error", of_call=1, status="failed")]

    assert [found for found in causes(*made, effect) if found[1] == "retry"] == []


# --- reply --------------------------------------------------------------------------------------


def test_a_message_after_one_of_another_speaker_is_a_reply() -> None:
    made = [heard(1, "Where is it?"), call(2, {"q": 1}), result(3, "here")]

    assert causes(*made, said(4, "Here.")) == [(1, "reply", 0.7)]


@pytest.mark.parametrize(("later_ms", "expected"), [(86_400_000, 1), (86_400_001, 0)])
def test_a_message_more_than_a_day_later_is_no_reply(later_ms: int, expected: int) -> None:
    assert len(causes(heard(1, "Where?", at=0), said(2, "Here.", at=later_ms))) == expected


def test_a_second_message_of_the_same_speaker_is_no_reply() -> None:
    assert causes(heard(1, "Where?"), said(2, "One moment."), said(3, "Here.")) == []


def test_a_message_with_a_parent_needs_no_rule() -> None:
    assert causes(heard(1, "Where?"), said(2, "Here.", parent=9)) == []


def test_who_is_answered_is_unknown_when_three_speak() -> None:
    third = said(1, "Hello.", agent="agent-2")

    assert causes(third, heard(2, "Where?"), said(3, "Here.")) == []


def test_a_message_to_somebody_else_is_not_answered() -> None:
    note = {"text": "Where?", "to": "agent-9"}
    asked = of(1, "agent.message.sent", note, agent="user")
    answer = of(2, "agent.message.sent", {"text": "Here.", "to": "agent-9"})

    assert causes(asked, said(2, "Here.")) == []
    assert causes(heard(1, "Where?"), answer) == []


# --- all rules ----------------------------------------------------------------------------------


def test_the_stronger_rule_names_a_cause_that_two_rules_find() -> None:
    made = [
        of(1, "tool.execute", {"arguments": ROUTE, "result": "try ref_88123"}, tool_name="search")
    ]
    failed = made[0]._replace(failed=True)
    same = call(2, {**ROUTE, "ref": "ref_88123"})

    assert causes(failed, same) == [(1, "value_flow", 0.95)]
    assert causes(failed, call(2, ROUTE)) == [(1, "retry", 0.9)]


def test_the_table_of_rules_holds_every_name_and_the_highest_confidence() -> None:
    table = {rule.name: rule.confidence for rule in RULES}

    assert table == {"tool_result": 0.98, "value_flow": 0.95, "retry": 0.9, "reply": 0.7}
    assert table["value_flow"] == max(VALUE_CONFIDENCE.values())


def test_only_the_events_before_decide_not_how_they_came() -> None:
    made = [heard(n, f"id u_{n:05d}, {n * 7} or Name{chr(97 + n)}") for n in range(1, 20)]
    effect = call(99, {"ids": [f"u_{n:05d}" for n in range(1, 20)]})
    expected = inferred_causes(made, effect)
    shuffled = made.copy()
    random.Random(1).shuffle(shuffled)

    assert inferred_causes(sorted(shuffled, key=lambda f: f.event_id), effect) == expected
    assert inferred_causes([said(0, "old")] * WINDOW + made, effect) == inferred_causes(
        ([said(0, "old")] * WINDOW + made)[-WINDOW:], effect
    )


numbers = st.integers(1, 12)
made_up = st.builds(
    lambda number, parent, kind, agent, payload: features(
        event(
            number,
            parent=parent if parent != number else None,
            event_type=kind,
            agent_id=agent,
            tool_name="search",
            payload=payload,
        )
    ),
    numbers,
    st.none() | numbers,
    st.sampled_from(["tool.call", "tool.result", "tool.failed", "message.sent", "x.y"]),
    st.sampled_from(["agent-1", "agent-2"]),
    st.dictionaries(
        st.sampled_from(["arguments", "result", "content", "role", "call_id", "to"]),
        st.sampled_from(["card_4421486", "u_77312 and JFK", 1625, "JFK", "user", ["JFK"]]),
        max_size=4,
    ),
)


@given(st.lists(made_up, max_size=8, unique_by=lambda made: made.event_id), made_up)
def test_whatever_happened_causes_are_bounded_and_never_the_event_or_its_parent(
    before: list[Features], effect: Features
) -> None:
    found = inferred_causes(before, effect)
    ids = [cause.cause_event_id for cause in found]

    assert inferred_causes(before, effect) == found
    assert len(ids) == len(set(ids)) <= MAX_CAUSES
    assert set(ids) <= {earlier.event_id for earlier in before}
    assert not {effect.event_id, effect.parent_event_id} & set(ids)
    assert found == sorted(found, key=lambda cause: -cause.confidence)
    assert {cause.rule for cause in found} <= {rule.name for rule in RULES}
    for cause in found:
        assert 0 < cause.confidence <= 1
        assert round(cause.confidence, 4) == cause.confidence
        assert 0 < len(cause.evidence) <= MAX_EVIDENCE_CHARACTERS
