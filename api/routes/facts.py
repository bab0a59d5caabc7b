"""What was ever said of an entity: its facts as they began, held, were contradicted and ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from starlette.responses import Response

from api.answers import JsonResponse, page_meta
from api.browse_schemas import FactHistory, FactHistoryQuery
from api.cursors import page_of, time_place
from api.dependencies import PathName, Reader, ServicesOf
from api.entity_answers import fact_of
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.retrieval.facts import (
    FactScore,
    FactWalk,
    RecalledFact,
    confidence_of,
    recalled_fact,
)
from api.retrieval.recall import entities_named
from api.services import begin_read
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.entities import EntityGroup
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.rows import ENTITY_PREFIX

router = APIRouter(prefix="/v1", tags=["memory"])


class _Told(NamedTuple):
    """The facts of a page, each with its place, and one behind them."""

    own_id: str
    facts: list[tuple[tuple[int, str], RecalledFact]]
    withheld: int | None


@router.get(
    "/facts/{entity_id:path}",
    response_model=FactHistory,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_fact_history(
    entity_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[FactHistoryQuery, Query()],
) -> Response:
    """Every fact that an entity stands in, whether it holds or not, what began last first.

    A fact that ended has `valid_to`; one that another contradicted has `expired_at`, too; what was
    withdrawn ends where it began. `entity_id` is as for `/v1/entities`; of several entities by one
    name the one mentioned most that facts are known of.
    """
    context = await begin_read(services, caller, query)
    viewer = context.scope.viewer
    question = ("fact history", caller.tenant, viewer, entity_id, query.as_of_position)
    behind = time_place(question, query.cursor)

    def work() -> _Told | None:
        with services.connections.graph.opened() as graph:
            named = entity_id.removeprefix(ENTITY_PREFIX)
            groups = list(entities_named(context.columns(graph.columns), named))
            if not groups:
                return None

            def ask(read: GraphRead) -> _Told:
                reads = FactReads(read, context.scope)
                group = _with_facts(reads, groups)
                facts = fact_history(
                    reads, group.ids, behind=behind, limit=query.limit + 1, now_ms=context.now_ms
                )
                withheld = context.withheld(lambda: reads.withheld(group.ids))
                return _Told(group.canonical, facts, withheld)

            return context.read(graph.reader, ask)

    told = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    if told is None:
        raise ApiProblem("not-found", "No entity of that id or name is in the graph.")
    page, next_cursor = page_of(question, told.facts, query.limit, lambda item: item[0])
    facts = [fact for _, fact in page]
    context.record([ENTITY_PREFIX + told.own_id], [fact.key for fact in facts])
    meta = page_meta(
        context,
        len(told.facts),
        withheld=told.withheld,
        begun_at=[ENTITY_PREFIX + told.own_id],
        next_cursor=next_cursor,
    )
    return JsonResponse(
        FactHistory(facts=[fact_of(fact) for fact in facts], next_cursor=next_cursor, meta=meta)
    )


def _with_facts(reads: FactReads, groups: Sequence[EntityGroup]) -> EntityGroup:
    """Of several entities by one name the first that facts are known of."""
    told = (group for group in groups if reads.history(group.ids, None, 1))
    return groups[0] if len(groups) == 1 else next(told, groups[0])


def fact_history(
    reads: FactReads,
    ids: Iterable[str],
    *,
    behind: tuple[int, str] | None,
    limit: int,
    now_ms: int,
) -> list[tuple[tuple[int, str], RecalledFact]]:
    """Facts of entities as they are told, each with its place; as `FactReads.history`."""
    rows = reads.history(ids, behind, limit)
    walk = FactWalk(wanted=FactFilter(now_ms), max_depth=1)
    walk.take(reads, [row for _, row in rows])
    return [
        (place, recalled_fact(walk, row, _scores(row.properties, now_ms))) for place, row in rows
    ]


def _scores(properties: Mapping[str, Any], now_ms: int) -> FactScore:
    """Of a fact that nobody searched for: how sure it is."""
    sure = confidence_of(properties, now_ms)
    return FactScore(confidence=sure, match=1.0, hop=0, composite=sure, score=sure)
