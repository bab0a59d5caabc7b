"""Browsing: entities, summaries, episodes; a session's context and a node's lineage."""

from __future__ import annotations

import heapq
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Path, Query
from pydantic import TypeAdapter
from starlette.responses import Response

from api.answers import JsonResponse, atlas_node, atlas_response
from api.dependencies import Reader, ServicesOf, content_of, cursor_of
from api.entity_answers import EntityPage, entity_item, entity_response, link_item, summary_item
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.read_schemas import (
    ContextQuery,
    EntitiesQuery,
    EntityList,
    EntityQuery,
    EntityResponse,
    EpisodeList,
    LineageQuery,
    PageMeta,
    PageQuery,
    SummaryItem,
    SummaryQuery,
    SummaryResponse,
    SummaryScope,
)
from api.retrieval.facts import FactWalk, RecalledFact, recalled
from api.retrieval.intent import Intent, Seed, match_score
from api.retrieval.query_terms import name_forms, name_terms
from api.retrieval.walk import TEMPORAL_INTENT, Lineage
from api.schemas import AtlasResponse, Bound
from api.services import ReadContext, begin_read
from consolidation.decay import DECAY_WEIGHTS, NEUTRAL_RELEVANCE, DecayWeights, decay_score
from consolidation.summary_payloads import summary_id
from enrichment.names import canonical_name
from pipelines.graph.reader import GraphEdge, GraphNode, GraphRead, GraphReader, SessionCandidate
from pipelines.graph.reads.entities import EntityReads, Link
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.reads.scope import reads_until
from pipelines.graph.reads.shown import Surroundings, surroundings
from pipelines.graph.rows import ENTITY_PREFIX, SUMMARY_PREFIX, EntityName
from projections.errors import QueryTimeout
from projections.events import LAST_MS, MAX_NAME_CHARACTERS

MAX_MATCHES: Final = 1_000
"""Of a search: what is found beyond is nobody's page."""
MAX_SCOPE_ID: Final = 3 * MAX_NAME_CHARACTERS
"""Of an episode: its session, its trace and a number."""
_BY_NAME = TypeAdapter(tuple[str, str])
_BY_SCORE = TypeAdapter(tuple[float, str, str])
_BY_TIME = TypeAdapter(tuple[int, str])

router = APIRouter(prefix="/v1", tags=["memory"])


def _page_meta(context: ReadContext[Any], read: int, limit: int) -> PageMeta:
    """How a page came about, of which one item more than its limit was read if there is one."""
    return PageMeta(
        query_ms=context.deadline.elapsed_ms(), returned=min(read, limit), truncated=read > limit
    )


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
    search = _Search(caller.tenant, query)
    context = await begin_read(services, caller.tenant, query)
    items = await context.answer(search.page)
    shown = items[: query.limit]
    more = len(items) > query.limit
    return JsonResponse(
        EntityList(
            entities=[entity_item(item.entity, item.score) for item in shown],
            next_cursor=cursor_of(search.question, shown[-1].place) if more else None,
            meta=_page_meta(context, len(items), query.limit),
        )
    )


class _Item(NamedTuple):
    """An entity of a list, and where it stands in it."""

    entity: EntityName
    score: float | None
    place: tuple[Any, ...]


class _Search:
    """One question for entities; its order depends on names alone, so pages fit together."""

    def __init__(self, tenant: str, query: EntitiesQuery) -> None:
        self._tenant = tenant
        self._query = query
        self.question = ("entities", tenant, query.query, query.type)
        self._after: tuple[Any, ...] | None = None
        if query.cursor is not None:
            shape: TypeAdapter[Any] = _BY_NAME if query.query is None else _BY_SCORE
            self._after, _ = content_of(self.question, query.cursor, shape)

    def page(self, graph: GraphRead) -> list[_Item]:
        """The items of the page, and one more when there is a next page."""
        return self._all(graph) if self._query.query is None else self._matching(graph)

    def _all(self, graph: GraphRead) -> list[_Item]:
        name, own_id = self._after or ("", "")
        reads = EntityReads(graph, self._tenant)
        rows = reads.listed((name, own_id), self._query.type, self._query.limit + 1)
        return [_Item(entity, None, (name, entity.entity_id)) for name, entity in rows]

    def _matching(self, graph: GraphRead) -> list[_Item]:
        words = self._query.query or ""
        terms, facts = name_terms(words), FactReads(graph, self._tenant)
        candidates = {
            entity.entity_id: entity
            for entity in (
                *facts.found(terms.words, terms.names, MAX_MATCHES),
                *EntityReads(graph, self._tenant).prefixed(canonical_name(words)),
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
    one that is mentioned most. What was found to be the same is one entity here.
    """
    question = ("entity", caller.tenant, entity_id, query.user_id, query.as_of)
    place = _time_place(question, query)
    context = await begin_read(services, caller.tenant, query, as_of=query.as_of)
    before = place or (LAST_MS if query.as_of is None else context.now_ms, "")

    def read(graph: GraphRead) -> EntityPage | None:
        return _entity_page(graph, context, entity_id.removeprefix(ENTITY_PREFIX), before)

    page = await context.answer(read)
    if page is None:
        raise ApiProblem("not-found", "No entity of that id or name is in the graph.")
    events = page.events[: query.limit]
    next_cursor = None
    if len(page.events) > query.limit:
        last = events[-1]
        next_cursor = cursor_of(question, (last.properties["occurred_at"], last.node_id))
    return JsonResponse(
        entity_response(
            page._replace(events=events),
            now_ms=context.now_ms,
            next_cursor=next_cursor,
            meta=_page_meta(context, len(page.events), query.limit),
        )
    )


def _entity_page(
    graph: GraphRead, context: ReadContext[EntityQuery], name: str, before: tuple[int, str]
) -> EntityPage | None:
    reads, facts = EntityReads(graph, context.tenant), FactReads(graph, context.tenant)
    query = context.query
    named = facts.found_by_id([name]) or facts.found_by_name(name_forms(name), MAX_MATCHES)
    group = reads.group([entity.entity_id for entity in named])
    if group is None:
        return None
    events = reads.events_of(group.ids, before, query.user_id, query.limit + 1)
    shown = [node.node_id for node in events[: query.limit]]
    return EntityPage(
        group,
        facts=_facts_about(facts, context, group.canonical),
        events=events,
        mentions=reads.mentioned(shown, group.ids),
    )


def _facts_about(
    facts: FactReads, context: ReadContext[EntityQuery], entity_id: str
) -> list[RecalledFact]:
    """The facts that one entity stands in."""
    query = context.query
    if not query.max_facts:
        return []
    wanted = FactFilter(
        context.now_ms,
        user_id=query.user_id,
        per_entity=query.max_facts,
        everyone=query.user_id is None,
    )
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

    `scope_id` is the session's or the agent's id, an episode's as its summary names it, or
    `summary:<hash>`.
    """
    if scope_id.startswith(SUMMARY_PREFIX):
        own_id = scope_id.removeprefix(SUMMARY_PREFIX)
    else:
        own_id = summary_id(caller.tenant, scope, scope_id)
    page = await _summary_page(services, caller.tenant, own_id, query)
    if page.node is None or page.node.properties["scope"] != scope:
        raise ApiProblem("not-found", "No such summary is in the graph; a pass may not be due yet.")
    return JsonResponse(
        SummaryResponse(
            summary=summary_item(page.node),
            children=page.below,
            links=[link_item(link) for link in page.links],
            next_cursor=page.next_cursor,
            meta=page.meta,
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
    page = await _summary_page(services, caller.tenant, own_id, query)
    return JsonResponse(
        EpisodeList(episodes=page.below, next_cursor=page.next_cursor, meta=page.meta)
    )


class _SummaryPage(NamedTuple):
    """A summary with a page of those below it."""

    node: GraphNode | None
    below: list[SummaryItem]
    links: list[Link]
    next_cursor: str | None
    meta: PageMeta


async def _summary_page(
    services: ServicesOf, tenant: str, own_id: str, query: SummaryQuery
) -> _SummaryPage:
    question = ("summary", tenant, own_id)
    after = _time_place(question, query) or (0, "")
    context = await begin_read(services, tenant, query)

    def read(graph: GraphRead) -> tuple[GraphNode | None, list[GraphNode], list[Link]]:
        reads = EntityReads(graph, tenant)
        below = reads.below(own_id, after, query.limit + 1)
        return reads.summary(own_id), below, reads.links(own_id)

    node, below, links = await context.answer(read)
    next_cursor = None
    if len(below) > query.limit:
        last = below[query.limit - 1]
        began_ms = (last.properties.get("time_range") or [0])[0]
        next_cursor = cursor_of(question, (began_ms, last.node_id))
    return _SummaryPage(
        node,
        below=[summary_item(item) for item in below[: query.limit]],
        links=links,
        next_cursor=next_cursor,
        meta=_page_meta(context, len(below), query.limit),
    )


DEFAULT_INTENT: Intent = "why"
FAILURE_STATUSES: Final = ("failed", "timeout")


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
