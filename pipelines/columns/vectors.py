"""Vectors of rows as whole numbers, and which are nearest: all of a tenant are compared.

384 numbers of one byte are compared by the processor's own instructions for them (simsimd; `make
bench-columns` prints what that takes). So no approximate index decides what is found, nothing has
to be built, and whoever may not see a row is left out before the best are chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy
import simsimd

from enrichment.similarity import levels
from pipelines.columns.tables import Array, Bits, Rows, Table, best

_REFINED: Final = 4
"""Rows compared again with the question as it is, for one that is wanted."""


class Vectors:
    """Vectors by row.

    Args:
        dimensions: numbers of a vector.
    """

    def __init__(self, dimensions: int) -> None:
        self._table = Table({"levels": ("i1", dimensions), "norm": "f4"})
        self.dimensions = dimensions

    def put(self, row: int, vector: Sequence[float] | None) -> None:
        """Set the vector of a row; None, or one of zeros: it has none."""
        while self._table.size <= row:
            self._table.add()
        numbers = numpy.zeros(self.dimensions, dtype="i1")
        if vector is not None and len(vector) == self.dimensions:
            numbers = quantised(numpy.array(vector))
        self._table["levels"][row] = numbers
        self._table["norm"][row] = numpy.linalg.norm(numbers.astype(numpy.float32))

    def nearest(self, vector: Array, among: Bits, most: int) -> tuple[Rows, Array]:
        """Rows whose vectors are nearest, the nearest first, and their plain cosines.

        Args:
            vector: of unit length.
            among: of each row whether it counts.
            most: at most so many.
        """
        among = among[: self._table.size] & (self._table["norm"][: len(among)] > 0)
        rows = numpy.flatnonzero(among)
        if not len(rows):
            return rows.astype(numpy.int32), numpy.zeros(0)
        table, norms = self._table["levels"], self._table["norm"]
        if len(rows) * _REFINED < len(among):
            table, norms = table[rows], norms[rows]
        question = quantised(vector)
        products = numpy.asarray(simsimd.cdist(table, question[None, :], metric="dot")).ravel()
        cosines = products / numpy.maximum(norms, 1e-9)
        if len(cosines) != len(rows):
            cosines = cosines[rows]
        near = numpy.sort(rows[best(cosines, _REFINED * most)])
        exact = self.cosines(vector, near)
        order = best(exact, most)
        return near[order].astype(numpy.int32), exact[order]

    def cosines(self, vector: Array, rows: Rows) -> Array:
        """Plain cosine of each row's vector and another of unit length; NaN of a row without."""
        table, norms = self._levels(rows)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            cosines = numpy.where(norms > 0, (table @ vector) / norms, numpy.nan)
        return numpy.asarray(cosines, dtype=numpy.float64)

    def unit(self, rows: Rows) -> Array:
        """Vectors of rows, of unit length; zeros of a row without."""
        table, norms = self._levels(rows)
        return numpy.asarray(table / numpy.maximum(norms, 1e-9)[:, None], dtype=numpy.float32)

    def shown(self, row: int) -> tuple[str, float] | None:
        """Digest of a row's vector, and its norm; None: it has none."""
        if row >= self._table.size or not self._table["norm"][row]:
            return None
        numbers = self._table["levels"][row].tobytes()
        norm = float(self._table["norm"][row])
        return hashlib.blake2b(numbers, digest_size=8).hexdigest(), norm

    def _levels(self, rows: Rows) -> tuple[Array, Array]:
        """Vectors of rows as they are kept, and their norms; zeros of a row without."""
        table = numpy.zeros((len(rows), self.dimensions), dtype=numpy.float32)
        norms = numpy.zeros(len(rows), dtype=numpy.float32)
        inside = (rows >= 0) & (rows < self._table.size)
        table[inside] = self._table["levels"][rows[inside]]
        norms[inside] = self._table["norm"][rows[inside]]
        return table, norms


def quantised(vector: Array) -> Array:
    """A vector as whole numbers from -127 to 127; zeros where it has no direction."""
    (row,) = levels([vector.astype("<f4").tobytes()])
    return numpy.asarray(row, dtype="i1")
