"""Distinctive values in JSON content: what can be followed from one event to another.

A value is one string in its normal form, and its form tells its kind:

- identifier: ids, e-mails, URLs, paths, dotted keys (case folded), numbers of six digits and
  more, and codes of five capital letters and more (HATHAT);
- number: three to five digits, or a decimal fraction; thousands separators, currency signs and
  noughts at the end of a fraction are dropped;
- word: letters only, written with a capital (names, short codes such as JFK).

Left out because they coincide too easily: booleans, null, numbers below 100, round numbers
(one digit and noughts), years, dates and times, ordinals and quantities with a unit (20th, 30s),
lower-case words (economy, one_way), days, months, currencies and the like, sentences as such,
and tokens longer than 128 characters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

from enrichment.event_kinds import parsed_json

MAX_IDENTIFIERS = 300
MAX_NUMBERS = 150
MAX_WORDS = 150
"""In sentences; as many outside."""
MAX_VALUES = MAX_IDENTIFIERS + MAX_NUMBERS + 2 * MAX_WORDS
"""Values kept of one content, the first of each kind in the order of the text. Long numbers and
codes are identifiers by kind, but codes count as words here."""
MAX_CHARACTERS = 32_768
"""Characters of one content that are looked at."""
MAX_LEAVES = 2_000
"""Scalars and keys of one content that are looked at."""
MAX_TOKENS = 4_000
"""Tokens of one content that are looked at, and as many numbers in its strings."""
MAX_VALUE_CHARACTERS = 128

ValueKind = Literal["identifier", "number", "word"]

_TOKEN = re.compile(r"""[^\s,;()\[\]{}<>"'`|*\u2018\u2019\u201c\u201d]+""")
_PARTS = re.compile(r"[/\\=:#&?@]+")
_MAX_PARTS = 16
_MAX_TOKEN_CHARACTERS = 512
_BEFORE = ".:!?-\u2013\u2014\u2026#$€£%&=+@"
_AFTER = _BEFORE + "/\\"
# not a part of an identifier: neither of u-77312 nor of 10.20.30.41
_NUMBER = re.compile(
    r"(?<![\w.,])(?<!\w-)(?:\d{1,3}(?:,\d{3})+|\d{1,40})(?:\.\d{1,12})?(?!\w|\.\d|-\w)"
)
_DATE = re.compile(
    r"""\d{1,4}([-/.])\d{1,2}\1\d{1,4}(t.*)?    # 2024-05-20, 20.5.2024, 2024-05-20T15:00:00
      | \d{1,2}[-/]\d{1,2}
      | t?\d{1,2}:\d\d(:\d\d(\.\d+)?)?(z|[ap]m|[+-]\d{1,2}(:?\d\d)?)?
      | (\d{1,2}[-/.]?)?(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?
          |sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)[-/.]?\d{0,4}
    """,
    re.VERBOSE,
)
_COMPACT_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_YEAR = re.compile(r"(19|20)\d\d")
_QUANTITY = re.compile(
    r"[+-]?\d{1,6}(\.\d+)?[-_]?([a-z%°]{1,3}|years?|months?|weeks?|days?|hours?|minutes?|seconds?)"
)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.+")
_PATH = re.compile(r"(?:~|\.{1,2}|[a-z]:)?[/\\][^/\\]+[/\\].*|[^/\\]+(?:[/\\][^/\\]+){2,}")
_DOTTED = re.compile(r"[a-z_][\w-]*(?:\.[a-z_][\w-]*){2,}")
_FILE = re.compile(r"(?:[\w.-]+[/\\])*[\w-]{2,}\.[a-z]{2,4}")
_NUMERIC = re.compile(r"\d+(\.\d+)?")
_LONG_NUMBER = 6
_LONG_CODE = 5

_PLAIN_WORDS = frozenset(
    (
        *("yes", "not", "true", "false", "none", "null", "nil", "nan", "the", "and", "for", "all"),
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        *("january", "february", "march", "april", "may", "june", "july", "august"),
        *("september", "october", "november", "december"),
        *("usd", "eur", "gbp", "chf", "jpy", "cny", "inr", "aud", "cad", "utc", "gmt", "usa"),
        *("get", "put", "post", "error", "pending", "running", "completed", "failed", "timeout"),
    )
)


def value_kind(value: str) -> ValueKind:
    """The kind of a value in its normal form."""
    if value.isalpha():
        return "identifier" if len(value) >= _LONG_CODE and value.isupper() else "word"
    if _NUMERIC.fullmatch(value) and ("." in value or len(value) < _LONG_NUMBER):
        return "number"
    return "identifier"


class Values(NamedTuple):
    """The distinctive values of a content.

    Attributes:
        stated: all of them.
        followed: without words that stand in sentences: what an input is looked up by. A string
            that is a single word is kept, and so are long codes wherever they stand.
    """

    stated: frozenset[str]
    followed: frozenset[str]


def values_in(content: Any) -> Values:
    """The distinctive values of any JSON content, strings that hold JSON looked into."""
    found = _Found()
    left = MAX_CHARACTERS
    for leaf in islice(_leaves(content), MAX_LEAVES):
        if isinstance(leaf, str):
            if left <= 0:
                break
            text = leaf[:left]
            left -= len(text)
            found.read(text)
        else:
            found.add_number(_number_text(leaf))
    followed = frozenset((*found.identifiers, *found.numbers, *found.words))
    return Values(followed | frozenset(found.prose), followed)


def _leaves(content: Any) -> Iterator[Any]:
    """Strings (keys too) and numbers, in the order of the text."""
    stack: list[Iterator[Any]] = [iter((content,))]
    while stack:
        item = next(stack[-1], stack)
        if item is stack:
            stack.pop()
            continue
        item = parsed_json(item)
        if isinstance(item, Mapping):
            stack.append(part for pair in item.items() for part in pair)
        elif isinstance(item, list | tuple):
            stack.append(iter(item))
        elif isinstance(item, str | int | float) and not isinstance(item, bool):
            yield item


def _number_text(number: int | float) -> str:
    if not math.isfinite(number) or abs(number) >= 1e18:
        return ""
    if number == int(number):
        return str(abs(int(number)))
    return f"{abs(number):.12f}"


class _Found:
    """Values of each kind, in order, up to its limit."""

    def __init__(self) -> None:
        self.identifiers: dict[str, None] = {}
        self.numbers: dict[str, None] = {}
        self.words: dict[str, None] = {}
        self.prose: dict[str, None] = {}
        self.tokens_left = MAX_TOKENS
        self.numbers_left = MAX_TOKENS

    def read(self, text: str) -> None:
        first = text.split(None, 1)
        single = len(first) == 1
        if single and first[0].isalnum():
            # nothing to take apart: most strings in objects are so
            if first[0].isdecimal():
                self.add_number(first[0][:MAX_VALUE_CHARACTERS])
            else:
                self.add_token(first[0], single)
            return
        if single:
            # a string without spaces is a value as a whole, brackets and commas included
            self.add_token(first[0], single)
        for match in islice(_TOKEN.finditer(text), self.tokens_left):
            self.tokens_left -= 1
            token = match[0]
            if len(token) > _MAX_TOKEN_CHARACTERS:
                continue
            token = token.lstrip(_BEFORE).rstrip(_AFTER)
            self.add_token(token, single)
            parts = _PARTS.split(token, _MAX_PARTS)
            if len(parts) > 1:
                for part in parts:
                    self.add_token(part.strip("."), single)
        for match in islice(_NUMBER.finditer(text), self.numbers_left):
            self.numbers_left -= 1
            self.add_number(match[0])

    def add_token(self, token: str, single: bool) -> None:
        """Keep a token that is a word or an identifier; `single`: it is not in a sentence."""
        if not 3 <= len(token) <= MAX_VALUE_CHARACTERS:
            return
        if token.isalpha():
            words = self.words if single or value_kind(token) == "identifier" else self.prose
            room = len(words) < MAX_WORDS
            if room and token[0].isupper() and token.casefold() not in _PLAIN_WORDS:
                words[token] = None
        elif len(self.identifiers) < MAX_IDENTIFIERS:
            folded = token.casefold()
            # no control, bidi or zero-width characters and no lone surrogates in the evidence
            if folded.isprintable() and is_identifier(folded):
                self.identifiers[folded] = None

    def add_number(self, digits: str) -> None:
        number = digits.replace(",", "")
        if "." in number:
            number = number.rstrip("0").rstrip(".")
        bare = number.replace(".", "").lstrip("0")
        if len(bare) < 3 or len(bare.rstrip("0")) < 2 or _YEAR.fullmatch(number):
            return
        if value_kind(number) == "identifier":
            if len(self.identifiers) < MAX_IDENTIFIERS and not _COMPACT_DATE.fullmatch(number):
                self.identifiers[number] = None
        elif len(self.numbers) < MAX_NUMBERS:
            self.numbers[number] = None


def is_identifier(token: str) -> bool:
    """Whether a token, case folded and without spaces, has the form of an identifier.

    Plain numbers are not asked about here, they have a rule of their own.
    """
    if len(token) < 4 or _DATE.fullmatch(token):
        return False
    digits = sum(map(str.isdigit, token))
    letters = any(map(str.isalpha, token))
    if not letters:
        # telephone numbers, IP addresses, numbers with dashes
        return digits >= 7 and not _NUMERIC.fullmatch(token) and _groups(token)
    if digits and _QUANTITY.fullmatch(token) is None:
        return len(token) >= 5 or "_" in token or "-" in token
    if digits:
        return False
    return any(form.fullmatch(token) is not None for form in (_EMAIL, _URL, _PATH, _DOTTED, _FILE))


def _groups(token: str) -> bool:
    """Digits in groups, not an expression: 555-0100-222, 10.20.30.41, not 305*250."""
    return all(character.isdigit() or character in "-.+" for character in token)
