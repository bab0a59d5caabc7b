"""Every question that consolidation asks the graph is answered by a key or an index."""

from __future__ import annotations

from collections.abc import Iterator

import neo4j
import pytest

from pipelines.graph import consolidation_cypher as cypher
from pipelines.graph import questions as graph_questions
from pipelines.graph.cypher import (
    clear_edges_text,
    decide_nodes_text,
    merge_edges_text,
    merge_nodes_text,
    planned_once,
    remove_edges_text,
    remove_nodes_text,
    set_edges_text,
)
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.reads import communities as community_reads
from pipelines.graph.reads import consolidation as consolidation_reads
from pipelines.graph.reads import due_passes as pass_reads
from pipelines.graph.reads import forgetting as forgetting_reads
from pipelines.graph.reads import linking as linking_reads
from pipelines.graph.reads import requests as request_reads
from pipelines.graph.reads import sessions as session_reads
from pipelines.graph.reads import undecided as undecided_reads
from projections.schema import (
    COMMUNITY,
    ENTITY,
    EVENT,
    FORGOTTEN,
    LINKED_TO,
    MEMBER_OF,
    RELATES_TO,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
)
from tests.contracts.test_graph_writer import walk

pytestmark = pytest.mark.integration

STAGE = "consolidation"
KEYS = [["t", "x", "y", "z", "w", 1, "v"]]
QUESTIONS = {
    name: (text, [0] if name == "LOCK_CHAINS" else KEYS)
    for name, text in vars(cypher).items()
    if name.isupper() and isinstance(text, str) and "$keys" in text
}
WRITES = {
    "summaries": merge_nodes_text(SUMMARY.label, STAGE, with_placeholders=True),
    "waiting events": merge_nodes_text(EVENT.label, STAGE, with_placeholders=True),
    "waiting entities": merge_nodes_text(ENTITY.label, STAGE, with_placeholders=True),
    "boosts": decide_nodes_text(EVENT.label, "importance_boost"),
    "accesses": decide_nodes_text(EVENT.label, "access_count"),
    "retrievals": set_edges_text(RELATES_TO.type, STAGE),
    "marks": decide_nodes_text(FORGOTTEN.label, "recalled"),
    "gone": decide_nodes_text(COMMUNITY.label, "gone"),
    "removed": remove_nodes_text(EVENT.label),
    "members": merge_edges_text(SUMMARIZES.type, STAGE),
    "levels": merge_edges_text(SUMMARIZES.type, STAGE, label=SUMMARY.label),
    "levels removed": remove_edges_text(SUMMARIZES.type, STAGE, label=SUMMARY.label),
    "links": merge_edges_text(LINKED_TO.type, STAGE),
    "joined": merge_edges_text(MEMBER_OF.type, STAGE),
    "left": clear_edges_text(MEMBER_OF.type, STAGE),
    "dropped": remove_edges_text(SIMILAR_TO.type, STAGE),
}
WIDTH = 30
READERS = (
    community_reads,
    consolidation_reads,
    forgetting_reads,
    graph_questions,
    linking_reads,
    pass_reads,
    request_reads,
    session_reads,
    undecided_reads,
)
SCANS = {
    "pass_reads._COUNT": "the store keeps how many nodes a label has",
    "pass_reads._REQUESTING": "requests that wait are few",
    "pass_reads._SAMPLE": "every event must be as likely to be drawn as any other",
    "pass_reads._TIERS": "age depends on arrival too; asked once a pass that looks at everything",
    "request_reads._REQUESTING": "which tenants have a request is asked of all of them",
}
"""Questions that go through all nodes of a label, and why they may."""
ASKED_OF_GRAPH = {
    f"{module.__name__.rpartition('.')[2]}.{name}": text
    for module in READERS
    for name, text in vars(module).items()
    if isinstance(text, str) and "RETURN" in text
}
READS = {name: text for name, text in ASKED_OF_GRAPH.items() if name not in SCANS}
ASKED = {
    **dict.fromkeys(("tenant", "session_id", "event_id", "id", "after", "archived"), "x"),
    **dict.fromkeys(("agent_id", "last", "user", "literal"), "x"),
    **dict.fromkeys(("least", "limit", "most", "pending", "until_ms", "at_ms", "now_ms"), 1),
    **dict.fromkeys(("protected", "confidence", "few", "characters", "effects"), 1),
    **{name: ["x"] for name in ("ids", "tools", "statuses", "tenants")},
    "direct": 1.0,
    "enriched": True,
}


@pytest.fixture
def driver(neo4j_url: str) -> Iterator[neo4j.Driver]:
    with neo4j.GraphDatabase.driver(neo4j_url, notifications_min_severity="OFF") as driver:
        Neo4jGraph(driver).ensure_schema()
        yield driver


def assert_no_scan(driver: neo4j.Driver, text: str, **parameters: object) -> None:
    asked = planned_once(text).replace("CYPHER replan=skip", "EXPLAIN")
    with driver.session() as session:
        plan = session.run(asked, parameters).consume().plan
    assert plan is not None
    kinds = {kind for kind, _ in walk(plan)}
    assert not {kind for kind in kinds if "Scan" in kind and "Seek" not in kind}, kinds
    assert {kind for kind in kinds if "IndexSeek" in kind or kind == "MergeUniqueNode"}, kinds


def test_all_questions_are_asked_about() -> None:
    assert SCANS.keys() <= ASKED_OF_GRAPH.keys()
    assert (len(QUESTIONS), len(READS)) == (18, 36)


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_scans(driver: neo4j.Driver, name: str) -> None:
    text, keys = QUESTIONS[name]
    assert_no_scan(driver, text, keys=keys, stage="projection")


@pytest.mark.parametrize("name", WRITES)
def test_no_write_scans(driver: neo4j.Driver, name: str) -> None:
    assert_no_scan(driver, WRITES[name], rows=[["x"] * WIDTH])


@pytest.mark.parametrize("name", READS)
def test_no_question_of_a_pass_scans(driver: neo4j.Driver, name: str) -> None:
    assert_no_scan(driver, READS[name], **ASKED)
