"""Facts that structured results state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from enrichment.event_kinds import EventKind
from enrichment.facts import Assertion
from enrichment.names import MAX_FACTS
from enrichment.ports import EventText
from enrichment.records import changed_facts, structured_facts
from enrichment.text import event_text
from projections.events import Event
from tests.factories import START_MS, event
from tests.strategies import json_values

RESERVATION = {
    "reservation_id": "4WQ150",
    "user_id": "chen_jackson_3290",
    "origin": "DFW",
    "cabin": "business",
    "flights": [
        {"flight_number": "HAT170", "price": 883, "date": "2024-05-22"},
        {"flight_number": "HAT022", "price": 990, "date": "2024-05-26"},
    ],
    "passengers": [{"first_name": "Chen", "last_name": "Jackson", "dob": "1956-07-07"}],
    "total_baggages": 5,
    "insurance": "no",
    "status": "cancelled",
}
USER = {
    "name": {"first_name": "Mia", "last_name": "Li"},
    "email": "mia.li3818@example.com",
    "membership": "gold",
    "payment_methods": {
        "credit_card_4421486": {"source": "credit_card", "id": "credit_card_4421486"},
    },
    "reservations": ["NO6JO3", "HATHAT"],
}


def result(value: Any, **fields: Any) -> Event:
    """What a tool returned, as the message that a chat import makes of it."""
    content = value if isinstance(value, str) else json.dumps(value)
    return event(
        event_type="tool.result",
        agent_id="tool",
        payload={"role": "tool", "tool_call_id": "call_x1", "name": "tool", "content": content},
        status="completed",
    )._replace(**fields)


def found(made: Event) -> list[Assertion]:
    return structured_facts(made, event_text(made), position_ms=9)


def triples(made: Event) -> set[tuple[str, str, str]]:
    return {(one.source.name, one.relation, one.target.name) for one in found(made)}


def test_a_record_is_told_from_its_keys_by_the_name_of_the_tool() -> None:
    assert triples(result(RESERVATION, tool_name="cancel_reservation")) == {
        ("4WQ150", "has_status", "cancelled"),
        ("chen_jackson_3290", "has_reservation", "4WQ150"),
        ("4WQ150", "has_flight", "HAT170"),
        ("4WQ150", "has_flight", "HAT022"),
        ("4WQ150", "has_origin", "DFW"),
        ("4WQ150", "has_cabin", "business"),
        ("4WQ150", "has_total_baggages", "5"),
        ("4WQ150", "has_insurance", "no"),
    }


def test_without_the_tools_word_nobody_knows_whose_record_it_is() -> None:
    assert triples(result(RESERVATION, tool_name="lookup")) == set()


def test_the_strongest_fact_comes_first_and_reads_as_a_sentence() -> None:
    first = found(result(RESERVATION, tool_name="cancel_reservation"))[0]
    assert (first.fact, first.functional, first.valid_from_ms, first.position_ms) == (
        "reservation 4WQ150 has status cancelled",
        True,
        START_MS + 1,
        9,
    )


def test_a_user_without_an_id_is_the_events_user_when_the_name_fits() -> None:
    made = result(USER, tool_name="get_user_details", user_id="mia_li_3668")
    assert triples(made) == {
        ("mia_li_3668", "has_name", "Mia Li"),
        ("mia_li_3668", "has_email", "mia.li3818@example.com"),
        ("mia_li_3668", "has_membership", "gold"),
        ("mia_li_3668", "has_payment_method", "credit_card_4421486"),
        ("mia_li_3668", "has_reservation", "NO6JO3"),
        ("mia_li_3668", "has_reservation", "HATHAT"),
    }


def test_another_user_than_the_events_is_known_by_e_mail() -> None:
    made = result(USER, tool_name="get_user_details", user_id="omar_davis_3817")
    assert {source for source, _, _ in triples(made)} == {"mia.li3818@example.com"}


def test_both_ways_of_saying_whose_a_reservation_is_are_one_fact() -> None:
    one = result(USER, tool_name="get_user_details", user_id="mia_li_3668")
    other = result(
        {"reservation_id": "NO6JO3", "user_id": "mia_li_3668"}, tool_name="get_reservation_details"
    )
    ends = [
        {(f.source_id, f.relation, f.target_id) for f in found(made) if f.target.name == "NO6JO3"}
        for made in (one, other)
    ]
    assert ends[0] == ends[1]


def test_an_object_within_a_record_is_told_by_its_name() -> None:
    made = result(
        {"user": "u-7", "cover": [{"name": "Ada Lim", "scope": "all"}], "plan": {"label": "Pro"}},
        tool_name="coverage.get",
        user_id="u-7",
    )
    assert triples(made) == {
        ("u-7", "has_cover_name", "Ada Lim"),
        ("u-7", "has_plan_label", "Pro"),
    }


def test_search_results_give_the_strongest_fields_only() -> None:
    flights = [{"flight_number": "HAT069", "status": "available", "seats": 3, "origin": "JFK"}]
    assert triples(result(flights, tool_name="search_direct_flight")) == {
        ("HAT069", "has_status", "available")
    }


@pytest.mark.parametrize(
    "payload",
    [
        {"id": "order-17", "status": "shipped"},
        {"result": {"id": "order-17", "status": "shipped"}},
        {"output": '{"id": "order-17", "status": "shipped"}'},
        '{"id": "order-17", "status": "shipped"}',
    ],
)
def test_a_result_is_found_in_its_wrapping(payload: Any) -> None:
    made = event(event_type="tool.result", tool_name="get_order", payload=payload)
    assert triples(made) == {("order-17", "has_status", "shipped")}


@pytest.mark.parametrize(
    "made",
    [
        result("Error: no such reservation", tool_name="get_reservation_details"),
        result({"id": "a1", "status": "x"}, status="failed"),
        result("255.0"),
        result("[]"),
        result("{not json"),
        result([1, 2]),
        result({"id": "a1", "error": "not found"}),
        event(event_type="tool.call", tool_name="book", payload={"arguments": {"id": "a1"}}),
        event(payload={"role": "user", "content": '{"id": "a1", "status": "open"}'}),
        event(payload=None),
    ],
)
def test_what_is_no_result_states_nothing(made: Event) -> None:
    assert found(made) == []


def test_long_texts_and_paging_are_left_out() -> None:
    value = {"id": "a1", "note": "x" * 81, "text": "two\nlines", "page": 2, "empty": "", "no": None}
    assert triples(result(value)) == set()


def test_a_fact_that_is_there_twice_is_said_once() -> None:
    value = {"id": "a1", "tag": "x9", "tags": ["X9", "x9"], "status": "open"}
    said = [(one.relation, one.target_id) for one in found(result(value))]
    assert len(said) == len(set(said)) == 3


def test_an_event_gives_twenty_facts_at_most_the_strongest_first() -> None:
    value = {"id": "a1", "status": "open", **{f"field_{n:02}": n for n in range(40)}}
    made = found(result(value))
    assert (len(made), made[0].relation) == (MAX_FACTS, "has_status")


def test_what_a_reference_led_to_is_read_instead_of_the_payload() -> None:
    made = event(event_type="tool.result", payload_ref="s3://a/b")
    content = {"id": "order-17", "status": "shipped"}
    facts = structured_facts(made, event_text(made, content), content, position_ms=1)
    assert [one.target.name for one in facts] == ["shipped"]


@given(json_values)
def test_any_json_is_read_without_harm(value: Any) -> None:
    for payload in (value, {"id": "a1", "items": value, "user_id": value}):
        made = event(event_type="tool.result", tool_name="get_user", payload=payload)
        facts = structured_facts(made, EventText(EventKind.RESULT, ""), position_ms=1)
        assert len(facts) <= MAX_FACTS
        assert [one.ordinal for one in facts] == list(range(len(facts)))
        assert all(one.source_id and one.target_id and one.fact for one in facts)


JUNK = {
    "when it was touched": (
        {"user_id": "u-1", "updated_at": "2026-01-02", "created": 3},
        "get_user",
    ),
    "sums of a purchase": ({"customer_id": "u-1", "amount": 30, "currency": "EUR"}, "get_refund"),
    "the state of what was asked for": ({"customer_id": "u-1", "state": "booked"}, "get_pickup"),
    "codes and versions": ({"user_id": "u-1", "status_code": 200, "version": 4}, "get_user"),
}


@pytest.mark.parametrize("case", JUNK)
def test_what_says_nothing_about_a_person_is_no_fact(case: str) -> None:
    value, tool = JUNK[case]
    assert triples(result(value, tool_name=tool)) == set()


def test_a_person_has_a_state_where_the_tool_is_about_people() -> None:
    made = result({"customer_id": "u-1", "status": "gold"}, tool_name="get_customer")
    assert triples(made) == {("u-1", "has_status", "gold")}


@pytest.mark.parametrize(
    ("tool", "value"),
    [
        ("unsubscribe", {"customer_id": "ana", "list": "newsletter"}),
        ("iam.removePermission", {"user_id": "ana", "permission": "admin", "status": "removed"}),
        ("delete_address", {"customer_id": "ana", "address": "Rua Larga 4"}),
        ("cancel_item", {"order_id": "B-7", "sku": "GLV-L", "status": "cancelled"}),
    ],
)
def test_what_a_tool_took_away_is_no_fact(tool: str, value: Any) -> None:
    assert found(result(value, tool_name=tool)) == []


def test_what_becomes_of_the_thing_that_a_tool_cancels_is_one() -> None:
    cancelled = result({"order_id": "B-7", "status": "cancelled"}, tool_name="cancel_order")
    assert triples(cancelled) == {("B-7", "has_status", "cancelled")}


def test_a_version_is_a_fact_about_a_service() -> None:
    made = result({"service_id": "billing-2", "version": "4.1"}, tool_name="get_service")
    assert triples(made) == {("billing-2", "has_version", "4.1")}


def test_a_record_and_a_sentence_say_one_relation_of_a_person() -> None:
    made = result({"user_id": "u-1", "city": "Oslo", "phone_number": "+47 1"}, tool_name="get_user")
    assert {relation for _, relation, _ in triples(made)} == {"lives_in", "has_phone"}
    thing = result({"depot_id": "D-1", "city": "Oslo"}, tool_name="get_depot")
    assert triples(thing) == {("D-1", "has_city", "Oslo")}


def test_what_was_changed_holds_from_then_and_the_old_value_until_then() -> None:
    made = event(
        event_type="config.changed", payload={"setting": "gate.limit", "from": 10, "to": 25}
    )
    facts = changed_facts(made, event_text(made), position_ms=9)
    at_ms = made.occurred_at_ms
    assert [(f.fact, f.valid_from_ms, f.valid_to_ms) for f in facts] == [
        ("setting gate.limit has value 10", at_ms - 1, at_ms),
        ("setting gate.limit has value 25", at_ms, None),
    ]
