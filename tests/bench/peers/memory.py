"""The memory of `make bench-query`, with the vectors that Recollect's model makes of its texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.models.installed import DIMENSIONS, EMBEDDER_REVISION
from pipelines.models.model_client import SharedEmbedder
from pipelines.work.settings import Settings
from tests.bench.machine import say
from tests.bench.peers.peer import Record, Vectors
from tests.bench.query.graph import Memory

_AT_ONCE = 1_000


@dataclass(frozen=True)
class EmbeddedMemory(Memory):
    """As its base, but for the vectors.

    Attributes:
        vectors: a row for each event, in their order.
    """

    vectors: Vectors = field(default_factory=lambda: np.empty((0, DIMENSIONS), np.float32))

    def events(self) -> Iterator[dict[str, Any]]:
        for event, vector in zip(super().events(), self.vectors, strict=True):
            yield event | {"vector": vector.tolist()}

    def records(self) -> list[Record]:
        """What peers are filled with."""
        return [record_of(event) for event in super().events()]


def record_of(event: dict[str, Any]) -> Record:
    """An event as peers keep it."""
    return Record(event["id"], event["text"], event["session"], event["agent"], event["at"])


def embedded(size: int, folder: Path) -> EmbeddedMemory:
    """A memory of so many events.

    Args:
        size: events.
        folder: where vectors are kept for the next run: a text takes some 15 ms.
    """
    texts = [event["text"] for event in Memory(size).events()]
    digest = hashlib.blake2b("\n".join([EMBEDDER_REVISION, *texts]).encode(), digest_size=12)
    file = folder / f"vectors-{digest.hexdigest()}.npy"
    if not file.exists():
        say(f"embedding {size:,} texts")
        begun = file.with_suffix(".part.npy")
        np.save(begun, computed(texts))
        begun.replace(file)
    return EmbeddedMemory(size, vectors=np.load(file))


def computed(texts: Sequence[str]) -> Vectors:
    """The vectors of texts, by the model process of the machine."""
    embedder = SharedEmbedder(Settings())
    rows: list[bytes] = []
    try:
        for first in range(0, len(texts), _AT_ONCE):
            rows += embedder.embed(texts[first : first + _AT_ONCE])
            if len(rows) < len(texts):
                say(f"  {len(rows):,} of {len(texts):,}")
    finally:
        embedder.close()
    return np.frombuffer(b"".join(rows), "<f4").reshape(len(texts), DIMENSIONS)
