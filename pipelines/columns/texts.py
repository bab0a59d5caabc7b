"""What events are found by: words of texts, with BM25 over them, and vectors as whole numbers.

Postings are arrays that grow at their end, so a text is found the moment it is written. A library
of inverted indexes commits segments, which takes longer than a question (decision 18), and would
need the same tests of visibility a second time.

Of vectors all of a tenant are compared, 384 numbers of one byte each by the processor's own
instructions for them (simsimd; `make bench-columns` prints what that takes). So no approximate
index decides what is found, nothing has to be built, and whoever may not see a row is left out
before the best are chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy
import simsimd

from enrichment.vectors import levels
from pipelines.columns.tables import NOBODY, Array, Bits, ByRow, Ranking, Rows, Table, best
from pipelines.columns.windows import Neighbour, windowed

_K1: Final = 1.2
_B: Final = 0.75
"""Of BM25, as search engines have them."""
_MOST_COUNTED: Final = 255
_FEW: Final = 2
"""Most stems are held by one text or two."""
COMMON: Final = 4_096
"""Texts that hold a stem; one that more of them hold is looked up in those that hold rarer ones."""
_MARGIN: Final = 1.001
"""For what is rounded."""

Sought = tuple[Bits, int]
"""Of each row whether it counts, and how many of the best of these are sought."""


class _Term(NamedTuple):
    """A stem of a question: its weight, the texts that hold it, sorted, and how often."""

    weight: Any
    held: Rows
    counted: Array

    def among(self, chosen: Rows) -> _Term:
        """The same of some texts alone."""
        places = numpy.minimum(self.held.searchsorted(chosen), len(self.held) - 1)
        holding = self.held[places] == chosen
        return _Term(self.weight, chosen[holding], self.counted[places[holding]])


class Texts:
    """Texts by number, each of a row of somebody's; a row whose text changes gets a new one."""

    def __init__(self) -> None:
        self._texts = Table({"row": "i4", "words": "i4", "stems": "i4"})
        self._postings: dict[str, Table] = {}
        self._of_row = ByRow()
        self._saying = 0
        self._words = 0

    def put(self, row: int, stems: Mapping[str, int]) -> None:
        """Set what a row says: how often it holds each stem."""
        self.drop(row)
        words = sum(stems.values())
        text = self._texts.add(row=row, words=words, stems=len(stems))
        self._of_row[row] = text
        self._saying += 1
        self._words += words
        for stem, count in stems.items():
            postings = self._postings.get(stem)
            if postings is None:
                postings = self._postings[stem] = Table({"text": "i4", "count": "u1"}, room=_FEW)
            postings.add(text=text, count=min(count, _MOST_COUNTED))

    def drop(self, row: int) -> None:
        """Forget what a row says."""
        text = self._of_row[row]
        if text != NOBODY:
            self._of_row[row] = self._texts["row"][text] = NOBODY
            self._saying -= 1
            self._words -= int(self._texts["words"][text])

    def scored(self, stems: Iterable[str], sought: Sequence[Sought]) -> tuple[Rows, Array]:
        """Rows that hold one of the stems, and BM25 of each.

        Args:
            stems: of the question.
            sought: whoever is none of these may be missing.
        """
        texts = self._texts
        owners = texts["row"]
        # What rows have said before counts for nothing, or else columns that were told it would
        # find other words rare than those that never were.
        stale = owners == NOBODY if self._saying < texts.size else None
        terms: list[_Term] = []
        for stem in dict.fromkeys(stems):
            postings = self._postings.get(stem)
            if postings is None:
                continue
            held, count = postings["text"], postings["count"]
            rows_holding = len(held) - (0 if stale is None else numpy.count_nonzero(stale[held]))
            rarity = numpy.log1p((self._saying - rows_holding + 0.5) / (rows_holding + 0.5))
            terms.append(_Term(numpy.float32(rarity * (1 + _K1)), held, count))
        scores = self._summed(self._without_common(terms, sought))
        holding = numpy.flatnonzero(scores)
        rows = owners[holding]
        standing = rows != NOBODY
        return rows[standing], scores[holding[standing]]

    def _without_common(self, terms: Sequence[_Term], sought: Sequence[Sought]) -> list[_Term]:
        """The terms; the common ones of the texts alone that hold a rare one, where that will do.

        It does if so many score more by rare ones as are sought, than all common ones are worth.
        """
        rare = [term for term in terms if len(term.held) <= COMMON]
        if len(rare) in (0, len(terms)):
            return list(terms)
        scores, owners = self._summed(rare), self._texts["row"]
        least = _MARGIN * sum(float(term.weight) for term in terms if len(term.held) > COMMON)
        chosen = numpy.flatnonzero(scores)
        above = owners[chosen[scores[chosen] > least]]
        above = above[above != NOBODY]
        if any(numpy.count_nonzero(among[above]) < most for among, most in sought):
            return list(terms)
        return [term if len(term.held) <= COMMON else term.among(chosen) for term in terms]

    def _summed(self, terms: Iterable[_Term]) -> Array:
        """BM25 of each text, in the order of the terms: another one rounds otherwise."""
        scores = numpy.zeros(self._texts.size, dtype=numpy.float32)
        words = self._texts["words"]
        share = _K1 * _B / max(1.0, self._words / max(1, self._saying))
        for weight, held, counted in terms:
            bounds = words[held] * numpy.float32(share)
            bounds += numpy.float32(_K1 * (1 - _B))
            count = counted.astype(numpy.float32)
            scores[held] += weight * count / (count + bounds)
        return scores

    def counts(self, stems: Sequence[str], rows: Rows) -> Array:
        """How often each of the rows holds each stem: a row each, a column a stem."""
        wanted = self._of_row.of(rows)
        counts = numpy.zeros((len(rows), len(stems)))
        for column, stem in enumerate(stems):
            postings = self._postings.get(stem)
            if postings is not None:
                holding = postings["text"]  # in the order of their numbers
                places = numpy.minimum(holding.searchsorted(wanted), postings.size - 1)
                counts[:, column] = (holding[places] == wanted) * postings["count"][places]
        return counts

    def holding(self, stems: Sequence[str], seen: Bits) -> Array:
        """How many of the rows that are seen hold each stem."""
        counts = numpy.zeros(len(stems), dtype=numpy.int64)
        owners = self._texts["row"]
        saying = (owners != NOBODY) & seen[owners]
        for column, stem in enumerate(stems):
            postings = self._postings.get(stem)
            if postings is not None:
                counts[column] = numpy.count_nonzero(saying[postings["text"]])
        return counts

    def distinct(self, rows: Rows) -> Array:
        """How many stems each of the rows holds."""
        stems = numpy.append(self._texts["stems"], 0)
        return numpy.asarray(stems[self._of_row.of(rows)])

    def said(self, row: int) -> tuple[int, int] | None:
        """How many words and how many stems a row says; None: it says nothing."""
        text = self._of_row[row]
        if text == NOBODY:
            return None
        return int(self._texts["words"][text]), int(self._texts["stems"][text])

    def stems(self) -> Iterable[str]:
        """Every stem that a row says, or has said."""
        return self._postings.keys()

    def held(self, stem: str) -> Iterator[tuple[int, int]]:
        """Rows that say a stem, and how often."""
        postings = self._postings.get(stem)
        if postings is not None:
            owners = self._texts["row"][postings["text"]].tolist()
            pairs = zip(owners, postings["count"].tolist(), strict=True)
            yield from (pair for pair in pairs if pair[0] != NOBODY)

    def totals(self) -> tuple[int, int]:
        """How many rows say something, and how many words."""
        return self._saying, self._words


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

    def nearest(
        self, vector: Array, among: Bits, most: int, ranking: Ranking
    ) -> tuple[Rows, Array]:
        """Rows whose vectors are nearest, the nearest first, and their plain cosines.

        Args:
            vector: of unit length.
            among: of each row whether it counts.
            most: at most so many.
            ranking: of rows, says which of those that are as near comes first.
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
        near = rows[best(rows, cosines, _REFINED * most, ranking)]
        exact = self.cosines(vector, near)
        order = best(near, exact, most, ranking)
        return near[order].astype(numpy.int32), exact[order]

    def cosines(self, vector: Array, rows: Rows) -> Array:
        """Plain cosine of each row's vector and another of unit length; NaN of a row without."""
        return _cosines(vector, *self._levels(rows))

    def window_cosines(self, vector: Array, rows: Rows, around: Iterable[Neighbour]) -> Array:
        """Likewise, of each row's vector of unit length summed with its neighbours', by weight.

        Args:
            vector: of unit length.
            rows: of events.
            around: places among the rows.
        """
        summed = windowed(self.unit(rows), around)
        return _cosines(vector, summed, numpy.linalg.norm(summed, axis=1))

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
        if len(rows) and rows.min() >= 0 and rows.max() < self._table.size:  # as nearly always
            levels: Array = self._table["levels"][rows]
            return levels.astype(numpy.float32), self._table["norm"][rows]
        table = numpy.zeros((len(rows), self.dimensions), dtype=numpy.float32)
        norms = numpy.zeros(len(rows), dtype=numpy.float32)
        inside = (rows >= 0) & (rows < self._table.size)
        table[inside] = self._table["levels"][rows[inside]]
        norms[inside] = self._table["norm"][rows[inside]]
        return table, norms


def _cosines(vector: Array, table: Array, norms: Array) -> Array:
    """Cosine of each row of a table and a vector of unit length; NaN where the row has no norm."""
    if not len(table):
        return numpy.zeros(0)
    # Row by row: a product of matrices sums by where a row stands among the others.
    products = numpy.asarray(simsimd.cdist(table, vector[None, :], metric="dot")).ravel()
    with numpy.errstate(divide="ignore", invalid="ignore"):
        cosines = numpy.where(norms > 0, products / norms, numpy.nan)
    return numpy.asarray(cosines, dtype=numpy.float64)


def quantised(vector: Array) -> Array:
    """A vector as whole numbers from -127 to 127; zeros where it has no direction."""
    (row,) = levels([vector.astype("<f4").tobytes()])
    return numpy.asarray(row, dtype="i1")
