"""Dead letters, the graphs that are folded from the ledger, and what is under way, for operators.

The API never writes to a graph, and compares and proves nothing itself. To try dead letters again
is asked for here, and done by the worker of the consolidation, as `recollect dead-letters retry`
does it. Of graphs it shows what commands found out last: which one answers, what proved it, how
they differ. Under way are rebuilds that run, archiving, and erasures with their steps.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.answers import JsonResponse
from api.browse_schemas import (
    MOST_RETRIED,
    ArchivedPartition,
    ArchiveItem,
    ComparisonItem,
    DeadLetterItem,
    DeadLetterList,
    DeadLettersQuery,
    DeadLettersRetried,
    DifferenceExample,
    ErasureItem,
    OperationsAnswer,
    ProofItem,
    RebuildItem,
    RetriesAsked,
    TargetItem,
    TargetList,
    TypeDifferenceItem,
)
from api.connections import Connections
from api.dependencies import (
    Admin,
    ServicesOf,
    body_of,
    documented_body,
    no_query,
)
from api.errors import BODY_PROBLEMS, READ_PROBLEMS, problem_responses
from api.services import Caller, Services
from pipelines.graph.reader import STATUS_TIMEOUT_MS, DeadLetter, LettersAsked
from pipelines.ledger.command_notes import Comparison, Rebuilding
from pipelines.ledger.erasing import DONE, Told, erasures
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.registry import LetterPlace, Report, verified_stage
from projections.events import timestamp_text
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


MOST_ERASURES: Final = 100


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
