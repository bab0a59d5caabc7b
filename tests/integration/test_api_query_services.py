"""What a query does beside answering: it remembers, it is counted, it goes without what is away."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.retrieval.policy import policy_of
from consolidation.forgetting_payloads import ACCESSED_EVENT, Accessed, parse_accessed
from pipelines.columns.access import ColumnsAccess, RemoteReads
from pipelines.columns.reads import Reached, WalkAsked, Wanted
from pipelines.graph.reads.scope import operator_scope
from pipelines.local.servers import ValkeyServer
from pipelines.work.settings import Settings
from projections.events import PARTITION_KEY, Event, decode_event
from projections.identity import START, partition_of
from projections.schema import CAUSED_BY, REFERENCES
from tests.integration.api_support import (
    WRITE_KEY,
    Api,
    Graph,
    assert_problem,
    envelope,
    running_api,
)
from tests.integration.query_support import PATIENT, Memory, ask, atlas, found_ids, ids
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

SLOW = {"channel_timeout_ms": 30_000}
FAR = f"{2**40}-0"


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
    seen = api.app.state.services.seen
    wait_until(
        lambda: {str(one) for one in (seen.answered_from() or {}).values()} == {position},
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


def test_what_a_person_corrects_ends_every_answer_of_before(
    api: Api, client: httpx.Client, memory: Memory
) -> None:
    memory.say({ids(1)[0]: "payment failed"}, session_id="shown")
    projected_until(api, memory, send(client, session_id="elsewhere")["position"])
    assert [atlas(ask(client, "payment")).meta.cached for _ in range(2)] == [False, True]
    with api.client(WRITE_KEY) as writer:
        fact = {"correction": "state", "relation": "lives_in", "target": "Porto"}
        assert writer.post("/v1/users/ann/corrections", json=fact).status_code == 202
    assert not atlas(ask(client, "payment")).meta.cached


def test_an_answer_of_before_the_enrichment_is_not_given_again(
    api: Api, client: httpx.Client, memory: Memory
) -> None:
    (shown,) = ids(1)
    memory.say({shown: "payment failed"}, session_id="shown")
    for partition in range(8):  # it has begun, and is behind
        memory.checkpoint(partition, "1-0", 0, stage="enrichment")
    position = send(client, session_id="shown")["position"]
    for partition in range(8):
        memory.checkpoint(partition, position, 1)
    seen = api.app.state.services.seen
    wait_until(lambda: seen.answered_from(), "that the API sees the checkpoints")
    assert not atlas(ask(client, "payment")).meta.cached
    assert not atlas(ask(client, "payment")).meta.cached
    for partition in range(8):
        memory.checkpoint(partition, position, 1, stage="enrichment")
    projected_until(api, memory, position)
    assert not atlas(ask(client, "payment")).meta.cached
    assert atlas(ask(client, "payment")).meta.cached


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


def test_whatever_shows_an_event_counts_it_as_read(
    api: Api, client: httpx.Client, memory: Memory
) -> None:
    shown = send(client, session_id="s")["event_id"]
    memory.say({shown: "payment failed"}, session_id="s")
    entity = memory.mention([shown], "Payment")
    paths = (
        f"/v1/events/{shown}",
        "/v1/context/s",
        f"/v1/nodes/{shown}/lineage",
        f"/v1/entities/{entity}",
    )
    for path in paths:
        assert client.get(path, params={"record_access": False}).status_code == 200, path
        assert client.get(path).status_code == 200, path
    at = {"as_of": "2026-02-12T00:00:00Z"}
    assert client.get("/v1/context/s", params=at).status_code == 200

    def reads() -> list[Accessed]:
        return [parse_accessed(one.payload) for one in accessed(api)]

    wait_until(lambda: sum(one.events.get(shown, 0) for one in reads()) == len(paths), "all reads")
    assert sum(one.entities.get(entity.removeprefix("entity:"), 0) for one in reads()) == 1


def test_what_is_no_event_comes_from_events(client: httpx.Client, memory: Memory) -> None:
    cause, failed, other, foreign = ids(4)
    memory.say(dict.fromkeys((cause, failed, other), "it happened"), session_id="s")
    memory.say({foreign: "bob's"}, session_id="s", user_id="bob")
    memory.cause(failed, cause)
    entity = memory.mention([failed, foreign], "Payment Gateway")
    for where in (entity, "entity:payment_gateway"):
        found = atlas(client.get(f"/v1/nodes/{where}/lineage", params=PATIENT))
        assert [(node.node_id, node.depth) for node in found.nodes] == [
            (entity, 0),
            (failed, 1),
            (cause, 2),
        ]
        assert {edge.type for edge in found.edges} == {REFERENCES.type, CAUSED_BY.type}
        assert found.meta.seed_nodes == [entity]
    of_session, of_episode = (f"summary:{memory.summarise(level)}" for level in (2, 1))
    memory.sum_up(of_session, [of_episode])
    memory.sum_up(of_episode, [failed, other])
    found = atlas(client.get(f"/v1/nodes/{of_session}/lineage", params=PATIENT))
    assert {node.node_id: node.depth for node in found.nodes} == {
        of_session: 0,
        of_episode: 1,
        failed: 2,
        other: 2,
        cause: 3,
    }
    assert found.nodes[-1].node_id == cause
    for unknown in ("entity:nobody", "summary:" + "0" * 32, "community:" + "0" * 32):
        answer = client.get(f"/v1/nodes/{unknown}/lineage", params=PATIENT)
        assert_problem(answer, 404, "not-found")


def test_a_context_is_for_what_is_asked_and_may_be_text(
    client: httpx.Client, memory: Memory
) -> None:
    texts = {own_id: f"the courier brought parcel {n}" for n, own_id in enumerate(ids(30), start=1)}
    refund = ids(12)[-1]
    texts[refund] = "a refund of 40 euros was approved"
    memory.say(texts, session_id="s")
    at: dict[str, str | int] = {"as_of": "2026-02-12T01:00:00Z", "max_nodes": 3}
    newest = atlas(client.get("/v1/context/s", params=at))
    assert [node.node_id for node in newest.nodes] == ids(30)[:-4:-1]
    asked = at | {"query": "was the refund approved?"}
    found = atlas(client.get("/v1/context/s", params=asked))
    assert found.nodes[0].node_id == refund
    assert found.nodes[0].scores.relevance_score == 1.0
    text = client.get("/v1/context/s", params=asked, headers={"Accept": "text/markdown"})
    assert text.headers["content-type"].startswith("text/markdown")
    assert "a refund of 40 euros was approved" in text.text
    short = client.get(
        "/v1/context/s", params=asked | {"max_tokens": 50}, headers={"Accept": "text/markdown"}
    )
    assert len(short.text) < len(text.text)


def test_an_activation_that_takes_too_long_gives_way(
    redis_url: str, neo4j_url: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = RemoteReads.walked

    def late(columns: RemoteReads, walk: WalkAsked, wanted: Wanted) -> Reached:
        time.sleep(0.005)
        return walked(columns, walk, wanted)

    monkeypatch.setattr(RemoteReads, "walked", late)
    first, second = ids(2)
    memory.say({first: "payment failed", second: "weather is fine"})
    memory.link(CAUSED_BY.type, [(second, first)], mechanism="direct")
    options = {**SLOW, "activation_timeout_ms": 1}
    with running_api(redis_url, neo4j_url, **options) as api, api.client() as client:
        answer = atlas(ask(client, "payment", retrieval_method="activation"))
    assert {node.node_id for node in answer.nodes} >= {first, second}
    assert answer.meta.retrieval_method == "intent_weighted"
    assert "activation took more than 1 ms" in " ".join(answer.meta.degraded)


def test_no_more_edges_of_a_type_are_followed_than_the_settings_say(
    api: Api, memory: Memory
) -> None:
    hub, *causes = ids(4)
    memory.say(dict.fromkeys((hub, *causes), "payment failed"))
    memory.link(CAUSED_BY.type, [(hub, cause) for cause in causes], mechanism="direct")
    scope = operator_scope("acme", 0)

    def followed(columns: ColumnsAccess, **changed: int) -> set[str]:
        caps = policy_of(Settings(edge_caps=changed).model_dump()).edge_caps
        edges = columns.reads(scope, 30_000, fresh=True).steps([hub], caps).edges()
        return {edge.reached for edge in edges if edge.type == CAUSED_BY.type}

    with api.app.state.services.connections.graph.opened() as graph:
        assert followed(graph.columns) == {*causes}
        assert len(followed(graph.columns, CAUSED_BY=2)) == 2


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
            wait_until(lambda: services.seen.sample.ledger_error, "that Redis is missed")
            found = atlas(ask(client, "payment", include=["content"]))
            assert [node.node_id for node in found.nodes] == [shown]
            assert found.nodes[0].content_omitted == "ledger away"
            assert not found.meta.cached
            # what was read waits, in bounded memory
            assert services.accesses.waiting("acme") >= 1
    finally:
        valkey.kill()
