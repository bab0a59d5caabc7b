"""What verify asks of an enriched graph finds its rows by an index, in the order it needs."""

from __future__ import annotations

from collections.abc import Iterator

import neo4j
import pytest
from pipelines.graph.audits import enrichment_cypher as audit_cypher

from pipelines.graph.neo4j import Neo4jGraph
from projections.schema import EVENT
from tests.contracts.plans import walk

BY_CHAIN = {"STREAM_EVENTS", "STREAM_SESSION"}
BY_KEY = {
    "READ_EVENTS",
    "READ_ENTITIES",
    "READ_BARE_ENTITIES",
    "READ_HISTORIES",
    "READ_SIMILAR",
    "OVERWRITE_ENTITIES",
    "RENAME_ENTITIES",
    "REMOVE_NODES",
    "REMOVE_EDGES",
    "RESCORE_SIMILAR",
}
PARAMETERS = {
    "tenant": "t",
    "session": "s",
    "key": ["t", "e"],
    "keys": [["t", "e"]],
    "ids": ["4:x:1"],
    "rows": [],
}


@pytest.fixture
def driver(neo4j_url: str) -> Iterator[neo4j.Driver]:
    with neo4j.GraphDatabase.driver(neo4j_url) as opened:
        Neo4jGraph(opened).ensure_schema()
        yield opened


@pytest.mark.integration
def test_every_question_of_verify_finds_its_rows_by_an_index(driver: neo4j.Driver) -> None:
    for name in sorted(BY_CHAIN | BY_KEY):
        with driver.session() as session:
            text = f"EXPLAIN {getattr(audit_cypher, name)}"
            plan = session.run(text, PARAMETERS).consume().plan
        assert plan is not None
        operators = list(walk(plan))
        kinds = {kind for kind, _ in operators}
        assert not {kind for kind in kinds if "AllNodes" in kind or "LabelScan" in kind}, name
        assert not {kind for kind in kinds if "RelationshipTypeScan" in kind}, name
        if name in BY_CHAIN:
            chain = ", ".join(EVENT.indexes[0])
            assert [kind for kind, details in operators if "Index" in kind and chain in details]
            # a sort would hold every event of the graph in memory
            assert not kinds & {"Sort", "PartialSort", "Top", "PartialTop"}, name
