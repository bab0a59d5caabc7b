"""Recall of facts: what is known of the entities that a text names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import orjson
from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from api.answer_cache import keep_answer, known_answer
from api.answers import JsonResponse
from api.bodies import body_of, documented_body
from api.dependencies import Caller, Deadline, Reader, Services, ServicesOf, no_query
from api.errors import problem_responses
from api.fact_answers import facts_narrative, facts_response
from api.fact_schemas import FactsQuery, FactsResponse, RecallMode
from api.markdown import MarkdownResponse, also_markdown, wants_markdown
from api.read_your_writes import begin_read
from api.retrieval.activation import activation_config
from api.retrieval.fact_pages import cursor_of, page_of, ranked_fact, read_page
from api.retrieval.facts import FactWalk, RecalledFact, recalled
from api.retrieval.narrative import MAX_ANCHORS, MAX_HOPS
from api.retrieval.recall import (
    ENTITY_PREFIX,
    MAX_RANKING,
    Found,
    Recall,
    SeedRules,
    by_activation,
    seeds_of,
)
from api.retrieval.traverse import Bound
from api.routes.context import READ_PROBLEMS, clock_ms
from pipelines.graph.reader import GraphRead, GraphReader
from pipelines.graph.reads.channels import session_events, session_user
from pipelines.graph.reads.facts import FactReads
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable, InvalidInput, QueryTimeout
from projections.events import timestamp_ms
from projections.positions import Position

router = APIRouter(prefix="/v1/query", tags=["memory"], dependencies=[Depends(no_query)])


@router.post(
    "/facts",
    response_model=FactsResponse,
    responses={
        **also_markdown("The facts; as Markdown, their narrative"),
        **problem_responses(
            *READ_PROBLEMS, "malformed-json", "body-too-large", "unsupported-media-type"
        ),
    },
    openapi_extra=documented_body(FactsQuery),
)
async def recall_facts(
    caller: Reader,
    services: ServicesOf,
    asked: Annotated[FactsQuery, Depends(body_of(FactsQuery))],
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Facts about the entities that the query names, and about what they are connected with.

    `Accept: text/markdown` gives their narrative within `max_tokens`: the three best seeds, two
    levels around them, at most 10 facts an entity and 30 in all.
    """
    deadline = await begin_read(services, asked.timeout_ms, asked.min_position)
    as_text = wants_markdown(accept)
    recalling = _Recalling(services, caller, asked, deadline, as_text=as_text)
    answer = await services.read(recalling.answer, timeout_ms=deadline.remaining_ms())
    recalling.record(answer)
    if as_text:
        return MarkdownResponse(recalling.narrative(answer))
    return JsonResponse(recalling.response(answer))


class _Answer(NamedTuple):
    """What was recalled, and how; never changed, for it may be given again.

    Attributes:
        facts: of the page.
        more: there are facts behind them.
        next_cursor: of the page behind this one.
        complete: nothing was left out for want of time or of the embedder.
    """

    recall: Recall
    found: Found
    facts: Sequence[RecalledFact]
    cut_by: frozenset[Bound] = frozenset()
    more: bool = False
    next_cursor: str | None = None
    timed_out: bool = False
    complete: bool = True


class _Recalling:
    """One recall, on a thread of its own: from the cache, or the next page, or found anew."""

    def __init__(
        self,
        services: Services,
        caller: Caller,
        asked: FactsQuery,
        deadline: Deadline,
        *,
        as_text: bool,
    ) -> None:
        self._services = services
        self._tenant = caller.tenant
        self._asked = asked
        self._deadline = deadline
        self._settings: Settings = services.settings
        chosen: RecallMode = "activation" if self._settings.spreading_activation else "bfs"
        self._mode: RecallMode = asked.mode or chosen
        self._as_text = as_text
        self._cached = False
        self._embedder_was_away = False
        fields = asked.model_dump(exclude=_NOT_THE_QUESTION)
        self._question = ["facts", caller.tenant, as_text, fields]

    def answer(self) -> _Answer:
        """What is recalled; called on a thread of its own.

        Raises:
            InvalidInput: the cursor is none, or of another question.
        """
        key = orjson.dumps([self._question, self._asked.max_facts, self._asked.cursor])
        if self._asked.min_position is None:  # nobody who waits for a position gets what was before
            known = known_answer(self._services, self._tenant, key, _Answer)
            if known is not None:
                self._cached = True
                return known
        projected = self._services.watch.projected()
        with self._services.connections.graph.reader() as reader:
            cursor = self._asked.cursor
            answer = self._first(reader) if cursor is None else self._page(reader, cursor)
            if answer.complete:
                self._keep(reader, key, answer, projected)
        return answer

    def _first(self, reader: GraphReader) -> _Answer:
        recall = self._recall(reader, clock_ms(self._asked.as_of))
        found = self._found(reader, recall)
        walk = FactWalk(recall.wanted, recall.max_depth, self._query_vector(found))
        ranked, timed_out = self._facts(reader, recall, found, walk)
        facts, rest = ranked[: recall.max_facts], ranked[recall.max_facts :]
        return _Answer(
            recall,
            found,
            facts,
            frozenset(walk.cut_by),
            more=bool(rest) or len(ranked) == MAX_RANKING,
            next_cursor=cursor_of(self._question, map(ranked_fact, rest), recall.now_ms),
            timed_out=timed_out,
            complete=not (timed_out or Bound.TIME in walk.cut_by or self._embedder_was_away),
        )

    def _page(self, reader: GraphReader, cursor: str) -> _Answer:
        """The next page of a ranking that was made before; in scope as if it were made now."""
        if self._as_text:
            raise InvalidInput((("cursor", "none: a narrative has no pages"),))
        ranked, now_ms = page_of(self._question, cursor)
        recall = self._recall(reader, now_ms)
        walk = FactWalk(recall.wanted, recall.max_depth)
        page, rest = ranked[: recall.max_facts], ranked[recall.max_facts :]
        facts = reader.read(
            lambda graph: read_page(FactReads(graph, self._tenant), walk, page, recall.user_id),
            timeout_ms=self._deadline.remaining_ms(),
        )
        next_cursor = cursor_of(self._question, rest, now_ms)
        return _Answer(recall, Found([], "none"), facts, more=bool(rest), next_cursor=next_cursor)

    def _keep(
        self,
        reader: GraphReader,
        key: bytes,
        answer: _Answer,
        projected: Mapping[int, Position] | None,
    ) -> None:
        """For the next minute, unless a session goes on from which one of the facts is known."""
        if not self._settings.result_cache_s:
            return
        events = {event_id for fact in answer.facts for event_id in fact.sources}
        try:
            sessions = reader.read(
                lambda graph: FactReads(graph, self._tenant).sessions(events),
                timeout_ms=self._deadline.remaining_ms(),
            )
        except (QueryTimeout, GraphUnavailable):
            return  # what was found is answered all the same
        keep_answer(
            self._services,
            self._tenant,
            key,
            answer,
            size=lambda: len(self.response(answer).model_dump_json()),
            sessions=[self._asked.session_id, *sessions],
            projected=projected,
        )

    def response(self, answer: _Answer) -> FactsResponse:
        """As JSON has it."""
        return facts_response(
            answer.recall,
            answer.found,
            answer.facts,
            mode=self._mode,
            cut_by=answer.cut_by,
            timed_out=answer.timed_out,
            query_ms=self._deadline.elapsed_ms(),
            more=answer.more,
            next_cursor=answer.next_cursor,
            cached=self._cached,
        )

    def record(self, answer: _Answer) -> None:
        """What was shown counts as retrieved, unless it was asked as of another time."""
        asked = self._asked
        past = asked.as_of is not None or asked.at_timestamp is not None
        if asked.record_access and self._settings.record_accesses and not past:
            self._services.accesses.record(
                self._tenant,
                [ENTITY_PREFIX + seed.entity_id for seed in answer.found.seeds],
                [fact.key for fact in answer.facts],
            )

    def narrative(self, answer: _Answer) -> str:
        """As text."""
        max_tokens = self._asked.max_tokens
        return facts_narrative(answer.recall, answer.found, answer.facts, max_tokens)

    def _recall(self, reader: GraphReader, now_ms: int) -> Recall:
        asked = self._asked
        user_id = asked.user_id
        if user_id is None and asked.session_id is not None:
            session_id = asked.session_id
            user_id = reader.read(
                lambda graph: session_user(session_events(graph, self._tenant, session_id)),
                timeout_ms=self._deadline.remaining_ms(),
            )
        return Recall(
            asked.query,
            now_ms if asked.at_timestamp is None else timestamp_ms(asked.at_timestamp),
            now_ms,
            MAX_HOPS if self._as_text else asked.max_depth or self._settings.max_hops,
            MAX_RANKING if self._as_text else asked.max_facts,
            tuple(asked.seed_nodes),
            tuple(dict.fromkeys(asked.edge_types)),
            user_id,
        )

    def _found(self, reader: GraphReader, recall: Recall) -> Found:
        rules = SeedRules(self._settings.seed_structural_weight, self._settings.seed_community_cap)
        found = reader.read(
            lambda graph: seeds_of(FactReads(graph, self._tenant), recall, rules, self._embedded),
            timeout_ms=self._deadline.remaining_ms(),
        )
        return found._replace(seeds=found.seeds[:MAX_ANCHORS]) if self._as_text else found

    def _embedded(self, text: str) -> Sequence[float] | None:
        limit_ms = round(self._settings.query_embedding_timeout_s * 1000)
        # half of what is left: without a vector there is still an answer to give
        timeout_ms = min(limit_ms, self._deadline.remaining_ms() // 2 + 1)
        vector = self._services.embedder.embed(text, timeout_ms=timeout_ms)
        self._embedder_was_away |= vector is None
        return vector

    def _query_vector(self, found: Found) -> Sequence[float] | None:
        """PRISM's; without one the confidence alone decides, and nobody is told (S2)."""
        wanted = self._asked.query_sensitive_cost
        if wanted is None:
            wanted = self._settings.query_sensitive_cost
        return self._embedded(self._asked.query) if wanted and found.seeds else None

    def _facts(
        self, reader: GraphReader, recall: Recall, found: Found, walk: FactWalk
    ) -> tuple[list[RecalledFact], bool]:
        """The facts, and whether an activation ran out of its time."""
        limit_ms = self._deadline.remaining_ms()
        if self._mode == "bfs":
            return self._walked(reader, recall, found, walk, limit_ms), False

        def spread(graph: GraphRead) -> list[RecalledFact]:
            reads = FactReads(graph, self._tenant)
            config = activation_config(self._settings, recall.max_depth)
            return by_activation(reads, recall, found.seeds, walk, config)

        try:
            limit_ms = min(limit_ms, self._settings.activation_timeout_ms)
            return reader.read(spread, timeout_ms=limit_ms), False
        except QueryTimeout:
            return [], True

    def _walked(
        self, reader: GraphReader, recall: Recall, found: Found, walk: FactWalk, timeout_ms: int
    ) -> list[RecalledFact]:
        """Breadth first; out of time, what was found until then is the answer."""
        starts = [seed.entity_id for seed in found.seeds]
        try:
            reader.read(
                lambda graph: walk.walk(FactReads(graph, self._tenant), starts),
                timeout_ms=timeout_ms,
            )
        except QueryTimeout:
            if not walk.facts:
                raise
            walk.cut_by.add(Bound.TIME)
        return recalled(
            walk,
            found.seeds,
            now_ms=recall.now_ms,
            decay_rate=self._settings.temporal_decay_rate,
            limit=MAX_RANKING,
        )


_NOT_THE_QUESTION: Final = {
    "cursor",
    "max_facts",
    "timeout_ms",
    "min_position",
    "record_access",
    "max_tokens",
}
"""Fields that may differ from page to page, and change no ranking."""
