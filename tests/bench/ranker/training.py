"""Two linear models: a softmax over the events of a question, a logistic regression of signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from api.retrieval.plan import VALUES, Operator
from api.retrieval.story_ranker import Model, read_model, signs_of, story_scores
from api.retrieval.story_terms import BY_FAILURE
from tests.bench.adam import Adam
from tests.bench.ranker.world import MISTAKEN, Asked

OPERATORS = tuple(Operator)
SHARED_PENALTY, OWN_PENALTY = 0.005, 0.03
"""Of squared weights, in standard deviations: what an operator adds must pay for itself."""
JUDGE_PENALTY = 0.01
MISTAKEN_WORTH = 0.02
"""Of a question that names another matter than it is about, to the judge: people seldom mix up
what they name, and often say of what they name what nobody else said of it."""
STEPS, JUDGE_STEPS = 300, 800
RATE = 0.05
DIGITS = 4
_FEW = 0.25
"""Worth of an event that is context alone, beside 3 and 7 of good and best ones."""
Array = Any

_ALL = frozenset(Operator)
_OF_STEPS = frozenset((Operator.AFTER, Operator.BEFORE))
_OF_SPANS = frozenset((Operator.WINDOW, Operator.SUMMARY))
_OF_SPEECH = frozenset(
    (
        *(Operator.LAST, Operator.FIRST, Operator.PROFILE, Operator.PREFERENCE),
        Operator.PROMISE,
    )
)
_OF_WISHES = frozenset((Operator.PROFILE, Operator.PREFERENCE, Operator.PROMISE))
_STEPS = tuple(
    f"{side}_{distance}" for side in ("after", "before") for distance in (1, 2, 3, 4, "more")
)
MEANINGFUL: Sequence[tuple[frozenset[Operator], tuple[str, ...]]] = (
    (
        _ALL,
        (
            *("words", "words_of_best", "words_near", "story_words", "meaning", "meaning_of_best"),
            *("meaning_near", "story_meaning", "story_mean", "identifiers", "story_identifiers"),
            *("identifiers_missing", "named", "story_named", "theirs", "acted", "in_session"),
            *("elsewhere", "story_behind", "best_story", "within", "too_late", "recent"),
            *("newest", "oldest"),
        ),
    ),
    (_ALL, ("person_says", "agent_says", "call", "worked", "failed", "other")),
    (_OF_SPEECH, ("last_said", "first_said")),
    (
        VALUES | {Operator.PROFILE, Operator.TIME},
        (
            *("newest_before", "second_before", "set_last", "set_before", "set_earlier", "sets"),
            *("sets_last", "set_once"),
        ),
    ),
    (
        BY_FAILURE | _OF_STEPS | _OF_SPANS,
        (
            *("failed_call", "fixing_call", "fixing_result", "helped", "person_helped"),
            *("asked_for_help", "retried", "story_failed", "story_fixed"),
        ),
    ),
    (frozenset({Operator.CALLS}), ("failed_call", "story_failed")),
    (
        _OF_SPANS
        | _OF_WISHES
        | {Operator.FIRST, Operator.LAST, Operator.CAUSE, Operator.LESSON, Operator.SEARCH},
        ("first", "opening", "last"),
    ),
    (frozenset({Operator.SEARCH}), ("story_failed", "story_fixed")),
    (_OF_STEPS, (*_STEPS, "anchor", "story_of_anchor")),
    (
        frozenset({Operator.PROMISE, Operator.PREFERENCE}),
        ("marked", "marked_by_agent", "marked_newest"),
    ),
    (frozenset({Operator.PREFERENCE, Operator.PROFILE, Operator.SEARCH}), ("person_meaning",)),
    (frozenset({Operator.CAUSE}), ("nobodys", "behind_failure")),
    (_OF_SPANS | {Operator.PROFILE, Operator.SEARCH}, ("length",)),
    (_OF_WISHES | {Operator.SEARCH}, ("asks", "acted_upon", "tells_of_act")),
)
"""Which features mean something to which operators; those of the first row are shared, too.

What is left out is true of the sets that are trained on, and of no other: that a failure stands at
the fourth place of a story, that what belongs to nobody is the answer.
"""
NEVER_AGAINST = (
    *("named", "story_named", "theirs", "acted", "behind_failure"),
    *("words", "story_words", "meaning", "story_meaning", "best_story"),
)
"""Features that speak for an event, however few examples there are."""


def trained(
    rows: Sequence[Asked],
    judged: Sequence[Asked] = (),
    *,
    ranker: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The table.

    Args:
        rows: that both learn from.
        judged: that the judge learns from besides. The ranker does not: of more domains by one
            generator it learns how that tells its stories, and ranks others worse.
        ranker: a table whose ranker is taken as it is; None: it is trained.
    """
    table = dict(ranker or _ranked(rows))
    signs, judge = _judge([*rows, *judged], read_model(table))
    return {**table, "signs": signs, "judge": _rounded(judge)}


def _ranked(rows: Sequence[Asked]) -> dict[str, Any]:
    """A table whose judge knows nothing."""
    named = next(row.features for row in rows if row.features is not None)
    shared, operators = _ranker(rows)
    return {
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


def _rounded(weights: Array) -> list[float]:
    return [round(float(one), DIGITS) for one in weights]


def _ranker(rows: Sequence[Asked]) -> tuple[Array, Array]:
    examples = []
    for row in rows:
        grades = row.gold()
        if row.features is None or grades.max(initial=0) < 2:
            continue
        worth = numpy.where(grades >= 2, 2.0**grades - 1, _FEW * (grades == 1))
        operator = OPERATORS.index(row.plan.operator)
        examples.append((operator, row.features.matrix, worth / worth.sum()))
    names = next(row.features.names for row in rows if row.features is not None)
    of_all, of_each, never_against = _allowed(names)
    scale = numpy.concatenate([matrix for _, matrix, _ in examples]).std(axis=0) + 1e-3
    shared = Adam(scale.shape, RATE)
    own = Adam((len(OPERATORS), len(scale)), RATE)
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
        shared.down(to_shared * of_all)
        own.down(to_own * of_each)
        least = numpy.where(never_against, 0.0, -numpy.inf)
        shared.weights = numpy.maximum(shared.weights, least)
        own.weights = numpy.maximum(own.weights, least - shared.weights)
    return shared.weights / scale, own.weights / scale


def _allowed(names: Sequence[str]) -> tuple[Array, Array, Array]:
    """Which weights there are: the shared ones, those of each operator; which are never below 0."""
    of_each = numpy.zeros((len(OPERATORS), len(names)), dtype=bool)
    for operators, features in MEANINGFUL:
        for feature in features:
            for operator in operators:
                of_each[OPERATORS.index(operator), names.index(feature)] = True
    of_all = numpy.array([one in MEANINGFUL[0][1] for one in names])
    return of_all, of_each, numpy.array([one in NEVER_AGAINST for one in names])


def _judge(rows: Sequence[Asked], model: Model) -> tuple[list[str], Array]:
    signs: list[Mapping[str, float]] = []
    known, told = [], []
    for row in rows:
        if row.features is not None:
            scores = story_scores(row.features, row.plan, model)
            signs.append(signs_of(row.features, scores, row.plan))
            known.append(not row.question["abstain"])
            told.append(MISTAKEN_WORTH if row.question["kind"] == MISTAKEN else 1.0)
    names = list(signs[0])
    matrix = numpy.array([[one[name] for name in names] for one in signs])
    labels, worth = numpy.array(known, dtype=float), numpy.array(told)
    mean, scale = matrix.mean(axis=0), matrix.std(axis=0) + 1e-6
    scaled = numpy.column_stack([(matrix - mean) / scale, numpy.ones(len(labels))])
    even = worth * numpy.where(labels == 1, 0.5 / (worth @ labels), 0.5 / (worth @ (1 - labels)))
    fit = Adam((scaled.shape[1],), RATE)
    for _ in range(JUDGE_STEPS):
        likely = 1 / (1 + numpy.exp(-scaled @ fit.weights))
        penalty = numpy.append(JUDGE_PENALTY * fit.weights[:-1], 0.0)
        fit.down(scaled.T @ ((likely - labels) * even) + penalty)
    weights = fit.weights[:-1] / scale
    return names, numpy.append(weights, fit.weights[-1] - weights @ mean)
