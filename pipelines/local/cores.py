"""How many cores this process may use."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path
from typing import Final

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time, or `max`, and of the time in which they may be used."""


def usable_cores(quota: Path = _QUOTA) -> int:
    """Those that the system gives this process, or as many as a container's limit comes to.

    Args:
        quota: file of the limit; it may be missing.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS
        cores = os.cpu_count() or 1
    try:
        used, within = quota.read_text(encoding="ascii").split()
        return max(1, min(cores, ceil(int(used) / int(within))))
    except (OSError, ValueError):  # another system, or `max`
        return cores
