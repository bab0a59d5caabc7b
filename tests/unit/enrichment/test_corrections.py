"""What a user puts right of how they are reached; everything else is no correction."""

from __future__ import annotations

from typing import Any

import pytest

from enrichment.persons import corrected_facts
from enrichment.text import event_text
from projections.events import Event
from tests.factories import event

CORRECTED = {
    "No, wrong. It is ada.l@example.com.": ("has_email", "ada.l@example.com"),
    "Sorry, a typo: it should be ada.l@example.com": ("has_email", "ada.l@example.com"),
    "That is outdated, the new one is 555-010-9999.": ("has_phone", "555-010-9999"),
    "I mistyped that. I meant ada.l@example.com, thanks.": ("has_email", "ada.l@example.com"),
}
NOTHING = [
    "It is ada.l@example.com.",
    "Is that wrong? It is ada.l@example.com.",
    "No, write to bob@example.com.",
    "No, wrong. It is not ada.l@example.com but her old one.",
    "No, wrong. It is ada.l@example.com or bob@example.com.",
    "No, wrong. It is order 4711.",
]


def spoken(text: str, **fields: Any) -> Event:
    payload = {"role": "user", "content": text}
    return event(event_type="message.user", payload=payload, **{"user_id": "u-77", **fields})


def stated(made: Event) -> list[tuple[str, str, str, bool]]:
    found = corrected_facts(made, event_text(made), position_ms=1)
    return [(one.source.name, one.relation, one.target.name, one.functional) for one in found]


@pytest.mark.parametrize("text", CORRECTED)
def test_a_correction_says_how_the_user_is_reached(text: str) -> None:
    relation, target = CORRECTED[text]
    assert stated(spoken(text)) == [("u-77", relation, target, True)]


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_no_correction(text: str) -> None:
    assert stated(spoken(text)) == []


def test_nobody_else_corrects_for_the_user() -> None:
    text = "No, wrong. It is ada.l@example.com."
    assert stated(spoken(text, user_id=None)) == []
    assert stated(event(payload={"role": "assistant", "content": text}, user_id="u-77")) == []
