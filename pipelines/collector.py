"""The cyclic garbage collector of a process that folds or answers."""

from __future__ import annotations

import gc

_THRESHOLD = 50_000


def collect_rarely() -> None:
    """Look for cycles every 50,000 new objects instead of every 700.

    A block makes tens of thousands of tuples that all die with it and form no cycles; looking
    through them again and again was a fifth of Python's time in a fold, and the slowest queries of
    the API were those that waited for it.
    """
    gc.collect()
    gc.freeze()  # what was imported stays
    gc.set_threshold(_THRESHOLD, 20, 50)
