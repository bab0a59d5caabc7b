"""How well events answer a question: words, meaning, speaker and place in a dialogue, one score.

Words are those of an event and its neighbours (`pipelines.columns.windows`), by BM25 over the sum;
likewise its vector, beside that of the event alone. A channel is scaled by what it can reach for
this question (words: the best of the pool; cosines: as they are), not by how the pool spreads, so
a passage's score does not move with what else was looked at, and a channel that says nothing adds
the same to all.

Pure: what is known of events comes in as `Standings`. The weights are those of a logistic
regression on half a dozen features, rounded; leaving one of four conversations out moves them by
a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy
from numpy.typing import NDArray

from api.retrieval.query_terms import QueryTerms, agent_name
from api.retrieval.time_spans import TimeSpan
from consolidation.decay import DAY_MS
from pipelines.columns.records import Standings
from pipelines.columns.windows import Neighbour, neighbours, of_neighbour, windowed

Column = NDArray[Any]
"""One number for each passage."""

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
        window_cosine: of its vector summed with those of its neighbours.
        agent: the question names who says it.
        time: it happened when the question says, or soon after.
        asks: it is a question itself, which seldom answers one.
        answers: the turn before it is a question.
        length: ln(1 + words); what says more answers more.
    """

    words: float = 4.3
    cosine: float = 1.6
    window_cosine: float = 7.9
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
    around = neighbours(standings.previous)
    lengths = standings.words.astype(numpy.float64)
    words = _words(word_counts(terms, standings), lengths, around)
    named = _named(terms.agents, standings.authors)
    timely = _timely(terms.spans, standings.occurred_ms)
    total = weights.words * words + weights.agent * named + weights.time * timely
    total = total + _form(standings.asks, lengths, around, weights)
    total = total + weights.cosine * numpy.nan_to_num(standings.cosines)
    total = total + weights.window_cosine * numpy.nan_to_num(standings.window_cosines)
    return numpy.asarray(numpy.exp((total - total.max()) / _SPREAD))


def word_counts(terms: QueryTerms, standings: Standings) -> Column:
    """How often each event holds each stem of the question's words: a row each, a column a stem."""
    return numpy.asarray(standings.counts[:, : terms.word_stems], dtype=numpy.float64)


def _words(counts: Any, lengths: Column, around: Iterable[Neighbour]) -> Column:
    """BM25 over each passage with its neighbours, the best being 1; 0 where no word occurs.

    How rare a word is, is counted in the pool, which stands for what was ever found to match.
    """
    if not counts.any():
        return numpy.zeros(len(lengths))
    holding = (counts > 0).sum(axis=0)
    rarity = numpy.log1p((len(lengths) - holding + 0.5) / (holding + 0.5))
    held, long = windowed(counts, around), windowed(lengths, around)
    relative = 1 - _LENGTH_SHARE + _LENGTH_SHARE * long / max(long.mean(), 1.0)
    scores = (rarity * held / (held + _SATURATION * relative[:, None])).sum(axis=1)
    return numpy.asarray(scores / scores.max())


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
    asks: Column, lengths: Column, around: Iterable[Neighbour], weights: RelevanceWeights
) -> Column:
    """What the form of a turn adds: that it asks, that it answers, and how much it says."""
    before = next(neighbour for neighbour in around if neighbour.distance == -1)
    asking = asks.astype(numpy.float64)
    answering = weights.answers * of_neighbour(asking, before)
    return numpy.asarray(weights.asks * asking + answering + weights.length * numpy.log1p(lengths))
