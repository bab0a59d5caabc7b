"""How well events answer a question: words, meaning, speaker and place in a dialogue, one score.

A turn of a conversation is short, and half of what it is about stands in the turns around it. So
its words are counted together with those of its neighbours in FOLLOWS order, weighted down by
distance, and BM25 is computed over the sum; the neighbours' cosines count the same way. A channel
is scaled by what it can reach for this question (words: the best of the pool; cosine: as it is),
not by how the pool spreads, so a passage's score does not move with what else was looked at, and
a channel that says nothing adds the same to all.

Pure: what is known of events comes in as `Standings`. The weights are those of a logistic
regression on half a dozen features, rounded; leaving one of four conversations out moves them by
a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy
from numpy.typing import NDArray

from api.retrieval.query_terms import QueryTerms, agent_name
from api.retrieval.time_spans import TimeSpan
from consolidation.decay import DAY_MS
from pipelines.columns.records import Standings

Column = NDArray[Any]
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
    terms: QueryTerms, standings: Standings, weights: RelevanceWeights = DEFAULT_WEIGHTS
) -> Column:
    """Relevance of events, 0 to 1, the best of the pool having 1.

    The order of the events does not matter.

    Args:
        terms: of the question.
        standings: the pool: what the channels found, and as far as possible its neighbours; with
            a column for each of the terms' stems.
        weights: of the channels.
    """
    if not standings.ids:
        return numpy.zeros(0)
    neighbours = _neighbours(standings.previous)
    lengths = standings.words.astype(numpy.float64)
    words = _words(word_counts(terms, standings), lengths, neighbours)
    cosine = _cosines(standings)
    named = _named(terms.agents, standings.authors)
    timely = _timely(terms.spans, standings.occurred_ms)
    total = weights.words * words + weights.agent * named + weights.time * timely
    total = total + _form(standings.asks, lengths, neighbours, weights)
    if cosine is not None:
        near = _near_mean(cosine, neighbours)
        total = total + weights.cosine * cosine + weights.near_cosine * near
    return numpy.asarray(numpy.exp((total - total.max()) / _SPREAD))


def word_counts(terms: QueryTerms, standings: Standings) -> Column:
    """How often each event holds each stem of the question's words: a row each, a column a stem."""
    return numpy.asarray(standings.counts[:, : terms.word_stems], dtype=numpy.float64)


def neighbour_weight(distance: int) -> float:
    """Weight of the turn so many steps later (negative: earlier); 1 for the turn itself."""
    return float(numpy.exp(-abs(distance) / _FADING)) * (_LATER if distance > 0 else 1.0)


class _Neighbour(NamedTuple):
    """For each passage the index of one at some distance, or how many there are: none."""

    distance: int
    index: Any
    weight: float


def _neighbours(previous: Column) -> list[_Neighbour]:
    """Those up to REACH steps away; no step leads over a gap in the pool.

    Args:
        previous: of each passage the index of the one before it; negative: it is not in the pool.
    """
    none = len(previous)
    places = numpy.arange(none)
    follows = (previous >= 0) & (previous != places)
    back = numpy.full(none + 1, none)
    forth = numpy.full(none + 1, none)
    back[:none][follows] = previous[follows]
    forth[previous[follows]] = places[follows]
    neighbours = []
    for step, sign in ((back, -1), (forth, 1)):
        index = numpy.arange(none + 1)
        for distance in range(1, REACH + 1):
            index = step[index]
            at = sign * distance
            neighbours.append(_Neighbour(at, index[:none], neighbour_weight(at)))
    return neighbours


def _padded(column: Any) -> Any:
    """The values of the passages, and 0: that of a neighbour that is not there."""
    return numpy.concatenate([column, numpy.zeros_like(column[:1])])


def _words(counts: Any, lengths: Column, neighbours: Iterable[_Neighbour]) -> Column:
    """BM25 over each passage with its neighbours, the best being 1; 0 where no word occurs.

    How rare a word is, is counted in the pool, which stands for what was ever found to match.
    """
    if not counts.any():
        return numpy.zeros(len(lengths))
    holding = (counts > 0).sum(axis=0)
    rarity = numpy.log1p((len(lengths) - holding + 0.5) / (holding + 0.5))
    around, long = counts.copy(), lengths.copy()
    count_of, length_of = _padded(counts), _padded(lengths)
    for neighbour in neighbours:
        around += neighbour.weight * count_of[neighbour.index]
        long += neighbour.weight * length_of[neighbour.index]
    relative = 1 - _LENGTH_SHARE + _LENGTH_SHARE * long / max(long.mean(), 1.0)
    scores = (rarity * around / (around + _SATURATION * relative[:, None])).sum(axis=1)
    return numpy.asarray(scores / scores.max())


def _cosines(standings: Standings) -> Column | None:
    """Cosines, 0 where there is none, as of things that have nothing in common; None: nobody's."""
    unknown = numpy.isnan(standings.cosines)
    return None if unknown.all() else numpy.where(unknown, 0.0, standings.cosines)


def _near_mean(cosine: Column, neighbours: Iterable[_Neighbour]) -> Column:
    """Weighted mean of the neighbours' cosines; of who has none, its own."""
    total, weight = numpy.zeros(len(cosine)), numpy.zeros(len(cosine))
    cosine_of = _padded(cosine)
    for neighbour in neighbours:
        total += neighbour.weight * cosine_of[neighbour.index]
        weight += neighbour.weight * (neighbour.index < len(cosine))
    return numpy.where(weight > 0, total / numpy.maximum(weight, 1e-9), cosine)


def _named(agents: frozenset[str], authors: Sequence[str]) -> Column:
    """1 for what an agent that the question names says, else 0."""
    if not agents:
        return numpy.zeros(len(authors))
    named = {author: float(agent_name(author) in agents) for author in set(authors)}
    return numpy.array([named[author] for author in authors])


def _timely(spans: Sequence[TimeSpan], occurred_ms: Column) -> Column:
    """1 within a stretch of time that is asked for, falling to either side; a long one tells less.

    What happened is told afterwards: two weeks later it is 1/e; a plan is told a week before.
    """
    nearness = numpy.zeros(len(occurred_ms))
    at = occurred_ms.astype(numpy.float64)
    for span in spans:
        late = numpy.maximum(0.0, at - span.end_ms + 1) / _TOLD_WITHIN_MS
        early = numpy.maximum(0.0, span.first_ms - at) / _EARLY_MS
        exactness = _EXACTNESS[0] if span.end_ms - span.first_ms <= _LONG_MS else _EXACTNESS[1]
        nearness = numpy.maximum(nearness, exactness * numpy.exp(-late - early))
    return nearness


def _form(
    asks: Column, lengths: Column, neighbours: Iterable[_Neighbour], weights: RelevanceWeights
) -> Column:
    """What the form of a turn adds: that it asks, that it answers, and how much it says."""
    before = next(neighbour for neighbour in neighbours if neighbour.distance == -1)
    asking = asks.astype(numpy.float64)
    answering = weights.answers * _padded(asking)[before.index]
    return numpy.asarray(weights.asks * asking + answering + weights.length * numpy.log1p(lengths))
