"""Feedback: a reader says which nodes of an answer were useful. It becomes an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.answers import JsonResponse
from api.bodies import documented_body
from api.dependencies import Caller, JsonBytes, ServicesOf, Writer, no_query
from api.entity_schemas import FeedbackBody
from api.errors import problem_responses
from api.routes.events import decode_json, refuse_when_busy
from api.schemas import Accepted
from api.statements import append_stated, system_event
from enrichment.feedback import FEEDBACK_EVENT
from projections.errors import InvalidInput
from projections.events import Event

router = APIRouter(prefix="/v1/feedback", tags=["memory"], dependencies=[Depends(no_query)])


@router.post(
    "",
    status_code=202,
    response_model=Accepted,
    responses=problem_responses(
        "unauthenticated",
        "forbidden",
        "malformed-json",
        "body-too-large",
        "unsupported-media-type",
        "invalid-input",
        "event-conflict",
        "overloaded",
        "ledger-unavailable",
        "partition-halted",
        "internal",
    ),
    openapi_extra=documented_body(FeedbackBody),
)
async def give_feedback(caller: Writer, services: ServicesOf, body: JsonBytes) -> Response:
    """Append a judgement of nodes; what is useful is remembered better."""
    refuse_when_busy(services)
    event = _feedback(decode_json(body), caller)
    accepted = await services.append(
        lambda: append_stated(services.ledger(), event, "feedback given")
    )
    return JsonResponse(
        accepted, status_code=202, headers={"Location": f"/v1/events/{accepted.event_id}"}
    )


def _feedback(raw: Any, caller: Caller) -> Event:
    """The event of a judgement.

    Raises:
        InvalidInput: naming the fields as the request has them.
    """
    if not isinstance(raw, Mapping):
        raise InvalidInput((("useful", "a JSON object with useful, not_useful, comment"),))
    fields = {name: value for name, value in raw.items() if name != "event_id"}
    return system_event(raw.get("event_id"), FEEDBACK_EVENT, fields, caller)
