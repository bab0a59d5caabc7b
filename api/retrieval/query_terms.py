"""What a question says that a search can use: its words, whom it names, and what to embed.

A name that many texts are said by or addressed to says who speaks, not what about: it is matched
to the agent of an event and left out of the words and of the vector. (In a conversation of two the
name is close to every turn, so with it the vector finds turns *to* somebody, not about something:
measured, recall@10 of the cosine alone 0.37 with the names and 0.63 without.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from api.retrieval.time_spans import TimeSpan, time_spans
from enrichment.entities import canonical_name
from enrichment.words import STOP_WORDS

MAX_QUERY_CHARACTERS: Final = 2_000
MAX_WORDS: Final = 32
"""Of one search; what a question says it says in fewer."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # noqa: RUF001  # the apostrophe people type
_IDENTIFIER = re.compile(r"(?<![^\W_])(?=[^\W_]*\d)(?=[^\W_]*[^\W\d_])[^\W_]{4,}(?![^\W_])")
"""Letters and digits in one word: a booking, an order, a part of a UUID."""
_MEASURE = re.compile(r"\d+[^\W\d_]{1,3}")
"""A number and its unit or ending ("250ms", "18th") names nothing."""
_JOINTS = re.compile(r"[\s_-]+")
_SHORTEST = 4
"""Letters of a word that endings are taken off; and a stem keeps three."""
_VOWEL = re.compile("[aeiouy]")
_LONG_WITH_LL = re.compile(r"\w*[aeiouy][^\Waeiouy]+[aeiouy]ll")
"""Ends with a doubled letter that its other forms may not have: "cancelled" and "cancel"."""
_HISSING = ("sses", "shes", "ches", "xes", "zes")
_NO_PLURAL = ("ss", "us", "is")


class QueryTerms(NamedTuple):
    """What a question is searched by.

    Attributes:
        query: as asked, its first MAX_QUERY_CHARACTERS.
        words: lower case, letters, digits and inner apostrophes, in order, each once, at most
            MAX_WORDS; without words that say little and without the agents' names, unless nothing
            else is left.
        full_text: the words as Lucene reads "any of these"; empty: nothing to search by.
        embedding_text: the question without the agents' names; all of it when nothing is left.
        agents: those it names, in normal form.
        spans: stretches of time that it names.
        identifiers: words of letters and digits, in lower case, each once; agents' names are none.
    """

    query: str
    words: tuple[str, ...]
    full_text: str
    embedding_text: str
    agents: frozenset[str]
    spans: tuple[TimeSpan, ...] = ()
    identifiers: tuple[str, ...] = ()


def query_terms(query: str, names: Iterable[str] = (), *, now_ms: int | None = None) -> QueryTerms:
    """The terms of a question.

    Args:
        query: in a person's words.
        names: agents that it may name; those that it does not name do no harm.
        now_ms: the clock that "last week" counts from; None: times are not looked for.
    """
    asked = query[:MAX_QUERY_CHARACTERS]
    named = {
        normal: pattern
        for name in names
        if (normal := agent_name(name)) and (pattern := _name_pattern(normal)).search(asked)
    }
    text = asked
    # The longest first: "ann smith" before "ann".
    for normal in sorted(named, key=lambda name: (-len(name), name)):
        text = named[normal].sub(" ", text)
    text = " ".join(text.split())
    said = list(_plain_words(text)) or list(_plain_words(asked))
    telling = [word for word in said if word not in STOP_WORDS] or said
    kept = tuple(dict.fromkeys(telling))[:MAX_WORDS]
    embedding_text = text if _WORD.search(text) else " ".join(asked.split())
    spans = () if now_ms is None else time_spans(asked, now_ms)
    return QueryTerms(
        asked, kept, " ".join(kept), embedding_text, frozenset(named), spans, _identifiers(text)
    )


def _identifiers(text: str) -> tuple[str, ...]:
    found = dict.fromkeys(_IDENTIFIER.findall(text.lower()))
    return tuple(one for one in found if not _MEASURE.fullmatch(one))


def agent_name(name: str) -> str:
    """An agent's name in normal form: canonical, and `_`, `-` and spaces alike."""
    return " ".join(_JOINTS.sub(" ", canonical_name(name)).split())


def _name_pattern(normal: str) -> re.Pattern[str]:
    """Finds a name as a whole word, with any joints, and with a possessive that it may have."""
    body = r"[\s_-]+".join(map(re.escape, normal.split(" ")))
    return re.compile(rf"(?<!\w){body}(?:['’]s?)?(?!\w)", re.IGNORECASE)  # noqa: RUF001


def _plain_words(text: str) -> Iterable[str]:
    return map(_plain, words_in(text.lower()))


def _plain(word: str) -> str:
    """A word in lower case with the typewriter's apostrophe, and without a possessive."""
    return word.replace("\u2019", "'").removesuffix("'s")


def words_in(text: str) -> list[str]:
    """The words of a text as they stand there: letters, digits and inner apostrophes."""
    return _WORD.findall(text)


def stem_in(word: str) -> str:
    """The stem of a word of a text in lower case."""
    return stem(_plain(word))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A word without the endings of number and tense, the same for `family` and `families`.

    Coarse on purpose: both sides of a comparison go through it. Words with digits and words of
    fewer than four letters stay as they are.

    Args:
        word: in lower case.
    """
    if len(word) < _SHORTEST or not word.isalpha():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(_HISSING):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(_NO_PLURAL):
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= _SHORTEST - 1 and _VOWEL.search(rest):
            word = _single(rest)
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
