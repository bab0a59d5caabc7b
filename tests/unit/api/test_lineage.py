"""Path scores, and the walk over a graph that is a dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy
import pytest

from api.retrieval.walk import Lineage, Origin, directed_ways, lineage_edge
from api.schemas import Bound, Direction
from pipelines.columns.graph_scores import path_scores
from pipelines.graph.reader import GraphEdge, GraphNode
from pipelines.graph.reads.events import EventReads
from projections.errors import QueryTimeout
from projections.schema import CAUSED_BY, FOLLOWS, INTENTS, EdgeRow


def edge(source: str, target: str, **properties: object) -> GraphEdge:
    return GraphEdge(CAUSED_BY.type, source, target, properties)


def best_path_scores(
    start: str, edges: list[GraphEdge], weight: float, max_depth: int, *, forward: bool = True
) -> dict[str, float]:
    ids = list(dict.fromkeys(end for one in edges for end in (one.source, one.target)))
    places = {node_id: place for place, node_id in enumerate(ids)}
    ways = directed_ways(edges, places, weight, forward=forward)
    seeds = numpy.array([[float(node_id == start)] for node_id in ids])
    scores = path_scores(seeds, ways, max_depth)[:, 0].tolist()
    return {node_id: score for node_id, score in zip(ids, scores, strict=True) if score > 0}


def test_score_is_the_product_along_the_path() -> None:
    edges = [edge("a", "b", confidence=0.5), edge("b", "c", confidence=0.4)]
    assert best_path_scores("a", edges, 0.8, 3) == pytest.approx(
        {"a": 1.0, "b": 0.4, "c": 0.4 * 0.8 * 0.4}
    )


def test_the_best_path_counts_even_when_it_is_longer() -> None:
    edges = [edge("a", "c", confidence=0.1), edge("a", "b"), edge("b", "c")]
    assert best_path_scores("a", edges, 1.0, 3)["c"] == 1.0


def test_a_path_has_no_more_edges_than_the_depth() -> None:
    edges = [edge("a", "c", confidence=0.1), edge("a", "b"), edge("b", "c")]
    assert best_path_scores("a", edges, 1.0, 1) == {"a": 1.0, "b": 1.0, "c": 0.1}


def test_against_the_arrow() -> None:
    assert best_path_scores("b", [edge("a", "b")], 1.0, 3, forward=False) == {"b": 1.0, "a": 1.0}


def test_a_cycle_ends() -> None:
    edges = [edge("a", "b"), edge("b", "a")]
    assert best_path_scores("a", edges, 1.0, 10) == {"a": 1.0, "b": 1.0}


def test_what_came_next_follows_the_order_of_the_session() -> None:
    rows = {intent: lineage_edge(intent) for intent in INTENTS}
    assert {intent for intent, row in rows.items() if row is FOLLOWS} == {"when", "how_does"}


class DictGraph:
    """A graph of one edge type, with the questions that a walk asks."""

    def __init__(self, edges: Iterable[tuple[str, str]], stops_after: int = 1_000) -> None:
        self.edges = list(edges)
        self.steps_left = stops_after
        self.round_trips = 0

    def _count(self) -> None:
        self.round_trips += 1
        self.steps_left -= 1
        if self.steps_left < 0:
            raise QueryTimeout(timeout_ms=1, reason="test")

    def events(self, event_ids: Sequence[str]) -> dict[str, GraphNode]:
        self._count()
        known = {name for pair in self.edges for name in pair}
        return {name: GraphNode("Event", name, {}) for name in event_ids if name in known}

    def neighbours(self, event_ids: Sequence[str], row: EdgeRow, **within: Any) -> list[GraphNode]:
        self._count()
        pairs = self.edges if within["forward"] else [(b, a) for a, b in self.edges]
        assert within["limit"] >= 0, "the database refuses a negative LIMIT"
        found = {b for a, b in pairs if a in event_ids and b not in set(within["seen"])}
        return [GraphNode("Event", name, {}) for name in sorted(found)[: within["limit"]]]

    def edges_between(
        self, event_ids: Sequence[str], rows: Sequence[EdgeRow] | None = None
    ) -> list[GraphEdge]:
        self._count()
        return [edge(a, b) for a, b in self.edges if a in event_ids and b in event_ids]


def above(*event_ids: str) -> Origin:
    """A session's summary, made from two episodes, and these from events."""
    names = ("summary:session", "summary:first", "summary:second")
    return Origin(
        nodes={name: GraphNode("Summary", name, {}) for name in reversed(names)},
        depths=dict(zip(names, (0, 1, 1), strict=True)),
        edges=[],
        event_ids=list(event_ids),
    )


def walked(graph: DictGraph, start: str, **bounds: object) -> Lineage:
    arguments = {
        "intent": "why",
        "direction": Direction.CAUSES,
        "max_depth": 10,
        "max_nodes": 100,
        **bounds,
    }
    walk = Lineage(node_id=start, **arguments)  # type: ignore[arg-type]  # a pass-through
    walk.walk(cast("EventReads", graph))
    return walk


CHAIN = [(f"n{i}", f"n{i + 1}") for i in range(9)]


def test_a_chain_is_walked_to_its_end() -> None:
    walk = walked(DictGraph(CHAIN), "n0")
    assert walk.depths == {f"n{i}": i for i in range(10)}
    assert walk.cut_by == set()


def test_depth_cuts_and_says_so() -> None:
    walk = walked(DictGraph(CHAIN), "n0", max_depth=3)
    assert list(walk.nodes) == ["n0", "n1", "n2", "n3"]
    assert walk.cut_by == {Bound.DEPTH}


def test_depth_that_just_suffices_cuts_nothing() -> None:
    assert walked(DictGraph(CHAIN), "n6", max_depth=3).cut_by == set()


def test_node_bound_cuts_and_says_so() -> None:
    fan = [("root", f"cause{i}") for i in range(20)]
    walk = walked(DictGraph(fan), "root", max_nodes=5)
    assert len(walk.nodes) == 5
    assert walk.cut_by == {Bound.NODES}


def test_node_bound_that_just_suffices_cuts_nothing() -> None:
    fan = [("root", f"cause{i}") for i in range(4)]
    assert walked(DictGraph(fan), "root", max_nodes=5).cut_by == set()


@pytest.mark.parametrize("event_ids", [(), ("n0",)])
def test_the_bound_holds_for_what_lies_above_the_events(event_ids: tuple[str, ...]) -> None:
    for bound in (1, 2):
        origin = above(*event_ids)
        walk = walked(DictGraph(CHAIN), "summary:session", origin=origin, max_nodes=bound)
        assert list(walk.nodes) == ["summary:session", "summary:first"][:bound]
        assert walk.cut_by == {Bound.NODES}
        assert set(walk.scores()) == set(walk.nodes)


def test_a_summary_of_which_all_events_are_forgotten_leads_nowhere() -> None:
    graph = DictGraph(CHAIN)
    walk = walked(graph, "summary:session", origin=above(), max_nodes=3)
    assert (len(walk.nodes), walk.cut_by, walk.levels) == (3, set(), 0)


def test_one_round_trip_a_level() -> None:
    graph = DictGraph(CHAIN)
    walked(graph, "n0", max_depth=4)
    # the event, four levels, whether there is more, the edges
    assert graph.round_trips == 7


def test_both_directions_are_ancestors_and_descendants_without_siblings() -> None:
    edges = [("me", "cause"), ("sibling", "cause"), ("effect", "me"), ("effect", "other cause")]
    walk = walked(DictGraph(edges), "me", direction=Direction.BOTH)
    assert set(walk.nodes) == {"me", "cause", "effect"}


def test_what_was_found_before_time_ran_out_stays() -> None:
    graph = DictGraph(CHAIN, stops_after=3)
    walk = Lineage(
        node_id="n0",
        intent="why",
        direction=Direction.CAUSES,
        max_depth=10,
        max_nodes=100,
    )
    with pytest.raises(QueryTimeout):
        walk.walk(cast("EventReads", graph))
    assert walk.levels == 2
    assert list(walk.nodes) == ["n0", "n1", "n2"]
    assert walk.scores() == {"n0": 1.0, "n1": 1.0, "n2": 1.0}
