"""Keywords and a one-sentence summary, both taken from the text as it stands.

Nothing is generated: a keyword is a noun phrase by its parts of speech, or an identifier as it is
written; a summary is one of the text's sentences. Without an analysis both fall back to words by
a pattern and a list of stop words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from enrichment.event_kinds import FAILED, TOOL_USE, EventKind
from enrichment.names import SUMMARY_CHARACTERS
from enrichment.phrases import (
    INSIDE,
    NOUNS,
    PLAIN,
    WORD,
    salient_phrases,
    stated_identifiers,
    with_compounds,
)
from enrichment.ports import Analysis, EventText, Span, Token
from enrichment.text import (
    FAILED_VERB,
    RETURNED_VERB,
    TIMED_OUT_VERB,
    key_spans,
    language_spans,
)
from enrichment.vocabulary import GREETINGS, cut
from projections.events import Event

MAX_KEYWORDS = 10
MAX_IDENTIFIERS = 5
"""Of the keywords, so that a listing of codes leaves room for what it is about."""

_KEYWORD_CHARACTERS = 60
_PHRASE_WORDS = 3
_MIN_CHARACTERS = 3
_VALUES = frozenset(("amount", "date", "time"))
"""Identifiers that say when and how much, not what about."""
_SENTENCE_END = re.compile(r"(?<=[.!?…\]])[\"')\]]*\s+|\n+")
_LIST_ITEM = re.compile(r"^(?:[-*•#]+|\d{1,3}[.)]) ")
_MARKUP = re.compile(r"\*\*|`|^#+ ")
_ERROR = re.compile(r"^(?:error|exception)\s*:\s*", re.IGNORECASE)
_GREETING_WORDS = 4
_GREETING_COST = 30


class _Candidate(NamedTuple):
    name: str
    place: int
    weight: int


def keywords(text: EventText, analysis: Analysis) -> tuple[str, ...]:
    """At most MAX_KEYWORDS, best first, no two alike.

    Noun phrases by runs of nouns and adjectives, in lower case with the head as lemma; at most
    MAX_IDENTIFIERS identifiers as they are written. The score, in whole numbers so that it is the
    same everywhere: 4 for each time it occurs, 3 for each further word, 6 for an identifier, and
    up to 4 for an early place. The tool that was called or answered comes first.

    Args:
        text: of the event.
        analysis: of that text; when empty, words by a pattern take the place of phrases.
    """
    spans = [span for span in stated_identifiers(text) if span.label not in _VALUES]
    phrases = list(_phrases(text, analysis, spans) if analysis.tokens else _bare_words(text, spans))
    counts: dict[str, int] = {}
    firsts: dict[str, _Candidate] = {}
    codes = [_Candidate(text.text[s:e][:_KEYWORD_CHARACTERS], s, 6) for s, e, _ in spans]
    for candidate in [*codes, *phrases]:
        counts[candidate.name] = counts.get(candidate.name, 0) + 1
        firsts.setdefault(candidate.name, candidate)
    length = max(len(text.text), 1)

    def score(candidate: _Candidate) -> int:
        early = 4 - 4 * candidate.place // length
        return 4 * min(counts[candidate.name], 5) + candidate.weight + early

    ranked = sorted(firsts.values(), key=lambda c: (-score(c), c.place, c.name))
    chosen: list[str] = []
    if text.speaker and text.kind in TOOL_USE:
        chosen.append(text.speaker.lower()[:_KEYWORD_CHARACTERS])
    written = {candidate.name for candidate in codes}
    left = MAX_IDENTIFIERS
    for candidate in ranked:
        if len(chosen) == MAX_KEYWORDS:
            break
        if candidate.name in written:
            left -= 1
            if left < 0:
                continue
        elif any(_covers(longer, candidate.name) for longer in chosen):
            continue
        if candidate.name not in chosen:
            chosen.append(candidate.name)
    return tuple(chosen)


def _covers(longer: str, name: str) -> bool:
    return f" {name} " in f" {longer} "


def _phrases(text: EventText, analysis: Analysis, spans: list[Span]) -> Iterator[_Candidate]:
    """Runs of nouns and adjectives that end in a noun, within what is language."""
    codes = {place for start, end, _ in spans for place in (start, end - 1)}
    language = iter(language_spans(text))
    stretch = next(language, None)
    run: list[Token] = []
    for token in with_compounds(analysis.tokens):
        end = token.start + len(token.text)
        while stretch is not None and token.start >= stretch[1]:
            yield from _of_run(run)
            run = []
            stretch = next(language, None)
        outside = stretch is None or token.start < stretch[0]
        if (
            outside
            or token.pos not in INSIDE
            or WORD.fullmatch(token.text) is None
            or token.start in codes
            or end - 1 in codes
        ):
            yield from _of_run(run)
            run = []
        else:
            run.append(token)
    yield from _of_run(run)


def _of_run(run: list[Token]) -> Iterator[_Candidate]:
    while run and run[-1].pos not in NOUNS:
        run = run[:-1]
    while run and (run[0].text.lower() in PLAIN or len(run[0].text) < _MIN_CHARACTERS):
        run = run[1:]
    if not run or run[-1].lemma.lower() in PLAIN or run[-1].text.lower() in PLAIN:
        return
    run = run[-_PHRASE_WORDS:]
    head = run[-1]
    last = head.text.lower() if head.pos == "PROPN" else head.lemma.lower() or head.text.lower()
    if len(last) < _MIN_CHARACTERS:
        return
    name = " ".join([*(t.text.lower() for t in run[:-1]), last])[:_KEYWORD_CHARACTERS]
    yield _Candidate(name, run[0].start, 3 * (len(run) - 1))


def _bare_words(text: EventText, spans: list[Span]) -> Iterator[_Candidate]:
    """Words that are on no list, outside identifiers: what is left without an analysis."""
    taken = iter(spans)
    span = next(taken, None)
    for start, end in language_spans(text):
        for match in WORD.finditer(text.text, start, end):
            while span is not None and span.end <= match.start():
                span = next(taken, None)
            if span is not None and span.start < match.end():
                continue
            word = match[0].lower().replace("’", "'")  # noqa: RUF001
            if len(word) > _MIN_CHARACTERS and word.removesuffix("'s") not in PLAIN:
                yield _Candidate(word.removesuffix("'s")[:_KEYWORD_CHARACTERS], match.start(), 0)


def summary(event: Event, text: EventText, analysis: Analysis) -> str:
    """One line of at most SUMMARY_CHARACTERS that says what happened.

    Who said it and all of it if it is short, else the most telling sentence; which tool was
    called with what, returned what or failed why; for any other event its type and what it carries.
    """
    return cut(" ".join(_summary_line(event, text, analysis).split()), SUMMARY_CHARACTERS)


def _summary_line(event: Event, text: EventText, analysis: Analysis) -> str:
    who = text.speaker or event.agent_id
    if text.kind is EventKind.RESULT:
        return _after(f"{who} {RETURNED_VERB}", _fields_line(text) if text.text else "")
    if text.kind is EventKind.FAILURE or (text.kind is EventKind.CALL and event.status in FAILED):
        failed = TIMED_OUT_VERB if event.status == "timeout" else FAILED_VERB
        tool = event.tool is not None or who != event.agent_id
        what = f"{who} {failed}" if tool else event.event_type
        return _after(what, _ERROR.sub("", _fields_line(text)))
    if not text.text and not (text.kind is EventKind.CALL and who != event.agent_id):
        status = f" {event.status}" if event.status in (*FAILED, "completed") else ""
        return f"{who}: {event.event_type}{status}"
    if text.kind is EventKind.CALL:
        return _after(who, _fields_line(text))
    if text.structured:
        return _after(event.event_type, _fields_line(text))
    message = text.kind in (EventKind.MESSAGE, EventKind.INSTRUCTION)
    if message and len(who) + len(text.text) + len(": ") <= SUMMARY_CHARACTERS:
        return _after(who, text.text)  # any sentence of it may be the one that is asked for
    return _after(who if message else event.event_type, _telling_sentence(text, analysis))


def _after(who: str, what: str) -> str:
    return f"{who}: {what}" if what else who


def _fields_line(text: EventText) -> str:
    """The lines of a text as one, each field by the last part of its key.

    Words come first, then fields with an identifier, then the others; those of the surface before
    nested ones, and of several with one name the first.
    """
    lines: dict[str, tuple[int, str]] = {}
    keys = {start for start, _ in key_spans(text)}
    places = {span.start for span in stated_identifiers(text) if span.label not in _VALUES}
    place = 0
    for line in text.text.split("\n"):
        start, place = place, place + len(line) + 1
        if start not in keys:
            if line.strip():
                lines.setdefault(line, (0, line))
            continue
        path, _, value = line.partition(":")
        name = path.rpartition(".")[2]
        identified = any(start <= p < place for p in places)
        rank = 1 + 2 * min(path.count("."), 1) + (not identified)
        lines.setdefault(name, (rank, f"{name}: {value.strip()}" if value.strip() else name))
    ranked = sorted(
        lines.values(), key=lambda ranked_line: ranked_line[0]
    )  # stable: in order within a rank
    return "; ".join(line for _, line in ranked)


def _telling_sentence(text: EventText, analysis: Analysis) -> str:
    """The sentence with the most content for its place; the first of equals.

    Content is the number of different words that are on no list, up to 12, and 2 for each
    identifier or noun phrase that begins in it. A question and a list item count half, a caption
    in brackets next to nothing, a mere greeting less than nothing, a later sentence a little less.
    """
    sentences = _sentences(text.text, analysis)
    if not sentences:
        return ""
    places = [span.start for span in stated_identifiers(text)]
    places.extend(p.start for p in salient_phrases(text.text, analysis) if " " in p.name)

    def score(index: int) -> tuple[int, int]:
        start, end = sentences[index]
        sentence = text.text[start:end].strip()
        words = {m[0].lower() for m in WORD.finditer(sentence)}
        content = 10 * min(len(words - PLAIN), 12)
        content += 20 * min(sum(start <= p < end for p in places), 4)
        if sentence.startswith("["):
            content //= 8
        elif sentence.endswith("?") or _LIST_ITEM.match(sentence):
            content //= 2
        if len(words) <= _GREETING_WORDS and words & GREETINGS:
            content = -_GREETING_COST
        return (content - 3 * min(index, 8), -index)

    start, end = sentences[max(range(len(sentences)), key=score)]
    return _MARKUP.sub("", _LIST_ITEM.sub("", text.text[start:end].strip()))


def _sentences(text: str, analysis: Analysis) -> list[tuple[int, int]]:
    """Stretches of the sentences; a new line ends one, whatever the analysis says."""
    if not text:
        return []
    starts = {0}
    tokens = analysis.tokens
    if tokens:
        starts.update(tokens[i].start for i in analysis.sentences if 0 <= i < len(tokens))
        starts.update(m.end() for m in re.finditer(r"\n+", text))
    else:
        starts.update(m.end() for m in _SENTENCE_END.finditer(text))
    ordered = sorted(start for start in starts if start < len(text))
    return [(a, b) for a, b in zip(ordered, [*ordered[1:], len(text)], strict=True) if b > a]
