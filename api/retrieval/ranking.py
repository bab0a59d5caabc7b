"""From what the channels and the walk found to one order of nodes. Pure.

Events rank by what they say and by what leads to them. An anchor is an event that says itself what
the question asks about; what the intent's edges lead to from there is an answer although it shares
few words with the question ("Yes, please." caused the call). At the end, of events that say the
same the later ones step back (maximal marginal relevance), and a little is added that nobody asked
for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NamedTuple

import numpy

from api.retrieval.graph_scores import path_scores, ways_of
from api.retrieval.intent import Intent, fused_ranks
from api.retrieval.policy import DEFAULT_POLICY, Policy
from api.retrieval.query_terms import QueryTerms
from api.retrieval.relevance import (
    DEFAULT_WEIGHTS,
    Candidate,
    HalfVector,
    Passage,
    RelevanceWeights,
    relevance,
)
from api.schemas import Channel, RetrievalMethod
from consolidation.decay import HIGHEST_IMPORTANCE, DecayWeights, decay_score
from enrichment.stems import stem
from pipelines.graph.rows import Hit, Signal, Signalled, StepEdge, is_event

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
        edges: that the walk met.
        path_intents: those whose answer stands beside what the question names.
        spread: personalised PageRank from the seeds, the best node having 1, by wire id.
        policy: whose weights count.
    """

    text: Mapping[str, Hit] = field(default_factory=dict)
    near: Mapping[str, Hit] = field(default_factory=dict)
    graph: Mapping[str, float] = field(default_factory=dict)
    depths: Mapping[str, int] = field(default_factory=dict)
    method: RetrievalMethod = "intent_weighted"
    edges: Sequence[StepEdge] = ()
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
        return list(self._reached(events=True))

    def derived(self) -> list[str]:
        """Wire ids of all others, by their worth."""
        return list(self._reached(events=False))

    def found_by(self, node_id: str) -> tuple[Channel, ...]:
        """The channels that found a node."""
        channels: list[Channel] = []
        if node_id in self.text:
            channels.append("text")
        if node_id in self.near:
            channels.append("vector")
        depth = self.depths.get(node_id)
        if depth == 0 and not channels:
            channels.append("context" if is_event(node_id) else "entity")
        if depth is not None and depth > 0:
            channels.append("graph")
        return tuple(channels)

    def ranked(self, node_id: str, *, rank: float, relevance: float) -> Ranked:
        """A node with what found it, and how far from the seeds."""
        return Ranked(
            node_id,
            rank,
            relevance,
            depth=self.depths.get(node_id),
            found_by=self.found_by(node_id),
        )

    def _reached(self, *, events: bool) -> Iterator[str]:
        ordered = sorted(self.graph, key=lambda node_id: (-self.graph[node_id], node_id))
        return (node_id for node_id in ordered if is_event(node_id) is events)


def event_relevance(
    pool: Pool, candidates: Sequence[Candidate], answering: Mapping[str, float], terms: QueryTerms
) -> dict[str, float]:
    """Relevance of events, 0 to 1: what they say, and what leads to them.

    What holds the identifiers that a question names is meant before all that does not. Where the
    question asks for what stands beside something (why, what came before, what is like it), the
    paths from the events that say it add. Otherwise the best path counts for a share of what a
    perfect answer would: it brings in what the words do not tell, and never above what they
    clearly do; and what many ways lead to gains. The two other methods always add what they found.
    """
    held = holding(terms.identifiers, candidates)
    scores = {
        event_id: (score + (event_id in held)) / 2 if held else score
        for event_id, score in answering.items()
    }
    if pool.method != "intent_weighted":
        return _with_worth(pool, scores)
    if pool.path_intents:
        covered = coverage(terms.words, candidates)
        beside = led_to(anchors(covered, held), pool.edges, pool.path_intents, pool.policy)
        return _with_paths(scores, covered, beside)
    return _with_ways(pool, scores)


def _with_worth(pool: Pool, scores: Mapping[str, float]) -> dict[str, float]:
    share = GRAPH_SHARES[pool.method]
    return {
        event_id: (score + share * min(1.0, pool.graph.get(event_id, 0.0))) / (1 + share)
        for event_id, score in scores.items()
    }


def _with_paths(
    scores: Mapping[str, float], covered: Mapping[str, float], beside: Mapping[str, float]
) -> dict[str, float]:
    merged = {}
    for event_id, score in scores.items():
        says = COVERAGE_WEIGHT * covered.get(event_id, 0.0)
        paths = PATH_WEIGHT * beside.get(event_id, 0.0)
        merged[event_id] = (score + says + paths) / (1 + COVERAGE_WEIGHT + PATH_WEIGHT)
    return merged


def _with_ways(pool: Pool, scores: Mapping[str, float]) -> dict[str, float]:
    share = GRAPH_SHARES[pool.method]
    merged = {}
    for event_id, score in scores.items():
        led = min(1.0, pool.graph.get(event_id, 0.0)) if pool.depths.get(event_id) else 0.0
        many = pool.spread.get(event_id, 0.0)
        merged[event_id] = (max(score, share * led) + SPREAD_WEIGHT * many) / (1 + SPREAD_WEIGHT)
    return merged


def ranking(
    pool: Pool,
    candidates: Sequence[Candidate],
    weights: DecayWeights,
    now_ms: int,
    *,
    terms: QueryTerms,
    channel_weights: RelevanceWeights = DEFAULT_WEIGHTS,
) -> list[Ranked]:
    """Everything of the pool by rank, the best first; what is derived ranks by its paths.

    Args:
        pool: what was found.
        candidates: its events as far as they could be read; no others are ranked.
        weights: of recency, importance and relevance.
        now_ms: the clock for recency.
        terms: of the question.
        channel_weights: how much each channel says of what an event says.
    """
    scores = event_relevance(pool, candidates, relevance(terms, candidates, channel_weights), terms)
    ranked = [
        pool.ranked(
            candidate.event_id,
            relevance=scores[candidate.event_id],
            rank=decay_score(
                now_ms,
                candidate.passage.occurred_at_ms,
                candidate.accessed_at_ms,
                access_count=candidate.access_count,
                importance=min(float(HIGHEST_IMPORTANCE), candidate.importance),
                relevance=scores[candidate.event_id],
                weights=weights,
            ),
        )
        for candidate in candidates
    ]
    return _ordered([*ranked, *_derived(pool, weights)])


def ranking_without_candidates(pool: Pool, weights: DecayWeights) -> list[Ranked]:
    """The same when nothing more could be read in time: events by their ranks in the channels."""
    fused = fused_ranks([pool.text, pool.near, list(pool.events())])
    share = weights.relevance / weights.total
    ranked = [
        pool.ranked(node_id, rank=score * share, relevance=score)
        for node_id, score in fused.items()
    ]
    return _ordered([*ranked, *_derived(pool, weights)])


def _derived(pool: Pool, weights: DecayWeights) -> Iterator[Ranked]:
    share = weights.relevance / weights.total
    for node_id in pool.derived():
        # What the question names counts in full, what it only leads to as events do.
        led = GRAPH_SHARES[pool.method] if pool.depths.get(node_id) else 1.0
        score = min(1.0, led * pool.graph[node_id])
        yield pool.ranked(node_id, rank=score * share, relevance=score)


def _ordered(ranked: Sequence[Ranked]) -> list[Ranked]:
    return sorted(ranked, key=lambda node: (-node.rank, node.node_id))


def in_turn(*channels: Iterable[Hit]) -> list[str]:
    """Event ids: first the best of each channel, then the second …, so a bound cuts all alike."""
    places = zip_longest(*([hit.event_id for hit in hits] for hits in channels))
    return list(
        dict.fromkeys(node_id for place in places for node_id in place if node_id is not None)
    )


def coverage(words: Sequence[str], candidates: Sequence[Candidate]) -> dict[str, float]:
    """How much of a question each event says in its own words, the best being 1, by event id.

    Words count by how few of the events have them; of two events that say the same the shorter
    one says it more.
    """
    terms = {stem(word) for word in words}
    stems = {
        candidate.event_id: held
        for candidate in candidates
        if not (held := candidate.passage.stems).keys().isdisjoint(terms)
    }
    holding = Counter(word for held in stems.values() for word in terms & held.keys())
    weight = {word: math.log1p(len(candidates) / count) for word, count in holding.items()}
    scores = {
        event_id: sum(weight[word] for word in sorted(terms & held.keys()))
        / (1 + _LENGTH_SHARE * len(held))
        for event_id, held in stems.items()
    }
    best = max(scores.values(), default=0.0)
    return {event_id: score / best for event_id, score in scores.items()}


def holding(identifiers: Sequence[str], candidates: Iterable[Candidate]) -> frozenset[str]:
    """Ids of the events that hold all the identifiers; none without any."""
    return frozenset(
        candidate.event_id
        for candidate in candidates
        if identifiers and all(identifier in _said(candidate.passage) for identifier in identifiers)
    )


def anchors(covered: Mapping[str, float], held: Set[str]) -> dict[str, float]:
    """What is covered, of the events that hold the identifiers alone if any of them does."""
    holding = {event_id: score for event_id, score in covered.items() if event_id in held}
    best = max(holding.values(), default=0.0)
    return {event_id: score / best for event_id, score in holding.items()} or dict(covered)


def _said(passage: Passage) -> str:
    return f"{passage.text} {passage.tool_name.lower()}"


def led_to(
    covered: Mapping[str, float],
    edges: Iterable[StepEdge],
    intents: Mapping[Intent, float],
    policy: Policy = DEFAULT_POLICY,
) -> dict[str, float]:
    """What the best path from another event that says it is worth, 0 to 1, by event id.

    Args:
        covered: of `anchors`; its square is what an anchor passes on.
        edges: that were met.
        intents: whose edges lead, with their confidences.
        policy: whose weights count.
    """
    best = sorted(covered, key=lambda event_id: (-covered[event_id], event_id))[:MAX_ANCHORS]
    edges = list(edges)
    led: dict[str, float] = {}
    for intent, confidence in intents.items():
        ways = ways_of(edges, policy.weights[intent], hop_share=HOP_SHARE)
        for anchor in best:
            paths = path_scores({anchor: covered[anchor] ** 2}, ways, MAX_HOPS)
            for node_id, score in paths.items():
                if node_id != anchor:
                    led[node_id] = max(led.get(node_id, 0.0), confidence * score)
    return led


def diversified(
    ranked: Sequence[Ranked], vectors: Mapping[str, HalfVector], diversity: float
) -> list[Ranked]:
    """The ranking with each next node chosen by rank and by how little it is like those before.

    value = (1 - diversity) · rank + diversity · (1 - the largest cosine to a node before it),
    which becomes the rank; it never rises from one node to the next.

    Args:
        ranked: the best first; its first MAX_COMPARED are reordered.
        vectors: of unit length, by node id; what has none is like nothing.
        diversity: 0 (as it was) to 1 (likeness alone).
    """
    head, behind = list(ranked[:MAX_COMPARED]), list(ranked[MAX_COMPARED:])
    if diversity <= 0 or not head:
        return list(ranked)
    size = max((len(vector) for vector in vectors.values()), default=1)
    matrix = numpy.zeros((len(head), size))
    for place, node in enumerate(head):
        if node.node_id in vectors:
            matrix[place] = vectors[node.node_id]
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
