"""Which operator a question asks for by its form, and which of its words say what about. Pure.

Two linear models over the words of a question and their neighbours, trained on ways to ask that
people wrote down with gaps for what they ask about (`make train-phrasings`; decision 33). A word
that stands in none of these is unknown, so no name, product or trade is learned: "what tripped up
the frobnication" has the form of "what tripped up the refund". Where the vector of a question is
at hand, it says what words that no phrasing has mean.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeVar

import numpy
import orjson
from numpy.typing import NDArray

from enrichment.grams import END, START, word_grams

Row = TypeVar("Row", bound=str)
TABLE: Final = "question_forms.json"
NUMBER, NAME, UNKNOWN, QUOTE = "0", "A", "?w", "Q"
"""Stand for a word with a digit, one with a capital letter, one of no phrasing, what is quoted."""
ELSEWHERE: Final = "cause_elsewhere"
"""A class of its own of the operator `cause`: which earlier change elsewhere is behind it."""
ASKS_BELOW, SURELY_BELOW = -2.0, -3.0
"""Weights of a word below which it says how a question asks, and not what about."""
_QUOTED: Final = re.compile(r"[\"\u201c\u201e\u00ab`].{6,}?[\"\u201d\u201c\u00bb`]", re.DOTALL)
_TOKEN: Final = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*|\S*\d\S*|[?:;,.!\u2013\u2014\"-]")
_ENDS_A_SENTENCE: Final = frozenset((START, ".", "!", "?", ":"))


class Token(NamedTuple):
    """A word of a question: what it counts as, and where it stands."""

    form: str
    start: int
    end: int


class Reading(NamedTuple):
    """How likely each operator is meant, and whether a cause elsewhere rather than one here."""

    shares: dict[str, float]
    elsewhere: bool


class Forms(NamedTuple):
    """The two models.

    Attributes:
        operators: names, in the order of the weights, and ELSEWHERE.
        grams: the place of each gram among the weights.
        weights: of the grams, a row each.
        meaning: weights of the dimensions of a question's vector, a row each.
        bias: of the operators.
        words: that stand in phrasings.
        topic: weights of what a word stands among, for it to say what the question is about.
        topic_bias: of a word of which nothing is known.
    """

    operators: tuple[str, ...]
    grams: Mapping[str, int]
    weights: NDArray[Any]
    meaning: NDArray[Any]
    bias: NDArray[Any]
    words: frozenset[str]
    topic: Mapping[str, float]
    topic_bias: float


@cache
def forms() -> Forms:
    """The table that is checked in."""
    return read_forms(orjson.loads(files(__package__).joinpath(TABLE).read_bytes()))


def read_forms(table: Mapping[str, Any]) -> Forms:
    """What a table says."""
    operators = tuple(table["operators"])

    def rows(name: str) -> NDArray[Any]:
        levels = numpy.frombuffer(b64decode(table[name]), dtype=numpy.int8)
        weights = levels.reshape(-1, len(operators)).astype(numpy.float32) * table[f"{name}_scale"]
        return numpy.asarray(weights)

    return Forms(
        operators=operators,
        grams={gram: place for place, gram in enumerate(table["grams"])},
        weights=rows("weights"),
        meaning=rows("meaning"),
        bias=numpy.array(table["bias"]),
        words=frozenset(table["words"]),
        topic=table["topic"],
        topic_bias=table["topic_bias"],
    )


def tokens_of(text: str) -> list[Token]:
    """The words and marks of a text, in their order; several names or numbers in a row are one."""
    quotes = [match.span() for match in _QUOTED.finditer(text)]
    told: list[Token] = []
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        before = told[-1].form if told else START
        form = _form(match[0], before)
        if any(first <= start < last for first, last in quotes):
            form = QUOTE
        if form in (NUMBER, NAME, QUOTE) and form == before:
            told[-1] = told[-1]._replace(end=end)
        else:
            told.append(Token(form, start, end))
    return told


def _form(word: str, before: str) -> str:
    if any(map(str.isdigit, word)):
        return NUMBER
    is_name = word[0].isupper() and before not in _ENDS_A_SENTENCE
    if is_name and word != "I" and not word.startswith(("I'", "I\u2019")):
        return NAME
    return word.lower().replace("\u2019", "'")


def grams_of(told: Sequence[Token]) -> set[str]:
    """Up to three words in a row, and two with one between them."""
    return word_grams([token.form for token in told])


def rows_grams(rows: Mapping[Row, float]) -> set[str]:
    """What the rows of `plan_phrases` that match a question add to its grams.

    Args:
        rows: the strength of the strongest of each operator.
    """
    if not rows:
        return {"row none"}
    first = max(rows, key=rows.__getitem__)
    sure = {f"sure {first}"} if rows[first] >= 1 else set()
    return {f"top {first}", *(f"row {operator}" for operator in rows), *sure}


def likely(
    text: str,
    rows: Mapping[Row, float],
    model: Forms | None = None,
    *,
    vector: Sequence[float] | None = None,
) -> dict[str, float]:
    """How likely each operator is meant, 0 to 1, all of them 1 together.

    Args:
        text: the question.
        rows: as `rows_grams` takes them.
        model: None: that of the table.
        vector: of the question, by the embedder; None: its words must do.
    """
    return reading(text, rows, model, vector=vector).shares


def reading(
    text: str,
    rows: Mapping[Row, float],
    model: Forms | None = None,
    *,
    vector: Sequence[float] | None = None,
) -> Reading:
    """What a question is read as; arguments as of `likely`."""
    model = model or forms()
    grams = grams_of(tokens_of(text)) | rows_grams(rows)
    held = sorted(model.grams[gram] for gram in grams if gram in model.grams)  # summed alike
    scores = model.weights[held].sum(axis=0) + model.bias
    if vector is not None:
        scores = scores + numpy.asarray(vector, dtype=numpy.float32) @ model.meaning
    worth = numpy.exp(scores - scores.max())
    shares = dict(zip(model.operators, (worth / worth.sum()).tolist(), strict=True))
    elsewhere = shares.pop(ELSEWHERE)
    is_elsewhere = elsewhere > shares["cause"]
    shares["cause"] += elsewhere
    return Reading(shares, is_elsewhere)


def signs_of(told: Sequence[Token], words: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Of each word what it stands among: the two before it and the two behind it."""
    row = [
        *(START, START),
        *(token.form if _is_plain(token.form, words) else UNKNOWN for token in told),
        *(END, END),
    ]
    for place in range(2, len(row) - 2):
        first, second, word, fourth, fifth = row[place - 2 : place + 3]
        yield (
            f"= {word}",
            f"- {second}",
            f"+ {fourth}",
            f"-= {second} {word}",
            f"=+ {word} {fourth}",
            f"-- {first} {second}",
            f"++ {fourth} {fifth}",
            f"-=+ {second} {word} {fourth}",
        )


def _is_plain(form: str, words: frozenset[str]) -> bool:
    return form in words or form in (NUMBER, NAME, QUOTE)


def without_asking(
    part: str, text: str, model: Forms | None = None, *, below: float = ASKS_BELOW
) -> str:
    """A part of a question without the words that say how it asks; empty: all do.

    Args:
        part: of the question.
        text: the whole question, which tells what each word stands among.
        model: None: that of the table.
        below: the weight below which a word asks.
    """
    weights = _topic_weights(tokens_of(text), model or forms())
    left, last = "", 0
    for token in tokens_of(part):
        if weights.get(token.form, below) < below:
            left += f"{part[last : token.start]} "
            last = token.end
    return left + part[last:]


def topic_shares(text: str) -> dict[str, float]:
    """How likely each word of a question says what it is about, 0 to 1; by its form.

    Args:
        text: the whole question.
    """
    weights = _topic_weights(tokens_of(text), forms())
    return {form: 1 / (1 + math.exp(-weight)) for form, weight in weights.items()}


def _topic_weights(told: Sequence[Token], model: Forms) -> dict[str, float]:
    """Of each form the largest weight that it has where it stands, to be what is asked about."""
    weights: dict[str, float] = {}
    for token, signs in zip(told, signs_of(told, model.words), strict=True):
        weight = model.topic_bias + sum(model.topic.get(sign, 0.0) for sign in signs)
        weights[token.form] = max(weight, weights.get(token.form, weight))
    return weights
