"""Lineage: what led to an event, or what it led to."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from api.answers import JsonResponse, atlas_edges, atlas_node
from api.dependencies import Deadline, Reader, ServicesOf
from api.errors import ApiProblem, problem_responses
from api.query_schemas import LineageQuery
from api.read_your_writes import begin_read
from api.retrieval.intent import Intent
from api.retrieval.traverse import Bound, Lineage
from api.routes.context import READ_PROBLEMS, clock_ms
from api.schemas import AtlasResponse, Capacity, Meta, ScoringWeights
from pipelines.graph.reader import GraphReader
from pipelines.graph.reads.as_of import reads_until
from pipelines.graph.reads.shown import Surroundings, surroundings
from projections.errors import QueryTimeout
from projections.events import MAX_NAME_CHARACTERS

DEFAULT_INTENT: Intent = "why"
TEMPORAL: Intent = "when"
FAILURES = ("failed", "timeout")

router = APIRouter(prefix="/v1/nodes", tags=["memory"])


@router.get(
    "/{node_id:path}/lineage",
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
    deadline = await begin_read(services, query.timeout_ms, query.min_position)

    def work() -> Lineage | None:
        with services.connections.graph.reader() as reader:
            intent = query.intent or _inferred(reader, caller.tenant, node_id.lower(), deadline)
            walk = Lineage.of(
                node_id.lower(),
                intent=intent,
                direction=query.direction,
                max_depth=query.max_depth,
                max_nodes=query.max_nodes,
            )
            until = query.as_of_position
            return walk if _walk(reader, caller.tenant, walk, until, deadline) else None

    walk = await services.read(work, timeout_ms=deadline.remaining_ms())
    if walk is None:
        raise ApiProblem("not-found", "No node of that id is in the graph.")
    return JsonResponse(_answer(walk, query, clock_ms(query.as_of), deadline))


def _inferred(reader: GraphReader, tenant: str, node_id: str, deadline: Deadline) -> Intent:
    """What the lineage of a node means, by what is known of it."""
    found = reader.read(
        lambda graph: surroundings(graph, tenant, node_id), timeout_ms=deadline.remaining_ms()
    )
    return DEFAULT_INTENT if found is None else inferred_lineage_intent(found)


def inferred_lineage_intent(found: Surroundings) -> Intent:
    """`when` for an event of which only its place in time is known, `why` for every other."""
    if found.caused or not found.followed or found.status in FAILURES:
        return DEFAULT_INTENT
    return TEMPORAL


def _walk(
    reader: GraphReader, tenant: str, walk: Lineage, until: str | None, deadline: Deadline
) -> bool:
    """Whether the node was found; out of time, what was found until then is the answer."""
    try:
        return reader.read(
            lambda graph: walk.walk(tenant, reads_until(graph, until)),
            timeout_ms=deadline.remaining_ms(),
        )
    except QueryTimeout:
        if not walk.answered:
            raise
        walk.cut_by.add(Bound.TIME)
        return True


def _answer(walk: Lineage, query: LineageQuery, now_ms: int, deadline: Deadline) -> AtlasResponse:
    scores = walk.scores()
    intent: Intent = walk.intent  # type: ignore[assignment]  # one of them, as it was asked with
    order = sorted(
        walk.nodes.values(),
        key=lambda node: (
            -scores[node.node_id],
            walk.depths[node.node_id],
            -node.properties["occurred_at"],
            node.node_id,
        ),
    )
    return AtlasResponse(
        nodes=[
            atlas_node(
                node,
                now_ms=now_ms,
                relevance=scores[node.node_id],
                rank=scores[node.node_id],
                depth=walk.depths[node.node_id],
            )
            for node in order
        ],
        edges=atlas_edges(walk.edges),
        meta=Meta(
            query_ms=deadline.elapsed_ms(),
            nodes_returned=len(order),
            truncated=bool(walk.cut_by),
            truncated_by=sorted(walk.cut_by),
            intent=intent,
            inferred_intents={} if query.intent else {intent: 1.0},
            intent_override=query.intent,
            seed_nodes=[walk.event_id],
            proactive_nodes_count=0,
            # A lineage is sorted by its paths alone.
            scoring_weights=ScoringWeights(recency=0.0, importance=0.0, relevance=1.0),
            capacity=Capacity(
                max_nodes=query.max_nodes, used_nodes=len(order), max_depth=query.max_depth
            ),
        ),
    )
