"""Reads around what a caller names: a session's context, a node's lineage."""

from __future__ import annotations

import heapq
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from api.answers import JsonResponse, atlas_node, atlas_response
from api.dependencies import Reader, ServicesOf
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.query_schemas import ContextQuery, LineageQuery
from api.retrieval.intent import Intent
from api.retrieval.lineage import TEMPORAL_INTENT, Lineage
from api.schemas import AtlasResponse, Bound
from api.services import ReadContext, begin_read
from consolidation.decay import DECAY_WEIGHTS, NEUTRAL_RELEVANCE, DecayWeights, decay_score
from pipelines.graph.reader import GraphEdge, GraphNode, GraphRead, GraphReader, SessionCandidate
from pipelines.graph.reads.as_of import reads_until
from pipelines.graph.reads.shown import Surroundings, surroundings
from projections.errors import QueryTimeout
from projections.events import MAX_NAME_CHARACTERS

DEFAULT_INTENT: Intent = "why"
FAILURE_STATUSES: Final = ("failed", "timeout")

router = APIRouter(prefix="/v1", tags=["memory"])


@router.get(
    "/context/{session_id:path}",
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
    context = await begin_read(services, caller.tenant, query, as_of=query.as_of)
    now_ms, most = context.now_ms, query.max_nodes

    def ask(graph: GraphRead) -> tuple[list[GraphNode], list[GraphEdge], int]:
        reads = reads_until(graph, query.as_of_position)
        candidates, total = reads.session_candidates(context.tenant, session_id, most)
        best = [item.event_id for item in ranked_by_decay(candidates, now_ms, most)]
        nodes = reads.events(context.tenant, best)
        shown = [nodes[event_id] for event_id in best if event_id in nodes]
        return shown, reads.edges_between(context.tenant, best), total

    nodes, edges, total = await context.answer(ask)
    return JsonResponse(
        atlas_response(
            context,
            [atlas_node(node, now_ms=now_ms, relevance=NEUTRAL_RELEVANCE) for node in nodes],
            edges,
            cut_by=[Bound.NODES] if total > len(nodes) else [],
            intent="general",
            weights=DECAY_WEIGHTS,
            inferred_intents={},
            intent_override=None,
            seed_nodes=[],
        )
    )


def ranked_by_decay(
    candidates: list[SessionCandidate], now_ms: int, limit: int
) -> list[SessionCandidate]:
    """The best by decay score; of equal ones the newest, then the smallest id."""

    def order(item: SessionCandidate) -> tuple[float, int, str]:
        score = decay_score(
            now_ms, item.used_at_ms, access_count=item.access_count, importance=item.importance
        )
        return -score, -item.occurred_at_ms, item.event_id

    return heapq.nsmallest(limit, candidates, key=order)


@router.get(
    "/nodes/{node_id:path}/lineage",
    response_model=AtlasResponse,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_lineage(
    node_id: Annotated[str, Path(min_length=1, max_length=MAX_NAME_CHARACTERS)],
    caller: Reader,
    services: ServicesOf,
    query: Annotated[LineageQuery, Query()],
) -> Response:
    """The nodes on the way to the causes (or effects) of a node, best path first.

    Without `intent` the node says what is meant: `why` when it has causes or effects, or failed;
    `when` when all that is known of it is what came before and after; else `why`.
    """
    context = await begin_read(services, caller.tenant, query, as_of=query.as_of)

    def work() -> Lineage | None:
        with services.connections.graph.reader() as reader:
            return _lineage(context, reader, node_id.lower())

    walk = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    if walk is None:
        raise ApiProblem("not-found", "No node of that id is in the graph.")
    return JsonResponse(_lineage_response(context, walk))


def _lineage(
    context: ReadContext[LineageQuery], reader: GraphReader, node_id: str
) -> Lineage | None:
    """The walk, None without the node; out of time, what was met until then is the answer."""
    query = context.query
    intent = query.intent
    if intent is None:
        around = context.read(reader, lambda graph: surroundings(graph, context.tenant, node_id))
        intent = DEFAULT_INTENT if around is None else inferred_lineage_intent(around)
    walk = Lineage(
        tenant=context.tenant,
        event_id=node_id,
        intent=intent,
        direction=query.direction,
        max_depth=query.max_depth,
        max_nodes=query.max_nodes,
    )
    try:
        exists = context.read(
            reader, lambda graph: walk.walk(reads_until(graph, query.as_of_position))
        )
    except QueryTimeout:
        if not walk.levels:
            raise
        walk.cut_by.add(Bound.TIME)
        return walk
    return walk if exists else None


def inferred_lineage_intent(around: Surroundings) -> Intent:
    """`when` for an event of which only its place in time is known, `why` for every other."""
    if around.caused or not around.followed or around.status in FAILURE_STATUSES:
        return DEFAULT_INTENT
    return TEMPORAL_INTENT


def _lineage_response(context: ReadContext[LineageQuery], walk: Lineage) -> AtlasResponse:
    scores, query = walk.scores(), context.query

    def order(node: GraphNode) -> tuple[float, int, int, str]:
        depth, occurred_at = walk.depths[node.node_id], node.properties["occurred_at"]
        return -scores[node.node_id], depth, -occurred_at, node.node_id

    nodes = [
        atlas_node(
            node,
            now_ms=context.now_ms,
            relevance=scores[node.node_id],
            rank=scores[node.node_id],
            depth=walk.depths[node.node_id],
        )
        for node in sorted(walk.nodes.values(), key=order)
    ]
    return atlas_response(
        context,
        nodes,
        walk.edges,
        cut_by=walk.cut_by,
        intent=walk.intent,
        # A lineage is sorted by its paths alone.
        weights=DecayWeights(recency=0.0, importance=0.0, relevance=1.0),
        inferred_intents={} if query.intent else {walk.intent: 1.0},
        intent_override=query.intent,
        seed_nodes=[walk.event_id],
    )
