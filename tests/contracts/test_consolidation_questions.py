"""Every question that consolidation asks the graph is answered by a key or an index."""

from __future__ import annotations

from collections.abc import Iterator

import neo4j
import pytest

from pipelines.graph.client import planned_once
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.reads import communities as community_reads
from pipelines.graph.reads import consolidation as consolidation_reads
from pipelines.graph.reads import due_passes as pass_reads
from pipelines.graph.reads import forgetting as forgetting_reads
from pipelines.graph.reads import linking as linking_reads
from pipelines.graph.reads import requests as request_reads
from pipelines.graph.reads import sessions as session_reads
from pipelines.graph.reads import undecided as undecided_reads
from tests.contracts.plans import walk

pytestmark = pytest.mark.integration

READERS = (
    community_reads,
    consolidation_reads,
    forgetting_reads,
    linking_reads,
    pass_reads,
    request_reads,
    session_reads,
    undecided_reads,
)
SCANS = {
    "due_passes._COUNT": "the store keeps how many nodes a label has",
    "due_passes._REQUESTING": "requests that wait are few",
    "due_passes._SAMPLE": "every event must be as likely to be drawn as any other",
    "due_passes._TIERS": "age depends on arrival too; asked once a pass that looks at everything",
    "requests._REQUESTING": "which tenants have a request is asked of all of them",
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
    assert len(READS) == 36


@pytest.mark.parametrize("name", READS)
def test_no_question_of_a_pass_scans(driver: neo4j.Driver, name: str) -> None:
    assert_no_scan(driver, READS[name], **ASKED)
