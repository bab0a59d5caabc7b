"""A process that runs a pass of consolidation, and is killed in the middle of it.

python -m tests.integration.killed_pass WHEN NOW_MS: WHEN is `append:N` (right after the Nth append
reached the ledger), or `apply:N` (right before the Nth block is folded). Settings come from the
environment.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from itertools import count
from typing import Any

from pipelines.operations import consolidate as module
from pipelines.operations.consolidate import consolidate
from pipelines.work.live import Decisions, LiveRunner
from pipelines.work.services import Services
from pipelines.work.settings import load_settings
from projections.events import Event
from tests.stages.consolidated import without_models

numbers = count(1)


def die_at(number: int) -> None:
    """As if the machine had lost its power."""
    if next(numbers) == number:
        os.kill(os.getpid(), signal.SIGKILL)


def main(when: str, now_ms: str) -> None:
    """Run the pass."""
    module.make_fold = without_models  # type: ignore[attr-defined]  # no test of models
    kind, _, number = when.partition(":")
    if kind == "append":
        append = Decisions.append

        def killed(self: Decisions, events: Sequence[Event]) -> int:
            new = append(self, events)
            die_at(int(number))
            return new

        Decisions.append = killed  # type: ignore[method-assign]  # this is the point
    else:
        apply = LiveRunner.apply

        def unapplied(self: LiveRunner, block: Any) -> Any:
            die_at(int(number))
            return apply(self, block)

        LiveRunner.apply = unapplied  # type: ignore[assignment,method-assign]  # likewise
    with Services(load_settings()) as services:
        consolidate(services, now_ms=int(now_ms))


if __name__ == "__main__":
    main(*sys.argv[1:])
