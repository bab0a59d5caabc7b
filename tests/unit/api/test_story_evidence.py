"""What proves an answer: acts and not words, a whole time, and what can state a value."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from api.retrieval.plan import StoryAnswer
from api.retrieval.story_evidence import MAX_TOLD, beside_labels, happened
from api.retrieval.time_spans import TimeSpan
from pipelines.columns.records import StoryFact
from tests.factories import START_MS
from tests.unit.api.story_builder import MINUTE_MS, Told
from tests.unit.api.test_story_answer import answer, asked


def told(question: str, fill: Any) -> StoryAnswer:
    plan, terms, stories = asked(question)
    fill(stories)
    return answer(question, stories, plan, terms)


def of_ward(stories: Told) -> None:
    """Ruth asks, approves, and is asked; somebody is called back."""
    (
        stories.add(0, "message", "go ahead", author="ruth", named=True)
        .add(0, "other", "approval requested of ruth", author="bot", type="approval.requested")
        .add(0, "other", "approval given move", author="ruth", agent="ruth", type="approval.given")
        .add(0, "call", "bed 7", tool="move_bed", agent="bot")
        .add(0, "result", "ok", tool="move_bed", agent="bot")
    )


def test_a_profile_without_facts_lists_what_was_done_and_no_words() -> None:
    given = told("What do we know about Ruth?", of_ward)
    assert given.type == "list"
    assert given.value is None
    assert given.evidence == ["1", "2"]


def test_what_was_done_for_somebody_is_told_by_its_call() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "message", "my bed please", author="ann", named=True, theirs=True)
        stories.add(0, "call", "bed 7", tool="move_bed", agent="bot", theirs=True)
        stories.add(0, "result", "ok", tool="move_bed", agent="bot", theirs=True)
        stories.add(0, "call", "bed 7", tool="get_bed", agent="bot", theirs=True)
        stories.add(0, "result", "bed 7", tool="get_bed", agent="bot", theirs=True)

    assert told("Tell me about Ann", fill).evidence == ["1"]


def test_of_who_only_spoke_words_are_told() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "message", "is it late?", author="ann", named=True)
        stories.add(0, "message", "I wait at the gate", author="ann", named=True)

    assert told("Who is Ann?", fill).evidence == ["1"]


def test_all_of_a_time_is_listed_in_its_order() -> None:
    def fill(stories: Told) -> None:
        for minute in (30, 10, 20):
            stories.add(0, "other", f"door {minute}", minute=minute)
        stories.add(1, "other", "door later", minute=5_000)

    _, terms, stories = asked("What happened?")
    fill(stories)
    first_ms = int(stories.stories().occurred_ms.min())
    given = answer(
        "What happened?",
        stories,
        plan_in(first_ms, first_ms + 60 * 60_000),
        terms,
    )
    assert given.evidence == ["1", "2", "0"]
    assert given.confidence == 1.0
    nothing = answer("What happened?", stories, plan_in(0, 1), terms)
    assert nothing.confidence == 0.0


def plan_in(first_ms: int, end_ms: int) -> Any:
    plan, _, _ = asked("What happened yesterday?")
    return plan.limited(first_ms, end_ms)


PHONE = [
    "Which phone number has Ann?",
    "What is Ann's phone number?",
    "What is the phone number of Ann?",
]


@pytest.mark.parametrize("question", PHONE)
def test_the_arguments_of_a_call_state_no_value(question: str) -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "message", "send my parcel", author="ann", named=True, theirs=True)
        stories.add(0, "thought", "her account has a phone number", theirs=True)
        stories.add(0, "call", "phone 555 0100", tool="ship", theirs=True)
        stories.add(0, "result", "shipped", tool="ship", theirs=True)
        stories.add(1, "call", "callback phone 700 about ann", tool="call_courier")
        stories.add(1, "result", "queued", tool="call_courier")

    assert told(question, fill).confidence == 0.0


@pytest.mark.parametrize("question", PHONE)
def test_a_record_about_somebody_else_stands_behind_the_own_one(question: str) -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "call", "ann", tool="find_guest")
        stories.add(0, "result", "guest ann phone number 555", tool="find_guest")
        stories.add(1, "call", "ben phone number 700", tool="update_guest", cosine=0.9)
        stories.add(1, "result", "ok", tool="update_guest")

    assert told(question, fill).order[0] == "1"


@pytest.mark.parametrize(
    ("kind", "text", "fields"),
    [
        ("message", "my phone number is 555", {"author": "ann", "named": True}),
        ("result", "guest ann phone 555", {"tool": "find_guest"}),
        ("other", "contact changed ann phone 555", {"type": "contact.changed"}),
        ("call", "guest ann phone 555", {"tool": "update_guest"}),
    ],
)
def test_what_states_a_value_is_left_to_the_judge(
    kind: str, text: str, fields: dict[str, Any]
) -> None:
    def fill(stories: Told) -> None:
        stories.add(0, kind, text, **fields)
        stories.add(1, "message", "will it rain", author="eve")

    given = told("What is Ann's phone number?", fill)
    assert given.order[0] == "0"
    assert given.confidence > 0.0


def test_what_is_said_next_to_the_word_may_be_the_value_alone() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "message", "which colour for hall 7?", author="bot")
        stories.add(0, "message", "take grey", author="eve")

    assert told("What is the colour of hall 7?", fill).confidence > 0.0


def test_a_record_that_is_asked_for_as_a_whole_is_what_tools_returned() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "message", "the details of order A-17 please", author="ann")
        stories.add(0, "call", "order A-17", tool="get_order")
        stories.add(0, "result", "order A-17 lamp oslo", tool="get_order")
        stories.add(0, "message", "order A-17 goes to oslo", author="bot")
        stories.add(1, "call", "order A-17", tool="update_order")
        stories.add(1, "result", "order A-17 lamp bergen", tool="update_order")

    assert told("What are the details of order A-17?", fill).order[:2] == ["5", "2"]


def test_a_promise_is_made_to_whom_the_question_names() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "message", "when does it come?", author="ann", named=True)
        stories.add(0, "message", "we look at it", author="bot")
        stories.add(1, "message", "and mine?", author="ben")
        stories.add(1, "message", "you will have it on Friday", author="bot", marks=2)

    assert told("What did we promise Ann?", fill).confidence == 0.0


def test_a_profile_is_what_was_looked_up_by_the_identifier_before_any_fact() -> None:
    def fill(stories: Told) -> None:
        stories.add(0, "call", "mia_li_36", tool="get_guest", agent="bot")
        stories.add(0, "result", "Mia Li, gold", tool="get_guest", agent="bot")
        stories.add(0, "call", "stay 9 of mia_li_36", tool="book_stay", agent="bot")
        stories.add(0, "result", "stay 9 mia_li_36", tool="book_stay", agent="bot")
        stories.facts = [StoryFact("3", "mia_li_36", "has_stay", "9", 0, None)]

    assert told("What is in the profile of customer mia_li_36?", fill).evidence == ["1"]
    assert told("What do we know about mia_li_36?", fill).evidence == ["3"]


def span_of(question: str, fill: Any) -> TimeSpan | None:
    plan, terms, stories = asked(question)
    fill(stories)
    return beside_labels(stories.stories(), terms, plan)


def of_rollout(stories: Told) -> None:
    """An agent that is called after what it does applies two changes; somebody complains."""
    labels = ("rollout",)
    (
        stories.add(0, "message", "please lower it", labels=labels, author="maya", minute=1)
        .add(0, "call", "3", tool="apply", labels=labels, minute=2)
        .add(0, "result", "applied", tool="apply", labels=labels, minute=3)
        .add(1, "message", "it is slow", author="ana", minute=20)
        .add(2, "result", "applied", tool="apply", labels=labels, minute=500)
    )


def test_what_is_called_like_a_session_or_an_agent_begins_with_its_first_act() -> None:
    day, at = 24 * 60 * MINUTE_MS, START_MS + 500 * MINUTE_MS
    assert span_of("What happened after the rollout?", of_rollout) == TimeSpan(at + 1, at + day)
    assert span_of("What happened before the rollout?", of_rollout) == TimeSpan(at - day, at)
    first = START_MS + 3 * MINUTE_MS
    span = span_of("What happened after the first rollout?", of_rollout)
    assert span == TimeSpan(first + 1, first + day)


@pytest.mark.parametrize(
    "question",
    [
        "What happened after the zeppelin?",  # nobody is called so
        "What happened after the rollout failed?",  # a failure is meant
        "What happened after it was applied?",  # a tool is called so
        "Who did the rollout?",
    ],
)
def test_what_is_no_name_of_a_session_gives_no_time(question: str) -> None:
    assert span_of(question, of_rollout) is None


def test_all_of_a_time_tells_some_of_each_story() -> None:
    _, _, stories = asked("What happened yesterday?")
    within = numpy.ones(MAX_TOLD + 1, dtype=bool)
    for number in range(MAX_TOLD):
        stories.add(0, "other", f"door {number}", minute=number)
    stories.add(1, "other", "lights", minute=30)
    order = numpy.arange(MAX_TOLD + 1)
    assert MAX_TOLD in happened(stories.stories(), within, order, is_all=True)
    assert MAX_TOLD not in happened(stories.stories(), within, order, is_all=False)
