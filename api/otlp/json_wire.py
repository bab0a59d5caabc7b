"""OTLP in JSON: requests read, answers written.

protobuf's own JSON is not OTLP's: there ids are base64, enums may be names and unknown fields are
errors. Here ids are hex in any case, enums are numbers, 64-bit numbers are strings or numbers, and
what is unknown is passed over.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

import orjson

from api.otlp.protobuf import MAX_DEPTH
from projections.traces.spans import (
    MAX_OCCURRENCES,
    MAX_RECORDS,
    Attributes,
    LogRecord,
    Occurrence,
    Span,
    TooLarge,
    plain_bytes,
    plain_float,
    plain_integer,
)

T = TypeVar("T")

_HEX: Final = frozenset("0123456789abcdef")


def read_spans(body: bytes) -> list[Span]:
    """The spans of a request.

    Raises:
        ValueError: it is none.
    """
    return _records(body, ("resourceSpans", "scopeSpans", "spans"), _span)


def read_log_records(body: bytes) -> list[LogRecord]:
    """The log records of a request.

    Raises:
        ValueError: it is none.
    """
    return _records(body, ("resourceLogs", "scopeLogs", "logRecords"), _log_record)


def spans_answer(rejected: int, message: str) -> bytes:
    """The answer to spans; without message all went well."""
    return _answer("rejectedSpans", rejected, message)


def logs_answer(rejected: int, message: str) -> bytes:
    """The answer to log records; without message all went well."""
    return _answer("rejectedLogRecords", rejected, message)


def status(code: int, message: str) -> bytes:
    """What a refused request is answered."""
    return orjson.dumps({"code": code, "message": message})


def _answer(name: str, rejected: int, message: str) -> bytes:
    if not message:
        return b"{}"
    # a 64-bit number is a string in the JSON of protobuf
    return orjson.dumps({"partialSuccess": {name: str(rejected), "errorMessage": message}})


def _records(
    body: bytes, names: tuple[str, str, str], read: Callable[[Mapping[str, Any], Attributes], T]
) -> list[T]:
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"no JSON ({error.msg}, {where})") from error
    if not isinstance(request, Mapping):
        raise ValueError("an OTLP request is a JSON object")
    of_resources, of_scopes, of_records = names
    records: list[T] = []
    for by_resource in _objects(request, of_resources):
        resource = _attributes(_object(by_resource, "resource"))
        for by_scope in _objects(by_resource, of_scopes):
            for record in _objects(by_scope, of_records):
                if len(records) == MAX_RECORDS:
                    raise TooLarge(f"at most {MAX_RECORDS:,} records a request")
                records.append(read(record, resource))
    return records


def _span(span: Mapping[str, Any], resource: Attributes) -> Span:
    status_of = _object(span, "status")
    return Span(
        trace_id=_id(span, "traceId"),
        span_id=_id(span, "spanId"),
        parent_id=_id(span, "parentSpanId"),
        name=_text(span, "name"),
        start_ns=_natural(span, "startTimeUnixNano"),
        end_ns=_natural(span, "endTimeUnixNano"),
        attributes=_attributes(span),
        resource=resource,
        occurrences=tuple(
            Occurrence(_text(event, "name"), _natural(event, "timeUnixNano"), _attributes(event))
            for event in islice(_objects(span, "events"), MAX_OCCURRENCES)
        ),
        status_code=_natural(status_of, "code"),
        status_message=_text(status_of, "message"),
    )


def _log_record(record: Mapping[str, Any], resource: Attributes) -> LogRecord:
    return LogRecord(
        trace_id=_id(record, "traceId"),
        span_id=_id(record, "spanId"),
        event_name=_text(record, "eventName"),
        time_ns=_natural(record, "timeUnixNano") or _natural(record, "observedTimeUnixNano"),
        body=_value(record.get("body"), 0),
        attributes=_attributes(record),
        resource=resource,
    )


# -- fields ----------------------------------------------------------------------------------------


def _objects(holder: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    values = holder.get(name)
    if values is None:
        return
    if not isinstance(values, list) or not all(isinstance(value, Mapping) for value in values):
        raise ValueError(f"{name} is an array of objects")
    yield from values


def _object(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is an object")
    return value


def _text(holder: Mapping[str, Any], name: str) -> str:
    value = holder.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name} is a string")
    return value


def _id(holder: Mapping[str, Any], name: str) -> str:
    value = _text(holder, name).lower()
    if not _HEX.issuperset(value):
        raise ValueError(f"{name} is hexadecimal")
    return value


def _natural(holder: Mapping[str, Any], name: str) -> int:
    value = _integer(holder.get(name, 0), name)
    if not 0 <= value < 2**64:
        raise ValueError(f"{name} is a number from 0 to 2^64 - 1")
    return value


def _integer(value: Any, name: str) -> int:
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) <= 20:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None:
        return 0
    raise ValueError(f"{name} is a whole number, or a string of one")


def _attributes(holder: Mapping[str, Any], depth: int = 0, name: str = "attributes") -> Attributes:
    return {_text(pair, "key"): _value(pair.get("value"), depth) for pair in _objects(holder, name)}


def _value(value: Any, depth: int) -> Any:
    """An `AnyValue`; of one that is unknown, nothing."""
    if value is None or depth >= MAX_DEPTH:
        return None
    if not isinstance(value, Mapping):
        raise ValueError("a value is an object such as {stringValue: ...}")
    if "stringValue" in value:
        return _text(value, "stringValue")
    if "arrayValue" in value:
        items = _list(_object(value, "arrayValue").get("values"))
        return [_value(item, depth + 1) for item in items]
    if "kvlistValue" in value:
        return _attributes(_object(value, "kvlistValue"), depth + 1, "values")
    kind = next((kind for kind in _SCALARS if kind in value), None)
    return None if kind is None else _SCALARS[kind](value[kind])


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError("values is an array")
    return value


def _double(value: Any) -> float | str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("doubleValue is a number")
    try:
        return plain_float(float(value))  # NaN and Infinity are strings
    except (ValueError, OverflowError):
        raise ValueError("doubleValue is a number") from None


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("boolValue is true or false")
    return value


def _bytes(value: Any) -> str:
    try:
        return plain_bytes(b64decode(value))
    except (TypeError, ValueError):
        raise ValueError("bytesValue is base64") from None


_SCALARS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "intValue": lambda value: plain_integer(_integer(value, "intValue")),
    "boolValue": _bool,
    "doubleValue": _double,
    "bytesValue": _bytes,
}
