"""Embeddings that were computed before are not computed again: a rebuild embeds nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

from enrichment.ports import Embedder
from pipelines.adapters.cache import ByteCache, digest_of


class CachedEmbedder(Embedder):
    """An embedder behind a cache, by model, revision and text.

    Args:
        embedder: computes what is not cached.
        cache: where vectors are kept; it may be lost at any moment.
    """

    def __init__(self, embedder: Embedder, cache: ByteCache) -> None:
        self.model: str = embedder.model
        self.revision: str = embedder.revision
        self.dimensions: int = embedder.dimensions
        self._embedder = embedder
        self._cache = cache

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text; of equal texts, one is computed.

        Raises:
            ModelUnavailable: a text is not cached and the model cannot be used.
            ModelFailed: the runtime gave up.
        """
        digests = [digest_of(self.model, self.revision, text) for text in texts]
        wanted = dict(zip(digests, texts, strict=True))
        vectors = self._cached(list(wanted))
        missing = [digest for digest in wanted if digest not in vectors]
        if missing:
            computed = self._embedder.embed([wanted[digest] for digest in missing])
            fresh = dict(zip(missing, computed, strict=True))
            self._cache.put_many(fresh)
            vectors |= fresh
        return [vectors[digest] for digest in digests]

    def _cached(self, digests: list[str]) -> dict[str, bytes]:
        found = self._cache.get_many(digests)
        held = {digest: value for digest, value in zip(digests, found, strict=True) if value}
        whole = {
            digest: value for digest, value in held.items() if len(value) == 4 * self.dimensions
        }
        self._cache.damaged(len(held) - len(whole))
        return whole
