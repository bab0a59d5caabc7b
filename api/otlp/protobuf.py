"""OTLP in protobuf: requests read, answers written.

A request is not parsed as a whole: 8 MB of empty spans, two bytes each, would become 700 MB of
messages. What holds the spans is walked through here, and each span is parsed, copied and
forgotten, up to so many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as LogRecordMessage
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from projections.traces.spans import (
    MAX_OCCURRENCES,
    MAX_RECORDS,
    LogRecord,
    Occurrence,
    Span,
    TooLarge,
    plain_bytes,
    plain_float,
    plain_integer,
)

MAX_DEPTH: Final = 32
"""Of nested values; what lies deeper is left out."""
MAX_RECORD_BYTES: Final = 4 * 2**20
"""Of one span or log record."""


def read_spans(body: bytes) -> list[Span]:
    """The spans of a request.

    Raises:
        ValueError: it is none.
    """
    return [
        _span(_parsed(SpanMessage, data), resource) for data, resource in _records(memoryview(body))
    ]


def read_log_records(body: bytes) -> list[LogRecord]:
    """The log records of a request.

    Raises:
        ValueError: it is none.
    """
    return [
        _log_record(_parsed(LogRecordMessage, data), resource)
        for data, resource in _records(memoryview(body))
    ]


def spans_answer(rejected: int, message: str) -> bytes:
    """The answer to spans; without message all went well."""
    answer = ExportTraceServiceResponse()
    if message:
        answer.partial_success.rejected_spans = rejected
        answer.partial_success.error_message = message
    return bytes(answer.SerializeToString())


def logs_answer(rejected: int, message: str) -> bytes:
    """The answer to log records; without message all went well."""
    answer = ExportLogsServiceResponse()
    if message:
        answer.partial_success.rejected_log_records = rejected
        answer.partial_success.error_message = message
    return bytes(answer.SerializeToString())


def status(code: int, message: str) -> bytes:
    """What a refused request is answered."""
    return bytes(Status(code=code, message=message).SerializeToString())


def _parsed(kind: type[Any], data: memoryview) -> Any:
    if len(data) > MAX_RECORD_BYTES:
        raise TooLarge(f"at most {MAX_RECORD_BYTES:,} bytes a record")
    try:
        return kind.FromString(bytes(data))
    except DecodeError as error:
        raise ValueError(f"no {kind.__name__} ({error})") from error


_HOLDER: Final = 1
"""Field of a request: what one resource sent."""
_RESOURCE: Final = 1
_SCOPES: Final = 2
_RECORDS: Final = 2
"""Fields below; spans and log records are told the same way."""


def _records(body: memoryview) -> Iterator[tuple[memoryview, dict[str, Any]]]:
    """Each record's bytes, with the attributes of its resource."""
    count = 0
    for by_resource in _fields(body, _HOLDER):
        resource: dict[str, Any] = {}
        for data in _fields(by_resource, _RESOURCE):
            resource.update(_attributes(_parsed(Resource, data).attributes))
        for by_scope in _fields(by_resource, _SCOPES):
            for record in _fields(by_scope, _RECORDS):
                count += 1
                if count > MAX_RECORDS:
                    raise TooLarge(f"at most {MAX_RECORDS:,} records a request")
                yield record, resource


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The bytes of every field of that number; others are passed over."""
    place, end = 0, len(message)
    while place < end:
        tag, place = _varint(message, place)
        wire = tag & 7
        if wire == 2:
            length, place = _varint(message, place)
        elif wire == 0:
            length, place = 0, _varint(message, place)[1]
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise ValueError(f"no protobuf (wire type {wire} at byte {place})")
        if tag == 0 or place + length > end:
            raise ValueError(f"no protobuf (cut off at byte {place})")
        if wire == 2 and tag >> 3 == wanted:
            yield message[place : place + length]
        place += length


_FIXED: Final = {1: 8, 5: 4}
"""Bytes of a value, by wire type."""


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    for byte in message[place : place + 10]:
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError(f"no protobuf (a number without end at byte {place})")


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        resource=resource,
        occurrences=tuple(
            Occurrence(event.name, event.time_unix_nano, _attributes(event.attributes))
            for event in islice(span.events, MAX_OCCURRENCES)
        ),
        status_code=span.status.code,
        status_message=span.status.message,
    )


def _log_record(record: Any, resource: dict[str, Any]) -> LogRecord:
    return LogRecord(
        trace_id=record.trace_id.hex(),
        span_id=record.span_id.hex(),
        event_name=record.event_name,
        time_ns=record.time_unix_nano or record.observed_time_unix_nano,
        body=_value(record.body, 0),
        attributes=_attributes(record.attributes),
        resource=resource,
    )


def _attributes(pairs: Iterable[Any], depth: int = 0) -> dict[str, Any]:
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(value: Any, depth: int) -> Any:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind is None or depth >= MAX_DEPTH:
        return None
    match kind:
        case "int_value":
            return plain_integer(value.int_value)
        case "bool_value":
            return value.bool_value
        case "double_value":
            return plain_float(value.double_value)
        case "array_value":
            return [_value(item, depth + 1) for item in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values, depth + 1)
        case "bytes_value":
            return plain_bytes(value.bytes_value)
    return None
