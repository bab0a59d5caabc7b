"""The process that runs spaCy: `python -m pipelines.models.analyst MODEL`; see `adapters.nlp`.

A process of its own, because spaCy holds the interpreter while it computes (a worker's event loop
would lose its leases), and because a text that crashes it must not take the worker along.

On standard input come frames (length, then JSON list of texts), on standard output goes one frame
an answer: first `{"ready": true}` or `{"error": reason}`, then one analysis a text, as soon as it
is made; null for a text it gave up on. It ends with its input, and so with its parent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from enrichment.ports import Analysis, Span, Token

_RUN = 256
_LONG_RUN = re.compile(rf"\S{{{_RUN + 1},}}")
_GIVING_UP = (ValueError, RuntimeError, LookupError, MemoryError)


def write_frame(stream: BinaryIO, data: bytes) -> None:
    """Length (4 bytes, little-endian) and data."""
    stream.write(len(data).to_bytes(4, "little") + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The data of one frame; None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    data = stream.read(size := int.from_bytes(head, "little"))
    return data if len(data) == size else None


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
    kept = [token for token in doc if not token.is_space]
    place = {token.i: index for index, token in enumerate(kept)}
    tokens = tuple(
        Token(
            token.text,
            token.lemma_.lower(),
            token.pos_,
            token.idx,
            place.get(token.head.i, index),
            token.dep_,
        )
        for index, token in enumerate(kept)
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


def main(model: str) -> int:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not come between the frames
    try:
        # spaCy would load torch where it is installed: 500 MB that its small models never use.
        sys.modules["torch"] = None  # type: ignore[assignment]  # how Python spells "not importable"
        import spacy

        nlp = spacy.load(model)
    except (ImportError, OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        write_frame(answers, orjson.dumps({"error": f"{type(error).__name__}: {error}"[:300]}))
        return 1
    write_frame(answers, orjson.dumps({"ready": True}))
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        # Strings met in these texts are forgotten after them; else the process grows for ever.
        with nlp.memory_zone():
            for answer in analyze(nlp, orjson.loads(frame)):
                write_frame(answers, answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
