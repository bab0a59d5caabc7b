"""Waiting for a state, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    what: str,
    patience_s: float = 180.0,
    *,
    every_s: float = 0.02,
    passing: tuple[type[Exception], ...] = (),
) -> T:
    """What the condition says, as soon as that is true.

    Args:
        condition: that is asked again and again.
        what: was waited for.
        patience_s: in all.
        every_s: between two looks.
        passing: errors of the condition that mean no more than "not yet".

    Raises:
        AssertionError: it does not hold within `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if answer := condition():
                return answer
        except passing:
            pass
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(every_s)
