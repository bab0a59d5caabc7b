"""LanceDB: vectors and an index of words, asked as one, merged by reciprocal ranks.

No vector index: its documentation advises against one for as few as 100,000 rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import lancedb
import pyarrow
from lancedb.rerankers import RRFReranker

from tests.bench.peers.peer import Record, Vector, Vectors

_TABLE = "events"


def _table(records: Sequence[Record], vectors: Iterable[Vector]) -> pyarrow.Table:
    flat = pyarrow.array([number for vector in vectors for number in vector], pyarrow.float32())
    columns = {name: [getattr(row, name) for row in records] for name in Record._fields}
    width = len(flat) // len(records)
    return pyarrow.table(columns | {"vector": pyarrow.FixedSizeListArray.from_arrays(flat, width)})


class Store:
    """A table.

    Args:
        folder: of its database.
    """

    package = "lancedb"

    def __init__(self, folder: Path) -> None:
        self._database = lancedb.connect(folder)
        self._reranker = RRFReranker()
        names = self._database.list_tables().tables
        if _TABLE in names:
            self._rows = self._database.open_table(_TABLE)

    def fill(self, records: Sequence[Record], vectors: Vectors) -> None:
        self._rows = self._database.create_table(_TABLE, _table(records, vectors))
        self._rows.create_fts_index("text")

    def add(self, record: Record, vector: Vector) -> None:
        self._rows.add(_table([record], [vector]))

    def ask(self, text: str, vector: Vector, k: int) -> list[str]:
        query = self._rows.search(query_type="hybrid").vector(vector).text(text)
        query = query.distance_type("cosine").rerank(self._reranker)
        return [row["id"] for row in query.select(list(Record._fields)).limit(k).to_list()]
