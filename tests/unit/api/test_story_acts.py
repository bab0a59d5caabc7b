"""When and who: the act with the verb and the object of a question, done and not only tried."""

from __future__ import annotations

from typing import Any

import pytest

from api.retrieval.plan import Operator, StoryAnswer
from tests.unit.api.story_builder import Told
from tests.unit.api.test_story_answer import answer, asked


def delivered(stories: Told, story: int, parcel: str, **fields: Any) -> Told:
    """A parcel is looked for, loaded, refused once, and handed over."""
    return (
        stories.add(story, "message", f"where is parcel {parcel}", author="eva", **fields)
        .add(story, "call", f"parcel {parcel}", tool="find_parcel", agent="desk")
        .add(story, "result", f"parcel {parcel} delivered when asked", tool="find_parcel")
        .add(story, "call", f"parcel {parcel}", tool="deliver_parcel", agent="driver")
        .add(story, "failure", "nobody at home", tool="deliver_parcel", agent="driver")
        .add(story, "call", f"parcel {parcel}", tool="deliver_parcel", agent="driver")
        .add(story, "result", "signature", tool="deliver_parcel", agent="driver")
        .add(story, "call", f"parcel {parcel}", tool="check_route", agent="desk")
        .add(story, "result", f"parcel {parcel} was delivered on the route", tool="check_route")
    )


def told(question: str, fill: Any) -> StoryAnswer:
    plan, terms, stories = asked(question)
    fill(stories)
    return answer(question, stories, plan, terms)


@pytest.mark.parametrize(
    "question",
    [
        "When was parcel 5521 delivered?",
        "When did we deliver parcel 5521?",
        "At what time was parcel 5521 delivered?",
        "On which day was parcel 5521 delivered?",
        "Tell me when parcel 5521 was delivered",
    ],
)
def test_when_is_the_time_of_the_call_that_did_it(question: str) -> None:
    given = told(question, lambda stories: delivered(delivered(stories, 0, "5521"), 1, "5522"))
    assert given.order[0] == "6"
    assert given.evidence == ["6"]
    assert given.type == "value"


@pytest.mark.parametrize("question", ["Who delivered parcel 5521?", "Tell me who delivered 5521"])
def test_who_is_the_agent_that_called_and_no_tool(question: str) -> None:
    given = told(question, lambda stories: delivered(stories, 0, "5521"))
    assert given.value == "driver"


def test_what_a_verb_with_its_particle_did_has_a_tool_in_one_word() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "call", "shop 4.2", tool="deploy", agent="coder")
        stories.add(0, "failure", "shop does not answer", tool="deploy")
        stories.add(1, "message", "Payments are slow. Roll back the shop.", author="tom")
        stories.add(1, "call", "shop 4.1", tool="rollback", agent="coder")
        stories.add(1, "result", "shop 4.1 live", tool="rollback")

    why = told("Why was the shop rolled back?", fill)
    assert why.evidence[:2] == ["3", "2"]
    assert told("When was the shop rolled back?", fill).order[0] == "4"


def test_what_an_act_was_done_to_is_told_by_the_act() -> None:
    def fill(stories: Told) -> None:
        (
            stories.add(0, "message", "book a train to lisbon", author="ana")
            .add(0, "call", "train to lisbon", tool="train.search")
            .add(0, "result", "trains to lisbon", tool="train.search")
            .add(0, "call", "train 12", tool="train.book")
            .add(0, "failure", "no seat", tool="train.book")
            .add(0, "call", "train 14", tool="train.book")
            .add(0, "result", "seat 7", tool="train.book")
        )

    assert told("Which train did Ana book to Lisbon?", fill).order[:2] == ["6", "5"]
    assert told("Which trains are there to Lisbon?", fill).order[0] != "6"


def test_a_call_that_failed_is_no_act() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "call", "parcel 7001", tool="deliver_parcel")
        stories.add(0, "failure", "nobody at home", tool="deliver_parcel")
        delivered(stories, 1, "5521")

    given = told("When was parcel 7001 delivered?", fill)
    assert given.confidence == 0.0


def test_what_nobody_ever_named_was_not_done() -> None:
    given = told("When was the piano delivered?", lambda stories: delivered(stories, 0, "5521"))
    assert given.confidence == 0.0


def test_what_was_asked_for_is_not_done() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "other", "approval requested discharge bed 12", type="approval.requested")
        stories.add(1, "other", "approval given transfer bed 14", type="approval.given")

    assert told("When was the discharge of bed 12 approved?", fill).confidence == 0.0
    assert told("When was the transfer of bed 14 approved?", fill).order[0] == "1"


def test_the_last_of_several_is_meant_unless_the_first_is_asked_for() -> None:
    def fill(stories: Told) -> None:
        for number in range(3):
            stories.add(number, "other", "build nightly started", type="build.started")
            stories.add(number, "other", "build nightly finished", type="build.finished")

    assert told("When was the nightly build finished?", fill).order[0] == "5"
    assert told("When was the nightly build first finished?", fill).order[0] == "1"


def test_a_past_with_another_stem_is_the_same_verb() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "call", "invoice 88", tool="payInvoice").add(
            0, "result", "ok", tool="payInvoice"
        )
        stories.add(1, "call", "invoice 88", tool="get_invoice").add(
            1, "result", "invoice 88 paid", tool="get_invoice"
        )

    given = told("When was invoice 88 paid?", fill)
    assert given.order[0] == "1"
    assert given.value.startswith("20")


def test_a_type_that_says_that_it_went_wrong_is_told_where_nothing_else_is() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "failure", "bed 9 blocked twice", type="bed.blocked", status="failed")

    given = told("When was bed 9 blocked?", fill)
    assert given.order == ["0"]


def test_a_reader_is_meant_where_looking_is_asked_for() -> None:
    given = told("When was the route checked for 5521?", lambda s: delivered(s, 0, "5521"))
    assert given.order[0] == "8"


def of_shop(stories: Told) -> None:
    """A machine is calibrated, a part is refused, and a tool is changed."""
    (
        stories.add(0, "message", "please calibrate the lathe", author="eva", agent="eva")
        .add(0, "other", "machine lathe", type="calibration.started")
        .add(0, "call", "lathe axis", tool="set_offset", agent="bot")
        .add(0, "result", "written", tool="set_offset", agent="bot")
        .add(0, "other", "machine lathe", type="calibration.finished")
        .add(0, "message", "the lathe is ready", author="bot")
        .add(0, "call", "part VB-1 bore too wide", tool="reject_part", agent="bot")
        .add(0, "result", "rejected", tool="reject_part", agent="bot")
        .add(0, "call", "lathe insert", tool="change_insert", agent="bot")
        .add(0, "result", "changed", tool="change_insert", agent="bot")
    )


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What happened after the calibration of the lathe?", ["5", "6"]),
        ("What happened before the calibration of the lathe?", ["3", "2"]),
        ("What was done after VB-1 was rejected?", ["8", "7", "9"]),
        ("What happened right before the agent changed the insert?", ["7", "6"]),
        ("Why was VB-1 rejected?", ["6", "0"]),
        ("Why did the agent change the insert?", ["8", "0"]),
        ("Is the lathe insert changed?", ["9", "8"]),
    ],
)
def test_what_stands_around_an_act_that_did_not_fail_is_read_off(
    question: str, first: list[str]
) -> None:
    given = told(question, of_shop)
    assert given.order[: len(first)] == first
    assert given.decides
    assert given.confidence > 0.9


def test_behind_the_end_of_a_story_what_names_the_same_comes_next() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "other", "order 4711 doubled", type="order.charged", minute=5)
        stories.add(1, "call", "parcel 9", tool="find_parcel", minute=6)
        stories.add(2, "message", "order 4711 was charged", author="eva", minute=9)

    assert told("What happened after order 4711 was charged?", fill).order[0] == "2"


def test_an_object_that_was_named_before_is_of_the_only_act() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "call", "order 4711", tool="list_charges", agent="desk")
        stories.add(0, "result", "ch-9", tool="list_charges", agent="desk")
        stories.add(0, "call", "ch-9", tool="refund_charge", agent="desk")
        stories.add(0, "result", "done", tool="refund_charge", agent="desk")

    assert told("Who refunded order 4711?", fill).value == "desk"
    assert told("Who refunded order 4712?", fill).confidence < 0.5


def test_a_noun_that_is_like_a_verb_is_no_act_by_what_its_story_says() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "call", "sender CITYLIB", tool="register_sender")
        stories.add(0, "result", "sender CITYLIB active", tool="register_sender")
        stories.add(0, "call", "harbour", tool="send_notices")
        stories.add(0, "result", "41 went out", tool="send_notices")

    assert told("Is the sender CITYLIB active?", fill).order[0] == "1"


@pytest.mark.parametrize(
    ("question", "value", "evidence"),
    [
        ("How long did the delivery of parcel 5521 take?", "1 min", ["5", "6"]),
        ("How long did it take to fix the delivery of parcel 5521?", "2 min", ["4", "6"]),
    ],
)
def test_how_long_it_took(question: str, value: str, evidence: list[str]) -> None:
    given = told(question, lambda stories: delivered(stories, 0, "5521"))
    assert (given.value, given.evidence) == (value, evidence)


def test_what_is_changed_is_in_the_name_of_the_tool_before_it_is_in_a_record() -> None:
    def fill(stories: Told) -> None:
        for minute, noun in enumerate(("rooms", "guests", "rooms")):
            tool = f"update_{noun}"
            stories.add(minute, "message", f"yes, {minute}", author="eva", minute=10 * minute)
            stories.add(minute, "call", "stay K7Q", tool=tool, minute=10 * minute + 1)
            stories.add(minute, "result", "K7Q rooms guests", tool=tool, minute=10 * minute + 2)

    assert told("Why did the agent change the guests of stay K7Q?", fill).order[0] == "4"
    assert told("Why did the agent change the rooms of stay K7Q?", fill).order[0] == "7"


def test_an_act_may_be_asked_for_by_its_noun() -> None:
    def fill(stories: Told) -> None:
        for minute, tool in enumerate(("git_status", "find_push", "git_push", "git_log")):
            stories.add(0, "call", "branch feat-9", tool=tool, minute=2 * minute)
            stories.add(0, "result", "feat-9 push", tool=tool, minute=2 * minute + 1)

    assert told("When was the push of feat-9?", fill).order[0] == "5"
    assert told("When was the push of feat-8?", fill).confidence < 0.5


def test_what_an_agent_must_keep_to_comes_after_nothing() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "other", "order 4711 doubled", type="order.charged", minute=5)
        stories.add(1, "instruction", "order 4711 may be charged once", minute=6)
        stories.add(2, "message", "order 4711 was charged", author="eva", minute=9)

    assert told("What happened after order 4711 was charged?", fill).order[0] == "2"


def test_what_people_shorten_is_what_a_tool_is_called_by_whole() -> None:
    def fill(stories: Told) -> None:
        for thing in ("cabins", "baggages"):
            stories.add(0, "call", "trip 77", tool=f"update_trip_{thing}", agent="desk")
            stories.add(0, "result", "trip 77 with baggages", tool=f"update_trip_{thing}")
            stories.add(0, "message", "the next one", author="eva")

    given = told("What happened right after the agent changed the bags of trip 77?", fill)
    assert set(given.evidence) == {"4", "5"}


@pytest.mark.parametrize(
    ("question", "next_to_it"),
    [
        ("What did you do once Eva had agreed to the crane?", "3"),
        ("What happened right before Eva agreed to the crane?", "1"),
    ],
)
def test_what_is_next_to_what_somebody_said(question: str, next_to_it: str) -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "message", "the crane is needed", author="ann")
        stories.add(0, "message", "I ask Eva about it", author="bot")
        stories.add(0, "message", "I agreed to the crane, go on", author="eva")
        stories.add(0, "call", "lift 9", tool="order_lift", agent="bot")
        stories.add(0, "result", "lift 9 ordered", tool="order_lift", agent="bot")
        stories.add(1, "call", "rain", tool="weather", agent="bot")
        stories.add(1, "result", "sunny", tool="weather", agent="bot")

    given = told(question, fill)
    assert given.plan.operator in (Operator.AFTER, Operator.BEFORE)
    assert given.order[0] == next_to_it
    assert given.decides
