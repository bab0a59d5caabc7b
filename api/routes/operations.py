"""What is under way: rebuilds that run, how far archiving is, erasures with their steps."""

from __future__ import annotations

from typing import Final

from anyio import to_thread
from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.answers import JsonResponse
from api.browse_schemas import (
    ArchivedPartition,
    ArchiveItem,
    ErasureItem,
    OperationsAnswer,
    RebuildItem,
)
from api.dependencies import Admin, ServicesOf, no_query, require_unbound
from api.errors import problem_responses
from api.routes.targets import PROBLEMS
from pipelines.ledger.erasing import DONE, Told, erasures
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rebuilds import Rebuilding
from projections.events import timestamp_text

MOST_ERASURES: Final = 100

router = APIRouter(prefix="/v1/admin", tags=["admin"])


@router.get(
    "/operations",
    response_model=OperationsAnswer,
    responses=problem_responses(*PROBLEMS),
    dependencies=[Depends(no_query)],
)
async def list_operations(caller: Admin, services: ServicesOf) -> Response:
    """Rebuilds that run, how far archiving is, and erasures of the tenant.

    Erasures are about whichever user, so a key that is bound to a user is refused. They name who it
    was by the id of the key alone, as receipts do.
    """
    require_unbound(caller)
    ledger = services.ledger()

    def work() -> OperationsAnswer:
        rows = [row for row in erasures(ledger.vault) if row["tenant"] == caller.tenant]
        waiting = [row for row in rows if row["step"] != DONE]
        done = [row for row in reversed(rows) if row["step"] == DONE]
        shown = [*waiting, *done][:MOST_ERASURES]
        return OperationsAnswer(
            rebuilds=[_rebuild(one) for one in services.connections.rebuilds.all()],
            archive=_archive(ledger),
            erasures=[_erasure(row) for row in shown],
            more_erasures=len(rows) > len(shown),
        )

    return JsonResponse(await to_thread.run_sync(work))


def _rebuild(told: Rebuilding) -> RebuildItem:
    return RebuildItem(
        target=told.target,
        doing=told.doing,
        done=told.done,
        total=told.total,
        begun_at=timestamp_text(round(told.begun_s * 1000)),
        heard_at=timestamp_text(round(told.heard_s * 1000)),
    )


def _archive(ledger: Ledger) -> ArchiveItem | None:
    tails = ledger.tails()
    state = ledger.archive.state(len(tails))
    if state is None:
        return None
    return ArchiveItem(
        partitions=[
            ArchivedPartition(
                partition=partition,
                archived=boundary.seq,
                position=str(boundary.position),
                segments=boundary.segments,
                streamed=max(0, tail.seq - boundary.seq),
            )
            for partition, (boundary, tail) in enumerate(zip(state.boundaries, tails, strict=True))
        ],
        waits_for=state.waits_for or None,
        has_problem=bool(state.problem),
    )


def _erasure(row: Told) -> ErasureItem:
    return ErasureItem(
        subject=row["subject"],
        kind=row["kind"],
        step=row["step"],
        is_done=row["step"] == DONE,
        requested_at=row["requested_at"],
        finished_at=row.get("finished_at"),
        entries=row.get("entries"),
    )
