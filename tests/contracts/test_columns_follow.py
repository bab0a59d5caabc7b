"""Columns follow a Neo4j as they follow the graph in memory."""

from __future__ import annotations

import neo4j
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.columns.follow import Columns
from pipelines.graph.neo4j import Neo4jGraph
from projections.errors import ChangesLost
from projections.schema import FEED_NODES
from tests.contracts.test_graph_feed import STEPS, A, Step, apply, occurred
from tests.unit.pipelines.test_columns_follow import see_that_they_follow

pytestmark = pytest.mark.integration


@settings(
    deadline=None,
    max_examples=12,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(STEPS, st.booleans())
def test_columns_that_follow_hold_what_neo4j_holds(
    neo4j_graph: Neo4jGraph, steps: list[tuple[Step, int]], again: bool
) -> None:
    neo4j_graph.clear()
    see_that_they_follow(neo4j_graph, steps, again=again)


def test_a_graph_without_a_feed_can_be_loaded_as_soon_as_it_has_one(
    neo4j_graph: Neo4jGraph, driver: neo4j.Driver
) -> None:
    labels = "|".join(row.label for row in FEED_NODES)
    driver.execute_query(f"MATCH (n:{labels}) DELETE n")
    columns = Columns(neo4j_graph)
    with pytest.raises(ChangesLost, match="no feed"):
        columns.load()
    loaded = [columns.is_loaded]  # nobody has begun the graph, and nothing is in it
    apply(neo4j_graph, occurred(A))
    for attempt in (columns.load, columns.catch_up):
        with pytest.raises(ChangesLost, match="no feed"):
            attempt()
    loaded.append(columns.is_loaded)
    neo4j_graph.ensure_schema()
    columns.catch_up()
    assert [*loaded, columns.is_loaded] == [True, False, True]
    assert columns.tenant(A[0]).events.ids == [A[1]]
