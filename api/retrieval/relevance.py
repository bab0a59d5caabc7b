"""How well events answer a question: words, meaning, speaker and place in a dialogue, one score.

A turn of a conversation is short, and half of what it is about stands in the turns around it. So
its words are counted together with those of its neighbours in FOLLOWS order, weighted down by
distance, and BM25 is computed over the sum; the neighbours' cosines count the same way. A channel
is scaled by what it can reach for this question (words: the best of the pool; cosine: as it is),
not by how the pool spreads, so a passage's score does not move with what else was looked at, and
a channel that says nothing adds the same to all.

Pure: what the graph holds comes in as `Passage`s. The weights are those of a logistic regression
on half a dozen features, rounded; leaving one of four conversations out moves them by a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy

from api.retrieval.query_terms import (
    QueryTerms,
    agent_name,
    beginnings,
    stem,
    stem_in,
    words_in,
)
from api.retrieval.time_spans import TimeSpan
from consolidation.decay import DAY_MS

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


class Passage(NamedTuple):
    """An event that may answer, as far as relevance looks at it.

    Attributes:
        event_id: each once.
        agent_id: who said or did it: an agent or a tool.
        text: what; empty when it has none.
        previous_id: the event before it in its session; one that is not among the passages is
            nobody.
        occurred_at_ms: when.
        cosine: of its vector and the question's, -1 to 1; None: not known.
    """

    event_id: str
    agent_id: str | None
    text: str
    previous_id: str | None = None
    occurred_at_ms: int = 0
    cosine: float | None = None


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
    terms: QueryTerms,
    passages: Sequence[Passage],
    weights: RelevanceWeights = DEFAULT_WEIGHTS,
) -> dict[str, float]:
    """Relevance by event id, 0 to 1, the best of the pool having 1.

    The order of the passages does not matter.

    Args:
        terms: of the question.
        passages: the pool: what the channels found, and as far as possible its neighbours.
        weights: of the channels.
    """
    if not passages:
        return {}
    neighbours = _neighbours(passages)
    lengths = _lengths(passages)
    words = _words(_counts(terms.words, passages), lengths, neighbours)
    cosine = _cosines(passages)
    named = _named(terms.agents, passages)
    timely = _timely(terms.spans, passages)
    total = weights.words * words + weights.agent * named + weights.time * timely
    total = total + _form(passages, lengths, neighbours, weights)
    if cosine is not None:
        near = _near_mean(cosine, neighbours)
        total = total + weights.cosine * cosine + weights.near_cosine * near
    scores = numpy.exp((total - total.max()) / _SPREAD)
    return dict(zip((one.event_id for one in passages), scores.tolist(), strict=True))


def neighbour_weight(distance: int) -> float:
    """Weight of the turn so many steps later (negative: earlier); 1 for the turn itself."""
    return float(numpy.exp(-abs(distance) / _FADING)) * (_LATER if distance > 0 else 1.0)


class _Neighbour(NamedTuple):
    """For each passage the index of one at some distance, or how many there are: none."""

    distance: int
    index: Any
    weight: float


def _neighbours(passages: Sequence[Passage]) -> list[_Neighbour]:
    """Those up to REACH steps away; no step leads over a gap in the pool."""
    places = {passage.event_id: place for place, passage in enumerate(passages)}
    none = len(passages)
    back = numpy.full(none + 1, none)
    forth = numpy.full(none + 1, none)
    for place, passage in enumerate(passages):
        before = places.get(passage.previous_id or "")
        if before is not None and before != place:
            back[place], forth[before] = before, place
    found = []
    for step, sign in ((back, -1), (forth, 1)):
        index = numpy.arange(none + 1)
        for distance in range(1, REACH + 1):
            index = step[index]
            at = sign * distance
            found.append(_Neighbour(at, index[:none], neighbour_weight(at)))
    return found


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


def _counts(words: Sequence[str], passages: Sequence[Passage]) -> Any:
    """How often each passage holds each stem of the words: a row a passage, a column a stem.

    Whose it is counts as its words: `cancel_booking` says what the call is about.
    """
    columns = {term: place for place, term in enumerate(dict.fromkeys(map(stem, words)))}
    counts = numpy.zeros((len(passages), len(columns)))
    may_hold = beginnings(columns)
    known: dict[str, int | None] = {}
    for place, passage in enumerate(passages):
        text = f"{passage.agent_id or ''} {passage.text}".lower()
        if not any(beginning in text for beginning in may_hold):
            continue
        for word in words_in(text):
            if word not in known:
                known[word] = columns.get(stem_in(word))
            column = known[word]
            if column is not None:
                counts[place, column] += 1
    return counts


def _lengths(passages: Sequence[Passage]) -> Column:
    """Words of each passage."""
    return numpy.array([float(len(passage.text.split())) for passage in passages])


def _cosines(passages: Sequence[Passage]) -> Column | None:
    """Cosines, 0 where there is none, as of things that have nothing in common; None: nobody's."""
    if all(passage.cosine is None for passage in passages):
        return None
    return numpy.array([passage.cosine or 0.0 for passage in passages])


def _near_mean(cosine: Column, neighbours: Iterable[_Neighbour]) -> Column:
    """Weighted mean of the neighbours' cosines; of who has none, its own."""
    total, weight = numpy.zeros(len(cosine)), numpy.zeros(len(cosine))
    for neighbour in neighbours:
        total += neighbour.weight * _shifted(cosine, neighbour)
        weight += neighbour.weight * (neighbour.index < len(cosine))
    return numpy.where(weight > 0, total / numpy.maximum(weight, 1e-9), cosine)


def _named(agents: frozenset[str], passages: Sequence[Passage]) -> Column:
    """1 for what an agent that the question names says, else 0."""
    if not agents:
        return numpy.zeros(len(passages))
    known = {agent: agent_name(agent) in agents for p in passages if (agent := p.agent_id)}
    return numpy.array([float(known.get(p.agent_id or "", False)) for p in passages])


def _timely(spans: Sequence[TimeSpan], passages: Sequence[Passage]) -> Column:
    """1 within a stretch of time that is asked for, falling to either side; a long one tells less.

    What happened is told afterwards: two weeks later it is 1/e; a plan is told a week before.
    """
    nearness = numpy.zeros(len(passages))
    at = numpy.array([passage.occurred_at_ms for passage in passages], dtype=numpy.float64)
    for span in spans:
        late = numpy.maximum(0.0, at - span.end_ms + 1) / _TOLD_WITHIN_MS
        early = numpy.maximum(0.0, span.first_ms - at) / _EARLY_MS
        exactness = _EXACTNESS[0] if span.end_ms - span.first_ms <= _LONG_MS else _EXACTNESS[1]
        nearness = numpy.maximum(nearness, exactness * numpy.exp(-late - early))
    return nearness


def _form(
    passages: Sequence[Passage],
    lengths: Column,
    neighbours: Iterable[_Neighbour],
    weights: RelevanceWeights,
) -> Column:
    """What the form of a turn adds: that it asks, that it answers, and how much it says."""
    asks = numpy.array([float(p.text.rstrip().endswith("?")) for p in passages])
    length = numpy.log1p(lengths)
    before = next(one for one in neighbours if one.distance == -1)
    return numpy.asarray(
        weights.asks * asks + weights.answers * _shifted(asks, before) + weights.length * length
    )
