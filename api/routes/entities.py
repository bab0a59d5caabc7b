"""Entities: lists of them, the page of each with its facts and events, the history of its facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Query
from pydantic import TypeAdapter
from starlette.responses import Response

from api.answers import JsonResponse, page_meta
from api.browse_schemas import FactHistory, FactHistoryQuery
from api.cursors import page_of, place_of, time_place
from api.dependencies import PathName, Reader, ServicesOf
from api.entity_answers import (
    EntityPage,
    entity_item,
    entity_response,
    fact_history,
    fact_of,
    nodes_around,
    shown_nodes,
)
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.read_schemas import (
    EntitiesQuery,
    EntityList,
    EntityQuery,
    EntityResponse,
)
from api.retrieval.facts import FactWalk, RecalledFact, recalled
from api.retrieval.intent import Seed, match_score
from api.retrieval.query_terms import name_terms
from api.retrieval.recall import entities_named, entity_named
from api.services import ReadContext, begin_read
from enrichment.names import canonical_name
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.entities import EntityGroup, EntityReads
from pipelines.graph.reads.events import EventReads
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.reads.walk import edges_between
from pipelines.graph.rows import ENTITY_PREFIX, EntityName
from projections.events import LAST_MS
from projections.schema import MAX_SUPPORTING

MAX_MATCHES: Final = 1_000
"""Of a search: what is found beyond is nobody's page."""
_BY_NAME = TypeAdapter(tuple[str, str])
_BY_SCORE = TypeAdapter(tuple[float, str, str])

router = APIRouter(prefix="/v1", tags=["memory"])


@router.get("/entities", response_model=EntityList, responses=problem_responses(*READ_PROBLEMS))
async def list_entities(
    caller: Reader, services: ServicesOf, query: Annotated[EntitiesQuery, Query()]
) -> Response:
    """Entities by name; with `query` those whose names have its words, the best first."""
    context = await begin_read(services, caller, query)
    search = _Search(context)
    items, withheld = await context.answer(search.page)
    shown, next_cursor = page_of(search.question, items, query.limit, attrgetter("place"))
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
        shape: TypeAdapter[Any] = _BY_NAME if query.query is None else _BY_SCORE
        self._after: tuple[Any, ...] | None = place_of(self.question, query.cursor, shape)

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
    entity_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[EntityQuery, Query()],
) -> Response:
    """An entity, what is known about it, and the events that mention it, the newest first.

    `entity_id` is `entity:<hash>`, the bare hash, or `entity:<name>`; of several by one name the
    one that is mentioned most. What was found to be the same is one entity here.
    """
    context = await begin_read(services, caller, query)
    question = ("entity", caller.tenant, context.scope.viewer, entity_id, query.as_of)
    first = (LAST_MS if query.as_of is None else context.now_ms, "")
    before = time_place(question, query.cursor) or first

    def work() -> EntityPage | None:
        named = entity_id.removeprefix(ENTITY_PREFIX)
        with services.connections.graph.opened() as graph:
            columns = context.columns(graph.columns)
            group = entity_named(columns, named)
            if group is None:
                return None
            mentions = columns.mentions(group.ids, before, query.limit + 1)
            events, next_cursor = page_of(question, mentions.events, query.limit, tuple)
            selection = _Selection(
                group,
                columns.newest_mentions(group.ids, MAX_SUPPORTING),
                event_ids=[own_id for _, own_id in events],
                withheld=mentions.withheld,
                next_cursor=next_cursor,
            )
            return context.read(graph.reader, lambda read: _entity_page(read, context, selection))

    page = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    if page is None:
        raise ApiProblem("not-found", "No entity of that id or name is in the graph.")
    own_id = page.around[0].node_id
    context.record(
        [own_id, *(node.node_id for node in page.events)],
        [fact.key for fact in page.facts],
    )
    nodes = shown_nodes([*page.around, *page.events], context.now_ms)
    meta = page_meta(
        context,
        len(page.events) + (page.next_cursor is not None),
        nodes,
        withheld=page.withheld,
        begun_at=[own_id],
        next_cursor=page.next_cursor,
    )
    return JsonResponse(entity_response(page, nodes, meta))


class _Selection(NamedTuple):
    """What the columns say that the page of an entity shows."""

    group: EntityGroup
    supporting: Mapping[str, Sequence[str]]
    event_ids: Sequence[str]
    withheld: int
    next_cursor: str | None


def _entity_page(
    graph: GraphRead, context: ReadContext[EntityQuery], selection: _Selection
) -> EntityPage | None:
    """The page as the graph has it; None: the entity was taken out meanwhile."""
    group, facts = selection.group, FactReads(graph, context.scope)
    members = EntityReads(graph, context.scope).entities(group.ids, selection.supporting)
    if group.canonical not in members:
        return None
    by_id = EventReads(graph, context.scope).events(selection.event_ids)
    events = [by_id[own_id] for own_id in selection.event_ids if own_id in by_id]
    around = nodes_around(group, members)
    return EntityPage(
        group,
        members,
        facts=_facts_about(facts, context, group.canonical),
        around=around,
        events=events,
        edges=edges_between(graph, context.scope, [node.node_id for node in (*around, *events)]),
        withheld=context.withheld(lambda: selection.withheld + facts.withheld(group.ids)),
        next_cursor=selection.next_cursor,
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


class _Told(NamedTuple):
    """The facts of a page, each with its place, and one behind them."""

    own_id: str
    facts: list[tuple[tuple[int, str], RecalledFact]]
    withheld: int | None


@router.get(
    "/facts/{entity_id:path}",
    response_model=FactHistory,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def read_fact_history(
    entity_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[FactHistoryQuery, Query()],
) -> Response:
    """Every fact that an entity stands in, whether it holds or not, what began last first.

    A fact that ended has `valid_to`; one that another contradicted has `expired_at`, too; what was
    withdrawn ends where it began. `entity_id` is as for `/v1/entities`; of several entities by one
    name the one mentioned most that facts are known of.
    """
    context = await begin_read(services, caller, query)
    viewer = context.scope.viewer
    question = ("fact history", caller.tenant, viewer, entity_id, query.as_of_position)
    behind = time_place(question, query.cursor)

    def work() -> _Told | None:
        with services.connections.graph.opened() as graph:
            named = entity_id.removeprefix(ENTITY_PREFIX)
            groups = list(entities_named(context.columns(graph.columns), named))
            if not groups:
                return None

            def ask(read: GraphRead) -> _Told:
                reads = FactReads(read, context.scope)
                group = _with_facts(reads, groups)
                facts = fact_history(
                    reads, group.ids, behind=behind, limit=query.limit + 1, now_ms=context.now_ms
                )
                withheld = context.withheld(lambda: reads.withheld(group.ids))
                return _Told(group.canonical, facts, withheld)

            return context.read(graph.reader, ask)

    told = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    if told is None:
        raise ApiProblem("not-found", "No entity of that id or name is in the graph.")
    page, next_cursor = page_of(question, told.facts, query.limit, lambda item: item[0])
    facts = [fact for _, fact in page]
    context.record([ENTITY_PREFIX + told.own_id], [fact.key for fact in facts])
    meta = page_meta(
        context,
        len(told.facts),
        withheld=told.withheld,
        begun_at=[ENTITY_PREFIX + told.own_id],
        next_cursor=next_cursor,
    )
    return JsonResponse(
        FactHistory(facts=[fact_of(fact) for fact in facts], next_cursor=next_cursor, meta=meta)
    )


def _with_facts(reads: FactReads, groups: Sequence[EntityGroup]) -> EntityGroup:
    """Of several entities by one name the first that facts are known of."""
    told = (group for group in groups if reads.history(group.ids, None, 1))
    return groups[0] if len(groups) == 1 else next(told, groups[0])
