"""Adam, by which the linear models of questions, wishes and answers are fitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy

RATE, COOLING, PENALTY = 0.02, 0.93, 1e-4
BATCH: Final = 512


class Adam:
    """Steps down a gradient.

    Args:
        shape: of the weights, which begin at 0.
        rate: the length of a step, to be made shorter as one likes.
        dtype: of the weights.
    """

    def __init__(self, shape: tuple[int, ...], rate: float, dtype: type = float) -> None:
        self.rate = rate
        self.weights: Any = numpy.zeros(shape, dtype)
        self._mean: Any = numpy.zeros(shape, dtype)
        self._square: Any = numpy.zeros(shape, dtype)
        self._step = 0

    def down(self, gradient: Any) -> None:
        """A step."""
        self._step += 1
        self._mean *= 0.9
        self._mean += 0.1 * gradient
        self._square *= 0.999
        self._square += 0.001 * gradient**2
        step = numpy.sqrt(self._square)
        step *= (1 - 0.999**self._step) ** -0.5
        step += 1e-8
        numpy.divide(self._mean, step, out=step)
        step *= self.rate / (1 - 0.9**self._step)
        self.weights -= step


class SparseRows:
    """Rows that have few of many columns.

    Args:
        rows: the columns of each.
    """

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self._sizes = numpy.array([len(row) for row in rows])
        self._flat = numpy.concatenate([numpy.array(row, dtype=numpy.int64) for row in rows])
        self._ends = numpy.cumsum(self._sizes)

    def of(self, chosen: Any) -> tuple[Any, Any]:
        """Of some rows, for each of their columns: the row's place among them, and the column."""
        sizes, ends = self._sizes[chosen], self._ends[chosen]
        parts = [self._flat[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        return numpy.repeat(numpy.arange(len(chosen)), sizes), numpy.concatenate(parts)


def summed(values: Any, places: Any, size: int) -> Any:
    """The sums of those rows of an array that have one place; `places` ascend, below `size`."""
    sums = numpy.zeros((size, values.shape[1]), dtype=values.dtype)
    different, starts = numpy.unique(places, return_index=True)
    sums[different] = numpy.add.reduceat(values, starts)
    return sums


def fitted_sparse(
    rows: Sequence[Sequence[int]],
    width: int,
    wanted: Any,
    worth: Any,
    *,
    epochs: int,
    batch: int = BATCH,
    left_out: float = 0.0,
    seed: int = 0,
) -> tuple[Any, float]:
    """Weights and bias of a logistic regression, of rows that have few of many signs.

    Args:
        rows: places of the signs of each.
        width: how many signs there are.
        wanted: 1 or 0 for each row.
        worth: weights of the rows, about 1.
        epochs: turns through all rows.
        batch: rows a step.
        left_out: share of the signs that a row is without each time, so that none leans on others.
        seed: of the order of the rows, and of what is left out.
    """
    chance = numpy.random.default_rng(seed)
    weights, bias = (Adam((size,), RATE, numpy.float32) for size in (width, 1))
    sparse = SparseRows(rows)
    for _ in range(epochs):
        order = chance.permutation(len(rows))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            owner, signs = sparse.of(chosen)
            if left_out:
                stays = chance.random(len(signs)) >= left_out
                owner, signs = owner[stays], signs[stays]
            told = weights.weights[signs] / (1 - left_out)
            scores = numpy.bincount(owner, told, len(chosen)) + bias.weights
            off = (1 / (1 + numpy.exp(-scores)) - wanted[chosen]) / len(chosen) * worth[chosen]
            gradient = numpy.bincount(signs, off[owner], width) / (1 - left_out)
            weights.down(gradient.astype(numpy.float32) + PENALTY * weights.weights)
            bias.down(numpy.array([off.sum()]))
        for fit in (weights, bias):
            fit.rate *= COOLING
    return weights.weights, float(bias.weights[0])


def in_bytes(weights: Any) -> tuple[Any, float]:
    """Weights in a byte each, and what a level is worth."""
    scale = float(numpy.abs(weights).max()) / 127
    return numpy.rint(weights / scale).astype(numpy.int8), scale
