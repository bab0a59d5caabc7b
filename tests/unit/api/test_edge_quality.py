"""The quality of edges, against figures worked out by hand."""

from __future__ import annotations

import math

import pytest

from consolidation.decay import HOUR_MS
from pipelines.columns.graph_scores import edge_qualities


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
    assert edge_qualities([properties, {}]).tolist() == pytest.approx([expected, 1.0])
