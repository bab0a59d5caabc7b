"""The form of a vector.

Every vector that the graph holds is of unit length and kept as whole numbers, fresh or not, so it
is the same whether a model just made it or a store kept it: 384 components of one byte each, from
-127 to 127 (127 is the largest of the vector), times the scale, which gives the vector its unit
length back. So a cosine is a product of whole numbers over their norms, the same on every machine.

A scale is a multiple of 10⁻⁷, so that each component is the float32 next to a decimal of at most
seven digits, which a bulk load reads in half the time of a longer one. The length is 1 up to 10⁻⁴.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import numpy as np
import simsimd
from numpy.typing import NDArray

MOST: Final = 127
"""The largest component, by magnitude."""
_SCALE_BYTES: Final = 4
_STEPS: Final = np.float32(1e7)
"""Of a scale in 1. Times 127 a scale of so many steps is below 2^24, and so exact."""

WholeNumbers = NDArray[np.int8] | NDArray[np.float32]
"""One row for each vector, of whole numbers from -127 to 127."""
Levels = NDArray[np.float32]
"""One row for each vector, of whole numbers from -127 to 127: float32 holds their products, and
sums of 1,000 of these, exactly."""


def kept_bytes(dimensions: int) -> int:
    """How long a kept vector is."""
    return dimensions + _SCALE_BYTES


def pack(vectors: Sequence[bytes]) -> list[bytes]:
    """Vectors as they are kept: a signed byte for each component, then the float32 scale.

    Args:
        vectors: little-endian float32, of one dimension, about unit length; a vector of zeros, or
            one that is not finite, becomes zeros with scale 0.
    """
    if not vectors:
        return []
    rows = levels(vectors)
    norms = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
    scales = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    scales = (np.rint(scales * _STEPS) / _STEPS).astype("<f4")
    return [
        row.tobytes() + scale.tobytes()
        for row, scale in zip(rows.astype("i1"), scales, strict=True)
    ]


def unpack(packed: Sequence[bytes]) -> list[bytes]:
    """Kept vectors as little-endian float32, each of unit length up to rounding.

    Args:
        packed: of one dimension; a scale that is no multiple of 10⁻⁷ counts as it is.
    """
    if not packed:
        return []
    table = np.frombuffer(b"".join(packed), "i1").reshape(len(packed), -1)
    scales = np.ascontiguousarray(table[:, -_SCALE_BYTES:]).view("<f4")
    numbers = table[:, :-_SCALE_BYTES].astype("<f4")
    steps = np.rint(scales * np.float64(_STEPS)).astype("<f4")
    vectors = np.where(steps / _STEPS == scales, numbers * steps / _STEPS, numbers * scales)
    return [row.tobytes() for row in vectors]


def levels(vectors: Sequence[bytes]) -> Levels:
    """The whole numbers of vectors, kept before or not: of unpacked ones those they were made of.

    Args:
        vectors: little-endian float32, of one dimension, at least one.
    """
    table = np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1).astype(np.float64)
    largest = np.abs(table).max(axis=1, keepdims=True)
    sound = np.isfinite(largest) & (largest > 0)
    shares = np.divide(table, largest, out=np.zeros_like(table), where=sound)
    rows: Levels = np.rint(shares * MOST).astype(np.float32)
    return rows


def cosines(
    rows: WholeNumbers, others: WholeNumbers, squares: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Cosine of each row with each of the others, -1 to 1; 0 with a vector of zeros.

    Exact up to the last division: the sums are of whole numbers below 2^24, whatever their order.

    Args:
        rows: of one dimension; those of signed bytes are not copied.
        others: of the same.
        squares: of the rows, as `squares_of` gives them; None: they are computed.
    """
    table, questions = (np.ascontiguousarray(numbers, np.int8) for numbers in (rows, others))
    products = np.asarray(simsimd.cdist(table, questions, metric="dot"), np.float64)
    lengths = squares_of(table) if squares is None else squares
    norms = np.sqrt(np.outer(lengths, squares_of(questions)))
    cosines: NDArray[np.float64] = np.divide(
        products, norms, out=np.zeros_like(products), where=norms > 0
    )
    return cosines


def squares_of(rows: WholeNumbers) -> NDArray[np.float64]:
    """Square of the length of each row, a whole number."""
    squares: NDArray[np.float64] = np.square(rows, dtype=np.float64).sum(axis=1)
    return squares


def vector_of(data: bytes | None) -> NDArray[np.float32] | None:
    """The numbers of a vector, as they are: any store makes of them what it keeps."""
    return None if data is None else np.frombuffer(data, dtype="<f4")


def whole_numbers(vectors: Sequence[bytes]) -> list[bytes]:
    """The whole numbers of vectors, a signed byte each.

    Args:
        vectors: little-endian float32, as `unpack` gives them.
    """
    if len({len(vector) for vector in vectors}) != 1:
        return [numbers for vector in vectors for numbers in whole_numbers([vector])]
    return [row.tobytes() for row in levels(vectors).astype("i1")]


def as_text(numbers: bytes) -> str:
    """Whole numbers as a property that any store keeps."""
    return base64.b64encode(numbers).decode()


def kept_text(vector: Sequence[float] | None) -> str | None:
    """Whole numbers, as such a property, of a vector as the graph holds it."""
    if vector is None:
        return None
    return as_text(*whole_numbers([np.array(vector, "<f4").tobytes()]))


def from_text(text: str) -> bytes:
    """Whole numbers that were kept as text; none where it is no such text."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
