"""Dead letters: what a stage could not fold and has passed.

The API never writes to the graph: to try them again is asked for here, and done by the worker of
the consolidation, as `recollect dead-letters retry` does it.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.answers import JsonResponse
from api.browse_schemas import (
    MOST_RETRIED,
    DeadLetterItem,
    DeadLetterList,
    DeadLettersQuery,
    DeadLettersRetried,
    RetriesAsked,
)
from api.dependencies import (
    Admin,
    ServicesOf,
    body_of,
    documented_body,
    no_query,
    require_unbound,
)
from api.errors import BODY_PROBLEMS, READ_PROBLEMS, problem_responses
from api.services import Caller, Services
from pipelines.graph.reader import STATUS_TIMEOUT_MS, DeadLetter, LettersAsked
from pipelines.ledger.registry import LetterPlace
from projections.schema import DROPPED

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
    require_unbound(caller)

    def work() -> DeadLetterList:
        letters = _letters(services, caller, skip=query.skip, limit=query.limit + 1)
        waiting = set(services.connections.holds.retries(_target(services)))
        items = [
            DeadLetterItem(**_shown(letter), retry_asked=_place(letter) in waiting)
            for letter in letters[: query.limit]
        ]
        return DeadLetterList(dead_letters=items, more=len(letters) > query.limit)

    return JsonResponse(await services.read(work, timeout_ms=STATUS_TIMEOUT_MS))


@router.post(
    "/dead-letters/retry",
    status_code=202,
    response_model=RetriesAsked,
    responses=problem_responses(*READ_PROBLEMS, *BODY_PROBLEMS),
    openapi_extra=documented_body(DeadLettersRetried),
    dependencies=[Depends(no_query)],
)
async def retry_dead_letters(
    caller: Admin,
    services: ServicesOf,
    wanted: Annotated[DeadLettersRetried, Depends(body_of(DeadLettersRetried))],
) -> Response:
    """Have dead letters of the tenant tried again; the consolidation's worker does it in seconds.

    One that passes is gone from the list; one that fails again stays there. What was dropped is
    tried only where it is named.
    """
    require_unbound(caller)

    def work() -> RetriesAsked:
        letters = _letters(services, caller, limit=MOST_RETRIED, **wanted.model_dump())
        places = [
            _place(letter) for letter in letters if letter.kind != DROPPED or wanted.seq is not None
        ]
        services.connections.holds.ask_retries(_target(services), places)
        return RetriesAsked(asked=len(places))

    retries = await services.read(work, timeout_ms=STATUS_TIMEOUT_MS)
    return JsonResponse(retries, status_code=202)


def _target(services: Services) -> str:
    target = services.connections.graph.target
    return services.settings.target if target is None else target.name


def _letters(services: Services, caller: Caller, **which: Any) -> list[DeadLetter]:
    with services.connections.graph.reader() as reader:
        wanted = LettersAsked(tenant=caller.tenant, **which)
        return reader.read(lambda read: read.dead_letters(wanted), timeout_ms=STATUS_TIMEOUT_MS)


def _shown(letter: DeadLetter) -> dict[str, Any]:
    return {name: value for name, value in letter._asdict().items() if name != "tenant"}


def _place(letter: DeadLetter) -> LetterPlace:
    return LetterPlace(letter.stage, letter.partition, letter.seq)
