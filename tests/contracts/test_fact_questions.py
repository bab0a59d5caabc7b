"""Every question of a recall of facts, and about entities, goes by a key or an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import neo4j
import pytest

from pipelines.graph.client import planned_once
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.reads import entities as entity_reads
from pipelines.graph.reads import facts as fact_reads
from pipelines.graph.reads import shown as evidence_reads
from pipelines.graph.reads import shown as lineage_reads
from tests.contracts.plans import walk

pytestmark = pytest.mark.integration

ASKED: Mapping[str, Any] = {
    **dict.fromkeys(("tenant", "session_id", "user_id", "id", "name", "type", "after"), "x"),
    **dict.fromkeys(("limit", "most", "at", "now", "began", "per_entity"), 1),
    "everyone": False,
    "events": ["x"],
    "words": "+tenant_term:x",
    "ids": ["x"],
    "ends": [["x", "x", ["x"]]],
    "names": ["x"],
    "edge_types": [],
    "vector": [0.05] * 384,
}


def questions() -> Iterator[tuple[str, str]]:
    """Texts that ask something of a tenant, by name."""
    modules = (fact_reads, entity_reads, lineage_reads, evidence_reads)
    for name, text in (item for module in modules for item in vars(module).items()):
        texts = text if isinstance(text, dict) else {None: text}
        for kind, one in texts.items():
            if name.isupper() and isinstance(one, str) and "$tenant" in one:
                yield (name if kind is None else f"{name} {kind}"), one


QUESTIONS = dict(questions())


@pytest.fixture(scope="module")
def driver(neo4j: Any) -> Iterator[neo4j.Driver]:
    from neo4j import GraphDatabase

    with GraphDatabase.driver(neo4j.url, notifications_min_severity="OFF") as opened:
        Neo4jGraph(opened).ensure_schema()
        yield opened


def test_all_questions_are_asked_about() -> None:
    assert len(QUESTIONS) == 24


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_scans(driver: neo4j.Driver, name: str) -> None:
    text = QUESTIONS[name].strip()
    if text.startswith("CYPHER 25"):
        asked = text.replace("CYPHER 25", "CYPHER 25 EXPLAIN", 1)
    else:
        asked = planned_once(text).replace("CYPHER replan=skip", "EXPLAIN")
    with driver.session() as session:
        plan = session.run(asked, dict(ASKED)).consume().plan
    assert plan is not None
    kinds = {kind for kind, _ in walk(plan)}
    assert not {kind for kind in kinds if "Scan" in kind}, kinds
    by_index = {kind for kind in kinds if "IndexSeek" in kind or "IndexSearch" in kind}
    assert by_index or "ProcedureCall" in kinds, kinds
