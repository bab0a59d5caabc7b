"""How questions are put: read by forms that were learned, whatever they are about."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.retrieval.planning import plan_of, rows_matching
from api.retrieval.question_forms import forms, grams_of, likely, tokens_of, without_asking
from enrichment.stems import stems_of
from tests.bench.domains.__main__ import LEARNED_FROM
from tests.bench.phrasings.__main__ import embedded
from tests.bench.phrasings.training import filled, of_domains, phrasings

NOW_MS = 1_795_543_200_000  # 2026-11-24T18:00Z
READ, READ_WITH_VECTORS, READ_BY_ROWS = 0.92, 0.97, 0.5
"""Of the phrasings kept apart: at least so many, and by patterns alone no more than so many."""
FOUND, MEANT = 0.97, 0.75
"""Of the words of what they ask about, and of the words that are taken for it."""


def test_most_phrasings_that_nothing_was_trained_on_are_read_as_they_are_meant() -> None:
    apart = [*filled(phrasings("kept_apart.json"), Random(7), times=1)]
    rows = [rows_matching(one.text) for one in apart]
    shares = [likely(one.text, told) for one, told in zip(apart, rows, strict=True)]
    read = sum(
        max(s, key=s.__getitem__) == one.operator for one, s in zip(apart, shares, strict=True)
    )
    by_rows = sum(
        max(told, key=told.__getitem__, default="search") == one.operator
        for one, told in zip(apart, rows, strict=True)
    )
    assert read >= READ * len(apart)
    assert by_rows <= READ_BY_ROWS * len(apart)


def test_a_vector_tells_what_words_mean_that_no_phrasing_has() -> None:
    apart = [*filled(phrasings("kept_apart.json"), Random(7), times=1)]
    read = 0
    for one, vector in zip(apart, embedded([one.text for one in apart]), strict=True):
        shares = likely(one.text, rows_matching(one.text), vector=vector)
        read += max(shares, key=shares.__getitem__) == one.operator
    assert read >= READ_WITH_VECTORS * len(apart)


@pytest.mark.parametrize("question", ["Why did it fail?", "What is RX-99/2?"])
def test_what_a_row_says_needs_no_vector(question: str) -> None:
    (vector,) = embedded([question])
    assert plan_of(question, NOW_MS, vector=tuple(vector.tolist())) == plan_of(question, NOW_MS)


def test_what_they_ask_about_is_told_from_how_they_ask() -> None:
    meant = told = both = 0
    for one in filled(phrasings("kept_apart.json"), Random(7), times=1):
        wanted = stems_of(" ".join(one.text[start:end] for start, end in one.topics))
        left = stems_of(without_asking(one.text, one.text))
        meant, told, both = meant + len(wanted), told + len(left), both + len(wanted & left)
    assert both >= FOUND * meant
    assert both >= MEANT * told


def test_nothing_kept_apart_is_trained_on() -> None:
    lists = [*phrasings("phrasings.json"), *phrasings("voices.json")]
    trained = {way.text for way in (*lists, *of_domains(LEARNED_FROM))}
    assert trained.isdisjoint(way.text for way in phrasings("kept_apart.json"))


def test_the_table_knows_no_word_that_fills_a_gap() -> None:
    """Learned from the phrasings that are checked in, and from nothing else."""
    names = ("phrasings.json", "voices.json", "as_asked.json")
    whole = {way.text for name in names for way in phrasings(name)}
    whole |= {way.text for way in of_domains(LEARNED_FROM)}
    known = {token.form for text in whole for token in tokens_of(text)}
    assert forms().words <= known
    assert len(forms().grams) > 5_000


@pytest.mark.parametrize(
    ("question", "operator"),
    [
        ("Do you remember what tripped up the firing of the blue kiln?", "cause"),
        ("Could you pull up whatever tool calls went wrong for the firing of K-2?", "failures"),
        ("Specify the tool calls that were unsuccessful for the firing of K-2.", "failures"),
        ("The reported temperature of the kiln. How high was it before?", "value_before"),
        ("How high was the limit of the kiln earlier?", "value_before"),
        ("The firing of the blue kiln went through eventually. What did the trick?", "lesson"),
        ("Whose desk did the case of the cracked pot land on?", "actor"),
        ("Put a date on the firing of the blue kiln for me.", "time"),
        ("Tally the occasions on which the kiln door was stuck.", "count"),
        ("What were Ada Byron's parting words?", "last"),
        ("Does this ring a bell? E77 door ajar", "similar"),
        ("What loose ends do we have with Ada?", "promise"),
        ("Paint me a picture of Ada Byron.", "profile"),
        ("Bring me up to speed on run-77.", "summary"),
    ],
)
def test_no_pattern_has_to_know_how_a_question_is_put(question: str, operator: str) -> None:
    assert plan_of(question, NOW_MS).operator == operator


@pytest.mark.parametrize(
    "question",
    [
        "Which agents are there?",
        "Which glazes do I like?",
        "What batch size did T-4 use in the end?",
        "Is there a kiln that bites strangers?",
    ],
)
def test_a_plain_question_of_content_stays_one(question: str) -> None:
    assert plan_of(question, NOW_MS).operator == "search"


def test_what_a_value_is_called_is_not_taken_for_how_it_is_asked_for() -> None:
    assert "stage" in plan_of("In which stage is DP-3?", NOW_MS).topic
    topic = plan_of("Can you tell me what the glaze of Ada is at the moment?", NOW_MS).topic
    assert "glaze" in topic
    assert "tell" not in topic


def test_a_value_of_a_time_that_is_over_is_asked_for_as_of_then() -> None:
    plan = plan_of("Suppose it is 16 November: what's the kiln of Ada?", NOW_MS)
    assert plan.operator == "value_at"
    assert "kiln" in plan.topic


def test_a_tool_and_an_identifier_stay_whole_in_what_a_question_is_about() -> None:
    question = "Pray tell me, which functions got invoked on account of load_kiln for KLN-7/2?"
    assert "load_kiln" in without_asking(question, question)
    assert "KLN-7/2" in without_asking(question, question)


@given(st.text(max_size=120))
def test_any_text_is_read(text: str) -> None:
    shares = likely(text, rows_matching(text))
    assert sum(shares.values()) == pytest.approx(1)
    assert grams_of(tokens_of(text))
    letters = iter(text)
    assert all(one in letters for one in without_asking(text, text) if one != " ")  # in their order


@pytest.mark.parametrize(
    ("question", "operator"),
    [
        ("Compare the quotes of both kilns.", "search"),
        ("What did I do about the kiln?", "search"),
        ("Who is my potter?", "actor"),
        ("When am I in the studio?", "time"),
        ("Please confirm the licence number of Ada Byron for the file.", "value"),
    ],
)
def test_what_sounds_like_something_else_is_not_taken_for_it(question: str, operator: str) -> None:
    (vector,) = embedded([question])
    assert plan_of(question, NOW_MS, vector=tuple(vector.tolist())).operator == operator
