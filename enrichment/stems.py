"""Words of texts and of questions, and their stems: both sides of a comparison go through it."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Final

from enrichment.vocabulary import CAMEL, STOP_WORDS

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # noqa: RUF001  # the apostrophe people type
_NAME_WORD = re.compile(r"\w+")
_CAMEL_WORD = re.compile(r"[^\W_]*[a-z][A-Z][^\W_]*")
_SHORTEST = 4
"""Letters of a word that endings are taken off; and a stem keeps three."""
_VOWEL = re.compile("[aeiouy]")
_LONG_WITH_LL = re.compile(r"\w*[aeiouy][^\Waeiouy]+[aeiouy]ll")
"""Ends with a doubled letter that its other forms may not have: "cancelled" and "cancel"."""
_HISSING = ("sses", "shes", "ches", "xes", "zes")
_NO_PLURAL = ("ss", "us", "is")


def plain(word: str) -> str:
    """A word in lower case with the typewriter's apostrophe, and without a possessive."""
    return word.replace("\u2019", "'").removesuffix("'s")


def words_in(text: str) -> list[str]:
    """The words of a text as they stand there: letters, digits and inner apostrophes."""
    return _WORD.findall(text)


def name_words(text: str) -> list[str]:
    """The words of a name or of a question as names are searched: `_` joins."""
    return _NAME_WORD.findall(text)


def said_stems(author: str, tool: str, text: str) -> Counter[str]:
    """How often an event says each stem: in its text, by who says it, and by what tool.

    Whose it is counts as its words: `cancel_booking` says what the call is about. So do the words
    of camelCase, beside the whole: `HighLatency` is a high latency, too.

    Args:
        author: empty where nobody is known.
        tool: empty where there is none; one that is the author is told once.
        text: in any case.
    """
    called = "" if tool == author else tool
    told = f"{author} {called}\n{text}"
    words = words_in(told.lower())
    for joined in _CAMEL_WORD.findall(told):
        words += CAMEL.sub(" ", joined).lower().split()
    return Counter(map(stem_in, words))


def stems_of(text: str) -> frozenset[str]:
    """The stems of all words of a text, in any case."""
    return frozenset(map(stem_in, words_in(text.lower())))


def telling_stems_of(text: str) -> frozenset[str]:
    """The stems of the words of a text that say something, in any case."""
    return frozenset(stem_in(word) for word in words_in(text.lower()) if word not in STOP_WORDS)


def stem_in(word: str) -> str:
    """The stem of a word of a text in lower case."""
    return stem(plain(word))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A word without the endings of number and tense, the same for `family` and `families`.

    Coarse on purpose: both sides of a comparison go through it. Words with digits and words of
    fewer than four letters stay as they are; one that says something never becomes a word that
    says nothing, as `note` would become `not`.

    Args:
        word: in lower case.
    """
    if len(word) < _SHORTEST or not word.isalpha():
        return word
    short = _without_endings(word)
    if short not in STOP_WORDS or word in STOP_WORDS:
        return short
    return word.removesuffix("s")


def _without_endings(word: str) -> str:
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(_HISSING):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(_NO_PLURAL):
        word = word[:-1]
    for ending in ("ing", "ed"):
        bare = word.removesuffix(ending)
        if bare != word and len(bare) >= _SHORTEST - 1 and _VOWEL.search(bare):
            word = _single(bare)
            break
    if len(word) >= _SHORTEST and word.endswith("e"):
        word = word[:-1]
    if _LONG_WITH_LL.fullmatch(word):
        word = word[:-1]
    return word[:-1] + "i" if len(word) >= _SHORTEST and word.endswith("y") else word


def _single(word: str) -> str:
    """Without the letter that `stopped` and `running` double."""
    doubled = len(word) >= _SHORTEST and word[-1] == word[-2] and word[-1] not in "lsz"
    return word[:-1] if doubled else word


_ROOT: Final = 4
"""Letters that a verb and its noun begin with, at least."""
_NOMINAL: Final = frozenset(
    (
        *("", "e", "at", "ation", "lation", "ion", "ition", "ment", "al", "i", "y", "er", "or"),
        *("ance", "ence", "ing", "s", "ur", "ement"),
    )
)
_LONG_NOMINAL: Final = frozenset(("ment", "ation", "ition"))
"""That make a noun of a verb of three letters, too."""
_SHORT_FORM: Final = 3
"""Letters of what people shorten a word to, at least."""


@lru_cache(maxsize=65_536)
def same_root(stem: str, other: str) -> bool:
    """Whether two stems are of a verb and of its noun, as `cancel` and `cancellation` are."""
    if stem == other:
        return True
    pairs = enumerate(zip(stem, other, strict=False))
    shared = next((at for at, (one, two) in pairs if one != two), min(len(stem), len(other)))
    ends = {stem[shared:], other[shared:]}
    if shared == _ROOT - 1:  # `pay` and `payment`
        return "" in ends and not ends.isdisjoint(_LONG_NOMINAL)
    return shared >= _ROOT and ends <= _NOMINAL


_OF_AN_ACT: Final = (
    *("ation", "lation", "ition", "ement", "ment", "ion", "ance", "ence", "al", "ur", "i"),
)
"""How a noun ends that says that something is done."""


def verbs_of(stem: str) -> list[str]:
    """Stems of the verbs that a stem may be the noun of, as `enrol` is of `enrolment`."""
    bare = (stem.removesuffix(ending) for ending in _OF_AN_ACT)
    return [one for one in dict.fromkeys(bare) if one != stem and same_root(one, stem)]


@lru_cache(maxsize=65_536)
def is_short_for(stem: str, other: str) -> bool:
    """Whether one stem is the other or begins it, as `bag` does `baggage`.

    It says little by itself, for `car` begins `card`: only among the few words of a name.
    """
    shorter, longer = sorted((stem, other), key=len)
    return longer.startswith(shorter) and len(shorter) >= _SHORT_FORM
