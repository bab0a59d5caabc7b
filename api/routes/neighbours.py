"""What is beside a node: one step along its edges, of every type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from starlette.responses import Response

from api.answers import JsonResponse, atlas_response
from api.browse_schemas import NeighboursQuery
from api.dependencies import PathName, Reader, ServicesOf
from api.entity_answers import shown_nodes
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.retrieval.recall import node_named
from api.schemas import AtlasResponse, Bound
from api.services import begin_read
from consolidation.decay import DECAY_WEIGHTS
from pipelines.graph.reader import GraphEdge, GraphNode, GraphRead
from pipelines.graph.reads.walk import shown
from pipelines.graph.rows import StepEdge, ids_by_label
from projections.schema import EDGES, ENTITY, MAX_SUPPORTING

router = APIRouter(prefix="/v1", tags=["memory"])


class _Beside(NamedTuple):
    """A node, those beside it, and the edges between all of them."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    is_cut: bool


@router.get(
    "/nodes/{node_id:path}/neighbours",
    response_model=AtlasResponse,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_neighbours(
    node_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[NeighboursQuery, Query()],
) -> Response:
    """A node and those one step away, in turn the best of each type; and all edges between them.

    An edge says by its properties why it is there: who named it or which rule found it, how sure
    that is, and what both of its ends have in common.
    """
    context = await begin_read(services, caller, query)

    def work() -> _Beside | None:
        with services.connections.graph.opened() as graph:
            columns = context.columns(graph.columns)
            own_id = node_named(columns, node_id.lower())
            steps = columns.steps([own_id], dict.fromkeys(EDGES, query.max_nodes + 1)).edges()
            wanted = [step for step in steps if step.type in (query.edge_types or EDGES)]
            ids = [own_id, *_in_turn(wanted, own_id)]
            first = ids[: query.max_nodes]
            entities = ids_by_label(first)[ENTITY.label]
            supporting = columns.newest_mentions(entities, MAX_SUPPORTING) if entities else {}

            def ask(read: GraphRead) -> _Beside | None:
                read_nodes, edges, _ = shown(read, context.scope, first, supporting)
                if own_id not in read_nodes:
                    return None
                if query.edge_types:
                    edges = [edge for edge in edges if edge.type in query.edge_types]
                in_order = [read_nodes[each] for each in first if each in read_nodes]
                return _Beside(in_order, edges, len(ids) > query.max_nodes)

            return context.read(graph.reader, ask)

    beside = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    if beside is None:
        raise ApiProblem("not-found", "No node of that id is in the graph.")
    context.record([node.node_id for node in beside.nodes])
    return JsonResponse(
        atlas_response(
            context,
            shown_nodes(beside.nodes, context.now_ms),
            beside.edges,
            cut_by=[Bound.NODES] if beside.is_cut else [],
            intent="general",
            weights=DECAY_WEIGHTS,
            inferred_intents={},
            intent_override=None,
            seed_nodes=[beside.nodes[0].node_id],
        )
    )


def _in_turn(steps: Iterable[StepEdge], own_id: str) -> list[str]:
    """Ids of what edges lead to, each once: the best of each type, then the second best, and on."""
    turns: dict[str, int] = defaultdict(int)
    placed = []
    for step in steps:
        placed.append((turns[step.type], step.reached))
        turns[step.type] += 1
    in_order = (reached for _, reached in sorted(placed, key=lambda place: place[0]))
    return [each for each in dict.fromkeys(in_order) if each != own_id]
