"""The floor: every vector compared with the question's, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.bench.peers.peer import Record, Vector, Vectors


class Store:
    """A matrix and a list.

    Args:
        folder: for both, or with both.
    """

    package = "numpy"

    def __init__(self, folder: Path) -> None:
        self._vectors_file = folder / "vectors.npy"
        self._records_file = folder / "records.json"
        if self._records_file.exists():
            self._vectors: Vectors = np.load(self._vectors_file)
            rows = json.loads(self._records_file.read_text(encoding="utf-8"))
            self._records = [Record(*row) for row in rows]

    def fill(self, records: Sequence[Record], vectors: Vectors) -> None:
        np.save(self._vectors_file, vectors)
        self._records_file.write_text(json.dumps(list(records)), encoding="utf-8")
        self._vectors, self._records = vectors, list(records)

    def add(self, record: Record, vector: Vector) -> None:
        self._vectors = np.concatenate([self._vectors, vector[None, :]])
        self._records.append(record)

    def ask(self, text: str, vector: Vector, k: int) -> list[str]:
        cosines = self._vectors @ vector
        most = min(k, len(cosines))
        best = np.argpartition(-cosines, most - 1)[:most]
        return [self._records[place].id for place in best[np.argsort(-cosines[best])]]
