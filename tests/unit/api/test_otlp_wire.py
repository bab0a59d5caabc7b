"""Both encodings give the same spans; what is malformed or too much is refused."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.otlp import json_wire, protobuf
from api.otlp.wire import JSON, PROTOBUF, encoding_of, unpacked
from projections.traces.spans import MAX_OCCURRENCES, MAX_RECORDS, Occurrence, Span, TooLarge
from tests.otlp_factories import BEGIN_NS, as_json, logs_request, request_of, span

SPANS = [
    span(
        "chat",
        {
            "text": "é ☃ \n",
            "number": 7,
            "large": 2**62,
            "share": 0.5,
            "nan": "nan",
            "yes": True,
            "list": ["a", 1, [None]],
            "object": {"inner": {"b": "c"}, "empty": {}},
            "nothing": None,
        },
        parent="run",
        status_code=2,
        status_message="no",
        occurrences=(Occurrence("exception", BEGIN_NS, {"exception.message": "no"}),),
    ),
    span("other", {}, resource={}),
]


def as_read(item: Span) -> Span:
    """A number that JSON would not keep is read as its digits."""
    large = {"large": str(2**62)} if "large" in item.attributes else {}
    return item._replace(attributes={**item.attributes, **large})


def test_both_encodings_are_read_alike() -> None:
    request = request_of(SPANS)
    expected = [as_read(item) for item in SPANS]
    assert protobuf.read_spans(request.SerializeToString()) == expected
    assert json_wire.read_spans(as_json(request)) == expected


def test_log_records_are_read_alike() -> None:
    request = logs_request([("gen_ai.choice", "x", {"a": [1]}, {"message": {"content": "Hi"}})])
    (record,) = protobuf.read_log_records(request.SerializeToString())
    assert json_wire.read_log_records(as_json(request)) == [record]
    assert record.body == {"message": {"content": "Hi"}}


def test_json_takes_numbers_as_strings_and_unknown_fields() -> None:
    values: list[dict[str, Any]] = [
        {"intValue": 7},
        {"intValue": "7"},
        {"doubleValue": 1},
        {"doubleValue": "NaN"},
        {"bytesValue": "AAE="},
        {"kvlistValue": {}},
        {"arrayValue": {}},
        {"newValue": 1},
        {},
    ]
    sent = {
        "traceId": "AB" * 16,
        "startTimeUnixNano": 12,
        "endTimeUnixNano": "13",
        "kind": 3,
        "unknown": {"x": 1},
        "attributes": [{"key": str(n), "value": value} for n, value in enumerate(values)],
    }
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [sent]}]}], "more": 1}
    (item,) = json_wire.read_spans(json.dumps(body).encode())
    assert (item.trace_id, item.span_id, item.start_ns, item.end_ns) == ("ab" * 16, "", 12, 13)
    assert list(item.attributes.values()) == [
        *(7, 7, 1.0, "nan", "[binary, 2 bytes]", {}, [], None, None),
    ]


@pytest.mark.parametrize(
    "sent",
    [
        {"traceId": 1},
        {"traceId": "xy"},
        {"attributes": {}},
        {"attributes": [1]},
        {"attributes": [{"key": 1}]},
        {"attributes": [{"key": "a", "value": "bare"}]},
        {"attributes": [{"key": "a", "value": {"boolValue": "true"}}]},
        {"attributes": [{"key": "a", "value": {"intValue": 1.5}}]},
        {"attributes": [{"key": "a", "value": {"bytesValue": 5}}]},
        {"startTimeUnixNano": -1},
        {"startTimeUnixNano": 2**64},
        {"startTimeUnixNano": True},
        {"status": 2},
        {"status": {"code": "STATUS_CODE_ERROR"}},
    ],
)
def test_malformed_json_is_refused(sent: dict[str, Any]) -> None:
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [sent]}]}]}
    with pytest.raises(ValueError, match=r"\w"):
        json_wire.read_spans(json.dumps(body).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_spans_or_refused(body: bytes) -> None:
    for read in (PROTOBUF.read_spans, JSON.read_spans, PROTOBUF.read_log_records):
        try:
            read(body)
        except ValueError as error:
            assert str(error)  # noqa: PT017  # no error is an answer, too


@given(st.data())
def test_a_request_with_altered_bytes_is_read_or_refused(data: Any) -> None:
    body = bytearray(request_of(SPANS).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        protobuf.read_spans(bytes(body))
    except ValueError as error:
        assert str(error)  # noqa: PT017  # no error is an answer, too


def test_the_walk_through_a_request_finds_what_protobuf_finds() -> None:
    request = request_of(SPANS)
    request.resource_spans[0].schema_url = "https://opentelemetry.io/schemas/1.37.0"
    request.resource_spans[0].scope_spans[0].scope.name = "test"
    request.resource_spans[0].scope_spans[0].schema_url = "x"
    beyond = b"\x1a\x02hi" + b"\x20\x05" + b"\x29" + b"\0" * 8 + b"\x35" + b"\0" * 4
    body = beyond + request.SerializeToString() + beyond
    assert protobuf.read_spans(body) == [as_read(item) for item in SPANS]


def test_counts_are_limited() -> None:
    empty = b'{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}'
    with pytest.raises(TooLarge):
        json_wire.read_spans(empty % b",".join([b"{}"] * (MAX_RECORDS + 1)))
    many = span("x", {}, occurrences=(Occurrence("e", 1, {}),) * (MAX_OCCURRENCES + 1))
    request = request_of([many])
    for spans in (
        protobuf.read_spans(request.SerializeToString()),
        json_wire.read_spans(as_json(request)),
    ):
        assert len(spans[0].occurrences) == MAX_OCCURRENCES


def test_a_bomb_takes_no_more_than_the_limit() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            unpacked(bomb, "gzip", 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_gzip_is_unpacked_whole_or_refused() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    assert unpacked(packed, "gzip", 6) == b"onetwo"
    for body, reason in (
        (packed[:-1], "cut off"),
        (packed + b"behind it", "no gzip"),
        (gzip.compress(b"") * 1_000, "members"),
    ):
        with pytest.raises(ValueError, match=reason):
            unpacked(body, "gzip", 100)
    with pytest.raises(TooLarge):
        unpacked(packed, "gzip", 5)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/x-protobuf", PROTOBUF),
        ("Application/JSON; charset=utf-8", JSON),
        ("application/grpc", None),
        (None, None),
    ],
)
def test_the_encoding_is_named_by_the_content_type(content_type: str | None, expected: Any) -> None:
    assert encoding_of(content_type) is expected
