"""A running API for tests: real sockets, real server, on the stores that a test names."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, LiteralString

import httpx
import neo4j
import uvicorn
from fastapi import FastAPI

from api.connection_limits import server_config
from api.main import create_app
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.work.settings import ApiKey, Settings
from projections.events import timestamp_ms
from projections.schema import CAUSED_BY, CHECKPOINT, EVENT, FOLLOWS, PLACEHOLDER, schema_statements
from tests.waiting import wait_until

READ_KEY = "read-key-of-acme-0123456789"
WRITE_KEY = "write-key-of-acme-0123456789"
OTHER_KEY = "write-key-of-other-0123456789"
ADMIN_KEY = "admin-key-of-all-0123456789"
USER_KEY = "write-key-of-cara-0123456789"
KEYS = (
    ApiKey(name="reader", key=READ_KEY, tenant="acme", role="read"),
    ApiKey(name="writer", key=WRITE_KEY, tenant="acme", role="write"),
    ApiKey(name="stranger", key=OTHER_KEY, tenant="other", role="write"),
    ApiKey(name="cara", key=USER_KEY, tenant="acme", role="write", user_id="cara"),
    ApiKey(name="operator", key=ADMIN_KEY, tenant="*", role="admin"),
)
PATIENCE_S = 120.0


@dataclass
class Api:
    """A running API and clients for it."""

    app: FastAPI
    url: str
    server: uvicorn.Server

    def client(self, key: str | None = WRITE_KEY, **headers: str) -> httpx.Client:
        """A client with a key; the caller closes it."""
        sent = dict(headers)
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        return httpx.Client(base_url=self.url, headers=sent, timeout=120)


def _has_columns(app: FastAPI) -> bool:
    """Whether nothing is left to wait for: machines are slow, and a question's time is short."""
    services = app.state.services
    if services.seen.sample.graph_error is not None:
        return True
    with services.connections.graph.opened() as graph:
        state = graph.columns.state()
    return state.is_loaded or "feed" in state.reason


@contextmanager
def running_api(
    redis_url: str, neo4j_url: str, *, loop: Any = "uvloop", **options: Any
) -> Iterator[Api]:
    """Serve the API on a free port, as `serve` does, until the block ends."""
    settings = Settings(
        **{"redis_url": redis_url, "neo4j_url": neo4j_url, "api_keys": KEYS, **options}
    )
    app = create_app(settings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = server_config(app, settings)
        config.loop = loop
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive(), "the API listens")
            assert server.started
            with suppress(AssertionError):  # of a graph without a feed, or that nobody reaches
                wait_until(lambda: _has_columns(app), "the columns are there", patience_s=20.0)
            yield Api(app, f"http://127.0.0.1:{listener.getsockname()[1]}", server)
        finally:
            server.should_exit = True
            thread.join(timeout=PATIENCE_S)
            assert not thread.is_alive()


def envelope(**fields: Any) -> dict[str, Any]:
    """An event, valid unless `fields` say otherwise."""
    return {
        "event_id": str(uuid.uuid4()),
        "event_type": "tool.execute",
        "occurred_at": "2026-02-11T10:30:00Z",
        "session_id": "s",
        "agent_id": "a",
        "trace_id": "t",
        **fields,
    }


class ToldDriver:
    """Runs Cypher that no feed of changes tells; so whoever follows the graph reads it anew.

    Args:
        driver: of the graph.
    """

    def __init__(self, driver: neo4j.Driver) -> None:
        self._driver = driver
        self._graph = Neo4jGraph(driver)

    def execute_query(self, text: LiteralString, **parameters: Any) -> neo4j.EagerResult:
        """As the driver does."""
        result: neo4j.EagerResult = self._driver.execute_query(text, **parameters)
        self._graph.renew_feed()
        return result


class Graph:
    """Puts events into a graph as the projection would, without a ledger."""

    def __init__(self, driver: neo4j.Driver) -> None:
        self.driver = ToldDriver(driver)
        for text in schema_statements().values():
            driver.execute_query(text)
        driver.execute_query("CALL db.awaitIndexes(30)")

    def add(self, events: Sequence[Mapping[str, Any]], tenant: str = "acme") -> None:
        """Event nodes; `occurred_at` as text."""
        rows = [
            {
                "id": event["event_id"],
                "at": timestamp_ms(event["occurred_at"]),
                "rest": {
                    "global_position": f"{1_000 + number}-0",
                    "schema_version": 1,
                    **{k: v for k, v in event.items() if k not in ("event_id", "occurred_at")},
                },
            }
            for number, event in enumerate(events)
        ]
        self.driver.execute_query(
            f"UNWIND $rows AS row MERGE (e:{EVENT.label} {{tenant: $tenant, event_id: row.id}}) "
            "SET e += row.rest, e.occurred_at = datetime({epochMillis: row.at})",
            rows=rows,
            tenant=tenant,
        )

    def add_placeholder(self, event_id: str, tenant: str = "acme") -> None:
        """A cause that has not come."""
        self.driver.execute_query(
            f"CREATE (:{EVENT.label}:{PLACEHOLDER} {{tenant: $tenant, event_id: $id}})",
            id=event_id,
            tenant=tenant,
        )

    def link(
        self, kind: str, pairs: Sequence[tuple[str, str]], tenant: str = "acme", **properties: Any
    ) -> None:
        """Edges of a type between events, by ids."""
        self.driver.execute_query(
            f"UNWIND $pairs AS pair MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: pair[0]}}) "
            f"MATCH (b:{EVENT.label} {{tenant: $tenant, event_id: pair[1]}}) "
            f"CREATE (a)-[r:{kind}]->(b) SET r = $properties",
            pairs=[list(pair) for pair in pairs],
            tenant=tenant,
            properties=properties,
        )

    def cause(self, effect: str, cause: str, tenant: str = "acme") -> None:
        """`effect` was caused by `cause`, directly."""
        self.link(CAUSED_BY.type, [(effect, cause)], tenant, mechanism="direct")

    def follow(self, earlier: str, later: str, delta_ms: int = 1_000) -> None:
        """`later` is the next event of the session."""
        self.link(FOLLOWS.type, [(earlier, later)], session_id="s", delta_ms=delta_ms)

    def checkpoint(
        self,
        partition: int,
        position: str,
        seq: int,
        *,
        stage: str = "projection",
        models: str | None = None,
    ) -> None:
        """A stage has come this far, with these models."""
        self.driver.execute_query(
            f"MERGE (c:{CHECKPOINT.label} {{stage: $stage, partition: $partition}}) "
            "SET c.position = $position, c.seq = $seq, c.digest = '', c.generation = 1, "
            "c.fold_version = 1, c.models = $models",
            stage=stage,
            models=models,
            partition=partition,
            position=position,
            seq=seq,
        )


def assert_problem(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The answer is a problem of this kind, in the one shape; returns it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:recollect:problem:{kind}"
    assert body["status"] == status
    assert {type(body[name]) for name in ("title", "detail", "instance", "request_id")} == {str}
    assert all(set(item) == {"field", "rule"} for item in body["errors"])
    assert body["request_id"] == response.headers["x-request-id"]
    return body
