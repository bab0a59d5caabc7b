"""A stage's app with the real runner behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pipelines.observe import logs
from pipelines.work import app
from pipelines.work.app import StageApp
from pipelines.work.live import Decisions, LiveRunner
from pipelines.work.runner import Runner
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stages import Stage, ready

Beside = Callable[[StageApp, Settings, str], None]
"""Adds to an app what runs beside its agent, on that target."""


def _nothing(app: StageApp, settings: Settings, target: str) -> None:
    """Nothing runs beside the agent."""


def make_app(stage: Stage, settings: Settings, target: str, beside: Beside = _nothing) -> StageApp:
    """The Faust app of a stage on a registered target; connects when the worker starts."""
    # Not when the worker starts: by then `faust worker` has put a proxy in stderr's place.
    logs.configure_logging(settings)
    return _make_app(stage, Services(settings), target, beside)


def run(stage: Stage, settings: Settings, target: str, beside: Beside = _nothing) -> int:
    """Run a worker in this process until SIGTERM or SIGINT; its exit code."""
    logs.configure_logging(settings)
    with Services(settings) as services:
        return app.run(_make_app(stage, services, target, beside))


def _make_app(stage: Stage, services: Services, target: str, beside: Beside) -> StageApp:
    settings = services.settings

    def make_runner(stop: threading.Event) -> Runner:
        services.active()  # registers the settings' target in a fresh deployment
        chosen = services.targets.get(target)
        runner = LiveRunner(
            ready(stage, services, chosen),
            services.writer(chosen),
            services.ledger,
            target=target,
            max_attempts=settings.max_attempts,
            stop=stop,
            decide=Decisions(services, target),
        )
        runner.prepare(settings.partitions)
        return runner

    sized = settings.model_copy(update={"batch_size": stage.batch_size(settings)})
    made = StageApp(stage.name, sized, target, make_runner)
    beside(made, settings, target)
    return made
