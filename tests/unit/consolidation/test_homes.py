"""Whose communities an entity may be in, and which facts join entities."""

from __future__ import annotations

import pytest

from consolidation.communities import (
    EVERYBODY,
    LinkingFact,
    NamedEntity,
    fact_links,
    homes,
    same_links,
)
from consolidation.label_propagation import entity_graph


def fact(source: str, target: str, user: str = EVERYBODY, *, literal: bool = False) -> LinkingFact:
    return LinkingFact(source, target, literal, user, 0.5, ("knows", "semantic", "0", "e"))


def ends(facts: list[LinkingFact], at_home: dict[str, str]) -> list[tuple[str, str]]:
    return [(link.source_id, link.target_id) for link in fact_links(facts, at_home)]


@pytest.mark.parametrize(
    ("users", "home"),
    [
        ([EVERYBODY], EVERYBODY),
        (["ann"], "ann"),
        (["ann", "bob"], EVERYBODY),
        (["ann", EVERYBODY], EVERYBODY),
    ],
)
def test_home_is_with_the_only_user_whose_facts_name_it(users: list[str], home: str) -> None:
    assert homes([NamedEntity("a", users)]) == {"a": home}


def test_what_no_fact_names_has_no_home() -> None:
    assert homes([NamedEntity("a", []), NamedEntity("b", [], ["c"])]) == {}


def test_entities_that_are_the_same_have_one_home() -> None:
    both = [NamedEntity("a", ["ann"], ["b"]), NamedEntity("b", [])]
    assert homes(both) == {"a": "ann", "b": "ann"}
    several = [NamedEntity("a", ["ann"], ["b"]), NamedEntity("b", ["bob"])]
    assert homes(several) == {"a": EVERYBODY, "b": EVERYBODY}


def test_a_fact_joins_entities_of_its_own_home() -> None:
    at_home = {"a": "ann", "b": "ann", "x": EVERYBODY}
    assert ends([fact("a", "b", "ann")], at_home) == [("a", "b")]


def test_a_fact_that_leads_elsewhere_tells_of_the_end_at_home_alone() -> None:
    at_home = {"a": "ann", "x": EVERYBODY}
    found = ends([fact("a", "x", "ann"), fact("x", "a", "ann")], at_home)
    assert found == [("a", "a"), ("a", "a")]


def test_a_users_fact_about_what_everybody_knows_is_nobodys() -> None:
    assert ends([fact("x", "y", "ann")], {"x": EVERYBODY, "y": EVERYBODY}) == []


def test_a_literal_joins_nothing() -> None:
    at_home = {"a": EVERYBODY, "gold": EVERYBODY}
    assert ends([fact("a", "gold", literal=True)], at_home) == [("a", "a")]


def test_facts_of_one_pair_are_links_of_their_own() -> None:
    other = fact("a", "b")._replace(key=("likes", "semantic", "0", "e"))
    facts = [fact("a", "b"), other, fact("a", "b")]
    at_home = dict.fromkeys("ab", EVERYBODY)
    graph = entity_graph([list(fact_links(facts, at_home))])
    assert len(graph.link_ids) == 2


def test_those_that_are_the_same_are_linked_as_such() -> None:
    (link,) = same_links(NamedEntity("a", [], ["b"]))
    assert (link.source_id, link.target_id, link.same) == ("a", "b", True)
