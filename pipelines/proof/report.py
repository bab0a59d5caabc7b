"""What verify does alike whichever stage it is about: look, mend, look again, and tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import structlog
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from pipelines.ledger.registry import Target, verified
from pipelines.proof.comparison import Difference
from pipelines.work.services import Progress, Services
from pipelines.work.stages import Stage, load
from projections.errors import GraphUnavailable

LISTED = 1_000
"""Differences listed at most; all are counted."""
MENDING_ROUNDS = 3
"""How often what differs is mended at most; live work may make new differences meanwhile."""
LOOKS: Final = 3
"""How often a look begins that the graph breaks off: under load one answer may stay away."""
MAX_PAUSE_S: Final = 5.0
"""Between two looks."""

logger = structlog.get_logger(__name__)


@dataclass(kw_only=True)
class ComparisonReport:
    """How a graph compares with its ledger.

    Attributes:
        differences: those that are listed.
        difference_count: all of them.
        repaired: differences that were dealt with.
        lag_entries: not folded yet, and so not compared.
    """

    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    repaired: int = 0
    dead_letter_count: int = 0
    lag_entries: int = 0
    duration_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        raise NotImplementedError

    @property
    def ok(self) -> bool:
        """Whether the graph is what follows from the ledger, up to the checkpoints.

        Dead letters and lag are no differences.
        """
        return self.difference_count == 0

    def add(self, difference: Difference) -> None:
        """Count a difference, and list it while there is room."""
        self.difference_count += 1
        if len(self.differences) < LISTED:
            self.differences.append(difference)


R = TypeVar("R", bound=ComparisonReport)


def looked(begun_s: float, look: Callable[[], R], mend: Callable[[], int] | None) -> R:
    """What a look finds; with `mend`, what is left when that was done as often as it takes.

    Args:
        begun_s: when verify began, of `time.perf_counter`.
        look: compares the graph with the ledger.
        mend: what the last look found; returns how many differences were dealt with. None: nothing
            is mended.

    Raises:
        GraphUnavailable: the graph broke off every look.
    """
    looking = Retrying(
        retry=retry_if_exception_type(GraphUnavailable),
        stop=stop_after_attempt(LOOKS),
        wait=wait_random_exponential(max=MAX_PAUSE_S),
        before_sleep=_log_broken_off,
        reraise=True,
    )
    report = looking(look)
    repaired = 0
    for _ in range(MENDING_ROUNDS):
        if mend is None or report.ok:
            break
        repaired += mend()
        report = looking(look)
    report.repaired = repaired
    report.duration_s = time.perf_counter() - begun_s
    return report


def _log_broken_off(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    logger.warning("the graph broke off a look; looking again", reason=str(error))


def verify_stage(
    services: Services,
    stage: Stage,
    target: Target,
    *,
    repair: bool = False,
    sample: int | None = None,
    progress: Progress | None = None,
) -> ComparisonReport:
    """Compare a stage of a target with the ledger.

    Args:
        services: ledger and targets.
        stage: which.
        target: which.
        repair: mend what differs, then look again.
        sample: events to look at, of a stage that can be sampled; None: all.
        progress: called with done, total and what is being done.
    """
    sampling = {"sample": sample} if stage.sampled else {}
    verify = load(stage.verify)
    report: ComparisonReport = verify(
        services, target=target.name, repair=repair, progress=progress, **sampling
    )
    return report


def tell(services: Services, stage: str, target: str, report: ComparisonReport) -> None:
    """Put what verify found of a stage where `status` and metrics find it."""
    services.reports.put(
        verified(stage, target, differences=report.difference_count, duration_s=report.duration_s)
    )
