"""A session's context: its best events; a node's lineage: what it comes from."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from api.answers import (
    JsonResponse,
    MarkdownResponse,
    also_markdown,
    atlas_node,
    atlas_response,
    wants_markdown,
)
from api.connections import OpenGraph
from api.dependencies import PathName, Reader, ServicesOf
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.read_schemas import ContextQuery, LineageQuery
from api.retrieval.gather import NO_VECTOR
from api.retrieval.plan import Intent
from api.retrieval.query_terms import query_terms
from api.retrieval.recall import node_named
from api.retrieval.relevance import relevance
from api.retrieval.walk import TEMPORAL_INTENT, Lineage, Origin, origin_of
from api.schemas import AtlasResponse, Bound
from api.services import ReadContext, begin_read
from api.subgraph_answers import evidence_of
from consolidation.decay import DECAY_WEIGHTS, NEUTRAL_RELEVANCE, DecayWeights, decay_score
from pipelines.columns.access import ColumnsAccess
from pipelines.columns.reads import Wanted
from pipelines.graph.reader import GraphEdge, GraphNode, GraphRead, GraphReader
from pipelines.graph.reads.events import EventReads, Surroundings
from pipelines.graph.reads.walk import nodes
from pipelines.graph.rows import SessionCandidate, ids_by_label, is_event
from projections.errors import QueryTimeout
from projections.schema import ENTITY, MAX_SUPPORTING

router = APIRouter(prefix="/v1", tags=["memory"])

MAX_ASKED_ABOUT: Final = 1_000
"""Events of a session among which a question is answered: those used last. No answer has more."""
DEFAULT_INTENT: Intent = "why"
FAILURE_STATUSES: Final = ("failed", "timeout")


@router.get(
    "/context/{session_id:path}",
    response_model=AtlasResponse,
    responses={
        **also_markdown("The session's best events; as Markdown, as evidence in reading order"),
        **problem_responses(*READ_PROBLEMS, "not-found"),
    },
)
async def read_context(
    session_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[ContextQuery, Query()],
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """The session's events ranked by decay score, and the edges between them.

    With `query`, how well an event answers it is its relevance; else all are as relevant.
    `Accept: text/markdown` gives the events in reading order, the best that fit into `max_tokens`.
    """
    context = await begin_read(services, caller, query, session_id=session_id)
    as_text = wants_markdown(accept)

    def work() -> tuple[AtlasResponse | None, str]:
        response = _context(context, session_id)
        if response is None or not as_text:
            return response, ""
        return response, evidence_of(context, response, query.max_tokens)

    response, text = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    if response is None:
        raise ApiProblem("not-found", "No event of that session is in the graph.")
    context.record([node.node_id for node in response.nodes])
    return MarkdownResponse(text) if as_text else JsonResponse(response)


def _context(context: ReadContext[ContextQuery], session_id: str) -> AtlasResponse | None:
    """A session's context; None: nobody is told of such a session."""
    now_ms, query = context.now_ms, context.query
    pool = query.max_nodes if query.query is None else MAX_ASKED_ABOUT
    with context.services.connections.graph.opened() as graph:
        reader = graph.reader
        candidates = context.columns(graph.columns).session_candidates(session_id, pool)
        withheld = context.withheld(lambda: candidates.withheld)
        if not (candidates.total or withheld):
            return None
        relevant, degraded = _relevant(context, graph.columns, candidates.best)
        best = ranked_by_decay(candidates.best, now_ms, query.max_nodes, relevant)
        ids = [item.event_id for item in best]

        def ask(read: GraphRead) -> tuple[dict[str, GraphNode], list[GraphEdge]]:
            reads = EventReads(read, context.scope)
            return reads.events(ids), reads.edges_between(ids)

        events, edges = context.read(reader, ask)
    shown = [
        atlas_node(
            events[event_id], now_ms=now_ms, relevance=relevant.get(event_id, NEUTRAL_RELEVANCE)
        )
        for event_id in ids
        if event_id in events
    ]
    return atlas_response(
        context,
        shown,
        edges,
        cut_by=[Bound.NODES] if candidates.total > len(shown) else [],
        withheld=withheld,
        degraded=degraded,
        intent="general",
        weights=DECAY_WEIGHTS,
        inferred_intents={},
        intent_override=None,
        seed_nodes=[],
    )


def _relevant(
    context: ReadContext[ContextQuery], columns: ColumnsAccess, pool: Sequence[SessionCandidate]
) -> tuple[Mapping[str, float], list[str]]:
    """How well events of a session answer what is asked, by id, and what that went without."""
    text = context.query.query
    if text is None:
        return {}, []
    services, now_ms = context.services, context.now_ms
    terms = query_terms(text, now_ms=now_ms)
    newest = heapq.nlargest(MAX_ASKED_ABOUT, pool, key=lambda item: item.used_at_ms)
    vector = services.embedder.embed(
        terms.embedding_text, timeout_ms=context.deadline.remaining_ms() // 2 + 1
    )
    wanted = Wanted(
        around=(),
        ids=[item.event_id for item in newest],
        met=(),
        most_met=0,
        stems=terms.stems,
        vector=vector,
    )
    standings = columns.reads(context.scope, context.deadline.remaining_ms()).standings(wanted)
    scores = dict(zip(standings.ids, relevance(terms, standings).tolist(), strict=True))
    return scores, [] if vector is not None else [NO_VECTOR]


def ranked_by_decay(
    candidates: list[SessionCandidate],
    now_ms: int,
    limit: int,
    relevant: Mapping[str, float] = MappingProxyType({}),
) -> list[SessionCandidate]:
    """The best by decay score; of equal ones the newest, then the smallest id.

    Args:
        candidates: of a session.
        now_ms: the clock.
        limit: how many.
        relevant: relevance, by id; of others it is NEUTRAL_RELEVANCE.
    """

    def order(item: SessionCandidate) -> tuple[float, int, str]:
        score = decay_score(
            now_ms,
            item.used_at_ms,
            access_count=item.access_count,
            importance=item.importance,
            relevance=relevant.get(item.event_id, NEUTRAL_RELEVANCE),
        )
        return -score, -item.occurred_at_ms, item.event_id

    return heapq.nsmallest(limit, candidates, key=order)


@router.get(
    "/nodes/{node_id:path}/lineage",
    response_model=AtlasResponse,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_lineage(
    node_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[LineageQuery, Query()],
) -> Response:
    """The nodes on the way to the causes (or effects) of a node, best path first.

    An entity (`entity:<hash>` or `entity:<name>`), a summary (`summary:<hash>`) and a community
    (`community:<hash>`) come from the events that mention it, that it sums up, or that mention its
    members: these first, then theirs.

    Without `intent` the node says what is meant: `why` when it has causes or effects, or failed;
    `when` when all that is known of it is what came before and after; else `why`.
    """
    context = await begin_read(services, caller, query)

    def work() -> tuple[Lineage | None, int | None]:
        with services.connections.graph.opened() as graph:
            walk = _lineage(context, graph, node_id.lower())
            return walk, None if walk is None else _withheld_beside(context, graph.reader, walk)

    walk, withheld = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    if walk is None:
        raise ApiProblem("not-found", "No node of that id is in the graph.")
    context.record(walk.nodes)
    return JsonResponse(_lineage_response(context, walk, withheld))


def _withheld_beside(
    context: ReadContext[LineageQuery], reader: GraphReader, walk: Lineage
) -> int | None:
    """Events beside what was met that are kept back."""
    ids = list(walk.nodes)
    return context.withheld_beside(
        reader, lambda graph: EventReads(graph, context.scope).withheld_beside(ids, walk.row)
    )


def _lineage(context: ReadContext[LineageQuery], graph: OpenGraph, node_id: str) -> Lineage | None:
    """The walk, None without the node; out of time, what was met until then is the answer."""
    query, reader = context.query, graph.reader
    intent, origin = query.intent, None
    if not is_event(node_id):
        origin = _origin(context, graph, node_id)
        if origin is None:
            return None
        node_id = next(iter(origin.depths))
    elif intent is None:
        around = context.read(
            reader, lambda graph: EventReads(graph, context.scope).surroundings(node_id)
        )
        intent = DEFAULT_INTENT if around is None else inferred_lineage_intent(around)
    walk = Lineage(
        node_id=node_id,
        origin=origin,
        intent=intent or DEFAULT_INTENT,
        direction=query.direction,
        max_depth=query.max_depth,
        max_nodes=query.max_nodes,
        policy=context.services.policy,
    )
    try:
        exists = context.read(reader, lambda graph: walk.walk(EventReads(graph, context.scope)))
    except QueryTimeout:
        if not walk.levels:
            raise
        walk.cut_by.add(Bound.TIME)
        return walk
    return walk if exists else None


def _origin(context: ReadContext[LineageQuery], graph: OpenGraph, node_id: str) -> Origin | None:
    """What a node that is no event comes from."""
    columns = context.columns(graph.columns)

    def nodes_of(node_ids: Iterable[str]) -> dict[str, GraphNode]:
        entities = ids_by_label(node_ids)[ENTITY.label]
        supporting = columns.newest_mentions(entities, MAX_SUPPORTING) if entities else {}
        return context.read(
            graph.reader, lambda read: nodes(read, context.scope, node_ids, supporting)
        )

    return origin_of(columns, nodes_of, node_named(columns, node_id))


def inferred_lineage_intent(around: Surroundings) -> Intent:
    """`when` for an event of which only its place in time is known, `why` for every other."""
    if around.caused or not around.followed or around.status in FAILURE_STATUSES:
        return DEFAULT_INTENT
    return TEMPORAL_INTENT


def _lineage_response(
    context: ReadContext[LineageQuery], walk: Lineage, withheld: int | None
) -> AtlasResponse:
    scores, query = walk.scores(), context.query

    def order(node: GraphNode) -> tuple[float, int, int, str]:
        depth, occurred_at = walk.depths[node.node_id], node.properties.get("occurred_at") or 0
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
        seed_nodes=[walk.node_id],
        withheld=withheld,
    )
