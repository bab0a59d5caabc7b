"""Two linear models: a softmax over the events of a question, a logistic regression of signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from api.retrieval.operators import Operator
from api.retrieval.story_ranker import Model, read_model, signs_of, story_scores
from tests.bench.ranker.world import Asked

OPERATORS = tuple(Operator)
SHARED_PENALTY, OWN_PENALTY = 0.005, 0.05
"""Of squared weights, in standard deviations: what an operator adds must pay for itself."""
JUDGE_PENALTY = 0.01
STEPS, JUDGE_STEPS = 300, 800
RATE = 0.05
DIGITS = 4
_FEW = 0.25
"""Worth of an event that is context alone, beside 3 and 7 of good and best ones."""
Array = Any


class Adam:
    """Steps down a gradient."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.weights = numpy.zeros(shape)
        self._mean, self._square, self._step = numpy.zeros(shape), numpy.zeros(shape), 0

    def down(self, gradient: Array) -> None:
        self._step += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient**2
        mean = self._mean / (1 - 0.9**self._step)
        square = self._square / (1 - 0.999**self._step)
        self.weights -= RATE * mean / (numpy.sqrt(square) + 1e-8)


def trained(rows: Sequence[Asked]) -> dict[str, Any]:
    """The table."""
    named = next(row.features for row in rows if row.features is not None)
    shared, operators = _ranker(rows)
    table: dict[str, Any] = {
        "features": list(named.names),
        "shared": _rounded(shared),
        "operators": {
            operator.value: _rounded(weights)
            for operator, weights in zip(OPERATORS, operators, strict=True)
            if numpy.abs(weights).max() > 0
        },
        "signs": [],
        "judge": [0.0],
    }
    signs, judge = _judge(rows, read_model(table))
    return {**table, "signs": signs, "judge": _rounded(judge)}


def _rounded(weights: Array) -> list[float]:
    return [round(float(one), DIGITS) for one in weights]


def _ranker(rows: Sequence[Asked]) -> tuple[Array, Array]:
    examples = []
    for row in rows:
        grades = row.gold()
        if row.features is None or grades.max(initial=0) < 2:
            continue
        worth = numpy.where(grades >= 2, 2.0**grades - 1, _FEW * (grades == 1))
        examples.append(
            (OPERATORS.index(row.plan.operator), row.features.matrix, worth / worth.sum())
        )
    scale = numpy.concatenate([matrix for _, matrix, _ in examples]).std(axis=0) + 1e-3
    shared = Adam(scale.shape)
    own = Adam((len(OPERATORS), len(scale)))
    for _ in range(STEPS):
        to_shared = 2 * SHARED_PENALTY * shared.weights
        to_own = 2 * OWN_PENALTY * own.weights
        for operator, matrix, worth in examples:
            scaled = matrix / scale
            scores = scaled @ (shared.weights + own.weights[operator])
            likely = numpy.exp(scores - scores.max())
            step = scaled.T @ (likely / likely.sum() - worth) / len(examples)
            to_shared += step
            to_own[operator] += step
        shared.down(to_shared)
        own.down(to_own)
    return shared.weights / scale, own.weights / scale


def _judge(rows: Sequence[Asked], model: Model) -> tuple[list[str], Array]:
    signs: list[Mapping[str, float]] = []
    known = []
    for row in rows:
        if row.features is not None:
            scores = story_scores(row.features, row.plan, model)
            signs.append(signs_of(row.features, scores, row.plan))
            known.append(not row.question["abstain"])
    names = list(signs[0])
    matrix = numpy.array([[one[name] for name in names] for one in signs])
    labels = numpy.array(known, dtype=float)
    mean, scale = matrix.mean(axis=0), matrix.std(axis=0) + 1e-6
    scaled = numpy.column_stack([(matrix - mean) / scale, numpy.ones(len(labels))])
    even = numpy.where(labels == 1, 0.5 / labels.mean(), 0.5 / (1 - labels).mean())
    fit = Adam((scaled.shape[1],))
    for _ in range(JUDGE_STEPS):
        likely = 1 / (1 + numpy.exp(-scaled @ fit.weights))
        penalty = numpy.append(JUDGE_PENALTY * fit.weights[:-1], 0.0)
        fit.down(scaled.T @ ((likely - labels) * even) / len(labels) + penalty)
    weights = fit.weights[:-1] / scale
    return names, numpy.append(weights, fit.weights[-1] - weights @ mean)
