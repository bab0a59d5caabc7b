"""Spreading activation keeps its invariants whatever the graph (S2, SA-INV-01 … 09)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.retrieval.facts import with_decay
from api.retrieval.graph_scores import (
    EDGES_AT_ONCE,
    Activation,
    ActivationConfig,
    Link,
    WeightedEdge,
    activation,
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


def test_edges_are_asked_for_in_chunks() -> None:
    assert EDGES_AT_ONCE == 490  # SA-INV-09


# Personalised PageRank


@given(SEEDS, LINKS)
def test_pagerank_is_a_distribution_that_begins_at_the_seeds(
    seeds: dict[str, float], links: list[Link]
) -> None:
    edges = [WeightedEdge(link.a, link.b, link.confidence) for link in links]
    found = personalised_pagerank(seeds, edges)
    if not any(seeds.values()):
        assert found == {}
        return
    assert sum(found.values()) == pytest.approx(1.0)
    assert all(score >= 0 for score in found.values())
    reachable = {own_id for own_id, score in seeds.items() if score > 0}
    for _ in links:
        reachable |= {
            end
            for edge in edges
            if edge.weight > 0 and reachable & {edge.a, edge.b}
            for end in (edge.a, edge.b)
        }
    assert set(found) <= reachable


def test_pagerank_prefers_what_many_paths_lead_to() -> None:
    edges = [WeightedEdge(a, b, 1.0) for a, b in ("sa", "sb", "ax", "bx", "ay")]
    found = personalised_pagerank({"s": 1.0}, edges)
    assert found["x"] > found["y"]
    heavier = [WeightedEdge("s", "a", 3.0), WeightedEdge("s", "b", 1.0)]
    found = personalised_pagerank({"s": 1.0}, heavier)
    assert found["a"] == pytest.approx(3 * found["b"])
