"""Vectors as whole numbers: unit length, near to what they were, and the same however often."""

from __future__ import annotations

from fractions import Fraction
from math import isclose

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from enrichment.vectors import cosines, kept_bytes, levels, pack, unpack

WIDTH = 24
STEP = 0.5 / 127
"""Half of a step, for a vector whose largest component is 1."""

components = st.floats(-1, 1, width=32)
tables = arrays(np.float32, st.tuples(st.integers(1, 6), st.just(WIDTH)), elements=components)


def encoded(table: np.ndarray) -> list[bytes]:
    return [row.astype("<f4").tobytes() for row in table]


def numbers(vector: bytes) -> np.ndarray:
    return np.frombuffer(vector, "<f4").astype(np.float64)


@given(tables)
def test_a_vector_comes_back_with_unit_length_and_its_direction(table: np.ndarray) -> None:
    kept = pack(encoded(table))
    assert {len(one) for one in kept} == {kept_bytes(WIDTH)}
    for row, vector in zip(table.astype(np.float64), map(numbers, unpack(kept)), strict=True):
        largest = np.abs(row).max()
        if largest == 0:
            assert not vector.any()
            continue
        assert isclose(np.linalg.norm(vector), 1, rel_tol=1.3e-4)
        length = np.linalg.norm(row / largest)
        off = np.abs(vector * np.abs(row / largest).max() / np.abs(vector).max() - row / largest)
        assert off.max() <= STEP + 1e-6
        if length > 1.5:
            assert vector @ row / np.linalg.norm(row) > 0.99


@given(tables)
def test_what_went_through_once_stays_as_it_is(table: np.ndarray) -> None:
    kept = pack(encoded(table))
    vectors = unpack(kept)
    assert pack(vectors) == kept
    assert unpack(pack(vectors)) == vectors
    stored = np.frombuffer(b"".join(kept), "i1").reshape(len(kept), -1)[:, :WIDTH]
    assert (levels(vectors) == stored).all()


@given(tables, st.randoms(use_true_random=False))
def test_a_cosine_is_that_of_whole_numbers_whatever_their_order(
    table: np.ndarray,
    random: object,
) -> None:
    rows = levels(unpack(pack(encoded(table))))
    found = cosines(rows, rows)
    whole = rows.astype(int).tolist()
    for left, one in enumerate(whole):
        for right, other in enumerate(whole):
            product = sum(a * b for a, b in zip(one, other, strict=True))
            norm = sum(a * a for a in one) * sum(b * b for b in other)
            expected = 0.0 if norm == 0 else product / np.sqrt(float(norm))
            assert found[left, right] == expected
            if norm:
                assert Fraction(product) ** 2 <= norm
    shuffled = list(range(WIDTH))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert (cosines(rows[:, shuffled], rows[:, shuffled]) == found).all()


def test_the_largest_sum_is_exact() -> None:
    rows = np.full((2, 1_000), 127, np.float32)
    rows[1, 0] = 126
    assert float((rows @ rows.T)[0, 1]) == 127 * 127 * 999 + 127 * 126
    assert cosines(rows, rows)[0, 0] == 1.0


def test_what_is_no_number_says_nothing() -> None:
    row = np.ones((1, WIDTH), "<f4")
    row[0, 3] = np.nan
    assert not numbers(unpack(pack(encoded(row)))[0]).any()
    assert (pack([]), unpack([])) == ([], [])
