"""Stage 1 as a Faust app: `faust -A pipelines.work.apps.projection worker`.

Run like that, the settings come from the environment; `recollect worker projection` is the same
with options.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pipelines.work.apps import stage
from pipelines.work.settings import Settings, load_settings
from pipelines.work.stages import PROJECTION


def run(settings: Settings, target: str) -> int:
    """Run a worker on a target until SIGTERM or SIGINT; its exit code."""
    return stage.run(PROJECTION, settings, target)


@cache
def _app() -> Any:
    settings = load_settings()
    return stage.make_app(PROJECTION, settings, settings.target)


def __getattr__(name: str) -> Any:
    """`app`, for Faust's command line; made when asked for, so that importing reads nothing."""
    if name == "app":
        return _app()
    raise AttributeError(name)
