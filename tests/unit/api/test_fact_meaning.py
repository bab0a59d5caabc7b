"""Which questions are asked again in the words of a fact."""

from __future__ import annotations

from typing import Any

import pytest

from api.retrieval.fact_meaning import as_put, asks_value, in_words_of_facts
from api.retrieval.plan import Operator
from api.retrieval.planning import plan_of
from api.retrieval.story_terms import story_terms

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
