"""What operators decide about the memory; each decision is an event in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.bodies import documented_body
from api.dependencies import Admin, Caller, JsonBytes, ServicesOf, no_query
from api.errors import problem_responses
from api.event_schemas import Accepted
from api.routes.events import decode_json
from api.statement_schemas import EntityCorrection, ReconsolidationRequest
from api.statements import STATEMENT_PROBLEMS, system_event, take_statement
from enrichment.payloads import ENTITY_CORRECTED, REQUESTED_EVENT
from projections.errors import InvalidInput
from projections.events import Event

router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(no_query)])


@router.post(
    "/entities/{entity_id}/corrections",
    status_code=202,
    response_model=Accepted,
    responses=problem_responses(*STATEMENT_PROBLEMS),
    openapi_extra=documented_body(EntityCorrection),
)
async def correct_entity(
    entity_id: str, caller: Admin, services: ServicesOf, body: JsonBytes
) -> Response:
    """Append a correction of an entity; the graph follows when the enrichment has read it.

    The entity (`entity:<hash>`) may be one that no event has mentioned yet. A read with
    `min_position` waits for the projection, not for the enrichment.
    """
    return await take_statement(
        services, lambda: _correction(decode_json(body), entity_id, caller), "entity corrected"
    )


@router.post(
    "/reconsolidate",
    status_code=202,
    response_model=Accepted,
    responses=problem_responses(*STATEMENT_PROBLEMS),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ReconsolidationRequest.model_json_schema()}},
        }
    },
)
async def reconsolidate(caller: Admin, services: ServicesOf, body: JsonBytes) -> Response:
    """Ask for a pass of consolidation of the tenant; a worker begins it within seconds.

    The request is an event of the ledger and waits for its turn: while a pass is under way it is
    accepted all the same, and the next pass answers it, together with all others of the tenant.
    """
    return await take_statement(
        services, lambda: _request(decode_json(body), caller), "a pass is asked for"
    )


def _request(raw: Any, caller: Caller) -> Event:
    """The event of a request for a pass.

    Raises:
        InvalidInput: naming the fields as the request has them.
    """
    if not isinstance(raw, Mapping):
        raise InvalidInput((("request", "a JSON object, which may be empty"),))
    payload = {name: value for name, value in raw.items() if name != "event_id"}
    return system_event(raw.get("event_id"), REQUESTED_EVENT, payload, caller)


def _correction(raw: Any, entity_id: str, caller: Caller) -> Event:
    """The event of a correction.

    Raises:
        InvalidInput: naming the fields as the request has them.
    """
    if not isinstance(raw, Mapping):
        raise InvalidInput((("correction", "a JSON object with the fields of a correction"),))
    if "entity_id" in raw:
        raise InvalidInput((("entity_id", "named by the path, not by the body"),))
    fields = {name: value for name, value in raw.items() if name != "event_id"}
    hashed = entity_id.removeprefix("entity:")
    payload = {**fields, "entity_id": f"entity:{hashed}"}
    return system_event(raw.get("event_id"), ENTITY_CORRECTED, payload, caller)
