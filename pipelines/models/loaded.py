"""The models of one process, loaded when first used, behind the store of derivations.

What is kept there is not computed again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from enrichment.ports import Analysis, Embedder, EntityRecognizer, PayloadResolver
from enrichment.vectors import kept_bytes, pack, unpack
from pipelines.ledger.payloads import FsspecResolver
from pipelines.models.analyst import decode_analysis
from pipelines.models.derivations import (
    Derivations,
    Digest,
    digest_of,
    make_store,
)
from pipelines.models.installed import embedder_folder, with_settings
from pipelines.models.llm import make_language_model
from pipelines.models.model_client import SharedEmbedder
from pipelines.models.nlp import make_recognizer
from pipelines.work.settings import Settings


class KeptEmbedder(Embedder):
    """An embedder of which each text is asked once, by model, revision and text.

    Every vector is as it is kept (`enrichment.vectors`), also one that was just made.

    Args:
        embedder: computes what is not kept.
        derivations: where vectors are kept.
    """

    def __init__(self, embedder: Embedder, derivations: Derivations) -> None:
        self.model: str = embedder.model
        self.revision: str = embedder.revision
        self.dimensions: int = embedder.dimensions
        self._embedder = embedder
        self._derivations = derivations

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text; of equal texts, one is computed.

        Raises:
            ModelUnavailable: a text is not kept and the model cannot be used.
            ModelFailed: the runtime gave up.
        """
        digests = [digest_of(self.model, self.revision, text) for text in texts]
        wanted = dict(zip(digests, texts, strict=True))
        packed = self._derivations.get("vector", wanted)
        length = kept_bytes(self.dimensions)
        if broken := [digest for digest, data in packed.items() if len(data) != length]:
            self._derivations.damaged("vector", broken)
            packed = {digest: packed[digest] for digest in packed.keys() - broken}
        if missing := [digest for digest in wanted if digest not in packed]:
            computed = pack(self._embedder.embed([wanted[digest] for digest in missing]))
            fresh = dict(zip(missing, computed, strict=True))
            packed |= self._derivations.put("vector", fresh)
        vectors = dict(zip(packed, unpack(list(packed.values())), strict=True))
        return [vectors[digest] for digest in digests]


class EncodedRecognizer(Protocol):
    """Analyses in their encoded form, None for a text that had to go without."""

    model: str
    revision: str

    def analyze_encoded(self, texts: Sequence[str]) -> list[bytes | None]:
        """One for each text."""


class KeptRecognizer(EntityRecognizer):
    """A recogniser of which each text is asked once, by model, revision and text.

    An analysis that had to be left out is not kept: the next time it may succeed.

    Args:
        recognizer: analyses what is not kept.
        derivations: where analyses are kept.
    """

    def __init__(self, recognizer: EncodedRecognizer, derivations: Derivations) -> None:
        self.model: str = recognizer.model
        self.revision: str = recognizer.revision
        self._recognizer = recognizer
        self._derivations = derivations

    def analyze(self, texts: Sequence[str]) -> list[Analysis]:
        """One analysis for each text, empty where it had to be left out.

        Raises:
            ModelUnavailable: a text is not kept and the model cannot be used.
            ModelFailed: the recogniser does not start.
        """
        digests = [digest_of(self.model, self.revision, text) for text in texts]
        wanted = dict(zip(digests, texts, strict=True))
        analyses = self._decoded(self._derivations.get("analysis", wanted))
        if missing := [digest for digest in wanted if digest not in analyses]:
            computed = self._recognizer.analyze_encoded([wanted[digest] for digest in missing])
            # Level 1: the others take three times as long for a tenth.
            fresh = {
                digest: zlib.compress(data, 1)
                for digest, data in zip(missing, computed, strict=True)
                if data
            }
            analyses |= self._decoded(self._derivations.put("analysis", fresh))
        return [analyses.get(digest, Analysis()) for digest in digests]

    def _decoded(self, packed: Mapping[Digest, bytes]) -> dict[Digest, Analysis]:
        analyses: dict[Digest, Analysis] = {}
        for digest, data in packed.items():
            try:
                analyses[digest] = decode_analysis(zlib.decompress(data))
            except (zlib.error, ValueError):
                continue
        self._derivations.damaged("analysis", packed.keys() - analyses.keys())
        return analyses


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
        return with_settings(models_in_use(self.embedder, self.recognizer), self._settings)


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
