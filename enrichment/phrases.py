"""Noun phrases and names, trimmed to what they name, and identifiers that are not just keys.

`an amazing pottery class` is about a pottery class; `a great time` about nothing. Only what is
left after that with two words, or with a proper noun, is salient enough to become an entity:
precision is worth more than recall, for the text itself is searched too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from enrichment.patterns import identifiers
from enrichment.ports import Analysis, EventText, Span, Token
from enrichment.text import key_spans
from enrichment.vocabulary import (
    GENERIC_NOUNS,
    GREETINGS,
    PLAIN_ACRONYMS,
    STOP_WORDS,
    VAGUE_ADJECTIVES,
)

MAX_PHRASE_WORDS = 4
MAX_ENTITY_WORDS = 6
MIN_WORD_CHARACTERS = 3

NOUNS = ("NOUN", "PROPN")
INSIDE = ("NOUN", "PROPN", "ADJ")
PLAIN = STOP_WORDS | GENERIC_NOUNS | GREETINGS | VAGUE_ADJECTIVES | PLAIN_ACRONYMS
"""Words that a phrase neither begins with nor consists of."""
WORD = re.compile(r"[^\W\d_](?:[\w'’&.-]*\w)?")  # noqa: RUF001  # the apostrophe people type

_LEADING = re.compile(
    r"^(?:(?:the|a|an|my|your|his|her|its|our|their|this|that|these|those|hey|hi|hello|dear|thanks"
    r"|thank|wow|yeah|yes|no|oh|ok|okay|so|and|but|congrats|bye)\b[\s,!.]*)+",
    re.IGNORECASE,
)
_POSSESSIVE = re.compile(r"['’]s?$")  # noqa: RUF001
_PUNCTUATION = " \t.,;:!?\"'`*_-–—()[]{}<>#|/\\“”‘’"  # noqa: RUF001
_DRAWN_OUT = re.compile(r"(\w)\1\1")
_LABEL_BEFORE = re.compile(r"(?:^|\n)[\s#*_\d.•-]*$")
_LABEL_AFTER = re.compile(r"[*_]*:")
_ADDRESSED = re.compile(
    r"(?<!\w)(?i:hey|hi|hello|dear|thanks|thank you|wow|whoa|woah|oh|aw|yeah|yep|yes|congrats|sure"
    r"|sorry|bye)[,!]? (?P<name>[^\W\d_a-z][^\W\d_]{2,30})(?=[,!.?;]|$)",
    re.MULTILINE,
)


_SENTENCE_START = re.compile(r"(?:^|[.!?:\n#*•>)\]-])[\s\"'“(*_]*$")  # a capital says nothing there
_MARKUP_BEFORE = re.compile(r"[#*•-][ *_]*$")
_CLASSIFYING = re.compile(r"(?:al|ic|less|ese|ian|ish)$")


class Phrase(NamedTuple):
    """A stretch of the text, and the name it stands for."""

    start: int
    end: int
    name: str


def stated_identifiers(text: EventText) -> list[Span]:
    """The identifiers of an event's text, without the names of its fields.

    `flights.flight_number` is how the line begins, not what it says; an id that is a key
    (`payment_methods.certificate_9645872.amount`) is lost with it, its value's `id` is not.
    """
    keys = key_spans(text)
    identified = identifiers(text.text)
    if not keys:
        return identified
    ends = iter(keys)
    key = next(ends, None)
    spans: list[Span] = []
    for span in identified:
        while key is not None and key[1] <= span.start:
            key = next(ends, None)
        if key is None or span.end <= key[0]:
            spans.append(span)
    return spans


def addressed_names(text: str) -> list[Phrase]:
    """Who is spoken to by name: `Hey Mel!`, `Thanks, Caroline!`. Small models miss half of them."""
    return [
        Phrase(*match.span("name"), match["name"])
        for match in _ADDRESSED.finditer(text)
        if match["name"][0].isupper() and match["name"].lower() not in PLAIN
    ]


def salient_phrases(text: str, analysis: Analysis) -> list[Phrase]:
    """Informative noun phrases, the most frequent and longest first, then as they come.

    The name is lower case unless it is written as a name, and has its head in the singular, so
    that `adoption agencies` and `an adoption agency` are one concept.
    """
    tokens = with_compounds(analysis.tokens)
    phrases: list[Phrase] = []
    for start, end, _ in analysis.noun_phrases:
        phrase = _trimmed(_tokens_in(tokens, start, end))
        if phrase is None or _is_label(text, phrase):
            continue
        before = text[max(0, phrase.start - 12) : phrase.start]
        several = " " in phrase.name or "-" in phrase.name
        label = _LABEL_AFTER.match(text, phrase.end) is not None
        if several or not (label or _SENTENCE_START.search(before)):
            phrases.append(phrase)
    counts: dict[str, int] = {}
    for phrase in phrases:
        counts[phrase.name] = counts.get(phrase.name, 0) + 1
    first = {phrase.name: phrase for phrase in reversed(phrases)}
    for name in list(first):
        if any(f" {name} " in f" {longer} " for longer in first if longer != name):
            del first[name]  # `glass window` beside `stained glass window`
    return sorted(first.values(), key=lambda p: (-counts[p.name], -len(p.name.split()), p.start))


def with_compounds(tokens: Sequence[Token]) -> list[Token]:
    """Tokens with those that hyphens join made one: `like-minded`, `self-expression`.

    A compound is a noun when its last part is, else an adjective. Heads and relations stay those
    of the last part and count in the original tokens.
    """
    joined: list[Token] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.text.lower() == "i" and place + 1 < len(tokens):
            after = tokens[place + 1]
            if after.text.lower() == "d" and after.start == token.start + 1:
                # tokenisers split `id` as if it were `I'd`
                token = after._replace(text=token.text + after.text, lemma="id", start=token.start)
                place += 1
        while (
            place + 2 < len(tokens)
            and tokens[place + 1].text == "-"
            and tokens[place + 1].start == token.start + len(token.text)
            and tokens[place + 2].start == tokens[place + 1].start + 1
        ):
            last = tokens[place + 2]
            token = last._replace(
                text=f"{token.text}-{last.text}",
                lemma=f"{token.text}-{last.lemma}".lower(),
                pos=last.pos if last.pos in NOUNS else "ADJ",
                start=token.start,
            )
            place += 2
        joined.append(token)
        place += 1
    return joined


def _tokens_in(tokens: Sequence[Token], start: int, end: int) -> list[Token]:
    low, high = 0, len(tokens)
    while low < high:
        middle = (low + high) // 2
        if tokens[middle].start < start:
            low = middle + 1
        else:
            high = middle
    inside: list[Token] = []
    while low < len(tokens) and tokens[low].start < end:
        inside.append(tokens[low])
        low += 1
    return inside


def _trimmed(tokens: list[Token]) -> Phrase | None:
    """The run of nouns and adjectives that ends the phrase, without what is vague in front."""
    while tokens and tokens[-1].pos not in NOUNS:
        tokens = tokens[:-1]
    first = len(tokens)
    while first and tokens[first - 1].pos in INSIDE and WORD.fullmatch(tokens[first - 1].text):
        first -= 1
    run = tokens[first:]
    if run and first and tokens[first - 1].pos == "ADV" and run[0].pos == "ADJ":
        run = run[1:]  # what can be more or most so judges, it does not name
    while run and (
        run[0].text.lower() in PLAIN
        or len(run[0].text) < MIN_WORD_CHARACTERS
        or (run[0].pos == "ADJ" and run[0].text.endswith("est"))
    ):
        run = run[1:]
    if not run or len(run) > MAX_PHRASE_WORDS:
        return None
    head = run[-1]
    lemma = head.lemma.lower() or head.text.lower()
    if lemma in PLAIN or head.text.lower() in PLAIN or _DRAWN_OUT.search(head.text):
        return None
    proper = all(t.text[0].isupper() for t in run)
    telling = [t for t in run if t.text.lower() not in PLAIN]
    if len(telling) < 2 and not (proper and head.pos == "PROPN" and len(run) == 1):
        return None
    kinds = [t for t in run[:-1] if t.pos in NOUNS or _CLASSIFYING.search(t.text)]
    if len(run) > 1 and not proper and not kinds:
        return None  # `wild ride`, `elderly veteran`: described, not named
    if proper:
        name = " ".join(t.text for t in run)
    else:
        # `politics` is what it is called, its lemma is not
        last = lemma if not head.text.endswith("ics") else head.text.lower()
        last = head.text if head.text.isupper() else last
        name = " ".join([*(t.text if t.text.isupper() else t.text.lower() for t in run[:-1]), last])
    return Phrase(run[0].start, head.start + len(head.text), name)


def _is_label(text: str, phrase: Phrase) -> bool:
    """Whether a list names a field with it: `- **Flight Date**: May 24`."""
    return (
        _LABEL_AFTER.match(text, phrase.end) is not None
        and _LABEL_BEFORE.search(text[max(0, phrase.start - 12) : phrase.start]) is not None
    )


def trimmed_entity(text: str, start: int, end: int, analysis: Analysis) -> str | None:
    """A named entity without articles, greetings and punctuation; None if nothing is left.

    The recogniser likes to begin a name with `Hey`, to end it with a line, and to take the first
    word of a sentence, a heading or a list item for a person: a single word must also be a proper
    noun, or the adjective of one (`Spanish`), to the tagger.
    """
    name = text[start:end].split("\n", 1)[0].split(" (", 1)[0].strip(_PUNCTUATION)
    name = _LEADING.sub("", name).strip(_PUNCTUATION)
    name = _POSSESSIVE.sub("", name).strip(_PUNCTUATION)
    words = name.split()
    if not 1 <= len(words) <= MAX_ENTITY_WORDS or len(name) < MIN_WORD_CHARACTERS:
        return None
    if not any(c.isupper() or c.isdigit() for c in name) and name.isascii():
        return None  # a name that nobody wrote as one
    if not any(c.isalpha() for c in name) or all(w.lower() in PLAIN for w in words):
        return None
    if len(words) == 1:
        inside = _tokens_in(analysis.tokens, start, end)
        if inside and not any(t.pos in ("PROPN", "ADJ") for t in inside):
            return None
        if _MARKUP_BEFORE.search(text[max(0, start - 12) : start]):
            return None
    return None if _DRAWN_OUT.search(name) else name
