"""A stage's app with the real runner behind it."""

from __future__ import annotations

import threading

from pipelines.agents import app
from pipelines.agents.app import StageApp
from pipelines.runner import Runner
from pipelines.services import Services
from pipelines.settings import Settings
from pipelines.stages import Stage


def make_app(stage: Stage, settings: Settings, target: str) -> StageApp:
    """The Faust app of a stage on a registered target; connects when the worker starts."""
    return _make_app(stage, Services(settings), target)


def run(stage: Stage, settings: Settings, target: str) -> int:
    """Run a worker in this process until SIGTERM or SIGINT; its exit code."""
    with Services(settings) as services:
        return app.run(_make_app(stage, services, target))


def _make_app(stage: Stage, services: Services, target: str) -> StageApp:
    def make_runner(stop: threading.Event) -> Runner:
        services.active()  # registers the settings' target in a fresh deployment
        runner = Runner(
            stage,
            services.writer(services.targets.get(target)),
            target=target,
            max_attempts=services.settings.max_attempts,
            stop=stop,
        )
        runner.prepare(services.settings.partitions)
        return runner

    return StageApp(stage.name, services.settings, target, make_runner)
