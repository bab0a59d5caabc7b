"""From an append that returned to the event in the graph, under a steady, open load.

Every 20 ms the events that are due are appended, whether the earlier ones are projected or not. A
thread asks the graph for its checkpoints every few milliseconds: an event is visible when the
checkpoint of its partition has reached its position, because both commit together. So a lag is
known up to the interval between two answers, which is printed too.
"""

from __future__ import annotations

import statistics
import threading
import time
from itertools import islice, pairwise
from typing import Any

from pipelines.ledger.ledger import Appended
from pipelines.work.stages import PROJECTION
from projections.identity import START, Position
from tests.bench.sample import sample_events
from tests.bench.stack import PATIENCE_S, Stack
from tests.waiting import wait_until

EVENTS_PER_S = 500
TICK_S = 0.02
POLL_S = 0.003


class _Watch:
    """Sees checkpoints move; `seen` is (when the answer came, position by partition)."""

    def __init__(self, stack: Stack) -> None:
        self._writer = stack.services.graph(stack.services.active())
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")
        self.seen: list[tuple[float, dict[int, Position]]] = []

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(POLL_S):
            found = {c.partition: c.position for c in self._writer.checkpoints(PROJECTION.name)}
            self.seen.append((time.perf_counter(), found))


def measure(stack: Stack, seconds: float, *, seed: int = 11) -> dict[str, Any]:
    """Figures of a worker on the graph as it is, which grows by 500 events a second.

    Args:
        stack: the services.
        seconds: how long events are appended.
        seed: of the events; one that the ledger does not hold the events of.
    """
    appended: list[tuple[float, int, Position]] = []
    calls_s: list[float] = []
    events = sample_events(int(EVENTS_PER_S * (seconds + 5)), seed=seed)
    with stack.worker(), _Watch(stack) as watch:
        wait_until(lambda: watch.seen, "an event is seen", PATIENCE_S)
        _append(stack, events, EVENTS_PER_S * 2)  # its plans and code are warm after this
        stack.wait_projected()
        begun = time.perf_counter()
        done = 0
        while (passed := time.perf_counter() - begun) < seconds:
            due = int(passed * EVENTS_PER_S) - done
            if due:
                batch = list(islice(events, due))
                called = time.perf_counter()
                outcomes = stack.ledger.append(batch)
                calls_s.append(time.perf_counter() - called)
                for outcome in outcomes:
                    assert isinstance(outcome, Appended)
                    appended.append((time.perf_counter(), outcome.partition, outcome.position))
                done += due
            time.sleep(max(0.0, begun + passed + TICK_S - time.perf_counter()))
        stack.wait_projected()
        last = time.perf_counter()
        wait_until(lambda: watch.seen[-1][0] > last, "the last one is seen", PATIENCE_S)
    lags = sorted(_lags(appended, watch.seen))
    answers = [at for at, _ in watch.seen]
    gaps = sorted(b - a for a, b in pairwise(answers))
    return {
        "events": len(lags),
        "offered_per_s": round(len(lags) / seconds),
        "p50_ms": round(statistics.median(lags) * 1e3, 1),
        "p95_ms": round(lags[int(len(lags) * 0.95)] * 1e3, 1),
        "max_ms": round(lags[-1] * 1e3, 1),
        "append_p50_ms": round(statistics.median(calls_s) * 1e3, 2),
        "append_p95_ms": round(sorted(calls_s)[int(len(calls_s) * 0.95)] * 1e3, 2),
        "resolution_p50_ms": round(statistics.median(gaps) * 1e3, 1),
        "resolution_p95_ms": round(gaps[int(len(gaps) * 0.95)] * 1e3, 1),
    }


def _append(stack: Stack, events: Any, count: int) -> None:
    for outcome in stack.ledger.append(list(islice(events, count))):
        assert isinstance(outcome, Appended)


def _lags(
    appended: list[tuple[float, int, Position]], seen: list[tuple[float, dict[int, Position]]]
) -> list[float]:
    """Of each event: from its append to the first answer that shows it; at least 0."""
    lags: list[float] = []
    place: dict[int, int] = {}
    for at, partition, position in appended:
        n = place.get(partition, 0)
        while seen[n][1].get(partition, START) < position:
            n += 1
        place[partition] = n  # positions of a partition rise, so the search goes on from here
        lags.append(max(0.0, seen[n][0] - at))
    return lags
