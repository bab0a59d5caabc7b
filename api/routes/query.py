"""The question of an agent: what the memory knows that helps with it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from api.answer_cache import keep_answer, known_answer
from api.answers import JsonResponse
from api.bodies import body_of, documented_body
from api.contents import add_contents
from api.dependencies import Deadline, Reader, Services, ServicesOf, no_query
from api.errors import problem_responses
from api.evidence import subgraph_markdown
from api.markdown import MarkdownResponse, also_markdown, wants_markdown
from api.query_schemas import SubgraphQuery
from api.read_your_writes import begin_read
from api.retrieval.answer import Retrieval
from api.retrieval.pages import cursor_of, page_of
from api.routes.context import READ_PROBLEMS, clock_ms
from api.schemas import AtlasResponse
from api.subgraph_answers import subgraph_response
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
        **problem_responses(
            *READ_PROBLEMS, "malformed-json", "body-too-large", "unsupported-media-type"
        ),
    },
    openapi_extra=documented_body(SubgraphQuery),
)
async def query_subgraph(
    caller: Reader,
    services: ServicesOf,
    asked: Annotated[SubgraphQuery, Depends(body_of(SubgraphQuery))],
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """What the memory knows that helps with a question: nodes by rank, and the edges between them.

    The question alone is enough: what it is about, what it wants to know and where to begin are
    found out here; `intent` and `seed_nodes` override that. `Accept: text/markdown` gives the
    events as evidence in reading order, the best that fit into `max_tokens`.
    """
    deadline = await begin_read(services, asked.timeout_ms, asked.min_position)
    answering = _Answering(services, caller.tenant, asked, deadline)
    if wants_markdown(accept):
        text = await services.query(answering.evidence, timeout_ms=deadline.remaining_ms())
        return MarkdownResponse(text)
    return JsonResponse(await services.query(answering.answer, timeout_ms=deadline.remaining_ms()))


class _Answering:
    """One answer, on a thread of its own: from the cache, or the next page, or found anew."""

    def __init__(
        self, services: Services, tenant: str, asked: SubgraphQuery, deadline: Deadline
    ) -> None:
        self._services = services
        self._tenant = tenant
        self._asked = asked
        self._deadline = deadline
        self._question = [tenant, asked.model_dump(exclude=_NOT_THE_QUESTION)]

    def answer(self) -> AtlasResponse:
        """The answer, with the payloads that were asked for, and counted as read."""
        response = self._cached()
        if response is None:
            response = self._found()
        if "content" in self._asked.include:
            response = response.model_copy(deep=True)  # what is cached stays without
            add_contents(response.nodes, self._tenant, self._services.ledger)
        self._record(response)
        return response

    def evidence(self) -> str:
        """The answer as text; events whose words do not come in time are summed up."""
        response = self.answer()
        ids = [node.node_id for node in response.nodes if node.type == EVENT.label]
        said: dict[str, str] = {}
        with suppress(GraphError), self._services.connections.graph.reader() as reader:
            said = reader.read(
                lambda graph: texts(graph, self._tenant, ids),
                timeout_ms=self._deadline.remaining_ms(),
            )
        return subgraph_markdown(response.nodes, said, self._asked.max_tokens)

    def _found(self) -> AtlasResponse:
        asked, services = self._asked, self._services
        projected = services.watch.projected()
        page = None if asked.cursor is None else page_of(self._question, asked.cursor)
        now_ms = clock_ms(asked.as_of) if page is None else page.now_ms
        retrieval = Retrieval(services, self._tenant, asked, self._deadline, now_ms)
        found = retrieval.answer() if page is None else retrieval.page(page.ranking)
        response = subgraph_response(
            found,
            asked,
            now_ms=now_ms,
            query_ms=self._deadline.elapsed_ms(),
            next_cursor=cursor_of(self._question, found.rest, now_ms),
        )
        if not response.meta.degraded:
            self._keep(response, projected)
        self._count(response)
        return response

    def _count(self, response: AtlasResponse) -> None:
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

    # -- the same answer again ---------------------------------------------------------------------

    def _key(self) -> bytes:
        return orjson.dumps([self._question, self._asked.max_nodes, self._asked.cursor])

    def _cached(self) -> AtlasResponse | None:
        """What was answered a moment ago; nobody who waits for a position gets that."""
        if self._asked.min_position is not None:
            return None
        response = known_answer(self._services, self._tenant, self._key(), AtlasResponse)
        if response is None:
            return None
        method = response.meta.retrieval_method or ""
        metrics.QUERIES.labels(method=method, outcome="cached").inc()
        meta = response.meta.model_copy(
            update={"cached": True, "query_ms": self._deadline.elapsed_ms()}
        )
        return response.model_copy(update={"meta": meta})

    def _keep(self, response: AtlasResponse, projected: Mapping[int, Position] | None) -> None:
        keep_answer(
            self._services,
            self._tenant,
            self._key(),
            response,
            size=lambda: len(response.model_dump_json()),
            sessions=[
                self._asked.session_id,
                *(node.provenance.session_id for node in response.nodes),
            ],
            projected=projected,
        )

    def _record(self, response: AtlasResponse) -> None:
        """What was shown counts as read, unless it was read as of another time."""
        asked = self._asked
        past = asked.as_of is not None or asked.as_of_position is not None
        if asked.record_access and self._services.settings.record_accesses and not past:
            ids = [node.node_id for node in response.nodes]
            self._services.accesses.record(self._tenant, ids)
            self._services.history.show(self._tenant, asked.session_id, ids)


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
