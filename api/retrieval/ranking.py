"""From what the channels and the walk found to one order of nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from api.retrieval.candidates import Candidate, merged_relevance
from api.retrieval.rank import MAX_IMPORTANCE, Weights, weighted_score
from api.retrieval.seeds import fused_ranks
from api.schemas import Channel
from pipelines.adapters.retrieval_reads import CandidateRow, Hit, label_and_id
from projections.schema import EVENT

MAX_WITH_NEIGHBOURS: Final = 120
"""Candidates whose neighbours in their session are candidates too."""
MAX_CANDIDATES: Final = 500


class Ranked(NamedTuple):
    """A node of the ranking; `found_by` are the channels that found it."""

    node_id: str
    rank: float
    relevance: float
    depth: int | None = None
    found_by: tuple[Channel, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """What may be ranked.

    Attributes:
        text, near: hits of full text and of the vector index, by event id, the best first.
        graph: worth of the paths from the seeds, by wire id.
        depths: edges from the nearest seed, by wire id.
    """

    text: Mapping[str, Hit] = field(default_factory=dict)
    near: Mapping[str, Hit] = field(default_factory=dict)
    graph: Mapping[str, float] = field(default_factory=dict)
    depths: Mapping[str, int] = field(default_factory=dict)

    def events(self) -> list[str]:
        """Ids of all events: the channels' in turn, then the walk's by their worth."""
        return list(dict.fromkeys([*_in_turn(self.text, self.near), *self._reached(events=True)]))

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


def ranking(
    pool: Pool, rows: Sequence[CandidateRow], weights: Weights, now_ms: int
) -> list[Ranked]:
    """Everything of the pool by rank, the best first; what is derived ranks by its paths.

    Args:
        pool: what was found.
        rows: what is known of its events; those without a row are not ranked.
        weights: of recency, importance and relevance.
        now_ms: the clock for recency.
    """
    relevance = merged_relevance(
        [
            Candidate(
                row.event_id,
                pool.text[row.event_id].score if row.event_id in pool.text else 0.0,
                row.cosine,
                pool.graph.get(row.event_id, 0.0),
            )
            for row in rows
        ]
    )
    ranked = [
        Ranked(
            row.event_id,
            weighted_score(
                weights,
                used_at_ms=max(row.occurred_at_ms, row.accessed_at_ms),
                now_ms=now_ms,
                importance=min(float(MAX_IMPORTANCE), row.importance),
                access_count=row.access_count,
                relevance=relevance[row.event_id],
            ),
            relevance[row.event_id],
            pool.depths.get(row.event_id),
            pool.found_by(row.event_id),
        )
        for row in rows
    ]
    return _ordered([*ranked, *_derived(pool, weights)])


def ranking_without_rows(pool: Pool, weights: Weights) -> list[Ranked]:
    """The same when nothing more could be read in time: events by their ranks in the channels."""
    fused = fused_ranks([pool.text, pool.near, list(pool.events())])
    share = weights.relevance / sum(weights)
    ranked = [
        Ranked(node_id, score * share, score, pool.depths.get(node_id), pool.found_by(node_id))
        for node_id, score in fused.items()
    ]
    return _ordered([*ranked, *_derived(pool, weights)])


def _derived(pool: Pool, weights: Weights) -> Iterator[Ranked]:
    share = weights.relevance / sum(weights)
    for node_id in pool.derived():
        score = min(1.0, pool.graph[node_id])
        yield Ranked(
            node_id, score * share, score, pool.depths.get(node_id), pool.found_by(node_id)
        )


def _ordered(ranked: Sequence[Ranked]) -> list[Ranked]:
    return sorted(ranked, key=lambda one: (-one.rank, one.node_id))


def _in_turn(*channels: Mapping[str, Hit]) -> Iterator[str]:
    """First the best of each, then the second …, so that a bound cuts all alike."""
    ordered = [list(one) for one in channels]
    for place in range(max(map(len, ordered), default=0)):
        for ids in ordered:
            if place < len(ids):
                yield ids[place]
