"""Where a subgraph query begins: what the channels found, joined by reciprocal ranks.

Pure. Ranks and not scores, because a BM25 score, a cosine and a match of a name have no common
scale; the final order is not made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pipelines.graph.reads.channels import SessionEvent

RANK_OFFSET: Final = 60
"""k of the reciprocal ranks: 1 / (k + rank)."""
MAX_SEEDS: Final = 24
MAX_ENTITY_SEEDS: Final = 8
CONTEXT_SCORE: Final = 0.3
"""Of the session's own entity and of the most important of its last events."""
CONTEXT_EVENTS: Final = 5


def fused_ranks(channels: Iterable[Iterable[str]], offset: int = RANK_OFFSET) -> dict[str, float]:
    """Sum of 1 / (offset + rank) over the channels, by id, the best first and scaled to be 1.

    Args:
        channels: ids, best first.
        offset: the larger, the more it counts to be found by several channels.
    """
    scores: dict[str, float] = {}
    for ids in channels:
        for rank, own_id in enumerate(dict.fromkeys(ids), 1):
            scores[own_id] = scores.get(own_id, 0.0) + 1.0 / (offset + rank)
    best = max(scores.values(), default=1.0)
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return {own_id: score / best for own_id, score in ordered}


def most_important(events: Iterable[SessionEvent], most: int = CONTEXT_EVENTS) -> list[str]:
    """Ids of the most important events, of equal ones the newest first."""

    def order(event: SessionEvent) -> tuple[int, int, str]:
        return -event.importance, -event.occurred_at_ms, event.event_id

    return [event.event_id for event in sorted(events, key=order)[:most]]


def joined_seeds(*parts: Mapping[str, float]) -> dict[str, float]:
    """All of them, each with its best score, the best first."""
    best: dict[str, float] = {}
    for part in parts:
        for own_id, score in part.items():
            best[own_id] = max(score, best.get(own_id, 0.0))
    return dict(sorted(best.items(), key=lambda item: (-item[1], item[0])))
