"""The first half of a query: where it is asked, what it names, and what each channel finds.

Two rounds: the session's last events together with the people that the query names, and then all
channels side by side, each with its own time. What fails or is too slow is left out, and noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy

from api.caches import PassageCache
from api.read_schemas import SubgraphQuery
from api.retrieval.channels import Notes, Outcome, Work, run_side_by_side
from api.retrieval.intent import (
    CONTEXT_SCORE,
    MAX_ENTITY_SEEDS,
    MAX_EVENT_SEEDS,
    Seed,
    fused_ranks,
    joined_seeds,
    most_important,
)
from api.retrieval.query_terms import QueryTerms, name_terms, query_terms
from api.retrieval.recall import Recall, RecallSeeds, seeds_of
from api.retrieval.relevance import Candidate, HalfVector, Passage, unit_vector
from api.services import Deadline, ReadContext
from enrichment.names import EntityType, canonical_name, entity_id
from pipelines.graph.reader import GraphRead, GraphReader
from pipelines.graph.reads.channels import (
    contents,
    session_and_agents,
    standings,
    text_hits,
    vector_hits,
)
from pipelines.graph.reads.facts import FactReads
from pipelines.graph.reads.scope import Scope
from pipelines.graph.reads.walk import nodes
from pipelines.graph.rows import ENTITY_PREFIX, Hit, Hits, SessionEvent, wire_id
from projections.errors import GraphUnavailable, QueryTimeout
from projections.schema import ENTITY

CHANNEL_HITS: Final = 100
"""Events of a channel; a ranking is made of them, of their neighbours, of what the walk meets."""
CHANNEL_SHARE: Final = 0.4
"""Of the time that is left: a channel may take so much, and the rest is for what comes after."""
_NOTHING: Final = Hits([], [])
_UNNAMED: Final = RecallSeeds([], "none")
MAX_NAMES: Final = 200
"""Runs of words of a query that may be somebody's name."""
NO_VECTOR: Final = "the query could not be embedded: keywords alone answer"


class QueryAnalysis(NamedTuple):
    """Where and about what is asked: the session's last events, the terms, the scope."""

    events: list[SessionEvent]
    terms: QueryTerms
    scope: Scope


class Gathered(NamedTuple):
    """What the channels found, each the best first; `vector` is the query's, None without one.

    Attributes:
        withheld: ids of events that they met and kept from the viewer.
    """

    text: list[Hit]
    near: list[Hit]
    entities: list[Seed]
    vector: list[float] | None
    withheld: frozenset[str]


class Gathering:
    """What one query begins with.

    Args:
        context: of the request.
        reader: of the graph that it is answered from.
    """

    def __init__(self, context: ReadContext[SubgraphQuery], reader: GraphReader) -> None:
        self._context = context
        self._reader = reader

    def analysis(self, notes: Notes) -> QueryAnalysis:
        """The session's last events, and the terms of the query: whom it names says the graph."""
        scope, query = self._context.scope, self._context.query
        names = name_terms(query.query).names[:MAX_NAMES]
        work: dict[str, Work] = {
            "context": lambda ms: self._reader.read(
                lambda graph: session_and_agents(graph, scope, query.session_id, names),
                timeout_ms=ms,
            )
        }
        (outcome,) = self._run(work).values()
        events, agents = outcome.value or ([], [])
        notes.take("context", outcome._replace(value=events))
        terms = query_terms(query.query, agents, now_ms=self._context.now_ms)
        return QueryAnalysis(events, terms, scope)

    def channels(self, notes: Notes, analysis: QueryAnalysis) -> Gathered:
        """What each channel found.

        Raises:
            QueryTimeout: none answered in time.
            GraphUnavailable: Neo4j is away.
        """
        reader, scope, words = self._reader, analysis.scope, analysis.terms.words
        outcomes = self._run(
            {
                "text": lambda ms: reader.read(
                    lambda graph: text_hits(graph, scope, words, CHANNEL_HITS), timeout_ms=ms
                ),
                "entity": lambda ms: reader.read(
                    lambda graph: self._entities(graph, scope), timeout_ms=ms
                ),
                "vector": lambda ms: self._near(analysis, ms),
            }
        )
        text, entity, vector = outcomes["text"], outcomes["entity"], outcomes["vector"]
        embedded, near = vector.value or (None, _NOTHING)
        shown: Hits = text.value or _NOTHING
        named: RecallSeeds = entity.value or _UNNAMED
        if vector.status == "ok" and embedded is None:
            vector = vector._replace(status="unavailable")
            notes.degraded.append(NO_VECTOR)
        notes.take("text", text._replace(value=shown.shown))
        notes.take("entity", entity._replace(value=named.seeds))
        notes.unknown_seeds = list(named.unknown)
        notes.take("vector", vector._replace(value=near.shown))
        self._check([text, entity, vector])
        return Gathered(
            shown.shown,
            near.shown,
            named.seeds,
            embedded,
            withheld=frozenset(shown.withheld) | frozenset(near.withheld),
        )

    def seeds(self, gathered: Gathered, analysis: QueryAnalysis) -> dict[str, float]:
        """Wire ids with scores from 0 to 1, the best first."""
        given = self._context.query.seed_nodes
        entities = {
            wire_id(ENTITY.label, seed.entity_id): min(1.0, seed.score)
            for seed in gathered.entities[:MAX_ENTITY_SEEDS]
        }
        if given is not None:
            others = (node_id for node_id in given if not node_id.startswith(ENTITY_PREFIX))
            return dict.fromkeys([*(node_id.lower() for node_id in others), *entities], 1.0)
        ranked = fused_ranks([hit.event_id for hit in hits] for hits in gathered[:2])
        events = dict(list(ranked.items())[:MAX_EVENT_SEEDS])
        return joined_seeds(entities, events, self._context_seeds(analysis))

    def _run(self, work: Mapping[str, Work]) -> dict[str, Outcome]:
        return run_side_by_side(self._context.services.channels, work, self._channel_ms())

    def _channel_ms(self) -> int:
        share_ms = round(self._context.deadline.remaining_ms() * CHANNEL_SHARE)
        return max(1, min(self._context.settings.channel_timeout_ms or share_ms, share_ms))

    def _near(self, analysis: QueryAnalysis, timeout_ms: int) -> tuple[list[float], Hits] | None:
        """The vector of the query and the events near to it; None: it could not be embedded."""
        deadline = Deadline(timeout_ms)
        text = analysis.terms.embedding_text
        vector = self._context.services.embedder.embed(text, timeout_ms=timeout_ms)
        if vector is None:
            return None
        filtered = self._reader.searches_within_tenants()

        def ask(graph: GraphRead) -> Hits:
            return vector_hits(graph, analysis.scope, vector, CHANNEL_HITS, filtered=filtered)

        return vector, self._reader.read(ask, timeout_ms=deadline.remaining_ms())

    def _check(self, outcomes: Sequence[Outcome]) -> None:
        statuses = [outcome.status for outcome in outcomes]
        if "ok" in statuses:
            return
        if "timeout" in statuses:
            timeout_ms = self._context.query.timeout_ms
            raise QueryTimeout(timeout_ms=timeout_ms, reason="no channel answered")
        raise GraphUnavailable(reason="no channel answered")

    def _entities(self, graph: GraphRead, scope: Scope) -> RecallSeeds:
        """The entities that the query names, or that the caller does."""
        query = self._context.query
        references = query.seed_nodes or []
        given = tuple(one for one in references if one.startswith(ENTITY_PREFIX))
        unknown = {*references} - {*given}
        if unknown:
            seen = nodes(graph, scope, [one.lower() for one in unknown])
            unknown = {one for one in unknown if one.lower() not in seen}
        recalled = _UNNAMED
        if given or not references:
            recall = Recall(
                query=query.query,
                scope=scope,
                at_ms=scope.now_ms,
                now_ms=scope.now_ms,
                max_depth=1,
                max_facts=1,
                given=given,
            )
            reads, rules = FactReads(graph, scope), self._context.seed_rules()
            recalled = seeds_of(reads, recall, rules, self._embedded)
            unknown |= {*recalled.unknown}
        return recalled._replace(unknown=tuple(one for one in references if one in unknown))

    def _embedded(self, text: str) -> list[float] | None:
        return self._context.services.embedder.embed(text, timeout_ms=self._channel_ms())

    def _context_seeds(self, analysis: QueryAnalysis) -> dict[str, float]:
        """The session's user, else its agent, and the most important of its last events."""
        user_id = analysis.scope.user_id
        kind: EntityType = "agent" if user_id is None else "user"
        name = canonical_name(user_id or self._context.query.agent_id)
        person = wire_id(ENTITY.label, entity_id(self._context.tenant, name, kind))
        return dict.fromkeys([person, *most_important(analysis.events)], CONTEXT_SCORE)


class Candidates:
    """The candidates of one query.

    Args:
        reader: of the graph.
        scope: whose memory.
        cache: of passages.
        vector: of the question; None: it has none.
    """

    def __init__(
        self, reader: GraphReader, scope: Scope, cache: PassageCache, vector: Sequence[float] | None
    ) -> None:
        self._reader = reader
        self._scope = scope
        self._cache = cache
        self._vector = None if vector is None else unit_vector(vector)

    def read(
        self, *, around: Sequence[str], ids: Sequence[str], timeout_ms: int
    ) -> list[Candidate]:
        """The events that are in scope, in no order.

        Args:
            around: these, and a few events before and after each in its session.
            ids: these alone.
            timeout_ms: for all of it.

        Raises:
            QueryTimeout: the time was over.
            GraphUnavailable: Neo4j is away.
        """

        def ask(graph: GraphRead) -> list[Candidate]:
            rows = standings(graph, self._scope, around=around, ids=ids)
            passages = self._passages(graph, [row.event_id for row in rows])
            rows = [row for row in rows if row.event_id in passages]
            cosines = self._cosines([passages[row.event_id] for row in rows])
            return [
                Candidate(
                    passages[row.event_id],
                    previous_id=row.previous_id,
                    cosine=cosine,
                    importance=row.importance,
                    access_count=row.access_count,
                    accessed_at_ms=row.accessed_at_ms,
                )
                for row, cosine in zip(rows, cosines, strict=True)
            ]

        return self._reader.read(ask, timeout_ms=timeout_ms)

    def _passages(self, graph: GraphRead, event_ids: Sequence[str]) -> Mapping[str, Passage]:
        """Of the events, as far as they are there still."""
        tenant = self._scope.tenant
        passages = self._cache.get(self._reader, tenant, event_ids)
        missing = [event_id for event_id in event_ids if event_id not in passages]
        if missing:
            rows = contents(graph, self._scope, missing)
            read = {row.event_id: Passage.of(row) for row in rows}
            # What has no text yet is about to be enriched.
            enriched = [read[row.event_id] for row in rows if row.text is not None]
            self._cache.put(self._reader, tenant, enriched)
            passages |= read
        return passages

    def _cosines(self, passages: Sequence[Passage]) -> list[float | None]:
        """With the question's vector; None: one of the two has none, or of another length."""
        wanted = self._vector
        cosines: list[float | None] = [None] * len(passages)
        if wanted is None:
            return cosines
        places: list[int] = []
        rows: list[HalfVector] = []
        for place, passage in enumerate(passages):
            if passage.vector is not None and passage.vector.shape == wanted.shape:
                places.append(place)
                rows.append(passage.vector)
        if rows:
            values = numpy.stack(rows).astype(numpy.float32) @ wanted
            for place, value in zip(places, values.tolist(), strict=True):
                cosines[place] = value
        return cosines
