"""Metrics that several processes count together, each in files of its own in one folder.

A process that takes the place of another goes on with its counters; what that saw is forgotten. So
the sums over all processes never fall, and there are as many files as places.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from pipelines.local.python_process import SHARED_METRICS

_joined: CollectorRegistry | None = None


def join(folder: Path, number: int) -> None:
    """Count with the others from now on; called before any metric is declared.

    Args:
        folder: private, the same for all; the processes' own.
        number: of this process' place, which no other has at the same time.

    Raises:
        RuntimeError: metrics were declared already, and would count for this process alone.
        OSError: the folder cannot be written to.
    """
    global _joined
    if "pipelines.observe.metrics" in sys.modules:
        raise RuntimeError("metrics were declared before they were to be shared")
    for seen in folder.glob(f"gauge_*_{number}.db"):
        seen.unlink(missing_ok=True)
    mine, unfinished = folder / f"{number}.pid", folder / f"{number}.new"
    unfinished.write_text(str(os.getpid()), encoding="ascii")
    unfinished.replace(mine)
    os.environ[SHARED_METRICS] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
    PlatformCollector(registry)
    registry.register(_Processes(folder))
    _joined = registry


def joined() -> CollectorRegistry | None:
    """What all of them count; None: this process counts alone."""
    return _joined


class _Processes(Collector):
    """What the kernel tells of each process, by its number.

    Args:
        folder: that they count in.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Its series; none of a process that has just ended."""
        families: dict[str, Metric] = {}
        for path in sorted(self._folder.glob("*.pid")):
            read_pid = partial(path.read_text, encoding="ascii")
            for told in ProcessCollector(pid=read_pid, registry=None).collect():
                family = Metric(told.name, told.documentation, told.type)
                family = families.setdefault(told.name, family)
                family.samples += [
                    sample._replace(labels={"process": path.stem}) for sample in told.samples
                ]
        return families.values()
