"""The first half of a query: where it is asked, what it names, and what each channel finds.

Two rounds: the session's last events together with the people that the query names, and then all
channels side by side, each with its own time. What fails or is too slow is left out, and noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from api.connections import OpenGraph
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
from api.retrieval.ranking import in_turn
from api.retrieval.recall import Recall, RecallSeeds, seeds_of
from api.services import Deadline, ReadContext
from enrichment.names import EntityType, canonical_name, entity_id
from pipelines.columns.reads import SessionAsked
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
_NOBODY: Final = SessionAsked([], [])
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
        hits: ids of what text and vector found, in turn.
        withheld: ids of events that they met and kept from the viewer.
    """

    text: list[Hit]
    near: list[Hit]
    hits: list[str]
    entities: list[Seed]
    vector: list[float] | None
    withheld: frozenset[str]


class Gathering:
    """What one query begins with.

    Args:
        context: of the request.
        graph: that it is answered from.
    """

    def __init__(self, context: ReadContext[SubgraphQuery], graph: OpenGraph) -> None:
        self._context = context
        self._graph = graph

    def analysis(self, notes: Notes) -> QueryAnalysis:
        """The session's last events, and the terms of the query: whom it names say the columns.

        They are asked for what was committed before; what comes after is as new as this.
        """
        query = self._context.query
        scope = self._context.scope._replace(within=query.within())
        names = name_terms(query.query).names[:MAX_NAMES]
        columns = self._graph.columns
        work: dict[str, Work] = {
            "context": lambda ms: self._context.columns(columns, ms).session(
                query.session_id, names
            )
        }
        (outcome,) = self._run(work).values()
        session: SessionAsked = outcome.value or _NOBODY
        notes.take("context", outcome._replace(value=session.events))
        terms = query_terms(query.query, session.speaking, now_ms=self._context.now_ms)
        return QueryAnalysis(session.events, terms, scope)

    def channels(self, notes: Notes, analysis: QueryAnalysis) -> Gathered:
        """What each channel found.

        Raises:
            QueryTimeout: none answered in time.
            GraphUnavailable: nobody answers.
        """
        columns, scope, stems = self._graph.columns, analysis.scope, analysis.terms.stems
        outcomes = self._run(
            {
                "text": lambda ms: columns.reads(scope, ms).text_hits(stems, CHANNEL_HITS),
                "entity": lambda ms: self._entities(scope, ms),
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
            in_turn(shown.shown, near.shown),
            entities=named.seeds,
            vector=embedded,
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
        columns = self._graph.columns.reads(analysis.scope, deadline.remaining_ms())
        return vector, columns.vector_hits(vector, CHANNEL_HITS)

    def _check(self, outcomes: Sequence[Outcome]) -> None:
        statuses = [outcome.status for outcome in outcomes]
        if "ok" in statuses:
            return
        if "timeout" in statuses:
            timeout_ms = self._context.query.timeout_ms
            raise QueryTimeout(timeout_ms=timeout_ms, reason="no channel answered")
        raise GraphUnavailable(reason="no channel answered")

    def _entities(self, scope: Scope, timeout_ms: int) -> RecallSeeds:
        """The entities that the query names, or that the caller does."""
        query = self._context.query
        references = query.seed_nodes or []
        given = tuple(reference for reference in references if reference.startswith(ENTITY_PREFIX))
        unknown = {*references} - {*given}
        if unknown:
            given_ids = [one.lower() for one in unknown]
            seen = self._graph.reader.read(
                lambda graph: nodes(graph, scope, given_ids, {}), timeout_ms=timeout_ms
            )
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
            reads = self._graph.columns.reads(scope, timeout_ms)
            recalled = seeds_of(reads, recall, self._context.seed_rules(), self._embedded)
            unknown |= {*recalled.unknown}
        return recalled._replace(
            unknown=tuple(reference for reference in references if reference in unknown)
        )

    def _embedded(self, text: str) -> list[float] | None:
        return self._context.services.embedder.embed(text, timeout_ms=self._channel_ms())

    def _context_seeds(self, analysis: QueryAnalysis) -> dict[str, float]:
        """The session's user, else its agent, and the most important of its last events."""
        user_id = analysis.scope.user_id
        kind: EntityType = "agent" if user_id is None else "user"
        name = canonical_name(user_id or self._context.query.agent_id)
        person = wire_id(ENTITY.label, entity_id(self._context.tenant, name, kind))
        return dict.fromkeys([person, *most_important(analysis.events)], CONTEXT_SCORE)
