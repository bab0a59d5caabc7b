"""Models behind the store of derivations: what is kept there is not computed again."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from enrichment.ports import Analysis, Embedder, EntityRecognizer
from enrichment.vectors import kept_bytes, pack, unpack
from pipelines.models.analyst import decode_analysis
from pipelines.models.derivations import (
    Derivations,
    Digest,
    digest_of,
)


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
