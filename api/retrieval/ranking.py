"""From what the channels and the walk found to one order of nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NamedTuple

from api.retrieval.anchors import anchors, coverage, holding, led_to
from api.retrieval.candidate_text import Candidate
from api.retrieval.intent import Intent
from api.retrieval.query_terms import QueryTerms
from api.retrieval.relevance import DEFAULT_WEIGHTS, RelevanceWeights, relevance
from api.retrieval.seeds import fused_ranks
from api.schemas import Channel, RetrievalMethod
from consolidation.decay import HIGHEST_IMPORTANCE, DecayWeights, decay_score
from pipelines.graph.reads.channels import Hit
from pipelines.graph.reads.scope import label_and_id
from pipelines.graph.reads.walk import StepEdge
from pipelines.observe.metrics import Signal
from projections.schema import EVENT

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
    """

    text: Mapping[str, Hit] = field(default_factory=dict)
    near: Mapping[str, Hit] = field(default_factory=dict)
    graph: Mapping[str, float] = field(default_factory=dict)
    depths: Mapping[str, int] = field(default_factory=dict)
    method: RetrievalMethod = "intent_weighted"
    edges: Sequence[StepEdge] = ()
    path_intents: Mapping[Intent, float] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)

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
        found: list[Channel] = []
        if node_id in self.text:
            found.append("text")
        if node_id in self.near:
            found.append("vector")
        depth = self.depths.get(node_id)
        if depth == 0 and not found:
            found.append("context" if is_event(node_id) else "entity")
        if depth is not None and depth > 0:
            found.append("graph")
        return tuple(found)

    def _reached(self, *, events: bool) -> Iterator[str]:
        ordered = sorted(self.graph, key=lambda node_id: (-self.graph[node_id], node_id))
        return (node_id for node_id in ordered if is_event(node_id) is events)


def is_event(node_id: str) -> bool:
    """Whether a wire id is an event's."""
    return label_and_id(node_id)[0] == EVENT.label


def merged_scores(
    pool: Pool,
    candidates: Sequence[Candidate],
    answering: Mapping[str, float],
    terms: QueryTerms,
) -> dict[str, float]:
    """Relevance of events, 0 to 1: what they say, and what leads to them.

    What holds the identifiers that a question names is meant before all that does not. Where the
    question asks for what stands beside something (why, what came before, what is like it), the
    paths from the events that say it add. Otherwise the best path counts for a share of what a
    perfect answer would: it brings in what the words do not tell, and never above what they
    clearly do; and what many ways lead to gains. The two other methods always add what they found.
    """
    held = holding(terms.identifiers, candidates)
    said = {
        event_id: (score + (event_id in held)) / 2 if held else score
        for event_id, score in answering.items()
    }
    if pool.method != "intent_weighted":
        return _with_worth(pool, said)
    if pool.path_intents:
        return _with_paths(pool, candidates, said, terms, held)
    return _with_ways(pool, said)


def _with_worth(pool: Pool, said: Mapping[str, float]) -> dict[str, float]:
    share = GRAPH_SHARES[pool.method]
    return {
        event_id: (score + share * min(1.0, pool.graph.get(event_id, 0.0))) / (1 + share)
        for event_id, score in said.items()
    }


def _with_paths(
    pool: Pool,
    candidates: Sequence[Candidate],
    said: Mapping[str, float],
    terms: QueryTerms,
    held: Set[str],
) -> dict[str, float]:
    covered = coverage(terms.words, candidates)
    beside = led_to(anchors(covered, held), pool.edges, pool.path_intents)
    merged = {}
    for event_id, score in said.items():
        own = COVERAGE_WEIGHT * covered.get(event_id, 0.0)
        paths = PATH_WEIGHT * beside.get(event_id, 0.0)
        merged[event_id] = (score + own + paths) / (1 + COVERAGE_WEIGHT + PATH_WEIGHT)
    return merged


def _with_ways(pool: Pool, said: Mapping[str, float]) -> dict[str, float]:
    share = GRAPH_SHARES[pool.method]
    merged = {}
    for event_id, score in said.items():
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
    answering = relevance(terms, candidates, channel_weights)
    scores = merged_scores(pool, candidates, answering, terms)
    ranked = [
        Ranked(
            one.event_id,
            decay_score(
                now_ms,
                one.passage.occurred_at_ms,
                one.accessed_at_ms,
                one.access_count,
                min(float(HIGHEST_IMPORTANCE), one.importance),
                scores[one.event_id],
                weights=weights,
            ),
            scores[one.event_id],
            pool.depths.get(one.event_id),
            pool.found_by(one.event_id),
        )
        for one in candidates
    ]
    return _ordered([*ranked, *_derived(pool, weights)])


def ranking_without_candidates(pool: Pool, weights: DecayWeights) -> list[Ranked]:
    """The same when nothing more could be read in time: events by their ranks in the channels."""
    fused = fused_ranks([pool.text, pool.near, list(pool.events())])
    share = weights.relevance / weights.total
    ranked = [
        Ranked(node_id, score * share, score, pool.depths.get(node_id), pool.found_by(node_id))
        for node_id, score in fused.items()
    ]
    return _ordered([*ranked, *_derived(pool, weights)])


def _derived(pool: Pool, weights: DecayWeights) -> Iterator[Ranked]:
    share = weights.relevance / weights.total
    for node_id in pool.derived():
        # What the question names counts in full, what it only leads to as events do.
        led = GRAPH_SHARES[pool.method] if pool.depths.get(node_id) else 1.0
        score = min(1.0, led * pool.graph[node_id])
        yield Ranked(
            node_id, score * share, score, pool.depths.get(node_id), pool.found_by(node_id)
        )


def _ordered(ranked: Sequence[Ranked]) -> list[Ranked]:
    return sorted(ranked, key=lambda one: (-one.rank, one.node_id))


def in_turn(*channels: Iterable[Hit]) -> list[str]:
    """Event ids: first the best of each channel, then the second …, so a bound cuts all alike."""
    places = zip_longest(*([hit.event_id for hit in hits] for hits in channels))
    return list(dict.fromkeys(one for place in places for one in place if one is not None))
