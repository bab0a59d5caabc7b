"""Browsing: entities, summaries, episodes, communities; each page with its nodes and edges."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Path, Query
from pydantic import TypeAdapter
from starlette.responses import Response

from api.answers import JsonResponse, atlas_edges, page_meta
from api.cursors import content_of, cursor_of
from api.dependencies import Reader, ServicesOf
from api.entity_answers import (
    EntityPage,
    community_item,
    entity_item,
    entity_response,
    link_item,
    member_item,
    nodes_around,
    shown_nodes,
    summary_item,
    wired,
)
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.read_schemas import (
    CommunityList,
    CommunityQuery,
    CommunityResponse,
    EntitiesQuery,
    EntityList,
    EntityQuery,
    EntityResponse,
    EpisodeList,
    PageMeta,
    PageQuery,
    SummaryItem,
    SummaryQuery,
    SummaryResponse,
    SummaryScope,
)
from api.retrieval.facts import FactWalk, RecalledFact, recalled
from api.retrieval.intent import Seed, match_score
from api.retrieval.query_terms import name_terms
from api.retrieval.recall import entity_named
from api.schemas import Node
from api.services import Caller, ReadContext, begin_read
from consolidation.summary_payloads import summary_ids_seen
from enrichment.names import canonical_name
from pipelines.graph.reader import GraphEdge, GraphNode, GraphRead
from pipelines.graph.reads.entities import EntityReads, Link
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.reads.scope import Scope
from pipelines.graph.reads.walk import edges_between
from pipelines.graph.rows import COMMUNITY_PREFIX, ENTITY_PREFIX, SUMMARY_PREFIX, EntityName
from projections.events import LAST_MS, MAX_NAME_CHARACTERS
from projections.identity import SEPARATOR

MAX_MATCHES: Final = 1_000
"""Of a search: what is found beyond is nobody's page."""
MAX_SCOPE_ID: Final = 3 * MAX_NAME_CHARACTERS
"""Of an episode: its session, its trace and a number."""
_BY_NAME = TypeAdapter(tuple[str, str])
_BY_SCORE = TypeAdapter(tuple[float, str, str])
_BY_TIME = TypeAdapter(tuple[int, str])
_BY_ID = TypeAdapter(str)

router = APIRouter(prefix="/v1", tags=["memory"])


def _time_place(question: tuple[Any, ...], query: PageQuery) -> tuple[int, str] | None:
    """Where the page before ended, by time and id; None: this is the first page."""
    if query.cursor is None:
        return None
    (at_ms, own_id), _ = content_of(question, query.cursor, _BY_TIME)
    return min(max(at_ms, 0), LAST_MS), own_id


@router.get("/entities", response_model=EntityList, responses=problem_responses(*READ_PROBLEMS))
async def list_entities(
    caller: Reader, services: ServicesOf, query: Annotated[EntitiesQuery, Query()]
) -> Response:
    """Entities by name; with `query` those whose names have its words, the best first."""
    context = await begin_read(services, caller, query)
    search = _Search(context)
    items, withheld = await context.answer(search.page)
    shown = items[: query.limit]
    more = len(items) > query.limit
    next_cursor = cursor_of(search.question, shown[-1].place) if more else None
    return JsonResponse(
        EntityList(
            entities=[entity_item(item.entity, item.score) for item in shown],
            next_cursor=next_cursor,
            meta=page_meta(context, len(items), withheld=withheld, next_cursor=next_cursor),
        )
    )


class _Item(NamedTuple):
    """An entity of a list, and where it stands in it."""

    entity: EntityName
    score: float | None
    place: tuple[Any, ...]


class _Search:
    """One question for entities; its order depends on names alone, so pages fit together."""

    def __init__(self, context: ReadContext[EntitiesQuery]) -> None:
        self._context = context
        self._scope = scope = context.scope
        self._query = query = context.query
        self.question = ("entities", scope.tenant, scope.viewer, query.query, query.type)
        self._after: tuple[Any, ...] | None = None
        if query.cursor is not None:
            shape: TypeAdapter[Any] = _BY_NAME if query.query is None else _BY_SCORE
            self._after, _ = content_of(self.question, query.cursor, shape)

    def page(self, graph: GraphRead) -> tuple[list[_Item], int | None]:
        """The items of the page, and one more when there is a next page; how many were withheld."""
        if self._query.query is not None:
            items = self._matching(graph)
            return items, self._context.withheld(lambda: self._withheld(graph))
        name, own_id = after = self._after or ("", "")
        reads, kind, limit = EntityReads(graph, self._scope), self._query.type, self._query.limit
        rows = reads.listed((name, own_id), kind, limit + 1)
        last = rows[limit - 1][0] if len(rows) > limit else None
        return (
            [_Item(entity, None, (name, entity.entity_id)) for name, entity in rows],
            self._context.withheld(lambda: reads.withheld_entities(after, last, kind)),
        )

    def _withheld(self, graph: GraphRead) -> int:
        """Entities by the words of the query that are kept back."""
        terms = name_terms(self._query.query or "")
        return FactReads(graph, self._scope).withheld_names(terms.words, terms.names, MAX_MATCHES)

    def _matching(self, graph: GraphRead) -> list[_Item]:
        words = self._query.query or ""
        terms, facts = name_terms(words), FactReads(graph, self._scope)
        candidates = {
            entity.entity_id: entity
            for entity in (
                *facts.found(terms.words, terms.names, MAX_MATCHES),
                *EntityReads(graph, self._scope).prefixed(canonical_name(words)),
            )
            if self._query.type in (None, entity.entity_type)
        }
        items = [
            _Item(entity, score, (-score, entity.name, entity.entity_id))
            for entity in candidates.values()
            if (score := round(match_score(terms.words, entity.names), 6)) > 0
        ]
        ordered = sorted(items, key=lambda item: item.place)
        if self._after is not None:
            ordered = [item for item in ordered if item.place > self._after]
        return ordered[: self._query.limit + 1]


@router.get(
    "/entities/{entity_id:path}",
    response_model=EntityResponse,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_entity(
    entity_id: Annotated[str, Path(min_length=1, max_length=MAX_NAME_CHARACTERS)],
    caller: Reader,
    services: ServicesOf,
    query: Annotated[EntityQuery, Query()],
) -> Response:
    """An entity, what is known about it, and the events that mention it, the newest first.

    `entity_id` is `entity:<hash>`, the bare hash, or `entity:<name>`; of several by one name the
    one that is mentioned most. What was found to be the same is one entity here. Of what more than
    10,000 events mention, so many are looked through.
    """
    context = await begin_read(services, caller, query)
    question = ("entity", caller.tenant, context.scope.viewer, entity_id, query.as_of)
    place = _time_place(question, query)
    before = place or (LAST_MS if query.as_of is None else context.now_ms, "")

    def read(graph: GraphRead) -> EntityPage | None:
        return _entity_page(graph, context, entity_id.removeprefix(ENTITY_PREFIX), before)

    page = await context.answer(read)
    if page is None:
        raise ApiProblem("not-found", "No entity of that id or name is in the graph.")
    events = page.events[: query.limit]
    own_id = page.around[0].node_id
    context.record(
        [own_id, *(node.node_id for node in events)],
        [fact.key for fact in page.facts],
    )
    next_cursor = None
    if len(page.events) > query.limit:
        last = events[-1]
        next_cursor = cursor_of(question, (last.properties["occurred_at"], last.node_id))
    nodes = shown_nodes([*page.around, *events], context.now_ms)
    meta = page_meta(
        context,
        len(page.events),
        nodes,
        withheld=page.withheld,
        begun_at=[own_id],
        next_cursor=next_cursor,
    )
    return JsonResponse(entity_response(page._replace(events=events), nodes, meta))


def _entity_page(
    graph: GraphRead, context: ReadContext[EntityQuery], name: str, before: tuple[int, str]
) -> EntityPage | None:
    reads, facts = EntityReads(graph, context.scope), FactReads(graph, context.scope)
    query = context.query
    group = entity_named(graph, context.scope, name)
    if group is None:
        return None
    events = reads.events_of(group.ids, before, query.limit + 1)
    around = nodes_around(group)
    shown = [node.node_id for node in (*around, *events[: query.limit])]
    return EntityPage(
        group,
        facts=_facts_about(facts, context, group.canonical),
        around=around,
        events=events,
        edges=edges_between(graph, context.scope, shown),
        withheld=context.withheld(
            lambda: reads.withheld_mentions(group.ids) + facts.withheld(group.ids)
        ),
    )


def _facts_about(
    facts: FactReads, context: ReadContext[EntityQuery], entity_id: str
) -> list[RecalledFact]:
    """The facts that one entity stands in."""
    query = context.query
    if not query.max_facts:
        return []
    wanted = FactFilter(context.now_ms, per_entity=query.max_facts)
    walk = FactWalk(wanted=wanted, max_depth=1)
    walk.walk(facts, [entity_id])
    return recalled(
        walk,
        [Seed(walk.of(entity_id), "", match=1.0, score=1.0)],
        now_ms=context.now_ms,
        decay_rate=context.settings.temporal_decay_rate,
        limit=query.max_facts,
    )


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
    session_id: Annotated[str, Path(min_length=1, max_length=MAX_NAME_CHARACTERS)],
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

    def nodes(self, reads: EntityReads, viewer: Scope) -> list[GraphNode]:
        """The viewer's part of it, and the part of nobody; for an operator the parts of all.

        No index leads from an agent to its users: an operator names the user, or asks for the
        sessions.
        """
        if self.own_id is not None:
            return reads.summaries([self.own_id])
        if viewer.everyone and self.scope != "agent":
            session_id = self.scope_id.split(SEPARATOR)[0]
            return reads.summaries_in(session_id, self.scope, self.scope_id)
        ids = summary_ids_seen(viewer.tenant, self.scope, self.scope_id, viewer.user_id)
        return reads.summaries(ids)


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
    after = _time_place(question, query) or (0, "")

    def read(graph: GraphRead) -> _SummaryRows:
        reads = EntityReads(graph, context.scope)
        nodes = named.nodes(reads, context.scope)
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
    below, next_cursor = rows.below[: query.limit], None
    if len(rows.below) > query.limit:
        last = below[-1]
        began_ms = (last.properties.get("time_range") or [0])[0]
        next_cursor = cursor_of(question, (began_ms, last.node_id))
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
    after = _id_place(question, query)

    def read(graph: GraphRead) -> tuple[list[GraphNode], int | None]:
        reads = EntityReads(graph, context.scope)
        return (
            reads.communities(after, query.limit + 1),
            context.withheld(lambda: reads.withheld_communities(after)),
        )

    met, withheld = await context.answer(read)
    shown = met[: query.limit]
    next_cursor = cursor_of(question, shown[-1].node_id) if len(met) > query.limit else None
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
    edges: list[GraphEdge]
    withheld: int | None


@router.get(
    "/communities/{community_id:path}",
    response_model=CommunityResponse,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_community(
    community_id: Annotated[str, Path(min_length=1, max_length=MAX_NAME_CHARACTERS)],
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
    after = _id_place(question, query)

    def read(graph: GraphRead) -> _CommunityRows | None:
        reads = EntityReads(graph, context.scope)
        community = reads.community(own_id)
        if community is None:
            return None
        members = reads.members(own_id, after, query.limit + 1)
        shown = [wired(node).node_id for node in (community, *members[: query.limit])]
        return _CommunityRows(
            community,
            members,
            edges_between(graph, context.scope, shown),
            context.withheld(lambda: reads.withheld_members(own_id)),
        )

    rows = await context.answer(read)
    if rows is None:
        raise ApiProblem("not-found", "No such community is in the graph.")
    members, next_cursor = rows.members[: query.limit], None
    if len(rows.members) > query.limit:
        next_cursor = cursor_of(question, members[-1].node_id)
    nodes = shown_nodes(map(wired, (rows.community, *members)), context.now_ms)
    meta = page_meta(
        context,
        len(rows.members),
        nodes,
        withheld=rows.withheld,
        begun_at=[nodes[0].node_id],
        next_cursor=next_cursor,
    )
    context.record([node.node_id for node in nodes])
    return JsonResponse(
        CommunityResponse(
            community=community_item(rows.community),
            members=[member_item(node) for node in members],
            **_atlas(nodes, rows.edges, meta),
        )
    )


def _id_place(question: tuple[Any, ...], query: PageQuery) -> str:
    """The id at which the page before ended; before all others, if this is the first page."""
    return "" if query.cursor is None else content_of(question, query.cursor, _BY_ID)[0]


def _atlas(nodes: list[Node], edges: list[GraphEdge], meta: PageMeta) -> dict[str, Any]:
    """The fields of `AtlasPage`."""
    return {
        "nodes": nodes,
        "edges": atlas_edges(edges),
        "next_cursor": meta.next_cursor,
        "meta": meta,
    }
