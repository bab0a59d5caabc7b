"""Parts of a query side by side, each with its own time; a slow or broken one is left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Final, Literal, NamedTuple

from projections.errors import GraphUnavailable, QueryTimeout, RecollectError

GRACE_MS: Final = 50
"""Beyond a channel's time, for the database to end it and say so."""

Status = Literal["ok", "timeout", "failed", "unavailable", "off"]
Work = Callable[[int], Any]
"""What a channel does, given its milliseconds."""


class Outcome(NamedTuple):
    """What became of a channel; `value` is None unless the status is `ok`."""

    value: Any
    status: Status
    ms: int


OFF: Final = Outcome(None, "off", 0)


def run_side_by_side(
    pool: Executor, channels: Mapping[str, Work], timeout_ms: int
) -> dict[str, Outcome]:
    """All channels at once, each within `timeout_ms`; what is not back by then is given up.

    A channel that is given up may go on until the database ends it; nobody waits for it.
    """
    begun_s = time.monotonic()
    deadline_s = begun_s + (timeout_ms + GRACE_MS) / 1000
    futures = {name: pool.submit(_timed, work, timeout_ms) for name, work in channels.items()}
    return {name: _outcome(future, begun_s, deadline_s) for name, future in futures.items()}


def _timed(work: Work, timeout_ms: int) -> tuple[Any, int]:
    begun_s = time.monotonic()
    value = work(timeout_ms)
    return value, round((time.monotonic() - begun_s) * 1000)


def _outcome(future: Future[tuple[Any, int]], begun_s: float, deadline_s: float) -> Outcome:
    status: Status = "failed"
    try:
        value, ms = future.result(timeout=max(0.0, deadline_s - time.monotonic()))
    except (FutureTimeout, QueryTimeout):
        future.cancel()
        status = "timeout"
    except GraphUnavailable:
        status = "unavailable"
    except RecollectError:
        status = "failed"
    else:
        return Outcome(value, "ok", ms)
    return Outcome(None, status, round((time.monotonic() - begun_s) * 1000))
