"""Questions are understood by documented rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.retrieval.intent import (
    classify_graph_subgraph,
    inferred_intents,
    strongest_intent,
    traversed_intents,
)
from api.retrieval.policy import DEFAULT_POLICY


def test_the_question_of_the_specification_has_three_intents() -> None:
    found = inferred_intents("Why do my customers' payments keep failing?")
    assert found == {"why": 0.7, "what": 0.5, "when": 0.4}
    assert list(found) == ["why", "what", "when"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Why did the agent choose tool X?", "why"),
        ("What caused the outage?", "why"),
        ("How come it is slow?", "why"),
        ("What went wrong?", "why"),
        ("What happened before event Y?", "when"),
        ("When was the card declined?", "when"),
        ("What time is it?", "when"),
        ("How long ago did it fail", "when"),
        ("What tools were used in session Z?", "what"),
        ("Who owns the checkout service?", "what"),
        ("How many refunds are there?", "what"),
        ("Find events similar to this one", "related"),
        ("anything like this?", "related"),
        ("what else", "related"),
        ("card declined", "general"),
        ("", "general"),
        ("\u0395\u03bb\u03bb\u03ac\u03b4\u03b1", "general"),
    ],
)
def test_the_strongest_intent(query: str, expected: str) -> None:
    assert strongest_intent(inferred_intents(query)) == expected


@given(st.text(max_size=200))
def test_confidences_are_shares_and_the_strongest_comes_first(query: str) -> None:
    found = inferred_intents(query)
    assert found
    assert all(0 < value <= 1 for value in found.values())
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert traversed_intents(found)
    assert "semantic" in classify_graph_subgraph(query)


def test_an_override_leaves_nothing_else() -> None:
    inferred = inferred_intents("Why do my customers' payments keep failing?")
    assert traversed_intents(inferred, "related") == {"related": 1.0}


def test_what_is_too_weak_is_general() -> None:
    threshold = DEFAULT_POLICY.intent_threshold
    assert traversed_intents({"why": threshold - 0.01}) == {"general": 1.0}
    assert traversed_intents({"why": threshold, "when": 0.2}) == {"why": threshold}
    assert traversed_intents({"why": 0.5, "when": 0.2}, threshold=0.6) == {"general": 1.0}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("card declined", {"semantic"}),
        ("why did it fail", {"semantic", "causal"}),
        ("when did it fail", {"semantic", "temporal"}),
        ("who failed", {"semantic", "entity"}),
        (
            "Why do my customers' payments keep failing?",
            {"semantic", "causal", "temporal", "entity"},
        ),
    ],
)
def test_facts_are_chosen_by_the_same_markers(query: str, expected: set[str]) -> None:
    assert classify_graph_subgraph(query) == expected


def test_an_apostrophe_may_be_any() -> None:
    assert inferred_intents("Why do my customers\u2019 payments keep failing?") == inferred_intents(
        "Why do my customers' payments keep failing?"
    )
