"""Traces for tests, as protobuf and as JSON; neither is written by what reads them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as LogRecordMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from projections.traces.mapping import Mapped, map_spans
from projections.traces.spans import STATUS_ERROR, Occurrence, Span

BEGIN_NS = 1_770_000_000_000_000_000
SECOND_NS = 1_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"


def span_id(name: str) -> str:
    """An id that is always the same for a name."""
    return sha256(name.encode()).hexdigest()[:16]


def span(
    name: str, attributes: Mapping[str, Any], *, at: float = 0, lasts: float = 1, **fields: Any
) -> Span:
    """A span that begins `at` seconds after the first one; `parent` by its name."""
    parent = fields.pop("parent", None)
    defaults: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": span_id(name),
        "parent_id": span_id(parent) if parent else "",
        "name": name,
        "start_ns": BEGIN_NS + int(at * SECOND_NS),
        "end_ns": BEGIN_NS + int((at + lasts) * SECOND_NS),
        "attributes": attributes,
        "resource": {"service.name": "desk"},
    }
    return Span(**{**defaults, **fields})


def text(role: str, words: str) -> dict[str, Any]:
    """A message of words, as the GenAI conventions write it."""
    return {"role": role, "parts": [{"type": "text", "content": words}]}


def asks(call_id: str, tool: str, arguments: Any, words: str = "") -> dict[str, Any]:
    """An answer of a model that calls a tool."""
    said = [{"type": "text", "content": words}] if words else []
    call = {"type": "tool_call", "id": call_id, "name": tool, "arguments": arguments}
    return {"role": "assistant", "parts": [*said, call]}


def returns(call_id: str, result: Any) -> dict[str, Any]:
    """A message with what a tool returned."""
    part = {"type": "tool_call_response", "id": call_id, "response": result}
    return {"role": "tool", "parts": [part]}


def chat(
    name: str, sent: Sequence[Any], answers: Sequence[Any], *, at: float = 0, **more: Any
) -> Span:
    """A call of a model; messages as JSON text, as SDKs write them."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.input.messages": json.dumps(sent),
        "gen_ai.output.messages": json.dumps(answers),
        **more.pop("attributes", {}),
    }
    return span(name, attributes, at=at, **more)


def tool(
    name: str, call_id: str | None, arguments: Any, result: Any = None, *, at: float, **more: Any
) -> Span:
    """The execution of a tool; with `error` it failed."""
    error = more.pop("error", None)
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": more.pop("tool", name),
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        **({"gen_ai.tool.call.id": call_id} if call_id else {}),
        **({} if result is None else {"gen_ai.tool.call.result": json.dumps(result)}),
        **more.pop("attributes", {}),
    }
    if error is not None:
        thrown = {"exception.type": "GatewayError", "exception.message": error}
        more["occurrences"] = (Occurrence("exception", BEGIN_NS, thrown),)
        more["status_code"] = STATUS_ERROR
    return span(name, attributes, at=at, **more)


def envelopes(spans: Sequence[Span], tenant: str = "acme") -> list[dict[str, Any]]:
    """The envelopes of the spans, in order."""
    return [dict(draft.envelope) for draft in mapped(spans, tenant).drafts]


def mapped(spans: Sequence[Span], tenant: str = "acme") -> Mapped:
    """What becomes of spans."""
    return map_spans(spans, tenant)


def types(spans: Sequence[Span]) -> list[str]:
    """The types of the events, in order."""
    return [event["event_type"] for event in envelopes(spans)]


# -- as the wire has it ----------------------------------------------------------------------------


def any_value(value: Any) -> AnyValue:
    """A JSON value as an attribute's."""
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case Mapping():
            made = AnyValue()
            made.kvlist_value.values.extend(_pairs(value))
            made.kvlist_value.SetInParent()
            return made
    made = AnyValue()
    made.array_value.values.extend(any_value(item) for item in value)
    made.array_value.SetInParent()
    return made


def _pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def request_of(spans: Iterable[Span]) -> ExportTraceServiceRequest:
    """Spans as a request; each with a resource of its own."""
    request = ExportTraceServiceRequest()
    for item in spans:
        by_resource = request.resource_spans.add()
        by_resource.resource.attributes.extend(_pairs(item.resource))
        by_resource.scope_spans.add().spans.append(_span_message(item))
    return request


def _span_message(item: Span) -> SpanMessage:
    message = SpanMessage(
        trace_id=bytes.fromhex(item.trace_id),
        span_id=bytes.fromhex(item.span_id),
        parent_span_id=bytes.fromhex(item.parent_id),
        name=item.name,
        start_time_unix_nano=item.start_ns,
        end_time_unix_nano=item.end_ns,
        attributes=_pairs(item.attributes),
    )
    message.status.code = item.status_code  # type: ignore[assignment]
    message.status.message = item.status_message
    for name, time_ns, attributes in item.occurrences:
        message.events.add(name=name, time_unix_nano=time_ns, attributes=_pairs(attributes))
    return message


def logs_request(records: Iterable[tuple[str, str, Mapping[str, Any], Any]]) -> Any:
    """Log records of one span each: (event name, span, attributes, body), a second apart."""
    request = ExportLogsServiceRequest()
    by_resource = request.resource_logs.add()
    by_resource.resource.attributes.extend(_pairs({"service.name": "desk"}))
    by_scope = by_resource.scope_logs.add()
    for number, (event, name, attributes, body) in enumerate(records):
        by_scope.log_records.append(
            LogRecordMessage(
                trace_id=bytes.fromhex(TRACE),
                span_id=bytes.fromhex(span_id(name)),
                event_name=event,
                time_unix_nano=BEGIN_NS + number * SECOND_NS,
                attributes=_pairs(attributes),
                body=any_value(body),
            )
        )
    return request


def as_json(request: Any) -> bytes:
    """A request in OTLP's JSON: ids in hex, enums as numbers."""
    return json.dumps(_hex_ids(MessageToDict(request, use_integers_for_enums=True))).encode()


def _hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64decode(item).hex().upper()
        if name in ("traceId", "spanId", "parentSpanId")
        else _hex_ids(item)
        for name, item in value.items()
    }
