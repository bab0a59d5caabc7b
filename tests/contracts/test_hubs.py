"""What an entity costs that everybody mentions all the time is bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import neo4j
import pytest

from pipelines.graph.client import Neo4jReader
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads import entities as entity_reads
from pipelines.graph.reads import facts as fact_reads
from pipelines.graph.reads.scope import QUESTION, Scope, in_scope, operator_scope
from projections.identity import Position
from tests.contracts.plans import ASKED, READS
from tests.servers import emptied_neo4j

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def driver(neo4j: Any) -> Iterator[neo4j.Driver]:
    from neo4j import GraphDatabase

    # Of a few nodes that others left, Neo4j would rather read all.
    url = emptied_neo4j(neo4j)
    with GraphDatabase.driver(url, notifications_min_severity="OFF") as opened:
        Neo4jGraph(opened).ensure_schema()
        yield opened


def db_hits(plan: Mapping[str, Any]) -> int:
    """Of an operator and of all below it."""
    return int(plan["args"].get("DbHits", 0)) + sum(map(db_hits, plan.get("children", ())))


HUB_MENTIONS = 22_000
OF_A_HUB = ("FOUND_BY_ID", "FOUND_BY_NAME", "SAME", "ENTITIES", "MENTIONED", "NEWEST_MENTIONS")
VIEWERS = {
    "a user": Scope("hub", "ann", 0),
    "nobody": Scope("hub", None, 0),
    "an operator": operator_scope("hub", 0),
    "a user, then": Scope("hub", "ann", 0, until=Position(9, 0)),
}


@pytest.fixture(scope="module")
def hub(driver: neo4j.Driver) -> Iterator[neo4j.Driver]:
    """An entity that everybody mentions all the time."""
    driver.execute_query(
        "CREATE (n:Entity {tenant: 'hub', entity_id: 'x', canonical_name: 'x'})"
        " WITH n UNWIND range(1, $count) AS i "
        "CREATE (:Event {tenant: 'hub', event_id: toString(i), global_position: '1-0', "
        "occurred_at: datetime({epochMillis: i}), "
        "user_id: CASE i % 3 WHEN 0 THEN null WHEN 1 THEN 'ann' ELSE 'bob' END})"
        "-[:REFERENCES {role: 'object'}]->(n)",
        count=HUB_MENTIONS,
    )
    yield driver
    driver.execute_query("MATCH (n) WHERE n.tenant = 'hub' DETACH DELETE n")


@pytest.mark.parametrize("name", OF_A_HUB)
@pytest.mark.parametrize("viewer", VIEWERS)
def test_what_a_hub_costs_is_bounded(hub: neo4j.Driver, name: str, viewer: str) -> None:
    viewed = VIEWERS[viewer]
    text = in_scope(READS[name], then=viewed.until is not None)
    parameters = {**ASKED, "limit": 51, **viewed.parameters()}
    with hub.session() as session:
        profile = session.run(f"PROFILE {text}", {QUESTION: parameters}).consume().profile
    assert profile is not None
    assert 0 < db_hits(profile) <= 9 * fact_reads.MAX_MENTIONS


def test_mentions_of_a_hub_are_counted_up_to_a_bound(hub: neo4j.Driver) -> None:
    def mentions(graph: GraphRead) -> int:
        return fact_reads.FactReads(graph, VIEWERS["a user"]).mentioned(["x"])["x"]

    counted = Neo4jReader(hub, "neo4j").read(mentions, timeout_ms=30_000)
    assert 0 < counted <= fact_reads.MAX_MENTIONS


@pytest.mark.parametrize("viewer", VIEWERS)
def test_a_hub_is_shown_with_the_events_that_are_said_to_be_its_newest(
    hub: neo4j.Driver, viewer: str
) -> None:
    """They are looked up, not searched for: of 22,000 mentions a few are read."""
    viewed, newest = VIEWERS[viewer], [str(HUB_MENTIONS - number) for number in range(20)]
    text = in_scope(entity_reads.ENTITIES, then=viewed.until is not None)
    parameters = {**ASKED, **viewed.parameters(), "supporting": {"x": newest}}
    with hub.session() as session:
        result = session.run(f"PROFILE {text}", {QUESTION: parameters})
        (row,) = result
        profile = result.consume().profile
    assert profile is not None
    assert db_hits(profile) < 3_000
    supports = fact_reads.seen_entity(row["node"], viewed)["supports"]
    shown = [support["event_id"] for support in supports]
    hidden = {"a user": (2,), "a user, then": (2,), "nobody": (1, 2), "an operator": ()}[viewer]
    assert shown == [own_id for own_id in newest if int(own_id) % 3 not in hidden]
