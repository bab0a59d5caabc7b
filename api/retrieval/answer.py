"""A subgraph query from the question to a page of nodes: understand, seeds, walk, rank, read.

Read `Retrieval.answer` first. Each step has a part of the time; what fails or is too slow is left
out and noted, and only when nothing at all could be found in time is there no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from api.dependencies import Deadline, Services
from api.query_schemas import SubgraphQuery
from api.retrieval.activation import activation_config
from api.retrieval.candidate_text import Candidate, HalfVector
from api.retrieval.candidates import Candidates
from api.retrieval.channels import Outcome, Work, run_side_by_side
from api.retrieval.diversity import diversified
from api.retrieval.gather import Context, Gathered, Gathering, Notes
from api.retrieval.intent import Intent, inferred_intents, path_intents, traversed_intents
from api.retrieval.proactive import BEST_ENTITIES, BEST_EVENTS, with_proactive
from api.retrieval.ranking import (
    MAX_CANDIDATES,
    MAX_RANKING,
    MAX_WITH_NEIGHBOURS,
    Pool,
    Ranked,
    in_turn,
    ranking,
    ranking_without_candidates,
)
from api.retrieval.traverse import Bound
from api.retrieval.walk import Walk
from api.schemas import RetrievalMethod
from consolidation.decay import DecayWeights
from consolidation.summary_payloads import summary_id
from pipelines.graph.reader import GraphEdge, GraphNode, GraphReader
from pipelines.graph.reads.channels import SessionEvent, session_events
from pipelines.graph.reads.proactive import Beside, Signalled, proactive
from pipelines.graph.reads.scope import Scope, wire_id
from pipelines.graph.reads.walk import edges_between, nodes
from pipelines.observe import metrics
from projections.errors import QueryTimeout
from projections.schema import ENTITY

WALK_SHARE: Final = 0.6
"""Of the time that is left when the seeds are known."""
RANK_SHARE: Final = 0.5
"""Of the time that is left then; the rest is for reading what is shown."""
MAX_MET: Final = 60
"""Events that the walk alone has met and that are ranked too."""


class _Walked(NamedTuple):
    """What the seeds led to; None is what could not be read in time."""

    walk: Walk
    worth: Mapping[str, float]
    candidates: list[Candidate] | None
    beside: list[Signalled] | None


@dataclass(slots=True)
class Found:
    """A page of a ranking, and how it came about.

    Attributes:
        ranking: the best first; what is shown, once it was read.
        rest: of the ranking, behind what is shown.
        nodes: those that are shown, by id.
        edges: between them.
    """

    intents: Mapping[Intent, float]
    inferred: Mapping[Intent, float]
    weights: DecayWeights
    method: RetrievalMethod
    notes: Notes = field(default_factory=Notes)
    seeds: list[str] = field(default_factory=list)
    ranking: list[Ranked] = field(default_factory=list)
    rest: list[Ranked] = field(default_factory=list)
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    edges: list[GraphEdge] = field(default_factory=list)


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
        self._graph = services.connections.graph
        self._settings = services.settings
        self._tenant = tenant
        self._asked = asked
        self._deadline = deadline
        self._now_ms = now_ms
        self._gathering = Gathering(services, tenant, asked, deadline, now_ms)

    def answer(self) -> Found:
        """The ranking, with the nodes and edges of its first page.

        Raises:
            QueryTimeout: nothing could be answered in time.
            GraphUnavailable: Neo4j is away.
        """
        found = self._understood()
        with self._graph.reader() as reader:
            with _timed("seeds"):
                context = self._gathering.context(reader, found.notes)
                gathered = self._gathering.channels(reader, found.notes, context)
                seeds = self._gathering.seeds(gathered, context)
                found.seeds = list(self._asked.seed_nodes or seeds)
            with _timed("walk"):
                walked = self._side_by_side(reader, found, context, gathered, seeds)
            with _timed("rank"):
                self._rank(reader, found, context, gathered, walked)
            with _timed("read"):
                self._read(reader, found, context.scope)
        return found

    def page(self, ranked: Sequence[Ranked]) -> Found:
        """The next page of a ranking that was made before; in scope as if it were made now."""
        found = self._understood()
        found.ranking = list(ranked)
        with self._graph.reader() as reader:
            events: list[SessionEvent] = []
            if self._asked.user_id is None:
                events = reader.read(
                    lambda graph: session_events(graph, self._tenant, self._asked.session_id),
                    timeout_ms=self._deadline.remaining_ms(),
                )
            with _timed("read"):
                self._read(reader, found, self._gathering.scope(events))
        return found

    def _understood(self) -> Found:
        asked, settings = self._asked, self._settings
        with _timed("understand"):
            inferred = inferred_intents(asked.query)
            intents = traversed_intents(inferred, asked.intent)
        given = asked.scoring_weights
        weights = (
            DecayWeights(
                settings.recency_weight, settings.importance_weight, settings.relevance_weight
            )
            if given is None
            else DecayWeights(given.recency, given.importance, given.relevance)
        )
        return Found(intents, inferred, weights, asked.retrieval_method)

    # -- walk, and what else needs the seeds alone -------------------------------------------------

    def _side_by_side(
        self,
        reader: GraphReader,
        found: Found,
        context: Context,
        gathered: Gathered,
        seeds: Mapping[str, float],
    ) -> _Walked:
        """The walk, what the channels' events say, and what nobody asked for: all at once."""
        walk = Walk(context.scope, found.intents, seeds, self._asked.max_depth)
        hits = in_turn(gathered.text, gathered.near)[:MAX_CANDIDATES]
        near, others = hits[:MAX_WITH_NEIGHBOURS], hits[MAX_WITH_NEIGHBOURS:]

        candidates = self._candidates(reader, context, gathered)
        work: dict[str, Work] = {
            "graph": lambda ms: self._walked(reader, found, walk, ms),
            "candidates": lambda ms: candidates.read(around=near, ids=others, timeout_ms=ms),
        }
        if self._asked.proactive:
            work["beside"] = lambda ms: self._beside(reader, context, gathered, hits, ms)
        limit_ms = max(1, round(self._deadline.remaining_ms() * WALK_SHARE))
        outcomes = run_side_by_side(self._services.channels, work, limit_ms)
        walked = _Walked(
            walk,
            outcomes["graph"].value or walk.scores(),
            outcomes["candidates"].value,
            outcomes["beside"].value if "beside" in outcomes else None,
        )
        self._note(found.notes, outcomes, walked)
        return walked

    def _note(self, notes: Notes, outcomes: Mapping[str, Outcome], walked: _Walked) -> None:
        notes.take("graph", outcomes["graph"]._replace(value=dict(walked.walk.depths)))
        if outcomes["graph"].status == "timeout" or outcomes["candidates"].status == "timeout":
            notes.cut_by.add(Bound.TIME)
        if walked.candidates is None:
            notes.degraded.append("candidates could not be compared: ranks in the channels alone")
        if self._asked.proactive:
            notes.take("proactive", outcomes["beside"])

    def _walked(
        self, reader: GraphReader, found: Found, walk: Walk, timeout_ms: int
    ) -> dict[str, float]:
        """What the paths from the seeds are worth, by wire id.

        Raises:
            QueryTimeout: the time was over; the walk has what was found until then.
        """
        own = Deadline(timeout_ms)
        worth = None
        if found.method == "activation":
            worth = self._activated(reader, found, walk, timeout_ms)
        if worth is None:
            reader.read(walk.walk, timeout_ms=own.remaining_ms())
            worth = walk.pagerank() if found.method == "ppr" else walk.scores()
        return worth

    def _activated(
        self, reader: GraphReader, found: Found, walk: Walk, timeout_ms: int
    ) -> dict[str, float] | None:
        """What spreading activation reaches; None: not in its time, and another method answers."""
        settings = self._settings
        config = activation_config(settings, min(settings.max_hops, self._asked.max_depth))
        limit_ms = min(settings.activation_timeout_ms, timeout_ms)
        try:
            return reader.read(lambda graph: walk.activate(graph, config), timeout_ms=limit_ms)
        except QueryTimeout:
            found.method = "intent_weighted"
            found.notes.degraded.append(
                f"activation took more than {limit_ms} ms: intents weigh instead"
            )
            return None

    def _beside(
        self,
        reader: GraphReader,
        context: Context,
        gathered: Gathered,
        hits: Sequence[str],
        timeout_ms: int,
    ) -> list[Signalled]:
        """What nobody asked for; an answer is as good without it."""
        beside = Beside(
            [summary_id(self._tenant, "session", self._asked.session_id)],
            hits[:BEST_EVENTS],
            [one.entity_id for one in gathered.entities[:BEST_ENTITIES]],
            self._services.history.shown(self._tenant, self._asked.session_id),
        )
        return reader.read(
            lambda graph: proactive(graph, context.scope, beside), timeout_ms=timeout_ms
        )

    # -- rank --------------------------------------------------------------------------------------

    def _rank(
        self,
        reader: GraphReader,
        found: Found,
        context: Context,
        gathered: Gathered,
        walked: _Walked,
    ) -> None:
        """The ranking; in want of what events say, by what the channels say alone."""
        pool = self._pool(reader, found, context.scope, gathered, walked)
        if walked.candidates is None:
            ranked = ranking_without_candidates(pool, found.weights)
        else:
            known = walked.candidates
            known = [*known, *self._met(reader, found, context, gathered, pool, known)]
            ranked = ranking(pool, known, found.weights, self._now_ms, terms=context.terms)
            if self._asked.diversity:
                ranked = diversified(ranked, _vectors(known), self._asked.diversity)
        found.ranking = with_proactive(ranked, walked.beside or (), self._asked.max_nodes)

    def _candidates(self, reader: GraphReader, context: Context, gathered: Gathered) -> Candidates:
        return Candidates(reader, context.scope, self._services.passages, gathered.vector)

    def _pool(
        self,
        reader: GraphReader,
        found: Found,
        scope: Scope,
        gathered: Gathered,
        walked: _Walked,
    ) -> Pool:
        """What may be ranked: only what is in the graph, for a seed may be a name nobody has."""
        walk = walked.walk
        known = {end for edge in list(walk.edges.values()) for end in (edge.source, edge.target)}
        known.update(wire_id(ENTITY.label, one.entity_id) for one in gathered.entities)
        if self._asked.seed_nodes is not None:
            given = [one for one in walk.seeds if one not in known]
            limit_ms = self._deadline.remaining_ms()
            known.update(reader.read(lambda graph: nodes(graph, scope, given), timeout_ms=limit_ms))
        beside = path_intents(self._asked.query, found.intents)
        spreads = found.method == "intent_weighted" and not beside
        return Pool(
            {hit.event_id: hit for hit in gathered.text},
            {hit.event_id: hit for hit in gathered.near},
            {one: score for one, score in walked.worth.items() if one in known},
            dict(walk.depths),
            found.method,
            list(walk.edges.values()),
            beside,
            walk.pagerank(walked.worth) if spreads else {},
        )

    def _met(
        self,
        reader: GraphReader,
        found: Found,
        context: Context,
        gathered: Gathered,
        pool: Pool,
        known: Sequence[Candidate],
    ) -> list[Candidate]:
        """What the events say that the walk alone has met, the most promising of them."""
        compared = {one.event_id for one in known}
        met = [one for one in pool.reached_events() if one not in compared][:MAX_MET]
        if not met:
            return []
        limit_ms = max(1, round(self._deadline.remaining_ms() * RANK_SHARE))
        try:
            candidates = self._candidates(reader, context, gathered)
            return candidates.read(around=(), ids=met, timeout_ms=limit_ms)
        except QueryTimeout:
            found.notes.cut_by.add(Bound.TIME)
            found.notes.degraded.append("what the walk met could not be compared in time")
            return []

    # -- read --------------------------------------------------------------------------------------

    def _read(self, reader: GraphReader, found: Found, scope: Scope) -> None:
        """The nodes of the page and the edges between them."""
        most = self._asked.max_nodes
        page, found.rest = found.ranking[:most], found.ranking[most : max(most, MAX_RANKING)]
        if found.rest:
            found.notes.cut_by.add(Bound.NODES)

        ids = [one.node_id for one in page]
        limit_ms = self._deadline.remaining_ms()
        edges = self._services.channels.submit(
            reader.read, lambda graph: edges_between(graph, scope, ids), timeout_ms=limit_ms
        )
        found.nodes = reader.read(lambda graph: nodes(graph, scope, ids), timeout_ms=limit_ms)
        try:
            between = edges.result(timeout=limit_ms / 1000)
            found.edges = [one for one in between if {one.source, one.target} <= found.nodes.keys()]
        except (FutureTimeout, QueryTimeout):
            found.notes.cut_by.add(Bound.TIME)
            found.notes.degraded.append("the edges could not be read in time")
        # What has left the graph since it was ranked has left the answer.
        found.ranking = [one for one in page if one.node_id in found.nodes]


def _vectors(candidates: Sequence[Candidate]) -> dict[str, HalfVector]:
    return {
        one.event_id: one.passage.vector for one in candidates if one.passage.vector is not None
    }


@contextmanager
def _timed(step: metrics.QueryStep) -> Iterator[None]:
    with metrics.QUERY_STEP_DURATION.labels(step=step).time():
        yield
