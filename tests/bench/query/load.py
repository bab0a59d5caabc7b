"""Open loop: a question begins when its time has come, whether or not the last one is answered."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx


class Latency(NamedTuple):
    """Of one measurement, ms from when a question should have begun; `failed` got no answer."""

    name: str
    rate: float
    asked: int
    p50: float
    p95: float
    p99: float
    failed: int


def measured(
    name: str, ask: Callable[[int], bool], *, rate: float, count: int, threads: int = 64
) -> Latency:
    """Ask `count` times at `rate` a second.

    Args:
        name: of what is asked.
        ask: with the number of the question; whether it was answered.
        rate: questions a second.
        count: questions.
        threads: that may wait for an answer at once.
    """
    begun_s = time.perf_counter() + 0.2
    found: list[float] = []
    failed = 0
    guard = threading.Lock()

    def one(number: int) -> None:
        nonlocal failed
        due_s = begun_s + number / rate
        time.sleep(max(0.0, due_s - time.perf_counter()))
        try:
            answered = ask(number)
        except httpx.HTTPError:  # a connection that is reset is an answer that did not come
            answered = False
        took_ms = (time.perf_counter() - due_s) * 1000
        with guard:
            found.append(took_ms)
            failed += not answered

    with ThreadPoolExecutor(threads) as pool:
        for number in range(count):
            time.sleep(max(0.0, begun_s + number / rate - time.perf_counter() - 0.05))
            pool.submit(one, number)
    return Latency(
        name,
        rate,
        count,
        statistics.median(found),
        _quantile(found, 0.95),
        _quantile(found, 0.99),
        failed,
    )


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
