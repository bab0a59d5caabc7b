"""Wishes, read by the real language model: what is asked for in general, and what is asked once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from enrichment.ports import Analysis, EntityRecognizer
from enrichment.stage import derive_event
from enrichment.text import event_text
from enrichment.wishes import MAX_WISHES, wish_facts
from pipelines.models.nlp import SpacyRecognizer
from projections.events import Event
from projections.identity import Position
from tests.factories import event

WISHES = {
    "When it is late, write to me instead.": (
        "prefers",
        "When it is late, write to me instead",
    ),
    "Text me on my work phone instead.": ("prefers", "Text me on my work phone instead"),
    "And could you please stop sending me newsletters?": (
        "avoids",
        "stop sending me newsletters",
    ),
    "I'd rather pay by card.": ("prefers", "I'd rather pay by card"),
    "I prefer aisle seats on long flights.": ("prefers", "I prefer aisle seats on long flights"),
    "Please never call me before nine.": ("avoids", "never call me before nine"),
    "Please do not put the receipts in the box.": ("avoids", "do not put the receipts in the box"),
    "Always reply in German, please.": ("prefers", "Always reply in German"),
    "Hi, add a summary when the report is long.": (
        "prefers",
        "add a summary when the report is long",
    ),
    "I changed my mind: from now on use metric units.": (
        "prefers",
        "from now on use metric units",
    ),
    "Write reports in plain language.": ("prefers", "Write reports in plain language"),
    "Invoices go to my office.": ("prefers", "Invoices go to my office"),
    "Never call me before noon, I sleep after night shifts.": (
        "avoids",
        "Never call me before noon, I sleep after night shifts",
    ),
    "And when something is delayed, write me an email.": (
        "prefers",
        "when something is delayed, write me an email",
    ),
    "Two spaces, never tabs.": ("prefers", "Two spaces, never tabs"),
    "Whenever it is about money, a real letter.": (
        "prefers",
        "Whenever it is about money, a real letter",
    ),
    "Let me know when a parcel is late.": ("prefers", "Let me know when a parcel is late"),
    "I like long letters with a plan that can be followed.": (
        "prefers",
        "I like long letters with a plan that can be followed",
    ),
    "Wide margins only, my eyes are weak.": ("prefers", "Wide margins only, my eyes are weak"),
    "Stamp my crates red, please.": ("prefers", "Stamp my crates red"),
    "One topic per mail, please.": ("prefers", "One topic per mail"),
    "Blue folders without a label, the others get mixed up.": (
        "prefers",
        "Blue folders without a label, the others get mixed up",
    ),
    "Put everything into one parcel.": ("prefers", "Put everything into one parcel"),
    "Send my reports printed, please.": ("prefers", "Send my reports printed"),
    "A phone call is best for me.": ("prefers", "A phone call is best for me"),
    "I am a paper person, sorry.": ("prefers", "I am a paper person, sorry"),
    "For a birthday wrap the parcel in red.": (
        "prefers",
        "For a birthday wrap the parcel in red",
    ),
    "Whatever the label says, do not freeze it.": (
        "prefers",
        "Whatever the label says, do not freeze it",
    ),
    "Ask before you book anything dear.": ("prefers", "Ask before you book anything dear"),
    "Avoid long words.": ("avoids", "Avoid long words"),
    "I don't want calls on weekends.": ("avoids", "I don't want calls on weekends"),
    "My letters should be in French.": ("prefers", "My letters should be in French"),
    "Parcels need the green sticker.": ("prefers", "Parcels need the green sticker"),
    "I want receipts as text, no pictures.": ("prefers", "I want receipts as text, no pictures"),
}
IN_CONTEXT = {
    # a case in front
    "At night leave the crates with the concierge.": "prefers",
    "On rainy days I need the covered parking.": "prefers",
    "With a cold I want honey in my tea.": "prefers",
    "For long rides get me the wide saddle.": "prefers",
    "Near water, add the depth to my chart.": "prefers",
    "When guests stay over I need two sets of towels.": "prefers",
    "Anything above a hundred euros: ring my husband.": "prefers",
    "Before a recital I want an hour alone in the hall.": "prefers",
    # a reason behind
    "Text me the due dates, I never open mail.": "prefers",
    "Seat me by the window, I get dizzy in the middle.": "prefers",
    "Give my statements to my daughter, she does the books.": "prefers",
    "Large print for me, my eyes are weak.": "prefers",
    "Soft pillows only, I have a bad neck.": "prefers",
    "Explain it in Polish, my English is shaky.": "prefers",
    "No mushrooms in my stew, I hate them.": "avoids",
    "No calls during dinner, my kids eat then.": "avoids",
    # a contrast, a last word
    "Follow my recipe, not the booklet.": "prefers",
    "Wake the caretaker, not me.": "prefers",
    "Cheapest fare wins, full stop.": "prefers",
    "Crusts off my sandwiches, that's all I want.": "prefers",
    "I iron my shirts myself, no starch.": "prefers",
    "I read the minutes on paper, never on a screen.": "prefers",
    # what is enough, what is mine, what has to be
    "Pack our groceries in paper bags.": "prefers",
}
NO_WISHES = [
    "Super, nothing else.",
    "Great stuff, nothing else.",
    "Keep me posted when it's out.",
    "Water the ferns when they are back.",
    "When it is ready, pack the kettle.",
    "I'd rather wait for the second print, and then I'll buy it.",
    "Should I always reply in German?",
    "Cancel my order.",
    "Show invoices for March.",
    "I want to send the boots back.",
    "He never called me back.",
    "I always wanted a dog.",
    "The export never ends.",
    "Always use order A-4711 for that.",
    "Run the tests once.",
    "I need 40 more wool blankets for the hall.",
    "I want 3 chairs with arms.",
    "Errors keep coming since Monday.",
    "Never had that before.",
    "When I opened it, the screen was black.",
    "When the update came, things broke.",
    "Thanks a lot!",
    "Dogs always cheer us up.",
    "Always happy to help!",
    "Let me know if you need any help.",
    "If you need anything, just let me know.",
    "Happy to help whenever you need it.",
    "Don't know what I'd do without them.",
    "You never know how a race ends.",
    "We always look forward to our camping trip.",
    "Don't give up on your dreams!",
    "Don't worry about it.",
    "Keep up the good work!",
    "Two of them are missing.",
    "Please send everything there.",
    "Kids need love.",
    "We need folks in the choir, singing for the ones who cannot.",
    "Not only trips, I also planned a party.",
    "Busy weeks for sure, but I'm pushing through.",
    "It's great to see friends coming together for this.",
    "We help schools get access to books in the city.",
    "I don't want our children to go through that.",
    "I like the new design.",
    "Check out this photo of what they gave me when we met.",
    "If jazz is your thing, check out the new club.",
    "When picking partners, make sure they share your values and style.",
    # a case that was, or is one
    "After lunch show me the list.",
    "For dinner I want the table by the window.",
    "With this error I can't go on.",
    "When I press start I need the code from the mail.",
    "On Wednesdays I fetch my twins at three.",
    "In fact I need the larger room.",
    "Building relationships can really make a difference.",
    # a reason that holds for now, and of one thing
    "Call me back, I have a question.",
    "Book me a taxi, I'm late.",
    "Tell me the price, I want to compare.",
    "Lend me your pen, mine is dry.",
    "Give me the code, I stand at the door.",
    "Cancel my order, I live abroad.",
    "Fetch my coat from the cleaners, they close at six.",
    "Deliver my sofa upstairs, the lift works.",
    "Send me a plumber, my kitchen is flooded.",
    "Great place for me, I love the view.",
    "Bad news for me, I lose my deposit.",
    # a fault, not what is forbidden
    "No hot water in my flat, I live on the third floor.",
    "No signal at my desk, I sit by the window.",
    "No regrets, I promise.",
    "I pay every month, no receipt.",
    # of two, one is chosen
    "Send me the red lamp, not the blue lamp.",
    "Move my lesson to Friday, not Thursday.",
    "Make it live, no exceptions.",
    "That will do.",
]
PREFERRED = {
    "I prefer e-mail.": ["e-mail"],
    "I prefer e-mail over phone.": ["I prefer e-mail over phone"],
    "I prefer dark mode. When it is late, write to me.": [
        "dark mode",
        "When it is late, write to me",
    ],
}
INSTEAD = "Please do not ring the bell, knock at the window."
NEW_OF_ONE_CASE = [
    "Change of plan. Book it to Oslo.",
    "New plan: I fly tomorrow.",
    "Is there another way? Lamps are out.",
    "I take it back to the shop. Thank you for your time.",
]


@pytest.fixture(scope="module")
def recognizer() -> Iterator[SpacyRecognizer]:
    made = SpacyRecognizer()
    yield made
    made.close()


def spoken(text: str, **fields: Any) -> Event:
    payload = {"role": "user", "content": text}
    return event(event_type="message.user", payload=payload, **{"user_id": "u-77", **fields})


def stated(recognizer: EntityRecognizer, made: Event) -> list[tuple[str, str, str]]:
    text = event_text(made)
    (analysis,) = recognizer.analyze([text.text])
    found = wish_facts(made, text, analysis, position_ms=1)
    return [(one.source.name, one.relation, one.target.name) for one in found]


@pytest.mark.parametrize("text", WISHES)
def test_what_is_asked_for_in_general(recognizer: SpacyRecognizer, text: str) -> None:
    assert stated(recognizer, spoken(text)) == [("u-77", *WISHES[text])]


@pytest.mark.parametrize("text", IN_CONTEXT)
def test_what_stands_around_it_makes_a_wish(recognizer: SpacyRecognizer, text: str) -> None:
    assert stated(recognizer, spoken(text)) == [("u-77", IN_CONTEXT[text], text.rstrip("."))]


@pytest.mark.parametrize("text", NO_WISHES)
def test_what_is_no_wish(recognizer: SpacyRecognizer, text: str) -> None:
    assert stated(recognizer, spoken(text)) == []


def test_only_the_user_wishes(recognizer: SpacyRecognizer) -> None:
    text = "Always reply in German, please."
    assert stated(recognizer, spoken(text, user_id=None)) == []
    said = event(payload={"role": "assistant", "content": text}, user_id="u-77")
    assert stated(recognizer, said) == []


def test_a_narrower_wish_stands_beside_the_general_one(recognizer: SpacyRecognizer) -> None:
    text = "Always reply in German. When it is about money, always reply in English."
    assert [wish for _, _, wish in stated(recognizer, spoken(text))] == [
        "Always reply in German",
        "When it is about money, always reply in English",
    ]


@pytest.mark.parametrize(("text", "told"), PREFERRED.items())
def test_what_is_preferred_is_told_once(
    recognizer: SpacyRecognizer, text: str, told: list[str]
) -> None:
    made = spoken(text)
    words = event_text(made)
    (analysis,) = recognizer.analyze([words.text])
    derived = derive_event(Position(1, 0), made, words, analysis)
    assert [(one.relation, one.target.name) for one in derived.assertions] == [
        ("prefers", each) for each in told
    ]


def test_what_is_done_instead_is_a_wish_of_its_own(recognizer: SpacyRecognizer) -> None:
    assert stated(recognizer, spoken(INSTEAD)) == [
        ("u-77", "prefers", "knock at the window"),
        ("u-77", "avoids", "do not ring the bell"),
    ]


@pytest.mark.parametrize(
    "lead",
    [
        "Scrap that.",
        "Forget what I said about ink.",
        "I changed my mind:",
        "Other rule from today:",
        "I thought about it again:",
    ],
)
def test_a_wish_tells_that_it_takes_the_place_of_another(
    recognizer: SpacyRecognizer, lead: str
) -> None:
    made = spoken(f"{lead} Stamp them, one above the other.")
    text = event_text(made)
    (analysis,) = recognizer.analyze([text.text])
    (wish,) = wish_facts(made, text, analysis, position_ms=1)
    assert wish.target.name == "Stamp them, one above the other"
    assert wish.fact == "u-77 now prefers Stamp them, one above the other"


def test_without_that_it_stands_beside_the_others(recognizer: SpacyRecognizer) -> None:
    made = spoken("Two spaces, never tabs.")
    text = event_text(made)
    (analysis,) = recognizer.analyze([text.text])
    (wish,) = wish_facts(made, text, analysis, position_ms=1)
    assert wish.fact == "u-77 prefers Two spaces, never tabs"


def test_a_message_has_so_many_wishes_at_most(recognizer: SpacyRecognizer) -> None:
    text = " ".join(
        f"Always use the colour {name}." for name in ["red", "blue", "green", "grey", "pink", "tan"]
    )
    assert len(stated(recognizer, spoken(text))) == MAX_WISHES


def test_without_an_analysis_there_are_none() -> None:
    made = spoken("Always reply in German, please.")
    assert wish_facts(made, event_text(made), Analysis(), position_ms=1) == []


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("About the parcels, new plan. Leave them at the bakery.", "Leave them at the bakery"),
        ("My walks: I take it back. Two short ones.", "Two short ones"),
        ("Letters, change of plan: grey envelopes only.", "grey envelopes only"),
        ("On lamps I see it differently now: warm light, no bulbs.", "warm light, no bulbs"),
        ("New policy for my letters. Grey envelopes only.", "Grey envelopes only"),
        ("Letters: I must correct myself. Grey envelopes only.", "Grey envelopes only"),
        ("My walks, take two: only short ones, please.", "only short ones"),
        (
            "The weekly page should look different: tables and figures only.",
            "tables and figures only",
        ),
        ("How you greet me, this I wish to alter. Only by name, please.", "Only by name"),
    ],
)
def test_what_is_announced_as_new_takes_the_place_of_a_wish(
    recognizer: SpacyRecognizer, text: str, wish: str
) -> None:
    made = spoken(text)
    said_text = event_text(made)
    (analysis,) = recognizer.analyze([said_text.text])
    (fact,) = wish_facts(made, said_text, analysis, position_ms=1)
    assert (fact.target.name, " now prefers " in fact.fact) == (wish, True)


@pytest.mark.parametrize(
    "text",
    [
        "I want to change my address. The new flat is in Elm Street.",
        "My invoice was amended. The sum is lower now.",
    ],
)
def test_a_thing_that_is_changed_announces_no_wish(recognizer: SpacyRecognizer, text: str) -> None:
    assert stated(recognizer, spoken(text)) == []


@pytest.mark.parametrize("text", NEW_OF_ONE_CASE)
def test_what_is_new_of_one_case_is_no_wish(recognizer: SpacyRecognizer, text: str) -> None:
    assert stated(recognizer, spoken(text)) == []
