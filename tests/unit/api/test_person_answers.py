"""All that is known of a person, what is derived of them included."""

from __future__ import annotations

import pytest

from api.retrieval.person_answers import NO_TOPIC
from api.retrieval.personal import Known, Trait, profile_lines
from api.retrieval.persons import is_of_who_asks
from projections.schema import TRAIT_EDGES


@pytest.mark.parametrize("kind", sorted(TRAIT_EDGES))
def test_a_profile_tells_what_is_derived_of_a_person(kind: str) -> None:
    trait = Trait(
        kind=kind,
        name="prune_tree",
        strength=0.5,
        session_count=3,
        last_ms=0,
        event_id="e1",
        own_id="t1",
        parent_id=None,
    )
    person = Known(names=frozenset(("vera",)), facts=(), traits=(trait,), name="vera")
    (line,) = profile_lines(person, NO_TOPIC)
    assert "prune_tree" in line.text


@pytest.mark.parametrize(
    ("question", "is_own"),
    [
        ("What is my desk?", True),
        ("What do I like?", True),
        ("What can I have for lunch?", True),
        ("I'd like to have the desk of Ann Lee.", False),
        ("I need to know which desk Ann Lee has", False),
        ("May I ask what desk Ann Lee has?", False),
        ("Remind me of the desk of Ann Lee", False),
        ("I should like to have my desk back", True),
        ("Please describe me Ann Lee", False),
        ("Introduce Ann Lee to me.", False),
        ("Describe me in three words", True),
    ],
)
def test_who_asks_politely_does_not_ask_of_themselves(question: str, is_own: bool) -> None:
    assert is_of_who_asks(question) is is_own
