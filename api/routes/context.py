"""Working memory: a session's events, the most useful now first."""

from __future__ import annotations

import heapq
import time
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from api.answers import JsonResponse, atlas_edges, atlas_node, shown_weights
from api.dependencies import Deadline, Reader, ServicesOf
from api.errors import problem_responses
from api.query_schemas import ContextQuery
from api.read_your_writes import begin_read
from api.retrieval.traverse import Bound
from api.schemas import AtlasResponse, Capacity, Meta
from consolidation.decay import DECAY_WEIGHTS, NEUTRAL_RELEVANCE, decay_score
from pipelines.graph.reader import GraphEdge, GraphNode, GraphRead, GraphReader, SessionCandidate
from pipelines.graph.reads.as_of import reads_until
from projections.events import MAX_NAME_CHARACTERS, timestamp_ms

READ_PROBLEMS = (
    "unauthenticated",
    "forbidden",
    "invalid-input",
    "graph-unavailable",
    "ledger-unavailable",
    "time-limit",
    "internal",
)

router = APIRouter(prefix="/v1/context", tags=["memory"])


def clock_ms(as_of: str | None) -> int:
    """The moment a read is about."""
    return time.time_ns() // 1_000_000 if as_of is None else timestamp_ms(as_of)


@router.get(
    "/{session_id:path}",
    response_model=AtlasResponse,
    responses=problem_responses(*READ_PROBLEMS),
)
async def read_context(
    session_id: Annotated[str, Path(min_length=1, max_length=MAX_NAME_CHARACTERS)],
    caller: Reader,
    services: ServicesOf,
    query: Annotated[ContextQuery, Query()],
) -> Response:
    """The session's events ranked by decay score, and the edges between them."""
    deadline = await begin_read(services, query.timeout_ms, query.min_position)
    now_ms = clock_ms(query.as_of)

    def work() -> AtlasResponse:
        with services.connections.graph.reader() as reader:
            return _context(reader, caller.tenant, session_id, query, now_ms, deadline)

    return JsonResponse(await services.read(work, timeout_ms=deadline.remaining_ms()))


def _context(
    reader: GraphReader,
    tenant: str,
    session_id: str,
    query: ContextQuery,
    now_ms: int,
    deadline: Deadline,
) -> AtlasResponse:
    def ask(graph: GraphRead) -> tuple[list[GraphNode], list[GraphEdge], int]:
        reads = reads_until(graph, query.as_of_position)
        candidates, total = reads.session_candidates(tenant, session_id, query.max_nodes)
        best = [item.event_id for item in ranked(candidates, now_ms, query.max_nodes)]
        nodes = reads.events(tenant, best)
        found = [nodes[event_id] for event_id in best if event_id in nodes]
        return found, reads.edges_between(tenant, best), total

    nodes, edges, total = reader.read(ask, timeout_ms=deadline.remaining_ms())
    truncated = total > len(nodes)
    return AtlasResponse(
        nodes=[atlas_node(node, now_ms=now_ms, relevance=NEUTRAL_RELEVANCE) for node in nodes],
        edges=atlas_edges(edges),
        meta=Meta(
            query_ms=deadline.elapsed_ms(),
            nodes_returned=len(nodes),
            truncated=truncated,
            truncated_by=[Bound.NODES] if truncated else [],
            intent="general",
            inferred_intents={},
            intent_override=None,
            seed_nodes=[],
            proactive_nodes_count=0,
            scoring_weights=shown_weights(DECAY_WEIGHTS),
            capacity=Capacity(
                max_nodes=query.max_nodes, used_nodes=len(nodes), max_depth=query.max_depth
            ),
        ),
    )


def ranked(candidates: list[SessionCandidate], now_ms: int, limit: int) -> list[SessionCandidate]:
    """The best by decay score; of equal ones the newest, then the smallest id."""

    def order(item: SessionCandidate) -> tuple[float, int, str]:
        score = decay_score(
            now_ms,
            item.used_at_ms,
            access_count=item.access_count,
            importance=item.importance,
        )
        return -score, -item.occurred_at_ms, item.event_id

    return heapq.nsmallest(limit, candidates, key=order)
