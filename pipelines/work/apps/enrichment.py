"""Stage 2 as a Faust app: `faust -A pipelines.work.apps.enrichment worker`.

It runs models, so it steps back for whoever takes in events, and takes smaller blocks. Run like
this the settings come from the environment; `recollect worker enrichment` is the same with options.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pipelines.models.minilm import load_minilm
from pipelines.models.nlp import make_recognizer
from pipelines.observe.process import step_back
from pipelines.work.apps import stage
from pipelines.work.settings import Settings, load_settings
from pipelines.work.stages import ENRICHMENT


def run(settings: Settings, target: str) -> int:
    """Run a worker on a target until SIGTERM or SIGINT; its exit code.

    Raises:
        ModelUnavailable: a model is not installed; told at once, not when the first block comes.
    """
    step_back(settings.enrichment_nice)
    require_models(settings)
    return stage.run(ENRICHMENT, settings, target)


def require_models(settings: Settings) -> None:
    """See that the models are installed and whole.

    Raises:
        ModelUnavailable: naming the command that helps.
    """
    load_minilm(settings.embedding_folder)
    make_recognizer(settings)


@cache
def _app() -> Any:
    settings = load_settings()
    step_back(settings.enrichment_nice)
    return stage.make_app(ENRICHMENT, settings, settings.target)


def __getattr__(name: str) -> Any:
    """`app`, for Faust's command line; made when asked for, so that importing reads nothing."""
    if name == "app":
        return _app()
    raise AttributeError(name)
