"""How much a memory counts now: the decay score, and the quality of an edge on a path.

Pure: the clock and the counts come in as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from consolidation.decay import HOUR_MS

BASE_STABILITY_HOURS = 168.0
"""A memory that is never read keeps 1/e of its recency after a week."""

_STABILITY_GAIN = 24.0 / BASE_STABILITY_HOURS
NEUTRAL_RELEVANCE = 0.5
"""Relevance when nobody asked a question."""

MAX_IMPORTANCE = 10
NEARNESS_SCALE_MS = HOUR_MS
MIN_NEARNESS = 0.1


class Weights(NamedTuple):
    """How much recency, importance and relevance count against each other."""

    recency: float = 1.0
    importance: float = 1.0
    relevance: float = 1.0


DECAY_WEIGHTS = Weights()
"""Of the decay score, always; rankings may weigh otherwise."""


def recency(used_at_ms: int, now_ms: int, access_count: int = 0) -> float:
    """e^(-t/S): 1 just now, falling slower the more often the memory was read.

    Args:
        used_at_ms: the later of occurrence and last access; the future counts as now.
        now_ms: the clock, same epoch.
        access_count: how often it was read, 0 or more.
    """
    hours = max(0, now_ms - used_at_ms) / HOUR_MS
    stability = BASE_STABILITY_HOURS * (1 + _STABILITY_GAIN * math.log1p(access_count))
    return math.exp(-hours / stability)


def weighted_score(
    weights: Weights,
    *,
    used_at_ms: int,
    now_ms: int,
    importance: float,
    relevance: float,
    access_count: int = 0,
) -> float:
    """The weighted mean of recency, importance / 10 and relevance, 0 to 1; see `decay_score`."""
    return decay_score(
        used_at_ms=used_at_ms,
        now_ms=now_ms,
        importance=importance,
        access_count=access_count,
        relevance=relevance,
        weights=weights,
    )


def decay_score(
    *,
    used_at_ms: int,
    now_ms: int,
    importance: float,
    access_count: int = 0,
    relevance: float = NEUTRAL_RELEVANCE,
    weights: Weights = DECAY_WEIGHTS,
) -> float:
    """S0's score from 0 to 1: the weighted mean of recency, importance / 10 and relevance."""
    weighted = (
        weights.recency * recency(used_at_ms, now_ms, access_count)
        + weights.importance * importance / MAX_IMPORTANCE
        + weights.relevance * relevance
    )
    return weighted / sum(weights)


def edge_quality(properties: Mapping[str, Any]) -> float:
    """How far an edge is to be trusted, 0 to 1, from what it says about itself.

    Its confidence (inferred causes, facts) or cosine (similarity); the nearness in time of two
    events that follow each other, never below 0.1; 1 for what is simply so.
    """
    for name in ("confidence", "score"):
        value = properties.get(name)
        if value is not None:
            return min(1.0, max(0.0, float(value)))
    delta_ms = properties.get("delta_ms")
    if delta_ms is not None:
        return max(MIN_NEARNESS, math.exp(-delta_ms / NEARNESS_SCALE_MS))
    return 1.0
