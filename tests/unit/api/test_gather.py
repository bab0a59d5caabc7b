"""Channels run side by side; a slow or broken one is left out and named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from api.retrieval.channels import Work, run_side_by_side
from projections.errors import GraphRejected, GraphUnavailable, QueryTimeout

LONG_MS = 60_000


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def failing(error: Exception) -> Work:
    def work(timeout_ms: int) -> None:
        raise error

    return work


def test_each_channel_has_its_outcome(pool: ThreadPoolExecutor) -> None:
    outcomes = run_side_by_side(
        pool,
        {
            "fine": lambda ms: ms,
            "away": failing(GraphUnavailable(reason="x")),
            "late": failing(QueryTimeout(timeout_ms=1, reason="x")),
            "refused": failing(GraphRejected(reason="x")),
        },
        LONG_MS,
    )
    assert {name: one.status for name, one in outcomes.items()} == {
        "fine": "ok",
        "away": "unavailable",
        "late": "timeout",
        "refused": "failed",
    }
    assert outcomes["fine"].value == LONG_MS


def test_channels_do_not_wait_for_each_other(pool: ThreadPoolExecutor) -> None:
    meeting = threading.Barrier(2)
    work = {name: lambda ms: meeting.wait(30) for name in "ab"}
    outcomes = run_side_by_side(pool, work, LONG_MS)
    assert [one.status for one in outcomes.values()] == ["ok", "ok"]


def test_a_channel_that_does_not_come_back_is_given_up(pool: ThreadPoolExecutor) -> None:
    release = threading.Event()
    try:
        outcomes = run_side_by_side(
            pool, {"slow": lambda ms: release.wait(60), "fine": lambda ms: 1}, 20
        )
    finally:
        release.set()
    assert (outcomes["slow"].status, outcomes["slow"].value) == ("timeout", None)
    assert outcomes["fine"].value == 1


def test_a_defect_is_not_hidden(pool: ThreadPoolExecutor) -> None:
    with pytest.raises(ZeroDivisionError):
        run_side_by_side(pool, {"broken": lambda ms: 1 // 0}, LONG_MS)
