"""Which models this installation has, told without loading one: names and revisions.

What the graph was derived with stands in its checkpoints; when the two differ, workers refuse to
write (`ModelsMismatch`), and `status` and the API say so before anybody starts one.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.settings import Settings

EMBEDDER = "all-MiniLM-L6-v2"
EMBEDDER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of its weights."""
EMBEDDER_REVISION = EMBEDDER_SHA256[:12]
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
    return f"{EMBEDDER}@{EMBEDDER_REVISION} {settings.nlp_model}@{revision}"
