"""The graphs that are folded from the ledger: which one answers, what proved it, how they differ.

The API compares and proves nothing itself: it shows what commands found out last.
"""

from __future__ import annotations

from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.answers import JsonResponse
from api.browse_schemas import (
    ComparisonItem,
    DifferenceExample,
    ProofItem,
    TargetItem,
    TargetList,
    TypeDifferenceItem,
)
from api.connections import Connections
from api.dependencies import Admin, ServicesOf, no_query, require_unbound
from api.errors import problem_responses
from pipelines.ledger.comparisons import Comparison
from pipelines.ledger.registry import Report, verified_stage
from projections.events import timestamp_text

router = APIRouter(prefix="/v1/admin", tags=["admin"])
PROBLEMS = (
    *("unauthenticated", "forbidden", "invalid-input", "rate-limited"),
    *("ledger-unavailable", "internal"),
)


@router.get(
    "/targets",
    response_model=TargetList,
    responses=problem_responses(*PROBLEMS),
    dependencies=[Depends(no_query)],
)
async def list_targets(caller: Admin, services: ServicesOf) -> Response:
    """The targets with their last proofs, and how two of them differed when they were compared.

    The difference is that of the tenant, whichever users it is about, so a key that is bound to a
    user is refused.
    """
    require_unbound(caller)
    services.ledger()  # known to be away: nobody waits for it

    def work() -> TargetList:
        connections = services.connections
        last = connections.comparisons.last(caller.tenant)
        return TargetList(
            targets=_targets(connections), comparison=None if last is None else _comparison(last)
        )

    return JsonResponse(await to_thread.run_sync(work))


def _targets(connections: Connections) -> list[TargetItem]:
    reports = connections.reports.all()
    return [
        TargetItem(
            name=target.name,
            state=target.state,
            proofs=[
                _proof(stage, report)
                for report in reports
                if report.target == target.name and (stage := verified_stage(report)) is not None
            ],
        )
        for target in connections.targets.all()
    ]


def _proof(stage: str, report: Report) -> ProofItem:
    return ProofItem(
        stage=stage,
        differences=int(report.values["differences"]),
        ended_at=timestamp_text(int(report.values["ended_at_s"] * 1000)),
    )


def _comparison(last: Comparison) -> ComparisonItem:
    return ComparisonItem(
        first=last.first,
        second=last.second,
        ended_at=timestamp_text(last.ended_at_ms),
        same=not last.types,
        behind=last.behind,
        types=[TypeDifferenceItem(**_known(TypeDifferenceItem, kind)) for kind in last.types],
        examples=[DifferenceExample(**example) for example in last.examples],
    )


def _known(model: type[TypeDifferenceItem], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in model.model_fields}
