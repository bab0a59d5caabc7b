"""The question of an agent: what the memory knows that helps with it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.answers import JsonResponse
from api.bodies import body_of, documented_body
from api.dependencies import Deadline, Reader, ServicesOf, no_query
from api.errors import problem_responses
from api.reading import wait_until_projected
from api.retrieval.answer import Retrieval
from api.routes.context import READ_PROBLEMS, clock_ms
from api.schemas import AtlasResponse, SubgraphQuery
from api.subgraph_answers import subgraph_response
from projections.positions import Position

router = APIRouter(prefix="/v1/query", tags=["memory"], dependencies=[Depends(no_query)])


@router.post(
    "/subgraph",
    response_model=AtlasResponse,
    responses=problem_responses(
        *READ_PROBLEMS, "malformed-json", "body-too-large", "unsupported-media-type"
    ),
    openapi_extra=documented_body(SubgraphQuery),
)
async def query_subgraph(
    caller: Reader,
    services: ServicesOf,
    asked: Annotated[SubgraphQuery, Depends(body_of(SubgraphQuery))],
) -> Response:
    """What the memory knows that helps with a question: nodes by rank, and the edges between them.

    The question alone is enough: what it is about, what it wants to know and where to begin are
    found out here; `intent` and `seed_nodes` override that.
    """
    deadline = Deadline(asked.timeout_ms)
    if asked.min_position is not None:
        await wait_until_projected(services, Position.parse(asked.min_position), deadline)
    now_ms = clock_ms(asked.as_of)
    retrieval = Retrieval(services, caller.tenant, asked, deadline, now_ms)
    found = await services.read(retrieval.answer, timeout_ms=deadline.remaining_ms())
    return JsonResponse(
        subgraph_response(found, asked, now_ms=now_ms, query_ms=deadline.elapsed_ms())
    )
