"""Servers of tests: started and stopped in one place, emptied in one way."""

from __future__ import annotations

import atexit
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeVar

import redis
from neo4j import Driver, GraphDatabase

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.local.servers import Neo4jServer, ValkeyServer
from projections.schema import EVENT, fulltext_index, vector_index

REDIS_URL = "TEST_REDIS_URL"
NEO4J_URL = "TEST_NEO4J_URL"
"""Servers that run already, on this machine, for the tests to empty and use; without login."""

SYNCED_MS = 60_000

Server = TypeVar("Server", Neo4jServer, ValkeyServer)


class GivenServer(NamedTuple):
    """A server of another kind or version than the embedded ones; no test may kill it."""

    url: str

    @property
    def port(self) -> int:
        """Of 127.0.0.1."""
        return int(self.url.rpartition(":")[2].partition("/")[0])


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """A server from its start to the end of the block."""
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def wait_synced(client: redis.Redis) -> None:
    """Return once all that a Valkey has answered is in its file, so that a kill costs nothing.

    While a sync is under way, what was answered may not have been written even to the file.
    """
    client.set("the last", "write")  # a connection waits for its own writes and all before
    client.delete("the last")
    waited: Any = client.waitaof(1, 0, SYNCED_MS)
    assert waited[0] == 1


def kill_synced(server: ValkeyServer) -> None:
    """Kill a Valkey once all that it has answered is in its file."""
    with redis.Redis(port=server.port) as client:
        wait_synced(client)
    server.kill()


def emptied_valkey(valkey: ValkeyServer | GivenServer) -> str:
    """URL of the server, which now holds neither data nor scripts nor functions."""
    commands = (b"FLUSHALL SYNC", b"SCRIPT FLUSH SYNC", b"FUNCTION FLUSH SYNC")
    with socket.create_connection(("127.0.0.1", valkey.port), timeout=10) as connection:
        for command in commands:
            connection.sendall(command + b"\r\n")
            answer = connection.recv(200)
            assert answer == b"+OK\r\n"
    return valkey.url


def emptied_neo4j(neo4j: Neo4jServer | GivenServer) -> str:
    """URL of the server, which now has no node; constraints and indexes stay."""
    with shared_driver(neo4j.url).session() as session:
        session.run(
            "MATCH (n) CALL (n) { DETACH DELETE n } IN TRANSACTIONS OF 10000 ROWS"
        ).consume()
    return neo4j.url


@cache
def shared_driver(url: str) -> Driver:
    """A driver for all tests of a process: to open one takes longer than most of them.

    Its connections are looked at before use, as the server may have been another one meanwhile.
    """
    driver = GraphDatabase.driver(url, notifications_min_severity="OFF", liveness_check_timeout=0)
    atexit.register(driver.close)
    return driver


@contextmanager
def event_indexes(url: str) -> Iterator[None]:
    """The indexes of events that people may ask are in a Neo4j, and gone afterwards."""
    driver = shared_driver(url)
    Neo4jGraph(driver, browsed=True).ensure_schema()
    yield
    for name in (vector_index(EVENT), fulltext_index(EVENT)):
        driver.execute_query(f"DROP INDEX {name} IF EXISTS")
