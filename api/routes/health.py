"""Whether the process lives, whether it can take events, whether it can answer; and its metrics.

Taking events needs the ledger, answering needs the graph: a graph that is away or hangs must not
take the process out of ingest, so each has an answer of its own. For operators and their tools:
no key is needed and no tenant is named.

Of several processes the one that is asked answers for itself. One that comes beside others takes
no connection before it is warm, so what is said at a start is said by the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.answers import JsonResponse
from api.dependencies import ServicesOf, no_query
from api.errors import ApiProblem, problem_responses
from api.schemas import Check, Live, Ready
from api.services import Services
from pipelines.observe.metrics import render_metrics

router = APIRouter(tags=["operations"], dependencies=[Depends(no_query)])
_PROBLEMS = problem_responses("not-ready", "internal")
_COLD = "the first questions are being planned"


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live", response_model=Live)
async def live() -> Response:
    """The process answers; says nothing about Redis or Neo4j."""
    return JsonResponse(Live())


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready", response_model=Ready, responses=_PROBLEMS)
async def ready(services: ServicesOf) -> Response:
    """Whether events are taken and questions are answered: both of the two below."""
    return _ready(services, {**_ingest(services), **_read(services)})


@router.head("/health/ready/ingest", include_in_schema=False)
@router.get("/health/ready/ingest", response_model=Ready, responses=_PROBLEMS)
async def ready_for_ingest(services: ServicesOf) -> Response:
    """Whether events are taken: Redis is there and the ledger has admitted its server process.

    Says nothing about the graph. A halted partition refuses its own events while all others flow:
    it is shown, and only when every partition is halted the API is not ready.
    """
    return _ready(services, _ingest(services))


@router.head("/health/ready/read", include_in_schema=False)
@router.get("/health/ready/read", response_model=Ready, responses=_PROBLEMS)
async def ready_to_read(services: ServicesOf) -> Response:
    """Whether questions are answered: Neo4j is there, and the columns hold what it does.

    And the first questions were planned.
    """
    return _ready(services, _read(services))


def _ingest(services: Services) -> Mapping[str, str | None]:
    return {"ledger": services.seen.ingest_error()}


def _read(services: Services) -> Mapping[str, str | None]:
    cold = _COLD if services.is_cold else None
    seen = services.seen
    return {"graph": seen.read_error(), "columns": seen.columns_error(), "warm": cold}


def _ready(services: Services, errors: Mapping[str, str | None]) -> Response:
    """Answered from the last look, at most a second old."""
    sample = services.seen.sample
    state = Ready(
        status="ready",
        checks={name: Check(ok=why is None, detail=why) for name, why in errors.items()},
        target=sample.target,
        halted_partitions={str(number): why for number, why in sample.halted.items()},
        lag_entries=sample.lag_entries,
        lag_seconds=sample.lag_seconds,
        overloaded=sample.overloaded(services.settings),
    )
    missing = [name for name, check in state.checks.items() if not check.ok]
    if missing:
        extra = state.model_copy(update={"status": "not ready"}).model_dump(exclude={"status"})
        raise ApiProblem("not-ready", f"Waiting for {', '.join(missing)}.", extra=extra)
    return JsonResponse(state)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus text format"}},
)
async def metrics() -> Response:
    """Metrics of the API, of all its processes together, and of what it sees."""
    body, media_type = render_metrics()
    return Response(body, headers={"Content-Type": media_type})
