"""Feedback: a reader says which nodes of an answer were useful. It becomes an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.bodies import documented_body
from api.dependencies import Caller, JsonBytes, ServicesOf, Writer, no_query
from api.entity_schemas import FeedbackBody
from api.errors import problem_responses
from api.event_schemas import Accepted
from api.routes.events import decode_json
from api.statements import STATEMENT_PROBLEMS, system_event, take_statement
from enrichment.payloads import FEEDBACK_EVENT
from projections.errors import InvalidInput
from projections.events import Event

router = APIRouter(prefix="/v1/feedback", tags=["memory"], dependencies=[Depends(no_query)])


@router.post(
    "",
    status_code=202,
    response_model=Accepted,
    responses=problem_responses(*STATEMENT_PROBLEMS),
    openapi_extra=documented_body(FeedbackBody),
)
async def give_feedback(caller: Writer, services: ServicesOf, body: JsonBytes) -> Response:
    """Append a judgement of nodes; what is useful is remembered better."""
    return await take_statement(
        services, lambda: _feedback(decode_json(body), caller), "feedback given"
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
