"""No read route gives a user what belongs to another one, or mixes several."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any

import httpx
import pytest

from consolidation.summary_payloads import summary_id
from pipelines.work.settings import ApiKey
from projections.schema import (
    ABOUT_PERSONS,
    COMMUNITY,
    EXHIBITS_PATTERN,
    MEMBER_OF,
    SUMMARIZES,
    SUMMARY,
    TRAIT,
)
from tests.integration.api_support import ADMIN_KEY, KEYS, READ_KEY, Api, running_api
from tests.integration.query_support import PATIENT, Memory, ids

pytestmark = pytest.mark.integration

ANN_KEY = "read-key-of-ann-01234567890"
USERS: tuple[str | None, ...] = ("ann", "bob", None)
NAMES = {"ann": "annsecret", "bob": "bobsecret", None: "shared"}


@pytest.fixture
def api(redis_url: str, neo4j_url: str) -> Iterator[Api]:
    keys = (*KEYS, ApiKey(name="ann", key=ANN_KEY, tenant="acme", role="read", user_id="ann"))
    with running_api(redis_url, neo4j_url, api_keys=keys) as running:
        yield running


SEEN = {
    "session_count": 3,
    **dict.fromkeys(("first_seen", "last_seen"), datetime(2026, 1, 1, tzinfo=UTC)),
    "holds_until": datetime(2100, 1, 1, tzinfo=UTC),
}
"""When, and how often."""


def derived(memory: Memory, row: Any, own_id: str, users: list[str] | None, **values: Any) -> None:
    memory.driver.execute_query(
        f"CREATE (s:{row.label} {{tenant: 'acme', {row.key[1]}: $own_id}}) SET s += $values",
        own_id=own_id,
        values={"user_ids": users, **values},
    )


def fill(memory: Memory, seed: int) -> dict[str | None, list[str]]:
    """Mixed sessions of two users and nobody; summaries of each, of both, and of before."""
    chosen = random.Random(seed)
    own_ids = ids(18)
    chosen.shuffle(own_ids)
    events: dict[str | None, list[str]] = {
        user: own_ids[n::3] for n, user in enumerate(chosen.sample(USERS, 3))
    }
    shared = []
    for user, mine in events.items():
        word = NAMES[user]
        for own_id in mine:
            fields = {} if user is None else {"user_id": user}
            session = chosen.choice(("s", "other"))
            memory.say({own_id: f"refund parcel {word}"}, session_id=session, **fields)
        source = memory.mention(mine, word)
        shared.append(memory.mention(mine[:1], "parcel"))
        owner = {} if user is None else {"user_id": user}
        memory.relate(
            source,
            shared[0],
            fact=f"{word} parcel",
            event_id=mine[0],
            status="staged",
            **owner,
        )
        for scope in ("session", "agent"):
            users = [] if user is None else [user]
            scope_id = "s" if scope == "session" else "a"
            derived(
                memory,
                SUMMARY,
                summary_id("acme", scope, scope_id, users),
                users,
                scope=scope,
                scope_id=scope_id,
                content=f"refund {word}",
                level=2,
            )
    derived(
        memory,
        SUMMARY,
        "mixed",
        ["ann", "bob"],
        scope="agent",
        scope_id="x",
        content="annsecret bobsecret mixture",
        level=3,
    )
    derived(memory, SUMMARY, "old", None, scope="agent", scope_id="y", content="mixture", level=3)
    derived(memory, COMMUNITY, "both", ["ann", "bob"], name="mixture", summary="annsecret mixture")
    for user in ("ann", "bob"):
        name = f"{user}secret habit"
        held = {"kind": "pattern", "name": name, "user_id": user, "strength": 0.5}
        derived(memory, TRAIT, f"of-{user}", [user], **held, **SEEN, event_ids=events[user][:1])
        memory.mention(events[user], user, "user")
        memory.driver.execute_query(
            f"MATCH (n:Entity {{canonical_name: $name}}), (t:{TRAIT.label} {{name: $trait}}) "
            f"CREATE (n)-[:{EXHIBITS_PATTERN.type}]->(t)",
            name=user,
            trait=name,
        )
    memory.driver.execute_query("MATCH ()-[r:RELATES_TO]->() SET r.source = 'system'")
    every = [own_id for mine in events.values() for own_id in mine]
    memory.driver.execute_query(
        f"MATCH (s:{SUMMARY.label}), (e:Event) WHERE e.event_id IN $ids "
        f"CREATE (s)-[:{SUMMARIZES.type}]->(e)",
        ids=every,
    )
    memory.driver.execute_query(
        f"MATCH (n:Entity), (c:{COMMUNITY.label}) CREATE (n)-[:{MEMBER_OF.type}]->(c)"
    )
    for number in range(len(every) - 1):
        memory.follow(every[number], every[number + 1])
        memory.cause(every[number + 1], every[number])
    return events


def pages_of_users(
    client: httpx.Client, named: dict[str, Any]
) -> Iterator[tuple[str, httpx.Response]]:
    for each in ("ann", "bob"):
        yield "/v1/users/{user_id}", client.get(f"/v1/users/{each}", **named)
        yield "/v1/users/{user_id}/context", client.get(f"/v1/users/{each}/context", **named)


def answers_about_persons(
    client: httpx.Client, user: str | None
) -> Iterator[tuple[str, httpx.Response]]:
    body = {"agent_id": "a", "session_id": "s", **PATIENT, "user_id": user or "nobody"}
    for intent, whom in product(ABOUT_PERSONS, ("ann", "bob")):
        about = {**body, "query": f"secret habit of {whom}", "intent": intent}
        for accept in ("application/json", "text/markdown"):
            answer = client.post("/v1/query/subgraph", json=about, headers={"accept": accept})
            yield "/v1/query/subgraph", answer


def answers(
    client: httpx.Client, events: dict[str | None, list[str]], user: str | None
) -> Iterator[tuple[str, httpx.Response]]:
    """What each route says, by its path in OpenAPI."""
    view: dict[str, Any] = {} if user is None else {"user_id": user}
    get: dict[str, Any] = {"params": {**view, **PATIENT}}
    for session in ("s", "none"):
        body = {
            "query": "annsecret bobsecret shared refund parcel mixture",
            "agent_id": "a",
            "session_id": session,
            **PATIENT,
            "user_id": user or "nobody",
        }
        for accept in ("application/json", "text/markdown"):
            for _ in range(2):  # found, and from the cache
                for route in ("/v1/query/subgraph", "/v1/query/facts"):
                    yield route, client.post(route, json=body, headers={"accept": accept})
    yield from answers_about_persons(client, user)
    for name in ("annsecret", "bobsecret", "shared", "parcel"):
        yield "/v1/entities/{entity_id}", client.get(f"/v1/entities/entity:{name}", **get)
        yield "/v1/facts/{entity_id}", client.get(f"/v1/facts/entity:{name}", **get)
    from_the_beginning = {**view, "from": "0", "wait": "false"}
    yield "/v1/changes", client.get("/v1/changes", params=from_the_beginning)
    yield "/v1/entities", client.get("/v1/entities", **get)
    yield "/v1/sessions", client.get("/v1/sessions", **get)
    yield "/v1/communities", client.get("/v1/communities", **get)
    for own_id in ("both", "community:both"):
        answer = client.get(f"/v1/communities/{own_id}", **get)
        yield "/v1/communities/{community_id}", answer
    # Where a session is named, no user is the session's user: the view of nobody has to be said.
    named: dict[str, Any] = {"params": {**PATIENT, "user_id": user or "nobody"}}
    searched: dict[str, Any] = {"params": {**view, **PATIENT, "query": "secret"}}
    yield "/v1/entities", client.get("/v1/entities", **searched)
    for scope, own_id in (
        ("session", "s"),
        ("agent", "a"),
        ("agent", "summary:mixed"),
        ("agent", "summary:old"),
    ):
        path = f"/v1/summaries/{scope}/{own_id}"
        yield "/v1/summaries/{scope}/{scope_id}", client.get(path, **named)
    yield "/v1/sessions/{session_id}/episodes", client.get("/v1/sessions/s/episodes", **named)
    yield "/v1/sessions/{session_id}/events", client.get("/v1/sessions/s/events", **named)
    yield "/v1/context/{session_id}", client.get("/v1/context/s", **named)
    yield from pages_of_users(client, named)
    for mine in events.values():
        for own_id in mine:
            path = f"/v1/nodes/{own_id}/lineage"
            yield "/v1/nodes/{node_id}/lineage", client.get(path, **get)
            path = f"/v1/nodes/{own_id}/neighbours"
            yield "/v1/nodes/{node_id}/neighbours", client.get(path, **get)
            stored: dict[str, Any] = {"params": view}
            yield "/v1/events/{event_id}", client.get(f"/v1/events/{own_id}", **stored)


NOT_READS = {
    "/v1/admin/dead-letters",  # of operators
    "/v1/admin/operations",
    "/v1/admin/targets",
    "/health/live",
    "/health/ready",
    "/health/ready/ingest",
    "/health/ready/read",
    "/metrics",
}
QUERIES = {"/v1/query/subgraph", "/v1/query/facts"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("user", USERS)
def test_nothing_of_another_user_comes_back(
    api: Api, memory: Memory, seed: int, user: str | None
) -> None:
    events = fill(memory, seed)
    asked = set()
    with api.client(READ_KEY) as client:
        for route, answer in answers(client, events, user):
            asked.add(route)
            assert answer.status_code in (200, 404), (route, answer.text)
            if answer.status_code == 404:
                continue
            assert "mixture" not in answer.text, route
            for other in {"ann", "bob"} - {user}:
                assert NAMES[other] not in answer.text, (route, other)
                for own_id in events[other]:
                    assert own_id not in answer.text, (route, other)
        document = client.get("/openapi.json").json()["paths"]
    reads = {path for path, item in document.items() if "get" in item} - NOT_READS
    assert asked == reads | QUERIES, "a read route that this test does not ask"


def test_keys_say_whose_view_it_is(api: Api, memory: Memory) -> None:
    events = fill(memory, 3)
    with api.client(ANN_KEY) as ann, api.client(READ_KEY) as reader, api.client(ADMIN_KEY) as admin:
        path = "/v1/context/s"
        assert ann.get(path, params={"user_id": "bob"}).status_code == 403
        assert ann.get(path, params={"user_id": "*"}).status_code == 403
        assert reader.get(path, params={"user_id": "*"}).status_code == 403
        mine = ann.get(path, params=PATIENT).json()
        assert (mine["meta"]["user_id"], mine["meta"]["withheld"]) == ("ann", None)
        assert {node["node_id"] for node in mine["nodes"]}.isdisjoint(events["bob"])
        named = reader.get(path, params={**PATIENT, "user_id": "bob"}).json()
        assert {node["node_id"] for node in named["nodes"]}.isdisjoint(events["ann"])
        whole = admin.get(path, params={**PATIENT, "user_id": "*"}, headers={"X-Tenant": "acme"})
        every = whole.json()
        assert (every["meta"]["user_id"], every["meta"]["withheld"]) == ("*", 0)
        assert named["meta"]["withheld"] == len(every["nodes"]) - len(named["nodes"])


def test_what_is_derived_of_a_user_is_shown_to_them_and_to_operators(
    api: Api, memory: Memory
) -> None:
    events = fill(memory, 4)
    with api.client(READ_KEY) as reader, api.client(ADMIN_KEY, **{"X-Tenant": "acme"}) as admin:
        for client, view, shown in (
            (reader, None, ["annsecret habit"]),
            (reader, "ann", ["annsecret habit"]),
            (admin, "*", ["annsecret habit"]),
            (reader, "bob", []),
        ):
            params: dict[str, Any] = {**PATIENT, **({} if view is None else {"user_id": view})}
            page = client.get("/v1/users/ann", params=params)
            patterns = page.json().get("patterns", [])
            assert [one["name"] for one in patterns] == shown, page.text
        (habit,) = reader.get("/v1/users/ann", params=PATIENT).json()["patterns"]
        assert habit["event_ids"] == events["ann"][:1]
        assert habit["holds_until"] == "2100-01-01T00:00:00.000Z"
        text = reader.get("/v1/users/ann/context", params=PATIENT).text
        assert "usually: annsecret habit (3 sessions" in text
        for intent in ABOUT_PERSONS:
            body = {"query": "what of ann?", "intent": intent, "agent_id": "a", "session_id": "x"}
            body["user_id"] = "ann"
            found = reader.post("/v1/query/subgraph", json={**body, **PATIENT}).json()
            assert found["meta"]["intent"] == intent
            assert (
                "usually: annsecret habit (3 sessions, last 2026-01-01)" in found["answer"]["value"]
            )
