"""Every question that enrichment asks the graph is answered by a key or an index."""

from __future__ import annotations

from collections.abc import Iterator

import neo4j
import pytest

from pipelines.graph import enrichment_cypher as cypher
from pipelines.graph.cypher import planned_once
from pipelines.graph.neo4j import Neo4jGraph
from projections.schema import ENTITY, EVENT
from tests.contracts.test_graph_writer import walk

pytestmark = pytest.mark.integration

QUESTIONS = {
    "stretches": (cypher.STRETCHES, None),
    "forgotten stretches": (cypher.FORGOTTEN_STRETCHES, None),
    "present events": (cypher.PRESENT_EVENTS, None),
    "histories": (cypher.LOCK_HISTORIES, None),
    "similar": (cypher.LOCK_SIMILAR, None),
    "known entities": (cypher.KNOWN_ENTITIES, None),
    "namesakes": (cypher.NAMESAKES, None),
    "near events": (cypher.nearest_text(EVENT, filtered=True), 25),
    "near entities": (cypher.nearest_text(ENTITY, filtered=True), 25),
    "near events, 5.26": (cypher.nearest_text(EVENT, filtered=False), None),
}
PARAMETERS = {
    "windows": [["t", "s", 0, "a", 1, "b", ["a"]]],
    "keys": [["t", "e"]],
    "rows": [["t", "e", [0.05] * 384]],
}


@pytest.fixture
def driver(neo4j_url: str) -> Iterator[neo4j.Driver]:
    with neo4j.GraphDatabase.driver(neo4j_url, notifications_min_severity="OFF") as driver:
        Neo4jGraph(driver).ensure_schema()
        yield driver


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_scans(driver: neo4j.Driver, name: str) -> None:
    text, version = QUESTIONS[name]
    asked = planned_once(text, version=version).replace("CYPHER", "EXPLAIN CYPHER", 1)
    asked = asked.replace("EXPLAIN CYPHER 25 replan=skip", "CYPHER 25 EXPLAIN").replace(
        "EXPLAIN CYPHER replan=skip", "EXPLAIN"
    )
    rows = [["t", "e", "name"]] if name == "namesakes" else PARAMETERS["rows"]
    with driver.session() as session:
        plan = session.run(asked, {**PARAMETERS, "rows": rows}).consume().plan
    assert plan is not None
    kinds = {kind for kind, _ in walk(plan)}
    assert not kinds & {"AllNodesScan", "NodeByLabelScan", "PartitionedAllNodesScan"}, kinds
    assert not {kind for kind in kinds if "RelationshipTypeScan" in kind}
    if name.endswith("stretches"):
        assert not kinds & {"Sort", "PartialSort", "Top"}, kinds
