"""What ingest feels of work beside it: of an enrichment with a backlog, and of a rebuild.

Both are measured without and with that work in turns, on the same graph and the same cores; a
projection worker runs all the time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.ledger import Appended
from pipelines.work.stages import ENRICHMENT, PROJECTION
from projections.events import Event
from tests.bench import bench_lag
from tests.bench.sample import sample_events
from tests.bench.stack import PATIENCE_S, Stack
from tests.waiting import wait_until

BATCH = 100
_POLL_S = 0.2
_LAG_FIGURES = ("append_p50_ms", "append_p95_ms", "p50_ms", "p95_ms", "max_ms")


def measure_beside_enrichment(
    stack: Stack, *, backlog: int, seconds: float, rounds: int
) -> dict[str, Any]:
    """500 events/s, while nothing else runs and while a worker enriches a backlog.

    Args:
        stack: the services, which are emptied first.
        backlog: projected events that are not enriched.
        seconds: of one turn.
        rounds: turns of each kind.

    Raises:
        AssertionError: the backlog was too small to last.
    """
    stack.clear()
    with stack.worker():
        stack.append(sample_events(backlog, seed=13), backlog)
        stack.wait_projected()
    bench_lag.measure(stack, seconds, seed=99)  # Java compiles for the first half a minute of it
    alone: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    texts_per_s: list[float] = []
    for turn in range(rounds):
        alone.append(bench_lag.measure(stack, seconds, seed=100 + turn))
        with stack.worker(ENRICHMENT.name):
            first, begun = _wait_moved(stack), time.perf_counter()
            beside.append(bench_lag.measure(stack, seconds, seed=200 + turn))
            last = _done(stack)
            texts_per_s.append((last - first) / (time.perf_counter() - begun))
            assert last < backlog, "the backlog did not last; give it more events"
    return {
        "backlog": backlog,
        "left": backlog - _done(stack),
        "seconds": seconds,
        "offered_per_s": bench_lag.EVENTS_PER_S,
        "alone": _medians(alone),
        "beside": _medians(beside),
        "texts_per_s": round(statistics.median(texts_per_s), 1),
        "turns": {"alone": alone, "beside": beside},
    }


def _medians(turns: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {
        name: round(statistics.median(turn[name] for turn in turns), 2) for name in _LAG_FIGURES
    }


def _done(stack: Stack) -> int:
    return sum(stack.seqs(ENRICHMENT.name).values())


def _wait_moved(stack: Stack) -> int:
    """Until the enrichment has done something, its models loaded; how much it has done then."""
    before = _done(stack)
    wait_until(lambda: _done(stack) > before, "it folds", PATIENCE_S)
    return _done(stack)


def measure_beside_rebuild(
    stack: Stack, *, events: int, offered_per_s: int, seconds: float, rounds: int
) -> dict[str, Any]:
    """What one producer gets accepted, alone and while everything is folded into a second Neo4j.

    The producer sends a batch when the one before was accepted, `offered_per_s` at most; without
    that bound the rebuild would never catch up with it. For the same reason it stops when the
    rebuild has folded what there was at its start, and lets it end. What it could have sent
    without the bound is known from how long its calls took.

    Args:
        stack: the services, which are emptied first.
        events: in the ledger before the first turn.
        offered_per_s: the bound, events a second.
        seconds: longest time of one turn.
        rounds: turns of each kind.
    """
    stack.clear()
    more = sample_events(offered_per_s * int(seconds + 2) * 2 * rounds + BATCH, seed=17)
    alone: list[dict[str, float]] = []
    beside: list[dict[str, float]] = []
    rebuilt: list[dict[str, float]] = []
    with stack.worker():
        stack.append(sample_events(events), events)
        stack.wait_projected()
        for _ in range(rounds):
            alone.append(_produced(stack, more, offered_per_s, _over(seconds)))
            stack.wait_projected()
            with _rebuild(stack, rebuilt) as folded:
                beside.append(_produced(stack, more, offered_per_s, _over(seconds, folded)))
            stack.wait_projected()
    return {
        "events": events,
        "offered_per_s": offered_per_s,
        "events_per_s_alone": _median(alone, "events_per_s"),
        "events_per_s_beside": _median(beside, "events_per_s"),
        "ratio": _median_ratio(alone, beside, "events_per_s"),
        "unbounded_per_s_alone": _median(alone, "unbounded_per_s"),
        "unbounded_per_s_beside": _median(beside, "unbounded_per_s"),
        "unbounded_ratio": _median_ratio(alone, beside, "unbounded_per_s"),
        "append_p95_ms_alone": _median(alone, "append_p95_ms"),
        "append_p95_ms_beside": _median(beside, "append_p95_ms"),
        "turns": {"alone": alone, "beside": beside, "rebuilds": rebuilt},
    }


def _median(turns: Sequence[Mapping[str, float]], name: str) -> float:
    return round(statistics.median(turn[name] for turn in turns), 1)


def _median_ratio(
    alone: Sequence[Mapping[str, float]], beside: Sequence[Mapping[str, float]], name: str
) -> float:
    pairs = zip(alone, beside, strict=True)
    return round(statistics.median(one[name] / other[name] for other, one in pairs), 2)


@contextmanager
def _rebuild(stack: Stack, rebuilt: list[dict[str, float]]) -> Iterator[threading.Event]:
    """A rebuild that has begun to fold; set once it has folded what the ledger holds now."""
    Neo4jGraph(stack.green).clear()
    stack.services.targets.register(stack.green_target)
    there = sum(tail.seq for tail in stack.ledger.tails())
    folded, over = threading.Event(), threading.Event()
    child = stack.child("rebuild", "--into", "green", "--json", stdout=subprocess.PIPE)

    def progress() -> int:
        return sum(stack.seqs(PROJECTION.name, "green").values())

    def watch() -> None:
        while not over.wait(_POLL_S):
            if child.poll() is not None or progress() >= there:
                folded.set()
                return

    watching = threading.Thread(target=watch, name="watch")
    try:
        wait_until(lambda: child.poll() is not None or progress() > 0, "it folds", PATIENCE_S)
        watching.start()
        yield folded
        output, _ = child.communicate(timeout=PATIENCE_S)
    finally:
        over.set()
        if watching.ident is not None:
            watching.join()
        if child.poll() is None:
            child.terminate()
            child.wait(60)
    report = json.loads(output)
    assert report["ok"], report
    rebuilt.append({"events": report["entries"], "seconds": report["duration_s"]})
    stack.services.targets.drop("green")


def _over(seconds: float, folded: threading.Event | None = None) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() > end or (folded is not None and folded.is_set())


def _produced(
    stack: Stack, events: Iterator[Event], offered_per_s: int, until: Callable[[], bool]
) -> dict[str, float]:
    """Append until told to stop."""
    calls_s: list[float] = []
    begun = time.perf_counter()
    while not until():
        time.sleep(max(0.0, begun + len(calls_s) * BATCH / offered_per_s - time.perf_counter()))
        batch = list(islice(events, BATCH))
        called = time.perf_counter()
        outcomes = stack.ledger.append(batch)
        calls_s.append(time.perf_counter() - called)
        assert all(isinstance(one, Appended) and not one.duplicate for one in outcomes)
    seconds = time.perf_counter() - begun
    behind = sum(tail.seq for tail in stack.ledger.tails())
    behind -= sum(stack.seqs(PROJECTION.name).values())
    return {
        "seconds": round(seconds, 2),
        "events_per_s": round(len(calls_s) * BATCH / seconds, 1),
        "unbounded_per_s": round(len(calls_s) * BATCH / sum(calls_s), 1),
        "append_p50_ms": round(statistics.median(calls_s) * 1e3, 2),
        "append_p95_ms": round(sorted(calls_s)[int(len(calls_s) * 0.95)] * 1e3, 2),
        "lag_entries_at_end": behind,
    }
