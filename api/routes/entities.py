"""Entities: lists of them, and one with its names, facts, community and events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from api.answers import JsonResponse
from api.cursors import cursor_of, place_of
from api.dependencies import Reader, ServicesOf
from api.entity_answers import entity_item, entity_response
from api.entity_schemas import EntitiesQuery, EntityList, EntityQuery, EntityResponse, PageMeta
from api.errors import ApiProblem, problem_responses
from api.read_your_writes import begin_read
from api.retrieval.entity_seeds import Seed, match_score, name_forms, name_terms
from api.retrieval.facts import FactWalk, RecalledFact, recalled
from api.retrieval.recall import ENTITY_PREFIX
from api.routes.context import READ_PROBLEMS, clock_ms
from enrichment.entities import canonical_name
from enrichment.resolution import components
from pipelines.graph.reader import GraphNode, GraphRead
from pipelines.graph.reads.entities import EntityNode, EntityReads, Mention
from pipelines.graph.reads.facts import EntityName, FactFilter, FactReads
from projections.events import MAX_NAME_CHARACTERS

MAX_MATCHES = 1_000
"""Of a search: what is found beyond is nobody's page."""
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: behind every event."""

router = APIRouter(prefix="/v1/entities", tags=["memory"])


@router.get("", response_model=EntityList, responses=problem_responses(*READ_PROBLEMS))
async def list_entities(
    caller: Reader, services: ServicesOf, query: Annotated[EntitiesQuery, Query()]
) -> Response:
    """Entities by name; with `query` those whose names have its words, the best first."""
    search = _Search(caller.tenant, query)
    deadline = await begin_read(services, query.timeout_ms, query.min_position)

    def work() -> EntityList:
        with services.connections.graph.reader() as reader:
            items = reader.read(search.page, timeout_ms=deadline.remaining_ms())
        shown = items[: query.limit]
        more = len(items) > query.limit
        return EntityList(
            entities=[entity_item(one.entity, one.score) for one in shown],
            next_cursor=cursor_of(search.question, shown[-1].place) if more else None,
            meta=PageMeta(query_ms=deadline.elapsed_ms(), returned=len(shown), truncated=more),
        )

    return JsonResponse(await services.read(work, timeout_ms=deadline.remaining_ms()))


class _Item(NamedTuple):
    """An entity of a list, and where it stands in it."""

    entity: EntityName
    score: float | None
    place: list[str | int | float]


class _Search:
    """One question for entities; its order depends on names alone, so pages fit together."""

    def __init__(self, tenant: str, query: EntitiesQuery) -> None:
        self._tenant = tenant
        self._query = query
        self.question = ("entities", tenant, query.query, query.type)
        kinds = (str, str) if query.query is None else (float, str, str)
        self._after: list[Any] | None = None
        if query.cursor is not None:
            self._after = place_of(self.question, query.cursor, kinds)

    def page(self, graph: GraphRead) -> list[_Item]:
        """The items of the page, and one more when there is a next page."""
        return self._all(graph) if self._query.query is None else self._matching(graph)

    def _all(self, graph: GraphRead) -> list[_Item]:
        name, own_id = self._after or ("", "")
        reads = EntityReads(graph, self._tenant)
        rows = reads.listed((name, own_id), self._query.type, self._query.limit + 1)
        return [_Item(one, None, [name, one.entity_id]) for name, one in rows]

    def _matching(self, graph: GraphRead) -> list[_Item]:
        asked = self._query.query or ""
        terms, facts = name_terms(asked), FactReads(graph, self._tenant)
        found = {
            one.entity_id: one
            for one in (
                *facts.found(terms.words, terms.names, MAX_MATCHES),
                *EntityReads(graph, self._tenant).prefixed(canonical_name(asked)),
            )
            if self._query.type in (None, one.entity_type)
        }
        items = [
            _Item(one, score, [-score, one.name, one.entity_id])
            for one in found.values()
            if (score := round(match_score(terms.words, one.names), 6)) > 0
        ]
        ordered = sorted(items, key=lambda item: item.place)
        if self._after is not None:
            ordered = [item for item in ordered if item.place > self._after]
        return ordered[: self._query.limit + 1]


@router.get(
    "/{entity_id:path}",
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
    found = _Found(caller.tenant, entity_id, query, services.settings.temporal_decay_rate)
    deadline = await begin_read(services, query.timeout_ms, query.min_position)

    def work() -> bool:
        with services.connections.graph.reader() as reader:
            return reader.read(found.read, timeout_ms=deadline.remaining_ms())

    if not await services.read(work, timeout_ms=deadline.remaining_ms()):
        raise ApiProblem("not-found", "No entity of that id or name is in the graph.")
    return JsonResponse(found.response(deadline.elapsed_ms()))


class _Found:
    """One entity, as it is read."""

    def __init__(self, tenant: str, entity_id: str, query: EntityQuery, decay_rate: float) -> None:
        self._decay_rate = decay_rate
        self._tenant = tenant
        self._asked = entity_id.removeprefix(ENTITY_PREFIX)
        self._query = query
        self.question = ("entity", tenant, entity_id, query.user_id, query.as_of)
        self._now_ms = clock_ms(query.as_of)
        self._before: tuple[int, str] = (
            LAST_MS if query.as_of is None else self._now_ms,
            "",
        )
        if query.cursor is not None:
            at_ms, event_id = place_of(self.question, query.cursor, (int, str))
            self._before = (min(max(at_ms, 0), LAST_MS), event_id)
        self._members: dict[str, EntityNode] = {}
        self._canonical = ""
        self._facts: list[RecalledFact] = []
        self._events: list[GraphNode] = []
        self._mentions: list[Mention] = []

    def read(self, graph: GraphRead) -> bool:
        """Whether there is such an entity; reads all of it."""
        reads, facts = EntityReads(graph, self._tenant), FactReads(graph, self._tenant)
        own_id = self._known(reads, facts)
        if own_id is None:
            return False
        pairs = facts.same_as([own_id])
        self._canonical = components(pairs).get(own_id, own_id)
        ids = sorted({own_id, *(one for pair in pairs for one in pair)})
        self._members = reads.entities(ids)
        if self._canonical not in self._members:  # the smallest id has never been mentioned
            self._canonical = min(self._members)
        self._facts = self._known_facts(facts)
        user_id = self._query.user_id
        self._events = reads.events_of(ids, self._before, user_id, self._query.limit + 1)
        shown = [node.node_id for node in self._shown()]
        self._mentions = reads.mentioned(shown, ids)
        return True

    def _known(self, reads: EntityReads, facts: FactReads) -> str | None:
        named = facts.found_by_id([self._asked]) or facts.found_by_name(
            name_forms(self._asked), MAX_MATCHES
        )
        nodes = reads.entities([one.entity_id for one in named])
        return max(nodes, key=lambda own_id: (nodes[own_id].mentions, own_id), default=None)

    def _known_facts(self, facts: FactReads) -> list[RecalledFact]:
        if not self._query.max_facts:
            return []
        wanted = FactFilter(
            self._now_ms,
            user_id=self._query.user_id,
            per_entity=self._query.max_facts,
            everyone=self._query.user_id is None,
        )
        walk = FactWalk(wanted, 1)
        walk.walk(facts, [self._canonical])
        seeds = [Seed(walk.of(self._canonical), "", 1.0, 0.0, 1.0)]
        return recalled(
            walk,
            seeds,
            now_ms=self._now_ms,
            decay_rate=self._decay_rate,
            limit=self._query.max_facts,
        )

    def _shown(self) -> Sequence[GraphNode]:
        return self._events[: self._query.limit]

    def response(self, query_ms: int) -> EntityResponse:
        """What was read, as it is sent."""
        shown = self._shown()
        more = len(self._events) > len(shown)
        last = shown[-1] if more else None
        return entity_response(
            self._canonical,
            self._members,
            facts=self._facts,
            events=shown,
            mentions=self._mentions,
            now_ms=self._now_ms,
            next_cursor=None
            if last is None
            else cursor_of(self.question, [last.properties["occurred_at"], last.node_id]),
            meta=PageMeta(query_ms=query_ms, returned=len(shown), truncated=more),
        )
