"""Stems: one for the forms of a word, and never one for a word that says something and another."""

from __future__ import annotations

import pytest

from enrichment.stems import is_short_for, said_stems, stem, verbs_of


@pytest.mark.parametrize(
    ("word", "other"), [("notes", "note"), ("families", "family"), ("stopped", "stop")]
)
def test_forms_of_a_word_have_one_stem(word: str, other: str) -> None:
    assert stem(word) == stem(other)


@pytest.mark.parametrize(("word", "other"), [("note", "not"), ("cane", "can"), ("willing", "will")])
def test_what_says_something_is_no_word_that_says_nothing(word: str, other: str) -> None:
    assert stem(word) != stem(other)


@pytest.mark.parametrize(
    ("short", "whole", "is_it"),
    [
        ("bag", "baggag", True),
        ("config", "configur", True),
        ("bag", "bug", False),
        ("id", "idl", False),
    ],
)
def test_a_short_form_begins_the_whole_word(short: str, whole: str, is_it: bool) -> None:
    assert is_short_for(short, whole) is is_it
    assert is_short_for(whole, short) is is_it


def test_a_name_in_camel_case_is_said_whole_and_by_its_words() -> None:
    told = said_stems("ops", "createOrder", "HighLatency of webNode, p95")
    assert {"highlatenci", "high", "latenci", "creat", "order", "webnod", "nod"} <= told.keys()
    assert told["high"] == told["highlatenci"] == 1
    assert said_stems("", "", "NASA said OK").keys() == {"nasa", "said", "ok"}


@pytest.mark.parametrize(
    ("noun", "verb"),
    [
        *(("enrolment", "enrol"), ("cancellation", "cancel"), ("activation", "activate")),
        *(("approval", "approve"), ("delivery", "deliver"), ("payment", "pay")),
    ],
)
def test_the_noun_of_an_act_leads_to_its_verb(noun: str, verb: str) -> None:
    assert stem(verb) in verbs_of(stem(noun))


@pytest.mark.parametrize("word", ["city", "lamp", "total"])
def test_what_is_of_no_verb_leads_to_none(word: str) -> None:
    assert verbs_of(stem(word)) == []
