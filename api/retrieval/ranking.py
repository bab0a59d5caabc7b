"""From what the channels and the walk found to one order of nodes. Pure.

Events rank by what they say and by what leads to them. An anchor is an event that says itself what
the question asks about; what the intent's edges lead to from there is an answer although it shares
few words with the question ("Yes, please." caused the call). At the end, of events that say the
same the later ones step back (maximal marginal relevance), and a little is added that nobody asked
for. Where stories decide, their events come first, in their order (`merged`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import nsmallest
from itertools import starmap, zip_longest
from typing import Final, NamedTuple

import numpy

from api.retrieval.intent import fused_ranks
from api.retrieval.plan import Intent, StoryAnswer
from api.retrieval.policy import DEFAULT_POLICY, Policy
from api.retrieval.query_terms import QueryTerms
from api.retrieval.relevance import DEFAULT_WEIGHTS, RelevanceWeights, relevance, word_counts
from api.schemas import Channel, RetrievalMethod
from consolidation.decay import HIGHEST_IMPORTANCE, DecayWeights
from consolidation.decay_scores import decay_scores
from pipelines.columns.graph_scores import path_scores, type_weights
from pipelines.columns.records import Array, Standings, Steps, steps_of
from pipelines.columns.walked import Met
from pipelines.graph.rows import Hit, Signal, Signalled, is_event

MAX_WITH_NEIGHBOURS: Final = 120
"""Candidates whose neighbours in their session are candidates too."""
MAX_CANDIDATES: Final = 500
MAX_RANKING: Final = 500
"""Nodes of a ranking that pages are made of."""
GRAPH_SHARES: Final[Mapping[RetrievalMethod, float]] = {
    "intent_weighted": 0.1,
    "ppr": 0.5,
    "activation": 0.5,
}
"""What the best path to an event is worth beside what it says.

The default method's is what an event has that lies seven units of the regression behind the best
one: below nearly all that a channel found on its own (measured on conversations: at 0.2 the newest
events of somebody who is named came before evidence).
"""
PATH_WEIGHT: Final = 2.0
COVERAGE_WEIGHT: Final = 0.5
"""Of paths from events that say it, and of saying it, where a question asks for what is beside."""
SPREAD_WEIGHT: Final = 0.3
"""Of what is reached from the seeds by many ways, where it asks for nothing beside."""


SIGNAL_WEIGHTS: Final[Mapping[Signal, float]] = {
    "recurring_pattern": 1.0,
    "entity_context": 0.8,
    "retrieval_history": 0.5,
}
BEST_EVENTS: Final = 10
BEST_ENTITIES: Final = 5
"""Of an answer, that proactive context starts from."""
MAX_ANCHORS: Final = 8
MAX_HOPS: Final = 2
HOP_SHARE: Final = 0.7
"""Events that paths lead from, how far, and what passes a step beside the edge's weight."""
_LENGTH_SHARE: Final = 0.02
"""By which each word of a long event takes away from what it covers."""
MAX_COMPARED: Final = 200
"""Nodes at the head of a ranking that diversity puts in another order."""


class Ranked(NamedTuple):
    """A node of the ranking.

    Attributes:
        rank: what the ranking is sorted by, 0 to 1.
        relevance: 0 to 1.
        depth: edges from the nearest seed.
        found_by: the channels that found it.
        signal: why it is there although nobody asked for it; None: it was asked for.
    """

    node_id: str
    rank: float
    relevance: float
    depth: int | None = None
    found_by: tuple[Channel, ...] = ()
    signal: Signal | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """What may be ranked.

    Attributes:
        text, near: hits of full text and of the vector index, by event id, the best first.
        graph: worth of the paths from the seeds, by wire id.
        depths: edges from the nearest seed, by wire id.
        method: what the worth of paths is.
        met: edges that the walk met, where there are path intents.
        path_intents: those whose answer stands beside what the question names.
        spread: personalised PageRank from the seeds, the best node having 1, by wire id.
        policy: whose weights count.
    """

    text: Mapping[str, Hit] = field(default_factory=dict)
    near: Mapping[str, Hit] = field(default_factory=dict)
    graph: Mapping[str, float] = field(default_factory=dict)
    depths: Mapping[str, int] = field(default_factory=dict)
    method: RetrievalMethod = "intent_weighted"
    met: Steps = field(default_factory=lambda: steps_of([], []))
    path_intents: Mapping[Intent, float] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    policy: Policy = DEFAULT_POLICY

    def events(self) -> list[str]:
        """Ids of all events: the channels' in turn, then the walk's by their worth."""
        return list(
            dict.fromkeys(
                [*in_turn(self.text.values(), self.near.values()), *self.reached_events()]
            )
        )

    def reached_events(self) -> list[str]:
        """Ids of the events that paths lead to, by their worth."""
        worth = ((-score, one) for one, score in self.graph.items() if is_event(one))
        return [node_id for _, node_id in sorted(worth)]

    def derived(self) -> list[str]:
        """Wire ids of all others."""
        return [node_id for node_id in self.graph if not is_event(node_id)]

    def ranked(self, ids: Sequence[str], *, ranks: Array, relevance: Array) -> list[Ranked]:
        """Nodes with what found each, and how far from the seeds."""
        depths = list(map(self.depths.get, ids))
        text, near = self.text, self.near
        channels = [
            _channels(
                node_id in text, node_id in near, depth and 1, depth == 0 and is_event(node_id)
            )
            for node_id, depth in zip(ids, depths, strict=True)
        ]
        columns = (ids, ranks.tolist(), relevance.tolist(), depths, channels)
        return list(starmap(Ranked, zip(*columns, strict=True)))

    def values(self, scores: Mapping[str, float], ids: Sequence[str]) -> Array:
        """Scores of nodes, 0 of those that have none."""
        return numpy.array([scores.get(node_id, 0.0) for node_id in ids], dtype=numpy.float64)


@cache
def _channels(in_text: bool, near: bool, depth: int | None, is_own: bool) -> tuple[Channel, ...]:
    """The channels that found a node; depth 1 is any, `is_own` that of an event among the seeds."""
    channels: list[Channel] = []
    if in_text:
        channels.append("text")
    if near:
        channels.append("vector")
    if depth == 0 and not channels:
        channels.append("context" if is_own else "entity")
    if depth is not None and depth > 0:
        channels.append("graph")
    return tuple(channels)


def event_relevance(pool: Pool, standings: Standings, answering: Array, terms: QueryTerms) -> Array:
    """Relevance of events, 0 to 1: what they say, and what leads to them.

    What holds the identifiers that a question names is meant before all that does not. Where the
    question asks for what stands beside something (why, what came before, what is like it), the
    paths from the events that say it add. Otherwise the best path counts for a share of what a
    perfect answer would: it brings in what the words do not tell, and never above what they
    clearly do; and what many ways lead to gains. The two other methods always add what they found.
    """
    held = holding(terms, standings)
    scores = (answering + held) / 2 if held.any() else answering
    if pool.method != "intent_weighted":
        return _with_worth(pool, scores, standings.ids)
    if pool.path_intents:
        covered = coverage(terms, standings)
        anchored = dict(zip(standings.ids, anchors(covered, held).tolist(), strict=True))
        led = led_to(anchored, pool.met, pool.path_intents, pool.policy)
        beside = pool.values(led, standings.ids)
        whole = 1 + COVERAGE_WEIGHT + PATH_WEIGHT
        return (scores + COVERAGE_WEIGHT * covered + PATH_WEIGHT * beside) / whole
    return _with_ways(pool, scores, standings.ids)


def _with_worth(pool: Pool, scores: Array, ids: Sequence[str]) -> Array:
    share = GRAPH_SHARES[pool.method]
    worth = numpy.minimum(1.0, pool.values(pool.graph, ids))
    return (scores + share * worth) / (1 + share)


def _with_ways(pool: Pool, scores: Array, ids: Sequence[str]) -> Array:
    share = GRAPH_SHARES[pool.method]
    away = numpy.array([bool(pool.depths.get(event_id)) for event_id in ids], dtype=bool)
    led = away * numpy.minimum(1.0, pool.values(pool.graph, ids))
    many = pool.values(pool.spread, ids)
    return (numpy.maximum(scores, share * led) + SPREAD_WEIGHT * many) / (1 + SPREAD_WEIGHT)


def ranking(
    pool: Pool,
    standings: Standings,
    weights: DecayWeights,
    now_ms: int,
    *,
    terms: QueryTerms,
    channel_weights: RelevanceWeights = DEFAULT_WEIGHTS,
) -> list[Ranked]:
    """The best of the pool, MAX_RANKING at most; what is derived ranks by its paths.

    Args:
        pool: what was found.
        standings: its events as far as they could be read; no others are ranked.
        weights: of recency, importance and relevance.
        now_ms: the clock for recency.
        terms: of the question.
        channel_weights: how much each channel says of what an event says.
    """
    scores = event_relevance(pool, standings, relevance(terms, standings, channel_weights), terms)
    ranks = decay_scores(
        now_ms,
        standings.occurred_ms,
        standings.accessed_ms,
        standings.accesses,
        importance=numpy.minimum(float(HIGHEST_IMPORTANCE), standings.importance),
        relevance=scores,
        weights=weights,
    )
    return _ordered(pool, standings.ids, ranks=ranks, relevance=scores, weights=weights)


def ranking_without_standings(pool: Pool, weights: DecayWeights) -> list[Ranked]:
    """The same when nothing more could be read in time: events by their ranks in the channels."""
    fused = fused_ranks([pool.text, pool.near, list(pool.events())])
    scores = numpy.array(list(fused.values()))
    ranks = scores * weights.relevance / weights.total
    return _ordered(pool, list(fused), ranks=ranks, relevance=scores, weights=weights)


def _ordered(
    pool: Pool, ids: Sequence[str], *, ranks: Array, relevance: Array, weights: DecayWeights
) -> list[Ranked]:
    """Events, and what is derived, by their ranks; of equal ones the smaller id comes first."""
    derived = pool.derived()
    # What the question names counts in full, what it only leads to as events do.
    share = GRAPH_SHARES[pool.method]
    led = numpy.array([share if pool.depths.get(node_id) else 1.0 for node_id in derived])
    worth = numpy.minimum(1.0, led * pool.values(pool.graph, derived))
    nodes = [*ids, *derived]
    scores = numpy.concatenate([relevance, worth])
    ranks = numpy.concatenate([ranks, worth * weights.relevance / weights.total])
    order = numpy.argsort(-ranks, kind="stable")
    in_order = ranks[order]
    is_tied = in_order[1:] == in_order[:-1]
    edges = numpy.flatnonzero(numpy.diff(is_tied, prepend=False, append=False))
    for first, last in edges.reshape(-1, 2).tolist():
        if first < MAX_RANKING:
            tied = order[first : last + 1]
            tied[:] = sorted(tied.tolist(), key=nodes.__getitem__)
    order = order[:MAX_RANKING]
    best = [nodes[place] for place in order.tolist()]
    return pool.ranked(best, ranks=ranks[order], relevance=scores[order])


def in_turn(*channels: Iterable[Hit]) -> list[str]:
    """Event ids: first the best of each channel, then the second …, so a bound cuts all alike."""
    places = zip_longest(*([hit.event_id for hit in hits] for hits in channels))
    return list(
        dict.fromkeys(node_id for place in places for node_id in place if node_id is not None)
    )


def coverage(terms: QueryTerms, standings: Standings) -> Array:
    """How much of a question each event says in its own words, the best being 1; 0: nothing.

    Words count by how few of the events have them; of two events that say the same the shorter
    one says it more.
    """
    counts = word_counts(terms, standings) > 0
    holding = counts.sum(axis=0)
    weight = numpy.log1p(len(standings.ids) / numpy.maximum(holding, 1))
    scores = (counts @ weight) / (1 + _LENGTH_SHARE * standings.stems)
    best = scores.max(initial=0.0)
    return numpy.asarray(scores / best if best > 0 else scores)


def holding(terms: QueryTerms, standings: Standings) -> Array:
    """Whether each event holds all identifiers of a question; none does without any."""
    columns = terms.identifier_places
    if not columns:
        return numpy.zeros(len(standings.ids), dtype=bool)
    return numpy.asarray((standings.counts[:, columns] > 0).all(axis=1))


def anchors(covered: Array, held: Array) -> Array:
    """What is covered, of the events that hold the identifiers alone if any of them does."""
    holding = covered * held
    best = holding.max(initial=0.0)
    return numpy.asarray(holding / best if best > 0 else covered)


def led_to(
    covered: Mapping[str, float],
    steps: Steps,
    intents: Mapping[Intent, float],
    policy: Policy = DEFAULT_POLICY,
) -> dict[str, float]:
    """What the best path from another event that says it is worth, 0 to 1, by event id.

    Args:
        covered: of `anchors`, by event id; its square is what an anchor passes on.
        steps: that the walk met.
        intents: whose edges lead, with their confidences.
        policy: whose weights count.
    """
    begin = ((-score, event_id) for event_id, score in covered.items() if score > 0)
    best = [event_id for _, event_id in nsmallest(MAX_ANCHORS, begin)]
    ids, met = steps.ids, Met(len(steps.ids), steps)
    places = {node_id: place for place, node_id in enumerate(ids)}
    begun = [event_id for event_id in best if event_id in places]
    starts = [places[event_id] for event_id in begun]
    columns = range(len(begun))
    seeds = numpy.zeros((len(ids), len(begun)))
    seeds[starts, columns] = [covered[event_id] ** 2 for event_id in begun]
    led = numpy.zeros(len(ids))
    for intent, confidence in intents.items():
        weights = met.weights(type_weights([intent], policy.weights))
        paths = path_scores(seeds, met.ways(HOP_SHARE * weights), MAX_HOPS).copy()
        paths[starts, columns] = 0.0  # an anchor does not lead to itself
        led = numpy.maximum(led, confidence * paths.max(axis=1, initial=0.0))
    return {ids[place]: float(led[place]) for place in numpy.flatnonzero(led).tolist()}


def diversified(
    ranked: Sequence[Ranked], diversity: float, vectors: Callable[[Sequence[str]], Array]
) -> list[Ranked]:
    """The ranking with each next node chosen by rank and by how little it is like those before.

    value = (1 - diversity) · rank + diversity · (1 - the largest cosine to a node before it),
    which becomes the rank; it never rises from one node to the next.

    Args:
        ranked: the best first; its first MAX_COMPARED are reordered.
        diversity: 0 (as it was) to 1 (likeness alone).
        vectors: of unit length, of nodes; zeros are like nothing.
    """
    head, behind = list(ranked[:MAX_COMPARED]), list(ranked[MAX_COMPARED:])
    if diversity <= 0 or not head:
        return list(ranked)
    matrix = vectors([node.node_id for node in head])
    ranks = numpy.array([entry.rank for entry in head])
    likeness = numpy.zeros(len(head))
    left = list(range(len(head)))
    chosen = []
    while left:
        values = (1 - diversity) * ranks[left] + diversity * (1 - likeness[left])
        place = left.pop(int(values.argmax()))
        chosen.append(head[place]._replace(rank=float(values.max())))
        likeness = numpy.maximum(likeness, matrix @ matrix[place])
    share = 1 - diversity
    return [*chosen, *(entry._replace(rank=entry.rank * share) for entry in behind)]


def with_proactive(
    ranked: Sequence[Ranked],
    signalled: Iterable[Signalled],
    max_nodes: int,
    share: float = DEFAULT_POLICY.proactive_share,
) -> list[Ranked]:
    """The ranking with the best of what nobody asked for (S0), behind the rest of the first page.

    Three signals: a failure met before whose resolution is known (`recurring_pattern`), something
    important about an entity of the question (`entity_context`), and what this session was shown
    before and is read again and again (`retrieval_history`, at half weight).

    Args:
        ranked: what was asked for, the best first.
        signalled: what the graph adds.
        max_nodes: of a page.
        share: of a page, at most, that nobody asked for.
    """
    shown = {node.node_id for node in ranked[:max_nodes]}
    best: dict[str, tuple[float, Signal]] = {}
    for event_id, signal, strength in signalled:
        score = SIGNAL_WEIGHTS[signal] * min(1.0, strength)
        if event_id not in shown and score > best.get(event_id, (0.0, ""))[0]:
            best[event_id] = (score, signal)
    most = int(max_nodes * share)
    chosen = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:most]
    if not chosen:
        return list(ranked)
    direct = ranked[: max_nodes - len(chosen)]
    ceiling = direct[-1].rank if direct else 1.0
    added = [
        Ranked(event_id, ceiling * score, score, found_by=("proactive",), signal=signal)
        for event_id, (score, signal) in chosen
    ]
    ids = {event_id for event_id, _ in chosen}
    behind = [node for node in ranked[len(direct) :] if node.node_id not in ids]
    # The page first: what comes behind it ranks no higher, whatever its number was.
    return [*direct, *added, *behind]


FIRST_EVENTS: Final = 5
"""Before which no entity or summary stands in an answer about events."""


def merged(ranked: Sequence[Ranked], answer: StoryAnswer, weights: DecayWeights) -> list[Ranked]:
    """A ranking in which the events of stories stand in their order, before all other events.

    What is no event keeps its worth, and stands behind the first FIRST_EVENTS events.

    Args:
        ranked: by what is said and by paths, the best first.
        answer: that decides.
        weights: of the ranking.
    """
    share = weights.relevance / weights.total
    by_id = {node.node_id: node for node in ranked}
    events = [_as_told(by_id.get(one), one, answer.relevance[one], share) for one in answer.order]
    least = events[-1].rank if events else 1.0
    told = set(answer.order)
    others = [
        node._replace(rank=min(node.rank, 1.0) * least)
        for node in ranked
        if is_event(node.node_id) and node.node_id not in told
    ]
    ceiling = events[:FIRST_EVENTS][-1].rank if events else 1.0
    derived = [
        node._replace(rank=min(node.rank, ceiling)) for node in ranked if not is_event(node.node_id)
    ]
    return _woven([*events, *others], derived)


def _as_told(node: Ranked | None, event_id: str, relevance: float, share: float) -> Ranked:
    if node is None:
        return Ranked(event_id, relevance * share, relevance, found_by=("story",))
    found_by = node.found_by if "story" in node.found_by else (*node.found_by, "story")
    return node._replace(rank=relevance * share, relevance=relevance, found_by=found_by)


def _woven(events: Iterable[Ranked], derived: Sequence[Ranked]) -> list[Ranked]:
    """Both by rank; of equal ones events come first."""
    return sorted([*events, *derived], key=lambda node: -node.rank)
