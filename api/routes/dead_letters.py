"""Dead letters: what a stage could not fold and has passed.

To try them again is for the machine of the workers (`recollect dead-letters retry`): the API never
writes to the graph.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from api.answers import JsonResponse
from api.browse_schemas import DeadLetterItem, DeadLetterList, DeadLettersQuery
from api.dependencies import Admin, ServicesOf
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from pipelines.graph.reader import STATUS_TIMEOUT_MS

router = APIRouter(prefix="/v1/admin", tags=["admin"])


@router.get(
    "/dead-letters", response_model=DeadLetterList, responses=problem_responses(*READ_PROBLEMS)
)
async def list_dead_letters(
    caller: Admin, services: ServicesOf, query: Annotated[DeadLettersQuery, Query()]
) -> Response:
    """The dead letters of the tenant, of whichever user; those whose tenant nobody can read, not.

    A reason may tell what an event holds, so a key that is bound to a user is refused.
    """
    if caller.user_id is not None:
        raise ApiProblem("forbidden", "This needs a key that is not bound to a user.")

    def work() -> DeadLetterList:
        with services.connections.graph.reader() as reader:
            letters = reader.read(
                lambda graph: graph.dead_letters(
                    skip=query.skip, limit=query.limit + 1, tenant=caller.tenant
                ),
                timeout_ms=STATUS_TIMEOUT_MS,
            )
        items = [
            DeadLetterItem(**{name: getattr(letter, name) for name in DeadLetterItem.model_fields})
            for letter in letters[: query.limit]
        ]
        return DeadLetterList(dead_letters=items, more=len(letters) > query.limit)

    return JsonResponse(await services.read(work, timeout_ms=STATUS_TIMEOUT_MS))
