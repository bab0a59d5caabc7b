"""Every question of retrieval is answered by a key or an index."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import neo4j
import pytest

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.reader import GraphReader
from pipelines.graph.reads import channels as retrieval_reads
from pipelines.graph.reads import events as event_reads
from pipelines.graph.reads import proactive as proactive_reads
from pipelines.graph.reads import walk as walk_reads
from pipelines.graph.reads.scope import QUESTION, Scope, in_scope
from projections.schema import EDGE_CAPS
from tests.contracts.plans import walk

pytestmark = pytest.mark.integration

QUESTIONS = {
    "text": retrieval_reads.TEXT_HITS,
    "vectors, 2026": retrieval_reads.VECTOR_HITS[True],
    "vectors, 5.26": retrieval_reads.VECTOR_HITS[False],
    "session": retrieval_reads.SESSION_EVENTS,
    "session's user": event_reads.SESSION_USER,
    "session's events": event_reads.OF_SESSION + " RETURN e",
    "candidates": event_reads.CANDIDATES,
    "events": event_reads.EVENTS,
    "surroundings": event_reads.SURROUNDINGS,
    "texts": event_reads.TEXTS,
    **{f"edges among {rows}": text for rows, text in event_reads.EDGES_AMONG.items()},
    **{f"neighbours {key}": text for key, text in event_reads.NEIGHBOURS.items()},
    **{f"beside {key}": text for key, text in event_reads.BESIDE.items()},
    "standings of candidates": retrieval_reads.STANDINGS,
    "contents of candidates": retrieval_reads.CONTENTS,
    "context": retrieval_reads.CONTEXT,
    "steps": walk_reads.STEPS[False],
    "steps then": walk_reads.STEPS[True],
    "edges": walk_reads.EDGES_BETWEEN,
    "proactive": proactive_reads.PROACTIVE,
    "followed then": event_reads.FOLLOWED,
    "nodes": walk_reads.NODES_OF,
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
    **dict.fromkeys(("now", "most", "kept", "limit", "default_importance", "least_score"), 1),
    **dict.fromkeys(("least_importance", "least_accesses"), 1),
    **{name: ["x"] for name in IDS},
    "until": [1, 0],
    "everyone": False,
    "all_entities": False,
    "words": "x",
    "vector": [0.05] * 384,
    "among": {"x": True},
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
    asked = text.replace("CYPHER 25", "CYPHER 25 EXPLAIN", 1)
    with driver.session() as session:
        plan = (
            session.run(asked if asked != text else f"EXPLAIN {text}", {QUESTION: PARAMETERS})
            .consume()
            .plan
        )
    assert plan is not None
    kinds = {kind for kind, _ in walk(plan)}
    assert not {kind for kind in kinds if "Scan" in kind}, kinds
    assert "CartesianProduct" not in kinds
    assert {kind for kind in kinds if "IndexSeek" in kind} or name.startswith(("text", "vectors"))
    if name == "session":
        assert not kinds & {"Sort", "PartialSort", "Top"}, kinds


def test_only_who_speaks_is_taken_for_a_speaker(driver: neo4j.Driver) -> None:
    tenant = uuid4().hex
    for name, kind, role in (
        ("ann", "agent", "subject"),
        ("bob", "user", "subject"),
        ("3rk2t9", "user", "target"),
        ("paris", "concept", "subject"),
    ):
        driver.execute_query(
            "CREATE (n:Entity {tenant: $tenant, entity_id: $name, canonical_name: $name, "
            "entity_type: $kind}) CREATE (e:Event {tenant: $tenant, event_id: $name}) "
            "CREATE (e)-[:REFERENCES {role: $role}]->(n)",
            tenant=tenant,
            name=name,
            kind=kind,
            role=role,
        )
    names = ["ann", "bob", "3rk2t9", "paris", "nobody"]
    events, found = GraphReader(driver, "neo4j").read(
        lambda graph: retrieval_reads.session_and_agents(
            graph, Scope(tenant, None, 0), "none", names
        ),
        timeout_ms=10_000,
    )
    assert (events, found) == ([], ["ann", "bob"])


def test_every_question_is_asked_about() -> None:
    known = set(QUESTIONS.values())
    for module in (retrieval_reads, event_reads, walk_reads, proactive_reads):
        for name, text in vars(module).items():
            if name.isupper() and isinstance(text, str) and "$tenant" in text and "MATCH" in text:
                assert any(text.strip() in one for one in known), name
