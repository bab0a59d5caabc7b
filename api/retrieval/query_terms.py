"""What a question says that a search can use: its words, whom it names, and what to embed. Pure.

The one place where a question, and what is compared with it, is taken apart into words.

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
from enrichment.names import canonical_name
from enrichment.stems import name_words, plain, stem, words_in
from enrichment.vocabulary import STOP_WORDS, word_set

MAX_SEARCHED_CHARACTERS: Final = 2_000
MAX_NAMING_CHARACTERS: Final = 512
"""Of a query that may name entities, S2: what stands behind them names nothing."""
MAX_TERMS: Final = 64
"""Of a search for names: 512 characters have room for 250 words of one letter."""
MAX_NAME_WORDS: Final = 4
"""Of a name that is looked up as it stands."""
MIN_PREFIX: Final = 3
"""Letters of a word that may be the beginning of another: two begin half the dictionary."""
MAX_WORDS: Final = 32
"""Of one search; what a question says it says in fewer."""

_NAME_PART = re.compile(r"[^\W_]+")
_EDGE = re.compile(r"^[^\w]+|[^\w]+$")
_POSSESSIVE = re.compile(r"['\u2019]s$", re.IGNORECASE)
_IDENTIFIER = re.compile(r"(?<![^\W_])(?=[^\W_]*\d)(?=[^\W_]*[^\W\d_])[^\W_]{4,}(?![^\W_])")
"""Letters and digits in one word: a booking, an order, a part of a UUID."""
_MEASURE = re.compile(r"\d+[^\W\d_]{1,3}")
"""A number and its unit or ending ("250ms", "18th") names nothing."""
_JOINTS = re.compile(r"[\s_-]+")
_SWAPPED: Final = {
    f"{word[:place]}{word[place + 1]}{word[place]}{word[place + 2 :]}": word
    for word in sorted(
        word_set(
            "what when where which why before after first last have the and change changed cause "
            "caused reason"
        )
    )
    for place in range(len(word) - 1)
}
_OTHER_WORDS: Final = word_set("fater hwy lats")
_TYPED: Final = {word: meant for word, meant in _SWAPPED.items() if word not in _OTHER_WORDS} | {
    "b4": "before",
    "whyd": "why did",
    "whend": "when did",
    "howd": "how did",
}
"""Words that ask, by how they are mistyped: `waht`, `wehn`, `teh`."""
_MAY_BE_TYPED: Final = re.compile(rf"(?<!\w)(?:{'|'.join(sorted(_TYPED))})(?![\w-])", re.IGNORECASE)
_HOW_TYPED: Final = re.compile(
    r"(?<!\w)hwo(?=\s+(?:many|much|long|often|did|do|does|is|was)\b)", re.I
)


_INITIALS: Final = {"pr": "pull request", "mr": "merge request"}
"""What people shorten before its number, and no record does: `pull_request_id: 481`."""
_SHORTENED: Final = re.compile(r"(?<!\w)(PR|MR|pr|mr)(?=\s+#?\d+(?!\w))")


_EXPLETIVE: Final = re.compile(
    r"(?<!\w)(wh\w+|how)\s+(?:the\s+(?:hell|heck|devil|f\w{1,3}k)|on\s+earth|in\s+the\s+world)(?!\w)",
    re.IGNORECASE,
)


def as_meant(text: str) -> str:
    """A question with the words that ask as they are spelled: "wehn", "b4"; "PR 12" as told."""
    text = _EXPLETIVE.sub(r"\1", _HOW_TYPED.sub("how", text))
    text = _SHORTENED.sub(lambda match: _INITIALS[match[0].lower()], text)
    return _MAY_BE_TYPED.sub(
        lambda match: match[0] if match[0].isupper() else _TYPED[match[0].lower()], text
    )


class QueryTerms(NamedTuple):
    """What a question is searched by.

    Attributes:
        query: as asked, its first MAX_SEARCHED_CHARACTERS.
        words: lower case, letters, digits and inner apostrophes, in order, each once, at most
            MAX_WORDS; without words that say little and without the agents' names, unless nothing
            else is left.
        embedding_text: the question without the agents' names; all of it when nothing is left.
        agents: those it names, in normal form.
        spans: stretches of time that it names.
        identifiers: words of letters and digits, in lower case, each once; agents' names are none.
    """

    query: str
    words: tuple[str, ...]
    embedding_text: str
    agents: frozenset[str]
    spans: tuple[TimeSpan, ...] = ()
    identifiers: tuple[str, ...] = ()

    @property
    def stems(self) -> tuple[str, ...]:
        """Of the words, then of the identifiers; each once."""
        return tuple(dict.fromkeys(map(stem, (*self.words, *self.identifiers))))

    @property
    def word_stems(self) -> int:
        """How many of the stems are those of words; they come first."""
        return len({stem(word) for word in self.words})

    @property
    def identifier_places(self) -> list[int]:
        """Where among the stems those of the identifiers are."""
        return [self.stems.index(stem(identifier)) for identifier in self.identifiers]


def query_terms(query: str, names: Iterable[str] = (), *, now_ms: int | None = None) -> QueryTerms:
    """The terms of a question.

    Args:
        query: in a person's words.
        names: agents that it may name; those that it does not name do no harm.
        now_ms: the clock that "last week" counts from; None: times are not looked for.
    """
    query = query[:MAX_SEARCHED_CHARACTERS]
    named = {
        normal: pattern
        for name in names
        if (normal := agent_name(name)) and (pattern := _name_pattern(normal)).search(query)
    }
    text = query
    # The longest first: "ann smith" before "ann".
    for normal in sorted(named, key=lambda name: (-len(name), name)):
        text = named[normal].sub(" ", text)
    text = " ".join(text.split())
    plain = list(_plain_words(text)) or list(_plain_words(query))
    telling = [word for word in plain if word not in STOP_WORDS] or plain
    words = tuple(dict.fromkeys(telling))[:MAX_WORDS]
    return QueryTerms(
        query=query,
        words=words,
        embedding_text=text if words_in(text) else " ".join(query.split()),
        agents=frozenset(named),
        spans=() if now_ms is None else time_spans(query, now_ms),
        identifiers=_identifiers(text),
    )


def _identifiers(text: str) -> tuple[str, ...]:
    mixed = dict.fromkeys(_IDENTIFIER.findall(text.lower()))
    return tuple(identifier for identifier in mixed if not _MEASURE.fullmatch(identifier))


def agent_name(name: str) -> str:
    """An agent's name in normal form: canonical, and `_`, `-` and spaces alike."""
    return " ".join(_JOINTS.sub(" ", canonical_name(name)).split())


def _name_pattern(normal: str) -> re.Pattern[str]:
    """Finds a name as a whole word, with any joints, and with a possessive that it may have."""
    body = r"[\s_-]+".join(map(re.escape, normal.split(" ")))
    return re.compile(rf"(?<!\w){body}(?:['’]s?)?(?!\w)", re.IGNORECASE)  # noqa: RUF001


def _plain_words(text: str) -> Iterable[str]:
    return map(plain, words_in(text.lower()))


class NameTerms(NamedTuple):
    """What entities are searched by.

    Attributes:
        words: lower case, without words that say little; as they stand when no other is left.
        names: canonical names that the query may hold, for a look-up.
    """

    words: tuple[str, ...]
    names: tuple[str, ...]


@lru_cache(maxsize=64)  # a query asks twice
def name_terms(query: str) -> NameTerms:
    """The words and the possible names of a query's first 512 characters."""
    text = query[:MAX_NAMING_CHARACTERS]
    words = list(dict.fromkeys(name_words(text.lower())))
    telling = [word for word in words if word not in STOP_WORDS] or words
    singular = [word[:-1] for word in telling if is_plural(word)]
    return NameTerms(tuple(dict.fromkeys([*telling, *singular]))[:MAX_TERMS], _names(text))


def _names(text: str) -> tuple[str, ...]:
    """Runs of up to four words as canonical names, joined as ids join them, too.

    A run that ends in a possessive counts with it and without: "McDonald's" has one in its name,
    and "Ann's sister" is about Ann.
    """
    raw = [word for part in text.split() if (word := _EDGE.sub("", part))][:MAX_TERMS]
    names: dict[str, None] = {}
    for length in range(1, MAX_NAME_WORDS + 1):
        for first in range(len(raw) - length + 1):
            run = raw[first : first + length]
            if length == 1 and run[0].lower() in STOP_WORDS:
                continue
            for joint in " " if length == 1 else " _-.":
                written = joint.join(run)
                for form in dict.fromkeys((written, _POSSESSIVE.sub("", written))):
                    if name := canonical_name(form):
                        names[name] = None
    return tuple(names)


def name_forms(name: str) -> tuple[str, ...]:
    """Canonical names that a name given by a caller may stand for: `_` and `-` read as space."""
    whole = canonical_name(name)
    spaced = canonical_name(re.sub(r"[_-]+", " ", whole))
    joined = (spaced.replace(" ", "_"), spaced.replace(" ", "-"))
    return tuple(dict.fromkeys(form for form in (whole, spaced, *joined) if form))


def name_parts(text: str) -> list[str]:
    """The runs of letters and digits of a name."""
    return _NAME_PART.findall(text)


def is_plural(word: str) -> bool:
    """Whether a word looks like the plural of the same word without its last letter."""
    return len(word) > MIN_PREFIX + 1 and word.endswith("s") and not word.endswith("ss")
