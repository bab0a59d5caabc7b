"""Stage 3 as a Faust app: `faust -A pipelines.agents.consolidation worker`.

Run like that, the settings come from the environment; `recollect worker consolidation` is the same
with options.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pipelines.agents import stage
from pipelines.settings import Settings, load_settings
from pipelines.stages import CONSOLIDATION


def run(settings: Settings, target: str) -> int:
    """Run a worker on a target until SIGTERM or SIGINT; its exit code."""
    return stage.run(CONSOLIDATION, settings, target)


@cache
def _app() -> Any:
    settings = load_settings()
    return stage.make_app(CONSOLIDATION, settings, settings.target)


def __getattr__(name: str) -> Any:
    """`app`, for Faust's command line; made when asked for, so that importing reads nothing."""
    if name == "app":
        return _app()
    raise AttributeError(name)
