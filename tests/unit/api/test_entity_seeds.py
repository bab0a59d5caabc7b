"""Seeds of a recall: words and names of a query, matches, structure, the cap of communities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.retrieval.intent import (
    MAX_RECALL_SEEDS,
    Seed,
    Structure,
    capped_by_community,
    match_score,
    scored_seeds,
    structural_scores,
)
from api.retrieval.query_terms import MAX_NAMING_CHARACTERS, name_forms, name_terms


def test_words_that_say_little_are_left_out() -> None:
    assert name_terms("Why was the Customer charged?").words == ("customer", "charged")


def test_a_query_of_such_words_alone_keeps_them() -> None:
    assert name_terms("who is it?").words == ("who", "is", "it")


def test_a_plural_is_searched_as_one_too() -> None:
    assert name_terms("payments").words == ("payments", "payment")


def test_what_stands_behind_512_characters_names_nothing() -> None:
    query = "x" * (MAX_NAMING_CHARACTERS + 1) + " order"
    assert name_terms(query).words == ("x" * MAX_NAMING_CHARACTERS,)


def test_runs_of_words_are_looked_up_as_names() -> None:
    names = name_terms('the "Card Declined" code ch_9001!').names
    assert {"card declined", "card_declined", "card-declined", "ch_9001"} <= set(names)
    assert "the" not in names


def test_whose_something_is_names_its_owner_too() -> None:
    for asked in ("What does Ann Smith's sister do?", "What does Ann Smith\u2019s sister do?"):
        assert "ann smith" in name_terms(asked).names
    assert {"mcdonald's", "mcdonald"} <= set(name_terms("at McDonald's").names)


def test_a_given_name_is_read_with_spaces_too() -> None:
    assert name_forms("Marias-Bakery") == ("marias-bakery", "marias bakery", "marias_bakery")


@pytest.mark.parametrize(
    ("query", "name", "expected"),
    [
        ("order 4711", "Order 4711", 1.0),
        ("order 4711", "order", 0.6 + 0.4 * 5 / 9),
        ("order", "order 4711", 5 / 9),
        ("pay", "payment", 3 / 7),
        ("xy", "xylophone", 0.0),
        ("order", "...", 0.0),
    ],
)
def test_a_match_is_the_share_of_the_name_and_of_the_query(
    query: str, name: str, expected: float
) -> None:
    assert match_score(name_terms(query).words, [name]) == pytest.approx(expected)


def test_the_best_name_counts() -> None:
    assert match_score(["jacq"], ["The Project", "JACQ"]) == 1.0


def test_structure_is_degree_and_diversity() -> None:
    scores = structural_scores(
        {"hub": Structure(9, 4), "leaf": Structure(), "few": Structure(9, 2)}
    )
    assert scores == {"hub": 1.0, "leaf": 0.0, "few": 0.75}


def test_structure_is_blended_into_the_match() -> None:
    seeds = [Seed("a", "a", 1.0), Seed("b", "b", 0.9)]
    structures = {"b": Structure(3, 4, "community")}
    found = scored_seeds(seeds, structures, structural_weight=0.3)
    assert [(s.entity_id, round(s.score, 2), s.community_id) for s in found] == [
        ("b", 0.93, "community"),
        ("a", 0.7, None),
    ]


def seeds_of(communities: list[str | None]) -> list[Seed]:
    return [
        Seed(f"e{n}", f"e{n}", 1.0, 0.0, 1.0, community) for n, community in enumerate(communities)
    ]


def test_a_community_gives_three_seeds() -> None:
    kept = capped_by_community(seeds_of(["one"] * 5 + [None] * 4), 3)
    assert [seed.community_id for seed in kept] == ["one"] * 3 + [None] * 4


@given(st.lists(st.sampled_from([None, "one", "two"]), min_size=1, max_size=30), st.integers(0, 4))
def test_the_cap_never_leaves_none(communities: list[str | None], cap: int) -> None:
    """SA-INV-10."""
    seeds = seeds_of(communities)
    kept = capped_by_community(seeds, cap)
    assert 1 <= len(kept) <= MAX_RECALL_SEEDS
    assert kept == [seed for seed in seeds if seed in kept]
    if None in communities and cap:
        for community in {"one", "two"}:
            assert sum(seed.community_id == community for seed in kept) <= cap


words = st.lists(st.text("abcdeé_-1 ", max_size=12), max_size=5)


@given(words, words)
def test_scores_stay_between_0_and_1(query: list[str], names: list[str]) -> None:
    assert 0 <= match_score(name_terms(" ".join(query)).words, names) <= 1
