"""How much a memory counts now: the decay score, and the quality of an edge on a path.

Pure: the clock and the counts come in as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from consolidation import decay
from consolidation.decay import HOUR_MS, NEUTRAL_RELEVANCE, DecayWeights

NEARNESS_SCALE_MS = HOUR_MS
MIN_NEARNESS = 0.1


class Weights(NamedTuple):
    """How much recency, importance and relevance count against each other."""

    recency: float = 1.0
    importance: float = 1.0
    relevance: float = 1.0


DECAY_WEIGHTS = Weights()
"""Of the decay score, always; rankings may weigh otherwise."""


def decay_score(
    *,
    used_at_ms: int,
    now_ms: int,
    importance: float,
    access_count: int = 0,
    relevance: float = NEUTRAL_RELEVANCE,
    weights: Weights = DECAY_WEIGHTS,
) -> float:
    """S0's score from 0 to 1: the weighted mean of recency, importance / 10 and relevance.

    Args:
        used_at_ms: the later of occurrence and last access; the future counts as now.
        now_ms: the clock, same epoch.
        importance: 0 to 10.
        access_count: how often it was read, 0 or more.
        relevance: 0 to 1.
        weights: of the three.
    """
    parts = DecayWeights(*weights)
    return decay.decay_score(
        now_ms, used_at_ms, None, access_count, importance, relevance, None, parts
    )


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
