"""Ingest over HTTP, into a real ledger."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator

import httpx
import orjson
import pytest
import structlog

from api.schemas import BatchAccepted, StoredEvent
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Ledger
from pipelines.work.settings import Settings
from projections.events import decode_event
from projections.identity import Position
from tests.integration.api_support import (
    ADMIN_KEY,
    KEYS,
    OTHER_KEY,
    READ_KEY,
    USER_KEY,
    WRITE_KEY,
    Api,
    assert_problem,
    envelope,
    running_api,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def api(redis_url: str, neo4j_url: str) -> Iterator[Api]:
    with running_api(redis_url, neo4j_url, max_body_bytes=512 * 1024) as running:
        yield running


@pytest.fixture
def writer(api: Api) -> Iterator[httpx.Client]:
    with api.client() as client:
        yield client


@pytest.fixture
def ledger(redis_url: str) -> Ledger:
    redis = connect_redis(Settings(redis_url=redis_url))
    return Ledger(redis, checkpoints=dict)


def test_an_accepted_event_is_in_the_ledger(writer: httpx.Client, ledger: Ledger) -> None:
    event = envelope(payload={"text": "hello", "n": 1.5})
    answer = writer.post("/v1/events", json=event)
    assert answer.status_code == 201
    assert answer.json().keys() == {"event_id", "global_position", "duplicate"}
    entry = ledger.find("acme", event["event_id"])
    assert entry is not None
    assert str(entry.position) == answer.json()["global_position"]
    assert decode_event(entry.data).payload == event["payload"]
    assert answer.headers["location"] == f"/v1/events/{event['event_id']}"


def test_the_same_event_again_is_a_duplicate_at_the_same_position(writer: httpx.Client) -> None:
    event = envelope()
    first = writer.post("/v1/events", json=event)
    again = writer.post("/v1/events", json=event)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {**first.json(), "duplicate": True}


def test_the_same_id_with_other_content_is_a_conflict(writer: httpx.Client) -> None:
    event = envelope()
    writer.post("/v1/events", json=event)
    answer = writer.post("/v1/events", json={**event, "status": "failed"})
    assert_problem(answer, 409, "event-conflict")


def test_every_broken_rule_is_named(writer: httpx.Client) -> None:
    answer = writer.post("/v1/events", json=envelope(event_type="x", colour="red", agent_id=""))
    fields = {item["field"] for item in assert_problem(answer, 422, "invalid-input")["errors"]}
    assert fields == {"event_type", "colour", "agent_id"}


def test_what_comes_with_a_key_of_a_user_is_theirs(api: Api, ledger: Ledger) -> None:
    unnamed, named = envelope(), envelope(user_id="cara")
    correction = {"correction": "same_as", "entity_id": f"entity:{1:032x}", "other_id": "x"}
    others = [
        envelope(user_id="bob"),
        envelope(event_type="memory.entity_corrected", payload=correction),
        envelope(event_type="memory.consolidation_requested", payload={"session_id": "s"}),
    ]
    with api.client(USER_KEY) as client:
        assert client.post("/v1/events", json=unnamed).status_code == 201
        assert client.post("/v1/events", json={**unnamed, "user_id": "cara"}).status_code == 200
        answer = client.post("/v1/events/batch", json=[named, unnamed, *others])
        problem = assert_problem(client.post("/v1/events", json=others[0]), 422, "invalid-input")
    results = answer.json()["results"]
    assert [result["status"] for result in results] == [201, 200, 422, 422, 422]
    fields = [result["error"]["errors"][0]["field"] for result in results[2:]]
    assert fields == ["user_id", "event_type", "event_type"]
    assert problem["errors"] == [{"field": "user_id", "rule": "the user of the key, or none"}]
    for event in (unnamed, named):
        entry = ledger.find("acme", event["event_id"])
        assert entry is not None
        assert entry.event().user_id == "cara"
    assert [ledger.find("acme", event["event_id"]) for event in others] == [None] * 3


def test_a_private_system_event_is_refused(writer: httpx.Client) -> None:
    answer = writer.post("/v1/events", json=envelope(event_type="memory.forgotten"))
    assert_problem(answer, 422, "invalid-input")
    said = envelope(event_type="memory.feedback", payload={"useful": [str(uuid.uuid4())]})
    assert writer.post("/v1/events", json=said).status_code == 201
    answer = writer.post("/v1/events", json=envelope(event_type="memory.feedback"))
    assert_problem(answer, 422, "invalid-input")


def test_a_statement_is_judged_when_it_is_sent(writer: httpx.Client, ledger: Ledger) -> None:
    fact = {"source": {"name": "Ada"}, "relation": "works_at", "target": "Acme"}
    good = envelope(event_type="memory.fact_asserted", payload=fact)
    bad = envelope(
        event_type="memory.fact_asserted",
        payload={**fact, "source": {}, "edge_type": "Semantic", "valid_to": "2026-01-01T00:00:00Z"},
    )
    early = envelope(
        event_type="memory.fact_asserted", payload={**fact, "valid_to": "2026-01-01T00:00:00Z"}
    )
    assert writer.post("/v1/events", json=good).status_code == 201
    refused = assert_problem(writer.post("/v1/events", json=bad), 422, "invalid-input")
    assert [item["field"] for item in refused["errors"]] == [
        "payload.source.name",
        "payload.edge_type",
    ]
    answer = writer.post("/v1/events/batch", json=[early, good, bad])
    results = answer.json()["results"]
    assert [item["status"] for item in results] == [422, 200, 422]
    assert [item["field"] for item in results[0]["error"]["errors"]] == ["payload.valid_to"]
    assert [ledger.find("acme", one["event_id"]) for one in (bad, early)] == [None, None]


def test_a_batch_judges_each_event_alone_and_in_order(writer: httpx.Client) -> None:
    known, conflicting, new = envelope(), envelope(), envelope()
    writer.post("/v1/events", json=known)
    writer.post("/v1/events", json=conflicting)
    batch = [known, envelope(status="odd"), {**conflicting, "status": "failed"}, new, 7]
    answer = writer.post("/v1/events/batch", json={"events": batch})
    assert answer.status_code == 207
    body = BatchAccepted.model_validate(answer.json(), strict=True)
    assert [result.status for result in body.results] == [200, 422, 409, 201, 422]
    assert body.counts.model_dump() == {
        "accepted": 1,
        "duplicates": 1,
        "conflicts": 1,
        "invalid": 2,
        "unavailable": 0,
    }
    assert [result.error is None for result in body.results] == [True, False, False, True, False]
    error = body.results[1].error
    assert error is not None
    assert [item.field for item in error.errors] == ["status"]


@pytest.mark.parametrize("bare", [True, False])
def test_a_batch_of_good_events_is_200_and_keeps_its_order(
    writer: httpx.Client, bare: bool
) -> None:
    events = [envelope() for _ in range(1_000)]
    body = events if bare else {"events": events}
    answer = writer.post("/v1/events/batch", json=body)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [item["event_id"] for item in results] == [event["event_id"] for event in events]
    positions = [Position.parse(item["global_position"]) for item in results]
    assert positions == sorted(positions)


def test_a_batch_repeats_within_itself(writer: httpx.Client) -> None:
    event = envelope()
    answer = writer.post("/v1/events/batch", json=[event, event])
    assert [item["status"] for item in answer.json()["results"]] == [201, 200]


def test_a_batch_may_be_empty(writer: httpx.Client) -> None:
    assert writer.post("/v1/events/batch", json=[]).json()["results"] == []


@pytest.mark.parametrize(
    "body",
    [{"events": [{}] * 1_001}, [{}] * 1_001, {}, {"events": {}}, 3, {"events": [], "more": 1}],
)
def test_what_is_no_batch_is_refused_as_a_whole(writer: httpx.Client, body: object) -> None:
    assert_problem(writer.post("/v1/events/batch", json=body), 422, "invalid-input")


def test_a_stored_event_comes_back_whole(writer: httpx.Client) -> None:
    event = envelope(payload=["a", {"b": None}], user_id="u", importance_hint=9)
    position = writer.post("/v1/events", json=event).json()["global_position"]
    path, params = f"/v1/events/{event['event_id'].upper()}", {"min_position": "1-0"}
    assert_problem(writer.get(path, params=params), 404, "not-found")
    answer = writer.get(path, params={**params, "user_id": "u"})
    assert answer.status_code == 200
    stored = answer.json()
    StoredEvent.model_validate(stored, strict=True)
    assert stored["payload"] == event["payload"]
    assert stored["global_position"] == position
    assert stored["occurred_at"] == "2026-02-11T10:30:00.000Z"
    assert stored["provenance"] == {
        "event_id": event["event_id"],
        "global_position": position,
        "source": "redis",
        "occurred_at": "2026-02-11T10:30:00.000Z",
        "session_id": "s",
        "agent_id": "a",
        "trace_id": "t",
    }


def test_an_event_that_is_not_there_is_404(writer: httpx.Client) -> None:
    assert_problem(writer.get(f"/v1/events/{uuid.uuid4()}"), 404, "not-found")


# tenants and keys


def test_no_tenant_sees_anothers_event(api: Api, writer: httpx.Client) -> None:
    event = envelope()
    writer.post("/v1/events", json=event)
    with api.client(OTHER_KEY) as stranger:
        assert_problem(stranger.get(f"/v1/events/{event['event_id']}"), 404, "not-found")
        # The id is free in the other tenant: not even a conflict tells of the first.
        assert stranger.post("/v1/events", json={**event, "status": "failed"}).status_code == 201


def test_an_envelope_names_the_callers_tenant_or_none(writer: httpx.Client) -> None:
    assert writer.post("/v1/events", json=envelope(tenant="acme")).status_code == 201
    answer = writer.post("/v1/events", json=envelope(tenant="other"))
    assert assert_problem(answer, 422, "invalid-input")["errors"][0]["field"] == "tenant"
    answer = writer.post("/v1/events/batch", json=[envelope(tenant="other"), envelope()])
    assert [item["status"] for item in answer.json()["results"]] == [422, 201]


def test_a_key_of_all_tenants_names_one(api: Api) -> None:
    event = envelope()
    with api.client(ADMIN_KEY) as operator:
        assert operator.post("/v1/events", json=event).status_code == 201
        assert operator.get(f"/v1/events/{event['event_id']}").json()["tenant"] == "default"
        at_acme = {"X-Tenant": "acme"}
        answer = operator.get(f"/v1/events/{event['event_id']}", headers=at_acme)
        assert_problem(answer, 404, "not-found")
        answer = operator.get("/v1/events/x", headers={"X-Tenant": "No Tenant"})
        assert_problem(answer, 422, "invalid-input")


def test_a_key_of_one_tenant_does_not_name_another(api: Api) -> None:
    with api.client(WRITE_KEY, **{"X-Tenant": "other"}) as client:
        assert_problem(client.post("/v1/events", json=envelope()), 403, "forbidden")
    with api.client(WRITE_KEY, **{"X-Tenant": "acme"}) as client:
        assert client.post("/v1/events", json=envelope()).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong-key-0123456789"},
        {"Authorization": f"Basic {WRITE_KEY}"},
        {"Authorization": WRITE_KEY},
        {"X-API-Key": WRITE_KEY[:-1]},
        {"X-API-Key": ""},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/events"),
        ("POST", "/v1/events/batch"),
        ("GET", "/v1/events/x"),
        ("GET", "/v1/context/s"),
        ("GET", "/v1/nodes/x/lineage"),
    ],
)
def test_without_a_valid_key_nothing_is_told(
    api: Api, method: str, path: str, headers: dict[str, str]
) -> None:
    with api.client(None) as client:
        answer = client.request(method, path, headers=headers)
    assert_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_both_headers_carry_a_key(api: Api) -> None:
    with api.client(None, **{"X-API-Key": WRITE_KEY}) as client:
        assert client.post("/v1/events", json=envelope()).status_code == 201


def test_reading_does_not_include_writing(api: Api) -> None:
    with api.client(READ_KEY) as reader:
        assert_problem(reader.post("/v1/events", json=envelope()), 403, "forbidden")
        assert_problem(reader.get("/v1/events/unknown"), 404, "not-found")


def test_writing_includes_reading_and_admin_writing(api: Api) -> None:
    with api.client(WRITE_KEY) as client:
        assert client.get("/v1/entities").status_code == 200
    with api.client(ADMIN_KEY) as client:
        assert client.post("/v1/events", json=envelope()).status_code == 201


def test_insecure_dev_needs_no_key(redis_url: str, neo4j_url: str) -> None:
    with (
        running_api(redis_url, neo4j_url, api_keys=(), insecure_dev=True) as api,
        api.client(None, **{"X-Tenant": "mine"}) as client,
    ):
        event = envelope()
        assert client.post("/v1/events", json=event).status_code == 201
        assert client.get(f"/v1/events/{event['event_id']}").json()["tenant"] == "mine"


# bodies


def test_a_declared_body_beyond_the_limit_is_refused(writer: httpx.Client) -> None:
    answer = writer.post("/v1/events", json=envelope(payload="x" * 600_000))
    assert_problem(answer, 413, "body-too-large")


def test_a_chunked_body_beyond_the_limit_is_refused(writer: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(10):
            yield b" " * 60_000

    answer = writer.post(
        "/v1/events", content=chunks(), headers={"content-type": "application/json"}
    )
    assert "content-length" not in answer.request.headers
    assert_problem(answer, 413, "body-too-large")


def test_a_chunked_body_within_the_limit_is_read(writer: httpx.Client) -> None:
    text = json.dumps(envelope()).encode()
    answer = writer.post(
        "/v1/events",
        content=iter([text[:20], text[20:]]),
        headers={"content-type": "application/json; charset=UTF-8"},
    )
    assert answer.status_code == 201


def test_a_payload_beyond_its_own_limit_is_a_rule(writer: httpx.Client) -> None:
    answer = writer.post("/v1/events", json=envelope(payload="x" * 262_145))
    assert assert_problem(answer, 422, "invalid-input")["errors"][0]["field"] == "payload"


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe", b"{'a': 1}"])
def test_what_is_not_json_is_400(writer: httpx.Client, content: bytes) -> None:
    answer = writer.post(
        "/v1/events", content=content, headers={"content-type": "application/json"}
    )
    assert_problem(answer, 400, "malformed-json")


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_other_content_types_are_415(writer: httpx.Client, headers: dict[str, str]) -> None:
    answer = writer.post("/v1/events", content=orjson.dumps(envelope()), headers=headers)
    assert_problem(answer, 415, "unsupported-media-type")


# the rest of HTTP


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/", 404, "not-found"),
        ("GET", "/v1/nothing", 404, "not-found"),
        ("GET", "/v1/events/", 404, "not-found"),
        ("DELETE", "/v1/events", 405, "method-not-allowed"),
        ("PUT", "/v1/context/s", 405, "method-not-allowed"),
        ("POST", "/v1/events?dry_run=1", 422, "invalid-input"),
        ("POST", "/v1/events/batch?dry_run=1", 422, "invalid-input"),
        ("GET", "/v1/events/x?fields=a", 422, "invalid-input"),
        ("GET", "/health/live?verbose=1", 422, "invalid-input"),
    ],
)
def test_every_refusal_has_the_one_shape(
    writer: httpx.Client, method: str, path: str, status: int, kind: str
) -> None:
    body = assert_problem(writer.request(method, path), status, kind)
    assert body["instance"] == path.partition("?")[0]


def test_unknown_parameters_are_named(writer: httpx.Client) -> None:
    answer = writer.get("/v1/context/s", params={"max_node": 3, "depth": 1})
    fields = [item["field"] for item in assert_problem(answer, 422, "invalid-input")["errors"]]
    assert sorted(fields) == ["depth", "max_node"]


def test_a_defect_is_a_problem_without_its_cause(
    api: Api, writer: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("secret inside")

    monkeypatch.setattr(api.app.state.services, "ledger", broken)
    answer = writer.get("/v1/events/x")
    assert_problem(answer, 500, "internal")
    assert "secret inside" not in answer.text


def test_the_callers_request_id_comes_back_when_it_is_usable(writer: httpx.Client) -> None:
    answer = writer.get("/health/live", headers={"X-Request-ID": "job-7:retry.2"})
    assert answer.headers["x-request-id"] == "job-7:retry.2"
    for unusable in (b"", b"a b", b"x" * 129, "ünicode".encode()):
        answer = writer.get("/health/live", headers={b"X-Request-ID": unusable})
        assert len(answer.headers["x-request-id"]) == 32


@pytest.mark.parametrize("part", ["live", "ready", "ready/ingest", "ready/read"])
def test_health_is_asked_for_its_head_alone(writer: httpx.Client, part: str) -> None:
    head, whole = writer.head(f"/health/{part}"), writer.get(f"/health/{part}")
    assert (head.status_code, head.content) == (whole.status_code, b"")


def test_the_log_joins_request_and_event_and_holds_no_secret(
    redis_url: str, neo4j_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    event = envelope(payload={"private": "the-content-of-the-event"})
    caplog.set_level(logging.INFO)
    with (
        structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as lines,
        running_api(redis_url, neo4j_url) as api,
    ):
        with api.client(WRITE_KEY, **{"X-Request-ID": "req-1"}) as writer:
            accepted = writer.post("/v1/events", json=event).json()
            writer.get("/v1/context/a-session-name")
        with api.client("a-wrong-key-0123456789") as nobody:
            nobody.get("/v1/context/s")
    appended = [line for line in lines if line["event"] == "events appended"]
    assert [line["events"] for line in appended] == [
        {event["event_id"]: accepted["global_position"]}
    ]
    assert {(line["request_id"], line["caller"]) for line in appended} == {("req-1", "writer")}
    # httpx is this test's own client
    others = [record.getMessage() for record in caplog.records if record.name != "httpx"]
    everything = repr(lines) + repr(others)
    secrets = [key.key.get_secret_value() for key in KEYS] + ["a-wrong-key-0123456789"]
    for secret in (*secrets, "the-content-of-the-event", "a-session-name"):
        assert secret not in everything
