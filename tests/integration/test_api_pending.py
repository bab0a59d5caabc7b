"""What was accepted is found at once by its words, before any worker has seen it."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from api.schemas import Node
from pipelines.columns.client import ColumnsClient
from projections.operations import Operations
from tests.fakes.stages import PROJECTING
from tests.integration.api_support import OTHER_KEY, Api, envelope, running_api
from tests.integration.enrichment_support import Enriched
from tests.integration.query_support import ask, atlas
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

OPTIONS: dict[str, Any] = {
    "partitions": PARTITIONS,
    "id_buckets": 64,
    "channel_timeout_ms": 30_000,
    "result_cache_s": 0,
    "record_accesses": False,
}
SAID = {"event_type": "user.message", "payload": {"content": "the zebra sleeps at noon"}}


@pytest.fixture
def stack(make_stack: Callable[..., Stack]) -> Stack:
    made = make_stack()
    made.graph.ensure_schema()
    return made


@pytest.fixture
def api(redis_url: str, neo4j_url: str, stack: Stack) -> Iterator[Api]:
    with running_api(redis_url, neo4j_url, **OPTIONS) as running:
        yield running


def send(client: httpx.Client, **fields: Any) -> str:
    made = envelope(**{**SAID, "event_id": str(uuid.uuid4()), **fields})
    answer = client.post("/v1/events", json=made)
    assert answer.status_code == 201, answer.text
    return str(made["event_id"])


def found(client: httpx.Client, query: str = "zebra", **fields: Any) -> dict[str, Node]:
    """Events of the answer by id; each is there once."""
    nodes = [node for node in atlas(ask(client, query, **fields)).nodes if node.type == "Event"]
    by_id = {node.node_id: node for node in nodes}
    assert len(by_id) == len(nodes)
    return by_id


def marks(client: httpx.Client, query: str = "zebra", **fields: Any) -> dict[str, bool]:
    return {own_id: node.pending for own_id, node in found(client, query, **fields).items()}


def columns_of(api: Api) -> ColumnsClient:
    with api.app.state.services.connections.graph.opened() as graph:
        columns = graph.columns
        assert isinstance(columns, ColumnsClient)
        return columns


def test_an_accepted_event_is_found_by_its_words_and_marked(client: httpx.Client) -> None:
    send(client, session_id="other", payload={"content": "nothing of interest"})
    own_id = send(client)
    node = found(client, include=["content"])[own_id]
    assert node.pending
    assert node.content == SAID["payload"]
    assert "text" in node.found_by
    assert node.attributes["event_type"] == "user.message"
    assert node.provenance.event_id == own_id
    assert node.provenance.session_id == "s"
    text = client.post(
        "/v1/query/subgraph",
        json={"query": "zebra", "session_id": "s", "agent_id": "a"},
        headers={"Accept": "text/markdown"},
    )
    assert "the zebra sleeps at noon" in text.text


def test_nobody_finds_what_is_pending_of_another_user(client: httpx.Client) -> None:
    of_ann = send(client, user_id="ann")
    of_bob = send(client, user_id="bob")
    of_all = send(client)
    assert marks(client, user_id="ann") == {of_ann: True, of_all: True}
    assert marks(client, session_id="new") == {of_all: True}
    assert marks(client, user_id="bob") == {of_bob: True, of_all: True}


def test_another_tenant_does_not_find_it(client: httpx.Client, api: Api) -> None:
    send(client)
    with api.client(OTHER_KEY) as stranger:
        assert marks(stranger) == {}


def test_it_is_found_once_when_each_stage_has_seen_it(client: httpx.Client, stack: Stack) -> None:
    enriched = Enriched(stack)
    own_id = send(client)
    assert marks(client) == {own_id: True}
    stack.fold()
    assert marks(client) == {own_id: False}  # the words are still those of the tail
    later = send(client, payload={"content": "another zebra"})
    assert marks(client) == {own_id: False, later: True}
    stack.fold()
    enriched.fold()
    assert marks(client) == {own_id: False, later: False}


def test_what_a_stage_gives_up_goes_away(client: httpx.Client, api: Api, stack: Stack) -> None:
    def refusing(events: Any, facts: Any) -> Operations:
        if any(event.agent_id == "bad" for _, event in events):
            raise ValueError("a bad agent")
        return PROJECTING.fold(events, facts)

    bad, good = send(client, agent_id="bad"), send(client)
    assert marks(client) == {bad: True, good: True}
    stack.fold(runner=stack.new_runner(replace(PROJECTING, fold=refusing)))
    assert marks(client) == {good: False}
    assert columns_of(api).state().pending == 0


def test_a_killed_process_finds_it_again(client: httpx.Client, api: Api, stack: Stack) -> None:
    first = send(client)
    stack.fold()
    second = send(client)
    assert marks(client) == {first: False, second: True}
    columns = columns_of(api)
    assert columns.pid is not None
    os.kill(columns.pid, signal.SIGKILL)
    wait_until(lambda: columns.state().is_loaded, "a new process has loaded the graph")
    wait_until(lambda: marks(client) == {first: False, second: True}, "the tail is in again")


def test_an_event_that_left_the_graph_is_not_shown_from_the_ledger(
    client: httpx.Client, stack: Stack
) -> None:
    gone, stays = send(client), send(client)
    stack.fold()
    assert marks(client) == {gone: False, stays: False}
    stack.cypher(f"MATCH (e:Event {{event_id: '{gone}'}}) DETACH DELETE e")
    assert marks(client) == {stays: False}


def test_without_redis_the_graph_answers(
    neo4j_url: str, start_valkey: Callable[..., Any], make_stack: Callable[..., Stack]
) -> None:
    valkey = start_valkey()
    stack = make_stack(redis_url=valkey.url)
    with running_api(valkey.url, neo4j_url, **OPTIONS) as api, api.client() as client:
        folded = send(client)
        stack.fold()
        Enriched(stack).fold()
        pending = send(client)
        assert marks(client) == {folded: False, pending: True}
        valkey.kill()
        wait_until(lambda: columns_of(api).state().tail_reason != "", "it says so")
        assert marks(client) == {folded: False}


def test_an_answer_from_what_no_worker_has_seen_has_its_value(client: httpx.Client) -> None:
    send(client, payload={"role": "user", "content": "The zebra eats pancakes"})
    answer = atlas(ask(client, "What does the zebra eat?"))
    assert answer.meta.answered
    assert answer.answer is not None
    assert answer.answer.value is not None
    assert "pancakes" in str(answer.answer.value)


def test_an_answer_from_what_only_the_first_stage_has_seen_has_its_value(
    client: httpx.Client, stack: Stack, api: Api
) -> None:
    own_id = send(client, payload={"role": "user", "content": "The koala drinks lemonade"})
    stack.fold()
    wait_until(
        lambda: not marks(client, "koala").get(own_id, True), "the columns have followed the fold"
    )
    answer = atlas(ask(client, "What does the koala drink?"))
    assert answer.answer is not None
    assert (answer.meta.answered, "lemonade" in str(answer.answer.value)) == (True, True)
