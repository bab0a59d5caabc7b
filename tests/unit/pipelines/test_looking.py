"""Verify looks, mends what differs, and looks again when the graph broke off."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pipelines.proof import report
from pipelines.proof.report import LOOKS, MENDING_ROUNDS, ComparisonReport, looked
from projections.errors import GraphUnavailable


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_PAUSE_S", 0.0)


def looks(*found: int | None) -> Callable[[], ComparisonReport]:
    """A look after the other: so many differences, None: the graph breaks off."""
    left = list(found)

    def look() -> ComparisonReport:
        count = left.pop(0)
        if count is None:
            raise GraphUnavailable(reason="no answer came")
        return ComparisonReport(difference_count=count)

    return look


def test_a_look_that_breaks_off_is_begun_again() -> None:
    found = looked(time.perf_counter(), looks(None, None, 0), None)
    assert found.ok
    assert found.duration_s > 0


def test_a_graph_that_always_breaks_off_is_said_to_be_away() -> None:
    look = looks(*[None] * LOOKS, 0)
    with pytest.raises(GraphUnavailable):
        looked(time.perf_counter(), look, None)
    assert look().ok, "not one look more was begun"


def test_what_differs_is_mended_until_nothing_does() -> None:
    found = looked(time.perf_counter(), looks(5, 2, 0, 7), lambda: 3)
    assert found.ok
    assert found.repaired == 6


def test_what_cannot_be_mended_is_left_after_some_rounds() -> None:
    found = looked(time.perf_counter(), looks(*range(9, 0, -1)), lambda: 1)
    assert found.difference_count == 9 - MENDING_ROUNDS
    assert found.repaired == MENDING_ROUNDS


def test_nothing_is_mended_unasked() -> None:
    assert looked(time.perf_counter(), looks(5, 0), None).difference_count == 5
