"""The decay score and the quality of edges, against figures worked out by hand."""

from __future__ import annotations

import math

import pytest

from api.retrieval.rank import Weights, decay_score, edge_quality
from consolidation.decay import HOUR_MS


def recency(used_at_ms: int, now_ms: int, access_count: int = 0) -> float:
    """The score where nothing else weighs."""
    return decay_score(
        used_at_ms=used_at_ms,
        now_ms=now_ms,
        importance=7,
        access_count=access_count,
        weights=Weights(1.0, 0.0, 0.0),
    )


def test_what_happens_now_has_full_recency() -> None:
    assert recency(1_000, 1_000) == 1.0


def test_the_future_counts_as_now() -> None:
    assert recency(2_000_000, 1_000) == 1.0


def test_a_week_without_access_leaves_one_part_in_e() -> None:
    assert recency(0, 168 * HOUR_MS) == pytest.approx(1 / math.e)


def test_reading_a_memory_makes_it_last() -> None:
    # S = 168 + 24 ln(1 + 9)
    expected = math.exp(-168 / (168 + 24 * math.log(10)))
    assert recency(0, 168 * HOUR_MS, access_count=9) == pytest.approx(expected)


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
