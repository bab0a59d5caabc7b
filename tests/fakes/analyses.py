"""Analyses written by hand, so that tests of what follows need no language model."""

from __future__ import annotations

from enrichment.ports import Analysis, Span, Token

_LEMMAS = {"agencies": "agency", "classes": "class", "flights": "flight", "dogs": "dog"}


def analysis_of(
    text: str, tagged: str = "", entities: tuple[tuple[str, str], ...] = ()
) -> Analysis:
    """An analysis of a text, its words found in order.

    Args:
        text: what is analysed.
        tagged: `word/POS` separated by spaces; `[` and `]` stand around a noun phrase.
        entities: (as written, label).
    """
    tokens: list[Token] = []
    phrases: list[Span] = []
    sentences: list[int] = []
    opened = place = 0
    ended = True
    for part in tagged.split():
        if part == "[":
            opened = len(tokens)
        elif part == "]":
            last = tokens[-1]
            phrases.append(Span(tokens[opened].start, last.start + len(last.text), "NP"))
        else:
            word, _, pos = part.rpartition("/")
            place = text.index(word, place)
            if ended:
                sentences.append(len(tokens))
            lemma = _LEMMAS.get(word.lower(), word.lower())
            tokens.append(Token(word, lemma, pos, place, len(tokens), "dep"))
            place += len(word)
            ended = word in ".!?"
    spans = [Span(text.index(n), text.index(n) + len(n), label) for n, label in entities]
    return Analysis(tuple(tokens), tuple(sentences), tuple(spans), tuple(phrases))
