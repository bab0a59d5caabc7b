"""What readers ask goes by an index, and in the same way however full the graph is.

Neo4j plans each text once and keeps the plan: one that was made while the graph was empty must be
the one that would be made when it is full.
"""

from __future__ import annotations

import re
from collections import Counter

import neo4j
import pytest

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.reads.scope import QUESTION, in_scope
from tests.contracts.plans import ASKED, READS, operators

pytestmark = pytest.mark.integration

# One entity and one cause that all events have, a community of all entities and one of nine,
# and events with more edges than an answer shows.
FILL = """
CREATE (hub:Entity {tenant: 'x', entity_id: 'hub', canonical_name: 'hub'})
CREATE (large:Community {tenant: 'x', community_id: 'large'})
CREATE (small:Community {tenant: 'x', community_id: 'small'})
WITH hub, large, small UNWIND range(1, $events) AS n
CREATE (e:Event {tenant: 'x', event_id: 'e' + n, session_id: 's' + n % 20,
                 occurred_at: datetime({epochMillis: n}), global_position: n + '-0'})
CREATE (e)-[:REFERENCES {role: 'object'}]->(hub)
CREATE (m:Entity {tenant: 'x', entity_id: 'n' + n, canonical_name: 'n' + n})
CREATE (m)-[:RELATES_TO {event_id: 'e' + n}]->(hub)
CREATE (m)-[:MEMBER_OF]->(large)
CREATE (s:Summary {tenant: 'x', summary_id: 'p' + n, session_id: 's' + n % 20})-[:SUMMARIZES]->(e)
FOREACH (_ IN CASE WHEN n < 10 THEN [1] ELSE [] END | CREATE (m)-[:MEMBER_OF]->(small))
WITH collect(e) AS events, collect(s) AS summaries
UNWIND range(0, $events - 15) AS n
WITH events, summaries, n, events[n] AS e, events[0] AS root, events[n + 1] AS next,
     summaries[n] AS s, summaries[n + 1] AS other
FOREACH (k IN range(1, 14) | FOREACH (alike IN [events[n + k]] | CREATE (e)-[:SIMILAR_TO]->(alike)))
CREATE (e)-[:CAUSED_BY]->(root)
CREATE (e)-[:FOLLOWS]->(next)
CREATE (s)-[:LINKED_TO {reason: 'cause'}]->(other)
"""
READING = ("Node", "Expand", "OptionalExpand", "VarLength", "Repeat")
"""How the names of operators begin that find nodes or edges."""
GIVEN_PAIRS = "FACTS_BETWEEN"
"""Both ends of each fact are sought by their keys."""
TESTED_BY_TYPE = ("SHOWN_OF", True)
"""Of edges of all types facts alone are asked when they were said, as of a position."""

Steps = Counter[tuple[str, str]]


def steps_of_reads(driver: neo4j.Driver) -> dict[tuple[str, bool], Steps]:
    """How each text finds nodes and edges, as of now and as of a position."""
    driver.execute_query("CALL db.prepareForReplanning(60)")
    plans: dict[tuple[str, bool], Steps] = {}
    for name, text in READS.items():
        for then in (False, True):
            asked = in_scope(text, then=then).strip()
            found = operators(driver, asked, {QUESTION: ASKED})
            kinds = {kind for kind, _ in found}
            assert not {kind for kind in kinds if "Scan" in kind}, (name, found)
            assert "CartesianProduct" not in kinds or name == GIVEN_PAIRS, (name, found)
            assert {kind for kind in kinds if "IndexSeek" in kind or kind == "ProcedureCall"}, name
            # A subquery in an expression is planned apart wherever it stands, for seconds in all.
            in_expressions = [details for _, details in found if "EXISTS {" in details]
            assert not in_expressions or (name, then) == TESTED_BY_TYPE, (name, in_expressions)
            plans[name, then] = Counter(
                (kind, re.sub(r"anon_\d+", "anon", details))
                for kind, details in found
                if kind.startswith(READING)
            )
    return plans


def test_reads_go_by_the_same_indexes_however_full_the_graph_is(neo4j_graph: Neo4jGraph) -> None:
    driver = neo4j_graph.client.driver
    assert len(READS) >= 54  # none is lost where they are gathered
    empty = steps_of_reads(driver)
    driver.execute_query(FILL, events=2_000)
    filled = steps_of_reads(driver)
    for name, steps in empty.items():
        assert filled[name] == steps, (name, steps - filled[name], filled[name] - steps)
