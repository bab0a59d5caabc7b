"""What time does to scores: the decay of events, and the boost of facts that are asked for.

Nothing ticks. A count that decays is stored with the moment it counts for, and brought to another
moment when it is read or added to; so no job has to visit the edges, and forgetting runs apart
from it (S2).
"""

from __future__ import annotations

from math import exp, log
from typing import Final, NamedTuple

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

HIGHEST_IMPORTANCE: Final = 10
STABILITY_H: Final = 168
"""Hours after which the recency of an event that nobody asked for is 1/e."""
STABILITY_GAIN_H: Final = 24
"""Hours that the first accesses add: this much for each unit of ln(1 + access count)."""
NEUTRAL_RELEVANCE: Final = 0.5
"""Relevance where there is no query."""

LINK_GAIN: Final = 0.2
"""What a retrieval adds to a confidence: this share for each unit of ln(1 + retrieval count)."""
LINK_DECAY_PER_DAY: Final = 0.01
"""λ of retrieval counts (S2): half of a count is gone after 69 days."""


class DecayWeights(NamedTuple):
    """Weights of the parts of the decay score, each at least 0 and one of the first three above.

    Attributes:
        affinity: counts only where an affinity is given.
    """

    recency: float = 1.0
    importance: float = 1.0
    relevance: float = 1.0
    affinity: float = 0.5

    @property
    def total(self) -> float:
        """Of the parts that always count."""
        return self.recency + self.importance + self.relevance


DECAY_WEIGHTS: Final = DecayWeights()


def stability_h(access_count: float) -> float:
    """Hours after which recency is 1/e; grows with every access, ever more slowly.

    Args:
        access_count: at least 0.
    """
    return STABILITY_H + STABILITY_GAIN_H * log(1 + access_count)


def recency(
    now_ms: int, occurred_at_ms: int, last_access_ms: int | None = None, access_count: float = 0
) -> float:
    """How fresh an event is, 0 to 1: e to the minus of its age by its stability.

    The age counts from the later of occurrence and last access. An access after `now_ms` has not
    happened yet when somebody looks as of an earlier time; what occurs after it is as fresh as can
    be.
    """
    since_ms = occurred_at_ms
    if last_access_ms is not None and occurred_at_ms < last_access_ms <= now_ms:
        since_ms = last_access_ms
    age_h = max(0, now_ms - since_ms) / HOUR_MS
    return exp(-age_h / stability_h(access_count))


def decay_score(
    now_ms: int,
    occurred_at_ms: int,
    last_access_ms: int | None = None,
    access_count: float = 0,
    importance: float = HIGHEST_IMPORTANCE / 2,
    relevance: float = NEUTRAL_RELEVANCE,
    affinity: float | None = None,
    weights: DecayWeights = DECAY_WEIGHTS,
) -> float:
    """How much an event still matters, 0 to 1: the weighted mean of what speaks for it.

    Args:
        now_ms: the clock.
        occurred_at_ms: when it occurred.
        last_access_ms: when a read returned it last; None: never.
        access_count: how many reads returned it, at least 0.
        importance: as shown, boost included, 0 to 10.
        relevance: to the query, 0 to 1.
        affinity: to the user, 0 to 1; None without a user, and then it has no weight either.
        weights: of the parts.
    """
    total = weights.total
    score = (
        weights.recency * recency(now_ms, occurred_at_ms, last_access_ms, access_count)
        + weights.importance * importance / HIGHEST_IMPORTANCE
        + weights.relevance * relevance
    )
    if affinity is not None:
        total += weights.affinity
        score += weights.affinity * affinity
    return min(1.0, score / total)


def effective_confidence(confidence: float, retrieval_count: float) -> float:
    """The confidence of a fact, raised by how often it was retrieved, at most 1.

    Unchanged when it never was.

    Args:
        confidence: 0 to 1.
        retrieval_count: at least 0, as it is now: see `retrieval_count`.
    """
    return min(1.0, confidence * (1.0 + LINK_GAIN * log(1.0 + retrieval_count)))


class Retrievals(NamedTuple):
    """A decaying count, as it is stored: what it was worth at one moment.

    Both numbers are of the latest retrieval, so `at_ms` is `last_retrieved_at`. Two of them added
    count for the later moment, whichever came first: the sum of e^(-λ·age) over all retrievals does
    not depend on the order in which they are added, up to rounding (10⁻¹⁵ of it an addition).

    Attributes:
        weight: retrievals, each by its age at `at_ms`; above 0.
        at_ms: of the latest one.
    """

    weight: float
    at_ms: int


def retrieval_count(stored: Retrievals | None, now_ms: int) -> float:
    """What a stored count is worth now; 0 when there is none.

    A moment before the latest retrieval sees the count as of that retrieval: what it was before
    is not kept.
    """
    if stored is None:
        return 0.0
    age_days = max(0, now_ms - stored.at_ms) / DAY_MS
    return stored.weight * exp(-LINK_DECAY_PER_DAY * age_days)


def retrieved(stored: Retrievals | None, added: Retrievals) -> Retrievals:
    """A stored count and what is added to it, as of the later of the two.

    A single retrieval is `Retrievals(1.0, at_ms)`. With the same numbers as Cypher expressions it
    is one SET, so that a block adds to an edge without reading it.
    """
    at_ms = added.at_ms if stored is None else max(stored.at_ms, added.at_ms)
    counts = [retrieval_count(retrievals, at_ms) for retrievals in (stored, added)]
    return Retrievals(sum(counts), at_ms)
