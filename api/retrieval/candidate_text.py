"""Events that may answer a question: what they say, which stays, and how they stand today."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from api.retrieval.query_terms import stem_in, words_in
from pipelines.graph.reader import DEFAULT_IMPORTANCE
from pipelines.graph.reads.channels import Content

Vector = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
HalfVector = numpy.ndarray[Any, numpy.dtype[numpy.float16]]
"""Half the memory; a cosine of it is off by less than 0.001."""


class Passage:
    """What an event says; never changed, so that what is worked out of it is worked out once.

    Attributes:
        event_id: each once.
        author: who said or did it: a speaker, else an agent; "" where nobody is known.
        text: what, in lower case; empty when it has none.
        tool_name: of a call and its result.
        occurred_at_ms: when.
        vector: of unit length; None: it has none.
    """

    __slots__ = (
        "_stems",
        "asks",
        "author",
        "event_id",
        "length",
        "occurred_at_ms",
        "text",
        "tool_name",
        "vector",
    )

    def __init__(
        self,
        event_id: str,
        author: str | None,
        text: str,
        *,
        tool_name: str | None = None,
        occurred_at_ms: int = 0,
        vector: HalfVector | None = None,
    ) -> None:
        self.event_id = event_id
        self.author = author or ""
        self.text = text.lower()
        self.tool_name = tool_name or ""
        self.occurred_at_ms = occurred_at_ms
        self.vector = vector
        self.length = float(len(text.split()))
        """Words of the text."""
        self.asks = float(text.rstrip().endswith("?"))
        """1 of a question, else 0."""
        self._stems: Mapping[str, int] | None = None

    @classmethod
    def of(cls, content: Content) -> Passage:
        """What the graph says of an event."""
        return cls(
            content.event_id,
            content.speaker or content.agent_id,
            content.text or "",
            tool_name=content.tool_name,
            occurred_at_ms=content.occurred_at_ms,
            vector=None if content.vector is None else half(unit_vector(content.vector)),
        )

    @property
    def stems(self) -> Mapping[str, int]:
        """How often it holds each stem.

        Whose it is counts as its words: `cancel_booking` says what the call is about.
        """
        if self._stems is None:
            tool = "" if self.tool_name == self.author else self.tool_name
            words = words_in(f"{self.author} {tool}".lower()) + words_in(self.text)
            self._stems = dict(Counter(map(stem_in, words)))  # a Counter takes more memory
        return self._stems


class Candidate(NamedTuple):
    """An event that may be ranked.

    Attributes:
        previous_id: the event before it in its session; one that is not among the candidates is
            nobody.
        cosine: of its vector and the question's, -1 to 1; None: not known.
        importance: 1 to 10, or more with its boost.
    """

    passage: Passage
    previous_id: str | None = None
    cosine: float | None = None
    importance: float = DEFAULT_IMPORTANCE
    access_count: int = 0
    accessed_at_ms: int = 0

    @property
    def event_id(self) -> str:
        """Of the event."""
        return self.passage.event_id


def half(vector: Vector) -> HalfVector:
    """As it is kept."""
    return vector.astype(numpy.float16)


def unit_vector(values: Sequence[float]) -> Vector:
    """The same direction with length 1; what has none stays as it is."""
    vector = numpy.array(values, dtype=numpy.float32)
    length = float(numpy.linalg.norm(vector))
    return vector / numpy.float32(length) if length else vector
