"""The archiver's process: looks now and then, archives what is due, and waits when it cannot."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Final

from pipelines.local.processes import StopSignal
from pipelines.observe import logs, metrics, progress
from pipelines.operations.archive import archive_when_due
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from projections.errors import ArchiverUnderWay, ConfigurationError, RecollectError

_LOOP: Final = "archive"
_STOP_LOOK_S: Final = 0.2
_log = logs.get_logger(__name__)


def run_archiver(settings: Settings) -> int:
    """Archive until a signal asks it to stop; the exit code.

    Whatever is away, full or damaged is told once, and waited for: nothing is trimmed meanwhile.

    Raises:
        ConfigurationError: no place is set.
    """
    if settings.archive_url is None:
        raise ConfigurationError(reason="archive_url: where older entries go is not set")
    logs.configure_logging(settings)
    progress.WORKER.expect([_LOOP])
    stop, told = StopSignal(), ""
    with ExitStack() as opened:
        opened.enter_context(stop)
        services = opened.enter_context(Services(settings))
        if settings.metrics_port:
            metrics.MetricsServer(
                settings.metrics_host, settings.metrics_port, problem=progress.WORKER.problem
            )
        while not stop.received:
            problem = _look(services)
            if problem != told:
                if problem:
                    _log.warning("nothing is archived", reason=problem)
                else:
                    _log.info("archives again")
            told = problem
            _pause(stop, settings.archive_every_s)
    return 0


def _look(services: Services) -> str:
    """Archive what is due; why that could not be, empty: it could."""
    try:
        report = archive_when_due(services, lambda: progress.WORKER.turned(_LOOP))
    except ArchiverUnderWay:
        return ""  # another one does the work
    except RecollectError as error:
        return str(error)
    if report.archived:
        metrics.ARCHIVED.inc(report.archived)
        _log.info("archived", entries=report.archived, segments=report.segments)
    return ""


def _pause(stop: StopSignal, seconds: float) -> None:
    """Wait for the next look, or for the end."""
    pause, left_s = threading.Event(), seconds
    while left_s > 0 and not stop.received:
        pause.wait(min(_STOP_LOOK_S, left_s))
        left_s -= _STOP_LOOK_S
        progress.WORKER.turned(_LOOP)
