"""Whether what a language model wrote says only what it was told, as far as words can tell.

Numbers, dates, identifiers, quotations and proper names are compared with the text that was sent,
each as it is written there. What this cannot see is how they are put together: a wrong verb between
two right names passes. So such words stand beside what rules have found, and never in its place.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

from enrichment.stems import name_words, stem
from enrichment.vocabulary import word_set

_TOKEN: Final = re.compile(
    r"(?:(?<![\w.])[-−+]?[$€£¥₹]?(?=\d))?\w+(?:[.,:/\\@+'_-]+\w+)*%?"  # noqa: RUF001  # a minus
)
"""A word, a number or an identifier, with the sign, currency and per cent that belong to it."""
_JOINTS: Final = re.compile(r"[^\W_]+")
_ABOUT_NUMBERS: Final = "-−+$€£¥₹%"  # noqa: RUF001  # a minus
_IDENTIFIER: Final = re.compile(r"\w[._/\\@:+]\w|_")
_SENTENCE_END: Final = re.compile(r"[.!?…:;]\s*[\"'(\[]*$|\n[\s\"'(\[*-]*$")
_MARKS: Final = " \n\"'([*-"
"""Before the first word."""
_LOOK_BACK: Final = 8
"""Characters, for the end of a sentence."""
_LONGEST_NAME: Final = 8
"""Words with capitals that may follow each other."""
_QUOTED: Final = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|(?<!\w)'([^'\n]+(?:'\w[^'\n]*)*)'(?!\w)")
_MARKUP: Final = re.compile(r"```|\*\*|__|\]\(|</?[a-z!]|^\s*[#>|]", re.IGNORECASE | re.MULTILINE)
_QUOTES: Final = str.maketrans("“”„‟«»‘’‚‹›", '""""""\'\'\'\'\'')  # noqa: RUF001  # typographic
_NUMBERS: Final = {
    "two": "2", "twice": "2", "three": "3", "thrice": "3", "four": "4", "five": "5", "six": "6",
    "seven": "7", "eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12",
    "dozen": "12", "thirteen": "13", "fourteen": "14", "fifteen": "15", "sixteen": "16",
    "seventeen": "17", "eighteen": "18", "nineteen": "19", "twenty": "20", "thirty": "30",
    "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80", "ninety": "90",
    "hundred": "100", "thousand": "1000", "million": "1000000", "billion": "1000000000",
    **dict.fromkeys(word_set("half third quarter dozens hundreds thousands millions")),
}  # fmt: skip
"""Words of number, and what else may have said it; `one` and `first` are no numbers mostly."""
_OPENERS: Final = word_set(
    "a an the this that these those there here it its he his she her they their we our you your i "
    "who what which when where while why how after before during since until once as at by for "
    "from in into of on over to under with without within between because although though if then "
    "and or but so however also later finally next instead meanwhile only both each all some many "
    "most several no not none nothing nobody another other others one first second last earlier "
    "overall afterwards together agent agents user users session sessions tool tools event events "
    "call calls"
)
"""That begin a sentence with a capital and name nothing."""

_PROTECTED: Final = re.compile(
    r"(?<!\w)(?:"
    # health
    r"health|medic(?:al|ation|ine)|prescri|pharmac|vaccin|doctor|hospital|clinic|therap|psych|diagnos|illness|disease|"
    r"disab|cancer|diabet|depress|anxiety|pregnan|hiv|aids|allerg|surgery|patient|symptom|addict|"
    # religion
    r"relig|church|mosque|synagogue|temple|christian|catholic|protestant|muslim|islam|jew(?:s|ish)|"
    r"judais|hindu|buddhis|sikh|atheis|bible|quran|koran|torah|pray|kosher|halal|ramadan|"
    # orientation
    r"gay|lesbian|bisexual|homosexual|heterosexual|queer|lgbt|transgender|sexual|"
    # politics
    r"politic|election|democrat|republican|conservativ|socialis|communis|liberal|labou?r party|"
    r"left-wing|right-wing|trade union|parliament|"
    # ethnicity
    r"ethnic|racial|race(?!\w)|immigra|refugee|indigenous|native american|latin[oax]|hispanic|"
    r"african american|asian american|roma(?!\w)"
    r")"
)

_OF_SYSTEMS: Final = word_set(
    "health healthz healthcheck check checks get show run status probe report service services "
    "system api cluster node nodes server host pod container db database"
)
"""Words of tools that ask how systems are."""


def is_protected(text: str) -> bool:
    """Whether a text speaks of health, religion, orientation, politics or ethnicity.

    What is said in such a sentence is nobody's to conclude anything from, so it errs on that side.
    """
    return _PROTECTED.search(text.casefold()) is not None


def of_protected_tool(name: str) -> bool:
    """Whether the name of a tool does; how a system is is nobody's health."""
    words = name_words(name.replace("_", " ").lower())
    return is_protected(" ".join(words)) and not _OF_SYSTEMS.issuperset(words)


def is_grounded(text: str, source: str) -> bool:
    """Whether a text is plain, and each of its numbers, quotations and names is in another.

    Also that it speaks of nothing that is protected. Names are words with a capital, and all words
    of scripts that have none.
    """
    text, told = _plain(text), _told(source)
    if _MARKUP.search(text) or is_protected(text):
        return False
    if not all(_holds(told.text, quoted) for quoted in _quoted(text)):
        return False
    named: list[str] = []
    behind = 0
    for match in _TOKEN.finditer(text):
        token = match[0].removesuffix("'s")
        before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
        begins = _SENTENCE_END.search(before) is not None or (
            match.start() <= _LOOK_BACK and not before.strip(_MARKS)
        )
        if not _is_told(token, told, begins=begins):
            return False
        if begins or text[behind : match.start()] != " " or not token[:1].isupper():
            named.clear()
        if token[:1].isupper() and not (begins and token.casefold() in _OPENERS):
            named.append(token)
        # each may have been named, and nobody called so
        if len(named) > 1 and not (
            len(named) <= _LONGEST_NAME and _holds(told.text, " ".join(named))
        ):
            return False
        behind = match.start() + len(token)
    return True


class _Told(NamedTuple):
    """A text as it is looked into.

    Attributes:
        text: in small letters, on one line.
        tokens: of it, and each without what belongs to numbers.
        words: those without digits, also as parts of tokens.
        stems: of the words.
    """

    text: str
    tokens: frozenset[str]
    words: frozenset[str]
    stems: frozenset[str]


def _told(source: str) -> _Told:
    text = " ".join(_plain(source).casefold().split())
    tokens = {match[0] for match in _TOKEN.finditer(text)}
    tokens |= {token.strip(_ABOUT_NUMBERS) for token in tokens}
    tokens |= {token.removesuffix("'s") for token in tokens}
    words = {part for token in tokens for part in _JOINTS.findall(token) if not _digits(part)}
    return _Told(text, frozenset(tokens), frozenset(words), frozenset(map(stem, words)))


def _is_told(token: str, told: _Told, *, begins: bool) -> bool:
    folded = token.casefold()
    if folded in told.tokens:
        return True
    if _digits(folded) or _IDENTIFIER.search(folded):
        return False
    return all(
        _is_word_told(part, told, begins=begins and not place)
        for place, part in enumerate(_JOINTS.findall(token))
    )


def _is_word_told(word: str, told: _Told, *, begins: bool) -> bool:
    folded = word.casefold()
    if folded in told.words:
        return True
    if folded in _NUMBERS:
        return _NUMBERS[folded] in told.tokens
    if folded == "s":  # of a possessive
        return True
    if any(unicodedata.category(letter) == "Lo" for letter in word):
        return folded in told.text
    if word == word.lower():
        return True
    capital_alone = word[1:] == word[1:].lower()
    return (
        begins
        and capital_alone
        and (folded in _OPENERS or (len(word) > 1 and stem(folded) in told.stems))
    ) or word in ("I", "A")


def _quoted(text: str) -> Iterator[str]:
    for match in _QUOTED.finditer(text):
        yield next(inner for inner in match.groups() if inner is not None).strip(" .,;:!?")


def _holds(text: str, words: str) -> bool:
    """Whether a text in small letters has these words, and not as a part of others."""
    wanted = " ".join(words.casefold().split())
    place = text.find(wanted)
    while place >= 0:
        end = place + len(wanted)
        around = text[max(0, place - 1) : place] + text[end : end + 1]
        if not any(letter.isalnum() or letter == "_" for letter in around):
            return True
        place = text.find(wanted, place + 1)
    return False


def _digits(text: str) -> bool:
    return any(letter.isdigit() for letter in text)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_QUOTES)
