"""Open loop: a question begins when its time has come, whether or not the last one is answered."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple


class Latency(NamedTuple):
    """Of one measurement, ms from when a question should have begun; `failed` got no answer."""

    name: str
    rate: float
    asked: int
    p50: float
    p95: float
    p99: float
    failed: int


class Timings:
    """How long things took, as threads tell it."""

    def __init__(self) -> None:
        self._took_ms: list[float] = []
        self._failed = 0
        self._guard = threading.Lock()

    def add(self, took_ms: float, *, is_answered: bool = True) -> None:
        """One of them is over."""
        with self._guard:
            self._took_ms.append(took_ms)
            self._failed += not is_answered

    def latency(self, name: str, rate: float) -> Latency:
        """What they come to; zeros where nothing was asked."""
        with self._guard:
            took = sorted(self._took_ms)
            p50, p95, p99 = (_quantile(took, share) for share in (0.5, 0.95, 0.99))
            return Latency(name, rate, len(took), p50=p50, p95=p95, p99=p99, failed=self._failed)


def measured(
    name: str,
    ask: Callable[[int], bool],
    *,
    rate: float,
    count: int,
    threads: int = 64,
    unanswered: tuple[type[Exception], ...] = (),
) -> Latency:
    """Ask `count` times at `rate` a second.

    Args:
        name: of what is asked.
        ask: with the number of the question; whether it was answered.
        rate: questions a second.
        count: questions.
        threads: that may wait for an answer at once.
        unanswered: errors of `ask` that are an answer that did not come.
    """
    begun_s = time.perf_counter() + 0.2
    timings = Timings()

    def one(number: int) -> None:
        due_s = begun_s + number / rate
        time.sleep(max(0.0, due_s - time.perf_counter()))
        try:
            is_answered = ask(number)
        except unanswered:
            is_answered = False
        timings.add((time.perf_counter() - due_s) * 1000, is_answered=is_answered)

    with ThreadPoolExecutor(threads) as pool:
        waiting = []
        for number in range(count):
            time.sleep(max(0.0, begun_s + number / rate - time.perf_counter() - 0.05))
            waiting.append(pool.submit(one, number))
        for each in waiting:
            each.result()
    return timings.latency(name, rate)


def _quantile(ordered: Sequence[float], share: float) -> float:
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
