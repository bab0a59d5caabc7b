"""What the API says when something behind it is away, late, full, halted or switched."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import neo4j as neo4j_driver
import pytest
import redis

from api import main as api_main
from api.connections import ActiveGraph, Connections, OpenGraph
from api.main import create_app, open_graph, serve, start_warming
from api.schemas import Ready
from api.services import Services
from api.watcher import Watch
from pipelines.graph.client import Neo4jReader
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.registry import Target, Targets
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError, GraphUnavailable
from projections.identity import Position, partition_of
from tests.fakes.events import numbered_event
from tests.integration.api_support import (
    OTHER_KEY,
    WRITE_KEY,
    Api,
    Graph,
    assert_problem,
    envelope,
    running_api,
)
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j, kill_synced
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

NOWHERE = "bolt://127.0.0.1:1"
PROBLEM = ["application/problem+json"]
OTLP_PROBLEM = ["application/x-protobuf", "application/json"]
OTHER_PROBLEMS = {"/v1/traces": OTLP_PROBLEM, "/v1/logs": OTLP_PROBLEM}
"""Routes whose clients expect problems in the form of their protocol."""


@pytest.fixture
def graph(neo4j_url: str) -> Iterator[Graph]:
    with neo4j_driver.GraphDatabase.driver(neo4j_url) as driver:
        yield Graph(driver)


def ready(client: httpx.Client) -> Ready:
    answer = client.get("/health/ready")
    if answer.status_code == 200:
        return Ready.model_validate(answer.json())
    body = assert_problem(answer, 503, "not-ready")
    assert int(answer.headers["retry-after"]) > 0
    fields = {name: body[name] for name in Ready.model_fields if name != "status"}
    return Ready(status="not ready", **fields)


def is_ready(client: httpx.Client) -> bool:
    return ready(client).status == "ready"


def accepts(client: httpx.Client) -> bool:
    return client.post("/v1/events", json=envelope()).status_code == 201


# services away


def test_while_the_ledger_is_away_reads_go_on_and_events_are_503(
    tmp_path: Path, neo4j_url: str
) -> None:
    valkey = ValkeyServer(tmp_path / "valkey")
    valkey.start()
    valkey.wait_ready()
    try:
        with running_api(valkey.url, neo4j_url) as api, api.client() as client:
            kept = envelope()
            assert client.post("/v1/events", json=kept).status_code == 201
            wait_until(lambda: is_ready(client), "ready")
            kill_synced(valkey)
            answer = client.post("/v1/events", json=envelope())
            assert_problem(answer, 503, "ledger-unavailable")
            assert int(answer.headers["retry-after"]) > 0
            answer = client.post("/v1/events/batch", json=[envelope()])
            assert_problem(answer, 503, "ledger-unavailable")
            wait_until(lambda: not is_ready(client), "not ready")
            state = ready(client)
            assert (state.checks["ledger"].ok, state.checks["graph"].ok) == (False, True)
            assert client.get("/health/live").status_code == 200
            assert client.get("/v1/entities").status_code == 200
            answer = client.get(f"/v1/events/{kept['event_id']}")
            assert_problem(answer, 503, "ledger-unavailable")
            valkey.start()
            valkey.wait_ready()
            wait_until(lambda: is_ready(client), "ready again")
            # The new server process was admitted, and has what it accepted before.
            assert accepts(client)
            assert client.post("/v1/events", json=kept).json()["duplicate"] is True
    finally:
        valkey.stop()


@pytest.fixture
def of_operator(
    start_valkey: Callable[..., ValkeyServer], neo4j_url: str
) -> Iterator[tuple[httpx.Client, redis.Redis]]:
    """A client of an API that is ready, and one of its Redis, which nobody else uses."""
    server = start_valkey()
    with (
        running_api(server.url, neo4j_url) as api,
        api.client() as client,
        redis.from_url(server.url) as operator,
    ):
        wait_until(lambda: is_ready(client), "ready")
        yield client, operator


@pytest.mark.parametrize(
    ("name", "risky", "safe"),
    [("maxmemory-policy", "allkeys-lru", "noeviction"), ("appendonly", "no", "yes")],
)
def test_while_redis_may_lose_events_the_api_is_not_ready(
    of_operator: tuple[httpx.Client, redis.Redis], name: str, risky: str, safe: str
) -> None:
    client, operator = of_operator
    operator.config_set(name, risky)
    wait_until(lambda: not is_ready(client), "not ready")
    assert client.get("/health/ready/ingest").status_code == 503
    assert client.get("/health/ready/read").status_code == 200
    assert client.get("/v1/entities").status_code == 200
    assert "recollect_ledger_at_risk 1.0" in client.get("/metrics").text
    operator.config_set(name, safe)
    wait_until(lambda: is_ready(client), "ready again")
    assert accepts(client)


def test_while_redis_takes_no_write_the_api_reads_and_is_not_ready_for_events(
    of_operator: tuple[httpx.Client, redis.Redis],
) -> None:
    client, operator = of_operator
    kept = envelope()
    assert client.post("/v1/events", json=kept).status_code == 201
    operator.config_set("min-replicas-to-write", 1)
    wait_until(lambda: not is_ready(client), "not ready")
    answer = client.get("/health/ready/ingest")
    assert answer.status_code == 503
    assert "NOREPLICAS" in answer.json()["checks"]["ledger"]["detail"]
    assert client.get("/health/ready/read").status_code == 200
    assert client.get(f"/v1/events/{kept['event_id']}").status_code == 200
    operator.config_set("min-replicas-to-write", 0)
    wait_until(lambda: is_ready(client), "ready again")
    assert accepts(client)


def test_an_emptied_redis_is_not_ready_for_events_before_anybody_sends_one(
    stack: Stack, redis_url: str, neo4j_url: str
) -> None:
    stack.append(
        *(numbered_event(number)._replace(session_id=f"s{number}") for number in range(60))
    )
    stack.fold()
    with (
        running_api(redis_url, neo4j_url, partitions=PARTITIONS, id_buckets=64) as api,
        api.client() as client,
        redis.from_url(redis_url) as operator,
    ):
        wait_until(lambda: is_ready(client), "ready")
        operator.flushall()
        ingest = "/health/ready/ingest"
        wait_until(lambda: client.get(ingest).status_code == 503, "not ready for events")
        assert_problem(client.post("/v1/events", json=envelope()), 503, "partition-halted")


def test_without_a_graph_a_new_ledger_process_is_not_admitted(redis_url: str) -> None:
    """Whether the graph is ahead cannot be known, so no event may be taken."""
    with running_api(redis_url, NOWHERE) as api, api.client() as client:
        state = ready(client)
        assert (state.checks["ledger"].ok, state.checks["graph"].ok) == (False, False)
        answer = client.post("/v1/events", json=envelope())
        assert_problem(answer, 503, "ledger-unavailable")
        answer = client.get("/v1/entities")
        assert_problem(answer, 503, "graph-unavailable")
        assert int(answer.headers["retry-after"]) > 0
        for text in (answer.text, client.get("/v1/nodes/x/lineage").text):
            assert "127.0.0.1" not in text
        assert client.get("/health/live").status_code == 200


def test_a_graph_that_hangs_is_504_and_ingest_goes_on(
    redis_url: str, neo4j_url: str, neo4j: Neo4jServer
) -> None:
    with running_api(redis_url, neo4j_url) as api, api.client() as client:
        wait_until(lambda: is_ready(client), "ready")
        pid = neo4j.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            asked = partial(client.get, "/v1/entities", params={"timeout_ms": 100})
            # Its threads stop one after the other, and some may answer once more.
            wait_until(lambda: asked().status_code != 200, "the graph hangs")
            assert_problem(asked(), 504, "time-limit")
            assert accepts(client)
            wait_until(lambda: not is_ready(client), "not ready to read")
            # Whoever routes by readiness takes it out of reading alone.
            answer = client.get("/health/ready/read")
            assert_problem(answer, 503, "not-ready")
            assert client.get("/health/ready/ingest").status_code == 200
            assert accepts(client)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: client.get("/v1/entities").status_code == 200, "the graph answers")


def test_a_graph_that_was_killed_is_warmed_up_again_and_one_that_was_slow_is_not(
    redis_url: str, second_neo4j: Neo4jServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh: list[bool] = []
    settings = Settings(redis_url=redis_url, neo4j_url=emptied_neo4j(second_neo4j))
    connections = Connections(settings, open_graph)
    watch = Watch(settings, connections, fresh=fresh.append)

    def looked(*, until_read: bool) -> bool:
        watch.look_at_graph()
        return (watch.seen.read_error() is None) == until_read

    try:
        watch.follow()
        wait_until(lambda: looked(until_read=True), "the graph is read")
        with monkeypatch.context() as patch:
            patch.setattr("api.watcher.SAMPLE_TIMEOUT_MS", 0)
            assert looked(until_read=False)
        assert looked(until_read=True)
        assert fresh == []
        second_neo4j.kill()
        wait_until(lambda: looked(until_read=False), "it is away")
        second_neo4j.start()
        second_neo4j.wait_ready()
        wait_until(lambda: looked(until_read=True), "it is back", patience_s=60)
        assert fresh == [True]
    finally:
        connections.close()


def test_reads_are_ready_once_their_questions_are_planned(
    redis_url: str, neo4j_url: str, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_api(redis_url, neo4j_url) as api, api.client() as client:
        wait_until(lambda: client.get("/health/ready").status_code == 200, "all are there")
        planned = threading.Event()
        monkeypatch.setattr(api_main, "warm_up", lambda services: planned.wait())
        warming = start_warming(api.app.state.services, cold=True)
        waiting = assert_problem(client.get("/health/ready/read"), 503, "not-ready")
        assert waiting["detail"] == "Waiting for warm."
        assert client.get("/health/ready/ingest").status_code == 200
        planned.set()
        warming.join()
        assert client.get("/health/ready/read").status_code == 200


# overload


def test_lag_beyond_the_limit_is_429_until_the_projection_catches_up(
    redis_url: str, neo4j_url: str, graph: Graph
) -> None:
    with (
        running_api(
            redis_url, neo4j_url, overload_lag_entries=5, retry_after_s=7, overload_reserve=""
        ) as api,
        api.client() as client,
    ):
        answer = client.post("/v1/events/batch", json=[envelope() for _ in range(6)])
        last = max(Position.parse(item["global_position"]) for item in answer.json()["results"])
        wait_until(lambda: not accepts(client), "refused")
        answer = client.post("/v1/events", json=envelope())
        assert_problem(answer, 429, "overloaded")
        assert answer.headers["retry-after"] == "7"
        answer = client.post("/v1/events/batch", json=[envelope()])
        assert_problem(answer, 429, "overloaded")
        # Reads are not what is too much.
        assert client.get("/v1/entities").status_code == 200
        wait_until(lambda: client.get("/health/ready").status_code == 200, "all are there")
        state = ready(client)
        assert state.overloaded is not None
        assert state.lag_entries is not None
        assert state.lag_entries > 5
        graph.checkpoint(partition_of("acme", "s", 8), str(last), 1_000)
        wait_until(lambda: accepts(client), "accepted again")


def test_an_event_that_waits_too_long_is_429(redis_url: str, neo4j_url: str) -> None:
    with (
        running_api(redis_url, neo4j_url, overload_lag_seconds=0.2, overload_reserve="") as api,
        api.client() as client,
    ):
        assert accepts(client)
        wait_until(lambda: not accepts(client), "refused")
        assert_problem(client.post("/v1/events", json=envelope()), 429, "overloaded")


def test_one_tenants_flood_does_not_refuse_the_others(redis_url: str, neo4j_url: str) -> None:
    with (
        running_api(redis_url, neo4j_url, overload_lag_entries=5, overload_reserve="3/hour") as api,
        api.client() as flood,
        api.client(OTHER_KEY) as quiet,
    ):
        assert (
            flood.post("/v1/events/batch", json=[envelope() for _ in range(6)]).status_code == 200
        )
        wait_until(lambda: not accepts(flood), "refused")
        assert_problem(flood.post("/v1/events", json=envelope()), 429, "overloaded")
        assert [accepts(quiet) for _ in range(4)] == [True, True, True, False]


def test_a_key_beyond_its_limit_is_429_and_others_are_not(redis_url: str, neo4j_url: str) -> None:
    limits = {"*": "100/second", "writer": "3/hour"}
    with (
        running_api(redis_url, neo4j_url, request_limits=limits) as api,
        api.client() as client,
        api.client(OTHER_KEY) as other,
    ):
        statuses = [client.get("/v1/events/x").status_code for _ in range(5)]
        assert statuses == [404, 404, 404, 429, 429]
        answer = client.get("/v1/events/x")
        assert_problem(answer, 429, "rate-limited")
        assert 1 <= int(answer.headers["retry-after"]) <= 3_600
        assert other.get("/v1/events/x").status_code == 404
        assert client.get("/health/live").status_code == 200


def test_a_tenant_beyond_its_quota_is_429(redis_url: str, neo4j_url: str) -> None:
    with (
        running_api(redis_url, neo4j_url, event_limits={"acme": "5/hour"}) as api,
        api.client() as client,
        api.client(OTHER_KEY) as other,
    ):
        assert client.post("/v1/events/batch", json=[envelope()] * 4).status_code == 200
        answer = client.post("/v1/events/batch", json=[envelope()] * 2)
        assert_problem(answer, 429, "rate-limited")
        assert accepts(client)
        assert_problem(client.post("/v1/events", json=envelope()), 429, "rate-limited")
        assert accepts(other)


def test_the_lag_of_each_stage_that_began_is_shown_and_only_the_projections_counts(
    redis_url: str, neo4j_url: str, graph: Graph
) -> None:
    with (
        running_api(redis_url, neo4j_url, overload_lag_entries=2) as api,
        api.client() as client,
    ):

        def shown(series: str) -> bool:
            return series in client.get("/metrics").text.splitlines()

        assert accepts(client)
        for partition in range(8):
            graph.checkpoint(partition, "0-0", 0, stage="enrichment", models="others@1")
        lag = 'recollect_lag_entries{stage="enrichment",target="blue"}'
        wait_until(lambda: shown(f"{lag} 1.0"), "the lag of the enrichment")
        wait_until(
            lambda: shown('recollect_rebuild_needed{stage="enrichment",target="blue"} 1.0'),
            "that the graph has other models",
        )
        for partition in range(8):
            graph.checkpoint(partition, "9999999999999-0", 1_000)  # all is projected
        for _ in range(5):
            assert accepts(client)
        wait_until(lambda: shown(f"{lag} 6.0"), "a lag beyond the limit of ingest")
        # Ledger and graph are looked at apart: for a moment the projection seems behind, too.
        wait_until(lambda: accepts(client), "events are taken")


def test_full_memory_is_429(tmp_path: Path, neo4j_url: str) -> None:
    valkey = ValkeyServer(tmp_path / "valkey", extra_args=["--maxmemory", "16mb"])
    valkey.start()
    valkey.wait_ready()
    try:
        with (
            running_api(valkey.url, neo4j_url, overload_memory_ratio=0.5) as api,
            api.client() as client,
        ):
            batch = [envelope(payload="x" * 20_000) for _ in range(100)]

            def filled() -> bool:
                for event in batch:
                    event["event_id"] = envelope()["event_id"]
                return client.post("/v1/events/batch", json=batch).status_code == 429

            wait_until(filled, "refused")
            answer = client.post("/v1/events", json=envelope())
            assert "memory" in assert_problem(answer, 429, "overloaded")["detail"]
    finally:
        valkey.stop()


# a graph ahead of its ledger


def test_a_halted_partition_refuses_its_own_events_only(
    redis_url: str, neo4j_url: str, graph: Graph
) -> None:
    halted = partition_of("acme", "s", 8)
    others = next(f"s{n}" for n in range(99) if partition_of("acme", f"s{n}", 8) != halted)
    graph.checkpoint(halted, "1700000000000-1", 41)
    with running_api(redis_url, neo4j_url) as api, api.client() as client:
        answer = client.post("/v1/events", json=envelope())
        assert_problem(answer, 503, "partition-halted")
        assert int(answer.headers["retry-after"]) > 0
        batch = [envelope(), envelope(session_id=others)]
        answer = client.post("/v1/events/batch", json=batch)
        assert answer.status_code == 207
        assert [item["status"] for item in answer.json()["results"]] == [503, 201]
        assert answer.json()["counts"]["unavailable"] == 1
        wait_until(lambda: ready(client).halted_partitions, "halted partitions are shown")
        assert list(ready(client).halted_partitions) == [str(halted)]
        assert ready(client).status == "ready"


# targets


def blue_and_green(redis_url: str, blue_url: str, green_url: str) -> Targets:
    """Two targets, of which blue is the active one."""
    targets = Targets(connect_redis(Settings(redis_url=redis_url)))
    targets.register(Target("blue", blue_url, "neo4j"))
    targets.register(Target("green", green_url, "neo4j"))
    targets.activate("blue")
    return targets


def test_reads_follow_the_active_target_without_a_failure(redis_url: str, neo4j_url: str) -> None:
    targets = blue_and_green(redis_url, neo4j_url, neo4j_url)
    statuses: list[int] = []
    stop = threading.Event()
    with running_api(redis_url, neo4j_url) as api, api.client() as client:

        def poll() -> None:
            with api.client() as reader:
                while not stop.is_set():
                    statuses.append(reader.get("/v1/entities").status_code)

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            wait_until(lambda: len(statuses) > 3, "reads")
            for name in ("green", "blue", "green"):
                targets.activate(name)
                wait_until(
                    lambda name=name: _active(api) == name,  # type: ignore[misc]  # bound now
                    f"{name} is read",
                )
                seen = len(statuses)
                wait_until(lambda seen=seen: len(statuses) > seen + 2, "reads")  # type: ignore[misc]
            wait_until(lambda: ready(client).target == "green", "shown")
        finally:
            stop.set()
            thread.join()
    assert set(statuses) == {200}


def test_another_graph_is_warm_before_it_is_read_from(
    redis_url: str, neo4j_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = blue_and_green(redis_url, neo4j_url, neo4j_url)
    with neo4j_driver.GraphDatabase.driver(neo4j_url) as driver:
        Neo4jGraph(driver).ensure_schema()

    monkeypatch.setattr("api.connections.WARM_WITHIN_S", 600.0)
    warmed: list[tuple[object, str | None, bool]] = []
    go_on = threading.Event()

    def warmed_up(services: Services, graph: OpenGraph) -> bool:
        complete = warm_up_once(services, graph)
        warmed.append((services, _active(api), complete))
        go_on.wait()
        return complete

    warm_up_once = api_main._warmed_up
    monkeypatch.setattr(api_main, "_warmed_up", warmed_up)
    with running_api(redis_url, neo4j_url) as api, api.client() as client:
        services = api.app.state.services
        targets.activate("green")
        try:
            # nobody asks anything but the API itself: in words, and from nodes of every kind
            wait_until(lambda: (services, "blue", True) in warmed, "questions of our own", 180)
            assert client.get("/v1/entities").status_code == 200
            assert _active(api) == "blue"
        finally:
            go_on.set()
        wait_until(lambda: _active(api) == "green", "the other graph is read from")
        assert len(warmed) == 1


def test_a_graph_that_takes_too_long_to_be_warmed_is_read_from_all_the_same(
    neo4j_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who switched has said that it is to be read."""
    monkeypatch.setattr("api.connections.WARM_WITHIN_S", 600.0)
    active = ActiveGraph(Settings(), open_graph)
    active.follow(Target("blue", neo4j_url, "neo4j"))
    green, ends = Target("green", neo4j_url, "neo4j"), threading.Event()
    warming: list[tuple[OpenGraph, threading.Thread]] = []

    def warm(graph: OpenGraph) -> None:
        warming.append((graph, threading.current_thread()))
        ends.wait()

    wait_until(lambda: active.follow(green, warm) or warming, "the columns are there")
    assert not active.follow(green, warm)
    assert active._coming is not None
    active._coming.warm_by_s = 0.0
    assert active.follow(green, warm)
    ((graph, thread),) = warming
    active.close()
    assert isinstance(graph.reader, Neo4jReader)
    graph.reader.counts()  # whoever warms it may go on
    ends.set()
    thread.join()
    with pytest.raises(neo4j_driver.exceptions.DriverError):
        graph.reader.driver.verify_connectivity()


def test_a_switch_that_is_taken_back_ends_what_was_begun(neo4j_url: str) -> None:
    active = ActiveGraph(Settings(), open_graph)
    blue, green = (Target(name, neo4j_url, "neo4j") for name in ("blue", "green"))
    active.follow(blue)
    ends, warming = threading.Event(), list[OpenGraph]()

    def warm(graph: OpenGraph) -> None:
        warming.append(graph)
        ends.wait()

    wait_until(lambda: active.follow(green, warm) or warming, "it is being warmed")
    assert not active.follow(blue, warm)
    assert active.target == blue
    ends.set()
    (graph,) = warming
    assert isinstance(graph.reader, Neo4jReader)
    with active.reader() as reader:
        reader.counts()
    active.close()


@pytest.mark.parametrize("why", ["away", "dropped"])
def test_a_graph_that_nobody_can_stay_with_is_left_before_the_other_one_is_warm(
    redis_url: str, neo4j_url: str, why: str
) -> None:
    blue_url = NOWHERE if why == "away" else neo4j_url
    targets = blue_and_green(redis_url, blue_url, neo4j_url)
    connections = Connections(Settings(redis_url=redis_url), open_graph)
    warmed: list[OpenGraph] = []
    fresh: list[bool] = []
    watch = Watch(
        Settings(redis_url=redis_url), connections, fresh=fresh.append, warm=warmed.append
    )

    def followed() -> str | None:
        watch.follow()
        return connections.graph.target.name if connections.graph.target else None

    try:
        assert followed() == "blue"
        watch.look_at_graph()
        targets.activate("green")
        if why == "dropped":
            targets.drop("blue")
        wait_until(lambda: followed() == "green", "the graph that is there")
        assert (warmed, fresh) == ([], [False])  # it is warmed while it is read from
        watch.look_at_graph()
        assert fresh == [False]
    finally:
        connections.close()


def test_a_graph_that_is_slow_is_not_left_before_the_other_one_is_warm(
    redis_url: str, neo4j_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To warm another one on the same machine may be what makes it slow."""
    targets = blue_and_green(redis_url, neo4j_url, neo4j_url)
    connections = Connections(Settings(redis_url=redis_url), open_graph)
    warmed: list[OpenGraph] = []
    watch = Watch(Settings(redis_url=redis_url), connections, warm=warmed.append)

    def followed() -> bool:
        watch.follow()
        return connections.graph.target is not None and connections.graph.target.name == "green"

    try:
        watch.follow()
        monkeypatch.setattr("api.watcher.SAMPLE_TIMEOUT_MS", 0)
        watch.look_at_graph()
        assert watch.seen.read_error() is not None
        targets.activate("green")
        wait_until(followed, "it is warm")
        assert len(warmed) == 1
    finally:
        connections.close()


def _active(api: Api) -> str | None:
    target = api.app.state.services.connections.graph.target
    return None if target is None else str(target.name)


def test_an_old_driver_is_closed_when_its_last_reader_is_done(neo4j_url: str) -> None:
    active = ActiveGraph(Settings(), open_graph)
    with pytest.raises(GraphUnavailable), active.reader():
        pass
    active.follow(Target("blue", neo4j_url, "neo4j"))
    with active.reader() as old:
        green = Target("green", neo4j_url, "neo4j")
        wait_until(lambda: active.follow(green), "the columns of the other target are there")
        assert not active.follow(Target("green", neo4j_url, "neo4j", "active"))
        old.counts()
        with active.reader() as new:
            assert new is not old
            new.counts()
    assert isinstance(old, Neo4jReader)
    with pytest.raises(neo4j_driver.exceptions.DriverError):
        old.driver.verify_connectivity()
    active.close()


# starting, stopping, describing itself


def test_without_keys_it_refuses_to_start() -> None:
    for start in (create_app, serve):
        with pytest.raises(ConfigurationError, match="no API key"):
            start(Settings())


def test_sigterm_finishes_the_requests_under_way(
    redis_url: str, neo4j_url: str, tmp_path: Path
) -> None:
    script = tmp_path / "serve.py"
    script.write_text(
        "from api.main import serve\n"
        "from pipelines.work.settings import load_settings\n"
        "serve(load_settings(), ready=lambda url: print(url, flush=True))\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "RECOLLECT_REDIS_URL": redis_url,
        "RECOLLECT_NEO4J_URL": neo4j_url,
        "RECOLLECT_API_PORT": "0",
        "RECOLLECT_API_KEYS": json.dumps([{"name": "w", "key": WRITE_KEY, "role": "write"}]),
    }
    with subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with httpx.Client(
                base_url=url, headers={"X-API-Key": WRITE_KEY}, timeout=120
            ) as client:
                wait_until(lambda: _answers(client), "the API answers")
                # Waits for a position that does not come, so it is under way at the signal.
                answers: list[httpx.Response] = []
                params = "?min_position=99999999999999-0&timeout_ms=1500"
                looked = _looks_for_positions(redis_url)
                request = threading.Thread(
                    target=lambda: answers.append(client.get(f"/v1/context/s{params}"))
                )
                request.start()
                wait_until(
                    lambda: _looks_for_positions(redis_url) > looked, "the request is under way"
                )
                process.send_signal(signal.SIGTERM)
                request.join()
            assert_problem(answers[0], 504, "time-limit")
            assert process.wait(timeout=120) == 0
        finally:
            process.kill()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health/live").status_code == 200
    except httpx.TransportError:
        return False


def _looks_for_positions(redis_url: str) -> int:
    """How often Redis was asked for an entry: only a waiting read does so here."""
    info: Any = connect_redis(Settings(redis_url=redis_url)).info("commandstats")
    return int(info.get("cmdstat_xrange", {}).get("calls", 0))


def test_openapi_documents_models_problems_and_security(api: Api) -> None:
    with api.client(None) as client:
        document: dict[str, Any] = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert {"EventEnvelope", "EventBatch", "AtlasResponse", "StoredEvent", "Problem"} <= set(
        schemas
    )
    assert "HTTPValidationError" not in schemas
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert named <= set(schemas)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            if not path.startswith("/v1/"):
                assert "security" not in operation, where
                continue
            assert {name for item in operation["security"] for name in item} == {
                "HTTPBearer",
                "APIKeyHeader",
            }, where
            failures = {c: a for c, a in operation["responses"].items() if int(c) >= 400}
            assert {"401", "403", "422", "503", "500"} <= set(failures), where
            for answer in failures.values():
                assert list(answer["content"]) == OTHER_PROBLEMS.get(path, PROBLEM), where


def test_metrics_know_routes_and_no_tenant(api: Api) -> None:
    accepted = metrics.INGEST_EVENTS.labels(outcome="accepted")
    before = accepted._value.get()
    with api.client() as client:
        client.post("/v1/events", json=envelope(session_id="a-session"))
        client.get("/v1/context/a-session")
        client.get("/a-path-nobody-knows")
        text = client.get("/metrics").text
    assert f'recollect_ingest_events_total{{outcome="accepted"}} {before + 1}' in text
    assert 'route="/v1/context/{session_id}",status="4xx"' in text
    assert 'route="(unmatched)",status="4xx"' in text
    for private in ("a-session", "acme", "a-path-nobody-knows"):
        assert private not in text
