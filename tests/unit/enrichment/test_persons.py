"""Who a name or an address belongs to, and what a user corrects of how they are reached."""

from __future__ import annotations

from typing import Any

import pytest

from enrichment.event_kinds import event_kind
from enrichment.facts import party_id
from enrichment.names import entity_id
from enrichment.persons import (
    Belonging,
    Bond,
    belongings,
    corrected_facts,
    persons_decided,
    speaks_as_user,
)
from enrichment.records import structured_facts
from enrichment.text import event_text
from projections.events import Event
from projections.identity import Position
from tests.factories import event

SPEAKS = "speaks_for_user"


def message(number: int = 1, **fields: Any) -> Event:
    given = {"user_id": "u-77", "agent_id": "ada.byron", "event_type": "message.user", **fields}
    return event(number, **{"payload": {"role": "user", "content": "Hi."}, **given})


def shown(made: Event, number: int = 1) -> list[Belonging]:
    text = event_text(made)
    said = structured_facts(made, text, position_ms=number)
    spoken = speaks_as_user(made, event_kind(made))
    return belongings(made, Position(number, 0), spoken=spoken, assertions=said)


def key(name: str, entity_type: str, tenant: str = "default") -> tuple[str, str]:
    return tenant, entity_id(tenant, name, entity_type)


def pairs(decided: list[Event]) -> list[tuple[bool, str]]:
    payloads: list[Any] = [one.payload for one in decided]
    return [(p.get("same", True), p["justification"]) for one in payloads for p in one["pairs"]]


def test_who_speaks_as_the_user_is_the_user() -> None:
    (one,) = shown(message())
    assert (one.name, one.user) == (key("ada.byron", "agent"), key("u-77", "user"))


@pytest.mark.parametrize(
    "fields",
    [
        {"user_id": None},
        {"agent_id": "user"},
        {"agent_id": "u-77"},
        {"payload": {"role": "assistant", "content": "Hi."}},
        {"event_type": "tool.call", "tool_name": "look", "payload": {"arguments": {}}},
    ],
)
def test_who_does_not_speak_as_the_user(fields: dict[str, Any]) -> None:
    assert shown(message(**fields)) == []


def test_a_record_of_the_user_tells_their_name_and_address() -> None:
    record = {"customer_id": "u-77", "name": "Ada Byron", "email": "ada@example.com"}
    made = message(event_type="tool.result", tool_name="get_customer", payload={"result": record})
    assert {one.name for one in shown(made)} == {
        key("ada byron", "concept"),
        key("ada@example.com", "resource"),
    }


def test_a_record_of_another_and_a_first_name_tell_nothing() -> None:
    for record in (
        {"customer_id": "u-78", "email": "ada@example.com"},
        {"customer_id": "u-77", "name": "Ada"},
    ):
        made = message(
            event_type="tool.result", tool_name="get_customer", payload={"result": record}
        )
        assert shown(made) == []


def test_a_name_of_one_user_is_joined_once() -> None:
    found = [*shown(message(1), 1), *shown(message(2), 2)]
    (one,) = persons_decided(found, {})
    assert pairs([one]) == [(True, SPEAKS)]
    bond = Bond(found[0].user, holds=True, rule=SPEAKS)
    assert persons_decided(found, {found[0].name: [bond]}) == []


def test_what_turns_out_to_be_two_users_is_taken_back_and_stays_apart() -> None:
    second = shown(message(2, user_id="u-78"), 2)
    name, first = second[0].name, key("u-77", "user")
    assert pairs(persons_decided(second, {name: [Bond(first, holds=True, rule=SPEAKS)]})) == [
        (False, SPEAKS)
    ]
    apart = {name: [Bond(first, holds=False, rule=SPEAKS)]}
    assert persons_decided(second, apart) == []
    assert persons_decided(shown(message()), apart) == []


def test_two_users_of_one_batch_are_remembered_as_two() -> None:
    found = [*shown(message(1), 1), *shown(message(2, user_id="u-78"), 2)]
    assert pairs(persons_decided(found, {})) == [(False, SPEAKS), (False, SPEAKS)]


@pytest.mark.parametrize("others_hold", [True, False])
def test_users_who_were_joined_at_once_by_two_partitions_are_parted(others_hold: bool) -> None:
    found = shown(message(3), 3)
    mine = Bond(found[0].user, holds=True, rule=SPEAKS)
    other = Bond(key("u-78", "user"), holds=others_hold, rule=SPEAKS)
    decided = persons_decided(found, {found[0].name: [mine, other]})
    assert pairs(decided) == [(False, SPEAKS)] * (1 + others_hold)
    apart = [bond._replace(holds=False) for bond in (mine, other)]
    assert persons_decided(found, {found[0].name: apart}) == []


def test_a_name_that_a_person_took_from_another_user_stays_with_its_own() -> None:
    found = shown(message(3), 3)
    mine = Bond(found[0].user, holds=True, rule=SPEAKS)
    split = Bond(key("u-78", "user"), holds=False, rule="not hers")
    assert persons_decided(found, {found[0].name: [mine, split]}) == []


def test_what_a_person_decided_stays() -> None:
    second = shown(message(2, user_id="u-78"), 2)
    by_hand = Bond(key("u-77", "user"), holds=True, rule="person")
    assert persons_decided(second, {second[0].name: [by_hand]}) == []


def test_deciding_twice_is_deciding_once() -> None:
    found = shown(message())
    assert persons_decided(found, {}) == persons_decided(found, {})


def test_the_user_of_a_record_is_the_user_of_the_envelope() -> None:
    made = message(
        event_type="tool.result",
        tool_name="read_settings",
        payload={"result": {"owner": "u-77", "python": "3.9"}},
    )
    (fact,) = structured_facts(made, event_text(made), position_ms=1)
    assert (party_id("default", fact.source), fact.fact) == (
        key("u-77", "user")[1],
        "u-77 has python 3.9",
    )


CORRECTED = {
    "No, wrong. It is ada.l@example.com.": ("has_email", "ada.l@example.com"),
    "Sorry, a typo: it should be ada.l@example.com": ("has_email", "ada.l@example.com"),
    "That is outdated, the new one is 555-010-9999.": ("has_phone", "555-010-9999"),
    "I mistyped that. I meant ada.l@example.com, thanks.": ("has_email", "ada.l@example.com"),
}
NOTHING = [
    "It is ada.l@example.com.",
    "Is that wrong? It is ada.l@example.com.",
    "No, write to bob@example.com.",
    "No, wrong. It is not ada.l@example.com but her old one.",
    "No, wrong. It is ada.l@example.com or bob@example.com.",
    "No, wrong. It is order 4711.",
]


def spoken(text: str, **fields: Any) -> Event:
    payload = {"role": "user", "content": text}
    return event(event_type="message.user", payload=payload, **{"user_id": "u-77", **fields})


def stated(made: Event) -> list[tuple[str, str, str, bool]]:
    found = corrected_facts(made, event_text(made), position_ms=1)
    return [(one.source.name, one.relation, one.target.name, one.functional) for one in found]


@pytest.mark.parametrize("text", CORRECTED)
def test_a_correction_says_how_the_user_is_reached(text: str) -> None:
    relation, target = CORRECTED[text]
    assert stated(spoken(text)) == [("u-77", relation, target, True)]


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_no_correction(text: str) -> None:
    assert stated(spoken(text)) == []


def test_nobody_else_corrects_for_the_user() -> None:
    text = "No, wrong. It is ada.l@example.com."
    assert stated(spoken(text, user_id=None)) == []
    assert stated(event(payload={"role": "assistant", "content": text}, user_id="u-77")) == []
