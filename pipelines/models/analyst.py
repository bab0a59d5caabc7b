"""The process that runs spaCy for `nlp`: `python -P -m pipelines.models.analyst MODEL`.

A process of its own, because spaCy holds the interpreter while it computes (a worker's event loop
would lose its leases), and because a text that crashes it must not take the worker along.

A frame that comes in is a JSON list of texts; for each of them one frame goes out, its analysis, as
soon as it is made; null for a text that spaCy gave up on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson

from enrichment.ports import Analysis, Span, Token
from pipelines.local.python_process import FrameHandler, StartFailed, collect_rarely, serve_frames

_RUN = 256
_LONG_RUN = re.compile(rf"\S{{{_RUN + 1},}}")
_LOOKED_AT = ["TAG", "LOWER", "DEP", "IS_SPACE"]
_WORDS = 20_000
"""That are remembered, with what is said of each."""
_GIVING_UP = (ValueError, RuntimeError, LookupError, MemoryError)


def encode_analysis(analysis: Analysis) -> bytes:
    """JSON by columns, which packs twice as well as by rows."""
    columns = list(zip(*analysis.tokens, strict=True))
    spans = [list(zip(*held, strict=True)) for held in (analysis.entities, analysis.noun_phrases)]
    return orjson.dumps([columns, analysis.sentences, *spans])


def decode_analysis(data: bytes) -> Analysis:
    """What `encode_analysis` made.

    Raises:
        ValueError: something else.
    """
    try:
        columns, sentences, entities, phrases = orjson.loads(data)
        return Analysis(
            tuple(map(Token, *columns)) if columns else (),
            tuple(sentences),
            tuple(map(Span, *entities)) if entities else (),
            tuple(map(Span, *phrases)) if phrases else (),
        )
    except TypeError as error:
        raise ValueError("not an encoded analysis") from error


def analysis_of(doc: Any) -> Analysis:
    """What a `spacy.tokens.Doc` says, without the tokens that are only white space."""
    text = doc.text  # put together anew each time it is asked for
    printed = [token for token in doc if not token.is_space]
    place = {token.i: index for index, token in enumerate(printed)}
    tokens = tuple(
        Token(
            text=token.text,
            lemma=token.lemma_.lower(),
            pos=token.pos_,
            start=token.idx,
            head=place.get(token.head.i, index),
            relation=token.dep_,
        )
        for index, token in enumerate(printed)
    )
    firsts = (next((t.i for t in sentence if t.i in place), None) for sentence in doc.sents)
    return Analysis(
        tokens,
        tuple(place[first] for first in firsts if first is not None),
        tuple(_trimmed(text, e.start_char, e.end_char, e.label_) for e in doc.ents),
        tuple(_trimmed(text, p.start_char, p.end_char, "NP") for p in doc.noun_chunks),
    )


def _trimmed(text: str, start: int, end: int, label: str) -> Span:
    """Without white space at either end, which the recogniser sometimes takes in."""
    held = text[start:end]
    return Span(start + len(held) - len(held.lstrip()), end - len(held) + len(held.rstrip()), label)


def tokenized(nlp: Any, text: str) -> Any:
    """The tokens of a text, as a `spacy.tokens.Doc`.

    The tokenizer takes time by the square of a run without white space (4,096 emoji: 3 s), so
    long runs, which are no words anyway, are given to it in pieces.
    """
    if not _LONG_RUN.search(text):
        return nlp.make_doc(text)
    from spacy.tokens import Doc

    words: list[str] = []
    spaces: list[bool] = []
    for piece in _pieces(text):
        for token in nlp.make_doc(piece):
            words.append(token.text)
            spaces.append(bool(token.whitespace_))
    return Doc(nlp.vocab, words=words, spaces=spaces)


def _pieces(text: str) -> Iterator[str]:
    """The text cut within its long runs."""
    begin = 0
    for run in _LONG_RUN.finditer(text):
        for end in range(run.start() + _RUN, run.end(), _RUN):
            yield text[begin:end]
            begin = end
    yield text[begin:]


def analyze(nlp: Any, texts: list[str]) -> Iterator[bytes]:
    """The encoded analysis of each text; `null` where spaCy gives up.

    Batches are twice as fast as single texts, and give the same to the last bit: the sums of a
    row do not depend on how many rows there are (a test compares them).
    """
    try:
        docs = list(nlp.pipe((tokenized(nlp, text) for text in texts), batch_size=len(texts)))
    except _GIVING_UP:
        if len(texts) == 1:
            yield b"null"
        else:
            for text in texts:
                yield from analyze(nlp, [text])
        return
    for doc in docs:
        yield encode_analysis(analysis_of(doc))


class WordMatcher:
    """The matcher of spaCy's attribute ruler, which looks at each word once.

    The ruler tries some two hundred patterns at each word: an eighth of an analysis. What a pattern
    of one word says depends on what it looks at, and most words come again.

    Args:
        ruler: a `spacy.pipeline.AttributeRuler`, loaded.
    """

    def __init__(self, ruler: Any) -> None:
        from spacy.matcher import Matcher

        self._of_words, self._others = Matcher(ruler.vocab), Matcher(ruler.vocab)
        for number, row in enumerate(ruler.patterns):
            for pattern in row["patterns"]:
                is_word = len(pattern) == 1 and pattern[0].keys() <= set(_LOOKED_AT)
                matcher = self._of_words if is_word else self._others
                matcher.add(str(number), [pattern])
        self._known: dict[tuple[int, ...], list[int]] = {}

    def __call__(self, doc: Any, **options: Any) -> list[tuple[int, int, int]]:
        """Number of the pattern, first token and the one behind the last, of each match."""
        matches: list[tuple[int, int, int]] = self._others(doc, **options)
        for place, word in enumerate(map(tuple, doc.to_array(_LOOKED_AT).tolist())):
            numbers = self._known.get(word)
            if numbers is None:
                if len(self._known) == _WORDS:
                    self._known.clear()
                alone = self._of_words(doc[place : place + 1], **options)
                numbers = self._known[word] = [number for number, *_ in alone]
            matches += [(number, place, place + 1) for number in numbers]
        return matches


def load_analyst(model: str) -> FrameHandler:
    """What answers a JSON list of texts with one encoded analysis for each.

    Raises:
        StartFailed: spaCy or the model cannot be loaded.
    """
    # spaCy would load torch where it is installed: 500 MB that its small models never use.
    sys.modules["torch"] = None  # type: ignore[assignment]  # how Python spells "not importable"
    try:
        import spacy

        nlp: Any = spacy.load(model)
    except (ImportError, OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise StartFailed(f"{type(error).__name__}: {error}") from error
    if nlp.has_pipe("attribute_ruler"):
        ruler = nlp.get_pipe("attribute_ruler")
        ruler.matcher = WordMatcher(ruler)
    collect_rarely()

    def answer(frame: bytes) -> Iterator[bytes]:
        # Strings met in these texts are forgotten after them; else the process grows for ever.
        with nlp.memory_zone():
            yield from analyze(nlp, orjson.loads(frame))

    return answer


if __name__ == "__main__":
    sys.exit(serve_frames(partial(load_analyst, sys.argv[1])))
