"""What a question says: its words, whom it names, what is embedded of it."""

from __future__ import annotations

import pytest

from api.retrieval.query_terms import MAX_WORDS, agent_name, query_terms
from enrichment.stems import stem


def test_words_that_say_little_are_left_out() -> None:
    assert query_terms("When did the build fail on Tuesday?").words == ("build", "fail", "tuesday")


def test_a_question_of_nothing_but_such_words_keeps_them() -> None:
    assert query_terms("What is it?").words == ("what", "is", "it")


def test_the_named_agent_is_known_and_neither_searched_nor_embedded() -> None:
    terms = query_terms("What did Maria's planner book?", ["Maria", "Otto"])
    assert terms.agents == {"maria"}
    assert terms.words == ("planner", "book")
    assert terms.embedding_text == "What did planner book?"


def test_a_name_within_a_word_names_nobody() -> None:
    terms = query_terms("Who runs the annual review?", ["Ann"])
    assert terms.agents == frozenset()
    assert terms.words == ("runs", "annual", "review")


@pytest.mark.parametrize("spelled", ["research-agent-2", "Research Agent 2", "research_agent 2's"])
def test_joints_in_a_name_are_alike(spelled: str) -> None:
    terms = query_terms(f"What did {spelled} find?", ["research_agent-2"])
    assert terms.agents == {"research agent 2"}
    assert terms.words == ("find",)


def test_the_longer_name_is_taken_out_whole() -> None:
    terms = query_terms("Where does Ann Smith work?", ["ann", "ann smith"])
    assert terms.agents == {"ann", "ann smith"}
    assert terms.words == ("work",)


def test_a_question_of_a_name_alone_is_searched_and_embedded_as_it_is() -> None:
    terms = query_terms(" Maria ", ["maria"])
    assert terms.agents == {"maria"}
    assert terms.words == ("maria",)
    assert terms.embedding_text == "Maria"


def test_an_empty_question_asks_for_nothing() -> None:
    terms = query_terms(" ?! ")
    assert (terms.words, terms.stems) == ((), ())


def test_words_are_bounded_and_each_comes_once() -> None:
    terms = query_terms(" ".join(f"word{n} word{n}" for n in range(100)))
    assert terms.words == tuple(f"word{n}" for n in range(MAX_WORDS))
    assert terms.stems[: terms.word_stems] == terms.words


def test_stems_of_words_come_before_those_of_identifiers() -> None:
    words = " ".join(f"word{n}" for n in range(MAX_WORDS))
    terms = query_terms(f"{words} orders W12345 w12345 3RK2T9")
    assert terms.word_stems == MAX_WORDS
    assert terms.stems[terms.word_stems :] == ("w12345", "3rk2t9")
    assert terms.identifier_places[-2:] == [MAX_WORDS, MAX_WORDS + 1]


def test_nothing_in_a_name_is_read_as_a_pattern() -> None:
    assert query_terms("What did a+b (test) do?", ["a+b (test", ".*", ""]).agents == {"a+b (test"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("family", "families"),
        ("box", "boxes"),
        ("class", "classes"),
        ("paint", "painting"),
        ("paint", "painted"),
        ("stop", "stopped"),
        ("run", "running"),
        ("cancel", "cancelled"),
        ("travel", "travelling"),
        ("install", "installed"),
        ("hope", "hoping"),
        ("move", "moves"),
        ("study", "studied"),
    ],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize("word", ["bus", "is", "red", "call", "small", "4711", "v2s", "ring"])
def test_what_only_looks_like_an_ending_stays(word: str) -> None:
    assert stem(word) == word


def test_names_are_compared_in_normal_form() -> None:
    assert agent_name("  Payment__Service-EU ") == "payment service eu"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Why was 3RK2T9 cancelled, and W2378156?", ("3rk2t9", "w2378156")),
        ("the 18th at 10am took 250ms", ()),
        ("018f2f6e-3c1a-7bbb-8000-000000000001", ("018f2f6e", "3c1a")),
        ("what did agent77 say of HAT052?", ("hat052",)),
        ("gift_card_4643416 in 2024", ()),
    ],
)
def test_identifiers_are_words_of_letters_and_digits(query: str, expected: tuple[str, ...]) -> None:
    assert query_terms(query, ["agent77"]).identifiers == expected
