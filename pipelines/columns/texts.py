"""Words of texts: which holds which stem how often, and BM25 over them.

Postings are arrays that grow at their end, so a text is found the moment it is written. A library
of inverted indexes commits segments, which takes longer than a question (decision 18), and would
need the same tests of visibility a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy

from pipelines.columns.tables import NOBODY, Array, Bits, ByRow, Rows, Table

_K1: Final = 1.2
_B: Final = 0.75
"""Of BM25, as search engines have them."""
_MOST_COUNTED: Final = 255
_FEW: Final = 2
"""Most stems are held by one text or two."""


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

    def scores(self, stems: Iterable[str], rows: int) -> Array:
        """BM25 of each row, 0 of one that holds none of the stems.

        Args:
            stems: of the question.
            rows: how many there are.
        """
        texts = self._texts
        scores = numpy.zeros(texts.size, dtype=numpy.float32)
        share = _K1 * _B / max(1.0, self._words / max(1, self._saying))
        bounds = texts["words"] * numpy.float32(share)
        bounds += numpy.float32(_K1 * (1 - _B))
        for stem in dict.fromkeys(stems):
            postings = self._postings.get(stem)
            if postings is None:
                continue
            held, count = postings["text"], postings["count"].astype(numpy.float32)
            total = max(self._saying, postings.size)
            rarity = numpy.log1p((total - postings.size + 0.5) / (postings.size + 0.5))
            weight = numpy.float32(rarity * (1 + _K1))
            scores[held] += weight * count / (count + bounds[held])
        by_row = numpy.zeros(rows, dtype=numpy.float32)
        holding = numpy.flatnonzero(scores)
        owners = texts["row"][holding]
        standing = owners != NOBODY
        by_row[owners[standing]] = scores[holding[standing]]
        return by_row

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
        for column, stem in enumerate(stems):
            postings = self._postings.get(stem)
            if postings is not None:
                owners = self._texts["row"][postings["text"]]
                counts[column] = int(seen[owners[owners != NOBODY]].sum())
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
