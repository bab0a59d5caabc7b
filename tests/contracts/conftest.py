"""Both stores behind the graph's port, each empty."""

from __future__ import annotations

import neo4j
import pytest

from pipelines.graph.memory import MemoryGraph
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.port import Graph
from tests.servers import shared_driver


@pytest.fixture
def driver(neo4j_url: str) -> neo4j.Driver:
    """Of a Neo4j without nodes, on which the product's schema may be there or not."""
    return shared_driver(neo4j_url)


@pytest.fixture
def neo4j_graph(driver: neo4j.Driver) -> Neo4jGraph:
    """An empty graph with the product's schema."""
    made = Neo4jGraph(driver)
    made.ensure_schema()
    return made


@pytest.fixture(params=["memory", pytest.param("neo4j", marks=pytest.mark.integration)])
def graph(request: pytest.FixtureRequest) -> Graph:
    """An empty graph, of each store."""
    if request.param == "memory":
        return MemoryGraph()
    made: Graph = request.getfixturevalue("neo4j_graph")
    return made
