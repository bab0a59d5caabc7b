"""The cyclic garbage collector of a process that folds or answers."""

from __future__ import annotations

import gc
import os
from pathlib import Path

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


def step_back(nice: int) -> None:
    """Lower the priority of every thread of this process to `nice`, and of what it will start.

    A higher one is left alone: only root may raise it again. Linux counts per thread, so threads
    that run already are lowered one by one.

    Args:
        nice: 0 (usual) to 19 (whatever the others leave).
    """
    tasks = Path("/proc/self/task")
    try:
        threads = [int(task.name) for task in tasks.iterdir()]
    except OSError:  # not Linux: the process has one priority
        threads = [0]
    for thread in threads:
        try:
            if os.getpriority(os.PRIO_PROCESS, thread) < nice:
                os.setpriority(os.PRIO_PROCESS, thread, nice)
        except ProcessLookupError:  # it ended meanwhile
            continue
