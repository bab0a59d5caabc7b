"""What a question says that a search can use: its words, whom it names, and what to embed. Pure.

The one place where a question, and what is compared with it, is taken apart into words.

A name that many texts are said by or addressed to says who speaks, not what about: it is matched
to the agent of an event and left out of the words and of the vector. (In a conversation of two the
name is close to every turn, so with it the vector finds turns *to* somebody, not about something:
measured, recall@10 of the cosine alone 0.37 with the names and 0.63 without.)

It also says when something was, by the calendar's English words: `on 3 May 2023`, `May 3rd, 2023`,
`2023-05-03`, `in May 2023`, `in May` (of any year up to now), `in 2023`, and what counts from now:
`yesterday`, `last week`, `two months ago`, `today`.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from consolidation.decay import DAY_MS
from enrichment.names import canonical_name
from enrichment.stems import name_words, plain, stem, words_in
from enrichment.vocabulary import STOP_WORDS

MAX_SPANS: Final = 64
YEARS_BACK: Final = 10
"""A month without a year may be of this one or of so many before."""
# Calendars of computers end somewhere; "ten years ago" is still one of theirs.
_FIRST_MS = -30_000 * DAY_MS
_LAST_MS = 2_900_000 * DAY_MS

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
MONTH_NUMBERS = {name[:3]: number for number, name in enumerate(MONTHS, 1)}
_COUNTED = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve"),
)
_NUMBERS = {name: n for n, name in enumerate(_COUNTED, 1)} | {"a": 1, "an": 1, "a couple of": 2}

MONTH = r"(?P<month>" + "|".join([*MONTHS, "sept", *(name[:3] for name in MONTHS)]) + r")\.?"
DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
YEAR = r"(?P<year>(?:19|20)\d\d)"
_COUNT = "|".join(sorted(_NUMBERS, key=len, reverse=True))


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{text})(?!\w)", re.IGNORECASE)


_CALENDAR: Final = (
    _pattern(r"(?P<year>(?:19|20)\d\d)-(?P<number>\d\d)(?:-(?P<day>\d\d))?"),
    _pattern(rf"{DAY}\s+(?:of\s+)?{MONTH}(?:,?\s+{YEAR})?"),
    _pattern(rf"{MONTH}\s+{DAY}(?:,?\s+{YEAR})?"),
    _pattern(rf"{MONTH},?\s+(?:of\s+)?{YEAR}"),
    # "may" and "march" alone are mostly no months
    _pattern(rf"(?:in|of|by|since|until|during|this|last|early|late|mid|around)[\s-]+{MONTH}"),
    _pattern(r"(?P<month>" + "|".join(n for n in MONTHS if n not in ("may", "march")) + ")"),
    _pattern(YEAR),
)
"""The most exact first; what one has taken the next does not see."""
_UNITS = r"(?P<unit>day|week|month|year)"
_AGO = _pattern(rf"(?P<count>\d{{1,3}}|{_COUNT})\s+{_UNITS}s?\s+(?:ago|earlier|back)")
_LAST = _pattern(rf"(?P<which>last|past|this|previous)\s+{_UNITS}")
_NEAR = _pattern(r"(?P<name>today|tonight|this\s+morning|yesterday|last\s+night)")
_UNIT_DAYS: Final = {"day": 1, "week": 7, "month": 30, "year": 365}


class TimeSpan(NamedTuple):
    """From `first_ms` up to and without `end_ms`, milliseconds since the epoch, UTC."""

    first_ms: int
    end_ms: int


def time_spans(query: str, now_ms: int) -> tuple[TimeSpan, ...]:
    """The stretches of time that a question names, in no order; at most MAX_SPANS.

    Args:
        query: in English; other languages name nothing.
        now_ms: the clock; nothing that it names without a year lies behind it.
    """
    now = datetime.fromtimestamp(min(max(now_ms, _FIRST_MS), _LAST_MS) / 1_000, UTC)
    spans: list[TimeSpan] = []
    left = query
    for pattern in _CALENDAR:
        for match in pattern.finditer(left):
            spans.extend(_of_calendar(match.groupdict(), now))
        left = pattern.sub(" ; ", left)
    spans.extend(_from_now(left, now))
    return tuple(dict.fromkeys(spans))[:MAX_SPANS]


def _of_calendar(parts: dict[str, str | None], now: datetime) -> Iterator[TimeSpan]:
    month = MONTH_NUMBERS[name[:3].lower()] if (name := parts.get("month")) else None
    if number := parts.get("number"):
        month = int(number)
    day = int(text) if (text := parts.get("day")) else None
    given = parts.get("year")
    years = [int(given)] if given else range(now.year, now.year - YEARS_BACK, -1)
    for year in years:
        if (span := _calendar_span(year, month, day)) is not None and (
            given or span.first_ms <= now.timestamp() * 1_000
        ):
            yield span


def _calendar_span(year: int, month: int | None, day: int | None) -> TimeSpan | None:
    """A year, month or day; None: there is no such one."""
    if month is None:
        return _span(datetime(year, 1, 1, tzinfo=UTC), 366 if _leap(year) else 365)
    if not 1 <= month <= 12:
        return None
    days = monthrange(year, month)[1]
    if day is None:
        return _span(datetime(year, month, 1, tzinfo=UTC), days)
    return _span(datetime(year, month, day, tzinfo=UTC), 1) if 1 <= day <= days else None


def _leap(year: int) -> bool:
    return monthrange(year, 2)[1] == 29


def _from_now(text: str, now: datetime) -> Iterator[TimeSpan]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for match in _AGO.finditer(text):
        count = match["count"].lower()
        days = _UNIT_DAYS[match["unit"].lower()]
        back = min(days * (int(count) if count.isdigit() else _NUMBERS[count]), 100 * 365)
        yield _span(today - timedelta(back + days // 2), max(1, days))
    for match in _LAST.finditer(text):
        days = _UNIT_DAYS[match["unit"].lower()]
        # "last week" is the week before this one, or the last seven days: both.
        this = match["which"].lower() == "this"
        yield _span(today - timedelta(days if this else 2 * days), (1 if this else 2) * days + 1)
    for match in _NEAR.finditer(text):
        before = match["name"].lower().startswith(("yesterday", "last"))
        yield _span(today - timedelta(int(before)), 1)


def _span(first: datetime, days: int) -> TimeSpan:
    first_ms = round(first.timestamp() * 1_000)
    return TimeSpan(first_ms, first_ms + days * DAY_MS)


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
        return [self.stems.index(stem(one)) for one in self.identifiers]


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
                for form in (written, _POSSESSIVE.sub("", written)):
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
