"""What a caller states becomes an event of the ledger: feedback, corrections, requests for a pass.

Readers judge the nodes of an answer; operators correct entities and ask for consolidation. Each
statement is an event made now and appended once.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.answers import JsonResponse
from api.dependencies import (
    Admin,
    JsonBytes,
    PathName,
    ServicesOf,
    Writer,
    decode_json,
    documented_body,
    no_query,
)
from api.errors import BODY_PROBLEMS, current_request_id, problem_responses
from api.read_schemas import FeedbackBody
from api.routes.events import admit
from api.schemas import Accepted, EntityCorrection, ReconsolidationRequest, UserCorrection
from api.services import Caller, Services
from enrichment.payloads import (
    ENTITY_CORRECTED,
    FACT_ASSERTED,
    FACT_RETRACTED,
    FEEDBACK_EVENT,
    REQUESTED_EVENT,
    offered_event,
)
from pipelines.graph.rows import ENTITY_PREFIX
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.observe import logs
from projections.errors import EventConflict, InvalidEvent, InvalidInput
from projections.events import EVERYONE, PARTITION_KEY, Event, timestamp_text

router = APIRouter(prefix="/v1", dependencies=[Depends(no_query)])

_log = logs.get_logger(__name__)

STATEMENT_PROBLEMS: Final = (
    "unauthenticated",
    "forbidden",
    *BODY_PROBLEMS,
    "invalid-input",
    "event-conflict",
    "rate-limited",
    "overloaded",
    "ledger-unavailable",
    "partition-halted",
    "internal",
)
"""What a route may answer that takes a statement."""
_PAYLOAD: Final = "payload."


async def take_statement(services: Services, event: Callable[[], Event], done: str) -> Response:
    """Append what a caller states, unless ingest has to wait; the answer says where it can be read.

    Args:
        services: of the ledger.
        event: makes it from the request; called on a thread of its own.
        done: what has happened then, for the log.

    Raises:
        ApiProblem: the API is overloaded, or the body is no JSON.
        InvalidInput: naming the fields as the request has them.
        EventConflict: the id is taken by anything else.
        LedgerUnavailable, GraphAhead: nothing can be appended now.
    """

    def append() -> Accepted:
        stated = event()
        admit(services, stated.tenant, 1)
        return _append_stated(services.ledger(), stated, done)

    accepted = await services.append(append)
    return JsonResponse(
        accepted, status_code=202, headers={"Location": f"/v1/events/{accepted.event_id}"}
    )


def system_event(
    event_id: Any,
    event_type: str,
    payload: Mapping[str, Any],
    caller: Caller,
    *,
    user_id: str | None = None,
) -> Event:
    """An event that the caller makes now.

    Args:
        event_id: as sent; None: a random one, for saying the same again is saying it twice.
        event_type: one that producers may send.
        payload: as sent.
        caller: whose tenant and name it bears.
        user_id: whose it is; None: nobody's.

    Raises:
        InvalidInput: naming the fields as the request has them.
    """
    now_ms = time.time_ns() // 1_000_000
    try:
        return offered_event(
            {
                "event_id": str(uuid.uuid4()) if event_id is None else event_id,
                "event_type": event_type,
                "occurred_at": timestamp_text(now_ms),
                "session_id": PARTITION_KEY,
                "agent_id": caller.name,
                "trace_id": f"request-{current_request_id()}",
                "payload": payload,
            },
            now_ms=now_ms,
            tenant=caller.tenant,
            user_id=user_id,
        )
    except InvalidEvent as error:
        raise InvalidInput(
            tuple((name.removeprefix(_PAYLOAD), rule) for name, rule in error.errors)
        ) from None


def _append_stated(ledger: Ledger, event: Event, done: str) -> Accepted:
    """Append it; sent again with the same id and payload it is the same, whenever that was.

    Raises:
        EventConflict: the id is taken by anything else.
    """
    outcome = ledger.append([event], request_id=current_request_id())[0]
    if isinstance(outcome, EventConflict):
        return _stated_before(ledger, event, outcome)
    if not isinstance(outcome, Appended):
        raise outcome
    _log.info(done, events={event.event_id: str(outcome.position)})
    return Accepted(
        event_id=event.event_id, global_position=str(outcome.position), duplicate=outcome.duplicate
    )


def _stated_before(ledger: Ledger, event: Event, conflict: EventConflict) -> Accepted:
    """The answer to a request that is sent again: time and request id differ, the rest does not."""
    entry = ledger.find(event.tenant, event.event_id)
    if entry is None:
        raise conflict
    stored = entry.event()
    if (stored.event_type, stored.payload) != (event.event_type, event.payload):
        raise conflict
    return Accepted(event_id=event.event_id, global_position=str(entry.position), duplicate=True)


def _stated_fields(raw: Any, field: str, rule: str) -> dict[str, Any]:
    """The fields of a statement, without the id of its event.

    Raises:
        InvalidInput: it is no object.
    """
    if not isinstance(raw, Mapping):
        raise InvalidInput(((field, rule),))
    return {name: value for name, value in raw.items() if name != "event_id"}


@router.post(
    "/feedback",
    status_code=202,
    response_model=Accepted,
    responses=problem_responses(*STATEMENT_PROBLEMS),
    openapi_extra=documented_body(FeedbackBody),
    tags=["memory"],
)
async def give_feedback(caller: Writer, services: ServicesOf, body: JsonBytes) -> Response:
    """Append a judgement of nodes; what is useful is remembered better."""

    def event() -> Event:
        raw = decode_json(body)
        fields = _stated_fields(raw, "useful", "a JSON object with useful, not_useful, comment")
        sent = raw.get("event_id"), FEEDBACK_EVENT, fields, caller
        return system_event(*sent, user_id=caller.user_id)

    response = await take_statement(services, event, "feedback given")
    judged = decode_json(body)
    services.channels.submit(
        services.shown.count_judged,
        caller.tenant,
        judged.get("useful", ()),
        judged.get("not_useful", ()),
    )
    return response


_OF_FACTS: Final = {"state": FACT_ASSERTED, "retract": FACT_RETRACTED}
"""What a correction of a user becomes."""


@router.post(
    "/users/{user_id:path}/corrections",
    status_code=202,
    response_model=Accepted,
    responses=problem_responses(*STATEMENT_PROBLEMS),
    openapi_extra=documented_body(UserCorrection),
    tags=["memory"],
)
async def correct_user(
    user_id: PathName,
    caller: Writer,
    services: ServicesOf,
    body: JsonBytes,
) -> Response:
    """Append what a user, or somebody for them, says is so or is not so; it outranks the rest.

    It is a fact of the user's own: seen by whoever may see theirs, on every target, and still
    there after a rebuild.
    """
    if user_id == EVERYONE:
        raise InvalidInput((("user_id", "one user"),))
    caller.view(user_id, now_ms=0)  # a key of another user speaks for nobody else

    def event() -> Event:
        raw = decode_json(body)
        fields = _stated_fields(raw, "correction", "a JSON object with the fields of a correction")
        event_type = _OF_FACTS.get(str(fields.pop("correction", None)))
        if event_type is None:
            raise InvalidInput((("correction", "state or retract"),))
        payload = {"source": {"name": user_id, "type": "user"}, **fields}
        if event_type == FACT_ASSERTED:
            if "source_kind" in fields:
                raise InvalidInput((("source_kind", "not sent: a correction is a user_edit"),))
            payload["source_kind"] = "user_edit"
        return system_event(raw.get("event_id"), event_type, payload, caller, user_id=user_id)

    return await take_statement(services, event, "user corrected")


@router.post(
    "/admin/entities/{entity_id}/corrections",
    status_code=202,
    response_model=Accepted,
    responses=problem_responses(*STATEMENT_PROBLEMS),
    openapi_extra=documented_body(EntityCorrection),
    tags=["admin"],
)
async def correct_entity(
    entity_id: str, caller: Admin, services: ServicesOf, body: JsonBytes
) -> Response:
    """Append a correction of an entity; the graph follows when the enrichment has read it.

    The entity (`entity:<hash>`) may be one that no event has mentioned yet. A read with
    `min_position` waits for the projection, not for the enrichment.
    """

    def event() -> Event:
        raw = decode_json(body)
        rule = "a JSON object with the fields of a correction"
        fields = _stated_fields(raw, "correction", rule)
        if "entity_id" in fields:
            raise InvalidInput((("entity_id", "named by the path, not by the body"),))
        named = ENTITY_PREFIX + entity_id.removeprefix(ENTITY_PREFIX)
        payload = {**fields, "entity_id": named}
        return system_event(raw.get("event_id"), ENTITY_CORRECTED, payload, caller)

    return await take_statement(services, event, "entity corrected")


@router.post(
    "/admin/reconsolidate",
    status_code=202,
    response_model=Accepted,
    responses=problem_responses(*STATEMENT_PROBLEMS),
    openapi_extra=documented_body(ReconsolidationRequest.model_json_schema(), required=False),
    tags=["admin"],
)
async def reconsolidate(caller: Admin, services: ServicesOf, body: JsonBytes) -> Response:
    """Ask for a pass of consolidation of the tenant; a worker begins it within seconds.

    The request is an event of the ledger and waits for its turn: while a pass is under way it is
    accepted all the same, and the next pass answers it, together with all others of the tenant.
    """

    def event() -> Event:
        raw = decode_json(body) if body else {}
        fields = _stated_fields(raw, "request", "a JSON object, or nothing")
        return system_event(raw.get("event_id"), REQUESTED_EVENT, fields, caller)

    return await take_statement(services, event, "a pass is asked for")
