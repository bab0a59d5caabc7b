"""Adam, by which the linear models of questions and answers are fitted."""

from __future__ import annotations

from typing import Any

import numpy


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
