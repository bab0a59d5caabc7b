"""All stores behind the graph's port, each empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import neo4j
import pytest
import redis

from pipelines.graph.memory import MemoryGraph
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.port import Graph
from pipelines.graph.remote import GraphServer, remote_graph
from pipelines.local.servers import Neo4jServer
from tests.servers import event_indexes, shared_driver


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


@pytest.fixture(scope="module")
def event_search(neo4j: Neo4jServer) -> Iterator[None]:
    """The Neo4j has the indexes of events that people may ask, too."""
    with event_indexes(neo4j.url):
        yield


@pytest.fixture
def remote() -> Iterator[Graph]:
    """An empty graph that is asked over a socket, as if another process held it."""
    with TemporaryDirectory() as folder:
        server = GraphServer(MemoryGraph(), Path(folder) / "s" / "graph", transaction_s=30.0)
        server.start()
        yield remote_graph(Path(folder) / "s" / "graph", timeout_s=30.0)
        server.stop()


@pytest.fixture(params=["memory", "remote", pytest.param("neo4j", marks=pytest.mark.integration)])
def graph(request: pytest.FixtureRequest) -> Graph:
    """An empty graph, of each store."""
    if request.param == "memory":
        return MemoryGraph()
    made: Graph = request.getfixturevalue(
        "neo4j_graph" if request.param == "neo4j" else request.param
    )
    return made


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """Of a Valkey that holds nothing."""
    with redis.Redis.from_url(redis_url) as made:
        yield made
