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
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient**2
        mean = self._mean / (1 - 0.9**self._step)
        square = self._square / (1 - 0.999**self._step)
        self.weights -= self.rate * mean / (numpy.sqrt(square) + 1e-8)


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
    sizes = numpy.array([len(row) for row in rows])
    flat = numpy.concatenate([numpy.array(row, dtype=numpy.int64) for row in rows])
    ends = numpy.cumsum(sizes)
    for _ in range(epochs):
        order = chance.permutation(len(rows))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            held = [flat[ends[one] - sizes[one] : ends[one]] for one in chosen]
            owner = numpy.repeat(numpy.arange(len(chosen)), sizes[chosen])
            signs = numpy.concatenate(held)
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
