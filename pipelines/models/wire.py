"""What the model process and its clients say to each other, in frames over a Unix socket.

Once it was greeted, a client asks, one question at a time, and reads its answers:
one for each text, in order, or one that refuses, which is the last. No text makes it load the model
and answer `LOADED`. A text that is asked for again after the process ended is announced by `BEGUN`:
whoever asks then knows at whose text it ended, if it does again. Frames are JSON and float32 of our
own making, never pickles.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import orjson

from pipelines.models.installed import DIMENSIONS
from projections.errors import ModelError, ModelFailed, ModelUnavailable

MAX_CHARACTERS: Final = 16_384
"""Of a text are read. 256 tokens are about 1,000 characters of English: what lies far beyond cannot
matter, and a text of 256 KiB would keep the tokenizer busy for a fifth of a second."""
MAX_TEXTS: Final = 64
"""Of one question; what is more is asked for after it."""
MAX_FRAME_BYTES: Final = 8 * 2**20
"""Of a question: its texts, all of them of characters that JSON writes with six."""

_VECTOR, _FAILED, _UNAVAILABLE, _LOADED, _BEGUN = b"v", b"f", b"u", b"l", b"b"
_SECONDS_BYTES = 4
LOADED: Final = _LOADED
"""What `load` is answered with."""
BEGUN: Final = _BEGUN
"""A text that was asked for again is being computed."""


def bounded(text: str) -> str:
    """Cut, and fit for UTF-8: half a surrogate pair, which JSON may smuggle in, becomes `?`."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class Question:
    """What a client asks.

    Attributes:
        texts: `bounded`, at most MAX_TEXTS; none: the model is to be loaded.
        nice: how far whoever asks has stepped back (0 to 19); the computation does so, too.
        is_urgent: somebody waits for the one text; computed beside all that is not.
        is_again: the process ended while this one text waited or was computed; it is announced.
    """

    texts: list[str]
    nice: int = 0
    is_urgent: bool = False
    is_again: bool = False

    def encode(self) -> bytes:
        """A frame."""
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, frame: bytes) -> Question:
        """What `encode` made.

        Raises:
            ValueError: it is something else.
        """
        try:
            question = cls(**orjson.loads(frame))
            texts, nice = list(map(str, question.texts)), min(max(int(question.nice), 0), 19)
        except TypeError as error:
            raise ValueError("no question") from error
        if len(texts) > MAX_TEXTS:
            raise ValueError("too many texts")
        if question.is_again and len(texts) != 1:
            raise ValueError("again, but not one text")
        return cls(texts, nice, bool(question.is_urgent), bool(question.is_again))


def vector_answer(vector: bytes, seconds: float) -> bytes:
    """A text's vector, and how long it took to compute."""
    return _VECTOR + round(seconds * 1e6).to_bytes(_SECONDS_BYTES, "little") + vector


def refusal(error: ModelError) -> bytes:
    """Why there is no answer to this text or those after it."""
    reason = str(getattr(error, "reason", error))
    if isinstance(error, ModelUnavailable):
        return _UNAVAILABLE + orjson.dumps([error.model, reason, error.fix])
    return _FAILED + orjson.dumps([getattr(error, "model", ""), reason])


def read_vector(frame: bytes) -> tuple[bytes, float]:
    """A vector and the seconds that it took.

    Raises:
        ModelFailed, ModelUnavailable: it was refused.
        ValueError: this is no such answer.
    """
    raise_refusal(frame)
    taken, vector = frame[1 : 1 + _SECONDS_BYTES], frame[1 + _SECONDS_BYTES :]
    if frame[:1] != _VECTOR or len(vector) != 4 * DIMENSIONS:
        raise ValueError("no vector")
    return vector, int.from_bytes(taken, "little") / 1e6


def is_refusal(frame: bytes) -> bool:
    """Whether no further answers come to the same question."""
    return frame[:1] in (_FAILED, _UNAVAILABLE)


def raise_refusal(frame: bytes) -> None:
    """Raise what the model process raised, if that is its answer."""
    if frame[:1] == _FAILED:
        model, reason = orjson.loads(frame[1:])
        raise ModelFailed(model=model, reason=reason)
    if frame[:1] == _UNAVAILABLE:
        model, reason, fix = orjson.loads(frame[1:])
        raise ModelUnavailable(model=model, reason=reason, fix=fix)
