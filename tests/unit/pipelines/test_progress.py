"""Whether a worker gets on, by a clock of the test's own; and how it says so over HTTP."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from pipelines.observe import metrics
from pipelines.observe.progress import BLOCK_S, LOOP_S, Progress


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    return Progress(clock)


def test_a_loop_that_stands_is_named(progress: Progress, clock: Clock) -> None:
    progress.expect(["reader", "leases"])
    clock.now_s += LOOP_S
    assert progress.problem() is None
    progress.turned("leases")
    clock.now_s += 1
    assert progress.problem() == "the loop reader has not turned for 61 s"
    progress.turned("reader")
    assert progress.problem() is None


def test_a_block_in_hand_must_move_or_wait_by_name(progress: Progress, clock: Clock) -> None:
    progress.took([3])
    clock.now_s += BLOCK_S
    progress.waits("Neo4j is away")
    clock.now_s += BLOCK_S
    assert (progress.problem(), progress.reason) == (None, "Neo4j is away")
    clock.now_s += 1
    assert progress.problem() == "partition 3 has not moved for 601 s"
    progress.let_go([3])
    assert (progress.problem(), progress.reason) == (None, "")


def test_a_worker_without_work_is_well(progress: Progress, clock: Clock) -> None:
    progress.waits("nothing in hand")
    clock.now_s += 10 * BLOCK_S
    assert progress.problem() is None


def test_health_says_what_does_not_move() -> None:
    problems: list[str | None] = [None, "the loop reader has not turned for 61 s"]
    with metrics.MetricsServer(problem=lambda: problems.pop(0)) as server:
        url = f"http://127.0.0.1:{server.port}{metrics.HEALTH_PATH}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            assert (answer.status, answer.read()) == (200, b"ok\n")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=5)
    assert refused.value.code == 503
    assert b"reader" in refused.value.read()
