"""The sentences of a text as trees of dependencies, and the titles that they quote. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from enrichment.ports import Analysis, Span, Token
from enrichment.vocabulary import QUOTES

_MAX_TITLE_TOKENS: Final = 8
_LONG_WORD: Final = 4
"""Letters from which a word of a title has a capital."""


class Sentences:
    """The tokens with what is asked of them again and again."""

    def __init__(self, text: str, analysis: Analysis) -> None:
        self.text = text
        self.tokens: Sequence[Token] = analysis.tokens
        self.children: list[list[int]] = [[] for _ in self.tokens]
        for index, token in enumerate(self.tokens):
            if token.head != index:
                self.children[token.head].append(index)
        bounds = [*analysis.sentences, len(self.tokens)]
        self.bounds = list(pairwise(bounds))
        self.spans = {
            place: span for span in analysis.entities for place in range(span.start, span.end)
        }
        self.titles: dict[int, str] = {}
        self.quoted = {place for place, token in enumerate(self.tokens) if token.text in QUOTES}
        for opening, closing in self._pairs():
            if self._is_title(opening + 1, closing):
                title = self.between(opening + 1, closing - 1)
                self.titles.update(dict.fromkeys(range(opening + 1, closing), title))
                self.quoted -= {opening, closing}

    def below(self, index: int, *relations: str) -> list[int]:
        """What hangs on a token in one of these ways."""
        return [c for c in self.children[index] if self.tokens[c].relation in relations]

    def label(self, index: int) -> str:
        """Of the named entity that a token is in; empty: of none."""
        span = self.span(index)
        return "" if span is None else span.label

    def span(self, index: int) -> Span | None:
        """The named entity that a token is in."""
        return self.spans.get(self.tokens[index].start)

    def word(self, index: int) -> str:
        """A token in small letters."""
        return self.tokens[index].text.lower()

    def words_below(self, index: int, *relations: str) -> set[str]:
        """The words that hang on a token in one of these ways, in small letters."""
        return {self.word(child) for child in self.below(index, *relations)}

    def between(self, first: int, last: int) -> str:
        """What is written from one token to another."""
        end = self.tokens[last]
        return self.text[self.tokens[first].start : end.start + len(end.text)]

    def quotes(self, first: int, last: int) -> bool:
        """Whether a stretch quotes what somebody said; a title is no such thing."""
        return any(first <= place < last for place in self.quoted)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Quotation marks that belong together."""
        marks = sorted(self.quoted)
        yield from zip(marks[::2], marks[1::2], strict=False)

    def _is_title(self, first: int, last: int) -> bool:
        """Whether what stands in quotation marks is written as a title, with capitals."""
        words = self.tokens[first:last]
        if not 0 < len(words) <= _MAX_TITLE_TOKENS or words[-1].pos in ("PUNCT", "PRON", "INTJ"):
            return False
        plain = (word for word in words[1:] if len(word.text) >= _LONG_WORD)
        return words[0].text[:1].isupper() and all(
            word.text[:1].isupper() or not word.text.isalpha() for word in plain
        )
