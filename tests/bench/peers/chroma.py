"""Chroma: a persistent collection, asked by vectors. It has no hybrid query in one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import chromadb

from tests.bench.peers.peer import Record, Vector, Vectors


class Store:
    """A collection.

    Args:
        folder: of its database.
    """

    package = "chromadb"

    def __init__(self, folder: Path) -> None:
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        self._client = chromadb.PersistentClient(folder, settings=settings)
        self._rows = self._client.get_or_create_collection(
            "events", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def fill(self, records: Sequence[Record], vectors: Vectors) -> None:
        most = self._client.get_max_batch_size()
        for first in range(0, len(records), most):
            self._put(records[first : first + most], vectors[first : first + most])

    def add(self, record: Record, vector: Vector) -> None:
        self._put([record], vector[None, :])

    def _put(self, records: Sequence[Record], vectors: Vectors) -> None:
        self._rows.add(
            ids=[row.id for row in records],
            documents=[row.text for row in records],
            metadatas=[row.metadata() for row in records],
            embeddings=vectors,
        )

    def ask(self, text: str, vector: Vector, k: int) -> list[str]:
        answer = self._rows.query(query_embeddings=[vector], n_results=k)
        return list(answer["ids"][0])
