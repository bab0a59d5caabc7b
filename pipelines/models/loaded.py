"""The models of one process, behind the store of derivations; loaded when first used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from enrichment.ports import Embedder, EntityRecognizer, PayloadResolver
from pipelines.ledger.payloads import FsspecResolver
from pipelines.models.derivations import Derivations, make_store
from pipelines.models.installed import embedder_folder, language_model_in_use
from pipelines.models.kept import EncodedRecognizer, KeptEmbedder, KeptRecognizer
from pipelines.models.llm import make_language_model
from pipelines.models.model_client import SharedEmbedder
from pipelines.models.nlp import make_recognizer
from pipelines.work.settings import Settings


class LoadedEmbedder(Embedder, Protocol):
    """An embedder that can be loaded before it is needed, and let go."""

    def load(self) -> None:
        """Raises ModelUnavailable."""

    def close(self) -> None:
        """It is not needed for now; the next use loads it again."""


class LoadedRecognizer(EncodedRecognizer, Protocol):
    """A recognizer that can be loaded before it is needed, and ended."""

    def load(self) -> None:
        """Raises ModelUnavailable."""

    def close(self) -> None:
        """End its process; the next use starts another."""


@dataclass
class Memory:
    """What is known of events while nobody is asked; each by (tenant, event id).

    Attributes:
        unread: whose payload or answer is not at hand, and may have been once.
        answered: of which a language model says something.
        ignored: whose answers do not count.
    """

    unread: set[tuple[str, str]] = field(default_factory=set)
    answered: set[tuple[str, str]] = field(default_factory=set)
    ignored: set[tuple[str, str]] = field(default_factory=set)


class Models:
    """The models of one process, behind the store of derivations; loaded when first used.

    Args:
        settings: which models, and where what they compute is kept.
        embedder, recognizer: instead of those that the settings name.

    Attributes:
        derivations: what they computed, and the rules made of it.
        memory: noted in and heeded while nobody is asked; else None.
    """

    def __init__(
        self,
        settings: Settings,
        embedder: LoadedEmbedder | None = None,
        recognizer: LoadedRecognizer | None = None,
    ) -> None:
        embedder = embedder or SharedEmbedder(settings)
        recognizer = recognizer or make_recognizer(settings)
        self.derivations = Derivations(make_store(settings))
        self.embedder: Embedder = KeptEmbedder(embedder, self.derivations)
        self.recognizer: EntityRecognizer = KeptRecognizer(recognizer, self.derivations)
        self.resolver: PayloadResolver | None = FsspecResolver.from_settings(settings)
        self._settings = settings
        self.language_model = make_language_model(settings, self.derivations)
        self.memory: Memory | None = None
        self._load = (embedder.load, recognizer.load)
        self._close = (embedder.close, recognizer.close)

    def load(self) -> None:
        """Load them, so that one that is missing is told before any event is touched.

        Raises:
            ModelUnavailable: it is not installed, or its files are damaged.
        """
        for load in self._load:
            load()

    @contextmanager
    def from_memory(self) -> Iterator[Memory]:
        """Ask no language model meanwhile: what it answered before is all it says."""
        self.memory = Memory()
        try:
            if self.language_model is None:
                yield self.memory
            else:
                with self.language_model.asking_nobody():
                    yield self.memory
        finally:
            self.memory = None

    def close(self) -> None:
        """Let the models' processes go, and whoever waits for a language model."""
        for close in self._close:
            close()
        if self.language_model is not None:
            self.language_model.close()
        self.derivations.close()

    @property
    def names(self) -> str:
        """Which they are; a graph derived with others is rebuilt."""
        names = models_in_use(self.embedder, self.recognizer)
        language_model = language_model_in_use(self._settings)
        return names if language_model is None else f"{names} {language_model}"


def models_in_use(embedder: Embedder, recognizer: EntityRecognizer) -> str:
    """Name and revision of each model."""
    return f"{embedder.model}@{embedder.revision} {recognizer.model}@{recognizer.revision}"


def require_models(settings: Settings) -> None:
    """See that the models are installed and whole.

    Raises:
        ModelUnavailable: naming the command that helps.
    """
    embedder_folder(settings.embedding_folder)
    make_recognizer(settings)
