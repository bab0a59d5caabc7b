"""Which questions are asked again in the words of a fact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy
import pytest

from api.retrieval.fact_meaning import MEANT_SURELY, Meant, as_put, asks_value, in_words_of_facts
from api.retrieval.plan import Operator, StoryAnswer
from api.retrieval.planning import plan_of
from api.retrieval.story_terms import story_terms
from pipelines.columns.reads import Wanted
from pipelines.columns.records import StoryFact
from tests.unit.api.test_story_answer import asked

NOW_MS = 1_795_543_200_000  # 2026-11-24T18:00Z


@pytest.mark.parametrize(
    ("question", "operator"),
    [
        ("What is the parking bay of Ann Lee?", Operator.VALUE),
        ("The parking bay of Ann Lee?", Operator.VALUE),
        ("Who is the deputy of Ann Lee?", Operator.VALUE),
        ("What was the parking bay of Ann Lee before?", Operator.VALUE_BEFORE),
        ("the parking bay of Ann Lee on 12 November", Operator.VALUE_AT),
        ("Who moved the desk of Ann Lee?", None),
        ("Why was the desk of Ann Lee moved?", None),
    ],
)
def test_what_asks_for_a_value(question: str, operator: Operator | None) -> None:
    assert asks_value(plan_of(question, NOW_MS)) is operator


def test_what_is_named_by_a_number_is_found_by_it() -> None:
    question = "What is the parking bay of Ann Lee in request RQ-17?"
    plan = plan_of(question, NOW_MS)
    asked_of: Any = None  # nothing is asked of it
    terms = story_terms(question, plan)
    given = {"answer": asked_of, "embed": asked_of}
    assert list(in_words_of_facts(asked_of, asked_of, terms, plan, **given)) == []


@pytest.mark.parametrize(
    ("name", "put"),
    [("ann lee", "Ann Lee"), ("ann.lee", "Ann Lee"), ("bob", "bob"), ("c++", "c++"), ("", "")],
)
def test_a_name_is_spelled_as_the_question_has_it(name: str, put: str) -> None:
    assert as_put(name, "What is the parking bay of Ann Lee?") == put


def meant_by(question: str, said: str) -> list[Meant]:
    """Of somebody who said a text, whereupon their record was shown, and changed another day."""
    plan, terms, told = asked(question)
    told.add(0, "message", said, author="ann lee").add(0, "call", "person", tool="roster_get")
    told.add(0, "result", "mondays", tool="roster_get")
    told.add(1, "message", "fridays from now on", author="ann lee")
    told.add(1, "result", "fridays", tool="roster_put")
    told.add(2, "message", "until when may one come", author="ann lee")
    told.add(2, "result", "closes", tool="depot_hours")
    told.facts = [
        StoryFact("2", "ann lee", "has_vorlage", "mondays", 0, 9),
        StoryFact("4", "ann lee", "has_vorlage", "fridays", 9, None),
        StoryFact("2", "ann lee", "has_branch", "south", 0, None),
    ]
    answer = StoryAnswer(plan, 0.99, ["6", "0", "3"], {}, "events", None, [], True, {})
    reads: Any = None  # nothing is asked of it
    stories = told.stories()
    meant = in_words_of_facts(reads, stories, terms, plan, answer=answer, embed=lambda _: None)
    return list(meant)


def test_what_somebody_spoke_of_in_all_words_of_a_question_tells_the_fact() -> None:
    question = "The pick-up hour of Ann Lee got changed, what was it before?"
    (meant,) = meant_by(question, "what do you show as my pick-up hour")
    assert meant.query == "what was the vorlage of Ann Lee before"
    assert (meant.operator, meant.likeness) == (Operator.VALUE_BEFORE, MEANT_SURELY)


class Near:
    """Reads by which only what the fact's own event says is near to what is asked for."""

    def standings(self, wanted: Wanted) -> Any:
        return SimpleNamespace(ids=["4"], cosines=numpy.array([0.25]))


@pytest.mark.parametrize(
    ("question", "values", "is_meant"),
    [
        ("What was the pick-up hour of Ann Lee before?", ("mondays", "fridays"), True),
        ("What was the pick-up hour of Ann Lee before?", ("fridays",), False),  # never changed
        ("What is the pick-up hour of Ann Lee?", ("mondays", "fridays"), False),
    ],
)
def test_what_changed_need_mean_less_of_what_is_asked_for(
    question: str, values: tuple[str, ...], *, is_meant: bool
) -> None:
    plan, terms, told = asked(question)
    told.add(0, "result", "mondays", tool="roster_get").add(1, "result", "f", tool="roster_put")
    told.facts = [StoryFact("4", "ann lee", "has_vorlage", value, 0, None) for value in values]
    answer = StoryAnswer(plan, 0.1, ["0"], {}, "events", None, [], True, {})
    meant = in_words_of_facts(
        cast(Any, Near()),
        told.stories(),
        terms,
        plan,
        answer=answer,
        embed=lambda text: (0.25, 0.97) if "vorlage" in text else (1.0, 0.0),
    )
    assert bool(list(meant)) is is_meant


def test_who_spoke_of_one_word_of_it_may_have_meant_another_thing() -> None:
    question = "The pick-up hour of Ann Lee got changed, what was it before?"
    assert meant_by(question, "it was closed at that hour") == []
    assert meant_by("What is the hour of Ann Lee?", "it was closed at that hour") == []
