"""The priority of this process: who runs models steps back for who takes in events."""

from __future__ import annotations

import os
from pathlib import Path


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
