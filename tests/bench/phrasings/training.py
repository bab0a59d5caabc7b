"""Two linear models of how questions are put: a softmax over operators, a logistic one of words."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import numpy
import orjson

from api.retrieval.plan import Operator
from api.retrieval.planning import rows_matching
from api.retrieval.question_forms import (
    ELSEWHERE,
    NAME,
    NUMBER,
    QUOTE,
    Token,
    grams_of,
    rows_grams,
    signs_of,
    tokens_of,
)
from tests.bench.adam import (
    BATCH,
    COOLING,
    PENALTY,
    RATE,
    Adam,
    SparseRows,
    fitted_sparse,
    in_bytes,
    summed,
)

Array = Any
Embedded = Callable[[Sequence[str]], Array]
FOLDER: Final = Path(__file__).parent
CLASSES: Final = (*(one.value for one in Operator), ELSEWHERE)
WAYS: Final = 4
"""How often a phrasing with gaps is filled: as it is, in small letters, without its mark, again."""
LEAST_PHRASINGS: Final = 3
"""That a gram stands in, to be learned."""
EPOCHS, TOPIC_EPOCHS = 12, 6
MEANING: Final = 4.0
"""Length of a question's vector among signs that are 1."""
WITHOUT: Final = 0.5
"""Share of the questions of a batch whose vector is left out, for words must do without it."""
TURNS: Final = 4
"""Fits, each in another order and with other vectors left out, whose weights are averaged."""
SMALLEST: Final = 0.12
"""Weights of signs below are left out of the table."""
_GAP: Final = re.compile(r"\{(\w+)\}")
DOMAINS: Final = FOLDER.parent / "domains"
KINDS: Final = {
    "why_same": "cause",
    "why_cross": ELSEWHERE,
    "why_handed": "cause_handed",
    "tools": "calls",
    "failed_calls": "failures",
    "who": "actor",
    "who_took": "actor_took",
    "when": "time",
    "when_change": "time_change",
    "when_kept": "time_kept",
    "happened": "window",
    "which_users": "users",
    "fact_now": "value",
    "fact_before": "value_before",
    "fact_at": "value_at",
    "pref": "preference",
    "pref_narrow": "preference_case",
    "lookup": "search",
}
"""What domains call otherwise."""
IN_ONE_VOICE: Final = 3.0
"""Weight of a phrasing by somebody who wrote as one person of one trade, beside one of a list."""
_FILLED_BY: Final = {
    ("time_kept", "deed"): "do",
    ("first", "topic"): "thing",
    ("cause_elsewhere", "thing"): "symptom",
    ("cause_handed", "thing"): "case_thing",
    ("actor_took", "thing"): "case_thing",
    ("after", "thing"): "event",
    ("before", "thing"): "event",
    ("users", "past"): "users_past",
}


class Phrasing(NamedTuple):
    """A way to ask.

    Attributes:
        kind: what for; the operator, and what follows the first underscore tells variants apart.
        text: with gaps in braces.
        weight: how much it counts.
    """

    kind: str
    text: str
    weight: float = 1.0

    @property
    def operator(self) -> str:
        return max(
            (one.value for one in Operator if f"{self.kind}_".startswith(f"{one.value}_")), key=len
        )


class Filled(NamedTuple):
    """A question, and where what it asks about stands in it."""

    operator: str
    text: str
    topics: Sequence[tuple[int, int]]
    elsewhere: bool = False
    weight: float = 1.0

    @property
    def learned_as(self) -> str:
        return ELSEWHERE if self.elsewhere else self.operator


def phrasings(name: str, weight: float = 1.0) -> list[Phrasing]:
    """Those of a file."""
    told = orjson.loads((FOLDER / name).read_bytes())
    return [Phrasing(kind, text, weight) for kind, texts in told.items() for text in texts]


def of_domains(names: Iterable[str]) -> list[Phrasing]:
    """How the writers of domains put their questions."""
    ways = []
    for name in names:
        told = orjson.loads((DOMAINS / f"{name}.json").read_bytes())["PHRASES"]
        for kind, texts in told.items():
            ways += [Phrasing(KINDS.get(kind, kind), text, IN_ONE_VOICE) for text in texts]
    return ways


def filled(ways: Iterable[Phrasing], chance: Random, times: int = WAYS) -> Iterator[Filled]:
    """Questions of phrasings, their gaps filled with whatever stands in `fillers.json`."""
    fillers = orjson.loads((FOLDER / "fillers.json").read_bytes())
    for way in ways:
        for time in range(times if _GAP.search(way.text) else 1):
            one = _filled(way, fillers, chance)
            if time == 1:
                one = one._replace(text=one.text.lower())
            elif time == 2:
                one = one._replace(text=one.text.rstrip("?."))
            yield one


def _filled(way: Phrasing, fillers: Mapping[str, Sequence[str]], chance: Random) -> Filled:
    text, topics, last = "", [], 0
    for gap in _GAP.finditer(way.text):
        name = gap[1][0].lower() + gap[1][1:]
        filler = chance.choice(fillers[_FILLED_BY.get((way.kind, name), name)])
        if name != gap[1]:
            filler = filler[0].upper() + filler[1:]
        text += way.text[last : gap.start()]
        topics.append((len(text), len(text) + len(filler)))
        text += filler
        last = gap.end()
    is_elsewhere = way.kind == ELSEWHERE
    text += way.text[last:]
    return Filled(way.operator, text, topics, elsewhere=is_elsewhere, weight=way.weight)


def trained(
    ways: Sequence[Phrasing], whole: Sequence[Filled], embedded: Embedded, seed: int = 1
) -> dict[str, Any]:
    """The table.

    Args:
        ways: phrasings.
        whole: questions that are learned as they are.
        embedded: the vectors of texts, a row each.
        seed: of what fills the gaps.
    """
    questions = [*filled(ways, Random(seed)), *(one for one in whole for _ in range(WAYS))]
    vectors = MEANING * embedded([one.text for one in questions])
    grams, weights, meaning, bias = _operators(questions, ways, vectors)
    words = _words(ways)
    topic, topic_bias = _topics([one for one in questions if one.topics], words)
    levels, scale = in_bytes(weights)
    used = numpy.abs(levels).max(axis=1) > 1
    of_vectors, meaning_scale = in_bytes(meaning)
    return {
        "operators": [*CLASSES],
        "grams": [gram for gram, one in zip(grams, used, strict=True) if one],
        "weights": b64encode(levels[used].tobytes()).decode(),
        "weights_scale": scale,
        "meaning": b64encode(of_vectors.tobytes()).decode(),
        "meaning_scale": MEANING * meaning_scale,
        "bias": [round(float(one), 4) for one in bias],
        "words": sorted(words),
        "topic": topic,
        "topic_bias": round(topic_bias, 4),
    }


def _operators(
    questions: Sequence[Filled], ways: Sequence[Phrasing], vectors: Array
) -> tuple[list[str], Array, Array, Array]:
    held = [
        sorted(grams_of(tokens_of(one.text)) | rows_grams(rows_matching(one.text)))
        for one in questions
    ]
    learned = _grams(ways) | {gram for one in held for gram in one if _is_of_rows(gram)}
    grams = sorted(learned)
    places = {gram: place for place, gram in enumerate(grams)}
    signs = SparseRows([[places[gram] for gram in one if gram in places] for one in held])
    labels = numpy.array([CLASSES.index(one.learned_as) for one in questions])
    counts = numpy.bincount(labels, minlength=len(CLASSES))
    worth = numpy.sqrt(len(labels) / len(CLASSES) / numpy.maximum(counts, 1))[labels]
    worth = (worth * numpy.array([one.weight for one in questions])).astype(numpy.float32)
    wanted = numpy.eye(len(CLASSES), dtype=numpy.float32)[labels]
    fits = [
        _fitted(signs, vectors, len(grams), wanted=wanted, worth=worth, seed=seed)
        for seed in range(TURNS)
    ]
    weights, meaning, bias = (sum(parts) / TURNS for parts in zip(*fits, strict=True))
    return grams, weights, meaning, bias


def _is_of_rows(gram: str) -> bool:
    return gram.startswith(("row ", "top ", "sure "))


def _grams(ways: Sequence[Phrasing]) -> set[str]:
    """The grams of phrasings themselves, without what fills their gaps."""
    counts: Counter[str] = Counter()
    for way in ways:
        told = tokens_of(_GAP.sub(" 0 ", way.text))
        counts.update(gram for gram in grams_of(told) if NUMBER not in gram.split())
    return {gram for gram, times in counts.items() if times >= LEAST_PHRASINGS}


def _words(ways: Sequence[Phrasing]) -> set[str]:
    """The words that phrasings with gaps have beside their gaps."""
    told = (tokens_of(_GAP.sub(" 0 ", way.text)) for way in ways if _GAP.search(way.text))
    counts = Counter(form for one in told for form in {token.form for token in one})
    return {form for form, times in counts.items() if times >= LEAST_PHRASINGS} - {
        *(NUMBER, NAME, QUOTE)
    }


def _topics(questions: Sequence[Filled], words: set[str]) -> tuple[dict[str, float], float]:
    """Weights of the signs of a word, for it to stand in a gap."""
    signs: list[tuple[str, ...]] = []
    inside: list[bool] = []
    told_worth: list[float] = []
    for one in questions:
        told = tokens_of(one.text)
        for token, beside in zip(told, signs_of(told, frozenset(words)), strict=True):
            signs.append(beside)
            inside.append(_is_inside(token, one.topics))
            told_worth.append(one.weight)
    counts = Counter(sign for one in signs for sign in one)
    names = sorted(sign for sign, times in counts.items() if times > WAYS)
    places = {name: place for place, name in enumerate(names)}
    rows = [[places[sign] for sign in one if sign in places] for one in signs]
    worth = numpy.array(told_worth, dtype=numpy.float32)
    wanted = numpy.array(inside, dtype=numpy.float32)
    weights, bias = fitted_sparse(
        rows, len(names), wanted, worth / worth.mean(), epochs=TOPIC_EPOCHS
    )
    told_of = zip(names, weights.tolist(), strict=True)
    return {name: round(one, 3) for name, one in told_of if abs(one) > SMALLEST}, bias


def _is_inside(token: Token, topics: Sequence[tuple[int, int]]) -> bool:
    return any(start <= token.start < end for start, end in topics)


def _fitted(
    signs: SparseRows, vectors: Array, width: int, *, wanted: Array, worth: Array, seed: int
) -> tuple[Array, Array, Array]:
    """Weights of the grams and of the vectors, and the bias, of a softmax."""
    chance = numpy.random.default_rng(seed)
    widths = (width, vectors.shape[1], 1)
    weights, meaning, bias = (Adam((one, wanted.shape[1]), RATE, numpy.float32) for one in widths)
    for _ in range(EPOCHS):
        order = chance.permutation(len(vectors))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            owner, columns = signs.of(batch)
            held = vectors[batch] * (chance.random((len(batch), 1)) >= WITHOUT)
            scores = summed(weights.weights[columns], owner, len(batch))
            scores = scores + held @ meaning.weights + bias.weights
            shares = numpy.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            off = (shares - wanted[batch]) * worth[batch, None] / len(batch)
            by_column = numpy.argsort(columns, kind="stable")
            gradient = summed(off[owner[by_column]], columns[by_column], width)
            weights.down(gradient + PENALTY * weights.weights)
            meaning.down(held.T @ off + PENALTY * meaning.weights)
            bias.down(off.sum(axis=0, keepdims=True))
        for fit in (weights, meaning, bias):
            fit.rate *= COOLING
    return weights.weights, meaning.weights, bias.weights[0]
