"""How Neo4j merges what several workers write, and which edges a stage takes away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import neo4j
import pytest

from pipelines.graph.writer import GraphWriter
from projections.operations import (
    ClearEdges,
    DecideNode,
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operation,
    Operations,
    RemoveEdge,
    SetNode,
)
from projections.positions import Position
from projections.schema import (
    CAUSED_BY,
    DIRECT,
    ENTITY,
    EVENT,
    INFERRED,
    RELATES_TO,
    SAME_AS,
)

pytestmark = pytest.mark.integration
STAGE = "enrichment"
KEY = ("t", "ann")


class Graph:
    """A real graph with the product's schema."""

    def __init__(self, driver: neo4j.Driver) -> None:
        self.driver = driver
        self.writer = GraphWriter(driver)
        self.writer.ensure_schema()

    def apply(self, *operations: Operation, stage: str = STAGE) -> None:
        batch = Operations()
        batch.extend(operations)
        with self.writer.transaction() as transaction:
            transaction.apply(batch, stage)

    def rows(self, text: str) -> list[Any]:
        with self.driver.session() as session:
            return [list(record) for record in session.run(text)]

    def entity(self) -> dict[str, Any]:
        ((found,),) = self.rows("MATCH (n:Entity) RETURN properties(n)")
        return dict(found)


@pytest.fixture
def graph(neo4j_url: str) -> Iterator[Graph]:
    with neo4j.GraphDatabase.driver(neo4j_url, notifications_min_severity="OFF") as driver:
        yield Graph(driver)


def met(
    name: str, first_ms: int, event_id: str, last_ms: int, vector: list[float] | None = None
) -> MergeNode:
    return MergeNode(
        label=ENTITY.label,
        key=KEY,
        values={
            "canonical_name": "ann",
            "entity_type": "concept",
            "name": name,
            "subtype": None,
            "first_seen": first_ms,
            "first_event_id": event_id,
            "last_seen": last_ms,
            "embedding": vector,
        },
    )


def called(name: str, position: Position) -> DecideNode:
    return DecideNode(
        label=ENTITY.label, key=KEY, name="display_name", value=name, position=position
    )


MENTIONS = [met("Ann", 20, "b", 20), met("ANN", 10, "z", 30), met("ann", 10, "c", 10)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_an_entity_keeps_its_earliest_name_whatever_the_order(
    graph: Graph, order: tuple[int, ...]
) -> None:
    for n in order:
        graph.apply(MENTIONS[n])
    found = graph.entity()
    assert (found["name"], found["first_event_id"]) == ("ann", "c")
    assert found["first_seen"].to_native().timestamp() == 0.01
    assert found["last_seen"].to_native().timestamp() == 0.03
    assert "lock" not in found


def test_the_first_vector_stays(graph: Graph) -> None:
    graph.apply(met("Ann", 20, "b", 20))
    assert "embedding" not in graph.entity()
    graph.apply(met("Ann", 30, "d", 30, [1.0, 0.0]))
    graph.apply(met("Ann", 10, "a", 10, [0.0, 1.0]))
    assert graph.entity()["embedding"] == [1.0, 0.0]


def test_what_was_decided_of_an_entity_that_was_not_met_yet_waits_for_it(graph: Graph) -> None:
    graph.apply(called("Ann B.", Position(5, 1)))
    assert graph.rows("MATCH (n:Entity:Unmentioned) RETURN n.display_name") == [["Ann B."]]
    graph.apply(met("Ann", 20, "b", 20))
    assert graph.rows("MATCH (n:Entity) RETURN labels(n), n.display_name, n.name") == [
        [["Entity"], "Ann B.", "Ann"]
    ]


def test_of_two_decisions_the_later_position_stays(graph: Graph) -> None:
    later = called("later", Position(5, 2))
    earlier = called("earlier", Position(5, 1))
    for operations in ((later, earlier), (later,), (earlier,)):
        graph.apply(*operations)
        assert graph.entity()["display_name"] == "later"


def same_as(position: Position, retracted: bool) -> MergeEdge:
    values = {
        "confidence": 0.9,
        "justification": "same_form",
        "retracted": retracted,
        "event_id": "e",
        "decided_at": tuple(position),
    }
    return MergeEdge(type=SAME_AS.type, source=KEY, target=("t", "bob"), values=values)


def test_a_retraction_outlives_the_finding_it_follows(graph: Graph) -> None:
    ends = [EnsureNode(ENTITY.label, KEY), EnsureNode(ENTITY.label, ("t", "bob"))]
    graph.apply(*ends, same_as(Position(7, 0), True))
    graph.apply(*ends, same_as(Position(6, 9), False))
    assert graph.rows("MATCH ()-[s:SAME_AS]->() RETURN s.retracted, s.lock") == [[True, None]]
    graph.apply(same_as(Position(8, 0), False))
    assert graph.rows("MATCH ()-[s:SAME_AS]->() RETURN s.retracted, s.lock") == [[False, None]]


def test_enrichment_makes_no_event_visible_or_new(graph: Graph) -> None:
    values = {
        "kind": "message",
        "text": "text",
        "speaker": None,
        "keywords": ["word"],
        "summary": "summary",
        "importance_score": 5,
        "embedding": None,
        "embedding_model": None,
    }
    graph.apply(EnsureNode(EVENT.label, ("t", "hidden")), stage="projection")
    graph.apply(
        *(SetNode(label=EVENT.label, key=("t", id_), values=values) for id_ in ("hidden", "none"))
    )
    assert graph.rows("MATCH (e:Event) RETURN labels(e), e.text") == [
        [["Event", "Placeholder"], None]
    ]


def cause(mechanism: str, target: str = "b") -> MergeEdge:
    values: dict[str, Any] = {"mechanism": mechanism}
    if mechanism == INFERRED:
        values |= {"rule": "value_flow", "confidence": 0.95, "evidence": "x"}
    return MergeEdge(type=CAUSED_BY.type, source=("t", "a"), target=("t", target), values=values)


def test_each_stage_clears_its_own_causes(graph: Graph) -> None:
    graph.apply(
        *(EnsureNode(EVENT.label, ("t", name)) for name in "abc"),
        cause(DIRECT),
        stage="projection",
    )
    graph.apply(cause(INFERRED), cause(INFERRED, "c"))
    graph.apply(ClearEdges(CAUSED_BY.type, ("t", "a")), cause(INFERRED, "c"))
    causes = "MATCH ()-[r:CAUSED_BY]->(x) RETURN r.mechanism, x.event_id ORDER BY r.mechanism"
    assert graph.rows(causes) == [["direct", "b"], ["inferred", "c"]]
    removed = RemoveEdge(type=CAUSED_BY.type, source=("t", "a"), target=("t", "b"))
    graph.apply(removed, stage="projection")
    assert graph.rows(causes) == [["inferred", "c"]]


def _knows(at_ms: int) -> dict[str, Any]:
    return {"relation": "knows", "edge_type": "semantic", "valid_from": at_ms, "event_id": "e"}


def test_one_of_several_facts_goes(graph: Graph) -> None:
    ends = [EnsureNode(ENTITY.label, KEY), EnsureNode(ENTITY.label, ("t", "bob"))]
    facts = [
        MergeEdge(
            type=RELATES_TO.type,
            source=KEY,
            target=("t", "bob"),
            values={
                **_knows(at),
                "fact": "fact",
                "confidence": 0.7,
                "valid_to": None,
                "expired_at": None,
                "source": "system",
                "status": "staged",
                "user_id": None,
                "supporting_event_ids": (),
                "support_count": 1,
            },
        )
        for at in (10, 20)
    ]
    graph.apply(*ends, *facts)
    graph.apply(
        RemoveEdge(type=RELATES_TO.type, source=KEY, target=("t", "bob"), values=_knows(10))
    )
    assert graph.rows("MATCH ()-[r:RELATES_TO]->() RETURN r.valid_from.epochMillis") == [[20]]
