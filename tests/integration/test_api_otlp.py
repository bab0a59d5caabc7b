"""OpenTelemetry over HTTP into a real ledger: what is told, refused, repeated and limited."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.rpc.status_pb2 import Status
from neo4j import GraphDatabase
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as LiveSpan
from opentelemetry.trace import Status as LiveStatus
from opentelemetry.trace import StatusCode

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Ledger
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.work.settings import Settings
from projections.events import as_envelope, decode_event
from projections.identity import START, partition_of
from tests.integration.api_support import (
    ADMIN_KEY,
    OTHER_KEY,
    READ_KEY,
    USER_KEY,
    WRITE_KEY,
    Api,
    Graph,
    running_api,
)
from tests.otlp_factories import (
    TRACE,
    as_json,
    asks,
    chat,
    envelopes,
    logs_request,
    request_of,
    returns,
    span,
    text,
    tool,
)
from tests.servers import emptied_neo4j, emptied_valkey

pytestmark = pytest.mark.integration

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
MOST = 256 * 1024
CALL = "call_VSPygqKTWdrhaFErNvMV18Yl"


@pytest.fixture(scope="module")
def api(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Api]:
    options = {"otlp_max_bytes": MOST, "max_body_bytes": 2 * MOST}
    with running_api(emptied_valkey(valkey), emptied_neo4j(neo4j), **options) as running:
        yield running


@pytest.fixture
def ledger(api: Api) -> Iterator[Ledger]:
    redis = connect_redis(Settings(redis_url=api.app.state.settings.redis_url))
    yield Ledger(redis, checkpoints=dict)
    redis.close()


def story(trace: str) -> list[Any]:
    """A refund that fails: two calls of a model, a tool between them."""
    asked = [text("user", "Refund order 4711")]
    call = asks(CALL, "refund", {"order": 4711}, "I refund it.")
    failed = returns(CALL, "Error: gateway timeout")
    spans = [
        chat("first", asked, [call]),
        tool("refund", CALL, {"order": 4711}, at=2, error="gateway timeout"),
        chat("second", [*asked, call, failed], [text("assistant", "It failed.")], at=4),
    ]
    return [item._replace(trace_id=trace) for item in spans]


def post(
    client: httpx.Client, body: bytes, kind: str = PROTOBUF, path: str = "traces", **headers: str
) -> httpx.Response:
    sent = {"content-type": kind, **{k.replace("_", "-"): v for k, v in headers.items()}}
    return client.post(f"/v1/{path}", content=body, headers=sent)


def assert_success(answer: httpx.Response) -> None:
    """All is in the ledger, and nothing is said about it."""
    assert answer.status_code == 200, answer.text
    assert answer.content in (b"", b"{}")


def rejected(answer: httpx.Response) -> tuple[int, str]:
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == JSON:
        told = answer.json()["partialSuccess"]
        return int(told["rejectedSpans"]), told["errorMessage"]
    part = ExportTraceServiceResponse.FromString(answer.content).partial_success
    return part.rejected_spans, part.error_message


def status_of(answer: httpx.Response) -> tuple[int, str]:
    """Code and message of the `Status` in an answer, in either encoding."""
    if answer.headers["content-type"] == JSON:
        body = answer.json()
        assert set(body) == {"code", "message"}
        return body["code"], body["message"]
    assert answer.headers["content-type"] == PROTOBUF
    told = Status.FromString(answer.content)
    return told.code, told.message


def in_ledger(ledger: Ledger, event_id: str, tenant: str = "acme") -> dict[str, Any] | None:
    entry = ledger.find(tenant, event_id)
    event = None if entry is None else entry.event()
    return None if event is None else as_envelope(event)


def assert_in_ledger(ledger: Ledger, expected: list[dict[str, Any]], tenant: str = "acme") -> None:
    stored = [in_ledger(ledger, event["event_id"], tenant) for event in expected]
    assert stored == [{"tenant": tenant, "schema_version": 1, **event} for event in expected]


# -- what goes in ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_is_in_the_ledger_when_it_is_answered(
    client: httpx.Client, ledger: Ledger, kind: str, packed: bool
) -> None:
    spans = story(f"{1 + packed + 2 * (kind == JSON):032x}")
    request = request_of(spans)
    body = request.SerializeToString() if kind == PROTOBUF else as_json(request)
    headers = {"content_encoding": "gzip"} if packed else {}
    answer = post(client, gzip.compress(body) if packed else body, kind, **headers)
    assert_success(answer)
    assert answer.headers["content-type"] == kind
    assert_in_ledger(ledger, envelopes(spans))


def test_both_encodings_of_a_trace_are_the_same_events(
    client: httpx.Client, ledger: Ledger
) -> None:
    request = request_of(story(f"{10:032x}"))
    assert_success(post(client, request.SerializeToString()))
    before = client.get("/metrics").text
    assert_success(post(client, as_json(request), JSON))
    assert metric(client.get("/metrics").text, "duplicate") == metric(before, "duplicate") + 5
    assert metric(client.get("/metrics").text, "accepted") == metric(before, "accepted")


def metric(text: str, outcome: str) -> float:
    name = f'recollect_ingest_events_total{{outcome="{outcome}"}} '
    return float(next(line for line in text.splitlines() if line.startswith(name))[len(name) :])


def test_a_trace_in_pieces_backwards_has_the_same_events(
    client: httpx.Client, ledger: Ledger
) -> None:
    spans = story(f"{11:032x}")
    for item in reversed(spans):
        assert_success(post(client, request_of([item]).SerializeToString()))
    stored = [in_ledger(ledger, event["event_id"]) for event in envelopes(spans)]
    found = [None if event is None else event["event_type"] for event in stored]
    assert found == [event["event_type"] for event in envelopes(spans)]


def test_a_call_carried_out_again_under_its_id_has_both_results(
    client: httpx.Client, ledger: Ledger
) -> None:
    order = {"order": 4711}
    spans = [
        item._replace(trace_id=f"{13:032x}")
        for item in (
            tool("first try", CALL, order, at=0, tool="refund", error="gateway timeout"),
            tool("second try", CALL, order, {"refunded": 84}, at=9, tool="refund"),
        )
    ]
    for item in spans * 2:
        assert_success(post(client, request_of([item]).SerializeToString()))
    expected = [event for event in envelopes(spans) if event["event_type"] == "tool.result"]
    assert [event["status"] for event in expected] == ["failed", "completed"]
    assert_in_ledger(ledger, expected)


def test_a_span_sent_again_with_other_content_is_told(client: httpx.Client) -> None:
    for words in ("Hello", "Goodbye"):
        spans = [chat("x", [], [text("assistant", words)], trace_id=f"{14:032x}")]
        answer = post(client, request_of(spans).SerializeToString())
    number, message = rejected(answer)
    assert number == 0
    assert "was told otherwise before" in message


def test_what_comes_with_a_key_of_a_user_is_theirs(api: Api, ledger: Ledger) -> None:
    def of_user(spans: list[Any], user_id: str) -> list[Any]:
        named = {"user.id": user_id}
        return [item._replace(attributes={**item.attributes, **named}) for item in spans]

    spans, others = story(f"{15:032x}"), story(f"{16:032x}")
    with api.client(USER_KEY) as client:
        assert_success(post(client, request_of(spans).SerializeToString()))
        number, message = rejected(
            post(client, request_of(of_user(others, "bob")).SerializeToString())
        )
    assert_in_ledger(ledger, envelopes(of_user(spans, "cara")))
    assert number > 0
    assert "user_id: the user of the key, or none" in message


def test_log_records_tell_what_spans_do_not(client: httpx.Client, ledger: Ledger) -> None:
    request = logs_request(
        [
            ("gen_ai.user.message", "x", {}, {"content": "Where is my parcel?"}),
            ("gen_ai.choice", "x", {}, {"index": 0, "message": {"content": "In Bremen."}}),
            ("device.app.lifecycle", "x", {}, "started"),
        ]
    )
    assert_success(post(client, request.SerializeToString(), path="logs"))
    assert_success(post(client, as_json(request), JSON, path="logs"))
    found = client.get("/metrics").text
    assert 'recollect_otlp_records_total{outcome="ignored",signal="logs"} 2.0' in found
    assert 'recollect_otlp_records_total{outcome="remembered",signal="logs"} 4.0' in found


def test_a_request_without_spans_is_a_success(client: httpx.Client) -> None:
    for kind, body in ((PROTOBUF, b""), (JSON, b"{}"), (JSON, b'{"resourceSpans": []}')):
        assert_success(post(client, body, kind))
        assert_success(post(client, body, kind, path="logs"))


def test_spans_that_are_not_of_genai_are_taken_and_counted(client: httpx.Client) -> None:
    name = 'recollect_otlp_records_total{outcome="ignored",signal="traces"} '
    before = client.get("/metrics").text
    web = span("GET /", {"http.request.method": "GET", "url.path": "/"})
    assert_success(post(client, request_of([web]).SerializeToString()))
    lines = [
        float(line[len(name) :])
        for page in (before, client.get("/metrics").text)
        for line in page.splitlines()
        if line.startswith(name)
    ]
    assert lines[1] - lines[0] == 1


def test_what_json_has_beyond_the_protocol_is_passed_over(
    client: httpx.Client, ledger: Ledger
) -> None:
    spans = story(f"{12:032x}")
    request = json.loads(as_json(request_of(spans)))
    request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["newField"] = {"a": [1]}
    assert_success(post(client, json.dumps(request).encode(), JSON))
    assert_in_ledger(ledger, envelopes(spans))


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_a_span_that_breaks_a_rule_is_named_and_the_others_are_kept(
    client: httpx.Client, ledger: Ledger, kind: str
) -> None:
    good = story(f"{20 + (kind == JSON):032x}")
    late = chat("late", [text("user", "hello")], [], attributes={"session.id": "s" * 513})
    nameless = chat("nameless", [text("user", "hello")], [], trace_id="00" * 16)
    request = request_of([*good, late, nameless])
    answer = post(
        client, request.SerializeToString() if kind == PROTOBUF else as_json(request), kind
    )
    number, message = rejected(answer)
    assert number == 2
    assert f"span {late.span_id}: session_id: 1 to 512 characters" in message
    assert f"span {nameless.span_id}: trace_id" in message
    assert_in_ledger(ledger, envelopes(good))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\x0a\xff", PROTOBUF),
        (b"not a message at all", PROTOBUF),
        (b"\x0a\x04\x12\x02\x12\xff", PROTOBUF),
        (b"{", JSON),
        (b"[]", JSON),
        (b'{"resourceSpans": 1}', JSON),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}', JSON),
    ],
)
def test_what_is_no_request_is_refused_in_its_own_encoding(
    client: httpx.Client, body: bytes, kind: str
) -> None:
    answer = post(client, body, kind)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == kind
    assert status_of(answer)[0] == 3
    assert "retry-after" not in answer.headers


def test_a_field_is_named_as_it_is_written(client: httpx.Client) -> None:
    span = {"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "xyz"}]}]}]}
    for body, field in ((span, "spanId"), ({"resourceSpans": 1}, "resourceSpans")):
        answer = post(client, json.dumps(body).encode(), JSON)
        assert f"{field} is " in status_of(answer)[1]


def test_a_bomb_is_not_unpacked(client: httpx.Client) -> None:
    bomb = gzip.compress(b"\x00" * (200 * MOST))
    assert len(bomb) < MOST
    answer = post(client, bomb, content_encoding="gzip")
    assert answer.status_code == 413
    assert "when unpacked" in status_of(answer)[1]


def test_sizes_are_limited_before_and_after_unpacking(client: httpx.Client) -> None:
    for body in (b"\x00" * (MOST + 1), b"\x00" * (2 * MOST + 1)):
        answer = post(client, body)
        assert answer.status_code == 413
        assert status_of(answer)[0] == 3


def test_more_spans_than_are_read_are_refused(client: httpx.Client) -> None:
    spans = b"\x12\x00" * 10_001
    scope = b"\x12" + _varint(len(spans)) + spans
    body = b"\x0a" + _varint(len(scope)) + scope
    assert post(client, body).status_code == 413


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": PROTOBUF, "content-encoding": "zstd"}, 415),
        ({"content-type": PROTOBUF, "content-encoding": "gzip"}, 400),
    ],
)
def test_what_cannot_be_read_is_refused(
    client: httpx.Client, headers: dict[str, str], status: int
) -> None:
    answer = client.post("/v1/traces", content=b"x", headers=headers)
    assert answer.status_code == status
    assert status_of(answer)[0] == 3


@pytest.mark.parametrize(
    ("key", "tenant", "status", "code"),
    [
        (None, None, 401, 16),
        ("wrong", None, 401, 16),
        (READ_KEY, None, 403, 7),
        (WRITE_KEY, "other", 403, 7),
        (ADMIN_KEY, "No Tenant", 422, 3),
    ],
)
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_keys_and_tenants_are_judged_as_elsewhere(
    api: Api, key: str | None, tenant: str | None, status: int, code: int, kind: str
) -> None:
    with api.client(key) as client:
        answer = post(client, b"", kind, **({"X_Tenant": tenant} if tenant else {}))
    assert answer.status_code == status
    assert status_of(answer)[0] == code


def test_a_trace_belongs_to_the_tenant_of_the_key(api: Api, ledger: Ledger) -> None:
    spans = story(f"{30:032x}")
    body = request_of(spans).SerializeToString()
    for key in (WRITE_KEY, OTHER_KEY):
        with api.client(key) as client:
            assert_success(post(client, body))
    for tenant in ("acme", "other"):
        assert_in_ledger(ledger, envelopes(spans, tenant), tenant)
    ids = [{event["event_id"] for event in envelopes(spans, name)} for name in ("acme", "other")]
    assert ids[0].isdisjoint(ids[1])


def test_another_method_is_refused_in_the_same_form(client: httpx.Client) -> None:
    answer = client.get("/v1/traces", headers={"content-type": PROTOBUF})
    assert (answer.status_code, status_of(answer)[0]) == (405, 12)


def test_who_sends_too_much_is_told_when_to_come_back(
    valkey: ValkeyServer, neo4j: Neo4jServer, api: Api
) -> None:
    settings = api.app.state.settings
    options = {"event_limits": {"*": "3/minute"}}
    body = request_of(story(f"{31:032x}")).SerializeToString()
    with (
        running_api(settings.redis_url, settings.neo4j_url, **options) as limited,
        limited.client() as client,
    ):
        answer = post(client, body)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert status_of(answer)[0] == 8


# -- a real client ---------------------------------------------------------------------------------


def _told(live: LiveSpan, **attributes: Any) -> None:
    live.set_attributes({f"gen_ai.{k.replace('__', '.')}": v for k, v in attributes.items()})


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_the_sdk_of_opentelemetry_is_understood(
    api: Api, client: httpx.Client, ledger: Ledger, compression: Compression
) -> None:
    exporter = OTLPSpanExporter(
        endpoint=f"{api.url}/v1/traces",
        headers={"Authorization": f"Bearer {WRITE_KEY}"},
        compression=compression,
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "desk"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("invoke_agent desk") as agent:
        _told(agent, operation__name="invoke_agent", agent__name="desk")
        with tracer.start_as_current_span("chat gpt-5") as asked:
            _told(asked, operation__name="chat", input__messages=json.dumps([text("user", "Hi")]))
            _told(asked, output__messages=json.dumps([asks(CALL, "refund", {"order": 4711})]))
        with tracer.start_as_current_span("execute_tool refund") as executed:
            _told(executed, operation__name="execute_tool", tool__name="refund")
            _told(executed, tool__call__id=CALL)
            executed.record_exception(RuntimeError("gateway timeout"))
            executed.set_status(LiveStatus(StatusCode.ERROR))
        trace = f"{agent.get_span_context().trace_id:032x}"
    assert provider.force_flush()
    provider.shutdown()
    entries = (ledger.read(number, START, 1_000) for number in range(ledger.partitions))
    events = [decode_event(entry.data) for partition in entries for entry in partition]
    stored = [event for event in events if event.trace_id == trace]
    assert sorted((event.event_type, event.status) for event in stored) == [
        ("message.user", None),
        ("tool.call", None),
        ("tool.result", "failed"),
    ]


def test_logs_are_answered_by_their_own_message(client: httpx.Client) -> None:
    request = logs_request([("gen_ai.user.message", "x", {}, {"content": "Hi"})])
    request.resource_logs[0].scope_logs[0].log_records[0].trace_id = b""
    answer = post(client, request.SerializeToString(), path="logs")
    part = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert (part.rejected_log_records, part.error_message) == (
        1,
        "log record 0: trace_id: required, 16 bytes",
    )


def test_a_trace_has_the_default_session(ledger: Ledger, client: httpx.Client) -> None:
    spans = story(TRACE)
    assert_success(post(client, request_of(spans).SerializeToString()))
    stored = in_ledger(ledger, envelopes(spans)[0]["event_id"])
    assert stored is not None
    assert stored["session_id"] == stored["trace_id"] == TRACE


def test_a_halted_partition_is_to_be_sent_again_and_the_others_are_kept(
    valkey: ValkeyServer, neo4j: Neo4jServer
) -> None:
    sessions = {partition_of("acme", f"s{n}", 8): f"s{n}" for n in range(99)}
    spans = [
        chat(name, [text("user", "Hi")], [], attributes={"session.id": name}, trace_id=trace)
        for name, trace in ((sessions[0], "01" * 16), (sessions[1], "02" * 16))
    ]
    neo4j_url = emptied_neo4j(neo4j)
    with GraphDatabase.driver(neo4j_url) as driver:
        Graph(driver).checkpoint(0, "1700000000000-1", 41)
    redis_url = emptied_valkey(valkey)  # whoever connects now sees a ledger behind its graph
    with running_api(redis_url, neo4j_url) as halted, halted.client() as client:
        answer = post(client, request_of(spans).SerializeToString())
        events = [client.get(f"/v1/events/{event['event_id']}") for event in envelopes(spans)]
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert status_of(answer)[0] == 14
    assert sorted(event.status_code for event in events) == [200, 404]
