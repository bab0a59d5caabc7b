"""What was learned from a failure: what was different when it went through."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation.actions import actions, incidents
from consolidation.lessons import Changed, changed_arguments, lessons_of
from consolidation.sources import SourceEvent
from consolidation.summary_payloads import (
    LESSON_BYTES,
    MAX_LESSONS,
    Difference,
    Lesson,
    fitting_lessons,
)
from projections.events import canonical_json
from tests.factories import event_id
from tests.source_factories import called, returned, said


def learned(*events: SourceEvent) -> list[Lesson]:
    return list(lessons_of(events, incidents(events, actions(events))) or ())


def paid(number: int, arguments: str, **fields: Any) -> SourceEvent:
    return called(number, "pay", arguments, mentions=("A-17",), **fields)


REFUSED = (
    paid(3, "amount: 630\norder: A-17"),
    returned(4, "pay", error="above the limit", after=(3,)),
)
WENT_THROUGH = (
    paid(8, "amount: 630\napproval: APR-7\norder: A-17"),
    returned(9, "pay", "state: paid", after=(8,)),
)


def test_an_argument_may_be_changed_added_or_left_out() -> None:
    before = called(1, "book", "flight: HAT136\npayments.amount: 250\npayments.amount: 5\nold: 1")
    after = called(2, "book", "flight: HAT136\npayments.amount: 250\npayments.amount: 55\nnew: 2")
    assert changed_arguments(before, after) == [
        Changed("amount", "5", "55"),
        Changed("new", None, "2"),
        Changed("old", "1", None),
    ]


def test_sentences_with_colons_are_no_arguments() -> None:
    before, after = called(1, "say", "Dear all: hello"), called(2, "say", "Dear all: goodbye")
    assert changed_arguments(before, after) == []


def test_a_lesson_is_what_was_added_and_who_gave_it() -> None:
    lesson = learned(
        *REFUSED,
        called(5, "ask_lead", "order: A-17"),
        returned(6, "ask_lead", "approval: APR-7\nby: vera", after=(5,)),
        *WENT_THROUGH,
    )
    assert lesson == [
        Lesson(
            tool="pay",
            text="pay failed: above the limit; went through with approval APR-7 added, "
            "after ask_lead: approval: APR-7 by: vera",
            error="above the limit",
            attempts=1,
            failed_event_ids=(event_id(3), event_id(4)),
            solved_event_ids=(event_id(8), event_id(9)),
            differences=(Difference("approval", None, "APR-7", event_id(6)),),
            helped_by=(event_id(6),),
        )
    ]


def test_what_was_done_before_the_failure_did_not_help() -> None:
    earlier = (
        called(1, "look_up", "order: A-17"),
        returned(2, "look_up", "total: 630", after=(1,)),
    )
    again = paid(8, "amount: 630\norder: A-17", after=(4, 2))
    events = (*earlier, *REFUSED, again, returned(9, "pay", "state: paid", after=(8,)))
    assert learned(*events)[0].text.endswith("; went through when tried again")


def test_what_a_user_put_right_is_where_the_value_came_from() -> None:
    lesson = learned(
        called(1, "send", "to: carla.hal@mailbrok.org"),
        returned(2, "send", error="mailbox unavailable", after=(1,)),
        said(3, "carla", "It is carla.hal@mailbrook.org."),
        called(4, "send", "to: carla.hal@mailbrook.org"),
        returned(5, "send", "queued: true", after=(4,)),
    )[0]
    assert lesson.differences == (
        Difference("to", "carla.hal@mailbrok.org", "carla.hal@mailbrook.org", event_id(3)),
    )


def test_the_same_call_with_more_arguments_is_another_attempt() -> None:
    lesson = learned(
        called(1, "water", "lawn: north"),
        returned(2, "water", error="valve closed", after=(1,)),
        called(3, "water", "lawn: north\npermit: GP-31"),
        returned(4, "water", "litres: 40", after=(3,)),
    )[0]
    assert lesson.differences == (Difference("permit", None, "GP-31"),)


def test_what_failed_with_the_same_arguments_before_was_not_put_right_by_them() -> None:
    lesson = learned(
        *REFUSED,
        paid(5, "amount: 600\norder: A-17"),
        returned(6, "pay", error="above the limit", after=(5,)),
        called(7, "raise_limit", "to: 700"),
        returned(8, "raise_limit", "limit: 700", after=(7,)),
        paid(9, "amount: 630\norder: A-17"),
        returned(10, "pay", "state: paid", after=(9,)),
    )[0]
    assert (lesson.attempts, lesson.differences) == (2, ())
    assert lesson.text.endswith("; went through after raise_limit: limit: 700")
    assert lesson.helped_by == (event_id(8),)


@pytest.mark.parametrize("other", ["order: A-18", "order: B", "item: A-17"])
def test_the_same_tool_on_another_thing_teaches_nothing(other: str) -> None:
    events = (
        called(1, "show", "order: A-17"),
        returned(2, "show", error="no such order", after=(1,)),
        called(3, "show", other),
        returned(4, "show", "state: paid", after=(3,)),
    )
    assert learned(*events) == []


def test_only_as_many_lessons_are_kept_as_one_event_has_room_for() -> None:
    wide = "\U0001f600"
    lesson = Lesson(
        tool=wide * 200,
        text=wide * 300,
        error=wide * 160,
        attempts=1,
        failed_event_ids=(event_id(1),),
        solved_event_ids=(event_id(2),),
    )
    short = Lesson("pay", "pay failed", "", 1, (event_id(1),), (event_id(2),))
    assert len(canonical_json({"text": lesson.text})) * 4 > LESSON_BYTES
    assert fitting_lessons([lesson] * 9) == (lesson,)
    assert fitting_lessons([short] * 99) == (short,) * MAX_LESSONS
