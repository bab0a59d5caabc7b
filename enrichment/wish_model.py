"""Whether a sentence lays down how its writer wants things done in general. Pure.

A linear model of the words of a sentence, their parts of speech and how they stand together,
learned from sentences that people wrote for it (`make train-wishes`; decision 37). A word that few
of them used counts as its part of speech and its form alone, "a noun in the plural", so no trade
is learned. Weights are whole numbers: a sum of them is the same on every machine.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import orjson

from enrichment.grams import word_grams
from enrichment.ports import Token

TABLE: Final = "wish_model.json"
_MARKS: Final = frozenset(',.:;!?"-\u2013\u2014')
_PARTS_FROM: Final = frozenset((",", ":", ";", "-", "\u2013", "\u2014", "and", "but", "or"))
"""What a part of a sentence begins behind."""


class WishModel(NamedTuple):
    """The model.

    Attributes:
        words: that count as themselves.
        weights: of the signs of a sentence; without one: 0.
        bias: of each sentence; above 0 in all, it is a wish.
        likely: of one that says by its form that it holds in general.
    """

    words: frozenset[str]
    weights: Mapping[str, int]
    bias: int
    likely: int


@cache
def wish_model() -> WishModel:
    """The table that is checked in."""
    return read_model(orjson.loads(files(__package__).joinpath(TABLE).read_bytes()))


def read_model(table: Mapping[str, Any]) -> WishModel:
    """What a table says."""
    levels = memoryview(b64decode(table["weights"])).cast("b")
    weights = dict(zip(table["signs"], levels, strict=True))
    return WishModel(frozenset(table["words"]), weights, table["bias"], table["likely"])


def wish_score(tokens: Sequence[Token], *, is_likely: bool, model: WishModel | None = None) -> int:
    """How surely a sentence is a wish; above 0: it is one.

    Args:
        tokens: of it, without courtesies and without what announces it.
        is_likely: its form, or what stands before it, says that it holds in general.
        model: None: that of the table.
    """
    model = model or wish_model()
    told = sum(model.weights.get(sign, 0) for sign in signs_of(tokens, model.words))
    return model.bias + told + (model.likely if is_likely else 0)


def signs_of(tokens: Sequence[Token], words: frozenset[str]) -> set[str]:
    """What a sentence is judged by.

    Up to three words in a row, two with one between them, how its parts begin, and what each word
    is to the others; words that do not count as themselves by their shapes.

    Args:
        tokens: as `wish_score` takes them.
        words: that count as themselves.
    """
    tokens = [token for token in tokens if token.text.strip()]
    forms = [form_of(token, words) for token in tokens]
    return {
        *word_grams(forms),
        *_beginnings(forms),
        *(f"{token.relation}={form}" for token, form in zip(tokens, forms, strict=True)),
        *(f"~{lemma}" for token in tokens if (lemma := token.lemma.lower()) in words),
    }


def _beginnings(forms: Sequence[str]) -> Iterator[str]:
    """Of each part behind a comma or the like: its first word, two and three."""
    for place, form in enumerate(forms):
        if place == 0 or forms[place - 1] in _PARTS_FROM:
            yield f"{'later' if place else 'first'}| {form}"
            yield f"| {' '.join(forms[place : place + 2])}"
            yield f"| {' '.join(forms[place : place + 3])}"


def plain_word(token: Token) -> str:
    """A word as it is counted: small letters, one kind of apostrophe."""
    return token.text.lower().replace("\u2019", "'")


def form_of(token: Token, words: frozenset[str]) -> str:
    """A word that counts as itself, or the shape of one."""
    word = plain_word(token)
    return word if word in words else _shape(token)


def _shape(token: Token) -> str:
    """Part of speech and inflection: NOUN, NOUNs, VERB, VERBing, VERBs, VERBed or NUM."""
    word, pos = token.text.lower(), token.pos
    if pos in ("PUNCT", "SYM"):
        return token.text if token.text in _MARKS else "PUNCT"
    if any(map(str.isdigit, word)):
        return "NUM"
    if word == token.lemma.lower() or pos not in ("NOUN", "VERB", "AUX"):
        return pos
    if pos == "NOUN":
        return "NOUNs"
    ending = next((end for end in ("ing", "s") if word.endswith(end)), "ed")
    return f"{pos}{ending}"
