"""Which fact a question asks for, by its words."""

from __future__ import annotations

import pytest

from api.retrieval.fact_words import (
    asked_share,
    in_words_of_records,
    is_of_noun,
    noun_asked,
    question_stems,
)

FACTS = [
    ("has_name", "Ada Byron"),
    ("has_delivery_address", "Elm Street 5"),
    ("has_plan", "Plus"),
    ("lives_in", "Oslo"),
    ("prefers", "invoices as text"),
    ("prefers", "tea when it is cold"),
]


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("What is the delivery address of Ada?", 1),
        ("Which plan is Ada on?", 2),
        ("Where is Ada at home?", 3),
        ("What does Ada prefer for invoices?", 4),
        ("What would Ada like when it is cold?", 5),
        ("What is Ada's full name?", 0),
    ],
)
def test_what_is_asked_for_comes_first(question: str, wanted: int) -> None:
    stems = question_stems(question)
    shares = [asked_share(stems, relation, ("ada", target)) for relation, target in FACTS]
    assert max(range(len(shares)), key=shares.__getitem__) == wanted


def test_a_share_is_within_its_bounds() -> None:
    assert asked_share(question_stems("plan plus"), "has_plan", ("ada", "Plus")) == 1.0
    assert asked_share(question_stems("Ada?"), "has_plan", ("ada", "Plus")) == 0.0


@pytest.mark.parametrize(
    ("question", "meaning"),
    [
        ("Where does Ada live now?", "what is the address of Ada now?"),
        ("Where did Ada Byron live before?", "what was the address of Ada Byron before?"),
        ("Where do I live?", "what is my address?"),
        ("How old is Ada?", "what is the age of Ada?"),
        ("What is the status of T-5?", "what is the state of T-5?"),
        ("Where does the train go?", None),
        ("Where do we keep the live feed?", None),
    ],
)
def test_what_records_call_otherwise_is_asked_in_their_words(
    question: str, meaning: str | None
) -> None:
    assert in_words_of_records(question) == meaning


@pytest.mark.parametrize(
    ("question", "noun", "may_be"),
    [
        ("Which helmet did Bob order?", "helmet", False),
        ("Which order did Bob cancel?", "order", True),
        ("Which person has order B-7?", "person", True),
        ("In which city is Bob?", "city", False),
        ("What did Bob order?", "", True),
    ],
)
def test_a_fact_is_told_of_what_a_question_calls_by_a_noun(
    question: str, noun: str, *, may_be: bool
) -> None:
    assert noun_asked(question) == noun
    assert is_of_noun(question, "has_order", "B-7") is may_be
