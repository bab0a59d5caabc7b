"""What alone can answer: calls, failures, an agent's, a user's, a time, a fact."""

from __future__ import annotations

from typing import Any

import pytest

from api.retrieval.planning import plan_of
from api.retrieval.story_features import features_of
from api.retrieval.story_limits import facts_asked
from api.retrieval.story_terms import stories_asked, story_terms
from pipelines.columns.records import StoryFact
from tests.factories import START_MS
from tests.unit.api.story_builder import Told

NOW_MS = START_MS + 10**9


def within(question: str, told: Told) -> list[str]:
    """Ids of the events that can answer."""
    plan = plan_of(question, NOW_MS)
    stories = told.stories()
    features = features_of(stories, story_terms(question, plan), plan, NOW_MS)
    return [one for one, can in zip(stories.ids, features.within.tolist(), strict=True) if can]


def asked_of(question: str) -> Told:
    plan = plan_of(question, NOW_MS)
    terms = story_terms(question, plan)
    return Told(stories_asked(terms, plan, hits=(), vector=None, session_id="s"))


def payment(told: Told, story: int = 0, **fields: Any) -> Told:
    """A customer asks, an agent pays, it fails, and another agent tries."""
    return (
        told.add(story, "message", "pay it", author="ana", named=True, **fields)
        .add(story, "call", "pay", author="pay-agent", tool="pay", **fields)
        .add(story, "failure", "no answer", author="pay-agent", tool="pay", **fields)
        .add(story, "message", "I will pay it tomorrow", author="pay-agent", **fields)
        .add(story, "call", "pay", author="ops-agent", tool="pay", acted=True, **fields)
    )


@pytest.mark.parametrize(
    ("question", "ids"),
    [
        ("Which tools were used to pay?", ["4"]),
        ("Which calls failed?", ["2"]),
        ("How often did paying fail?", ["2"]),
        ("What did Ana say last?", ["0"]),
        ("What is the weather?", ["0", "1", "2", "3", "4"]),
    ],
)
def test_an_operator_is_answered_by_what_it_asks_for(question: str, ids: list[str]) -> None:
    assert within(question, payment(asked_of(question))) == ids


def test_a_value_is_stated_by_nothing_that_asks_for_it() -> None:
    question = "What is the port of the printer?"
    told = asked_of(question).add(0, "message", "which port has the printer?", author="ana")
    assert within(question, told) == ["0"]
    assert within(question, told.add(0, "message", "printer port 9100")) == ["1"]


def test_who_asked_the_same_before_answers_nothing_unless_that_is_asked() -> None:
    for question, ids in (
        ("Which hotel did Clara get?", ["1"]),
        ("Who asked for the hotel of Clara?", ["0", "1"]),
    ):
        told = asked_of(question).add(0, "message", "how much was the hotel of clara?")
        assert within(question, told.add(0, "message", "the hotel of clara is the mill")) == ids


def test_a_limit_that_leaves_nothing_does_not_hold() -> None:
    question = "Which calls failed?"
    told = asked_of(question).add(0, "message", "nothing failed", author="ana")
    assert within(question, told) == ["0"]


def test_what_failed_for_somebody_is_of_that_user() -> None:
    question = "Which tool calls failed for Ana?"
    told = payment(payment(asked_of(question)), 1, theirs=True)
    assert within(question, told) == ["7"]


def test_the_last_words_of_somebody_are_one_event_if_no_topic_is_named() -> None:
    def said(question: str) -> list[str]:
        told = asked_of(question)
        for minute in (3, 9, 6):
            told.add(0, "message", "words", author="ana", named=True, minute=minute)
        return within(question, told)

    assert said("What did Ana say last?") == ["1"]
    assert said("What did Ana say first?") == ["0"]
    assert said("What did Ana say last about words?") == ["0", "1", "2"]


def test_a_promise_is_what_an_agent_says() -> None:
    question = "What did we promise Ana?"
    told = asked_of(question).add(0, "message", "can you?", author="ana", named=True, theirs=True)
    told.add(0, "message", "it is done", author="bot", theirs=True)
    told.add(0, "call", "it", author="bot", theirs=True)
    assert within(question, told) == ["1"]


def test_a_fact_is_told_by_its_event() -> None:
    question = "What is gateway.limit set to now?"
    told = payment(asked_of(question))
    told.facts = [StoryFact("1", "gateway.limit", "has_value", "30", 0, None)]
    assert within(question, told) == ["1"]


class TestFacts:
    old = StoryFact("1", "Ana", "lives_in", "Oslo", 0, START_MS)
    new = StoryFact("2", "Ana", "lives_in", "Bergen", START_MS, None)
    phone = StoryFact("3", "Ana", "has_phone", "555", 0, None)

    def asked(self, question: str, *facts: StoryFact, at_ms: int = NOW_MS) -> list[str]:
        plan = plan_of(question, NOW_MS)
        return [one.value for one in facts_asked(facts, story_terms(question, plan), plan, at_ms)]

    def test_part_of_a_name_is_enough_where_nothing_else_is_called_so(self) -> None:
        limit = StoryFact("4", "payments.gateway.limit_s", "has_value", "30", 0, None)
        other = StoryFact("5", "search.limit", "has_value", "9", 0, None)
        assert self.asked("What is the limit now?", limit, self.new) == ["30"]
        assert self.asked("What is the limit now?", limit, other) == []
        assert self.asked("What is the limit of Ana?", limit, self.new) == []

    def test_what_holds_is_asked_for(self) -> None:
        given = (self.old, self.new, self.phone)
        assert self.asked("What is the phone of Ana?", *given) == ["555"]
        assert self.asked("What is the phone of Ana?", self.old, self.new) == []

    def test_where_something_is_and_who_is_assigned(self) -> None:
        bay = StoryFact("6", "PAL-7", "located_in", "Bay 4", 0, None)
        bed = StoryFact("7", "P-204", "has_bed", "B-12", 0, None)
        runs = StoryFact("8", "Mill-2", "has_operator", "Lena", 0, None)
        given = (bay, bed, runs)
        assert self.asked("In which bay is PAL-7?", *given) == ["Bay 4"]
        assert self.asked("Where is PAL-7 now?", *given) == ["Bay 4"]
        assert self.asked("Where was PAL-7 on Monday?", *given) == ["Bay 4"]
        assert self.asked("In which bed is P-204?", *given) == ["B-12"]
        assert self.asked("Which bed is P-204 in?", *given) == ["B-12"]
        assert self.asked("Who operates Mill-2?", *given) == ["Lena"]
        assert self.asked("Where is P-205?", *given) == []
        cart = bay._replace(source="CART-5")
        assert self.asked("Where is the cart?", cart, bed) == ["Bay 4"]
        assert self.asked("Where is the cart?", cart, cart._replace(source="CART-6")) == []

    def test_of_a_moment_what_held_then(self) -> None:
        key = self.old._replace(source="limit", relation="has_value")
        later = self.new._replace(source="limit", relation="has_value")
        assert self.asked("What is the limit?", key, later) == ["Bergen"]
        assert self.asked("What is the limit?", key, later, at_ms=START_MS - 1) == ["Oslo"]

    def test_before_that_is_what_ended_last(self) -> None:
        question = "What was the limit before it was changed?"
        facts = [
            StoryFact(f"{at}", "limit", "has_value", f"{at}", at, at + 1 if at < 3 else None)
            for at in range(4)
        ]
        assert self.asked(question, *facts) == ["2"]

    def test_another_thing_is_not_meant(self) -> None:
        other = StoryFact("1", "deploy.token", "has_value", "tok-1", 0, None)
        assert self.asked("What is the deploy target?", other) == []
