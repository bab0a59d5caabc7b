"""Whatever one tenant asks, and whatever ids it names, nothing of another one is in the answer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.local.servers import Neo4jServer, ValkeyServer
from projections.events import Event
from projections.schema import ENTITY, EVENT
from tests.factories import event
from tests.integration.api_support import OTHER_KEY, WRITE_KEY, Api
from tests.integration.facts_support import OTHER, TENANT, Facts, party, told
from tests.integration.stack import Stack

pytestmark = pytest.mark.integration

ID = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-f-])[0-9a-f]{32}(?![0-9a-f-])"
)
WORDS = ("charge", "card declined", "order 4711", "why did it fail", "Marta", "what else", "who")


def story(tenant: str, first: int) -> list[Event]:
    """The same for every tenant, but for the ids."""
    facts = Facts(first)
    for relation, target in (("works_at", "Acme Corp"), ("uses", "Charge Service")):
        facts.say(party("Marta", "user"), relation, target, tenant=tenant)
    facts.say("Charge Service", "caused", "card declined", tenant=tenant)
    said = [
        event(
            first + 100 + number,
            tenant=tenant,
            event_type="tool.call",
            tool_name="charge_card",
            session_id="checkout",
            at=number * 1_000,
            parent_event_id=None,
            payload={"text": f"charging order 4711 of Marta failed: card declined, {number}"},
        )
        for number in range(6)
    ]
    linked = [
        later._replace(parent_event_id=earlier.event_id)
        for earlier, later in itertools.pairwise(said)
    ]
    return [*facts.events, said[0], *linked]


class World(NamedTuple):
    api: Api
    ids: dict[str, set[str]]
    """Of each tenant: what names its events and entities."""


@pytest.fixture(scope="module")
def world(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[World]:
    events = [*story(TENANT, 1_000), *story(OTHER, 5_000)]
    with told(valkey, neo4j, events) as (stack, api):
        yield World(api, {tenant: ids_of(stack, tenant) for tenant in (TENANT, OTHER)})


def ids_of(stack: Stack, tenant: str) -> set[str]:
    found = stack.cypher(f"MATCH (e:{EVENT.label} {{tenant: $t}}) RETURN e.event_id", t=tenant)
    found += stack.cypher(f"MATCH (n:{ENTITY.label} {{tenant: $t}}) RETURN n.entity_id", t=tenant)
    return set(found)


def answers(client: httpx.Client, word: str, own_id: str, cursor: str | None) -> Iterator[Any]:
    """What every read says to a question with these words, about this id."""
    node = own_id if "-" in own_id else f"entity:{own_id}"
    body = {
        "query": word,
        "session_id": "checkout",
        "agent_id": "agent",
        "record_access": False,
        "timeout_ms": 30_000,
    }
    for path, more in (
        ("/v1/query/subgraph", {}),
        ("/v1/query/subgraph", {"seed_nodes": [node]}),
        ("/v1/query/facts", {"seed_nodes": [node]}),
        ("/v1/query/facts", {"mode": "activation"}),
        ("/v1/query/facts", {"user_id": "Marta"}),
    ):
        yield client.post(path, json={**body, **more})
    page = {} if cursor is None else {"cursor": cursor}
    yield client.get("/v1/entities", params={"query": word, "limit": 3, **page})
    yield client.get("/v1/entities", params={"limit": 5})
    yield client.get(f"/v1/entities/{node}")
    yield client.get(f"/v1/entities/entity:{word}")
    yield client.get(f"/v1/nodes/{own_id}/lineage", params={"direction": "both"})
    yield client.get("/v1/context/checkout")
    yield client.get("/v1/summaries/session/checkout")
    yield client.get("/v1/sessions/checkout/episodes")
    yield client.get(f"/v1/events/{own_id}")


@settings(max_examples=12)
@given(data=st.data())
def test_no_answer_holds_an_id_of_another_tenant(world: World, data: st.DataObject) -> None:
    mine, theirs = data.draw(st.sampled_from([(TENANT, OTHER), (OTHER, TENANT)]))
    word = data.draw(st.sampled_from(WORDS))
    own_id = data.draw(st.sampled_from(sorted(world.ids[TENANT] | world.ids[OTHER])))
    keys = {TENANT: WRITE_KEY, OTHER: OTHER_KEY}
    with world.api.client(keys[theirs]) as stranger:
        listed = stranger.get("/v1/entities", params={"query": word, "limit": 3}).json()
    with world.api.client(keys[mine]) as client:
        for answer in answers(client, word, own_id, listed["next_cursor"]):
            # a busy machine may be late, which is an answer without ids
            assert answer.status_code < 500 or answer.status_code == 504, answer.text
            named = set(ID.findall(answer.text)) - {own_id}
            assert not named & world.ids[theirs], answer.request.url


def test_the_tenants_have_something_to_hide(world: World) -> None:
    assert not world.ids[TENANT] & world.ids[OTHER]
    with world.api.client(WRITE_KEY) as client:
        found = client.post(
            "/v1/query/facts",
            json={"query": "Marta", "session_id": "checkout", "agent_id": "agent"},
        )
        assert set(ID.findall(found.text)) & world.ids[TENANT]
