"""The decay score of many events at once.

A module of its own: commands that only want the constants of decay load no numpy.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from consolidation.decay import (
    HIGHEST_IMPORTANCE,
    HOUR_MS,
    STABILITY_GAIN_H,
    STABILITY_H,
    DecayWeights,
)


def decay_scores(
    now_ms: int,
    occurred_at_ms: NDArray[Any],
    last_access_ms: NDArray[Any],
    access_count: NDArray[Any],
    *,
    importance: NDArray[Any],
    relevance: NDArray[Any],
    weights: DecayWeights,
) -> NDArray[Any]:
    """`decay_score` of many events at once; an access at 0 never was."""
    since_ms = numpy.where(
        (occurred_at_ms < last_access_ms) & (last_access_ms <= now_ms),
        last_access_ms,
        occurred_at_ms,
    )
    age_h = numpy.maximum(0, now_ms - since_ms) / HOUR_MS
    recencies = numpy.exp(-age_h / (STABILITY_H + STABILITY_GAIN_H * numpy.log(1 + access_count)))
    score = (
        weights.recency * recencies
        + weights.importance * importance / HIGHEST_IMPORTANCE
        + weights.relevance * relevance
    )
    return numpy.asarray(numpy.minimum(1.0, score / weights.total))
