"""Summaries, episodes and communities: what consolidation found, as pages of nodes and edges."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Path, Query
from pydantic import TypeAdapter
from starlette.responses import Response

from api.answers import JsonResponse, atlas_edges, page_meta
from api.cursors import page_of, place_of, time_place
from api.dependencies import PathName, Reader, ServicesOf
from api.entity_answers import (
    community_item,
    link_item,
    member_item,
    shown_nodes,
    summary_item,
    wired,
)
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.read_schemas import (
    CommunityList,
    CommunityQuery,
    CommunityResponse,
    EpisodeList,
    PageMeta,
    PageQuery,
    SummaryItem,
    SummaryQuery,
    SummaryResponse,
)
from api.schemas import Node
from api.services import Caller, begin_read
from consolidation.summary_payloads import Scope as SummaryScope
from pipelines.columns.reads import ColumnReads
from pipelines.graph.reader import GraphEdge, GraphNode, GraphRead
from pipelines.graph.reads.entities import EntityReads, Link
from pipelines.graph.reads.walk import edges_between
from pipelines.graph.rows import COMMUNITY_PREFIX, SUMMARY_PREFIX
from projections.events import MAX_NAME_CHARACTERS
from projections.schema import MAX_SUPPORTING

MAX_SCOPE_ID: Final = 3 * MAX_NAME_CHARACTERS
"""Of an episode: its session, its trace and a number."""
_BY_ID = TypeAdapter(str)

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

    It is the user's own where there is one, else the one of what belongs to nobody.

    `scope_id` is the session's or the agent's id, an episode's as its summary names it, or
    `summary:<hash>`.
    """
    if scope_id.startswith(SUMMARY_PREFIX):
        named = _Named(own_id=scope_id.removeprefix(SUMMARY_PREFIX))
    else:
        named = _Named(scope, scope_id)
    page = await _summary_page(services, caller, named, query)
    if not page.nodes or page.nodes[0].properties["scope"] != scope:
        raise ApiProblem("not-found", "No such summary is in the graph; a pass may not be due yet.")
    return JsonResponse(
        SummaryResponse(
            summary=summary_item(page.nodes[0]),
            summaries=[summary_item(node) for node in page.nodes],
            children=page.below,
            links=[link_item(link) for link in page.links],
            **page.atlas,
        )
    )


@router.get(
    "/sessions/{session_id:path}/episodes",
    response_model=EpisodeList,
    responses=problem_responses(*READ_PROBLEMS),
)
async def list_episodes(
    session_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[SummaryQuery, Query()],
) -> Response:
    """The episodes of a session in order, as far as consolidation has come; maybe none yet."""
    page = await _summary_page(services, caller, _Named("session", session_id), query, whole=True)
    return JsonResponse(EpisodeList(episodes=page.below, **page.atlas))


class _Named(NamedTuple):
    """A summary by what it sums up, or by its id."""

    scope: SummaryScope = "session"
    scope_id: str = ""
    own_id: str | None = None

    def nodes(self, reads: EntityReads) -> list[GraphNode]:
        """What the viewer is told of it."""
        if self.own_id is not None:
            return reads.summaries([self.own_id])
        return reads.summaries_told(self.scope, self.scope_id)


class _SummaryRows(NamedTuple):
    """The parts of a summary, and one summary below them more than the page has."""

    nodes: list[GraphNode]
    below: list[GraphNode]
    links: list[Link]
    edges: list[GraphEdge]
    withheld: int | None


class _SummaryPage(NamedTuple):
    """The parts of a summary, with a page of those below the first, or below all.

    Attributes:
        atlas: the fields of `AtlasPage`.
    """

    nodes: list[GraphNode]
    below: list[SummaryItem]
    links: list[Link]
    atlas: dict[str, Any]


async def _summary_page(
    services: ServicesOf,
    caller: Caller,
    named: _Named,
    query: SummaryQuery,
    *,
    whole: bool = False,
) -> _SummaryPage:
    """The viewer's parts of a summary; `whole`: with what is below all of them."""
    session_id = named.scope_id if named.scope == "session" else None
    context = await begin_read(services, caller, query, session_id=session_id or None)
    question = ("summary", caller.tenant, context.scope.viewer, *named)
    after = time_place(question, query.cursor) or (0, "")

    def read(graph: GraphRead) -> _SummaryRows:
        reads = EntityReads(graph, context.scope)
        nodes = named.nodes(reads)
        above = [node.node_id for node in nodes][: None if whole else 1]
        below = reads.below(above, after, query.limit + 1)
        shown = [wired(node).node_id for node in (*nodes, *below[: query.limit])]
        return _SummaryRows(
            nodes,
            below,
            links=reads.links(above[0]) if above else [],
            edges=edges_between(graph, context.scope, shown),
            withheld=context.withheld(lambda: reads.withheld_below(above)),
        )

    rows = await context.answer(read)
    below, next_cursor = page_of(question, rows.below, query.limit, _since_when)
    nodes = shown_nodes(map(wired, (*rows.nodes, *below)), context.now_ms)
    meta = page_meta(
        context,
        len(rows.below),
        nodes,
        withheld=rows.withheld,
        begun_at=[node.node_id for node in nodes[: len(rows.nodes)]],
        next_cursor=next_cursor,
    )
    return _SummaryPage(
        rows.nodes,
        below=[summary_item(item) for item in below],
        links=rows.links,
        atlas=_atlas(nodes, rows.edges, meta),
    )


def _since_when(summary: GraphNode) -> tuple[int, str]:
    return (summary.properties.get("time_range") or [0])[0], summary.node_id


# -- communities -----------------------------------------------------------------------------------


@router.get(
    "/communities", response_model=CommunityList, responses=problem_responses(*READ_PROBLEMS)
)
async def list_communities(
    caller: Reader, services: ServicesOf, query: Annotated[PageQuery, Query()]
) -> Response:
    """The communities of entities that consolidation found, by id; maybe none yet."""
    context = await begin_read(services, caller, query)
    question = ("communities", caller.tenant, context.scope.viewer)
    after = place_of(question, query.cursor, _BY_ID) or ""

    def read(graph: GraphRead) -> tuple[list[GraphNode], int | None]:
        reads = EntityReads(graph, context.scope)
        return (
            reads.communities(after, query.limit + 1),
            context.withheld(lambda: reads.withheld_communities(after)),
        )

    met, withheld = await context.answer(read)
    shown, next_cursor = page_of(question, met, query.limit, attrgetter("node_id"))
    nodes = shown_nodes(map(wired, shown), context.now_ms)
    meta = page_meta(context, len(met), nodes, withheld=withheld, next_cursor=next_cursor)
    return JsonResponse(
        CommunityList(
            communities=[community_item(node) for node in shown], **_atlas(nodes, [], meta)
        )
    )


class _CommunityRows(NamedTuple):
    """A community, and its members behind those of the page before."""

    community: GraphNode
    members: list[GraphNode]
    next_cursor: str | None
    edges: list[GraphEdge]
    withheld: int | None


@router.get(
    "/communities/{community_id:path}",
    response_model=CommunityResponse,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_community(
    community_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[CommunityQuery, Query()],
) -> Response:
    """A community: what it is about, and the entities in it, by id.

    `community_id` is `community:<hash>`, or the bare hash.
    """
    context = await begin_read(services, caller, query)
    own_id = community_id.removeprefix(COMMUNITY_PREFIX)
    question = ("community", caller.tenant, context.scope.viewer, own_id)
    after = place_of(question, query.cursor, _BY_ID) or ""

    def read(graph: GraphRead, columns: ColumnReads) -> _CommunityRows | None:
        reads = EntityReads(graph, context.scope)
        community = reads.community(own_id)
        if community is None:
            return None
        ids = reads.members(own_id, after, query.limit + 1)
        page, next_cursor = page_of(question, ids, query.limit, str)
        entities = reads.entities(page, columns.newest_mentions(page, MAX_SUPPORTING))
        members = [entities[one].node for one in page if one in entities]
        shown = (community, *members)
        return _CommunityRows(
            community,
            members,
            next_cursor=next_cursor,
            edges=edges_between(graph, context.scope, [wired(node).node_id for node in shown]),
            withheld=context.withheld(lambda: reads.withheld_members(own_id)),
        )

    def work() -> _CommunityRows | None:
        with services.connections.graph.opened() as graph:
            columns = context.columns(graph.columns)
            return context.read(graph.reader, lambda opened: read(opened, columns))

    rows = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    if rows is None:
        raise ApiProblem("not-found", "No such community is in the graph.")
    nodes = shown_nodes(map(wired, (rows.community, *rows.members)), context.now_ms)
    meta = page_meta(
        context,
        len(rows.members) + (rows.next_cursor is not None),
        nodes,
        withheld=rows.withheld,
        begun_at=[nodes[0].node_id],
        next_cursor=rows.next_cursor,
    )
    context.record([node.node_id for node in nodes])
    return JsonResponse(
        CommunityResponse(
            community=community_item(rows.community),
            members=[member_item(node) for node in rows.members],
            **_atlas(nodes, rows.edges, meta),
        )
    )


def _atlas(nodes: list[Node], edges: list[GraphEdge], meta: PageMeta) -> dict[str, Any]:
    """The fields of `AtlasPage`."""
    return {
        "nodes": nodes,
        "edges": atlas_edges(edges),
        "next_cursor": meta.next_cursor,
        "meta": meta,
    }
