"""Label propagation: it ends, it is repeatable, it finds what hangs together."""

from __future__ import annotations

import random
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise, product

import pytest

from consolidation import label_propagation
from consolidation.label_propagation import (
    DEFAULT_CHUNK_SIZE,
    MAX_SWEEPS,
    EntityGraph,
    EntityLink,
    chunk_size,
    entity_graph,
    link_id,
    propagate,
)
from tests.fact_factories import clique, link

ROWS_OF_A_HUB = 10_000


def numbered(count: int, letter: str = "n") -> list[str]:
    return [f"{letter}{number:05}" for number in range(count)]


def ring_of_cliques(count: int, size: int = 6) -> list[EntityLink]:
    """Cliques in a ring, each joined to the next by one link."""
    rows = [[f"c{ring:05}-{n}" for n in range(size)] for ring in range(count)]
    bridges = [link(rows[n][0], rows[(n + 1) % count][1]) for n in range(count)]
    return bridges + [one for row in rows for one in clique(row)]


def graph(links: Iterable[EntityLink], *alone: str) -> EntityGraph:
    return entity_graph([list(links)], alone)


def groups(made: EntityGraph, before: dict[str, str] | None = None, seed: str = "") -> list[str]:
    """The entities of each group, joined: `["a b", "c"]`."""
    found: dict[int, list[str]] = {}
    labels = propagate(made, seed=seed, before=before).labels
    for entity_id, label in zip(made.entity_ids, labels.tolist(), strict=True):
        found.setdefault(label, []).append(entity_id)
    return sorted(" ".join(members) for members in found.values())


def test_two_cliques_with_one_link_between_them_are_two_groups() -> None:
    links = [*clique("abcd"), *clique("wxyz"), link("d", "w")]
    assert groups(graph(links)) == ["a b c d", "w x y z"]


def test_two_nodes_that_would_swap_labels_for_ever_are_one_group() -> None:
    made = propagate(graph([link("a", "b"), link("b", "a"), link("a", "b", number=1)]))
    assert (made.labels.tolist(), made.settled) == ([0, 0], True)


def test_an_empty_graph_has_no_group() -> None:
    made = propagate(entity_graph([]))
    assert (made.labels.tolist(), made.sweeps, made.visits, made.settled) == ([], 0, 0, True)


def test_an_entity_alone_is_a_group_of_its_own() -> None:
    assert groups(graph([], "a")) == ["a"]


def test_a_link_to_itself_joins_nothing() -> None:
    links = [link("a", "a", 9), link("b", "b", 9), link("b", "c", 0.1)]
    assert groups(graph(links)) == ["a", "b c"]


def test_disconnected_entities_never_share_a_group() -> None:
    assert groups(graph([link("a", "b"), link("c", "d")], "e")) == ["a b", "c d", "e"]


def test_the_spokes_of_a_hub_end_as_one_group() -> None:
    made = propagate(graph(link("hub", spoke) for spoke in numbered(ROWS_OF_A_HUB)))
    assert (len(set(made.labels.tolist())), made.settled) == (1, True)


def test_a_hub_is_looked_at_a_few_times_only() -> None:
    made = propagate(graph(link("hub", spoke) for spoke in numbered(ROWS_OF_A_HUB)))
    assert made.visits <= 8 * ROWS_OF_A_HUB


def test_a_complete_bipartite_graph_ends_as_one_group() -> None:
    sides = product(numbered(30, "l"), numbered(40, "r"))
    made = propagate(graph(link(one, other) for one, other in sides))
    assert (len(set(made.labels.tolist())), made.settled) == (1, True)


def test_a_long_path_ends_settled() -> None:
    made = propagate(graph(link(one, other) for one, other in pairwise(numbered(5_000))))
    assert (made.sweeps < MAX_SWEEPS, made.settled) == (True, True)


def test_sweeps_are_bounded_and_say_that_they_did_not_settle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(label_propagation, "MAX_SWEEPS", 1)
    made = propagate(graph(link(one, other) for one, other in pairwise(numbered(300))))
    assert (made.sweeps, made.settled) == (1, False)


def test_parallel_links_weigh_together() -> None:
    sides = [*clique("abc"), *clique("xyz")]
    torn = [link("m", "a", 0.4), link("m", "x", 0.3), link("m", "x", 0.2, number=1)]
    assert groups(graph([*sides, *torn])) == ["a b c", "m x y z"]


def test_a_link_that_comes_twice_weighs_once() -> None:
    sides = [*clique("abc"), *clique("xyz")]
    torn = [link("m", "a", 0.4), link("m", "x", 0.3), link("m", "x", 0.3)]
    assert groups(graph([*sides, *torn])) == ["a b c m", "x y z"]


def test_of_a_link_that_comes_with_two_weights_the_larger_counts() -> None:
    sides = [*clique("abc"), *clique("xyz")]
    torn = [link("m", "a", 0.4), link("m", "x", 0.5), link("m", "x", 0.3)]
    assert groups(graph([*sides, *torn])) == ["a b c", "m x y z"]


def test_a_link_without_weight_joins_nothing() -> None:
    assert groups(graph([link("a", "b", 0.0)])) == ["a", "b"]


@pytest.mark.parametrize("weight", [-0.1, 1_001, float("nan"), float("inf")])
def test_a_weight_out_of_range_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight of a link: 0 to 1,000"):
        graph([link("a", "b", weight)])


@pytest.mark.parametrize("wrong", ["abc0", "", "0" * 34])
def test_an_id_of_another_length_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        graph([EntityLink("a", "b", 1.0, wrong)])


def test_entities_that_are_the_same_are_never_apart() -> None:
    links = [*clique("abc"), *clique("xyz")]
    same = [link("a", "n", same=True), link("n", "m", same=True)]
    assert groups(graph([*links, *same])) == ["a b c m n", "x y z"]


def test_two_groups_that_the_same_entity_holds_are_still_two() -> None:
    links = [*clique("abcd"), *clique("wxyz")]
    assert groups(graph([*links, link("d", "w", same=True)])) != ["a b c d", "w x y z"]
    assert any("d w" in group for group in groups(graph([*links, link("d", "w", same=True)])))


def test_the_links_of_all_that_is_the_same_weigh_together() -> None:
    sides = [*clique("abc"), *clique("xyz"), link("m", "n", same=True)]
    torn = [link("m", "a", 0.4), link("m", "x", 0.3), link("n", "y", 0.2)]
    assert groups(graph([*sides, *torn])) == ["a b c", "m n x y z"]


def test_groups_stay_as_they_were_while_nothing_changes() -> None:
    made = graph(link(one, other) for one, other in pairwise(numbered(300)))
    first = groups(made, seed="first")
    before = {name: group for group in first for name in group.split()}
    assert groups(made, before, seed="other") == first


def test_another_seed_may_find_other_groups() -> None:
    made = graph(link(one, other) for one, other in pairwise(numbered(300)))
    assert groups(made, seed="first") != groups(made, seed="other")


def test_a_newcomer_joins_the_group_it_is_linked_to() -> None:
    links = [*clique("abc"), *clique("xyz")]
    before = dict.fromkeys("abc", "one") | dict.fromkeys("xyz", "two")
    assert groups(graph([*links, link("n", "x")]), before) == ["a b c", "n x y z"]


def test_a_group_whose_bridge_has_gone_is_two() -> None:
    before = dict.fromkeys("abcxyz", "one")
    made = graph([*clique("abc"), *clique("xyz")])
    assert groups(made, before) == ["a b c", "x y z"]


def test_an_entity_that_lost_its_links_is_alone() -> None:
    before = dict.fromkeys("abcd", "one")
    assert groups(graph(clique("abc"), "d"), before) == ["a b c", "d"]


@pytest.mark.parametrize("cliques", [100, 400, 1_600])
def test_looking_grows_with_the_links_and_no_faster(cliques: int) -> None:
    links = ring_of_cliques(cliques)
    made = propagate(graph(links))
    assert made.visits <= 10 * len(links)


def test_an_unchanged_graph_is_looked_at_once_to_label_and_once_to_split() -> None:
    made = graph(ring_of_cliques(50))
    before = {
        name: str(label)
        for name, label in zip(made.entity_ids, propagate(made).labels.tolist(), strict=True)
    }
    again = propagate(made, before=before)
    assert (again.sweeps, again.visits) == (1, 2 * len(made.neighbours))


class Chunk(list[EntityLink]):
    """A list that can be watched."""


def test_no_group_swallows_the_rest_where_many_labels_weigh_the_same() -> None:
    rng = random.Random(1)
    names = [name for row in range(20) for name in numbered(20, f"g{row:02}-")]
    within = [(n, n // 20 * 20 + rng.randrange(20)) for n in range(400) for _ in range(3)]
    across = [(rng.randrange(400), rng.randrange(400)) for _ in range(800)]
    made = graph(link(names[one], names[other]) for one, other in within + across)
    sizes = Counter(propagate(made).labels.tolist())
    assert max(sizes.values()) <= 60


def test_chunks_are_let_go_while_reading() -> None:
    watched: list[weakref.ref[Chunk]] = []
    alive: list[int] = []

    def chunks() -> Iterator[Chunk]:
        for number in range(20):
            chunk = Chunk([link(f"a{number}", f"b{number}")])
            watched.append(weakref.ref(chunk))
            yield chunk
            del chunk
            alive.append(sum(ref() is not None for ref in watched))

    entity_graph(chunks())
    assert max(alive) == 1


@pytest.mark.parametrize(
    ("asked", "used"), [(0, DEFAULT_CHUNK_SIZE), (-1, DEFAULT_CHUNK_SIZE), (1, 1), (500, 500)]
)
def test_no_number_of_edges_becomes_the_default(asked: int, used: int) -> None:
    assert chunk_size(asked) == used


def test_edges_are_read_in_chunks_of_ten_thousand_by_default() -> None:
    assert DEFAULT_CHUNK_SIZE == 10_000


def test_the_id_of_a_link_is_the_same_in_every_release() -> None:
    assert link_id("T", "a", "b", "works_at", "1") == "4453389a4010c64f29fd465af8e2b904"
