"""How well events answer a question: words, meaning, speaker and place in a dialogue, one score.

A turn of a conversation is short, and half of what it is about stands in the turns around it. So
its words are counted together with those of its neighbours in FOLLOWS order, weighted down by
distance, and BM25 is computed over the sum; the neighbours' cosines count the same way. A channel
is scaled by what it can reach for this question (words: the best of the pool; cosine: as it is),
not by how the pool spreads, so a passage's score does not move with what else was looked at, and
a channel that says nothing adds the same to all.

Pure: what the graph holds comes in as `Candidate`s. The weights are those of a logistic regression
on half a dozen features, rounded; leaving one of four conversations out moves them by a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy

from api.retrieval.query_terms import QueryTerms, TimeSpan, agent_name
from consolidation.decay import DAY_MS
from enrichment.stems import said_stems, stem
from pipelines.graph.rows import DEFAULT_IMPORTANCE, Content

Column = numpy.ndarray[Any, numpy.dtype[numpy.float64]]
"""One number for each passage."""

REACH: Final = 3
"""Turns to either side that count as context."""
_FADING: Final = 2.0
"""Turns over which the weight of a neighbour falls to 1/e."""
_LATER: Final = 0.8
"""Weight of what comes after against what comes before: answers follow questions."""
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.5
"""BM25's k1 and b. Windows differ less in length than turns do."""
_TOLD_WITHIN_MS: Final = 14 * DAY_MS
_EARLY_MS: Final = 7 * DAY_MS
_LONG_MS: Final = 40 * DAY_MS
_EXACTNESS: Final = (1.0, 0.4)
"""Of a stretch of up to 40 days, and of a longer one: a year holds much else."""
_SPREAD: Final = 3.0
"""Score between 1 and 1/e, in units of the regression: the best ten lie within it."""


@dataclass(frozen=True, slots=True)
class RelevanceWeights:
    """What a channel counts; 0 switches it off.

    Attributes:
        words: BM25 over the turn and its neighbours, the best of the pool being 1.
        cosine: of the turn itself.
        near_cosine: mean of its neighbours' cosines.
        agent: the question names who says it.
        time: it happened when the question says, or soon after.
        asks: it is a question itself, which seldom answers one.
        answers: the turn before it is a question.
        length: ln(1 + words); what says more answers more.
    """

    words: float = 4.9
    cosine: float = 5.3
    near_cosine: float = 4.3
    agent: float = 2.5
    time: float = 4.0
    asks: float = -0.95
    answers: float = 0.3
    length: float = 0.7


DEFAULT_WEIGHTS: Final = RelevanceWeights()


def relevance(
    terms: QueryTerms, candidates: Sequence[Candidate], weights: RelevanceWeights = DEFAULT_WEIGHTS
) -> dict[str, float]:
    """Relevance by event id, 0 to 1, the best of the pool having 1.

    The order of the candidates does not matter.

    Args:
        terms: of the question.
        candidates: the pool: what the channels found, and as far as possible its neighbours.
        weights: of the channels.
    """
    if not candidates:
        return {}
    neighbours = _neighbours(candidates)
    lengths = _lengths(candidates)
    words = _words(_counts(terms.words, candidates), lengths, neighbours)
    cosine = _cosines(candidates)
    named = _named(terms.agents, candidates)
    timely = _timely(terms.spans, candidates)
    total = weights.words * words + weights.agent * named + weights.time * timely
    total = total + _form(candidates, lengths, neighbours, weights)
    if cosine is not None:
        near = _near_mean(cosine, neighbours)
        total = total + weights.cosine * cosine + weights.near_cosine * near
    scores = numpy.exp((total - total.max()) / _SPREAD)
    return dict(zip((candidate.event_id for candidate in candidates), scores.tolist(), strict=True))


def neighbour_weight(distance: int) -> float:
    """Weight of the turn so many steps later (negative: earlier); 1 for the turn itself."""
    return float(numpy.exp(-abs(distance) / _FADING)) * (_LATER if distance > 0 else 1.0)


class _Neighbour(NamedTuple):
    """For each passage the index of one at some distance, or how many there are: none."""

    distance: int
    index: Any
    weight: float


def _neighbours(candidates: Sequence[Candidate]) -> list[_Neighbour]:
    """Those up to REACH steps away; no step leads over a gap in the pool."""
    places = {each.event_id: place for place, each in enumerate(candidates)}
    none = len(candidates)
    back = numpy.full(none + 1, none)
    forth = numpy.full(none + 1, none)
    for place, candidate in enumerate(candidates):
        before = places.get(candidate.previous_id or "")
        if before is not None and before != place:
            back[place], forth[before] = before, place
    neighbours = []
    for step, sign in ((back, -1), (forth, 1)):
        index = numpy.arange(none + 1)
        for distance in range(1, REACH + 1):
            index = step[index]
            at = sign * distance
            neighbours.append(_Neighbour(at, index[:none], neighbour_weight(at)))
    return neighbours


def _shifted(column: Any, neighbour: _Neighbour) -> Any:
    """The values of the neighbours; 0 where there is none."""
    padded = numpy.concatenate([column, numpy.zeros_like(column[:1])])
    return padded[neighbour.index]


def _words(counts: Any, lengths: Column, neighbours: Iterable[_Neighbour]) -> Column:
    """BM25 over each passage with its neighbours, the best being 1; 0 where no word occurs.

    How rare a word is, is counted in the pool, which stands for what was ever found to match.
    """
    if not counts.any():
        return numpy.zeros(len(lengths))
    holding = (counts > 0).sum(axis=0)
    rarity = numpy.log1p((len(lengths) - holding + 0.5) / (holding + 0.5))
    around, long = counts.copy(), lengths.copy()
    for neighbour in neighbours:
        around += neighbour.weight * _shifted(counts, neighbour)
        long += neighbour.weight * _shifted(lengths, neighbour)
    relative = 1 - _LENGTH_SHARE + _LENGTH_SHARE * long / max(long.mean(), 1.0)
    scores = (rarity * around / (around + _SATURATION * relative[:, None])).sum(axis=1)
    return numpy.asarray(scores / scores.max())


def _counts(words: Sequence[str], candidates: Sequence[Candidate]) -> Any:
    """How often each candidate holds each stem of the words: a row each, a column a stem."""
    terms = dict.fromkeys(map(stem, words))
    held = [candidate.passage.stems for candidate in candidates]
    counts = numpy.zeros((len(held), len(terms)))
    for column, term in enumerate(terms):
        counts[:, column] = [stems.get(term, 0) for stems in held]
    return counts


def _lengths(candidates: Sequence[Candidate]) -> Column:
    """Words of each passage."""
    return numpy.array([candidate.passage.length for candidate in candidates])


def _cosines(candidates: Sequence[Candidate]) -> Column | None:
    """Cosines, 0 where there is none, as of things that have nothing in common; None: nobody's."""
    if all(candidate.cosine is None for candidate in candidates):
        return None
    return numpy.array([candidate.cosine or 0.0 for candidate in candidates])


def _near_mean(cosine: Column, neighbours: Iterable[_Neighbour]) -> Column:
    """Weighted mean of the neighbours' cosines; of who has none, its own."""
    total, weight = numpy.zeros(len(cosine)), numpy.zeros(len(cosine))
    for neighbour in neighbours:
        total += neighbour.weight * _shifted(cosine, neighbour)
        weight += neighbour.weight * (neighbour.index < len(cosine))
    return numpy.where(weight > 0, total / numpy.maximum(weight, 1e-9), cosine)


def _named(agents: frozenset[str], candidates: Sequence[Candidate]) -> Column:
    """1 for what an agent that the question names says, else 0."""
    if not agents:
        return numpy.zeros(len(candidates))
    authors = {candidate.passage.author for candidate in candidates}
    named = {author: float(agent_name(author) in agents) for author in authors}
    return numpy.array([named[candidate.passage.author] for candidate in candidates])


def _timely(spans: Sequence[TimeSpan], candidates: Sequence[Candidate]) -> Column:
    """1 within a stretch of time that is asked for, falling to either side; a long one tells less.

    What happened is told afterwards: two weeks later it is 1/e; a plan is told a week before.
    """
    nearness = numpy.zeros(len(candidates))
    at = numpy.array(
        [candidate.passage.occurred_at_ms for candidate in candidates], dtype=numpy.float64
    )
    for span in spans:
        late = numpy.maximum(0.0, at - span.end_ms + 1) / _TOLD_WITHIN_MS
        early = numpy.maximum(0.0, span.first_ms - at) / _EARLY_MS
        exactness = _EXACTNESS[0] if span.end_ms - span.first_ms <= _LONG_MS else _EXACTNESS[1]
        nearness = numpy.maximum(nearness, exactness * numpy.exp(-late - early))
    return nearness


def _form(
    candidates: Sequence[Candidate],
    lengths: Column,
    neighbours: Iterable[_Neighbour],
    weights: RelevanceWeights,
) -> Column:
    """What the form of a turn adds: that it asks, that it answers, and how much it says."""
    asks = numpy.array([candidate.passage.asks for candidate in candidates])
    length = numpy.log1p(lengths)
    before = next(neighbour for neighbour in neighbours if neighbour.distance == -1)
    return numpy.asarray(
        weights.asks * asks + weights.answers * _shifted(asks, before) + weights.length * length
    )


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
        """How often it holds each stem."""
        if self._stems is None:
            # a Counter takes more memory
            self._stems = dict(said_stems(self.author, self.tool_name, self.text))
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
