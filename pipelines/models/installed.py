"""Which models this installation has, told without loading one: names and revisions.

What the graph was derived with stands in its checkpoints; when the two differ, workers refuse to
write (`ModelsMismatch`), and `status` and the API say so before anybody starts one.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from enrichment.prompts import TASKS, versions

if TYPE_CHECKING:
    from pipelines.work.settings import Settings

SAMENESS = "disambiguation"
"""The task whose answers are recorded as decisions, not derived."""
EMBEDDER = "all-MiniLM-L6-v2"
EMBEDDER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of its weights."""
EMBEDDER_REVISION = EMBEDDER_SHA256[:12]
MODEL_START_TIMEOUT_S = 120.0
"""For a model's process to load it: 1 to 2 s, more on a machine that is very busy."""
ANALYSIS_VERSION = 1
"""Of what an analysis holds; another one leaves what is cached behind, and needs a rebuild."""


def recognizer_revision(model: str) -> str:
    """The revision of spaCy's model: its own, spaCy's, and that of what we take from both.

    Raises:
        PackageNotFoundError: spaCy or the model is not installed.
    """
    return f"{version(model)}/{version('spacy')}/{ANALYSIS_VERSION}"


def installed_models(settings: Settings) -> str | None:
    """As checkpoints name them; None: not all of them are installed here."""
    try:
        revision = recognizer_revision(settings.nlp_model)
    except PackageNotFoundError:
        return None
    names = f"{EMBEDDER}@{EMBEDDER_REVISION} {settings.nlp_model}@{revision}"
    language_model = language_model_in_use(settings)
    return names if language_model is None else f"{names} {language_model}"


def language_model_in_use(settings: Settings) -> str | None:
    """The language model that adds to the graph, with the versions of its prompts; None: off."""
    derives = tuple(task for task in TASKS if task in settings.llm_tasks and task != SAMENESS)
    if settings.llm_url is None or settings.llm_model is None or not derives:
        return None
    return f"{settings.llm_model}@{versions(derives)}/{settings.llm_max_characters}"
