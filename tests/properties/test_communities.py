"""Whatever the graph: detection ends, misses nobody, and depends on the set of links alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from consolidation.communities import (
    Community,
    Member,
    communities,
    community_changes,
    community_id,
    fingerprint,
    with_ids,
)
from consolidation.label_propagation import (
    MAX_SWEEPS,
    EntityGraph,
    EntityLink,
    Labelling,
    entity_graph,
    propagate,
)
from tests.fact_factories import link

NAMES = [f"n{number:02}" for number in range(24)]
names = st.sampled_from(NAMES)


def _cycle(count: int) -> list[tuple[str, str]]:
    return [*pairwise(NAMES[:count]), (NAMES[count - 1], NAMES[0])]


sizes = st.integers(2, len(NAMES))
shapes = st.one_of(
    sizes.map(_cycle),
    sizes.map(lambda count: [(NAMES[0], name) for name in NAMES[:count]]),
    sizes.map(lambda count: list(pairwise(NAMES[:count]))),
    sizes.map(lambda count: list(combinations(NAMES[: count // 2 + 1], 2))),
    st.tuples(st.integers(1, 12), st.integers(1, 12)).map(
        lambda sides: list(product(NAMES[: sides[0]], NAMES[12 : 12 + sides[1]]))
    ),
    sizes.map(lambda count: [(name, name) for name in NAMES[:count]]),
    st.lists(st.tuples(names, names), max_size=60),
)
"""Cycles, two-cycles too, hubs, paths, cliques, bipartite graphs, self loops, any multigraph."""

weights = st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0, 1.0, 1.0])


@st.composite
def linked(draw: st.DrawFn) -> list[EntityLink]:
    """Links of up to three shapes over the same entities, some parallel, some sameness."""
    pairs = [pair for shape in draw(st.lists(shapes, max_size=3)) for pair in shape]
    made = [link(one, other, draw(weights), number) for number, (one, other) in enumerate(pairs)]
    same = draw(st.lists(st.tuples(names, names), max_size=2))
    return made + [link(one, other, 0, -1, same=True) for one, other in same]


seeds = st.sampled_from(["", "one", "two"])
memberships = st.dictionaries(names, st.sampled_from(["x", "y", "z"]))


def _groups(graph: EntityGraph, labelling: Labelling) -> set[frozenset[str]]:
    found: dict[int, set[str]] = {}
    for entity_id, label in zip(graph.entity_ids, labelling.labels.tolist(), strict=True):
        found.setdefault(label, set()).add(entity_id)
    return {frozenset(group) for group in found.values()}


@given(linked(), seeds, memberships)
def test_detection_ends_within_its_bounds(
    links: list[EntityLink], seed: str, before: dict[str, str]
) -> None:
    graph = entity_graph([links])
    made = propagate(graph, seed=seed, before=before)
    both_ways = len(graph.neighbours)
    assert made.sweeps <= MAX_SWEEPS
    assert made.visits <= both_ways * (2 * MAX_SWEEPS + 1)


@given(linked(), st.sets(names), seeds, memberships)
def test_every_entity_is_in_exactly_one_group(
    links: list[EntityLink], alone: set[str], seed: str, before: dict[str, str]
) -> None:
    graph = entity_graph([links], alone)
    groups = _groups(graph, propagate(graph, seed=seed, before=before))
    everyone = alone.union(*({one.source_id, one.target_id} for one in links))
    assert sorted(name for group in groups for name in group) == sorted(everyone)


@given(linked(), seeds, memberships)
def test_groups_hang_together_and_hold_what_is_the_same(
    links: list[EntityLink], seed: str, before: dict[str, str]
) -> None:
    graph = entity_graph([links])
    joining = [one for one in links if one.same or one.weight > 0]
    for group in _groups(graph, propagate(graph, seed=seed, before=before)):
        reached = {min(group)}
        for _ in group:
            for one in joining:
                ends = {one.source_id, one.target_id}
                if ends & reached and ends <= group:
                    reached |= ends
        assert reached == group
        assert all(one.target_id in group for one in links if one.same and one.source_id in group)


@given(linked(), seeds, memberships)
def test_settled_means_that_nobody_is_drawn_more_to_another_group(
    links: list[EntityLink], seed: str, before: dict[str, str]
) -> None:
    graph = entity_graph([links])
    made = propagate(graph, seed=seed, before=before)
    labels = made.labels.tolist()
    for place in range(len(labels)):
        around = slice(graph.offsets[place], graph.offsets[place + 1])
        drawn = {labels[place]: 0}
        for neighbour, weight in zip(
            graph.neighbours[around].tolist(), graph.weights[around].tolist(), strict=True
        ):
            drawn[labels[neighbour]] = drawn.get(labels[neighbour], 0) + weight
        assert not made.settled or drawn[labels[place]] == max(drawn.values())


@given(linked(), seeds, memberships, st.data())
def test_neither_order_nor_chunks_nor_repetition_matter(
    links: list[EntityLink], seed: str, before: dict[str, str], data: st.DataObject
) -> None:
    repeated = data.draw(st.lists(st.sampled_from(links), max_size=5)) if links else []
    shuffled = data.draw(st.permutations(links + repeated))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(shuffled)))))
    chunks = [shuffled[start:end] for start, end in pairwise([0, *cuts, len(shuffled)])]
    one, other = entity_graph([links]), entity_graph(chunks)
    first = propagate(one, seed=seed, before=before)
    second = propagate(other, seed=seed, before=before)
    assert first.labels.tolist() == second.labels.tolist()
    assert communities(one, first) == communities(other, second)


@given(linked(), seeds, seeds)
def test_groups_that_settled_stay_while_the_graph_does(
    links: list[EntityLink], seed: str, later: str
) -> None:
    graph = entity_graph([links])
    made = propagate(graph, seed=seed)
    before = dict(zip(graph.entity_ids, map(str, made.labels.tolist()), strict=True))
    if made.settled:
        assert propagate(graph, seed=later, before=before).labels.tolist() == made.labels.tolist()


@given(linked(), st.integers(1, 4))
def test_communities_are_the_groups_of_enough_things(links: list[EntityLink], least: int) -> None:
    graph = entity_graph([links])
    labelling = propagate(graph)
    canonical = dict(
        zip(
            graph.entity_ids,
            (graph.entity_ids[place] for place in graph.canonical.tolist()),
            strict=True,
        )
    )
    found = communities(graph, labelling, min_entities=least)
    assert {frozenset(member.entity_id for member in one.members) for one in found} == {
        group
        for group in _groups(graph, labelling)
        if len({canonical[name] for name in group}) >= least
    }


@given(linked())
def test_a_fingerprint_is_that_of_the_members_and_of_the_links_among_them(
    links: list[EntityLink],
) -> None:
    graph = entity_graph([links])
    for one in communities(graph, propagate(graph), min_entities=1):
        inside = {member.entity_id for member in one.members}
        among = {it.link_id for it in links if {it.source_id, it.target_id} <= inside}
        assert one.fingerprint == fingerprint(inside, among)


ids = st.lists(st.text("abcdef0123456789", min_size=1, max_size=3), max_size=6)


@given(ids, ids, ids, ids)
def test_fingerprints_differ_when_and_only_when_members_or_links_do(
    members: list[str], links: list[str], other_members: list[str], other_links: list[str]
) -> None:
    same = (set(members), set(links)) == (set(other_members), set(other_links))
    equal = fingerprint(members, links) == fingerprint(other_members, other_links)
    assert equal == same


@given(ids, ids, st.data())
def test_fingerprints_do_not_depend_on_order(
    members: list[str], links: list[str], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(members)), data.draw(st.permutations(links))
    assert fingerprint(*shuffled) == fingerprint(members, links)


def community(entity_ids: Sequence[str]) -> Community:
    members = tuple(Member(one, one, 1.0) for one in sorted(entity_ids))
    return Community(members, fingerprint(entity_ids, []))


@st.composite
def partitions(draw: st.DrawFn) -> list[set[str]]:
    """Disjoint groups of three members and more."""
    shuffled = draw(st.permutations(NAMES))
    cuts = draw(st.lists(st.integers(3, 8), max_size=4))
    ends = [sum(cuts[:n]) for n in range(len(cuts) + 1)]
    groups = [set(shuffled[start:end]) for start, end in pairwise(ends)]
    return [group for group in groups if len(group) >= 3]


@given(partitions(), st.data())
def test_a_community_keeps_its_id_while_most_of_its_members_stay(
    groups: list[set[str]], data: st.DataObject
) -> None:
    recorded = {f"id-{number}": group for number, group in enumerate(groups)}
    for number, (own_id, group) in enumerate(recorded.items()):
        left = data.draw(st.sets(st.sampled_from(sorted(group)), max_size=(len(group) - 1) // 2))
        joined = {f"new-{number}-{n}" for n in range(data.draw(st.integers(0, 9)))}
        changed = {**recorded, own_id: (group - left) | joined}
        named = with_ids(map(community, map(sorted, changed.values())), recorded, tenant="t")
        assert named == {one: community(sorted(members)) for one, members in changed.items()}


@given(partitions(), partitions(), st.data())
def test_ids_are_different_and_depend_on_no_order(
    recorded_groups: list[set[str]], found_groups: list[set[str]], data: st.DataObject
) -> None:
    recorded = {f"id-{number}": group for number, group in enumerate(recorded_groups)}
    found = [community(sorted(group)) for group in found_groups]
    named = with_ids(found, recorded, tenant="t")
    again = with_ids(
        data.draw(st.permutations(found)),
        dict(data.draw(st.permutations(list(recorded.items())))),
        tenant="t",
    )
    assert sorted(named.values()) == sorted(found)
    assert again == named


@given(partitions(), partitions())
def test_an_id_is_kept_only_by_what_shares_more_than_half(
    recorded_groups: list[set[str]], found_groups: list[set[str]]
) -> None:
    recorded = {f"id-{number}": group for number, group in enumerate(recorded_groups)}
    named = with_ids([community(sorted(group)) for group in found_groups], recorded, tenant="t")
    for own_id in named.keys() & recorded.keys():
        members = {member.entity_id for member in named[own_id].members}
        shared = len(members & recorded[own_id])
        assert 2 * shared > min(len(members), len(recorded[own_id]))


@given(partitions())
def test_a_new_id_is_never_one_that_is_recorded(groups: list[set[str]]) -> None:
    found = [community(sorted(group)) for group in groups]
    recorded = {
        community_id("t", min(group), attempt): {"somebody else"}
        for group in groups
        for attempt in range(2)
    }
    assert with_ids(found, recorded, tenant="t").keys() & recorded.keys() == set()


@given(partitions(), partitions())
def test_each_community_is_new_changed_unchanged_or_gone(
    recorded_groups: list[set[str]], found_groups: list[set[str]]
) -> None:
    recorded = {f"id-{number}": group for number, group in enumerate(recorded_groups)}
    before = {one: community(sorted(group)).fingerprint for one, group in recorded.items()}
    after = with_ids([community(sorted(group)) for group in found_groups], recorded, tenant="t")
    changes = community_changes(before, after)
    ids = [id_ for kind in changes for id_ in kind]
    assert len(ids) == len(set(ids))
    unchanged = {one for one in before if one in after and after[one].fingerprint == before[one]}
    assert set(ids) == (before.keys() | after.keys()) - unchanged
