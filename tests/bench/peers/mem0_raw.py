"""mem0 without a model: texts as they are (`infer=False`), in the Qdrant that it has in process.

It asks for a language model's key and never uses it so. Words are not searched: the index for that
(fastembed's BM25) is downloaded from a hub. Vectors come from us, by its LangChain provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from langchain_core.embeddings import Embeddings
from mem0 import Memory

from tests.bench.peers.peer import Record, Vector, Vectors

_USER = "bench"


class _Given(Embeddings):  # type: ignore[misc]  # of a package that is in the peers' environment
    """Answers with the vector that was computed before."""

    def __init__(self) -> None:
        self.vector: list[float] = []

    def embed_query(self, text: str) -> list[float]:
        return self.vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vector for _ in texts]


class Store:
    """A memory of one user.

    Args:
        folder: of its vectors and of its history.
    """

    package = "mem0ai"

    def __init__(self, folder: Path) -> None:
        self._given = _Given()
        store = {"path": str(folder / "qdrant"), "on_disk": True, "embedding_model_dims": 384}
        self._memory = Memory.from_config(
            {
                "embedder": {"provider": "langchain", "config": {"model": self._given}},
                "vector_store": {"provider": "qdrant", "config": store},
                "llm": {"provider": "openai", "config": {"api_key": "unused"}},
                "history_db_path": str(folder / "history.db"),
            }
        )

    def fill(self, records: Sequence[Record], vectors: Vectors) -> None:
        for record, vector in zip(records, vectors, strict=True):
            self.add(record, vector)

    def add(self, record: Record, vector: Vector) -> None:
        self._given.vector = vector.tolist()
        metadata = {"event_id": record.id, **record.metadata()}
        self._memory.add(record.text, user_id=_USER, metadata=metadata, infer=False)

    def ask(self, text: str, vector: Vector, k: int) -> list[str]:
        self._given.vector = vector.tolist()
        filters = {"user_id": _USER}
        answer = self._memory.search(text, filters=filters, top_k=k, threshold=0.0)
        return [row["metadata"]["event_id"] for row in answer["results"]]
