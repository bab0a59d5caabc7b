"""For operators and their tools: health and metrics. They need no key and name no tenant."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.answers import JsonResponse
from api.dependencies import ServicesOf, no_query
from api.errors import ApiProblem, problem_responses
from api.schemas import Check, Live, Ready
from pipelines.observe.metrics import render_metrics

router = APIRouter(tags=["operations"], dependencies=[Depends(no_query)])


@router.get("/health/live", response_model=Live)
async def live() -> Response:
    """The process answers; says nothing about Redis or Neo4j."""
    return JsonResponse(Live())


@router.get(
    "/health/ready", response_model=Ready, responses=problem_responses("not-ready", "internal")
)
async def ready(services: ServicesOf) -> Response:
    """Whether Redis and Neo4j are there and the ledger has admitted this server process.

    Answered from the last look, at most a second old. A halted partition refuses its own events
    while all others flow, so it is shown here and does not make the API unready.
    """
    sample = services.watch.sample
    stale = "the last look is too old" if services.watch.is_stale else None
    state = Ready(
        status="ready",
        checks={
            "ledger": _check(stale or sample.ledger_error),
            "graph": _check(stale or sample.graph_error),
        },
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


def _check(error: str | None) -> Check:
    return Check(ok=error is None, detail=error)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus text format"}},
)
async def metrics() -> Response:
    """Metrics of this process and of what it sees."""
    body, media_type = render_metrics()
    return Response(body, headers={"Content-Type": media_type})
