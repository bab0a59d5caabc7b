"""Summaries and episodes over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.read_schemas import EpisodeList, SummaryResponse
from consolidation.summary_payloads import episode_scope_id
from pipelines.local.servers import Neo4jServer, ValkeyServer
from projections.schema import SUMMARIZES
from tests.factories import event_id
from tests.integration.api_support import WRITE_KEY, Api, assert_problem, running_api
from tests.integration.consolidation_support import Consolidated
from tests.integration.query_support import get
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j, emptied_valkey
from tests.stages.consolidated import story as consolidated_story

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def api(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Api]:
    """Decisions of passes, folded."""
    redis_url, neo4j_url = emptied_valkey(valkey), emptied_neo4j(neo4j)
    stack = Stack(redis_url, neo4j_url)
    try:
        consolidated = Consolidated(stack)
        for part in consolidated_story():
            consolidated.take_in(*part)
        options = {"partitions": PARTITIONS, "id_buckets": 64}
        key = {"name": "all", "key": WRITE_KEY, "tenant": "*", "role": "admin"}
        with running_api(redis_url, neo4j_url, api_keys=(key,), **options) as running:
            yield running
    finally:
        stack.close()


@pytest.fixture
def client(api: Api) -> Iterator[httpx.Client]:
    """An operator: decisions that name no users are of before, and for operators."""
    with api.client() as opened:
        opened.params = {"user_id": "*"}
        yield opened


def summary(client: httpx.Client, path: str, **params: Any) -> SummaryResponse:
    answer = get(client, f"/v1/summaries/{path}", **params)
    return SummaryResponse.model_validate_json(answer.text, strict=True)


def test_a_session_is_summarised_with_its_episodes_and_links(client: httpx.Client) -> None:
    found = summary(client, "session/session-0")
    assert (found.summary.scope, found.summary.scope_id) == ("session", "session-0")
    assert found.summary.content == "It was said."
    assert found.summary.event_id is not None
    assert [child.scope for child in found.children] == ["episode"]
    assert [(link.scope_id, link.reason) for link in found.links] == [
        ("session-1", "shared_entities")
    ]
    assert found.links[0].evidence == ["ZFA04Y"]
    mine, child = found.nodes
    assert (mine.node_id, mine.type) == (found.summary.summary_id, "Summary")
    assert child.node_id == found.children[0].summary_id
    assert mine.provenance.event_id == found.summary.event_id
    assert mine.provenance.global_position is not None
    (edge,) = found.edges
    assert (edge.source, edge.type, edge.target) == (
        mine.node_id,
        SUMMARIZES.type,
        child.node_id,
    )
    assert (found.meta.seed_nodes, found.meta.nodes_returned) == ([mine.node_id], 2)


def test_a_lineage_of_a_summary_is_bounded_as_any_other(client: httpx.Client) -> None:
    own_id = summary(client, "session/session-0").summary.summary_id
    found = get(client, f"/v1/nodes/{own_id}/lineage", max_nodes=1).json()
    assert [node["node_id"] for node in found["nodes"]] == [own_id]
    assert (found["meta"]["truncated"], found["meta"]["truncated_by"]) == (True, ["max_nodes"])
    assert found["edges"] == []


def test_a_summary_keeps_the_ids_of_what_was_forgotten(client: httpx.Client) -> None:
    (episode,) = summary(client, "session/session-0").children
    assert event_id(4) in episode.source_event_ids
    by_hash = summary(client, f"episode/{episode.summary_id}")
    assert by_hash.summary == episode
    encoded = "".join(f"%{byte:02X}" for byte in episode.scope_id.encode())
    assert summary(client, f"episode/{encoded}").summary == episode
    assert episode.scope_id == episode_scope_id("session-0", "trace-1", 0)
    stored = client.get(f"/v1/events/{event_id(4)}").json()
    assert stored["event_id"] == event_id(4)


def test_an_agent_is_summarised_from_its_sessions(client: httpx.Client) -> None:
    found = summary(client, "agent/agent-1")
    assert {child.scope for child in found.children} == {"session"}
    first = summary(client, "agent/agent-1", limit=1)
    second = summary(client, "agent/agent-1", limit=1, cursor=first.next_cursor)
    assert [*first.children, *second.children] == found.children[:2]


def test_episodes_of_a_session_are_in_order(client: httpx.Client) -> None:
    answer = get(client, "/v1/sessions/session-0/episodes")
    found = EpisodeList.model_validate_json(answer.text, strict=True)
    assert [one.session_id for one in found.episodes] == ["session-0"]
    assert found.next_cursor is None
    nobody = get(client, "/v1/sessions/a%2Fb%20c/episodes").json()
    assert nobody["episodes"] == []


def test_a_summary_that_nobody_wrote_is_404(client: httpx.Client) -> None:
    for path in ("session/nobody", "agent/session-0", "episode/summary:" + "0" * 32):
        assert_problem(client.get(f"/v1/summaries/{path}"), 404, "not-found")
    other = client.get("/v1/summaries/session/session-0", headers={"X-Tenant": "other"})
    assert_problem(other, 404, "not-found")
