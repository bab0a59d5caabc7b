"""`python -m tests.bench.client_log`: what a call of the Python client's `log` costs its caller.

The events go to a thread as ever, but no further than a function that accepts them, so this holds
for a client whose API keeps up. The limit is 50 µs a call at the median.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from pydantic_core import from_json

from recollect.delivery import Outbox
from recollect.models import BatchResult
from recollect.sessions import Recorder

CALLS = 20_000
LIMIT_US = 50.0
QUIET_EVERY = 200
"""Calls, after which the thread is given time to empty the queue."""


def accepting(body: bytes) -> Sequence[BatchResult]:
    """Accept all events of a batch."""
    events = from_json(body)["events"]
    return [
        BatchResult(status=201, event_id=event["event_id"], global_position="1-0")
        for event in events
    ]


def timed_us(call: Callable[[], object], flush: Callable[[], object]) -> list[float]:
    """Microseconds of each call."""
    times = []
    for number in range(CALLS):
        if number % QUIET_EVERY == 0:
            flush()
        began_ns = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - began_ns) / 1_000)
    return times


def measure() -> dict[str, list[float]]:
    """Microseconds of each call, by what is called."""
    outbox = Outbox(accepting, most=100_000)
    recorder = Recorder(outbox, agent="agent", user=None, background=True)

    @recorder.tool
    def look_up(order: str) -> dict[str, object]:
        return {"order": order, "amount": 84.0}

    def flush() -> bool:
        return outbox.flush(30.0)

    with recorder.session("s-1") as session:
        arguments = {"order": "4711", "items": [1, 2, 3], "address": {"city": "Bern"}}
        try:
            return {
                "a message": timed_us(lambda: session.log("user", "My card was charged"), flush),
                "a call": timed_us(lambda: session.log("call", arguments, tool="pay"), flush),
                "a decorated function (two events)": timed_us(lambda: look_up("4711"), flush),
            }
        finally:
            outbox.close(30.0)


def main() -> None:
    """Print the figures."""
    for name, times in measure().items():
        ordered = sorted(times)
        at = {share: ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95, 0.99)}
        shares = ", ".join(f"p{share * 100:g} {us:.1f} µs" for share, us in at.items())
        print(f"{name}: {shares}; median limit {LIMIT_US:g} µs: {median(times) <= LIMIT_US}")  # noqa: T201


if __name__ == "__main__":
    main()
