"""What a query does beside answering: it remembers, it is counted, it goes without what is away."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import neo4j
import pytest

from consolidation.forgetting_payloads import ACCESSED_EVENT, Accessed, parse_accessed
from pipelines.local.servers import ValkeyServer
from projections.events import PARTITION_KEY, Event, decode_event
from projections.identity import START, partition_of
from projections.schema import CAUSED_BY
from tests.integration.api_support import (
    Api,
    Graph,
    envelope,
    running_api,
)
from tests.integration.query_support import Memory, ask, atlas, found_ids, ids
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

SLOW = {"channel_timeout_ms": 30_000}
FAR = f"{2**40}-0"


@pytest.fixture
def memory(neo4j_url: str) -> Iterator[Memory]:
    with neo4j.GraphDatabase.driver(neo4j_url, notifications_min_severity="OFF") as driver:
        yield Memory(driver)


@pytest.fixture
def api(redis_url: str, neo4j_url: str, memory: Memory) -> Iterator[Api]:
    with running_api(redis_url, neo4j_url, **SLOW) as running:
        yield running


def send(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    event = envelope(**fields)
    answer = client.post("/v1/events", json=event)
    assert answer.status_code == 201, answer.text
    return {**event, "position": answer.json()["global_position"]}


def projected_until(api: Api, graph: Graph, position: str) -> None:
    """All partitions are projected so far, and the API has seen that."""
    for partition in range(8):
        graph.checkpoint(partition, position, 1)
    watch = api.app.state.services.watch
    wait_until(
        lambda: {str(one) for one in (watch.projected() or {}).values()} == {position},
        "that the API sees the checkpoints",
    )


def accessed(api: Api) -> list[Event]:
    """The events of what was read, in the ledger."""
    ledger = api.app.state.services.ledger()
    partition = partition_of("acme", PARTITION_KEY, ledger.partitions)
    events = [decode_event(one.data) for one in ledger.read(partition, START, 1_000)]
    return [event for event in events if event.event_type == ACCESSED_EVENT]


# the same answer again


def test_an_answer_is_given_again_until_a_session_that_it_shows_goes_on(
    api: Api, client: httpx.Client, memory: Memory
) -> None:
    (shown,) = ids(1)
    memory.say({shown: "payment failed"}, session_id="shown")
    position = send(client, session_id="elsewhere")["position"]
    projected_until(api, memory, position)

    def cached(**fields: Any) -> bool:
        return atlas(ask(client, "payment", **fields)).meta.cached

    assert not cached()
    assert cached()
    assert not cached(max_nodes=7)
    assert not cached(user_id="ann")
    assert not cached(min_position=position)
    send(client, session_id="elsewhere")
    time.sleep(1.5)  # what was read is appended as an event of the system
    assert accessed(api)
    assert cached()
    send(client, session_id="shown")
    assert not cached()
    send(client, session_id="s")
    assert not cached()


def test_what_may_be_incomplete_is_not_given_again(
    redis_url: str, neo4j_url: str, memory: Memory, tmp_path: Path
) -> None:
    memory.say({ids(1)[0]: "payment failed"})
    options = {**SLOW, "embedding_folder": tmp_path}
    with running_api(redis_url, neo4j_url, **options) as api, api.client() as client:
        projected_until(api, memory, FAR)
        answers = [atlas(ask(client, "payment")) for _ in range(2)]
    assert [one.meta.cached for one in answers] == [False, False]
    for one in answers:
        assert [node.node_id for node in one.nodes] == ids(1)
        assert one.meta.channels["vector"].status != "ok"
        assert "keywords alone" in " ".join(one.meta.degraded)


def test_an_activation_that_takes_too_long_gives_way(
    redis_url: str, neo4j_url: str, memory: Memory
) -> None:
    first, second = ids(2)
    memory.say({first: "payment failed", second: "weather is fine"})
    memory.link(CAUSED_BY.type, [(second, first)], mechanism="direct")
    options = {**SLOW, "activation_timeout_ms": 1}
    with running_api(redis_url, neo4j_url, **options) as api, api.client() as client:
        answer = atlas(ask(client, "payment", retrieval_method="activation"))
    assert {node.node_id for node in answer.nodes} >= {first, second}
    assert answer.meta.retrieval_method == "intent_weighted"
    assert "activation took more than 1 ms" in " ".join(answer.meta.degraded)


# counted


def test_what_was_shown_is_counted_once_a_second(
    api: Api, client: httpx.Client, memory: Memory
) -> None:
    first, second = ids(2)
    memory.say({first: "payment failed", second: "payment retried"})
    entity = memory.mention([first], "Payment")
    for fields in ({}, {"session_id": "t"}, {"record_access": False}, {"as_of_position": FAR}):
        assert first in found_ids(ask(client, "Payment", **fields))
    found: list[Event] = []

    def counted() -> bool:
        found[:] = accessed(api)
        return sum(parse_accessed(one.payload).events.get(first, 0) for one in found) == 2

    wait_until(counted, "two reads in the ledger")
    everything = [parse_accessed(one.payload) for one in found]
    assert {own_id for one in everything for own_id in one.entities} == {
        entity.removeprefix("entity:")
    }
    assert {one.tenant for one in found} == {"acme"}
    assert all(isinstance(one, Accessed) for one in everything)


# contents


def test_payloads_come_from_the_ledger_on_request(client: httpx.Client, memory: Memory) -> None:
    known, unknown = send(client, payload={"text": "payment failed"}), str(uuid.uuid4())
    memory.say({known["event_id"]: "payment failed", unknown: "payment retried"})
    nodes = {node.node_id: node for node in atlas(ask(client, "payment")).nodes}
    assert {node.content for node in nodes.values()} == {None}
    answer = ask(client, "payment", include=["content"])
    nodes = {node.node_id: node for node in atlas(answer).nodes}
    assert nodes[known["event_id"]].content == {"text": "payment failed"}
    assert nodes[known["event_id"]].content_omitted is None
    assert (nodes[unknown].content, nodes[unknown].content_omitted) == (None, "not in the ledger")


# services away


def test_while_the_ledger_is_away_queries_are_answered(
    tmp_path: Path, neo4j_url: str, memory: Memory
) -> None:
    (shown,) = ids(1)
    memory.say({shown: "payment failed"})
    valkey = ValkeyServer(tmp_path / "valkey")
    valkey.start()
    valkey.wait_ready()
    try:
        with running_api(valkey.url, neo4j_url, **SLOW) as api, api.client() as client:
            assert found_ids(ask(client, "payment")) == [shown]
            valkey.kill()
            services = api.app.state.services
            wait_until(lambda: services.watch.sample.ledger_error, "that Redis is missed")
            found = atlas(ask(client, "payment", include=["content"]))
            assert [node.node_id for node in found.nodes] == [shown]
            assert found.nodes[0].content_omitted == "ledger away"
            assert not found.meta.cached
            # what was read waits, in bounded memory
            assert services.accesses.waiting("acme") >= 1
    finally:
        valkey.kill()
