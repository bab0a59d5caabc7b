"""A subgraph query from the question to a page of nodes: understand, seeds, walk, rank, read.

Read `Retrieval.answer` first. Each step has a part of the time; what fails or is too slow is left
out and noted, and only when nothing at all could be found in time is there no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from api.connections import OpenGraph
from api.read_schemas import SubgraphQuery
from api.retrieval.answering import told
from api.retrieval.channels import Outcome, Subgraph, Work, run_side_by_side
from api.retrieval.gather import Gathered, Gathering, QueryAnalysis
from api.retrieval.intent import PERSONAL, inferred_intents, path_intents, traversed_intents
from api.retrieval.outstanding import promising_first
from api.retrieval.personal import OF_LINES
from api.retrieval.persons import Asking, Persons
from api.retrieval.plan import Operator, StoryAnswer
from api.retrieval.ranking import (
    BEST_ENTITIES,
    BEST_EVENTS,
    MAX_CANDIDATES,
    MAX_RANKING,
    MAX_WITH_NEIGHBOURS,
    Pool,
    Ranked,
    diversified,
    merged,
    ranking,
    ranking_without_standings,
    with_proactive,
)
from api.retrieval.story_terms import OF_TEXTS
from api.retrieval.summaries import SUMMARIES, Shown
from api.schemas import Bound
from api.services import Deadline, ReadContext
from api.stored_events import pending_nodes
from consolidation.decay import DecayWeights
from consolidation.summary_payloads import summary_ids_seen
from pipelines.columns.graph_scores import type_weights
from pipelines.columns.reads import Beside, Reached, WalkAsked, Walked, Wanted
from pipelines.columns.records import Standings, steps_of
from pipelines.columns.walked import MAX_REACHED_EVENTS, walked
from pipelines.graph.reads.scope import Scope
from pipelines.graph.reads.walk import nodes, shown
from pipelines.graph.rows import Signalled, ids_by_label, is_event, wire_id
from pipelines.observe import metrics
from projections.errors import GraphUnavailable, LedgerError, QueryTimeout
from projections.schema import ENTITY, EVENT, MAX_SUPPORTING

WALK_SHARE: Final = 0.6
"""Of the time that is left when the seeds are known."""
RANK_SHARE: Final = 0.5
"""Of the time that is left then; the rest is for reading what is shown."""
MAX_MET: Final = 60
"""Events that the walk alone has met and that are ranked too."""
MAX_TEXTS: Final = 10
"""Events of which all is read that they say."""
MAX_RECORDS: Final = 50
"""Events of which it is read where they are no messages: several records are a thing's history."""
_INTENTS: Final = {**PERSONAL, Operator.CAUSE: "why"}
"""What who asks an operator's questions wants to know."""


class _Walked(NamedTuple):
    """What the seeds led to; None is what could not be read in time."""

    walk: Walked
    standings: Standings | None
    beside: list[Signalled] | None
    story: StoryAnswer | None


class Retrieval:
    """One query, answered once, on a thread of its own.

    Args:
        context: of the request.
        graph: that it is answered from.
    """

    def __init__(self, context: ReadContext[SubgraphQuery], graph: OpenGraph) -> None:
        self._context = context
        self._query = context.query
        self._deadline = context.deadline
        self._services = context.services
        self._reader = graph.reader
        self._columns = graph.columns
        self._gathering = Gathering(context, graph)
        with _timed("understand"):
            self._page = _understood(context)

    def answer(self) -> Subgraph:
        """The ranking, with the nodes and edges of its first page.

        Raises:
            QueryTimeout: nothing could be answered in time.
            GraphUnavailable: Neo4j is away.
        """
        page = self._page
        with _timed("seeds"):
            analysis = self._gathering.analysis(page.notes)
            gathered = self._gathering.channels(page.notes, analysis)
            seeds = self._gathering.seeds(gathered, analysis)
            page.seeds = list(self._query.seed_nodes or seeds)
            page.seed_names = {
                node_id: seed.name
                for seed in gathered.entities
                if (node_id := wire_id(ENTITY.label, seed.entity_id)) in seeds
            }
            page.withheld = gathered.withheld
        with _timed("walk"):
            walked = self._side_by_side(analysis, gathered, seeds)
        with _timed("rank"):
            page.ranking = self._ranked(analysis, gathered, walked)
        with _timed("read"):
            self._read()
        return page

    def next_page(self, ranked: Sequence[Ranked]) -> Subgraph:
        """The next page of a ranking that was made before; in scope as if it were made now."""
        self._page.ranking = list(ranked)
        with _timed("read"):
            self._read()
        return self._page

    # -- walk, and what else needs the seeds alone -------------------------------------------------

    def _side_by_side(
        self, analysis: QueryAnalysis, gathered: Gathered, seeds: Mapping[str, float]
    ) -> _Walked:
        """The walk, and what nobody asked for, at once."""
        scope, policy = analysis.scope, self._services.policy
        walk_wanted, wanted = self._walk_wanted(seeds), self._wanted(analysis, gathered)
        work: dict[str, Work] = {
            "graph": lambda ms: self._walked(scope, walk_wanted, wanted, ms),
            "story": lambda ms: self._told(analysis, gathered, ms),
        }
        if self._query.proactive:
            beside = self._beside(gathered)
            work["beside"] = lambda ms: self._columns.reads(scope, ms).beside(
                beside, policy.proactive
            )
        limit_ms = max(1, round(self._deadline.remaining_ms() * WALK_SHARE))
        outcomes = run_side_by_side(self._services.channels, work, limit_ms)
        # What was not walked in time is no further than its seeds.
        reached: Reached | None = outcomes["graph"].value
        nowhere = walk_wanted._replace(method="intent_weighted")
        walk = reached.walk if reached else walked(nowhere, lambda _, __: (), scope.now_ms)
        self._note(outcomes, walk)
        # Whether seeds that are given are in the graph is not known yet.
        is_told = reached is not None and self._query.seed_nodes is None
        return _Walked(
            walk,
            standings=reached.standings if reached and is_told else None,
            beside=outcomes["beside"].value if "beside" in outcomes else None,
            story=outcomes["story"].value,
        )

    def _note(self, outcomes: Mapping[str, Outcome], walk: Walked) -> None:
        notes = self._page.notes
        notes.take("graph", outcomes["graph"]._replace(value=walk.ids))
        story: StoryAnswer | None = outcomes["story"].value
        notes.take("story", outcomes["story"]._replace(value=story.order if story else []))
        if outcomes["graph"].status == "timeout":
            notes.cut_by.add(Bound.TIME)
        if self._query.proactive:
            notes.take("proactive", outcomes["beside"])

    def _walk_wanted(self, seeds: Mapping[str, float]) -> WalkAsked:
        """The walk from the seeds, by the default method or the one that is asked for."""
        policy, intents, query = self._services.policy, self._page.intents, self._query
        settings = self._context.settings
        return WalkAsked(
            seeds=seeds,
            weights=type_weights(intents, policy.weights),
            confidences=list(intents.values()),
            others_share=policy.other_intents_share,
            caps=policy.edge_caps,
            max_depth=query.max_depth,
            method=self._page.method,
            activation=self._context.activation_config(min(settings.max_hops, query.max_depth)),
            beside=bool(path_intents(query.query, intents)),
        )

    def _walked(self, scope: Scope, walk: WalkAsked, wanted: Wanted, timeout_ms: int) -> Reached:
        """What the paths from the seeds are worth, and what ranking must know.

        Raises:
            QueryTimeout: the time was over.
        """
        deadline = Deadline(timeout_ms)
        if walk.method == "activation":
            limit_ms = min(self._context.settings.activation_timeout_ms, timeout_ms)
            try:
                return self._columns.reads(scope, limit_ms).walked(walk, wanted)
            except QueryTimeout:
                self._page.method = "intent_weighted"
                self._page.notes.degraded.append(
                    f"activation took more than {limit_ms} ms: intents weigh instead"
                )
                walk = walk._replace(method=self._page.method)
        return self._columns.reads(scope, deadline.remaining_ms()).walked(walk, wanted)

    def _told(self, analysis: QueryAnalysis, gathered: Gathered, timeout_ms: int) -> StoryAnswer:
        """What the stories say that the best hits are of."""
        query = self._query
        asking = Asking(
            query=query.query,
            now_ms=self._context.now_ms,
            zone=query.zone(),
            session_id=query.session_id,
            within=query.within(),
            intent=query.intent,
        )
        reads = self._columns.reads(analysis.scope, timeout_ms)
        persons = Persons(
            reads,
            graph=lambda work: self._reader.read(work, timeout_ms=timeout_ms),
            scope=self._context.scope,
            seeds=gathered.entities,
            weights=self._services.policy.weights,
            threshold=self._context.settings.answer_threshold,
            embed=lambda text: self._services.embedder.embed(text, timeout_ms=timeout_ms),
        )
        return told(reads, asking, hits=gathered.hits, vector=gathered.vector, persons=persons)

    def _beside(self, gathered: Gathered) -> Beside:
        """What context that nobody asked for starts from."""
        tenant, session_id = self._context.tenant, self._query.session_id
        user_id = self._context.scope.user_id
        return Beside(
            session_ids=summary_ids_seen(tenant, "session", session_id, user_id),
            event_ids=gathered.hits[:BEST_EVENTS],
            entity_ids=[seed.entity_id for seed in gathered.entities[:BEST_ENTITIES]],
            history=self._services.shown.events(tenant, session_id),
        )

    # -- rank --------------------------------------------------------------------------------------

    def _ranked(self, analysis: QueryAnalysis, gathered: Gathered, walked: _Walked) -> list[Ranked]:
        """The ranking; in want of what events say, by what the channels say alone."""
        page, query = self._page, self._query
        pool = self._pool(analysis.scope, gathered, walked)
        standings = walked.standings or self._standings(analysis, gathered, pool)
        if standings is None:
            ranked = ranking_without_standings(pool, page.weights)
        else:
            now_ms = self._context.now_ms
            ranked = ranking(pool, standings, page.weights, now_ms, terms=analysis.terms)
            if query.diversity:
                columns = self._columns.reads(analysis.scope, self._deadline.remaining_ms())
                ranked = diversified(ranked, query.diversity, columns.vectors)
        story = walked.story
        page.story = story
        if story is not None and story.plan.operator in OF_LINES:
            intent = PERSONAL[story.plan.operator]
            page.inferred = {**page.inferred, intent: story.confidence}
            page.intents = {**page.intents, intent: story.confidence}
        if story is not None and story.decides and self._by_stories(story):
            ranked = merged(ranked, story, page.weights)
        share = self._services.policy.proactive_share
        return with_proactive(ranked, walked.beside or (), query.max_nodes, share)

    def _by_stories(self, story: StoryAnswer) -> bool:
        """Whether nobody has said how to find or to rank, but for what the question says itself.

        What is known of a person is no matter of ranks: who asks for that gets it.
        """
        query = self._query
        intent = None if query.intent == _INTENTS.get(story.plan.operator) else query.intent
        given = (intent, query.seed_nodes, query.scoring_weights)
        return self._page.method == "intent_weighted" and given == (None, None, None)

    def _standings(
        self, analysis: QueryAnalysis, gathered: Gathered, pool: Pool
    ) -> Standings | None:
        """What ranking must know of the events of the pool; None: not in time."""
        met = pool.reached_events()[:MAX_REACHED_EVENTS]
        wanted = self._wanted(analysis, gathered)._replace(met=met)
        limit_ms = max(1, round(self._deadline.remaining_ms() * RANK_SHARE))
        try:
            return self._columns.reads(analysis.scope, limit_ms).standings(wanted)
        except (QueryTimeout, GraphUnavailable):
            self._page.notes.cut("candidates could not be compared: ranks in the channels alone")
            return None

    def _wanted(self, analysis: QueryAnalysis, gathered: Gathered) -> Wanted:
        """The events that may be ranked.

        They are those that the channels found, the best of them with their neighbours, and those
        that the walk alone has met, the most promising.
        """
        hits = gathered.hits[:MAX_CANDIDATES]
        return Wanted(
            around=hits[:MAX_WITH_NEIGHBOURS],
            ids=hits[MAX_WITH_NEIGHBOURS:],
            met=(),
            most_met=MAX_MET,
            stems=analysis.terms.stems,
            vector=gathered.vector,
        )

    def _pool(self, scope: Scope, gathered: Gathered, walked: _Walked) -> Pool:
        """What may be ranked: only what is in the graph, for a seed may be a name nobody has."""
        walk = walked.walk
        ids, depths = walk.ids, walk.depths.tolist()
        present = {wire_id(ENTITY.label, seed.entity_id) for seed in gathered.entities}
        connected = zip(ids, walk.connected.tolist(), strict=True)
        present.update(node_id for node_id, is_connected in connected if is_connected)
        if self._query.seed_nodes is not None:
            given = [node_id for node_id, depth in zip(ids, depths, strict=True) if not depth]
            absent = [node_id for node_id in given if node_id not in present]
            present.update(
                self._context.read(self._reader, lambda graph: nodes(graph, scope, absent, {}))
            )
        worth = zip(ids, walk.worth.tolist(), strict=True)
        return Pool(
            text={hit.event_id: hit for hit in gathered.text},
            near={hit.event_id: hit for hit in gathered.near},
            graph={one: score for one, score in worth if score == score and one in present},
            depths=dict(zip(ids, depths, strict=True)),
            method=self._page.method,
            met=walk.edges or steps_of([], []),
            path_intents=path_intents(self._query.query, self._page.intents),
            spread=dict(zip(ids, walk.spread.tolist(), strict=False)),
            policy=self._services.policy,
        )

    # -- read --------------------------------------------------------------------------------------

    def _read(self) -> None:
        """The nodes of the page and the edges between them."""
        scope = self._context.scope
        page, most = self._page, self._query.max_nodes
        first, page.behind = page.ranking[:most], page.ranking[most : max(most, MAX_RANKING)]
        if page.behind:
            page.notes.cut_by.add(Bound.NODES)
        ids = [ranked.node_id for ranked in first]
        limit_ms = self._deadline.remaining_ms()
        supporting, told = self._supporting(ids), self._told_as_whole(ids)
        page.nodes, page.edges, page.texts = self._reader.read(
            lambda graph: shown(graph, scope, ids, supporting, told=told), timeout_ms=limit_ms
        )
        self._read_pending(ids, limit_ms)
        self._read_words(ids)
        page.summary = self._summary()
        # What has left the graph since it was ranked has left the answer.
        page.ranking = [ranked for ranked in first if ranked.node_id in page.nodes]
        if page.story is not None and page.story.plan.operator is Operator.PROMISE:
            proving = {one: page.texts[one] for one in page.story.evidence if one in page.texts}
            page.ranking = promising_first(page.ranking, proving)

    def _summary(self) -> str | None:
        """What summaries say of the session of the first event, if that is asked for."""
        page = self._page
        ask = None if page.story is None else SUMMARIES.get(page.story.plan.operator)
        first = next((page.nodes.get(ranked.node_id) for ranked in page.ranking), None)
        if page.story is None or ask is None or first is None or first.label != EVENT.label:
            return None
        topic = page.story.plan.topic
        shown = Shown(first.properties["session_id"], first.node_id, topic)
        try:
            return self._context.read(
                self._reader, lambda graph: ask(graph, self._context.scope, shown)
            )
        except QueryTimeout:
            page.notes.cut("the summary of the session could not be read in time")
            return None

    def _told_as_whole(self, ids: Sequence[str]) -> Mapping[str, bool]:
        """The first events, where the answer is a part of what they say; see `shown`.

        And all that may promise, where that is asked for.
        """
        story = self._page.story
        if story is None or story.plan.operator not in OF_TEXTS:
            return {}
        promising = story.plan.operator is Operator.PROMISE
        proving = set(story.evidence if promising else ())  # words alone tell which do promise
        events = list(filter(is_event, ids))[:MAX_RECORDS]
        return {one: place < MAX_TEXTS or one in proving for place, one in enumerate(events)}

    def _supporting(self, ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """The newest events that mention the entities of the page, by own id."""
        entities = ids_by_label(ids)[ENTITY.label]
        if not entities:
            return {}
        limit_ms = self._deadline.remaining_ms()
        try:
            reads = self._columns.reads(self._context.scope, limit_ms)
            return reads.newest_mentions(entities, MAX_SUPPORTING)
        except (GraphUnavailable, QueryTimeout):
            self._page.notes.cut("the events that mention entities could not be found")
            return {}

    def _read_pending(self, ids: Sequence[str], timeout_ms: int) -> None:
        """The events of the page that the graph does not have yet, from the ledger.

        Whether they are such say the columns: what has left the graph is in the ledger, too.
        """
        page, scope = self._page, self._context.scope
        missing = [own_id for own_id in ids if own_id not in page.nodes and is_event(own_id)]
        if not missing:
            return
        limit_ms = max(1, min(timeout_ms, self._deadline.remaining_ms()))
        try:
            pending = self._columns.reads(scope, limit_ms).pending(missing)
            accepted = pending_nodes(self._services.ledger(), scope, pending) if pending else {}
        except (GraphUnavailable, QueryTimeout, LedgerError):
            page.notes.cut("the events that are not in the graph yet could not be read")
            return
        if late := [one for one in missing if one not in pending]:  # folded in this moment?
            page.nodes |= self._reader.read(
                lambda graph: nodes(graph, scope, late, {}), timeout_ms=limit_ms
            )
        page.nodes |= accepted
        page.pending = frozenset(accepted)

    def _read_words(self, ids: Sequence[str]) -> None:
        """What the second stage has not read yet of the events of the page, from the ledger."""
        page_nodes = self._page.nodes
        unread = [one for one in ids if is_event(one) and one in page_nodes]
        unread = [one for one in unread if "kind" not in page_nodes[one].properties]
        if not unread:
            return
        with suppress(LedgerError):
            read = pending_nodes(self._services.ledger(), self._context.scope, unread)
            for own_id, node in read.items():
                values = {**node.properties, **page_nodes[own_id].properties}
                page_nodes[own_id] = node._replace(properties=values)


def _understood(context: ReadContext[SubgraphQuery]) -> Subgraph:
    """What the question wants to know, and how its answer weighs."""
    query, settings = context.query, context.settings
    inferred = inferred_intents(query.query)
    given = query.scoring_weights
    if given is None:
        weights = DecayWeights(
            settings.recency_weight, settings.importance_weight, settings.relevance_weight
        )
    else:
        weights = DecayWeights(given.recency, given.importance, given.relevance)
    intents = traversed_intents(
        inferred, query.intent, threshold=context.services.policy.intent_threshold
    )
    return Subgraph(intents, inferred, weights, query.retrieval_method)


@contextmanager
def _timed(step: metrics.QueryStep) -> Iterator[None]:
    with metrics.QUERY_STEP_DURATION.labels(step=step).time():
        yield
