"""The decay score and the quality of edges, against figures worked out by hand."""

from __future__ import annotations

import math

import pytest

from api.retrieval.rank import Weights, decay_score, edge_quality
from consolidation.decay import HOUR_MS


def test_the_future_counts_as_now() -> None:
    assert decay_score(used_at_ms=9_000_000, now_ms=0, importance=7) == decay_score(
        used_at_ms=0, now_ms=0, importance=7
    )


def test_score_is_the_mean_of_its_three_parts() -> None:
    score = decay_score(used_at_ms=0, now_ms=0, importance=7, relevance=0.5)
    assert score == pytest.approx((1.0 + 0.7 + 0.5) / 3)


def test_weights_shift_the_score() -> None:
    score = decay_score(
        used_at_ms=0, now_ms=0, importance=10, relevance=0.2, weights=Weights(0.05, 0.05, 1.0)
    )
    assert score == pytest.approx((0.05 + 0.05 + 0.2) / 1.1)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, 1.0),
        ({"mechanism": "direct"}, 1.0),
        ({"mechanism": "inferred", "confidence": 0.4}, 0.4),
        ({"score": 0.9}, 0.9),
        ({"delta_ms": 0}, 1.0),
        ({"delta_ms": HOUR_MS}, 1 / math.e),
        ({"delta_ms": 100 * HOUR_MS}, 0.1),
    ],
)
def test_an_edge_is_as_good_as_it_says(properties: dict[str, object], expected: float) -> None:
    assert edge_quality(properties) == pytest.approx(expected)
