"""Questions of an agent: what the memory knows that helps, and the facts about what it names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from api.answers import (
    JsonResponse,
    MarkdownResponse,
    add_contents,
    also_markdown,
    as_json,
    wants_markdown,
)
from api.connections import OpenGraph
from api.cursors import facts_cursor, facts_of, ranking_cursor, ranking_of
from api.dependencies import Reader, ServicesOf, body_of, documented_body, no_query
from api.entity_answers import FactsAnswer, facts_narrative, facts_response
from api.errors import BODY_PROBLEMS, READ_PROBLEMS, problem_responses
from api.read_schemas import FactsQuery, FactsResponse, RecallMode, SubgraphQuery
from api.retrieval.answer import Retrieval
from api.retrieval.facts import FactWalk, RecalledFact, ranked_fact, read_page
from api.retrieval.intent import classify_graph_subgraph
from api.retrieval.narrative import NARRATIVE_ANCHORS, NARRATIVE_HOPS
from api.retrieval.plan import Operator, Plan
from api.retrieval.planning import plan_of
from api.retrieval.ranking import MAX_RANKING
from api.retrieval.recall import (
    Recall,
    RecallSeeds,
    by_activation,
    former_first,
    ranked_facts,
    seeds_of,
)
from api.retrieval.wish_answer import wishes_first
from api.schemas import AtlasResponse, Bound
from api.services import ReadContext, begin_read
from api.subgraph_answers import evidence_of, subgraph_response
from api.verdict import answer_head
from enrichment.vocabulary import EdgeType
from pipelines.columns.access import ColumnsAccess
from pipelines.graph.reader import GraphRead, GraphReader
from pipelines.graph.reads.facts import FactReads
from pipelines.graph.rows import ENTITY_PREFIX
from pipelines.observe import metrics
from projections.errors import GraphUnavailable, InvalidInput, QueryTimeout
from projections.events import timestamp_ms
from projections.identity import Position

router = APIRouter(prefix="/v1/query", tags=["memory"], dependencies=[Depends(no_query)])


@router.post(
    "/subgraph",
    response_model=AtlasResponse,
    responses={
        **also_markdown("The nodes; as Markdown, the events among them as evidence"),
        **problem_responses(*READ_PROBLEMS, *BODY_PROBLEMS),
    },
    openapi_extra=documented_body(SubgraphQuery),
)
async def query_subgraph(
    caller: Reader,
    services: ServicesOf,
    query: Annotated[SubgraphQuery, Depends(body_of(SubgraphQuery))],
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """What the memory knows that helps with a question: nodes by rank, and the edges between them.

    The question alone is enough: what it is about, what it wants to know and where to begin are
    found out here; `intent` and `seed_nodes` override that. `Accept: text/markdown` gives the
    events as evidence in reading order, the best that fit into `max_tokens`.
    """
    context = await begin_read(services, caller, query)
    limit_ms = context.deadline.remaining_ms()

    def answering() -> _Answering:
        return _Answering(context.in_session(query.session_id))

    if wants_markdown(accept):
        evidence = await services.query(lambda: answering().evidence(), timeout_ms=limit_ms)
        return MarkdownResponse(evidence)
    # Written on the thread, too: the loop answers everybody else.
    return await services.query(lambda: JsonResponse(answering().answer()), timeout_ms=limit_ms)


class _Answering:
    """One answer, on a thread of its own: from the cache, or the next page, or found anew."""

    def __init__(self, context: ReadContext[SubgraphQuery]) -> None:
        query = context.query
        self._context = context
        self._services = context.services
        self._question = [
            context.tenant,
            *(context.scope.viewer, context.tells_withheld),
            query.model_dump(exclude=_NOT_THE_QUESTION),
        ]
        self._key = orjson.dumps([self._question, query.max_nodes, query.cursor])

    def answer(self) -> AtlasResponse:
        """The answer, with the payloads that were asked for, and counted as read."""
        response = self._cached() or self._found()
        if "content" in self._context.query.include:
            response = response.model_copy(deep=True)  # what is cached stays without
            add_contents(response.nodes, self._context.tenant, self._services.ledger)
        self._record(response)
        return response

    def evidence(self) -> str:
        """The answer as text."""
        response = self.answer()
        tokens = self._context.query.max_tokens
        return evidence_of(self._context, response, tokens, answer_head(response))

    def _found(self) -> AtlasResponse:
        context, cursor = self._context, self._context.query.cursor
        projected = self._services.seen.answered_from()
        with self._services.connections.graph.opened() as graph:
            if cursor is None:
                page = Retrieval(context, graph).answer()
            else:
                ranking, now_ms = ranking_of(self._question, cursor)
                context = context.at(now_ms)
                page = Retrieval(context, graph).next_page(ranking)
        next_cursor = ranking_cursor(self._question, page.behind, context.now_ms)
        response = subgraph_response(context, page, next_cursor)
        if not (response.meta.degraded or page.pending):
            self._keep(response, projected)
        _count(response)
        return response

    # -- the same answer again ---------------------------------------------------------------------

    def _cached(self) -> AtlasResponse | None:
        """What was answered a moment ago; nobody who waits for a position gets that."""
        if self._context.query.min_position is not None:
            return None
        response = self._context.cached(self._key, AtlasResponse)
        if response is None:
            return None
        method = response.meta.retrieval_method or ""
        metrics.QUERIES.labels(method=method, outcome="cached").inc()
        meta = response.meta.model_copy(
            update={"cached": True, "query_ms": self._context.deadline.elapsed_ms()}
        )
        return response.model_copy(update={"meta": meta})

    def _keep(self, response: AtlasResponse, projected: Mapping[int, Position] | None) -> None:
        shown = (node.provenance.session_id for node in response.nodes)
        self._context.cache(
            self._key,
            response,
            size=lambda: len(as_json(response)),
            sessions=[self._context.query.session_id, *shown],
            projected=projected,
        )

    def _record(self, response: AtlasResponse) -> None:
        """What was shown counts as read, and is remembered by session."""
        context = self._context
        ids = [node.node_id for node in response.nodes]
        signals = {
            node.node_id: node.proactive_signal
            for node in response.nodes
            if node.proactive_signal is not None
        }
        if context.record(ids, unasked=signals):
            tenant, session_id = context.tenant, context.query.session_id
            shown = self._services.shown
            # No answer waits for what it is remembered by.
            self._services.channels.submit(lambda: shown.show(tenant, session_id, ids, signals))


def _count(response: AtlasResponse) -> None:
    outcome: metrics.QueryOutcome = "answered" if response.nodes else "empty"
    if response.meta.degraded:
        outcome = "partial"
    method = response.meta.retrieval_method or ""
    metrics.QUERIES.labels(method=method, outcome=outcome).inc()
    for channel, number in Counter(
        each for node in response.nodes for each in node.found_by
    ).items():
        metrics.CHANNEL_NODES.labels(channel=channel).inc(number)
    for signal, number in Counter(node.proactive_signal for node in response.nodes).items():
        if signal is not None:
            metrics.PROACTIVE_NODES.labels(signal=signal).inc(number)


_NOT_THE_QUESTION: Final = {
    "cursor",
    "max_nodes",
    "timeout_ms",
    "min_position",
    "include",
    "record_access",
    "max_tokens",
}
"""Fields that may differ from page to page, and change no ranking."""


@router.post(
    "/facts",
    response_model=FactsResponse,
    responses={
        **also_markdown("The facts; as Markdown, their narrative"),
        **problem_responses(*READ_PROBLEMS, *BODY_PROBLEMS),
    },
    openapi_extra=documented_body(FactsQuery),
)
async def recall_facts(
    caller: Reader,
    services: ServicesOf,
    query: Annotated[FactsQuery, Depends(body_of(FactsQuery))],
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Facts about the entities that the query names, and about what they are connected with.

    `Accept: text/markdown` gives their narrative within `max_tokens`: the three best seeds, two
    levels around them, at most 10 facts an entity and 30 in all.
    """
    context = await begin_read(services, caller, query, session_id=query.session_id)
    as_text = wants_markdown(accept)
    recalling = _Recalling(context, as_text=as_text)
    answer = await services.read(recalling.answer, timeout_ms=context.deadline.remaining_ms())
    recalling.record(answer)
    if as_text:
        return MarkdownResponse(facts_narrative(answer, query.max_tokens))
    return JsonResponse(recalling.response(answer))


class _Recalling:
    """One recall, on a thread of its own: from the cache, or the next page, or found anew."""

    def __init__(self, context: ReadContext[FactsQuery], *, as_text: bool) -> None:
        query, settings = context.query, context.settings
        self._context = context
        self._query = query
        self._tenant = context.tenant
        default: RecallMode = "activation" if settings.spreading_activation else "bfs"
        self._mode: RecallMode = query.mode or default
        self._as_text = as_text
        self._cached = False
        self._embedder_was_away = False
        fields = query.model_dump(exclude=_NOT_THE_RECALL)
        view = [context.tenant, context.scope.viewer, context.tells_withheld]
        self._question = ["facts", *view, as_text, fields]

    def answer(self) -> FactsAnswer:
        """What is recalled; called on a thread of its own.

        Raises:
            InvalidInput: the cursor is none, or of another question.
        """
        context, cursor = self._context, self._query.cursor
        key = orjson.dumps([self._question, self._query.max_facts, cursor])
        if self._query.min_position is None:  # nobody who waits for a position gets what was before
            cached = context.cached(key, FactsAnswer)
            if cached is not None:
                self._cached = True
                return cached
        projected = context.services.seen.answered_from()
        with context.services.connections.graph.opened() as graph:
            answer = self._first(graph) if cursor is None else self._page(graph.reader, cursor)
            if answer.complete:
                self._keep(graph.reader, key, answer, projected)
        return answer

    def _first(self, graph: OpenGraph) -> FactsAnswer:
        recall, reader = self._recall(), graph.reader
        seeds = self._seeds(graph.columns, recall)
        walk = FactWalk(
            wanted=recall.wanted, max_depth=recall.max_depth, query_vector=self._query_vector(seeds)
        )
        ranked, timed_out = self._facts(reader, recall, seeds, walk)
        ranked = self._by_wish(graph.columns, recall, ranked)
        facts, behind = ranked[: recall.max_facts], ranked[recall.max_facts :]
        return FactsAnswer(
            recall,
            seeds,
            facts,
            cut_by=frozenset(walk.cut_by),
            more=bool(behind) or len(ranked) == MAX_RANKING,
            next_cursor=facts_cursor(self._question, map(ranked_fact, behind), recall.now_ms),
            timed_out=timed_out,
            withheld=self._withheld(reader, seeds),
            complete=not (timed_out or Bound.TIME in walk.cut_by or self._embedder_was_away),
        )

    def _withheld(self, reader: GraphReader, seeds: RecallSeeds) -> int | None:
        """Facts around the seeds that are kept back."""
        ids, scope = [seed.entity_id for seed in seeds.seeds], self._context.scope
        return self._context.withheld_beside(
            reader, lambda graph: FactReads(graph, scope).withheld(ids)
        )

    def _page(self, reader: GraphReader, cursor: str) -> FactsAnswer:
        """The next page of a ranking that was made before; in scope as if it were made now."""
        if self._as_text:
            raise InvalidInput((("cursor", "none: a narrative has no pages"),))
        ranked, now_ms = facts_of(self._question, cursor)
        self._context = self._context.at(now_ms)
        recall = self._recall()
        walk = FactWalk(wanted=recall.wanted, max_depth=recall.max_depth)
        page, behind = ranked[: recall.max_facts], ranked[recall.max_facts :]
        facts = self._context.read(
            reader,
            lambda graph: read_page(FactReads(graph, recall.scope), walk, page),
        )
        return FactsAnswer(
            recall,
            RecallSeeds([], "none"),
            facts,
            more=bool(behind),
            next_cursor=facts_cursor(self._question, behind, now_ms),
        )

    def _keep(
        self,
        reader: GraphReader,
        key: bytes,
        answer: FactsAnswer,
        projected: Mapping[int, Position] | None,
    ) -> None:
        """For the next minute, unless a session goes on from which one of the facts is known."""
        if not self._context.services.results.is_on:
            return
        events = {event_id for fact in answer.facts for event_id in fact.sources}
        try:
            sessions = self._context.read(
                reader, lambda graph: FactReads(graph, self._context.scope).sessions(events)
            )
        except (QueryTimeout, GraphUnavailable):
            return  # what was found is answered all the same
        self._context.cache(
            key,
            answer,
            size=lambda: len(self.response(answer).model_dump_json()),
            sessions=[self._query.session_id, *sessions],
            projected=projected,
        )

    def response(self, answer: FactsAnswer) -> FactsResponse:
        """As JSON has it."""
        query_ms = self._context.deadline.elapsed_ms()
        return facts_response(answer, mode=self._mode, query_ms=query_ms, cached=self._cached)

    def record(self, answer: FactsAnswer) -> None:
        """What was shown counts as retrieved."""
        seeds = [ENTITY_PREFIX + seed.entity_id for seed in answer.seeds.seeds]
        self._context.record(seeds, [fact.key for fact in answer.facts])

    def _at_ms(self, now_ms: int) -> int:
        """The moment that facts must hold at: as given, else the end of what the question names."""
        query = self._query
        if query.at_timestamp is not None:
            return timestamp_ms(query.at_timestamp)
        if self._plan.operator is Operator.VALUE_AT and self._plan.spans:
            return min(now_ms, self._plan.spans[0].end_ms - 1)
        return now_ms

    @cached_property
    def _plan(self) -> Plan:
        """What is asked for, by the words and, unless the embedder is away, by the vector."""
        meaning = None if self._vector is None else tuple(self._vector)
        return plan_of(self._query.query, self._context.now_ms, vector=meaning)

    def _recall(self) -> Recall:
        query, now_ms = self._query, self._context.now_ms
        max_depth = query.max_depth or self._context.settings.max_hops
        return Recall(
            query=query.query,
            scope=self._context.scope,
            at_ms=self._at_ms(now_ms),
            now_ms=now_ms,
            max_depth=NARRATIVE_HOPS if self._as_text else max_depth,
            max_facts=MAX_RANKING if self._as_text else query.max_facts,
            given=tuple(query.seed_nodes),
            edge_types=_edge_types(query),
        )

    def _seeds(self, columns: ColumnsAccess, recall: Recall) -> RecallSeeds:
        reads = self._context.columns(columns)
        seeds = seeds_of(reads, recall, self._context.seed_rules(), lambda _: self._needed_vector())
        return seeds._replace(seeds=seeds.seeds[:NARRATIVE_ANCHORS]) if self._as_text else seeds

    @cached_property
    def _vector(self) -> Sequence[float] | None:
        """Of the question; None: there was none in time."""
        limit_ms = round(self._context.settings.query_embedding_timeout_s * 1000)
        # half of what is left: without a vector there is still an answer to give
        timeout_ms = min(limit_ms, self._context.deadline.remaining_ms() // 2 + 1)
        return self._context.services.embedder.embed(self._query.query, timeout_ms=timeout_ms)

    def _needed_vector(self) -> Sequence[float] | None:
        """The same, where an answer without it may lack something."""
        self._embedder_was_away |= self._vector is None
        return self._vector

    def _query_vector(self, seeds: RecallSeeds) -> Sequence[float] | None:
        """PRISM's; without one the confidence alone decides, and nobody is told (S2)."""
        wanted = self._query.query_sensitive_cost
        if wanted is None:
            wanted = self._context.settings.query_sensitive_cost
        return self._needed_vector() if wanted and seeds.seeds else None

    def _facts(
        self, reader: GraphReader, recall: Recall, seeds: RecallSeeds, walk: FactWalk
    ) -> tuple[list[RecalledFact], bool]:
        """The facts, and whether an activation ran out of its time."""
        limit_ms = self._context.deadline.remaining_ms()
        if self._mode == "bfs":
            return self._walked(reader, recall, seeds, walk), False

        def spread(graph: GraphRead) -> list[RecalledFact]:
            config = self._context.activation_config(recall.max_depth)
            reads = FactReads(graph, self._context.scope)
            return by_activation(reads, recall, seeds.seeds, walk=walk, config=config)

        try:
            limit_ms = min(limit_ms, self._context.settings.activation_timeout_ms)
            return reader.read(spread, timeout_ms=limit_ms), False
        except QueryTimeout:
            return [], True

    def _by_wish(
        self, columns: ColumnsAccess, recall: Recall, facts: list[RecalledFact]
    ) -> list[RecalledFact]:
        """With the wishes in front that are asked for, where a question asks for any."""
        if not facts or self._plan.operator is not Operator.PREFERENCE:
            return facts
        reads = self._context.columns(columns)
        return wishes_first(
            facts, reads, recall.query, plan=self._plan, vector=self._needed_vector()
        )

    def _walked(
        self, reader: GraphReader, recall: Recall, seeds: RecallSeeds, walk: FactWalk
    ) -> list[RecalledFact]:
        """Breadth first; out of time, what was found until then is the answer."""
        starts = [seed.entity_id for seed in seeds.seeds]
        try:
            self._context.read(
                reader, lambda graph: walk.walk(FactReads(graph, self._context.scope), starts)
            )
        except QueryTimeout:
            if not walk.facts:
                raise
            walk.cut_by.add(Bound.TIME)
        rate = self._context.settings.temporal_decay_rate
        facts = ranked_facts(walk, recall, seeds.seeds, decay_rate=rate)
        asks_before = self._plan.operator is Operator.VALUE_BEFORE
        if not asks_before or self._query.at_timestamp is not None:
            return facts
        try:
            return self._context.read(
                reader,
                lambda graph: former_first(
                    FactReads(graph, recall.scope), recall, seeds.seeds, facts, decay_rate=rate
                ),
            )
        except QueryTimeout:
            return facts


def _edge_types(query: FactsQuery) -> tuple[EdgeType, ...]:
    if query.edge_types == "auto":
        return tuple(sorted(classify_graph_subgraph(query.query)))
    return tuple(dict.fromkeys(query.edge_types))


_NOT_THE_RECALL: Final = {
    "cursor",
    "max_facts",
    "timeout_ms",
    "min_position",
    "record_access",
    "max_tokens",
}
"""Fields that may differ from page to page, and change no ranking."""
