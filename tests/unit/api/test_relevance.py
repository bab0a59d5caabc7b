"""Relevance of events to a question, channel by channel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.retrieval.query_terms import QueryTerms, query_terms
from api.retrieval.relevance import DEFAULT_WEIGHTS, RelevanceWeights
from api.retrieval.relevance import relevance as relevance_of
from consolidation.decay import DAY_MS
from pipelines.columns.windows import neighbour_weight
from tests.standings import Said, standings

NOTHING = RelevanceWeights(0, 0, 0, 0, 0, 0, 0, 0)
NOW_MS = 1_700_000_000_000  # 14 November 2023


def relevance(
    terms: QueryTerms, said: list[Said], weights: RelevanceWeights = DEFAULT_WEIGHTS
) -> dict[str, float]:
    """Relevance of events, by id."""
    scores = relevance_of(terms, standings(said, terms), weights).tolist()
    return dict(zip([one.event_id for one in said], scores, strict=True))


def turn(event_id: str, author: str | None, text: str, **fields: object) -> Said:
    """What somebody says."""
    return Said(event_id, author, text, **fields)  # type: ignore[arg-type]  # fields of it


def dialogue(*texts: str, **fields: object) -> list[Said]:
    """Turns that follow each other, named e0, e1 …"""
    return [
        turn(f"e{n}", "ann", text, previous_id=f"e{n - 1}" if n else None, **fields)
        for n, text in enumerate(texts)
    ]


def best(terms: QueryTerms, passages: list[Said], weights: RelevanceWeights) -> list[str]:
    """Ids, the most relevant first."""
    found = relevance(terms, passages, weights)
    return sorted(found, key=lambda event_id: (-found[event_id], event_id))


def test_nothing_is_relevant_in_an_empty_pool() -> None:
    assert relevance(query_terms("anything"), []) == {}


def test_the_best_has_1() -> None:
    found = relevance(query_terms("gateway"), dialogue("the gateway timed out", "so what"))
    assert found["e0"] == 1.0
    assert 0 < found["e1"] < 1.0


def test_other_forms_of_a_word_count_as_the_word() -> None:
    weights = replace(NOTHING, words=5.0)
    alone = [turn("one", None, "She likes pottery"), turn("two", None, "Two families moved")]
    assert best(query_terms("whose family"), alone, weights)[0] == "two"


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    weights = replace(NOTHING, words=5.0)
    alone = [
        turn("common", None, "refund order"),
        turn("rare", None, "refund quokka"),
        *(turn(f"more{n}", None, "order parcel") for n in range(5)),
    ]
    assert best(query_terms("order quokka"), alone, weights)[0] == "rare"


def test_words_of_the_neighbours_count_by_distance() -> None:
    weights = replace(NOTHING, words=5.0)
    turns = dialogue("quokka", *["well"] * 5)
    assert best(query_terms("quokka"), turns, weights) == ["e0", "e1", "e2", "e3", "e4", "e5"]
    found = relevance(query_terms("quokka"), turns, weights)
    assert found["e3"] > found["e4"] == found["e5"]


def test_what_comes_before_counts_more_than_what_comes_after() -> None:
    assert neighbour_weight(0) == 1.0
    assert neighbour_weight(-1) > neighbour_weight(1) > neighbour_weight(-2) > 0


def test_no_context_reaches_over_a_gap_in_the_pool() -> None:
    turns = dialogue("quokka", "well", "yes")
    apart = [turns[0], turns[2]]
    weights = replace(NOTHING, words=5.0)
    nothing = relevance(query_terms("quokka"), [turns[0], turn("x", "ann", "yes")], weights)
    found = relevance(query_terms("quokka"), apart, weights)
    assert found["e2"] == nothing["x"] < relevance(query_terms("quokka"), turns, weights)["e2"]


def test_who_says_it_counts_when_the_question_names_them() -> None:
    turns = dialogue("I bought a lamp")
    turns.append(turn("bob", "Bob", "I bought a lamp"))
    weights = replace(NOTHING, agent=2.0)
    assert best(query_terms("What did Bob buy?", ["bob"]), turns, weights) == ["bob", "e0"]
    found = relevance(query_terms("What was bought?", ["bob"]), turns, weights)
    assert found["bob"] == found["e0"]


def test_what_happened_then_or_was_told_soon_after_counts() -> None:
    weights = replace(NOTHING, time=2.0)
    days = {"before": -20, "then": 0, "after": 10, "later": 120}
    turns = [turn(name, None, "", occurred_ms=NOW_MS + day * DAY_MS) for name, day in days.items()]
    terms = query_terms("Who came on 14 November 2023?", now_ms=NOW_MS)
    found = relevance(terms, turns, weights)
    assert found["then"] == 1.0
    assert 1.0 > found["after"] > found["later"]
    assert found["after"] > found["before"]


def test_a_tool_is_found_by_the_words_of_its_name() -> None:
    weights = replace(NOTHING, words=5.0)
    calls = [turn("a", "get_order", "id: 4"), turn("b", "cancel_booking", "id: 4")]
    assert best(query_terms("Why was the booking cancelled?"), calls, weights)[0] == "b"


def test_calls_without_any_text_are_found_by_their_names() -> None:
    calls = [turn("a", "get_order", ""), turn("b", "cancel_booking", "")]
    assert best(query_terms("Which booking?"), calls, DEFAULT_WEIGHTS) == ["b", "a"]


def test_a_question_weighs_less_than_the_reply_to_it() -> None:
    turns = dialogue("Which lamp?", "Which lamp it was, hard to say.", cosine=0.5)
    assert best(query_terms("lamp"), turns, DEFAULT_WEIGHTS) == ["e1", "e0"]


def test_without_vectors_words_alone_decide() -> None:
    turns = dialogue("the tree", "the lamp", "one chair", "and more")
    assert best(query_terms("lamp"), turns, DEFAULT_WEIGHTS)[0] == "e1"


def test_without_words_meaning_alone_decides() -> None:
    turns = [turn(f"e{n}", None, "a thing", cosine=n / 10) for n in range(5)]
    assert best(query_terms("lamp"), turns, DEFAULT_WEIGHTS) == ["e4", "e3", "e2", "e1", "e0"]


def test_what_its_neighbours_mean_counts() -> None:
    turns = [turn("a", None, "a thing", cosine=0.4), turn("b", None, "a thing", cosine=0.4)]
    turns[1] = turns[1]._replace(window_cosine=0.6)
    assert best(query_terms("lamp"), turns, DEFAULT_WEIGHTS) == ["b", "a"]
    alone = replace(DEFAULT_WEIGHTS, window_cosine=0.0)
    found = relevance(query_terms("lamp"), turns, alone)
    assert found["a"] == found["b"]


def test_a_passage_that_follows_itself_has_no_neighbours() -> None:
    found = relevance(query_terms("lamp"), [turn("a", None, "lamp", previous_id="a")])
    assert found["a"] == 1.0


@pytest.mark.parametrize("text", ["", "\u2019\u2019", "( [ *", "İstanbul ılık"])  # noqa: RUF001
def test_any_text_is_read(text: str) -> None:
    found = relevance(query_terms(text or "x"), [turn("a", None, text), turn("b", None, "")])
    assert set(found) == {"a", "b"}
