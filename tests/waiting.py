"""Waiting for a state, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], what: str, patience_s: float = 180.0) -> None:
    """Return as soon as the condition holds.

    Raises:
        AssertionError: it does not within `patience_s`; `what` says what was waited for.
    """
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.02)
