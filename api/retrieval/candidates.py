"""What is known of an event that may be the answer, and what that makes it worth.

Pure. Relevance is the merged score of the channels: each is brought to a common scale by what is
usual for this query (mean and deviation over the candidates), so that a channel that tells nothing
apart here counts nothing, and the best one is not diluted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

TEXT_WEIGHT: Final = 1.0
VECTOR_WEIGHT: Final = 1.0
GRAPH_WEIGHT: Final = 0.25


class Candidate(NamedTuple):
    """An event that some channel found.

    Attributes:
        text_score: of the full-text index, 0 when it did not find the event.
        cosine: plain, with the query; None: one of them has no vector.
        graph_score: what the paths from the seeds are worth, 0 to about 1.
    """

    event_id: str
    text_score: float
    cosine: float | None
    graph_score: float


def merged_relevance(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Relevance of each candidate, 0 to 1, the best of the query being 1."""
    columns: list[tuple[float, list[float]]] = [
        (TEXT_WEIGHT, [one.text_score for one in candidates]),
        (VECTOR_WEIGHT, _filled([one.cosine for one in candidates])),
        (GRAPH_WEIGHT, [one.graph_score for one in candidates]),
    ]
    sums = [0.0] * len(candidates)
    for weight, values in columns:
        for place, value in enumerate(_standardised(values)):
            sums[place] += weight * value
    return _scaled({one.event_id: value for one, value in zip(candidates, sums, strict=True)})


def _filled(values: Sequence[float | None]) -> list[float]:
    """What is missing counts as the least."""
    least = min((value for value in values if value is not None), default=0.0)
    return [least if value is None else value for value in values]


def _standardised(values: Sequence[float]) -> list[float]:
    if not values:
        return []
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return [(value - mean) / deviation if deviation > 0 else 0.0 for value in values]


def _scaled(values: Mapping[str, float]) -> dict[str, float]:
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    width = high - low
    return {key: (value - low) / width if width > 0 else 1.0 for key, value in values.items()}
