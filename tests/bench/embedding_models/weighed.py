"""Rankings of questions: by one simple sum, and by the product's relevance with weights of its own.

The weights are fitted alike for each model, for each conversation on the other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import numpy

from api.retrieval.query_terms import QueryTerms
from api.retrieval.relevance import RelevanceWeights, relevance
from pipelines.columns.records import Standings
from tests.bench.embedding_models.asked import Asked, Question

Array = Any
CHANNELS: Final = tuple(field.name for field in fields(RelevanceWeights))
_WORDS_AND_MEANING: Final = [CHANNELS.index("words"), CHANNELS.index("cosine")]
_PENALTY: Final = 0.0001
_STEPS: Final = 50
_ENOUGH: Final = 1e-9
_RESAMPLED: Final = 2_000


def features(terms: QueryTerms, standings: Standings) -> Array:
    """What each channel of relevance says of each event, a column a channel; the best has 0."""
    if not standings.ids:
        return numpy.zeros((0, len(CHANNELS)))
    nothing = dict.fromkeys(CHANNELS, 0.0)
    alone = [RelevanceWeights(**{**nothing, name: 1.0}) for name in CHANNELS]
    return numpy.stack(
        [numpy.log(relevance(terms, standings, weights)) for weights in alone], axis=1
    )


def fitted(rows: Sequence[tuple[Array, Array]]) -> Array:
    """Weights of a softmax over the events of each question: that it picks what answers.

    Args:
        rows: features of the events of a question, and 1 for those that answer it.
    """
    weights = numpy.zeros(rows[0][0].shape[1])
    worth, slope, bend = _worth(rows, weights)
    for _ in range(_STEPS):
        step = numpy.linalg.solve(bend, slope)
        if slope @ step < _ENOUGH:
            break
        while (tried := _worth(rows, weights + step))[0] < worth:
            step = step / 2
        weights = weights + step
        worth, slope, bend = tried
    return weights


def _worth(rows: Sequence[tuple[Array, Array]], weights: Array) -> tuple[float, Array, Array]:
    """The logarithm of what a right pick is likely, its slope, and how that bends."""
    worth = -_PENALTY * float(weights @ weights) / 2
    slope = -_PENALTY * weights
    bend = _PENALTY * numpy.eye(len(weights))
    for matrix, gold in rows:
        scores = matrix @ weights
        scores -= scores.max()
        shares = numpy.exp(scores)
        total = shares.sum()
        shares /= total
        right = gold / gold.sum()
        around = matrix - shares @ matrix
        worth += float(right @ scores - numpy.log(total)) / len(rows)
        slope += right @ around / len(rows)
        bend += (around * shares[:, None]).T @ around / len(rows)
    return worth, slope, bend


def by_others(
    questions: Sequence[Question], ids: Sequence[Sequence[str]], matrices: Sequence[Array]
) -> list[Array]:
    """Scores of events, by weights that were fitted on the other tenants' questions.

    Args:
        ids: of the events of each question.
        matrices: their features.
    """
    golds = [
        numpy.array([one in question.gold for one in own], dtype=float)
        for question, own in zip(questions, ids, strict=True)
    ]
    rows = list(zip(questions, matrices, golds, strict=True))
    weights = {
        tenant: fitted(
            [(own, gold) for one, own, gold in rows if one.tenant != tenant and gold.any()]
        )
        for tenant in {question.tenant for question in questions}
    }
    return [matrix @ weights[question.tenant] for question, matrix, _ in rows]


def summed(asked: Asked) -> list[str]:
    """All events of the tenant by the sum of words and meaning, each in standard deviations."""
    matrix = features(asked.terms, asked.whole)[:, _WORDS_AND_MEANING]
    spread = matrix.std(axis=0)
    return order(asked.whole.ids, (matrix / numpy.where(spread > 0, spread, 1)).sum(axis=1))


def order(ids: Sequence[str], scores: Array) -> list[str]:
    """Ids, the best first."""
    return [ids[at] for at in numpy.argsort(-scores, kind="stable")]


def recall(question: Question, ranked: Sequence[str], cut: int) -> float:
    """Share of what answers it that stands among the first."""
    best = [one for one in ranked if one not in question.ignored][:cut]
    return len(question.gold.intersection(best)) / len(question.gold)


def interval(one: Sequence[float], other: Sequence[float]) -> str:
    """The mean of paired differences, with its 95 % interval."""
    change = numpy.subtract(one, other)
    chooser = numpy.random.default_rng(1)
    drawn = chooser.integers(0, len(change), (_RESAMPLED, len(change)))
    low, high = numpy.quantile(change[drawn].mean(axis=1), (0.025, 0.975))
    return f"{change.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
