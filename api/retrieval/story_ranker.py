"""Which events answer a question, and whether any does: two linear models over features. Pure.

The weights are a table of numbers (`story_ranker.json`), made by `make train-ranker` from
developers' sets: shared ones, and what an operator adds to them. A score is comparable within one
question. The confidence is a probability with the same meaning in all of them: that the memory
knows what is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import numpy
import orjson

from api.retrieval.plan import VALUES, Operator, Plan
from api.retrieval.story_features import Features
from pipelines.columns.records import Array

TABLE: Final = "story_ranker.json"
_OF_FAILURES: Final = frozenset(
    (Operator.CAUSE, Operator.FAILURES, Operator.SIMILAR, Operator.COUNT, Operator.USERS)
)
_OF_STORIES: Final = frozenset((Operator.CAUSE, Operator.LESSON, Operator.FAILURES))
_OF_PEOPLE: Final = frozenset(
    (Operator.LAST, Operator.FIRST, Operator.PROFILE, Operator.PREFERENCE, Operator.PROMISE)
)
_WHOLE: Final = frozenset((Operator.LAST, Operator.PROFILE, Operator.SUMMARY, Operator.WINDOW))
_MANY_NAMES: Final = 3
BEYOND_LIMITS: Final = -4.0
"""Of a score, where an event cannot answer: what is alike stands behind what is asked for."""


BEYOND_AN_ACT: Final = -40.0
"""Likewise where exactly one act has the verb and the object of the question."""


class Model(NamedTuple):
    """Weights by feature, and of the judge.

    Attributes:
        features: names, in the order of the weights.
        shared: of all operators.
        operators: what each adds.
        signs: names of what the judge looks at, in the order of its weights.
        judge: weights of the signs, and the last one of nothing.
    """

    features: tuple[str, ...]
    shared: Array
    operators: Mapping[str, Array]
    signs: tuple[str, ...]
    judge: Array


@cache
def model() -> Model:
    """The table that is checked in."""
    return read_model(orjson.loads(files(__package__).joinpath(TABLE).read_bytes()))


def read_model(table: Mapping[str, Any]) -> Model:
    """What a table says."""
    return Model(
        features=tuple(table["features"]),
        shared=numpy.array(table["shared"]),
        operators={name: numpy.array(weights) for name, weights in table["operators"].items()},
        signs=tuple(table["signs"]),
        judge=numpy.array(table["judge"]),
    )


def story_scores(features: Features, plan: Plan, chosen: Model | None = None) -> Array:
    """A score of each event; the larger, the better it answers.

    Raises:
        ValueError: the table was made for other features.
    """
    chosen = chosen or model()
    if features.names != chosen.features:
        raise ValueError("the ranker was trained on other features: make train-ranker")
    scores = features.matrix @ _weights(chosen, plan)
    is_certain = features.is_an_act or (plan.operator in VALUES and bool(features.facts))
    beyond = BEYOND_AN_ACT if is_certain else BEYOND_LIMITS
    return numpy.asarray(scores + numpy.where(features.within, 0.0, beyond))


def _weights(chosen: Model, plan: Plan) -> Array:
    added = chosen.operators.get(plan.operator)
    return chosen.shared if added is None else chosen.shared + added


def explained(features: Features, plan: Plan, place: int, most: int = 5) -> dict[str, float]:
    """The features that count most in an event's score, each with what it adds."""
    chosen = model()
    parts = features.matrix[place] * _weights(chosen, plan)
    order = numpy.argsort(-numpy.abs(parts), kind="stable")[:most]
    return {chosen.features[one]: round(float(parts[one]), 2) for one in order if parts[one]}


def confidence_of(
    features: Features, scores: Array, plan: Plan, chosen: Model | None = None
) -> float:
    """That the memory knows what is asked for, 0 to 1."""
    chosen = chosen or model()
    signs = signs_of(features, scores, plan)
    total = float(numpy.append([signs[name] for name in chosen.signs], 1.0) @ chosen.judge)
    return float(1 / (1 + numpy.exp(-total)))


def signs_of(features: Features, scores: Array, plan: Plan) -> dict[str, float]:
    """What a judge looks at: how the best event and its story fit what is asked, by name."""
    best = features.matrix[int(scores.argmax())]
    value = dict(zip(features.names, best.tolist(), strict=True))
    words, meaning = features.column("words").max(), features.column("meaning").max()
    asks = _Asks(plan.operator)
    missing = 0.0 if features.held is None else 1 - features.held
    named = float(features.is_named)
    held = value["story_identifiers"]  # 0 where the question has none
    apart = 0.0 if features.held is None else 1 - held
    unsaid = 1 - value["story_words"]
    return {
        "unknown": features.unknown,
        "unknown_squared": features.unknown**2,
        "best_words": float(words),
        "best_meaning": float(meaning),
        "covered": features.covered,
        **{name: value[name] for name in _OF_BEST},
        "identifiers_unknown": missing,
        "identifiers_apart": apart,
        "identifiers_held": held,
        "held_unsaid": held * unsaid,
        "held_unknown": held * features.unknown,
        "held_elsewhere": held * max(0.0, features.covered - value["story_words"]),
        "held_meaning": held * value["meaning"],
        "held_story_meaning": held * value["story_meaning"],
        "names_unknown": min(features.unknown_names, _MANY_NAMES) / _MANY_NAMES,
        "name_unknown": float(features.unknown_names > 0),
        "is_named": named,
        "no_failure": asks.of(_OF_FAILURES) * (1 - value["story_failed"]),
        "no_fix": asks.of((Operator.LESSON,)) * (1 - value["story_fixed"]),
        "nobody_named": asks.of(_OF_PEOPLE) * (1 - named),
        "whole": asks.of(_WHOLE),
        "whole_of_named": asks.of(_WHOLE) * named,
        "value_words": asks.of(VALUES) * value["words"],
        "value_unsaid": asks.of(VALUES) * (1 - float(words)),
        "preference_meaning": asks.of((Operator.PREFERENCE,)) * float(meaning),
        "search_meaning": asks.of((Operator.SEARCH,)) * float(meaning),
        "similar_words": asks.of((Operator.SIMILAR,)) * value["words"],
        "similar_meaning": asks.of((Operator.SIMILAR,)) * value["meaning"],
        "session_found": asks.of((Operator.SUMMARY,)) * value["in_session"],
        "story_unsaid": asks.of(_OF_STORIES) * unsaid,
        "promise": asks.of((Operator.PROMISE,)),
    }


_OF_BEST: Final = (
    *("story_words", "words", "meaning", "story_meaning", "words_near", "story_named"),
)
"""Features of the best event that are signs themselves."""


class _Asks:
    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def of(self, operators: frozenset[Operator] | Sequence[Operator]) -> float:
        return float(self._operator in operators)
