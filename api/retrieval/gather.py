"""The first half of a query: where it is asked, what it names, and what each channel finds.

Two rounds: the session's last events together with the people that the query names, and then all
channels side by side. What fails or is too slow is left out, and noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from api.dependencies import Deadline, Services
from api.query_schemas import SubgraphQuery
from api.retrieval.channels import Outcome, Work, run_side_by_side
from api.retrieval.entity_seeds import Seed, name_terms
from api.retrieval.query_terms import QueryTerms, query_terms
from api.retrieval.recall import ENTITY_PREFIX, Recall, SeedRules, seeds_of
from api.retrieval.seeds import (
    CONTEXT_SCORE,
    MAX_ENTITY_SEEDS,
    MAX_SEEDS,
    fused_ranks,
    joined_seeds,
    most_important,
)
from api.retrieval.traverse import Bound
from api.schemas import Channel
from enrichment.derived import EntityType
from enrichment.entities import canonical_name, entity_id
from pipelines.graph.reader import GraphRead, GraphReader
from pipelines.graph.reads.channels import (
    Hit,
    SessionEvent,
    session_and_agents,
    session_user,
    text_hits,
    vector_hits,
)
from pipelines.graph.reads.facts import FactReads
from pipelines.graph.reads.scope import Scope, wire_id
from pipelines.observe import metrics
from projections.errors import GraphUnavailable, QueryTimeout
from projections.positions import Position
from projections.schema import ENTITY

CHANNEL_HITS: Final = 100
"""Events of a channel; a ranking is made of them, of their neighbours, of what the walk meets."""
CHANNEL_SHARE: Final = 0.4
"""Of the time that is left: a channel may take so much, and the rest is for what comes after."""
MAX_NAMES: Final = 200
"""Runs of words of a query that may be somebody's name."""


class Context(NamedTuple):
    """Where and about what is asked: the session's last events, the terms, the scope."""

    events: list[SessionEvent]
    terms: QueryTerms
    scope: Scope


class Gathered(NamedTuple):
    """What the channels found, each the best first; `vector` is the query's, None without one."""

    text: list[Hit]
    near: list[Hit]
    entities: list[Seed]
    vector: list[float] | None


@dataclass(slots=True)
class Notes:
    """How an answer came about.

    Attributes:
        outcomes: of the channels; the value is what they found.
        cut_by: bounds beyond which there is more.
        degraded: what had to be left out, in words.
    """

    outcomes: dict[Channel, Outcome] = field(default_factory=dict)
    cut_by: set[Bound] = field(default_factory=set)
    degraded: list[str] = field(default_factory=list)

    def take(self, channel: Channel, outcome: Outcome) -> None:
        """Note how a channel did."""
        self.outcomes[channel] = outcome
        if outcome.status != "ok":
            metrics.CHANNEL_FAILURES.labels(channel=channel).inc()
            self.degraded.append(f"the channel {channel}: {outcome.status}")


class Gathering:
    """One query's.

    Args:
        services: graph, embedder, threads, settings.
        tenant: whose memory.
        asked: the query.
        deadline: of the request.
        now_ms: the clock for facts that hold.
    """

    def __init__(
        self,
        services: Services,
        tenant: str,
        asked: SubgraphQuery,
        deadline: Deadline,
        now_ms: int,
    ) -> None:
        self._services = services
        self._settings = services.settings
        self._tenant = tenant
        self._asked = asked
        self._deadline = deadline
        self._now_ms = now_ms

    def context(self, reader: GraphReader, notes: Notes) -> Context:
        """The session's last events, and the terms of the query: whom it names says the graph."""
        asked = self._asked
        names = name_terms(asked.query).names[:MAX_NAMES]
        work: dict[str, Work] = {
            "context": lambda ms: reader.read(
                lambda graph: session_and_agents(graph, self._tenant, asked.session_id, names),
                timeout_ms=ms,
            )
        }
        (outcome,) = self._run(work).values()
        events, agents = outcome.value or ([], [])
        notes.take("context", outcome._replace(value=events))
        terms = query_terms(asked.query, agents, now_ms=self._now_ms)
        return Context(events, terms, self.scope(events))

    def scope(self, events: Sequence[SessionEvent]) -> Scope:
        """Whose memory: the named user's, else that of the session's events, newest first."""
        user_id = self._asked.user_id
        if user_id is None:
            user_id = session_user(events)
        position = self._asked.as_of_position
        until = None if position is None else Position.parse(position)
        return Scope(self._tenant, user_id, self._now_ms, until)

    def channels(self, reader: GraphReader, notes: Notes, context: Context) -> Gathered:
        """What each channel found.

        Raises:
            QueryTimeout: none answered in time.
            GraphUnavailable: Neo4j is away.
        """
        scope, words = context.scope, context.terms.words
        outcomes = self._run(
            {
                "text": lambda ms: reader.read(
                    lambda graph: text_hits(graph, scope, words, CHANNEL_HITS), timeout_ms=ms
                ),
                "entity": lambda ms: reader.read(
                    lambda graph: self._entities(graph, scope), timeout_ms=ms
                ),
                "vector": lambda ms: self._near(reader, context, ms),
            }
        )
        vector, near = outcomes["vector"].value or (None, [])
        if outcomes["vector"].status == "ok" and vector is None:
            outcomes["vector"] = outcomes["vector"]._replace(status="unavailable")
            notes.degraded.append("the query could not be embedded: keywords alone answer")
        notes.take("text", outcomes["text"])
        notes.take("entity", outcomes["entity"])
        notes.take("vector", outcomes["vector"]._replace(value=near))
        self._check([outcomes["text"], outcomes["entity"], outcomes["vector"]])
        return Gathered(outcomes["text"].value or [], near, outcomes["entity"].value or [], vector)

    def seeds(self, gathered: Gathered, context: Context) -> dict[str, float]:
        """Wire ids with scores from 0 to 1, the best first."""
        entities = {
            wire_id(ENTITY.label, one.entity_id): min(1.0, one.score)
            for one in gathered.entities[:MAX_ENTITY_SEEDS]
        }
        if self._asked.seed_nodes is not None:
            others = [one for one in self._asked.seed_nodes if not one.startswith(ENTITY_PREFIX)]
            return dict.fromkeys([*(one.lower() for one in others), *entities], 1.0)
        ranked = fused_ranks([hit.event_id for hit in hits] for hits in gathered[:2])
        events = dict(list(ranked.items())[:MAX_SEEDS])
        return joined_seeds(entities, events, self._context_seeds(context))

    def _run(self, work: Mapping[str, Work]) -> dict[str, Outcome]:
        return run_side_by_side(self._services.channels, work, self._channel_ms())

    def _channel_ms(self) -> int:
        share_ms = round(self._deadline.remaining_ms() * CHANNEL_SHARE)
        return max(1, min(self._settings.channel_timeout_ms, share_ms))

    def _near(
        self, reader: GraphReader, context: Context, timeout_ms: int
    ) -> tuple[list[float], list[Hit]] | None:
        """The vector of the query and the events near to it; None: it could not be embedded."""
        own = Deadline(timeout_ms)
        text = context.terms.embedding_text
        vector = self._services.embedder.embed(text, timeout_ms=timeout_ms)
        if vector is None:
            return None
        filtered = reader.searches_within_tenant(timeout_ms=own.remaining_ms())

        def ask(graph: GraphRead) -> list[Hit]:
            return vector_hits(graph, context.scope, vector, CHANNEL_HITS, filtered=filtered)

        return vector, reader.read(ask, timeout_ms=own.remaining_ms())

    def _check(self, outcomes: Sequence[Outcome]) -> None:
        statuses = [outcome.status for outcome in outcomes]
        if "ok" in statuses:
            return
        if "timeout" in statuses:
            raise QueryTimeout(timeout_ms=self._asked.timeout_ms, reason="no channel answered")
        raise GraphUnavailable(reason="no channel answered")

    def _entities(self, graph: GraphRead, scope: Scope) -> list[Seed]:
        """The entities that the query names, or that the caller does."""
        asked, settings = self._asked, self._settings
        given = tuple(one for one in asked.seed_nodes or () if one.startswith(ENTITY_PREFIX))
        if asked.seed_nodes and not given:
            return []
        now_ms = scope.now_ms
        recall = Recall(asked.query, now_ms, now_ms, 1, 1, given, (), scope.user_id)
        rules = SeedRules(settings.seed_structural_weight, settings.seed_community_cap)
        return seeds_of(FactReads(graph, self._tenant), recall, rules, self._embedded).seeds

    def _embedded(self, text: str) -> list[float] | None:
        return self._services.embedder.embed(text, timeout_ms=self._channel_ms())

    def _context_seeds(self, context: Context) -> dict[str, float]:
        """The session's user, else its agent, and the most important of its last events."""
        user_id = context.scope.user_id
        kind: EntityType = "agent" if user_id is None else "user"
        name = canonical_name(user_id or self._asked.agent_id)
        own = wire_id(ENTITY.label, entity_id(self._tenant, name, kind))
        mine = [one for one in context.events if one.user_id in (None, user_id)]
        return dict.fromkeys([own, *most_important(mine)], CONTEXT_SCORE)
