"""Stage 3 as a Faust app: `faust -A pipelines.work.apps.consolidation worker`.

It applies what was decided, and on the active target it decides: see `deciding`. Run like that, the
settings come from the environment; `recollect worker consolidation` is the same with options.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pipelines.work.app import StageApp
from pipelines.work.apps import stage
from pipelines.work.deciding import Decider
from pipelines.work.settings import Settings, load_settings
from pipelines.work.stages import CONSOLIDATION


def run(settings: Settings, target: str) -> int:
    """Run a worker on a target until SIGTERM or SIGINT; its exit code."""
    return stage.run(CONSOLIDATION, settings, target, _decide)


def _decide(app: StageApp, settings: Settings, target: str) -> None:
    Decider(settings, target).attach(app)


@cache
def _app() -> Any:
    settings = load_settings()
    return stage.make_app(CONSOLIDATION, settings, settings.target, _decide)


def __getattr__(name: str) -> Any:
    """`app`, for Faust's command line; made when asked for, so that importing reads nothing."""
    if name == "app":
        return _app()
    raise AttributeError(name)
