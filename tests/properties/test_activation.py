"""Spreading activation keeps its invariants whatever the graph (S2, SA-INV-01 … 09)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.retrieval.facts import with_decay
from pipelines.columns.graph_scores import (
    Activation,
    ActivationConfig,
    Link,
    Ways,
    activation,
    path_scores,
    personalised_pagerank,
    recency_weight,
)

IDS = st.sampled_from("abcdefghij")
SHARES = st.floats(0, 1)
SEEDS = st.dictionaries(IDS, SHARES, max_size=6)
LINKS = st.lists(st.builds(Link, IDS, IDS, SHARES, st.floats(0, 1_000)), max_size=30)
CONFIGS = st.builds(
    ActivationConfig,
    decay_lambda=st.floats(0.01, 1),
    max_hops=st.integers(1, 4),
    activation_threshold=st.floats(0, 0.4),
    inhibition_threshold=st.floats(0.5, 1),
    max_activated_nodes=st.integers(1, 8),
    temporal_decay_rate=st.floats(0, 0.1),
)


@given(SEEDS, LINKS, CONFIGS)
def test_no_activation_exceeds_1_and_no_map_its_bound(
    seeds: dict[str, float], links: list[Link], config: ActivationConfig
) -> None:
    spreading = Activation(seeds, config)
    while spreading.active():
        assert len(spreading.scores) <= config.max_activated_nodes  # SA-INV-04
        before = dict(spreading.scores)
        spreading.spread(links)
        assert all(0 <= score <= 1 for score in spreading.scores.values())  # SA-INV-06
        for node, score in spreading.scores.items():
            if before.get(node, 0.0) >= config.inhibition_threshold:
                assert score == before[node]  # SA-INV-03
    assert len(spreading.scores) <= config.max_activated_nodes


@given(SEEDS, LINKS, CONFIGS)
def test_what_is_activated_is_above_the_threshold_and_sorted(
    seeds: dict[str, float], links: list[Link], config: ActivationConfig
) -> None:
    found = activation(seeds, links, config)
    scores = list(found.values())
    assert all(score >= config.activation_threshold for score in scores)
    assert scores == sorted(scores, reverse=True)


@given(SEEDS, CONFIGS)
def test_seeds_below_the_threshold_are_skipped(
    seeds: dict[str, float], config: ActivationConfig
) -> None:
    """SA-INV-01."""
    kept = {own_id for own_id, score in seeds.items() if score >= config.activation_threshold}
    found = activation(seeds, [], config)
    assert set(found) <= kept
    assert len(found) == min(len(kept), config.max_activated_nodes)


@given(SEEDS, LINKS, CONFIGS, st.randoms(use_true_random=False))
def test_the_order_of_edges_does_not_matter(
    seeds: dict[str, float], links: list[Link], config: ActivationConfig, random: Any
) -> None:
    shuffled = list(links)
    random.shuffle(shuffled)
    assert activation(seeds, shuffled, config) == activation(seeds, links, config)


@given(SHARES, SHARES, st.floats(0, 1_000), st.floats(0.01, 1), st.floats(0, 0.1))
def test_a_spread_decays_with_the_hop_the_confidence_and_age(
    score: float, confidence: float, age: float, decay: float, rate: float
) -> None:
    """SA-INV-02 and SA-INV-05."""
    config = ActivationConfig(decay, 1, 0.0, 1.0, 50, rate)
    found = Activation({"a": score}, config)
    found.spread([Link("a", "b", confidence, age)])
    expected = score * decay * confidence * recency_weight(age, rate)
    if score < 1.0 and expected > 0:
        assert found.scores["b"] == pytest.approx(expected)


@given(SHARES, st.floats(0, 1_000), st.floats(0.001, 0.1))
def test_recency_is_that_of_facts(base: float, age: float, rate: float) -> None:
    """SA-INV-05: one formula for both."""
    expected = min(2 * base, base + base * recency_weight(age, rate))
    assert with_decay(base, age, rate) == pytest.approx(expected)


def test_several_paths_add_up_to_at_most_1() -> None:
    """SA-INV-06, and SA-INV-03 within one hop: what is inhibited takes no more."""
    config = ActivationConfig(decay_lambda=1.0, max_hops=1, inhibition_threshold=0.95)
    links = [Link(seed, "x", 0.4) for seed in "abcd"]
    found = Activation(dict.fromkeys("abcd", 1.0), config)
    found.spread(links[:2])
    assert found.scores["x"] == pytest.approx(0.8)
    found = Activation(dict.fromkeys("abcd", 1.0), config)
    found.spread(links)
    assert found.scores["x"] == 1.0


def test_activation_ends_after_its_hops() -> None:
    links = [Link(a, b) for a, b in ("ab", "bc", "cd", "de")]
    config = ActivationConfig(max_hops=2, activation_threshold=0.01)
    assert set(activation({"a": 0.7}, links, config)) == {"a", "b", "c"}


# Personalised PageRank


def pagerank(
    seeds: Mapping[str, float], edges: Sequence[tuple[str, str, float]]
) -> dict[str, float]:
    """Of an undirected graph, by node; of what it never reaches there is none."""
    nodes = sorted({*seeds, *(end for edge in edges for end in edge[:2])})
    both = [*edges, *((b, a, weight) for a, b, weight in edges)]
    here, there, _ = zip(*both, strict=True) if both else ((),) * 3
    ways = Ways(
        numpy.array([*map(nodes.index, here)], dtype=int),
        numpy.array([*map(nodes.index, there)], dtype=int),
        numpy.array([weight for _, _, weight in both], dtype=float)[:, None],
    )
    scores = personalised_pagerank(numpy.array([seeds.get(one, 0.0) for one in nodes]), ways)
    return {one: score for one, score in zip(nodes, scores.tolist(), strict=True) if score > 0}


# every path, against a search of them all


@given(SEEDS.filter(bool), LINKS, st.integers(0, 4))
def test_the_best_path_is_found(seeds: dict[str, float], links: list[Link], depth: int) -> None:
    expected = dict(seeds)

    def follow(here: str, score: float, left: int) -> None:
        expected[here] = max(score, expected.get(here, 0.0))
        for link in links:
            if left and link.a == here and score * link.confidence > 0:
                follow(link.b, score * link.confidence, left - 1)

    links = links[:8]
    for seed, score in seeds.items():
        follow(seed, score, depth)
    nodes = sorted({*seeds, *(end for link in links for end in (link.a, link.b))})
    ways = Ways(
        numpy.array([nodes.index(link.a) for link in links], dtype=int),
        numpy.array([nodes.index(link.b) for link in links], dtype=int),
        numpy.array([link.confidence for link in links], dtype=float)[:, None],
    )
    start = numpy.array([[seeds.get(one, 0.0)] for one in nodes])
    found = path_scores(start, ways, depth)[:, 0].tolist()
    assert found == pytest.approx([expected.get(one, 0.0) for one in nodes])


@given(SEEDS, LINKS)
def test_pagerank_is_a_distribution_that_begins_at_the_seeds(
    seeds: dict[str, float], links: list[Link]
) -> None:
    edges = [(link.a, link.b, link.confidence) for link in links]
    found = pagerank(seeds, edges)
    if not any(seeds.values()):
        assert found == {}
        return
    assert sum(found.values()) == pytest.approx(1.0)
    assert all(score >= 0 for score in found.values())
    reachable = {own_id for own_id, score in seeds.items() if score > 0}
    for _ in links:
        reachable |= {
            end for edge in edges if edge[2] > 0 and reachable & {*edge[:2]} for end in edge[:2]
        }
    assert set(found) <= reachable


def test_pagerank_prefers_what_many_paths_lead_to() -> None:
    found = pagerank({"s": 1.0}, [(a, b, 1.0) for a, b in ("sa", "sb", "ax", "bx", "ay")])
    assert found["x"] > found["y"]
    found = pagerank({"s": 1.0}, [("s", "a", 3.0), ("s", "b", 1.0), ("s", "s", 5.0)])
    assert found["a"] == pytest.approx(3 * found["b"])
