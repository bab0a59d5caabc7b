"""What the memory knew at a position: late events change the graph, and not what was known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.schemas import AtlasResponse, Edge
from projections.events import Event
from projections.schema import FOLLOWS
from tests.factories import event, event_id
from tests.integration.api_support import Api, assert_problem, running_api
from tests.integration.query_support import PATIENT
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS

pytestmark = pytest.mark.integration

SESSION = "session-1"


@pytest.fixture
def api(stack: Stack, redis_url: str, neo4j_url: str) -> Iterator[Api]:
    options = {"partitions": PARTITIONS, "id_buckets": 64, "channel_timeout_ms": 30_000}
    with running_api(redis_url, neo4j_url, **options) as running:
        yield running


def said(number: int, at: int) -> Event:
    return event(number, tenant="acme", at=at, payload={"text": f"payment {number} failed"})


def known(answer: httpx.Response) -> tuple[set[str], list[Edge]]:
    """The events of an answer, and its edges."""
    assert answer.status_code == 200, answer.text
    found = AtlasResponse.model_validate_json(answer.text, strict=True)
    return {node.node_id for node in found.nodes}, found.edges


def answers(client: httpx.Client, **then: str) -> list[tuple[set[str], list[Edge]]]:
    """What a query, the session's context and a lineage in its order say."""
    first = event_id(1)
    query: dict[str, Any] = {"query": "payment", "session_id": SESSION, "agent_id": "a", **PATIENT}
    seeds = [event_id(number) for number in range(1, 10)]
    order = {"intent": "when", "direction": "both", **PATIENT, **then}
    return [
        known(client.post("/v1/query/subgraph", json={**query, "seed_nodes": seeds, **then})),
        known(client.get(f"/v1/context/{SESSION}", params={**PATIENT, **then})),
        known(client.get(f"/v1/nodes/{first}/lineage", params=order)),
        known(client.get(f"/v1/nodes/{event_id(3)}/lineage", params=order)),
    ]


def test_what_came_late_does_not_break_the_order_that_was_known(
    stack: Stack, client: httpx.Client
) -> None:
    appended = stack.append(said(1, at=0), said(2, at=10_000), said(3, at=20_000))
    stack.fold()
    then = str(appended[-1].position)
    before = answers(client)
    steps = [(event_id(1), event_id(2)), (event_id(2), event_id(3))]
    for ids, edges in before:
        assert ids == {event_id(1), event_id(2), event_id(3)}
        assert [(one.source, one.target) for one in edges] == steps
        assert {one.type for one in edges} == {FOLLOWS.type}
        assert {one.properties["delta_ms"] for one in edges} == {10_000}
    # two in a row between the first two, one before all, one behind
    stack.append(said(4, at=5_000), said(5, at=6_000), said(6, at=-1_000), said(7, at=30_000))
    stack.fold()
    after = answers(client)
    assert all(len(ids) == 7 for ids, _ in after[:2])
    assert all(steps[0] not in [(e.source, e.target) for e in edges] for _, edges in after)
    assert answers(client, as_of_position=then) == before
    assert answers(client, as_of_position=f"{2**64 - 1}-{2**64 - 1}") == after
    late = f"/v1/nodes/{event_id(4)}/lineage"
    assert client.get(late).status_code == 200
    assert_problem(client.get(late, params={"as_of_position": then}), 404, "not-found")


def test_a_walk_passes_over_what_came_late(stack: Stack, client: httpx.Client) -> None:
    appended = stack.append(said(1, at=0), said(2, at=10_000), said(3, at=20_000))
    stack.append(*(said(number, at=10_000 + number) for number in range(4, 12)))
    stack.fold()
    query = {
        "query": "when?",
        "session_id": "elsewhere",
        "agent_id": "a",
        "seed_nodes": [event_id(3)],
        "as_of_position": str(appended[-1].position),
        **PATIENT,
    }
    for depth, expected in ((1, {2, 3}), (2, {1, 2, 3})):
        answer = client.post("/v1/query/subgraph", json={**query, "max_depth": depth})
        assert known(answer)[0] == {event_id(number) for number in expected}


def test_causes_that_came_later_were_not_known(stack: Stack, client: httpx.Client) -> None:
    effect = said(1, at=0)._replace(parent_event_id=event_id(2))
    then = str(stack.append(effect)[0].position)
    stack.append(said(2, at=-1_000))
    stack.fold()
    path = f"/v1/nodes/{event_id(1)}/lineage"
    why: dict[str, Any] = {"intent": "why", **PATIENT}
    assert known(client.get(path, params=why))[0] == {event_id(1), event_id(2)}
    assert known(client.get(path, params={**why, "as_of_position": then})) == ({event_id(1)}, [])
