"""Stems: one for the forms of a word, and never one for a word that says something and another."""

from __future__ import annotations

import pytest

from enrichment.stems import stem


@pytest.mark.parametrize(
    ("word", "other"), [("notes", "note"), ("families", "family"), ("stopped", "stop")]
)
def test_forms_of_a_word_have_one_stem(word: str, other: str) -> None:
    assert stem(word) == stem(other)


@pytest.mark.parametrize(("word", "other"), [("note", "not"), ("cane", "can"), ("willing", "will")])
def test_what_says_something_is_no_word_that_says_nothing(word: str, other: str) -> None:
    assert stem(word) != stem(other)
