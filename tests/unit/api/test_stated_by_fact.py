"""A fact of a person is the answer to a question that asks for it and for nothing else."""

from __future__ import annotations

import pytest

from api.retrieval.fact_words import question_stems, says_all


@pytest.mark.parametrize(
    ("query", "relation", "target"),
    [
        ("What am I allergic to?", "allergic_to", "walnuts"),
        ("Where do I live now?", "lives_in", "Ghent"),
        ("What is the name of my cat?", "has_cat", "Pepper"),
        ("What am I afraid of?", "afraid_of", "spiders"),
        ("What is the age of her?", "has_age", "13"),
        ("Who is my boss?", "has_boss", "Griet"),
    ],
)
def test_a_fact_says_all_that_is_asked_for(query: str, relation: str, target: str) -> None:
    assert says_all(question_stems(query), relation, target)


@pytest.mark.parametrize(
    ("query", "relation", "target"),
    [
        ("Where do I live with my dog?", "lives_in", "Ghent"),
        ("What did I lend her?", "is_currently", "vegan"),
        ("What is my shoe size?", "has_age", "34"),
        ("What is the colour of my cat?", "has_cat", "Pepper"),
        ("Which invoices do I prefer?", "prefers", "invoices as PDF"),
        ("Who?", "has_boss", "Griet"),
    ],
)
def test_a_fact_that_says_less_is_no_answer(query: str, relation: str, target: str) -> None:
    assert not says_all(question_stems(query), relation, target)
