"""The question of an agent: what the memory knows that helps with it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from api.answers import (
    JsonResponse,
    MarkdownResponse,
    add_contents,
    also_markdown,
    subgraph_markdown,
    subgraph_response,
    wants_markdown,
)
from api.cursors import ranking_cursor, ranking_of
from api.dependencies import Reader, ServicesOf, body_of, documented_body, no_query
from api.errors import BODY_PROBLEMS, READ_PROBLEMS, problem_responses
from api.query_schemas import SubgraphQuery
from api.retrieval.answer import Retrieval
from api.schemas import AtlasResponse
from api.services import ReadContext, begin_read
from pipelines.graph.reads.shown import texts
from pipelines.observe import metrics
from projections.errors import GraphError
from projections.positions import Position
from projections.schema import EVENT

router = APIRouter(prefix="/v1/query", tags=["memory"], dependencies=[Depends(no_query)])


@router.post(
    "/subgraph",
    response_model=AtlasResponse,
    responses={
        **also_markdown("The nodes; as Markdown, the events among them as evidence"),
        **problem_responses(*READ_PROBLEMS, *BODY_PROBLEMS),
    },
    openapi_extra=documented_body(SubgraphQuery),
)
async def query_subgraph(
    caller: Reader,
    services: ServicesOf,
    query: Annotated[SubgraphQuery, Depends(body_of(SubgraphQuery))],
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """What the memory knows that helps with a question: nodes by rank, and the edges between them.

    The question alone is enough: what it is about, what it wants to know and where to begin are
    found out here; `intent` and `seed_nodes` override that. `Accept: text/markdown` gives the
    events as evidence in reading order, the best that fit into `max_tokens`.
    """
    context = await begin_read(services, caller.tenant, query, as_of=query.as_of)
    answering = _Answering(context)
    limit_ms = context.deadline.remaining_ms()
    if wants_markdown(accept):
        return MarkdownResponse(await services.query(answering.evidence, timeout_ms=limit_ms))
    return JsonResponse(await services.query(answering.answer, timeout_ms=limit_ms))


class _Answering:
    """One answer, on a thread of its own: from the cache, or the next page, or found anew."""

    def __init__(self, context: ReadContext[SubgraphQuery]) -> None:
        query = context.query
        self._context = context
        self._services = context.services
        self._question = [context.tenant, query.model_dump(exclude=_NOT_THE_QUESTION)]
        self._key = orjson.dumps([self._question, query.max_nodes, query.cursor])

    def answer(self) -> AtlasResponse:
        """The answer, with the payloads that were asked for, and counted as read."""
        response = self._cached() or self._found()
        if "content" in self._context.query.include:
            response = response.model_copy(deep=True)  # what is cached stays without
            add_contents(response.nodes, self._context.tenant, self._services.ledger)
        self._record(response)
        return response

    def evidence(self) -> str:
        """The answer as text; events whose words do not come in time are summed up."""
        response = self.answer()
        context = self._context
        ids = [node.node_id for node in response.nodes if node.type == EVENT.label]
        words: dict[str, str] = {}
        with suppress(GraphError), self._services.connections.graph.reader() as reader:
            words = context.read(reader, lambda graph: texts(graph, context.tenant, ids))
        return subgraph_markdown(response.nodes, words, context.query.max_tokens)

    def _found(self) -> AtlasResponse:
        context, cursor = self._context, self._context.query.cursor
        projected = self._services.watch.projected()
        with self._services.connections.graph.reader() as reader:
            if cursor is None:
                page = Retrieval(context, reader).answer()
            else:
                ranking, now_ms = ranking_of(self._question, cursor)
                context = replace(context, now_ms=now_ms)
                page = Retrieval(context, reader).next_page(ranking)
        next_cursor = ranking_cursor(self._question, page.behind, context.now_ms)
        response = subgraph_response(context, page, next_cursor)
        if not response.meta.degraded:
            self._keep(response, projected)
        _count(response)
        return response

    # -- the same answer again ---------------------------------------------------------------------

    def _cached(self) -> AtlasResponse | None:
        """What was answered a moment ago; nobody who waits for a position gets that."""
        if self._context.query.min_position is not None:
            return None
        response = self._context.cached(self._key, AtlasResponse)
        if response is None:
            return None
        method = response.meta.retrieval_method or ""
        metrics.QUERIES.labels(method=method, outcome="cached").inc()
        meta = response.meta.model_copy(
            update={"cached": True, "query_ms": self._context.deadline.elapsed_ms()}
        )
        return response.model_copy(update={"meta": meta})

    def _keep(self, response: AtlasResponse, projected: Mapping[int, Position] | None) -> None:
        shown = (node.provenance.session_id for node in response.nodes)
        self._context.cache(
            self._key,
            response,
            size=lambda: len(response.model_dump_json()),
            sessions=[self._context.query.session_id, *shown],
            projected=projected,
        )

    def _record(self, response: AtlasResponse) -> None:
        """What was shown counts as read, unless it was read as of another time."""
        context, query = self._context, self._context.query
        past = query.as_of is not None or query.as_of_position is not None
        if query.record_access and context.settings.record_accesses and not past:
            ids = [node.node_id for node in response.nodes]
            self._services.accesses.record(context.tenant, ids)
            self._services.history.show(context.tenant, query.session_id, ids)


def _count(response: AtlasResponse) -> None:
    outcome: metrics.QueryOutcome = "answered" if response.nodes else "empty"
    if response.meta.degraded:
        outcome = "partial"
    method = response.meta.retrieval_method or ""
    metrics.QUERIES.labels(method=method, outcome=outcome).inc()
    for node in response.nodes:
        for channel in node.found_by:
            metrics.CHANNEL_NODES.labels(channel=channel).inc()
        if node.proactive_signal is not None:
            metrics.PROACTIVE_NODES.labels(signal=node.proactive_signal).inc()


_NOT_THE_QUESTION: Final = {
    "cursor",
    "max_nodes",
    "timeout_ms",
    "min_position",
    "include",
    "record_access",
    "max_tokens",
}
"""Fields that may differ from page to page, and change no ranking."""
