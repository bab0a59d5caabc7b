"""Keywords are phrases and identifiers of the text; the summary is one of its sentences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enrichment.event_kinds import EventKind
from enrichment.keywords import MAX_KEYWORDS, keywords, summary
from enrichment.names import SUMMARY_CHARACTERS
from enrichment.ports import Analysis, EventText
from enrichment.text import event_text
from tests import strategies
from tests.factories import event
from tests.fakes.analyses import analysis_of

AGENCY = "I applied to adoption agencies! An adoption agency will call."
AGENCY_TAGS = (
    "I/PRON applied/VERB to/ADP [ adoption/NOUN agencies/NOUN ] !/PUNCT "
    "[ An/DET adoption/NOUN agency/NOUN ] will/AUX call/VERB ./PUNCT"
)


def message(text: str) -> EventText:
    return EventText(EventKind.MESSAGE, text, "Caroline")


def test_a_phrase_has_its_head_as_lemma() -> None:
    actual = keywords(message(AGENCY), analysis_of(AGENCY, AGENCY_TAGS))
    assert actual == ("adoption agency",)


def test_what_is_vague_is_left_off_a_phrase() -> None:
    text = "A great pottery class and a good time."
    tags = "A/DET great/ADJ pottery/NOUN class/NOUN and/CCONJ a/DET good/ADJ time/NOUN ./PUNCT"
    assert keywords(message(text), analysis_of(text, tags)) == ("pottery class",)


def test_identifiers_are_kept_as_they_are_written() -> None:
    text = "Reservation 4WQ150 is cancelled."
    tags = "Reservation/NOUN 4WQ150/PROPN is/AUX cancelled/VERB ./PUNCT"
    assert keywords(message(text), analysis_of(text, tags)) == ("4WQ150", "reservation")


def test_hyphens_join_words() -> None:
    text = "It is about self-expression."
    tags = "It/PRON is/AUX about/ADP self/NOUN -/PUNCT expression/NOUN ./PUNCT"
    assert keywords(message(text), analysis_of(text, tags)) == ("self-expression",)


def test_the_tool_comes_first_and_names_of_fields_are_no_keywords() -> None:
    text = EventText(
        EventKind.CALL, "payment_id: gift_card_98\nreservation_id: GV1N64", "cancel_reservation"
    )
    assert keywords(text, Analysis()) == ("cancel_reservation", "gift_card_98", "GV1N64")


def test_a_listing_of_codes_leaves_room_for_words() -> None:
    text = message("Codes HAT001, HAT002, HAT003, HAT004, HAT005, HAT006, HAT007 of the airline.")
    assert keywords(text, Analysis())[-2:] == ("codes", "airline")


def test_without_an_analysis_words_on_no_list_are_keywords() -> None:
    text = message("We visited the animal sanctuary, and the sanctuary's dogs were lovely.")
    assert keywords(text, Analysis()) == ("sanctuary", "visited", "animal", "dogs")


def test_a_text_without_content_has_no_keywords() -> None:
    assert keywords(message("How are you? I am fine."), Analysis()) == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"payload": {"role": "user", "content": "Hey Mel! I joined a mentorship program."}},
            "agent-1: Hey Mel! I joined a mentorship program.",
        ),
        (
            {
                "payload": {"arguments": {"cabin": "economy", "reservation_id": "GV1N64"}},
                "tool_name": "update_reservation",
            },
            "update_reservation: reservation_id: GV1N64; cabin: economy",
        ),
        (
            {
                "payload": {"result": {"charge": "ch_9002", "amount": "84.00"}},
                "event_type": "tool.result",
                "tool_name": "charge_card",
            },
            "charge_card returned: charge: ch_9002; amount: 84.00",
        ),
        (
            {
                "payload": "Error: reservation not found",
                "event_type": "tool.result",
                "tool_name": "cancel_reservation",
                "status": "failed",
            },
            "cancel_reservation failed: reservation not found",
        ),
        (
            {
                "payload": {"error": "gateway did not answer"},
                "tool_name": "refund",
                "status": "timeout",
            },
            "refund timed out: gateway did not answer",
        ),
        (
            {
                "payload": {"order": "4711"},
                "event_type": "order.charged_twice",
                "status": "failed",
            },
            "order.charged_twice: order: 4711",
        ),
        (
            {"payload": {"from": 30, "to": 3}, "event_type": "config.changed"},
            "config.changed: from: 30; to: 3",
        ),
        (
            {"payload": "The retry uses a new key.", "event_type": "hypothesis.formed"},
            "hypothesis.formed: The retry uses a new key.",
        ),
        ({"payload": None, "event_type": "session.started"}, "agent-1: session.started"),
    ],
)
def test_a_summary_says_who_and_what(fields: dict[str, Any], expected: str) -> None:
    made = event(**fields)
    assert summary(made, event_text(made), Analysis()) == expected


LONG = "\n" + "Oh yes. " * 30
"""Behind a message, so that it does not fit; it says nothing."""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Thanks, Maria! It was quite a journey. I graduated last week!", "I graduated last week!"),
        ("Where is my order? I ordered two books and a lamp.", "I ordered two books and a lamp."),
        (
            "Oh yes. [shares image: a photo of a bench in a park] I love my bench.",
            "I love my bench.",
        ),
        ("Here it is:\n- **Flight**: HAT123 from Boston", "Flight: HAT123 from Boston"),
    ],
)
def test_the_most_telling_sentence_of_a_long_message_is_chosen(said: str, expected: str) -> None:
    made = event(payload={"role": "user", "content": said + LONG}, agent_id="ana")
    assert summary(made, event_text(made), Analysis()) == f"ana: {expected}"


def test_a_message_that_fits_is_told_whole() -> None:
    made = event(payload={"role": "user", "content": "She's nine. A grey tabby."}, agent_id="ana")
    assert summary(made, event_text(made), Analysis()) == "ana: She's nine. A grey tabby."


def test_sentences_are_those_of_the_analysis() -> None:
    made = event(payload={"role": "user", "content": AGENCY + LONG}, agent_id="ana")
    actual = summary(made, event_text(made), analysis_of(AGENCY, AGENCY_TAGS))
    assert actual == "ana: I applied to adoption agencies!"


texts = st.text(max_size=300) | st.text("aA1 \n.:?-_['\u202e\u0301", max_size=120)


@settings(deadline=None)  # machines that run tests are shared
@given(
    st.builds(
        EventText, st.sampled_from(EventKind), texts, st.none() | st.text(max_size=9), st.booleans()
    )
)
def test_any_text_gives_bounded_keywords_and_one_line(text: EventText) -> None:
    found, line = keywords(text, Analysis()), summary(event(), text, Analysis())
    assert (len(found) <= MAX_KEYWORDS, len(set(found))) == (True, len(found))
    assert (len(line) <= SUMMARY_CHARACTERS, len(line.splitlines()) <= 1) == (True, True)


@settings(deadline=None)  # machines that run tests are shared
@given(strategies.events(), st.text("aB1- \n.", max_size=60), st.randoms(use_true_random=False))
def test_any_analysis_is_taken(made: Any, text: str, choice: Any) -> None:
    kinds = ("NOUN", "PROPN", "ADJ", "VERB", "PUNCT", "ADV")
    tags = " ".join(f"{word}/{choice.choice(kinds)}" for word in text.split())
    analysis = analysis_of(text, f"[ {tags} ]" if tags else "")
    spoken = EventText(EventKind.MESSAGE, text, "x")
    assert keywords(spoken, analysis) == keywords(spoken, analysis)
    assert len(summary(made, spoken, analysis)) <= SUMMARY_CHARACTERS
