"""Real services for tests: started once a session when first asked for, stopped by process id."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.local.services import LocalServices

# The machines are shared: an example that took long says nothing about what it is an example of.
settings.register_profile(
    "shared", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared")


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """A Valkey for the whole session. A test that kills it takes `fresh_services` instead."""
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"))
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def neo4j(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neo4jServer]:
    """A Neo4j without login for the whole session."""
    server = Neo4jServer(tmp_path_factory.mktemp("neo4j"), quick=True)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def redis_url(valkey: ValkeyServer) -> str:
    """URL of a Valkey that holds nothing, neither data nor scripts nor functions."""
    return _emptied(valkey)


@pytest.fixture(scope="module")
def module_redis_url(valkey: ValkeyServer) -> str:
    """The same, emptied once for a module."""
    return _emptied(valkey)


def _emptied(valkey: ValkeyServer) -> str:
    commands = (b"FLUSHALL SYNC", b"SCRIPT FLUSH SYNC", b"FUNCTION FLUSH SYNC")
    with socket.create_connection(("127.0.0.1", valkey.port), timeout=10) as connection:
        for command in commands:
            connection.sendall(command + b"\r\n")
            answer = connection.recv(200)
            assert answer == b"+OK\r\n"
    return valkey.url


@pytest.fixture
def neo4j_url(neo4j: Neo4jServer) -> str:
    """URL of a Neo4j without nodes; constraints and indexes of earlier tests may be there."""
    from neo4j import GraphDatabase

    with GraphDatabase.driver(neo4j.url) as driver, driver.session() as session:
        session.run(
            "MATCH (n) CALL (n) { DETACH DELETE n } IN TRANSACTIONS OF 10000 ROWS"
        ).consume()
    return neo4j.url


@pytest.fixture
def start_valkey(tmp_path: Path) -> Iterator[Callable[..., ValkeyServer]]:
    """Starts servers of the test's own, that it may kill; options as of `ValkeyServer`."""
    servers: list[ValkeyServer] = []

    def start(**options: Any) -> ValkeyServer:
        server = ValkeyServer(tmp_path / f"valkey-{len(servers)}", **options)
        servers.append(server)
        server.start()
        server.wait_ready()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def fresh_services(tmp_path: Path) -> Iterator[Callable[..., LocalServices]]:
    """Makes services of a test's own, to be killed at will: `fresh_services(targets=("blue",))`.

    They are without login, and stopped after the test.
    """
    made: list[LocalServices] = []

    def make(**options: object) -> LocalServices:
        arguments = {"auth": False, "quick": True, **options}
        services = LocalServices(tmp_path / f"services-{len(made)}", **arguments)  # type: ignore[arg-type]  # a pass-through
        made.append(services)
        services.start()
        return services

    yield make
    for services in made:
        services.stop()
