"""Who is the same as whom, and what that makes of the graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrichment.names import EntityType, canonical_name, components, entity_id
from enrichment.resolution import (
    Candidate,
    Judgement,
    KnownEntity,
    judge,
    name_form,
    question,
    same_as,
)


def known(
    name: str, entity_type: EntityType = "concept", subtype: str | None = None, exact: bool = False
) -> KnownEntity:
    canonical = canonical_name(name)
    return KnownEntity(
        entity_id("t", canonical, entity_type), canonical, entity_type, subtype, exact
    )


def judged(
    one: str,
    other: str,
    cosine: float = 0.99,
    subtype: str | None = None,
    entity_type: EntityType = "concept",
) -> Judgement:
    first, second = (known(name, entity_type, subtype) for name in (one, other))
    return judge(Candidate(first, second, cosine))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("GPT-4", "gpt-4o"),
        ("invoice-2024-001", "invoice-2024-002"),
        ("Claude 2", "Claude 3"),
        ("Python 3.10", "Python 3.11"),
        ("v1.2.3", "v1.2.30"),
        ("iPhone 15", "iPhone-15"),
    ],
)
def test_names_with_digits_are_the_same_only_as_themselves(one: str, other: str) -> None:
    assert judged(one, other, 1.0).verdict == "new"


def test_a_name_with_digits_is_the_same_with_another_dash() -> None:
    assert judged("GPT-4", "GPT\u20114", 0.1) == Judgement("same", "same_typography", 10_000)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("north gate", "south gate"),
        ("inbound traffic", "outbound traffic"),
        ("dark mode", "light mode"),
        ("Visual Studio", "Visual Studio Code"),
        ("credit card", "debit card"),
    ],
)
def test_one_word_that_differs_is_enough_to_ask(one: str, other: str) -> None:
    assert judged(one, other, 0.97) == Judgement("ask", "other_words")


@pytest.mark.parametrize(
    ("one", "other", "subtype", "rule"),
    [
        ("Siemens AG", "Siemens", "organization", "same_form"),
        ("The Red Cross", "red-cross", "organization", "same_form"),
        ("Johnson & Johnson", "Johnson and Johnson", "organization", "same_form"),
        ("U.S.A.", "USA", "location", "same_form"),
        ("Zürich", "Zurich", "location", "same_form"),
        ("Smith, John", "Mr. John Smith", "person", "same_form"),
        ("University of Oxford", "Oxford University", "organization", "same_words"),
        ("Wei Li", "Li Wei", "person", "same_words"),
        ("colour schemes", "color scheme", None, "same_stems"),
        ("World Health Organisation", "World Health Organization", "organization", "same_stems"),
        ("IBM", "International Business Machines", "organization", "initials"),
        ("Elastic Search", "Elasticsearch", "technology", "same_letters"),
        ("log analyser", "log analyzers", None, "same_stems"),
    ],
)
def test_what_makes_two_names_the_same(
    one: str, other: str, subtype: str | None, rule: str
) -> None:
    assert judged(one, other, 0.9, subtype)[:2] == ("same", rule)


@pytest.mark.parametrize(
    ("one", "other", "subtype"),
    [
        ("Mr. Smith", "Mrs. Smith", "person"),
        ("Jane Smith", "John Smith", "person"),
        ("Williams", "William", "person"),
        ("Apple Inc.", "Apple", None),
        ("Siemens Energy AG", "Siemens AG", "organization"),
        ("\u0420\u0430ul Jones", "Paul Jones", "person"),
    ],
)
def test_names_that_only_look_alike_are_not_the_same(
    one: str, other: str, subtype: str | None
) -> None:
    assert judged(one, other, 0.99, subtype).verdict != "same"


@pytest.mark.parametrize(
    ("cosine", "verdict"), [(0.86, "ask"), (0.84, "ask"), (0.70, "ask"), (0.699, "new")]
)
def test_other_words_are_a_question_down_to_a_cosine(cosine: float, verdict: str) -> None:
    assert judged("Postgres", "PostgreSQL", cosine, "technology").verdict == verdict


def test_a_plural_is_another_tool() -> None:
    assert judged("get_order", "get_orders", 0.99, None, "tool").verdict == "ask"


@pytest.mark.parametrize("entity_type", ["agent", "user", "resource"])
def test_names_that_are_keys_somewhere_are_exact(entity_type: EntityType) -> None:
    assert judged("order-a", "order_a", 1.0, None, entity_type).verdict == "new"


def test_a_literal_value_is_never_resolved() -> None:
    assert judged("dark mode", "dark-mode", 1.0, "value").verdict == "new"


def test_what_the_pattern_recogniser_found_is_exact() -> None:
    one, other = known("ab-cd", exact=True), known("ab cd")
    assert judge(Candidate(one, other, 1.0)).rule == "exact_names"


def test_other_types_and_other_subtypes_are_never_the_same() -> None:
    assert judge(Candidate(known("search"), known("search", "tool"), 1.0)).verdict == "new"
    one, other = known("Mercury", subtype="location"), known("mercury!", subtype="product")
    assert judge(Candidate(one, other, 1.0)).rule == "other_kind"


def test_an_agent_is_the_person_of_that_name() -> None:
    agent, person = known("Caroline", "agent"), known("caroline", subtype="person")
    assert judge(Candidate(agent, person, 1.0)).rule == "same_name"
    assert judge(Candidate(person, agent, 1.0)).rule == "same_name"


def test_an_identifier_is_the_same_whatever_its_type() -> None:
    user, key = known("mia_li_3668", "user"), known("mia_li_3668", "resource", "key", exact=True)
    assert judge(Candidate(user, key, 1.0)).rule == "same_identifier"


@pytest.mark.parametrize("name", ["2024", "v1.2", "room 12345"])
def test_a_number_is_no_identifier(name: str) -> None:
    assert judge(Candidate(known(name), known(name, "resource"), 1.0)).verdict == "new"


def test_the_model_is_believed_only_about_cases() -> None:
    case = Candidate(known("Bob Brown"), known("Robert Brown"), 0.8)
    settled = Candidate(known("Claude 2"), known("Claude 3"), 0.9)
    answers = {case.entity_ids: True, settled.entity_ids: True}
    assert [p.entity_ids for p in same_as([case, settled], answers)] == [case.entity_ids]
    assert same_as([case, settled]) == []
    assert same_as([case], {case.entity_ids: False}) == []


def test_a_question_says_names_and_kinds() -> None:
    asked = question(Candidate(known("Bob", subtype="person"), known("Robert"), 0.8))
    assert asked == {
        "entities": [
            {"name": "bob", "type": "concept", "subtype": "person"},
            {"name": "robert", "type": "concept", "subtype": None},
        ]
    }


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
kinds = st.sampled_from([None, "person", "organization", "location"])


@given(names, names, kinds, st.floats(-1, 1))
def test_the_order_of_a_pair_changes_nothing(
    one: str, other: str, kind: str | None, cosine: float
) -> None:
    a, b = known(one, subtype=kind), known(other, subtype=kind)
    assert judge(Candidate(a, b, cosine)) == judge(Candidate(b, a, cosine))
    assert same_as([Candidate(a, b, cosine)]) == same_as([Candidate(b, a, cosine)] * 2)


@given(names, st.sampled_from(["", "person", "organization"]))
def test_something_is_left_in_a_normal_form(name: str, kind: str) -> None:
    canonical = canonical_name(name)
    assert bool(name_form(canonical, kind)) == bool(canonical)


edges = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")), max_size=12)


@given(edges, st.randoms(use_true_random=False))
def test_components_depend_on_the_set_of_edges(pairs: list[tuple[str, str]], random) -> None:  # type: ignore[no-untyped-def]  # Hypothesis's Random
    shuffled = [tuple(random.sample(pair, 2)) for pair in random.sample(pairs, len(pairs))]
    assert components(shuffled) == components(pairs)


@given(edges)
def test_the_canonical_entity_is_the_smallest_of_its_component(
    pairs: list[tuple[str, str]],
) -> None:
    canonical = components(pairs)
    for one, other in pairs:
        assert canonical[one] == canonical[other] <= min(one, other)
    assert all(canonical[root] == root for root in canonical.values())


def test_a_long_chain_is_one_component() -> None:
    chain = [(f"{n:06}", f"{n + 1:06}") for n in range(20_000)]
    assert set(components(chain).values()) == {"000000"}
