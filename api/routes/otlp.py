"""OpenTelemetry in: OTLP over HTTP. An answer of 200 means: it is in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from api.dependencies import ServicesOf, Writer
from api.errors import PROBLEMS, ApiProblem, current_request_id
from api.otlp.log_records import spans_of
from api.otlp.wire import ENCODINGS, JSON, Encoding, encoding_of, status_code, unpacked
from api.routes.events import admit, count_outcomes, record_appended
from api.schemas import Problem
from api.services import Caller, Services
from pipelines.ledger.ledger import Appended, Ledger, second_outcome
from pipelines.observe import metrics
from projections.errors import EventConflict, InvalidInput, RecollectError
from projections.events import Event
from projections.traces.drafts import Draft
from projections.traces.mapping import Mapped, map_spans
from projections.traces.spans import TooLarge

MAX_EVENTS: Final = 20_000
"""Of one request."""
MAX_REASONS: Final = 5
"""Of one answer; a client logs it as it comes."""
MAX_RULE_CHARACTERS: Final = 500


class OtlpRoute(APIRoute):
    """A route whose problems are a `google.rpc.Status`, in the encoding of the request."""

    def write_problem(self, request: Request, body: Problem) -> tuple[bytes, str]:
        """What clients of OTLP read."""
        encoding = encoding_of(request.headers.get("content-type")) or JSON
        broken = "; ".join(f"{item.field}: {item.rule}" for item in body.errors)
        text = f"{body.title}: {body.detail}" + (f" ({broken})" if broken else "")
        return encoding.status(status_code(body.status), text), encoding.media_type


router = APIRouter(prefix="/v1", tags=["opentelemetry"], route_class=OtlpRoute)


class Sent(NamedTuple):
    """The body of a request as it came."""

    data: bytes
    encoding: Encoding
    compression: str


async def sent(request: Request) -> Sent:
    """The body, if it can be unpacked and read."""
    encoding = encoding_of(request.headers.get("content-type"))
    if encoding is None:
        media_types = " or ".join(row.media_type for row in ENCODINGS)
        raise ApiProblem("unsupported-encoding", f"Send the body as {media_types}.")
    compression = request.headers.get("content-encoding", "identity").strip().lower()
    if compression in ("", "none"):
        compression = "identity"
    if compression not in ("identity", "gzip"):
        raise ApiProblem("unsupported-encoding", "Send the body plain, or packed by gzip.")
    return Sent(await request.body(), encoding, compression)


SentBody = Annotated[Sent, Depends(sent)]

_PROBLEMS: Final = (
    *("unauthenticated", "forbidden", "malformed-otlp", "body-too-large", "unsupported-encoding"),
    *("invalid-input", "rate-limited", "overloaded", "ledger-unavailable", "partition-halted"),
    *("internal", "request-timeout"),
)
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}


def _content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/x-protobuf": _BINARY, "application/json": {"schema": schema}}


def _request(name: str) -> dict[str, Any]:
    holders = {"type": ["array", "null"], "items": {"type": "object"}}  # as protobuf's JSON
    schema = {"type": "object", "properties": {name: holders}}
    return {"requestBody": {"required": True, "content": _content(schema)}}


def _responses(rejected: str) -> dict[int | str, dict[str, Any]]:
    partial = {
        "type": "object",
        "properties": {rejected: {"type": "string"}, "errorMessage": {"type": "string"}},
    }
    success = {"type": "object", "properties": {"partialSuccess": partial}}
    status = {
        "type": "object",
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
    }
    titles: dict[int | str, list[str]] = {}
    for kind in _PROBLEMS:
        titles.setdefault(PROBLEMS[kind].status, []).append(PROBLEMS[kind].title)
    described = {
        number: {"description": "; or: ".join(texts), "content": _content(status)}
        for number, texts in titles.items()
    }
    return {200: {"description": "In the ledger", "content": _content(success)}, **described}


@router.post(
    "/traces",
    response_class=Response,
    responses=_responses("rejectedSpans"),
    openapi_extra=_request("resourceSpans"),
)
async def take_spans(caller: Writer, services: ServicesOf, body: SentBody) -> Response:
    """Remember what GenAI spans tell (OTLP/HTTP); sending a span again is safe."""
    return await services.append(lambda: _take_spans(services, body, caller))


@router.post(
    "/logs",
    response_class=Response,
    responses=_responses("rejectedLogRecords"),
    openapi_extra=_request("resourceLogs"),
)
async def take_log_records(caller: Writer, services: ServicesOf, body: SentBody) -> Response:
    """Remember what the events of GenAI in the log tell (OTLP/HTTP)."""
    return await services.append(lambda: _take_log_records(services, body, caller))


def _take_spans(services: Services, body: Sent, caller: Caller) -> Response:
    spans = _read(body, body.encoding.read_spans, services.settings.otlp_max_bytes)
    mapped = map_spans(spans, caller.tenant, caller.user_id, services.told_calls)
    refused = _appended(services, mapped.drafts, caller)
    refused.add_all(mapped.refused)
    rejected = set(refused.reasons)
    _count("traces", len(spans), mapped, len(rejected))
    names = {place: f"span {spans[place].span_id or '?'}" for place in refused.reasons}
    text = refused.told(names)
    return _answer(body, body.encoding.spans_answer(len(rejected), text))


def _take_log_records(services: Services, body: Sent, caller: Caller) -> Response:
    records = _read(body, body.encoding.read_log_records, services.settings.otlp_max_bytes)
    told = spans_of(records)
    mapped = map_spans(told.spans, caller.tenant, caller.user_id, services.told_calls)
    of_spans = _appended(services, mapped.drafts, caller)
    of_spans.add_all(mapped.refused)
    refused = _Refused()
    refused.warnings = of_spans.warnings
    for place, reason in of_spans.reasons.items():
        for record in told.places[place]:
            refused.reasons[record] = reason
    refused.add_all(told.refused)
    ignored = mapped._replace(ignored=told.ignored)
    _count("logs", len(records), ignored, len(refused.reasons))
    names = {place: f"log record {place}" for place in refused.reasons}
    text = refused.told(names)
    return _answer(body, body.encoding.logs_answer(len(names), text))


def _read(body: Sent, read: Callable[[bytes], list[Any]], most: int) -> list[Any]:
    try:
        return read(unpacked(body.data, body.compression, most))
    except TooLarge as error:
        raise ApiProblem("body-too-large", f"{error}.") from None
    except ValueError as error:
        raise ApiProblem("malformed-otlp", f"{error}.") from None


class _Refused:
    """Why spans, by their place in the request, are not in the ledger; and what else to say."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        self.warnings: list[str] = []

    def add(self, place: int, error: InvalidInput) -> None:
        """Note the rules that an event of a span breaks."""
        rules = "; ".join(f"{field}: {rule}" for field, rule in error.errors)
        self.reasons.setdefault(place, rules)

    def add_all(self, refused: Iterable[tuple[int, str]]) -> None:
        """Note what was refused before it became an event."""
        for place, rule in refused:
            self.reasons.setdefault(place, rule)

    def told(self, names: Mapping[int, str]) -> str:
        """All of it in words; empty when nothing was refused.

        Args:
            names: of what was refused, by its place.
        """
        reasons = [
            f"{names[place]}: {rule}"[:MAX_RULE_CHARACTERS]
            for place, rule in sorted(self.reasons.items())
        ]
        reasons.extend(self.warnings)
        more = len(reasons) - MAX_REASONS
        text = "; ".join(reasons[:MAX_REASONS])
        return f"{text}; and {more:,} more" if more > 0 else text


def _appended(services: Services, drafts: Sequence[Draft], caller: Caller) -> _Refused:
    """Append the events.

    Raises:
        ApiProblem: 429.
        RecollectError: some are not in the ledger, and sending all again is what helps.
    """
    refused = _Refused()
    if not drafts:
        return refused
    if len(drafts) > MAX_EVENTS:
        raise ApiProblem("body-too-large", f"At most {MAX_EVENTS:,} events a request.")
    admit(services, caller.tenant, len(drafts))
    ledger, now_ms = services.ledger(), time.time_ns() // 1_000_000
    events: list[tuple[Draft, Event]] = []
    for draft in drafts:
        try:
            event = caller.offered(draft.envelope, now_ms)
        except InvalidInput as error:
            refused.add(draft.origin, error)
            count_outcomes([error])
        else:
            events.append((draft, event))
    _append(ledger, events, refused)
    return refused


_Offered = Sequence[tuple[Draft, Event]]


def _append(ledger: Ledger, offered: _Offered, refused: _Refused) -> None:
    """Append events; results that ended in another way before become events of their own."""
    try:
        outcomes = ledger.append([event for _, event in offered], request_id=current_request_id())
    except RecollectError as error:
        count_outcomes([error] * len(offered))
        raise
    again: list[tuple[Draft, Event]] = []
    appended: list[tuple[Event, Appended]] = []
    unavailable: RecollectError | None = None
    for (draft, event), outcome in zip(offered, outcomes, strict=True):
        match outcome:
            case Appended():
                appended.append((event, outcome))
            case EventConflict():
                again.extend(_retold(ledger, draft, event, refused))
                continue
            case InvalidInput():
                refused.add(draft.origin, outcome)
            case _:
                unavailable = outcome
        count_outcomes([outcome])
    record_appended(appended)
    if unavailable is not None:
        raise unavailable
    if again:
        _append(ledger, again, refused)


def _retold(ledger: Ledger, draft: Draft, event: Event, refused: _Refused) -> _Offered:
    """What to append of an event that the ledger has in other words: mostly nothing."""
    other = second_outcome(ledger, event, draft.own_id)
    if other is not None:
        return [(draft.apart(), other)]
    metrics.OTLP_RETOLD.inc()
    if not draft.is_shared:
        refused.warnings.append(f"event {event.event_id} was told otherwise before")
    return []


def _count(signal: metrics.OtlpSignal, total: int, mapped: Mapped, rejected: int) -> None:
    counts: dict[metrics.OtlpOutcome, int] = {
        "scope": mapped.scopes,
        "ignored": mapped.ignored,
        "rejected": rejected,
    }
    counts["remembered"] = max(total - sum(counts.values()), 0)
    for outcome, number in counts.items():
        metrics.OTLP_RECORDS.labels(signal, outcome).inc(number)


def _answer(body: Sent, data: bytes) -> Response:
    return Response(data, media_type=body.encoding.media_type)
