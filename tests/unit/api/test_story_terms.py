"""What a question looks for: identifiers of any shape, and no quantities or times."""

from __future__ import annotations

import pytest

from api.retrieval.plan_phrases import MARKS
from api.retrieval.planning import plan_of
from api.retrieval.story_terms import story_terms
from enrichment.stems import words_in

NOW_MS = 1_795_543_200_000  # 2026-11-24T18:00Z


@pytest.mark.parametrize(
    ("word", "identifiers"),
    [
        ("KLX 2437", ("klx 2437",)),
        ("#4821", ("4821",)),
        ("PR 17", ()),
        ("acct_K77", ("acct_k77",)),
        ("R/75-9611", ("r/75-9611",)),
        ("WO#3391", ("wo#3391",)),
        ("IP/5756/B", ("ip/5756/b",)),
        ("insp:6135", ("insp:6135",)),
        ("KS~3947", ("ks~3947",)),
        ("order 4711", ()),
        ("24/7", ()),
        ("10:30am", ()),
        ("2026-11-24T18:00Z", ()),
        ("5kg", ()),
    ],
)
def test_identifiers_have_letters_and_digits(word: str, identifiers: tuple[str, ...]) -> None:
    question = f"What is {word}?"
    assert story_terms(question, plan_of(question, NOW_MS)).identifiers == identifiers


def test_a_word_that_may_only_ask_counts_for_little_of_what_is_asked() -> None:
    question = "Any assurance to the kiln that was never acted upon?"
    terms = story_terms(question, plan_of(question, NOW_MS))
    shares = dict(zip(terms.words, terms.shares, strict=True))
    assert shares["kiln"] > 0.5
    assert shares.get("assurance", 0.0) < 0.3  # what surely asks is no word of the topic
    assert shares["acted"] < 0.3


def test_what_is_left_to_do_is_no_topic_of_what_was_promised() -> None:
    question = "Please list any undertakings to the kiln that remain unfulfilled."
    assert story_terms(question, plan_of(question, NOW_MS)).words == ("kiln",)


def test_of_a_plain_question_each_word_is_what_it_is_about() -> None:
    question = "Which glaze suits the kiln?"
    terms = story_terms(question, plan_of(question, NOW_MS))
    assert set(terms.shares) == {1.0}


def test_a_noun_of_an_act_may_be_told_by_its_verb_and_a_name_may_not() -> None:
    question = "How often did the enrolment of Clemence fail after the shipment?"
    terms = story_terms(question, plan_of(question, NOW_MS))
    told = {one.stem: terms.words[one.first] for one in terms.verbs}
    assert told == {"enrol": "enrolment", "ship": "shipment"}


@pytest.mark.parametrize(
    ("question", "joined"),
    [
        ("What became of the call sheet of Ann?", {"callsheet": ("call", "sheet")}),
        ("What became of Ann's check-in?", {"checkin": ("check", "check")}),
        ("Why was the kiln rolled back?", {"rollback": ("roll", "roll")}),
        ("What became of the sheet and the kiln 4711?", {}),
    ],
)
def test_two_words_in_a_row_may_be_written_as_one(
    question: str, joined: dict[str, tuple[str, str]]
) -> None:
    terms = story_terms(question, plan_of(question, NOW_MS))
    told = {one: (terms.stems[first], terms.stems[last]) for one, first, last in terms.joined}
    assert joined.items() <= told.items()
    assert joined or not told


@pytest.mark.parametrize(
    ("question", "aside"),
    [
        ("Feels like a million... how often did the export stop?", {"million"}),
        ("It drags on. How often did the export stop?", {"drags"}),
        ("The export stopped again. How often did it do that?", set()),
        ("Hamburg complains: how often did the export stop?", {"complains"}),
        ("The nightly export: why did it stop?", set()),
        (
            "The board wants a figure: how often was it that the export stopped?",
            {"board", "figure"},
        ),
        ("How often did the export bounce?", {"bounce"}),
        ("I sell carts. Why was the export of the plan to Ghent late?", {"sell", "carts"}),
        ("The export came back. On what ground?", set()),
        (
            "The board needs it by noon. The nightly export to Ghent stalled. Number of times?",
            {"board", "times"},
        ),
        (
            "A bet with the porter: did the export to Ghent stall twice or more?",
            {"porter"},
        ),
    ],
)
def test_what_leads_to_a_question_that_says_all_is_aside(question: str, aside: set[str]) -> None:
    terms = story_terms(question, plan_of(question, NOW_MS))
    told = zip(terms.words, terms.is_aside, strict=True)
    assert {word for word, is_aside in told if is_aside} == aside


@pytest.mark.parametrize("said", ["I'm arranging a session for you, before Friday.", "Tonight."])
def test_what_is_about_to_be_done_is_promised(said: str) -> None:
    marks = set(MARKS["promise"].split())
    told = [word for word in words_in(said.lower()) if word in marks]
    assert len(told) > len([word for word in words_in("that is over") if word in marks])


@pytest.mark.parametrize("name", ["SOC~31395", "thr#2597", "chat@kiln-7", "dlg/28+48", "run=4f|2"])
def test_a_session_may_be_named_by_any_mark(name: str) -> None:
    for question in (f"What was \u201c{name}\u201d about?", f"boss cc'd me on {name}, help"):
        assert name in story_terms(question, plan_of(question, NOW_MS)).sessions
