"""Browsing over HTTP: entities, their events and facts, feedback, pages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from api.read_schemas import EntityList, EntityResponse
from enrichment.names import canonical_name, entity_id
from pipelines.local.servers import Neo4jServer, ValkeyServer
from projections.events import timestamp_text
from projections.schema import REFERENCES, SAME_AS
from tests.factories import START_MS, event, event_id
from tests.integration.api_support import (
    ADMIN_KEY,
    OTHER_KEY,
    READ_KEY,
    Api,
    assert_problem,
)
from tests.integration.facts_support import OTHER, TENANT, Facts, party, told
from tests.integration.query_support import get

pytestmark = pytest.mark.integration

SPOKEN = 7
"""Events that mention the tool."""
USER = "cust-ben"
"""Whose is the last of them."""


def story() -> Facts:
    facts = Facts(first=100)
    facts.say("Charge Service", "depends_on", "Ledger Store")
    facts.say("Charge Service", "has_status", "green", literal=True, user_id=USER)
    facts.say("Charge Service", "depends_on", "nothing", tenant=OTHER)
    facts.say(party("card charger", "tool"), "runs_in", "Frankfurt")
    own_id = entity_id(TENANT, canonical_name("charge_card"), "tool")
    facts.correct(
        {
            "entity_id": f"entity:{own_id}",
            "correction": "alias",
            "name": "card charger",
            "type": "tool",
        }
    )
    for number in range(1, SPOKEN + 1):
        facts.events.append(
            event(
                number,
                tenant=TENANT,
                event_type="tool.call",
                tool_name="charge_card",
                user_id=USER if number == SPOKEN else None,
                at=number * 1_000,
                payload={"arguments": {"amount": "84.00"}},
            )
        )
    for number in range(50, 62):
        facts.say(f"Item {number}", "part_of", "Catalogue")
    return facts


@pytest.fixture(scope="module")
def api(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Api]:
    with told(valkey, neo4j, story().events) as (_, running):
        yield running


def listed(client: httpx.Client, **params: Any) -> EntityList:
    return EntityList.model_validate_json(get(client, "/v1/entities", **params).text, strict=True)


def entity(client: httpx.Client, own_id: str, **params: Any) -> EntityResponse:
    answer = get(client, f"/v1/entities/{own_id}", **params)
    return EntityResponse.model_validate_json(answer.text, strict=True)


# lists


def test_entities_are_found_by_words_and_how_they_begin(client: httpx.Client) -> None:
    assert next(one.name for one in listed(client, query="charge service").entities) == (
        "Charge Service"
    )
    assert "Ledger Store" in [one.name for one in listed(client, query="ledg").entities]
    found = listed(client, query="charge", type="tool").entities
    assert {one.type for one in found} == {"tool"}
    assert all(one.match_score and 0 < one.match_score <= 1 for one in found)
    assert listed(client, query="xylophone").entities == []


def test_pages_of_a_list_are_disjoint_and_complete(client: httpx.Client) -> None:
    for params in ({}, {"query": "item"}, {"type": "concept"}):
        whole = [one.entity_id for one in listed(client, limit=500, **params).entities]
        assert len(whole) >= 10
        paged: list[str] = []
        cursor: str | None = None
        while True:
            more = {} if cursor is None else {"cursor": cursor}
            page = listed(client, limit=3, **params, **more)
            assert len(page.entities) <= 3
            paged += [one.entity_id for one in page.entities]
            cursor = page.next_cursor
            assert page.meta.truncated == (cursor is not None)
            if cursor is None:
                break
        assert paged == whole
        assert len(set(paged)) == len(paged)


def test_a_cursor_of_another_question_is_refused(api: Api, client: httpx.Client) -> None:
    cursor = listed(client, limit=1).next_cursor
    assert cursor is not None
    for params in ({"cursor": cursor, "type": "tool"}, {"cursor": "AAAA"}, {"cursor": cursor[:-3]}):
        body = assert_problem(client.get("/v1/entities", params=params), 422, "invalid-input")
        assert [error["field"] for error in body["errors"]] == ["cursor"]
    with api.client(OTHER_KEY) as stranger:
        answer = stranger.get("/v1/entities", params={"cursor": cursor, "limit": 1})
        assert_problem(answer, 422, "invalid-input")


# one entity


def test_an_entity_has_its_names_facts_and_events(client: httpx.Client) -> None:
    found = entity(client, "entity:charge_card", limit=100, user_id=USER)
    assert found.entity.type == "tool"
    assert found.entity.mention_count == SPOKEN
    assert found.entity.provenance.event_id == event_id(103)
    assert [node.node_id for node in found.events] == [
        event_id(number) for number in range(SPOKEN, 0, -1)
    ]
    names = {found.entity.name, *(alias.name for alias in found.aliases)}
    assert names == {"charge_card", "card charger"}
    assert found.aliases[0].justification == "alias"
    said = [edge for edge in found.edges if edge.type == REFERENCES.type]
    assert {(edge.source, edge.properties["role"]) for edge in said} == {
        (node.node_id, "tool") for node in found.events
    }
    ids = {found.entity.entity_id, *(alias.entity_id for alias in found.aliases)}
    for own_id in ids:
        again = entity(client, own_id, limit=100, user_id=USER)
        assert again.entity == found.entity
        bare = entity(client, own_id.removeprefix("entity:"), user_id=USER)
        assert bare.entity == found.entity
    facts = entity(client, "entity:Charge-Service", user_id=USER).facts
    assert {fact.relation for fact in facts} == {"depends_on", "has_status"}


def test_the_page_of_an_entity_is_nodes_and_edges_too(client: httpx.Client) -> None:
    found = entity(client, "entity:charge_card", limit=3, user_id=USER)
    (mine, alias), events = found.nodes[:2], found.nodes[2:]
    assert [mine.node_id, alias.node_id] == [found.entity.entity_id, found.aliases[0].entity_id]
    assert (mine.type, events) == ("Entity", found.events)
    assert {fact.source.entity_id for fact in found.facts} == {mine.node_id}
    assert mine.attributes["status"] == found.entity.status == "active"
    assert not {"parted_from", "first_event_id", "corrected_type"} & mine.attributes.keys()
    of_tool = next(node for node in (mine, alias) if node.provenance.session_id is not None)
    newest_first = [event_id(number) for number in range(SPOKEN, 0, -1)]
    assert of_tool.provenance.supporting_event_ids == newest_first
    newest = events[0].provenance
    assert replace(of_tool.provenance, supporting_event_ids=[]) == newest
    ids = {node.node_id for node in found.nodes}
    assert all({edge.source, edge.target} <= ids for edge in found.edges)
    assert {REFERENCES.type, SAME_AS.type} <= {edge.type for edge in found.edges}
    meta = found.meta
    assert (meta.returned, meta.nodes_returned, meta.truncated_by) == (3, 5, ["limit"])
    assert (meta.seed_nodes, meta.intent, meta.inferred_intents) == ([mine.node_id], "general", {})
    assert (meta.capacity.max_nodes, meta.capacity.used_nodes) == (3, 3)
    assert meta.next_cursor == found.next_cursor
    assert meta.policy_version
    others = entity(client, "entity:charge_card", limit=3, user_id="cust-zoe").nodes
    assert event_id(SPOKEN) not in str(others)


def test_pages_of_events_go_back_in_time(client: httpx.Client) -> None:
    page = {"limit": 3, "user_id": USER}
    first = entity(client, "entity:charge_card", **page)
    second = entity(client, "entity:charge_card", **page, cursor=first.next_cursor)
    third = entity(client, "entity:charge_card", **page, cursor=second.next_cursor)
    ids = [node.node_id for page in (first, second, third) for node in page.events]
    assert ids == [event_id(number) for number in range(SPOKEN, 0, -1)]
    assert third.next_cursor is None


def test_an_entity_as_it_was(client: httpx.Client) -> None:
    moment = timestamp_text(START_MS + 3_000)
    found = entity(client, "entity:charge_card", as_of=moment)
    assert [node.node_id for node in found.events] == [event_id(n) for n in (3, 2, 1)]


def test_for_a_user_nothing_of_others_is_shown(client: httpx.Client) -> None:
    for user, count in ((USER, SPOKEN), ("cust-zoe", SPOKEN - 1)):
        found = entity(client, "entity:charge_card", user_id=user)
        assert len(found.events) == count
    facts = entity(client, "entity:charge service", user_id="cust-zoe").facts
    assert [fact.relation for fact in facts] == ["depends_on"]


def test_an_entity_of_another_tenant_does_not_exist(api: Api, client: httpx.Client) -> None:
    own_id = entity(client, "entity:charge service").entity.entity_id
    with api.client(OTHER_KEY) as stranger:
        theirs = entity(stranger, "entity:charge service")
        assert theirs.entity.entity_id != own_id
        assert [fact.target.name for fact in theirs.facts] == ["nothing"]
        assert_problem(stranger.get(f"/v1/entities/{own_id}"), 404, "not-found")
        ours = {one.entity_id for one in listed(client, limit=500).entities}
        assert not ours & {one.entity_id for one in listed(stranger, limit=500).entities}


@pytest.mark.parametrize("own_id", ["entity:nobody", "0" * 32, "%00", "summary:" + "0" * 32])
def test_an_entity_that_nobody_knows_is_404(client: httpx.Client, own_id: str) -> None:
    assert_problem(client.get(f"/v1/entities/{own_id}"), 404, "not-found")


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("/v1/entities", "limit", "0"),
        ("/v1/entities", "limit", "501"),
        ("/v1/entities", "type", "thing"),
        ("/v1/entities", "cursor", ""),
        ("/v1/entities", "sort", "name"),
        ("/v1/entities/x", "as_of", "now"),
        ("/v1/entities/x", "max_facts", "-1"),
        ("/v1/entities/x", "timeout_ms", "1"),
        ("/v1/summaries/session/x", "limit", "many"),
        ("/v1/summaries/week/x", "scope", None),
        ("/v1/sessions/x/episodes", "min_position", "soon"),
    ],
)
def test_a_broken_rule_is_named(
    client: httpx.Client, path: str, name: str, value: str | None
) -> None:
    params = {} if value is None else {name: value}
    body = assert_problem(client.get(path, params=params), 422, "invalid-input")
    assert [error["field"] for error in body["errors"]] == [name]


# feedback


def test_feedback_is_an_event_and_sent_again_the_same(api: Api, client: httpx.Client) -> None:
    sent = {
        "useful": [event_id(1)],
        "not_useful": ["entity:" + "0f" * 16],
        "comment": "the first one",
        "event_id": str(uuid.uuid4()),
    }
    answer = client.post("/v1/feedback", json=sent)
    assert answer.status_code == 202, answer.text
    assert not answer.json()["duplicate"]
    assert_problem(client.get(answer.headers["location"]), 404, "not-found")
    with api.client(ADMIN_KEY, **{"X-Tenant": TENANT}) as operator:
        stored = operator.get(answer.headers["location"], params={"user_id": "*"}).json()
    assert stored["event_type"] == "memory.feedback"
    assert stored["payload"] == {name: sent[name] for name in ("useful", "not_useful", "comment")}
    assert client.post("/v1/feedback", json=sent).json()["duplicate"]
    other = client.post("/v1/feedback", json={**sent, "comment": "another"})
    assert_problem(other, 409, "event-conflict")


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"useful": ["nothing"]}, "useful[0]"),
        ({"useful": [event_id(1)], "stars": 5}, "stars"),
        ({}, "payload"),
        ([], "useful"),
        ({"useful": [event_id(1)], "event_id": "x"}, "event_id"),
    ],
)
def test_feedback_that_breaks_a_rule_is_refused(
    client: httpx.Client, sent: Any, field: str
) -> None:
    body = assert_problem(client.post("/v1/feedback", json=sent), 422, "invalid-input")
    assert [error["field"] for error in body["errors"]] == [field]


def test_who_may_only_read_may_not_judge(api: Api) -> None:
    with api.client(READ_KEY) as reader:
        answer = reader.post("/v1/feedback", json={"useful": [event_id(1)]})
        assert_problem(answer, 403, "forbidden")


# the document


def test_every_new_path_is_documented(api: Api) -> None:
    with api.client(None) as client:
        document: dict[str, Any] = client.get("/openapi.json").json()
    assert {
        "/v1/query/facts",
        "/v1/entities",
        "/v1/entities/{entity_id}",
        "/v1/summaries/{scope}/{scope_id}",
        "/v1/sessions/{session_id}/episodes",
        "/v1/communities",
        "/v1/communities/{community_id}",
        "/v1/feedback",
    } <= set(document["paths"])
    facts = document["paths"]["/v1/query/facts"]["post"]["responses"]["200"]["content"]
    assert set(facts) == {"application/json", "text/markdown"}
    assert "embedding" not in json.dumps(document["components"]["schemas"]["EntityDetails"])
