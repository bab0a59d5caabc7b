"""Importance by the rules of one table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enrichment.importance import BASE, RULES, importance_score
from enrichment.text import event_text
from projections.events import Event
from tests import strategies
from tests.factories import event


def said(content: str, **fields: Any) -> Event:
    return event(payload={"role": "user", "content": content}, event_type="message.user", **fields)


def holding(made: Event) -> list[str]:
    text = event_text(made)
    return [rule.name for rule in RULES if rule.condition(made, text)]


ROUTINE = said("The museum opens at nine and the second floor shows old maps of the harbour.")

HOLDING: dict[str, list[Event]] = {
    "failed": [
        event(status="failed"),
        event(status="timeout", payload={"a": 1}),
        event(payload={"error": "no seats"}),
    ],
    "outcome": [event(event_type="incident.opened"), event(event_type="order.charged_twice")],
    "decision": [event(event_type="approval.given"), event(event_type="plan.made")],
    "change": [event(event_type="config.changed"), event(event_type="payment.captured")],
    "acting tool": [
        event(tool_name="cancel_reservation", payload={"arguments": {"id": "GV1N64"}}),
        event(tool_name="sendMail"[:4], payload={"arguments": {"to": "ana"}}),
    ],
    "reading tool": [event(tool_name="get_user", payload={"arguments": {"user_id": "ana"}})],
    "instruction": [
        event(payload={"role": "system", "content": "Be brief."}, event_type="message.system")
    ],
    "urgent": [said("This is urgent, the deadline is today.")],
    "deciding": [said("Yes, go ahead with it."), said("We decided to wait for the new model.")],
    "personal": [said("My wife and I hosted a dinner."), said("I'm allergic to peanuts.")],
    "amount": [said("You took 84 euros for it.")],
    "chatter": [said("Thanks, bye!"), said("Hey! How are you?")],
    "question": [said("Could you please provide your user ID for me?")],
    "short": [said("Fine.")],
    "noise": [event(event_type="agent.heartbeat")],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_holds_where_it_should_and_not_for_routine(rule: Any) -> None:
    assert [rule.name in holding(made) for made in HOLDING[rule.name]] == [
        True for _ in HOLDING[rule.name]
    ]
    assert rule.name not in holding(ROUTINE)


def test_what_no_rule_speaks_of_has_the_base() -> None:
    assert (holding(ROUTINE), importance_score(ROUTINE, event_text(ROUTINE))) == ([], BASE)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (said("Thanks, bye!"), 1),
        (said("Thank you so much for all of your help, have a great day!"), 2),
        (event(tool_name="get_user", payload={"arguments": {"user_id": "ana"}}), 3),
        (event(tool_name="book_flight", payload={"arguments": {"flight": "HAT123"}}), 6),
        (event(event_type="decision.made", payload="Use Valkey, not Redis, from May on."), 7),
        (
            event(
                tool_name="book_flight",
                event_type="tool.result",
                status="failed",
                payload="Error: no seats",
            ),
            9,
        ),
        (event(event_type="agent.heartbeat"), 1),
    ],
)
def test_failures_and_decisions_stand_high_and_chatter_low(made: Event, expected: int) -> None:
    assert importance_score(made, event_text(made)) == expected


@pytest.mark.parametrize(("hint", "expected"), [(1, 2), (4, 4), (5, 5), (8, 7), (10, 9)])
def test_a_hint_weighs_three_times_the_rules(hint: int, expected: int) -> None:
    made = ROUTINE._replace(importance_hint=hint)
    assert importance_score(made, event_text(made)) == expected


def test_what_a_tool_returns_decides_nothing() -> None:
    made = event(event_type="tool.result", tool_name="list_notes", payload="Urgent: go ahead.")
    assert holding(made) == ["reading tool"]


def test_a_short_request_with_a_number_is_no_chatter() -> None:
    assert "chatter" not in holding(said("Pay 4712, please."))


def test_the_typographic_apostrophe_is_an_apostrophe() -> None:
    assert "personal" in holding(said("I\u2019m allergic to peanuts, as you know."))


@settings(deadline=None)  # machines that run tests are shared
@given(strategies.events(), st.text(max_size=200))
def test_every_event_has_an_importance_from_1_to_10(made: Event, content: str) -> None:
    for one in (made, made._replace(payload=content)):
        assert importance_score(one, event_text(one)) in range(1, 11)


def test_every_rule_is_documented() -> None:
    names = [rule.name for rule in RULES]
    assert (len(set(names)), [r.name for r in RULES if not r.meaning or not r.points]) == (
        len(names),
        [],
    )
