"""What the API knows without asking in a request: active target, lag, memory, halted partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from pipelines.work.settings import Settings
from pipelines.work.stages import ENRICHMENT, PROJECTION
from projections.identity import Position
from projections.operations import Checkpoint

STALE_AFTER_S = 15.0
"""What was seen longer ago says nothing any more: who looks hangs."""
TOO_OLD = "the last look is too old"

Checkpoints = Mapping[int, Checkpoint]
"""Of one stage, by partition."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen last; replaced as a whole.

    Attributes:
        ledger_at_s: when the ledger was looked at, monotonic time.
        graph_at_s: likewise the graph.
        ledger_error: why the ledger cannot be used; None: it can.
        graph_error: why the active target's graph cannot be read.
        columns_error: why questions cannot be answered from its columns: they are being loaded, or
            nobody holds them.
        target: name of the target whose checkpoints are meant.
        refused: why Redis takes no write; empty: it does.
        halted: partition → reason.
        lag_entries: of the projection, all partitions; None before the first look.
        lag_seconds: age of the oldest entry not projected.
        memory_ratio: share of Redis' maxmemory in use; None without a limit.
    """

    ledger_at_s: float = 0.0
    graph_at_s: float = 0.0
    ledger_error: str | None = "not reached yet"
    graph_error: str | None = "not reached yet"
    columns_error: str | None = "not reached yet"
    target: str | None = None
    refused: str = ""
    halted: Mapping[int, str] = field(default_factory=dict)
    lag_entries: int | None = None
    lag_seconds: float | None = None
    memory_ratio: float | None = None

    def ingest_error(self, partitions: int) -> str | None:
        """Why no event is taken; None: events are, if perhaps not of every partition."""
        if self.ledger_error is not None:
            return self.ledger_error
        if self.refused:
            return self.refused
        if len(self.halted) >= partitions:
            return "every partition is halted; see `recollect recover`"
        return None

    def overloaded(self, settings: Settings) -> str | None:
        """Why events must wait; None: they need not."""
        if self.lag_entries is not None and self.lag_entries > settings.overload_lag_entries:
            return f"{self.lag_entries:,} events wait to be projected"
        if self.lag_seconds is not None and self.lag_seconds > settings.overload_lag_seconds:
            return f"an event has waited {self.lag_seconds:.0f} s to be projected"
        return self.full(settings)

    def full(self, settings: Settings) -> str | None:
        """Why no event at all may come; None: there is room."""
        if self.memory_ratio is not None and self.memory_ratio > settings.overload_memory_ratio:
            return f"Redis uses {self.memory_ratio:.0%} of its memory"
        return None


class Seen:
    """What was seen last, as `Watch` keeps it up to date.

    Args:
        settings: of the process.
        target: names the graph that is read from; None before the registry was read.

    Attributes:
        sample: what it says of ledger and graph.
        checkpoints: by stage, as they were read last.
        checkpoints_of: the target that they are of; None: they were not read.
    """

    def __init__(self, settings: Settings, target: Callable[[], str | None]) -> None:
        self._settings = settings
        self._target = target
        self._replacing = Lock()
        self.sample = Sample()
        self.checkpoints: Mapping[str, Checkpoints] = {}
        self.checkpoints_of: str | None = None

    def note(self, **changes: Any) -> None:
        """Say of the sample what was seen anew; several threads do."""
        with self._replacing:
            self.sample = replace(self.sample, **changes)

    def ingest_error(self) -> str | None:
        """Why no event can be taken; None: it can."""
        if _is_old(self.sample.ledger_at_s):
            return TOO_OLD
        return self.sample.ingest_error(self._settings.partitions)

    def is_graph_look_old(self) -> bool:
        """Whether nothing is known of the graph, for who looks at it hangs."""
        return _is_old(self.sample.graph_at_s)

    def read_error(self) -> str | None:
        """Why the graph cannot be read; None: it can."""
        return TOO_OLD if self.is_graph_look_old() else self.sample.graph_error

    def columns_error(self) -> str | None:
        """Why no question can be answered from the columns; None: it can."""
        return TOO_OLD if self.is_graph_look_old() else self.sample.columns_error

    def answered_from(self) -> dict[int, Position] | None:
        """Until where each partition was in the graph a moment ago; None: not known.

        Projected, and enriched if that stage has begun: what it finds in an event changes answers.
        """
        if self.checkpoints_of is None or self.checkpoints_of != self._target():
            return None
        held: dict[int, Position] = {}
        for stage in (PROJECTION, ENRICHMENT):
            for partition, checkpoint in self.checkpoints.get(stage.name, {}).items():
                before = held.get(partition, checkpoint.position)
                held[partition] = min(before, checkpoint.position)
        return held


def _is_old(at_s: float) -> bool:
    return time.monotonic() - at_s > STALE_AFTER_S
