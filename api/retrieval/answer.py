"""A subgraph query from the question to a ranking: understand, seeds, walk, rank, read.

Read `Retrieval.answer` first. Each step has a part of the time; what fails or is too slow is left
out and named, and only when nothing at all could be found in time is there no answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from api.dependencies import Deadline, Services
from api.retrieval.activation import ActivationConfig
from api.retrieval.channels import Outcome, run_side_by_side
from api.retrieval.entity_seeds import Seed
from api.retrieval.intent import Intent, inferred_intents, traversed_intents
from api.retrieval.rank import Weights
from api.retrieval.ranking import (
    MAX_CANDIDATES,
    MAX_WITH_NEIGHBOURS,
    Pool,
    Ranked,
    ranking,
    ranking_without_rows,
)
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
from api.retrieval.walk import Walk
from api.schemas import Channel, RetrievalMethod, SubgraphQuery
from enrichment.enriched import EntityType
from enrichment.entities import canonical_name, entity_id
from pipelines import telemetry
from pipelines.adapters.fact_reads import FactReads
from pipelines.adapters.fulltext import words_of
from pipelines.adapters.graph_reader import GraphEdge, GraphNode, GraphRead, GraphReader
from pipelines.adapters.retrieval_reads import (
    CandidateRow,
    Scope,
    SessionEvent,
    candidates,
    edges_between,
    nodes,
    session_events,
    text_hits,
    vector_hits,
    wire_id,
)
from projections.errors import GraphUnavailable, QueryTimeout
from projections.positions import Position
from projections.schema import ENTITY

CHANNEL_HITS: Final = 200
"""Events that a channel is asked for; a ranking is made of them and of what the walk meets."""
WALK_SHARE: Final = 0.4
"""Of the time that is left when the seeds are known."""
RANK_SHARE: Final = 0.6
"""Of the time that is left then; the rest is for reading what is shown."""


@dataclass(slots=True)
class Found:
    """The ranking of a query, and how it came about.

    Attributes:
        ranking: the best first.
        nodes: those of the page, by id.
        edges: between them.
        cut_by: bounds beyond which there is more.
        degraded: what had to be left out, in words.
    """

    intents: Mapping[Intent, float]
    inferred: Mapping[Intent, float]
    weights: Weights
    method: RetrievalMethod
    ranking: list[Ranked] = field(default_factory=list)
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    edges: list[GraphEdge] = field(default_factory=list)
    seeds: list[str] = field(default_factory=list)
    outcomes: dict[Channel, Outcome] = field(default_factory=dict)
    cut_by: set[Bound] = field(default_factory=set)
    degraded: list[str] = field(default_factory=list)
    next_cursor: str | None = None


class Retrieval:
    """One query, answered on a thread of its own.

    Args:
        services: graph, embedder, threads, settings.
        tenant: whose memory.
        asked: the query.
        deadline: of the request.
        now_ms: the clock for recency and for facts that hold.
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

    def answer(self) -> Found:
        """The ranking, with the nodes and edges of its first page.

        Raises:
            QueryTimeout: nothing could be answered in time.
            GraphUnavailable: Neo4j is away.
        """
        found = self._understood()
        with self._services.connections.graph.reader() as reader:
            with _timed("seeds"):
                context, vector = self._context_and_vector(reader, found)
                scope = self._scope(context)
                channels = self._channels(reader, found, scope, vector)
                seeds = self._seeds(found, scope, context, channels)
            with _timed("walk"):
                walk, graph_scores = self._walked(reader, found, scope, seeds)
            with _timed("rank"):
                pool = Pool(
                    {hit.event_id: hit for hit in channels.get("text", ())},
                    {hit.event_id: hit for hit in channels.get("vector", ())},
                    graph_scores,
                    walk.depths,
                )
                self._rank(reader, found, scope, pool, vector)
            with _timed("read"):
                self._read(reader, found, scope)
        return found

    # -- understand --------------------------------------------------------------------------------

    def _understood(self) -> Found:
        asked = self._asked
        with _timed("understand"):
            inferred = inferred_intents(asked.query)
            weights = asked.scoring_weights
            chosen = (
                Weights(
                    self._settings.recency_weight,
                    self._settings.importance_weight,
                    self._settings.relevance_weight,
                )
                if weights is None
                else Weights(weights.recency, weights.importance, weights.relevance)
            )
            intents = traversed_intents(inferred, asked.intent)
        return Found(intents, inferred, chosen, asked.retrieval_method)

    def _scope(self, context: Sequence[SessionEvent]) -> Scope:
        """Whose memory: the named user's, else that of the session's events."""
        user_id = self._asked.user_id
        if user_id is None:
            user_id = next((one.user_id for one in context if one.user_id is not None), None)
        position = self._asked.as_of_position
        until = None if position is None else Position.parse(position)
        return Scope(self._tenant, user_id, self._now_ms, until)

    # -- seeds -------------------------------------------------------------------------------------

    def _channel_ms(self) -> int:
        return min(self._settings.channel_timeout_ms, self._deadline.remaining_ms())

    def _context_and_vector(
        self, reader: GraphReader, found: Found
    ) -> tuple[list[SessionEvent], list[float] | None]:
        """The session's last events and the query's vector, side by side."""
        asked = self._asked
        outcomes = run_side_by_side(
            self._services.channels,
            {
                "context": lambda ms: reader.read(
                    lambda graph: session_events(graph, self._tenant, asked.session_id),
                    timeout_ms=ms,
                ),
                "vector": lambda ms: self._services.embedder.embed(asked.query, timeout_ms=ms),
            },
            self._channel_ms(),
        )
        found.outcomes["context"] = outcomes["context"]
        vector = outcomes["vector"].value
        if vector is None:
            found.outcomes["vector"] = outcomes["vector"]._replace(status="unavailable")
            found.degraded.append("the query could not be embedded: keywords alone answer")
        return outcomes["context"].value or [], vector

    def _channels(
        self, reader: GraphReader, found: Found, scope: Scope, vector: list[float] | None
    ) -> dict[str, Any]:
        """What each channel found: events by text, events by vector, entities by name."""
        asked = self._asked
        words = words_of(asked.query)

        def ask(work: Callable[[GraphRead], Any]) -> Callable[[int], Any]:
            return lambda ms: reader.read(work, timeout_ms=ms)

        work: dict[str, Callable[[int], Any]] = {
            "text": ask(lambda graph: text_hits(graph, scope, words, CHANNEL_HITS)),
            "entity": ask(lambda graph: self._entities(graph, scope, vector)),
        }
        if vector is not None:
            work["vector"] = ask(
                lambda graph: vector_hits(graph, scope, vector, CHANNEL_HITS, filtered=True)
            )
        outcomes = run_side_by_side(self._services.channels, work, self._channel_ms())
        for name, outcome in outcomes.items():
            channel: Channel = _CHANNELS[name]
            found.outcomes[channel] = outcome
            if outcome.status != "ok":
                telemetry.CHANNEL_FAILURES.labels(channel=name).inc()
                found.degraded.append(f"the channel {name}: {outcome.status}")
        self._fail_if_nothing(found, outcomes)
        return {name: outcome.value or [] for name, outcome in outcomes.items()}

    def _fail_if_nothing(self, found: Found, outcomes: Mapping[str, Outcome]) -> None:
        statuses = {outcome.status for outcome in outcomes.values()}
        if "ok" in statuses:
            return
        if statuses == {"timeout"}:
            raise QueryTimeout(timeout_ms=self._asked.timeout_ms, reason="no channel answered")
        raise GraphUnavailable(reason="no channel answered")

    def _entities(
        self, graph: GraphRead, scope: Scope, vector: Sequence[float] | None
    ) -> list[Seed]:
        """The entities that the query names, or that the caller does."""
        given = tuple(one for one in self._asked.seed_nodes or () if one.startswith(ENTITY_PREFIX))
        if self._asked.seed_nodes and not given:
            return []
        recall = Recall(
            self._asked.query, scope.now_ms, scope.now_ms, 1, 1, given, (), scope.user_id
        )
        rules = SeedRules(self._settings.seed_structural_weight, self._settings.seed_community_cap)
        return seeds_of(FactReads(graph, self._tenant), recall, rules, lambda _: vector).seeds

    def _seeds(
        self,
        found: Found,
        scope: Scope,
        context: Sequence[SessionEvent],
        channels: Mapping[str, Any],
    ) -> dict[str, float]:
        """Wire ids with scores from 0 to 1, the best first."""
        entities = {
            wire_id(ENTITY.label, one.entity_id): min(1.0, one.score)
            for one in channels["entity"][:MAX_ENTITY_SEEDS]
        }
        if self._asked.seed_nodes is not None:
            others = [one for one in self._asked.seed_nodes if not one.startswith(ENTITY_PREFIX)]
            seeds = joined_seeds(
                dict.fromkeys((one.lower() for one in others), 1.0), dict.fromkeys(entities, 1.0)
            )
            found.seeds = list(self._asked.seed_nodes)
            return seeds
        ranked = fused_ranks(
            [hit.event_id for hit in channels.get(name, ())] for name in ("text", "vector")
        )
        events = dict(list(ranked.items())[:MAX_SEEDS])
        seeds = joined_seeds(entities, events, self._context_seeds(scope, context))
        found.seeds = list(seeds)
        return seeds

    def _context_seeds(self, scope: Scope, context: Sequence[SessionEvent]) -> dict[str, float]:
        """The session's user, else its agent, and the most important of its last events."""
        kind: EntityType = "agent" if scope.user_id is None else "user"
        name = canonical_name(scope.user_id or self._asked.agent_id)
        own = wire_id(ENTITY.label, entity_id(self._tenant, name, kind))
        mine = [one for one in context if one.user_id in (None, scope.user_id)]
        return dict.fromkeys([own, *most_important(mine)], CONTEXT_SCORE)

    # -- walk --------------------------------------------------------------------------------------

    def _walked(
        self, reader: GraphReader, found: Found, scope: Scope, seeds: Mapping[str, float]
    ) -> tuple[Walk, dict[str, float]]:
        """The walk, and what its paths are worth, by wire id."""
        walk = Walk(scope, found.intents, seeds, self._asked.max_depth)
        remaining_ms = self._deadline.remaining_ms()
        began_s = time.monotonic()
        if found.method == "activation":
            limit_ms = min(self._settings.activation_timeout_ms, remaining_ms)
            try:
                scores = reader.read(
                    lambda graph: walk.activate(graph, self._activation_config()),
                    timeout_ms=limit_ms,
                )
            except QueryTimeout:
                found.method = "intent_weighted"
                found.degraded.append(f"activation took more than {limit_ms} ms: intents instead")
            else:
                found.outcomes["graph"] = _walk_outcome(walk, began_s)
                return walk, scores
        limit_ms = max(1, round(self._deadline.remaining_ms() * WALK_SHARE))
        try:
            reader.read(walk.walk, timeout_ms=limit_ms)
        except QueryTimeout:
            found.cut_by.add(Bound.TIME)
            found.degraded.append("the walk was ended by its time")
        except GraphUnavailable:
            found.degraded.append("the walk was ended by the database")
        found.outcomes["graph"] = _walk_outcome(walk, began_s)
        return walk, walk.pagerank() if found.method == "ppr" else walk.scores()

    def _activation_config(self) -> ActivationConfig:
        settings = self._settings
        return ActivationConfig(
            decay_lambda=settings.decay_lambda,
            max_hops=min(settings.max_hops, self._asked.max_depth),
            activation_threshold=settings.activation_threshold,
            inhibition_threshold=settings.inhibition_threshold,
            max_activated_nodes=settings.max_activated_nodes,
            temporal_decay_rate=settings.temporal_decay_rate,
        )

    # -- rank --------------------------------------------------------------------------------------

    def _rank(
        self,
        reader: GraphReader,
        found: Found,
        scope: Scope,
        pool: Pool,
        vector: Sequence[float] | None,
    ) -> None:
        """The ranking; in want of time, by what the channels say alone."""
        events = pool.events()[:MAX_CANDIDATES]

        def ask(graph: GraphRead) -> list[CandidateRow]:
            near, others = events[:MAX_WITH_NEIGHBOURS], events[MAX_WITH_NEIGHBOURS:]
            return candidates(graph, scope, around=near, ids=others, vector=vector)

        try:
            limit_ms = max(1, round(self._deadline.remaining_ms() * RANK_SHARE))
            rows = reader.read(ask, timeout_ms=limit_ms)
        except QueryTimeout:
            found.cut_by.add(Bound.TIME)
            found.degraded.append("the candidates could not be compared in time: ranks alone")
            found.ranking = ranking_without_rows(pool, found.weights)
        else:
            found.ranking = ranking(pool, rows, found.weights, self._now_ms)

    # -- read --------------------------------------------------------------------------------------

    def _read(self, reader: GraphReader, found: Found, scope: Scope) -> None:
        """The nodes of the page and the edges between them."""
        page: list[Ranked] = []
        # An entity that is only a seed may not be there: some more are read than are shown.
        wanted = [one.node_id for one in found.ranking[: self._asked.max_nodes + 8]]

        def ask(graph: GraphRead) -> None:
            found.nodes = nodes(graph, scope, wanted)
            kept = [one for one in found.ranking if one.node_id in found.nodes]
            page[:] = kept[: self._asked.max_nodes]
            found.edges = edges_between(graph, scope, [one.node_id for one in page])

        reader.read(ask, timeout_ms=self._deadline.remaining_ms())
        if len(found.ranking) > len(page) and len(page) == self._asked.max_nodes:
            found.cut_by.add(Bound.NODES)
        found.ranking = page


_CHANNELS: Final[Mapping[str, Channel]] = {"text": "text", "vector": "vector", "entity": "entity"}


def _walk_outcome(walk: Walk, began_s: float) -> Outcome:
    ms = round((time.monotonic() - began_s) * 1000)
    return Outcome(walk.depths, "ok" if walk.complete else "timeout", ms)


@contextmanager
def _timed(step: telemetry.QueryStep) -> Iterator[None]:
    with telemetry.QUERY_STEP_DURATION.labels(step=step).time():
        yield
