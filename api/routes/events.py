"""Ingest, and reading back from the ledger. An answer of 200 or 201 means: it is in the ledger."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.answers import JsonResponse
from api.dependencies import (
    JsonBytes,
    Reader,
    ServicesOf,
    Writer,
    decode_json,
    documented_body,
    no_query,
)
from api.errors import (
    BODY_PROBLEMS,
    PROBLEMS,
    ApiProblem,
    current_request_id,
    describe,
    problem,
    problem_responses,
)
from api.read_schemas import LedgerReadQuery
from api.schemas import (
    Accepted,
    BatchAccepted,
    BatchCounts,
    BatchResult,
    EventEnvelope,
    StoredEvent,
)
from api.services import Caller, Services, counts_as_read
from api.stored_events import sees, stored
from pipelines.ledger.ledger import Appended, Outcome
from pipelines.observe import logs, metrics
from projections.errors import (
    EventConflict,
    GraphAhead,
    InvalidInput,
    LedgerUnavailable,
    RecollectError,
)
from projections.events import Event, is_system_event

_log = logs.get_logger(__name__)
_LOGGED_AT_ONCE: Final = 100
MULTI_STATUS: Final = 207

_AUTH = ("unauthenticated", "forbidden")
_INGEST = (
    *_AUTH,
    *BODY_PROBLEMS,
    "invalid-input",
    "rate-limited",
    "overloaded",
    "ledger-unavailable",
    "internal",
)
_LEDGER_READ = (
    *_AUTH,
    "not-found",
    "invalid-input",
    "rate-limited",
    "ledger-unavailable",
    "internal",
)

router = APIRouter(prefix="/v1/events", tags=["events"])


_BATCH_BODY: Final = {
    "anyOf": [
        {"$ref": "#/components/schemas/EventBatch"},
        {
            "type": "array",
            "items": {"$ref": "#/components/schemas/EventEnvelope"},
            "maxItems": 1_000,
        },
    ]
}


@router.post(
    "",
    status_code=201,
    response_model=Accepted,
    responses={
        200: {"model": Accepted, "description": "It was there already, with the same content"},
        **problem_responses(*_INGEST, "event-conflict", "partition-halted"),
    },
    openapi_extra=documented_body(EventEnvelope),
    dependencies=[Depends(no_query)],
)
async def append_event(caller: Writer, services: ServicesOf, body: JsonBytes) -> Response:
    """Append one event; sending the same one again is safe and says `duplicate`."""
    accepted = await services.append(lambda: _append_one(services, body, caller))
    return JsonResponse(
        accepted,
        status_code=200 if accepted.duplicate else 201,
        headers={"Location": f"/v1/events/{accepted.event_id}"},
    )


@router.post(
    "/batch",
    response_model=BatchAccepted,
    responses={
        200: {"description": "All are in the ledger"},
        207: {"model": BatchAccepted, "description": "Some are not; `results` says why"},
        **problem_responses(*_INGEST),
    },
    openapi_extra=documented_body(_BATCH_BODY),
    dependencies=[Depends(no_query)],
)
async def append_events(caller: Writer, services: ServicesOf, body: JsonBytes) -> Response:
    """Append up to 1,000 events, each judged alone, in order."""
    answer = await services.append(lambda: _append_many(services, body, caller))
    all_in = answer.counts.accepted + answer.counts.duplicates == len(answer.results)
    return JsonResponse(answer, status_code=200 if all_in else MULTI_STATUS)


@router.get(
    "/{event_id}",
    response_model=StoredEvent,
    responses=problem_responses(*_LEDGER_READ),
)
async def read_event(
    event_id: str, caller: Reader, services: ServicesOf, query: Annotated[LedgerReadQuery, Query()]
) -> Response:
    """An event as the ledger has it, with its payload. Works while the graph is away.

    It is there for `user_id` if it is of that user, or of nobody. What the memory has decided
    itself (`memory.*`) may be about several users and is for operators, except stated facts, and
    the feedback of a key that is bound to the user.
    """
    scope = caller.view(query.user_id, _now_ms())
    entry = await services.read(
        lambda: services.ledger().find(caller.tenant, event_id.lower()), timeout_ms=30_000
    )
    event = None if entry is None else entry.event()
    if entry is None or event is None or not sees(scope, event):
        raise ApiProblem("not-found", "No event of that id is in the ledger.")
    if counts_as_read(services, query) and not is_system_event(event.event_type):
        services.accesses.record(caller.tenant, [event.event_id])
    return JsonResponse(stored(entry, event))


def admit(services: Services, tenant: str, number: int) -> None:
    """Let a tenant's events in, or refuse them all with 429; costs no question.

    While the projection is behind, each tenant has a small reserve left, so that one tenant's
    flood does not refuse the others; when Redis' memory is full, nobody has.
    """
    sample, settings = services.seen.sample, services.settings
    reason = sample.full(settings)
    if reason is None and (late := sample.overloaded(settings)) is not None:
        reason = None if services.limits.has_reserve(tenant, number) else late
    if reason is not None:
        metrics.INGEST_EVENTS.labels(outcome="overloaded").inc()
        raise ApiProblem("overloaded", f"{reason[:1].upper()}{reason[1:]}.")
    services.limits.admit_events(tenant, number)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _append_one(services: Services, body: bytes, caller: Caller) -> Accepted:
    admit(services, caller.tenant, 1)
    ledger = services.ledger()
    try:
        event = caller.offered(decode_json(body), _now_ms())
        outcome = ledger.append([event], request_id=current_request_id())[0]
    except RecollectError as error:
        count_outcomes([error])
        raise
    count_outcomes([outcome])
    if not isinstance(outcome, Appended):
        raise outcome
    record_appended([(event, outcome)])
    return Accepted(
        event_id=event.event_id, global_position=str(outcome.position), duplicate=outcome.duplicate
    )


def _append_many(services: Services, body: bytes, caller: Caller) -> BatchAccepted:
    envelopes = _envelopes(decode_json(body), services.settings.max_batch_events)
    admit(services, caller.tenant, len(envelopes))
    ledger = services.ledger()
    now_ms = _now_ms()
    judged = [_judged(raw, caller, now_ms) for raw in envelopes]
    try:
        events = [event for event in judged if isinstance(event, Event)]
        places = iter(ledger.append(events, request_id=current_request_id()))
    except RecollectError as error:
        count_outcomes([error] * len(envelopes))
        raise
    outcomes = [next(places) if isinstance(event, Event) else event for event in judged]
    count_outcomes(outcomes)
    record_appended(
        [
            (event, outcome)
            for event, outcome in zip(judged, outcomes, strict=True)
            if isinstance(event, Event) and isinstance(outcome, Appended)
        ]
    )
    results = [_result(raw, outcome) for raw, outcome in zip(envelopes, outcomes, strict=True)]
    return BatchAccepted(results=results, counts=_counts(results))


def _judged(raw: Any, caller: Caller, now_ms: int) -> Event | InvalidInput:
    """An event of a batch, or why it is none."""
    try:
        return caller.offered(raw, now_ms)
    except InvalidInput as error:
        return error


def _envelopes(value: Any, most: int) -> Sequence[Any]:
    if isinstance(value, Mapping):
        unknown = [str(name)[:80] for name in value if name != "events"]
        if unknown:
            raise InvalidInput(tuple((name, "unknown field") for name in unknown))
        value = value.get("events")
    if not isinstance(value, list):
        raise InvalidInput((("events", "an array of events"),))
    if len(value) > most:
        raise InvalidInput((("events", f"at most {most:,} events"),))
    return value


def _result(raw: Any, outcome: Outcome) -> BatchResult:
    sent = raw.get("event_id") if isinstance(raw, Mapping) else None
    event_id = sent[:512] if isinstance(sent, str) else None
    if isinstance(outcome, Appended):
        return BatchResult(
            status=200 if outcome.duplicate else 201,
            event_id=event_id,
            global_position=str(outcome.position),
            duplicate=outcome.duplicate,
        )
    kind, detail, errors = describe(outcome)
    return BatchResult.model_validate(
        {
            "status": PROBLEMS[kind].status,
            "event_id": event_id,
            "error": problem(kind, detail, errors=errors),
        }
    )


def _counts(results: Sequence[BatchResult]) -> BatchCounts:
    statuses = [result.status for result in results]
    return BatchCounts(
        accepted=statuses.count(201),
        duplicates=statuses.count(200),
        conflicts=statuses.count(409),
        invalid=statuses.count(422),
        unavailable=statuses.count(503),
    )


def count_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Count events that were offered, by what became of them."""
    for name, count in Counter(map(_outcome_name, outcomes)).items():
        metrics.INGEST_EVENTS.labels(outcome=name).inc(count)


def _outcome_name(outcome: Outcome) -> metrics.IngestOutcome:
    match outcome:
        case Appended():
            return "duplicate" if outcome.duplicate else "accepted"
        case EventConflict():
            return "conflict"
        case InvalidInput():
            return "invalid"
        case GraphAhead() | LedgerUnavailable() | _:
            return "unavailable"


def record_appended(appended: Sequence[tuple[Event, Appended]]) -> None:
    """Log which request brought which event; workers log positions, so the two can be joined."""
    for start in range(0, len(appended), _LOGGED_AT_ONCE):
        _log.info(
            "events appended",
            events={
                event.event_id: str(place.position)
                for event, place in appended[start : start + _LOGGED_AT_ONCE]
            },
        )
