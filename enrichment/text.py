"""The text of an event: what was said, asked for or returned, in words, bounded and clean.

`shapes` says what a payload is; here it becomes text: first what is language in it, then its
fields as lines `key: value`, nested keys joined by a dot, keys in order. A list of plain values
is one line. Nothing here depends on how the JSON was written down.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from enrichment.derived import EventText
from enrichment.event_kinds import TOOL_USE
from enrichment.shapes import shape
from projections.events import Event

TEXT_CHARACTERS = 4_000
"""Longest text of an event. The embedding reads about the first 1,000, the language model needs
about 0.1 s for this many; what a tool returned beyond it is listings."""
STORED_CHARACTERS = 2_000
"""Of the text, what the graph keeps for full-text search and narrative."""
VALUE_CHARACTERS = 1_000
"""Longest value of one field, so that one of many does not fill the whole text."""
MAX_LINES = 200
MAX_DEPTH = 6
MAX_ITEMS = 50
"""Of a list of plain values, how many go on its line."""

_KEY_CHARACTERS = 100
_WORD_REACH = 40
_SPEAKER_CHARACTERS = 200
_BINARY_SAMPLE = 4_096
_BINARY_SHARE = 0.1
_LANGUAGE_WORDS = 4

INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffd\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, bidi marks, zero-width marks, lone surrogates, what decoding left over. The
joiners U+200C and U+200D stay: Persian words and families of emoji are written with them."""
_BINARY = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd\ud800-\udfff]")
# The look-behind lets a match begin only where such a run begins, which keeps this linear.
_DATA = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{256,}")
_BLANKS = re.compile(r"[^\S\n]+")
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_EMPTY_LINES = re.compile(r" ?\n(?: ?\n)+ ?")
_KEY = re.compile(r"^[^\s:][^:\s]{0,120}:(?: |$)", re.MULTILINE)


def event_text(event: Event, content: Any = None) -> EventText:
    """The text of an event.

    Args:
        event: whose text it is.
        content: used instead of the payload: what `payload_ref` points to.

    Returns:
        At most TEXT_CHARACTERS, without control characters, with whom or what it comes from.
    """
    found = shape(event, content)
    parts = [clean_text(words) for words in found.words]
    parts.extend(_lines(found.fields))
    text = cut("\n".join(part for part in parts if part), TEXT_CHARACTERS)
    speaker = clean_text((found.speaker or "")[: 2 * _SPEAKER_CHARACTERS]).replace("\n", " ")
    return EventText(
        kind=found.kind,
        text=text,
        speaker=cut(speaker, _SPEAKER_CHARACTERS) or None,
        only_fields=not found.words and bool(found.fields) and found.kind not in TOOL_USE,
    )


def stored_text(text: str) -> str:
    """The beginning of a text that the graph keeps: at most STORED_CHARACTERS."""
    return cut(text, STORED_CHARACTERS)


def cut(text: str, characters: int) -> str:
    """The beginning of a text, at most so many characters, `…` last when something is missing.

    Ends between words if there is a gap near the end, and never before a combining mark.
    """
    if len(text) <= characters:
        return text
    end = characters - 1
    for place in range(end, max(end - _WORD_REACH, characters // 2), -1):
        if text[place].isspace():
            end = place
            break
    else:
        while end > max(characters - _WORD_REACH, 1) and _joins(text[end - 1], text[end]):
            end -= 1
    return text[:end].rstrip() + "…"


def _joins(before: str, after: str) -> bool:
    return (
        unicodedata.combining(after) > 0
        or after in "\u200d\ufe0f"
        or before == "\u200d"
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
    )


def clean_text(text: str) -> str:
    """Text without what cannot be read: control characters, bidi marks, long runs of data.

    Whitespace runs become one space, empty lines one; linear in the length of the text.
    """
    sample = text[:_BINARY_SAMPLE]
    if len(_BINARY.findall(sample)) > len(sample) * _BINARY_SHARE:
        return f"[binary, {len(text):,} characters]"
    text = _DATA.sub(lambda run: f"[data, {len(run[0]):,} characters]", text)
    # what the text is cut from; cleaning only makes it shorter
    text = INVISIBLE.sub("", _LINE_ENDS.sub("\n", text[: 4 * TEXT_CHARACTERS]))
    return _EMPTY_LINES.sub("\n\n", _BLANKS.sub(" ", text)).strip()


def key_spans(text: EventText) -> list[tuple[int, int]]:
    """Stretches of the text that are keys of fields, each with its colon."""
    return [match.span() for match in _KEY.finditer(text.text)] if text.structured else []


def language_spans(text: EventText) -> list[tuple[int, int]]:
    """Stretches of the text that are language, not the keys and short values of fields.

    A language model reads all of it, but what it says about `origin: JFK` is worth nothing; a
    value of at least four words that is no list of them is taken for a sentence.
    """
    if not text.structured:
        return [(0, len(text.text))] if text.text else []
    spans: list[tuple[int, int]] = []
    place = 0
    for line in text.text.split("\n"):
        key = _KEY.match(line)
        start = key.end() if key else 0
        words = len(line[start:].split())
        if words >= _LANGUAGE_WORDS and line.count(",", start) < words - 1:
            spans.append((place + start, place + len(line)))
        place += len(line) + 1
    return spans


def _lines(fields: Any) -> list[str]:
    found: list[str] = []
    length = 0
    for line in _field_lines(fields, "", 0):
        found.append(line)
        length += len(line)
        if len(found) >= MAX_LINES or length > TEXT_CHARACTERS:
            break
    return found


def _field_lines(value: Any, path: str, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        if depth >= MAX_DEPTH:
            yield _line(path, "…")
            return
        for key in sorted(value, key=str):
            name = "_".join(_value(str(key)[:_KEY_CHARACTERS]).split())
            yield from _field_lines(value[key], f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list | tuple):
        if any(isinstance(item, Mapping | list | tuple) for item in value):
            if depth >= MAX_DEPTH:
                yield _line(path, "…")
                return
            for item in value:
                yield from _field_lines(item, path, depth + 1)
        elif value:
            items = [_value(item) for item in value[:MAX_ITEMS]]
            missing = ", …" if len(value) > MAX_ITEMS else ""
            joined = ", ".join(item for item in items if item)
            yield _line(path, cut(joined, VALUE_CHARACTERS) + missing)
    elif value is not None or path:
        yield _line(path, _value(value))


def _line(path: str, value: str) -> str:
    return cut(f"{path}: {value}".rstrip() if path else value, 2 * VALUE_CHARACTERS)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return cut(clean_text(value), VALUE_CHARACTERS)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
