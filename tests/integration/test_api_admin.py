"""Corrections of entities and of users over HTTP, into a real ledger."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from api.schemas import Accepted
from consolidation.decisions import parse_decision
from consolidation.payloads import Requested
from enrichment.payloads import (
    ENTITY_CORRECTED,
    FACT_ASSERTED,
    FACT_RETRACTED,
    REQUESTED_EVENT,
    EntityCorrected,
    parse_statement,
)
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Ledger
from pipelines.work.settings import ApiKey, Settings
from projections.events import Event, decode_event
from projections.identity import partition_of
from tests.integration.api_support import (
    ADMIN_KEY,
    KEYS,
    READ_KEY,
    WRITE_KEY,
    Api,
    assert_problem,
    envelope,
    running_api,
)

pytestmark = pytest.mark.integration

HASH = "0f" * 16
PATH = f"/v1/admin/entities/entity:{HASH}/corrections"
RENAME = {"correction": "rename", "name": "Ada Lovelace"}


@pytest.fixture
def operator(api: Api) -> Iterator[httpx.Client]:
    with api.client(ADMIN_KEY, **{"X-Tenant": "acme"}) as client:
        yield client


@pytest.fixture
def ledger(redis_url: str) -> Ledger:
    return Ledger(connect_redis(Settings(redis_url=redis_url)), checkpoints=dict)


def stored(ledger: Ledger, accepted: httpx.Response, tenant: str = "acme") -> Event:
    """The event that a correction became."""
    assert accepted.status_code == 202, accepted.text
    entry = ledger.find(tenant, accepted.json()["event_id"])
    assert entry is not None
    assert str(entry.position) == accepted.json()["global_position"]
    return decode_event(entry.data)


def fields_of(answer: httpx.Response) -> list[str]:
    problem = assert_problem(answer, 422, "invalid-input")
    return [item["field"] for item in problem["errors"]]


@pytest.mark.parametrize(
    "body",
    [
        RENAME,
        {"correction": "retype", "type": "service", "subtype": "host", "reason": "it is one"},
        {"correction": "alias", "name": "A. Lovelace", "type": "user"},
        {"correction": "split", "from": ["1a" * 16, f"entity:{'2b' * 16}"]},
    ],
)
def test_a_correction_is_an_event_of_the_ledger(
    operator: httpx.Client, ledger: Ledger, body: dict[str, Any]
) -> None:
    answer = operator.post(PATH, json=body)
    Accepted.model_validate(answer.json(), strict=True)
    event = stored(ledger, answer)
    assert (event.event_type, event.session_id, event.agent_id) == (
        ENTITY_CORRECTED,
        "memory",
        "operator",
    )
    assert event.payload == {**body, "entity_id": f"entity:{HASH}"}
    said = parse_statement(event.event_type, event.payload)
    assert isinstance(said, EntityCorrected)
    assert said.entity_id == HASH
    assert answer.headers["location"] == f"/v1/events/{event.event_id}"
    assert event.trace_id == f"request-{answer.headers['x-request-id']}"


def test_it_lies_with_the_other_system_events_of_the_tenant(
    operator: httpx.Client, ledger: Ledger
) -> None:
    answer = operator.post(PATH, json=RENAME)
    entry = ledger.find("acme", answer.json()["event_id"])
    assert entry is not None
    assert entry.partition == partition_of("acme", "memory", Settings().partitions)


def test_the_same_request_again_is_the_same_correction(
    operator: httpx.Client, ledger: Ledger
) -> None:
    body = {**RENAME, "event_id": str(uuid.uuid4())}
    first, again = (operator.post(PATH, json=body) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert again.json() == {**first.json(), "duplicate": True}
    # the bare hash names the same entity
    bare = operator.post(PATH.replace("entity:", ""), json=body)
    assert bare.json() == again.json()


def test_the_same_id_for_anything_else_is_a_conflict(operator: httpx.Client) -> None:
    body = {**RENAME, "event_id": str(uuid.uuid4())}
    operator.post(PATH, json=body)
    other_name = operator.post(PATH, json={**body, "name": "Ada Byron"})
    assert_problem(other_name, 409, "event-conflict")
    other_entity = operator.post(PATH.replace("0f", "1f"), json=body)
    assert_problem(other_entity, 409, "event-conflict")
    event = envelope()
    operator.post("/v1/events", json=event)
    taken = operator.post(PATH, json={**RENAME, "event_id": event["event_id"]})
    assert_problem(taken, 409, "event-conflict")


def test_without_an_id_each_request_is_a_correction_of_its_own(operator: httpx.Client) -> None:
    first, again = (operator.post(PATH, json=RENAME).json() for _ in range(2))
    assert first["event_id"] != again["event_id"]
    assert not again["duplicate"]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["correction"]),
        ({"correction": "merge"}, ["correction"]),
        ({"correction": "rename"}, ["name"]),
        ({"correction": "rename", "name": "Ada", "colour": "red"}, ["colour"]),
        ({"correction": "split", "from": ["1a" * 16, "Ada"]}, ["from[1]"]),
        ({"correction": "split", "from": [HASH]}, ["from"]),
        ({**RENAME, "event_id": "7"}, ["event_id"]),
        ({**RENAME, "event_id": 7, "name": ""}, ["event_id", "name"]),
        ({**RENAME, "entity_id": HASH}, ["entity_id"]),
        ([RENAME], ["correction"]),
    ],
)
def test_what_breaks_a_rule_is_named_as_it_was_sent(
    operator: httpx.Client, body: Any, fields: list[str]
) -> None:
    assert fields_of(operator.post(PATH, json=body)) == fields


@pytest.mark.parametrize("name", ["Ada", "entity:", "entity:entity:" + HASH, "entity:" + "0F" * 16])
def test_an_entity_is_named_by_its_id(operator: httpx.Client, name: str) -> None:
    answer = operator.post(f"/v1/admin/entities/{name}/corrections", json=RENAME)
    assert fields_of(answer) == ["entity_id"]


def test_only_an_admin_corrects(api: Api) -> None:
    for key in (READ_KEY, WRITE_KEY):
        with api.client(key) as client:
            assert_problem(client.post(PATH, json=RENAME), 403, "forbidden")
    with api.client(None) as nobody:
        assert_problem(nobody.post(PATH, json=RENAME), 401, "unauthenticated")


def test_a_correction_is_of_the_callers_tenant(
    api: Api, operator: httpx.Client, ledger: Ledger
) -> None:
    body = {**RENAME, "event_id": str(uuid.uuid4())}
    with api.client(ADMIN_KEY) as elsewhere:
        other = stored(ledger, elsewhere.post(PATH, json=body), "default")
        # The id is free in the other tenant.
        own = stored(ledger, operator.post(PATH, json={**body, "name": "Ada Byron"}))
        assert (other.tenant, own.tenant) == ("default", "acme")
        assert_problem(operator.post(PATH, json=body), 409, "event-conflict")


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        ({"content": b"{"}, 400, "malformed-json"),
        ({"json": RENAME, "params": {"dry_run": 1}}, 422, "invalid-input"),
        (
            {"content": b"{}", "headers": {"content-type": "text/plain"}},
            415,
            "unsupported-media-type",
        ),
    ],
)
def test_a_request_that_is_none_is_a_problem(
    operator: httpx.Client, sent: dict[str, Any], status: int, kind: str
) -> None:
    headers = {"content-type": "application/json", **sent.pop("headers", {})}
    assert_problem(operator.post(PATH, headers=headers, **sent), status, kind)


BOB_KEY = "write-key-of-bob-0123456789"
OF_A_USER = "/v1/users/ana/corrections"
STATED = {"correction": "state", "relation": "lives_in", "target": "Porto"}


@pytest.mark.parametrize(
    ("body", "event_type", "payload"),
    [
        (STATED, FACT_ASSERTED, {"source_kind": "user_edit"}),
        (
            {"correction": "retract", "relation": "lives_in", "reason": "moved on"},
            FACT_RETRACTED,
            {},
        ),
        (
            {**STATED, "source": {"name": "Ana Reis", "type": "user"}},
            FACT_ASSERTED,
            {"source_kind": "user_edit"},
        ),
    ],
)
def test_what_a_user_corrects_is_a_statement_of_that_user(
    api: Api, ledger: Ledger, body: dict[str, Any], event_type: str, payload: dict[str, Any]
) -> None:
    with api.client(WRITE_KEY) as writer:
        event = stored(ledger, writer.post(OF_A_USER, json=body))
    said = {name: value for name, value in body.items() if name != "correction"}
    assert (event.event_type, event.user_id) == (event_type, "ana")
    assert event.payload == {"source": {"name": "ana", "type": "user"}, **said, **payload}


def test_nobody_corrects_what_is_of_another_user(redis_url: str, neo4j_url: str) -> None:
    bound = ApiKey(name="bob", key=BOB_KEY, tenant="acme", role="write", user_id="bob")
    with running_api(redis_url, neo4j_url, api_keys=(*KEYS, bound)) as running:
        with running.client(BOB_KEY) as bob:
            assert_problem(bob.post(OF_A_USER, json=STATED), 403, "forbidden")
            assert bob.post("/v1/users/bob/corrections", json=STATED).status_code == 202
        with running.client(READ_KEY) as reader:
            assert_problem(reader.post(OF_A_USER, json=STATED), 403, "forbidden")


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({**STATED, "correction": "forget"}, ["correction"]),
        ({"relation": "lives_in", "target": "Porto"}, ["correction"]),
        ({**STATED, "source_kind": "file"}, ["source_kind"]),
        ({"correction": "state", "relation": "lives_in"}, ["target"]),
        ({"correction": "retract", "relation": "prefers"}, ["target"]),
        ({**STATED, "relation": "1 %"}, ["relation"]),
    ],
)
def test_a_correction_of_a_user_that_breaks_a_rule_names_it(
    operator: httpx.Client, body: dict[str, Any], fields: list[str]
) -> None:
    assert fields_of(operator.post(OF_A_USER, json=body)) == fields


def test_everybody_is_no_user_to_correct(operator: httpx.Client) -> None:
    assert fields_of(operator.post("/v1/users/*/corrections", json=STATED)) == ["user_id"]


def test_it_is_documented(operator: httpx.Client) -> None:
    document = operator.get("/openapi.json").json()
    route = document["paths"]["/v1/admin/entities/{entity_id}/corrections"]["post"]
    assert {"202", "401", "403", "409", "422", "503"} <= route["responses"].keys()
    body = route["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/EntityCorrection"}
    kinds = document["components"]["schemas"]["EntityCorrection"]["discriminator"]["mapping"]
    assert set(kinds) == {"rename", "retype", "alias", "split"}
    references = {
        text.rpartition("/")[2]
        for text in _references(document)
        if text.startswith("#/components/schemas/")
    }
    assert references <= document["components"]["schemas"].keys()


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _references(item)


def test_answers_are_json(operator: httpx.Client) -> None:
    assert set(orjson.loads(operator.post(PATH, json=RENAME).content)) == {
        "event_id",
        "global_position",
        "duplicate",
    }


# Passes of consolidation

PASS_PATH = "/v1/admin/reconsolidate"


@pytest.mark.parametrize(
    "body", [{}, {"session_id": "checkout-17"}, {"agent_id": "a", "reason": "the import is done"}]
)
def test_a_pass_is_asked_for_by_an_event_of_the_ledger(
    operator: httpx.Client, ledger: Ledger, body: dict[str, Any]
) -> None:
    answer = operator.post(PASS_PATH, json=body)
    Accepted.model_validate(answer.json(), strict=True)
    event = stored(ledger, answer)
    assert (event.event_type, event.session_id, event.payload) == (REQUESTED_EVENT, "memory", body)
    assert isinstance(parse_decision(event), Requested)
    assert answer.headers["location"] == f"/v1/events/{event.event_id}"


def test_a_pass_is_asked_for_without_a_body(operator: httpx.Client, ledger: Ledger) -> None:
    event = stored(ledger, operator.post(PASS_PATH))
    assert (event.event_type, event.payload) == (REQUESTED_EVENT, {})


def test_a_pass_that_is_asked_for_again_is_the_same_request(operator: httpx.Client) -> None:
    body = {"event_id": str(uuid.uuid4())}
    first, again = (operator.post(PASS_PATH, json=body) for _ in range(2))
    assert again.json() == {**first.json(), "duplicate": True}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ([], ["request"]),
        ({"scope": "all"}, ["scope"]),
        ({"reason": ""}, ["reason"]),
        ({"reason": "x" * 100_000, "now": 1}, ["reason", "now"]),
        ({"session_id": "s", "agent_id": "a"}, ["agent_id"]),
        ({"event_id": "1"}, ["event_id"]),
    ],
)
def test_a_request_for_a_pass_that_breaks_a_rule_names_it(
    operator: httpx.Client, body: Any, fields: list[str]
) -> None:
    assert fields_of(operator.post(PASS_PATH, json=body)) == fields


@pytest.mark.parametrize("key", [READ_KEY, WRITE_KEY])
def test_only_an_admin_asks_for_a_pass(api: Api, key: str) -> None:
    with api.client(key) as client:
        assert_problem(client.post(PASS_PATH, json={}), 403, "forbidden")
    with api.client(None) as nobody:
        assert_problem(nobody.post(PASS_PATH, json={}), 401, "unauthenticated")
