"""Progress on standard error: done, rate and remaining time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text


class _RateColumn(TextColumn):
    """Things a second; the caller's own figure (`rate`) when the bar counts something else."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        rate = task.fields.get("rate")
        speed = rate if rate is not None else task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "-/s", style="cyan")


class _CountColumn(MofNCompleteColumn):
    """Done of total; the caller's own text (`count`) when the bar counts something else."""

    def render(self, task: Task) -> Text:
        count = task.fields.get("count")
        if count is not None:
            return Text(str(count), style="green")
        if task.total is None:
            return Text(f"{int(task.completed):,}", style="green")
        return Text(f"{int(task.completed):,}/{int(task.total):,}", style="green")


class Progress:
    """One bar for each `what`. Callable as the seam `progress(done, total, what)` asks for."""

    def __init__(self, console: Console, *, shown: bool) -> None:
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            _CountColumn(),
            _RateColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not shown,
        )
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def __call__(
        self,
        done: int,
        total: int | None,
        what: str,
        *,
        rate: float | None = None,
        count: str | None = None,
    ) -> None:
        """Move the bar of `what` to `done` of `total` (None: not known).

        `rate` and `count` replace the figures when `done` is in another unit (bytes of a file).
        """
        with self._lock:  # a rebuild tells its progress from several threads
            task = self._tasks.get(what)
            if task is None:
                task = self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(task, completed=done, total=total, rate=rate, count=count)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """A spinner for something that tells no progress."""
        task = self._bars.add_task(what, total=None)
        try:
            yield
        finally:
            self._bars.remove_task(task)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()
