"""How long something took, in words."""

from __future__ import annotations

import pytest

from api.retrieval.durations import duration_text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (320, "320 ms"),
        (1_000, "1 s"),
        (59_600, "1 min"),
        (140_000, "2 min 20 s"),
        (3_600_000, "1 h"),
        (3_661_000, "1 h 1 min"),
        (90_000_000, "1 d 1 h"),
        (864_000_000 + 59_000, "10 d"),
    ],
)
def test_the_two_largest_units_are_told(ms: int, text: str) -> None:
    assert duration_text(ms) == text
