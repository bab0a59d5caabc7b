"""Summaries: what an episode, a session or an agent comes to, and what it is made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from api.answers import JsonResponse
from api.cursors import cursor_of, place_of
from api.dependencies import Deadline, Reader, Services, ServicesOf
from api.entity_answers import SUMMARY_PREFIX, link_item, summary_item
from api.entity_schemas import (
    EpisodeList,
    PageMeta,
    SummaryItem,
    SummaryQuery,
    SummaryResponse,
    SummaryScope,
)
from api.errors import ApiProblem, problem_responses
from api.read_your_writes import begin_read
from api.routes.context import READ_PROBLEMS
from consolidation.summary_payloads import summary_id
from pipelines.graph.reader import GraphNode, GraphRead
from pipelines.graph.reads.entities import EntityReads, Link
from projections.events import MAX_NAME_CHARACTERS

MAX_SCOPE_ID = 3 * MAX_NAME_CHARACTERS
"""Of an episode: its session, its trace and a number."""

LAST_MS = 253_402_300_799_999
"""The end of the year 9999: behind everything."""

router = APIRouter(prefix="/v1", tags=["memory"])


@router.get(
    "/summaries/{scope}/{scope_id:path}",
    response_model=SummaryResponse,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_summary(
    scope: SummaryScope,
    scope_id: Annotated[str, Path(min_length=1, max_length=MAX_SCOPE_ID)],
    caller: Reader,
    services: ServicesOf,
    query: Annotated[SummaryQuery, Query()],
) -> Response:
    """The summary of an episode, a session or an agent, and the summaries it is made from.

    `scope_id` is the session's or the agent's id, an episode's as its summary names it, or
    `summary:<hash>`.
    """
    own_id = _summary_id(caller.tenant, scope, scope_id)
    page, meta = await _page(services, caller.tenant, own_id, query)
    if page.node is None or page.node.properties["scope"] != scope:
        raise ApiProblem("not-found", "No such summary is in the graph; a pass may not be due yet.")
    return JsonResponse(
        SummaryResponse(
            summary=summary_item(page.node),
            children=page.items(),
            links=[link_item(one) for one in page.links],
            next_cursor=page.next_cursor(),
            meta=meta,
        )
    )


@router.get(
    "/sessions/{session_id:path}/episodes",
    response_model=EpisodeList,
    responses=problem_responses(*READ_PROBLEMS),
)
async def list_episodes(
    session_id: Annotated[str, Path(min_length=1, max_length=MAX_NAME_CHARACTERS)],
    caller: Reader,
    services: ServicesOf,
    query: Annotated[SummaryQuery, Query()],
) -> Response:
    """The episodes of a session in order, as far as consolidation has come; maybe none yet."""
    own_id = summary_id(caller.tenant, "session", session_id)
    page, meta = await _page(services, caller.tenant, own_id, query)
    return JsonResponse(
        EpisodeList(episodes=page.items(), next_cursor=page.next_cursor(), meta=meta)
    )


def _summary_id(tenant: str, scope: SummaryScope, scope_id: str) -> str:
    if scope_id.startswith(SUMMARY_PREFIX):
        return scope_id.removeprefix(SUMMARY_PREFIX)
    return summary_id(tenant, scope, scope_id)


class _Page:
    """A summary with a page of those below it, as they are read."""

    def __init__(self, tenant: str, own_id: str, query: SummaryQuery) -> None:
        self._tenant = tenant
        self._id = own_id
        self._limit = query.limit
        self._question = ("summary", tenant, own_id)
        self._after: Sequence[Any] = (0, "")
        if query.cursor is not None:
            began_ms, after_id = place_of(self._question, query.cursor, (int, str))
            self._after = (min(max(began_ms, 0), LAST_MS), after_id)
        self.node: GraphNode | None = None
        self._below: list[GraphNode] = []
        self.links: list[Link] = []

    def read(self, graph: GraphRead) -> None:
        """Read all of it."""
        reads = EntityReads(graph, self._tenant)
        began_ms, own_id = self._after
        self.node = reads.summary(self._id)
        self._below = reads.below(self._id, (began_ms, own_id), self._limit + 1)
        self.links = reads.links(self._id)

    def items(self) -> list[SummaryItem]:
        """The page."""
        return [summary_item(one) for one in self._below[: self._limit]]

    def next_cursor(self) -> str | None:
        """Of the next page; None: this is the last one."""
        if len(self._below) <= self._limit:
            return None
        last = self._below[self._limit - 1]
        began_ms = (last.properties.get("time_range") or [0])[0]
        return cursor_of(self._question, [began_ms, last.node_id])

    def meta(self, deadline: Deadline) -> PageMeta:
        """How the answer came about."""
        return PageMeta(
            query_ms=deadline.elapsed_ms(),
            returned=min(len(self._below), self._limit),
            truncated=len(self._below) > self._limit,
        )


async def _page(
    services: Services, tenant: str, own_id: str, query: SummaryQuery
) -> tuple[_Page, PageMeta]:
    page = _Page(tenant, own_id, query)
    deadline = await begin_read(services, query.timeout_ms, query.min_position)

    def work() -> None:
        with services.connections.graph.reader() as reader:
            reader.read(page.read, timeout_ms=deadline.remaining_ms())

    await services.read(work, timeout_ms=deadline.remaining_ms())
    return page, page.meta(deadline)
