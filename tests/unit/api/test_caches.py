"""What is remembered of what events say: for whom, how much, how long."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import neo4j
import pytest

from api import caches
from api.caches import PassageCache
from api.retrieval.relevance import Passage, half, unit_vector
from pipelines.graph.reader import GraphReader
from pipelines.graph.rows import Content

MANY = 2**30


@pytest.fixture(scope="module")
def driver() -> Iterator[neo4j.Driver]:
    """Of a server that nobody asks."""
    with neo4j.GraphDatabase.driver("bolt://127.0.0.1:1") as driver:
        yield driver


@pytest.fixture
def graph(driver: neo4j.Driver) -> GraphReader:
    return GraphReader(driver, "neo4j")


def passage(event_id: str, text: str = "hello") -> Passage:
    return Passage(event_id, "ann", text, vector=half(unit_vector([1.0, 2.0])))


def test_a_passage_is_given_again_to_its_tenant_alone(graph: GraphReader) -> None:
    cache = PassageCache(MANY)
    one = passage("e1")
    cache.put(graph, "acme", [one])
    assert cache.get(graph, "acme", ["e1", "e2"]) == {"e1": one}
    assert cache.get(graph, "other", ["e1"]) == {}


def test_another_graph_says_for_itself(graph: GraphReader, driver: neo4j.Driver) -> None:
    cache = PassageCache(MANY)
    cache.put(graph, "acme", [passage("e1")])
    other = GraphReader(driver, "neo4j")
    assert cache.get(other, "acme", ["e1"]) == {}
    assert cache.get(graph, "acme", ["e1"]) == {}


def test_what_was_read_long_ago_is_read_again(
    graph: GraphReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = PassageCache(MANY)
    monkeypatch.setattr(caches, "REMEMBERED_S", 0.0)
    cache.put(graph, "acme", [passage("e1")])
    assert cache.get(graph, "acme", ["e1"]) == {}


def test_those_used_last_stay_and_the_others_go(graph: GraphReader) -> None:
    ids = [f"e{number}" for number in range(100)]
    one = PassageCache(MANY)
    one.put(graph, "acme", [passage("e0")])
    room = 20 * one.held_bytes
    cache = PassageCache(room)
    for own_id in ids:
        cache.put(graph, "acme", [passage(own_id)])
        cache.get(graph, "acme", ["e0"])
    assert set(cache.get(graph, "acme", ids)) == {"e0", *ids[-19:]}
    assert cache.held_bytes <= room


def test_what_is_read_again_takes_no_more_room(graph: GraphReader) -> None:
    cache = PassageCache(MANY)
    for text in ("a long text of many words", "hello"):
        cache.put(graph, "acme", [passage("e1", text)])
    once = PassageCache(MANY)
    once.put(graph, "acme", [passage("e1")])
    assert cache.held_bytes == once.held_bytes
    assert cache.get(graph, "acme", ["e1"])["e1"].text == "hello"


def test_without_room_nothing_is_remembered(graph: GraphReader) -> None:
    cache = PassageCache(0)
    cache.put(graph, "acme", [passage("e1")])
    assert cache.get(graph, "acme", ["e1"]) == {}


def test_whose_it_is_and_its_tool_count_as_its_words() -> None:
    call = Passage("e1", "booking_agent", "Cancelled the orders?", tool_name="cancel_order")
    assert call.stems == {"book": 1, "agent": 1, "cancel": 2, "order": 2, "the": 1}
    assert (call.length, call.asks) == (3.0, 1.0)
    own = Passage("e2", "cancel_order", "Done.", tool_name="cancel_order")
    assert own.stems == {"cancel": 1, "order": 1, "don": 1}


@pytest.mark.parametrize("words", [5, 40, 120])
def test_the_estimate_is_what_passages_take(graph: GraphReader, words: int) -> None:
    numbers = random.Random(words)
    vocabulary = [f"word{number}" for number in range(3_000)]
    contents = [
        Content(
            f"event-{number}",
            0,
            "ann",
            None,
            None,
            " ".join(numbers.choices(vocabulary, k=words)),
            [numbers.random() for _ in range(384)],
        )
        for number in range(500)
    ]
    cache = PassageCache(MANY)
    tracemalloc.start()
    try:
        cache.put(graph, "acme", passages := [Passage.of(one) for one in contents])
        assert all(one.stems for one in passages)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.6 * taken < cache.held_bytes < 1.6 * taken


def test_half_the_memory_costs_less_than_a_thousandth_of_a_cosine() -> None:
    numbers = random.Random(1)
    vectors = [unit_vector([numbers.gauss(0, 1) for _ in range(384)]) for _ in range(200)]
    asked = vectors[0]
    off = [abs(float(half(one) @ asked) - float(one @ asked)) for one in vectors]
    assert 0 < max(off) < 0.001


def test_a_vector_without_direction_stays_as_it_is() -> None:
    assert unit_vector([0.0, 0.0]).tolist() == [0.0, 0.0]
    assert unit_vector([3.0, 4.0]).tolist() == pytest.approx([0.6, 0.8])
