"""Communities: who may be in one, what is worth a node, who is central, which id stays."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import pytest
from blake3 import blake3

from consolidation.communities import (
    MIN_ENTITIES,
    Changes,
    Community,
    Member,
    communities,
    community_changes,
    community_id,
    fact_links,
    fingerprint,
    owners_of,
    same_links,
    with_ids,
)
from consolidation.label_propagation import EntityLink, entity_graph, propagate
from consolidation.sources import SHARED, LinkingFact, NamedEntity
from tests.fact_factories import clique, link


def found(links: Iterable[EntityLink]) -> list[Community]:
    graph = entity_graph([list(links)])
    return communities(graph, propagate(graph))


def named(one: Community) -> str:
    return "".join(member.entity_id for member in one.members)


def community(names: str, said: str = "") -> Community:
    """A community of one-letter entities, the first the most central."""
    members = tuple(Member(name, name, float(len(names) - n)) for n, name in enumerate(names))
    return Community(members, fingerprint(names, said))


def test_the_largest_community_comes_first() -> None:
    made = found([*clique("abc"), *clique("vwxyz")])
    assert [sorted(named(one)) for one in made] == [list("vwxyz"), list("abc")]


def test_two_entities_are_told_by_their_fact_and_are_no_community() -> None:
    assert (MIN_ENTITIES, found([link("a", "b")])) == (3, [])


def test_names_of_the_same_entity_count_as_one() -> None:
    assert found([link("a", "b"), link("b", "c", same=True)]) == []


def test_the_most_central_member_comes_first_with_what_is_the_same() -> None:
    links = [link("m", name, 0.5) for name in "xyz"] + [link("m", "p", same=True)]
    (made,) = found(links)
    assert made.members == (
        Member("m", "m", 1.5),
        Member("p", "m", 1.5),
        Member("x", "x", 0.5),
        Member("y", "y", 0.5),
        Member("z", "z", 0.5),
    )


def test_what_leads_out_of_a_community_makes_nobody_central() -> None:
    links = [*clique("abcd"), *clique("wxyz"), link("d", "w", 0.9)]
    assert {member.centrality for one in found(links) for member in one.members} == {3.0}


def test_what_leads_out_of_a_community_is_not_in_its_fingerprint() -> None:
    links = [*clique("abcd"), *clique("wxyz")]
    with_bridge = [*links, link("d", "w", 0.9)]
    assert [one.fingerprint for one in found(links)] == [
        one.fingerprint for one in found(with_bridge)
    ]


def test_another_fact_between_two_members_changes_the_fingerprint() -> None:
    (before,), (after,) = found(clique("abc")), found([*clique("abc"), link("a", "b", number=1)])
    assert (named(before), before.fingerprint != after.fingerprint) == (named(after), True)


def test_another_literal_of_a_member_changes_the_fingerprint_alone() -> None:
    (before,), (after,) = found(clique("abc")), found([*clique("abc"), link("a", "a")])
    assert before.members == after.members
    assert before.fingerprint != after.fingerprint


def test_a_fact_that_became_surer_does_not_change_the_fingerprint() -> None:
    sure, unsure = clique("abc"), [link(*pair, 0.5) for pair in combinations("abc", 2)]
    assert found(sure)[0].fingerprint == found(unsure)[0].fingerprint


def test_a_fingerprint_is_blake3_over_sorted_members_and_links() -> None:
    assert fingerprint(["b", "a"], ["2", "1"]) == blake3(b"a\nb\x1f1\n2").hexdigest()


def test_an_id_is_the_same_in_every_release() -> None:
    assert community_id("acme", "a" * 32) == "129e8e4aea6bfffb7d9389097a8e6dff"


def test_ids_differ_by_tenant_member_attempt_and_user() -> None:
    made = {
        community_id("acme", "a"),
        community_id("globex", "a"),
        community_id("acme", "b"),
        community_id("acme", "a", 1),
        community_id("acme", "a", user_id="-"),
        community_id("acme", "a", user_id=""),
    }
    assert len(made) == 6


def test_a_new_community_is_named_after_its_most_central_member() -> None:
    assert with_ids([community("bac")], {}, tenant="t") == {
        community_id("t", "b"): community("bac")
    }


def test_another_centre_does_not_change_the_id() -> None:
    assert with_ids([community("cabd")], {"one": "abc"}, tenant="t") == {"one": community("cabd")}


def test_the_larger_part_of_a_split_keeps_the_id() -> None:
    parts = [community("abc"), community("defg")]
    assert with_ids(parts, {"one": "abcdefg"}, tenant="t") == {
        "one": community("defg"),
        community_id("t", "a"): community("abc"),
    }


def test_of_two_halves_the_one_with_the_smaller_members_keeps_the_id() -> None:
    halves = [community("def"), community("abc")]
    assert with_ids(halves, {"one": "abcdefg"}, tenant="t")["one"] == community("abc")


def test_a_merger_takes_the_id_of_the_larger_part() -> None:
    merged = community("abcdefg")
    assert with_ids([merged], {"one": "abc", "two": "defg"}, tenant="t") == {"two": merged}


def test_an_id_does_not_follow_a_member_that_moved_away() -> None:
    moved = community("cxyz")
    assert with_ids([moved], {"one": "abc"}, tenant="t") == {community_id("t", "c"): moved}


def test_a_name_that_somebody_has_is_not_given_again() -> None:
    taken = community_id("t", "c")
    assert with_ids([community("cxyz")], {taken: "abc"}, tenant="t") == {
        community_id("t", "c", 1): community("cxyz")
    }


def test_changes_tell_new_changed_and_gone() -> None:
    before = {"a": "1", "b": community("bcd").fingerprint, "c": "3"}
    after = {"d": community("xyz"), "b": community("bcd"), "c": community("cde")}
    assert community_changes(before, after) == Changes(("d",), ("c",), ("a",))


def test_nothing_changed_when_the_graph_did_not() -> None:
    links = [*clique("abc"), *clique("wxyz")]
    first = with_ids(found(links), {}, tenant="t")
    recorded = {
        own_id: [member.entity_id for member in one.members] for own_id, one in first.items()
    }
    again = with_ids(found(reversed(links)), recorded, tenant="t")
    before = {own_id: one.fingerprint for own_id, one in first.items()}
    assert community_changes(before, again) == Changes((), (), ())


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
