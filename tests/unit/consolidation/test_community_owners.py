"""Whose communities an entity may be in, and which facts join entities."""

from __future__ import annotations

import pytest

from consolidation.communities import fact_links, owners_of, same_links
from consolidation.label_propagation import entity_graph
from consolidation.sources import SHARED, LinkingFact, NamedEntity


def fact(source: str, target: str, user: str = SHARED, *, literal: bool = False) -> LinkingFact:
    return LinkingFact(source, target, literal, user, 0.5, ("knows", "semantic", "0", "e"))


def ends(facts: list[LinkingFact], owners: dict[str, str]) -> list[tuple[str, str]]:
    return [(link.source_id, link.target_id) for link in fact_links(facts, owners)]


@pytest.mark.parametrize(
    ("users", "owner"),
    [
        ([SHARED], SHARED),
        (["ann"], "ann"),
        (["ann", "bob"], SHARED),
        (["ann", SHARED], SHARED),
    ],
)
def test_the_owner_is_the_only_user_whose_facts_name_it(users: list[str], owner: str) -> None:
    assert owners_of([NamedEntity("a", users)]) == {"a": owner}


def test_what_no_fact_names_has_no_home() -> None:
    assert owners_of([NamedEntity("a", []), NamedEntity("b", [], ["c"])]) == {}


def test_entities_that_are_the_same_have_one_home() -> None:
    both = [NamedEntity("a", ["ann"], ["b"]), NamedEntity("b", [])]
    assert owners_of(both) == {"a": "ann", "b": "ann"}
    several = [NamedEntity("a", ["ann"], ["b"]), NamedEntity("b", ["bob"])]
    assert owners_of(several) == {"a": SHARED, "b": SHARED}


def test_a_fact_joins_entities_of_its_own_home() -> None:
    owners = {"a": "ann", "b": "ann", "x": SHARED}
    assert ends([fact("a", "b", "ann")], owners) == [("a", "b")]


def test_a_fact_that_leads_elsewhere_tells_of_the_owned_end_alone() -> None:
    owners = {"a": "ann", "x": SHARED}
    found = ends([fact("a", "x", "ann"), fact("x", "a", "ann")], owners)
    assert found == [("a", "a"), ("a", "a")]


def test_a_users_fact_about_what_everybody_knows_is_nobodys() -> None:
    assert ends([fact("x", "y", "ann")], {"x": SHARED, "y": SHARED}) == []


def test_a_literal_joins_nothing() -> None:
    owners = {"a": SHARED, "gold": SHARED}
    assert ends([fact("a", "gold", literal=True)], owners) == [("a", "a")]


def test_facts_of_one_pair_are_links_of_their_own() -> None:
    other = fact("a", "b")._replace(key=("likes", "semantic", "0", "e"))
    facts = [fact("a", "b"), other, fact("a", "b")]
    owners = dict.fromkeys("ab", SHARED)
    graph = entity_graph([list(fact_links(facts, owners))])
    assert len(graph.link_ids) == 2


def test_those_that_are_the_same_are_linked_as_such() -> None:
    (link,) = same_links(NamedEntity("a", [], ["b"]))
    assert (link.source_id, link.target_id, link.same) == ("a", "b", True)
