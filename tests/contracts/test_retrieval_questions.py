"""Every question of retrieval is answered by a key or an index."""

from __future__ import annotations

from collections.abc import Iterator

import neo4j
import pytest

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.reads import events as event_reads
from pipelines.graph.reads import walk as walk_reads
from pipelines.graph.reads.scope import QUESTION, in_scope
from projections.schema import EDGE_CAPS
from tests.contracts.plans import walk

pytestmark = pytest.mark.integration

QUESTIONS = {
    "session's events": event_reads.OF_SESSION + " RETURN e",
    "events": event_reads.EVENTS,
    "surroundings": event_reads.SURROUNDINGS,
    "texts": event_reads.TEXTS,
    **{f"edges among {rows}": text for rows, text in event_reads.EDGES_AMONG.items()},
    **{f"neighbours {key}": text for key, text in event_reads.NEIGHBOURS.items()},
    **{f"beside {key}": text for key, text in event_reads.BESIDE.items()},
    "followed then": event_reads.FOLLOWED,
    "nodes": walk_reads.NODES_OF,
    "nodes and edges": walk_reads.SHOWN_OF,
    "story": walk_reads.STORY,
    "causes": walk_reads.CAUSES,
    "causes in other sessions": walk_reads.LINKED_CAUSES,
    "what was learned": walk_reads.GISTS,
    "sessions that failed alike": walk_reads.ALIKE,
}
IDS = (
    "ids",
    "seen",
    "around",
    "names",
    "event_ids",
    "entity_ids",
    "summary_ids",
    "community_ids",
    "session_ids",
    "history",
    "failures",
)
PARAMETERS = {
    **dict.fromkeys(("tenant", "session_id", "id", "user_id", "success", "retry"), "x"),
    **dict.fromkeys(("reason", "rule", "kind"), "x"),
    **dict.fromkeys(("first_ms", "last_ms"), 1),
    **dict.fromkeys(("now", "most", "kept", "limit", "default_importance", "least_score"), 1),
    **dict.fromkeys(("least_importance", "least_accesses"), 1),
    **{name: ["x"] for name in IDS},
    "until": [1, 0],
    "everyone": False,
    "all_entities": False,
    "words": "x",
    "vector": [0.05] * 384,
    "among": {"x": True},
    "told": {"x": True},
    "caps": EDGE_CAPS,
}


@pytest.fixture
def driver(neo4j_url: str) -> Iterator[neo4j.Driver]:
    with neo4j.GraphDatabase.driver(neo4j_url, notifications_min_severity="OFF") as driver:
        Neo4jGraph(driver).ensure_schema()
        yield driver


@pytest.mark.parametrize("then", [False, True])
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_scans(driver: neo4j.Driver, name: str, *, then: bool) -> None:
    text = in_scope(QUESTIONS[name], then=then).strip()
    with driver.session() as session:
        plan = session.run(f"EXPLAIN {text}", {QUESTION: PARAMETERS}).consume().plan
    assert plan is not None
    kinds = {kind for kind, _ in walk(plan)}
    assert not {kind for kind in kinds if "Scan" in kind}, kinds
    assert "CartesianProduct" not in kinds
    assert {kind for kind in kinds if "IndexSeek" in kind}


def test_every_question_is_asked_about() -> None:
    known = set(QUESTIONS.values())
    for module in (event_reads, walk_reads):
        for name, text in vars(module).items():
            if name.isupper() and isinstance(text, str) and "$tenant" in text and "MATCH" in text:
                assert any(text.strip() in one for one in known), name
