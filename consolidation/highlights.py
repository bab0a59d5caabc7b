"""What is worth telling of a stretch of events, and the choice of what is told.

A candidate knows how much it is worth and what it speaks of; of two that speak of the same things
the second is worth less. What may be told of an episode, and in which words, is in `stories`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from consolidation.summary_payloads import Highlight
from enrichment.phrases import MIN_WORD_CHARACTERS, PLAIN, WORD

CHATTER: Final = 2
"""Weight up to which nothing is told unless there is nothing else."""
_ROUTINE = 3
_ENOUGH = 3
"""When so much is told, nothing of weight _ROUTINE is added."""
_REPEATED = 3
"""Taken off the weight of what speaks of nothing new; a share of it off others."""


class Candidate(NamedTuple):
    """What may become a highlight.

    Attributes:
        weight: how much it is worth telling.
        topics: what it speaks of; what others have spoken of already is worth less.
    """

    highlight: Highlight
    weight: int
    topics: frozenset[str]


def by_time(found: Iterable[Highlight]) -> list[Highlight]:
    """Highlights in the order in which a story is told."""
    return sorted(found, key=lambda one: (one.occurred_at_ms, one.event_ids))


def best(candidates: Sequence[Candidate], count: int) -> tuple[Highlight, ...]:
    """The `count` that are most worth telling together, best first."""
    told: set[str] = set()
    left = sorted(
        candidates,
        key=lambda one: (-one.weight, -len(one.topics), one.highlight.occurred_at_ms),
    )
    chosen: list[Highlight] = []
    while left and len(chosen) < count:
        place = max(range(len(left)), key=lambda n: (_worth(left[n], told), -n))
        one = left.pop(place)
        if (one.weight <= CHATTER and chosen) or (
            one.weight <= _ROUTINE and len(chosen) >= _ENOUGH
        ):
            continue
        chosen.append(one.highlight)
        told |= one.topics
    return tuple(chosen)


def _worth(one: Candidate, told: set[str]) -> int:
    """Times 100: the weight, less by how much of its topics was told."""
    repeated = len(one.topics & told) * 100 // max(len(one.topics), 1)
    return 100 * one.weight - _REPEATED * repeated


def content_words(text: str) -> frozenset[str]:
    """The words of a text that are on no list of plain words, in lower case."""
    words = (match[0].lower() for match in WORD.finditer(text))
    return frozenset(word for word in words if len(word) >= MIN_WORD_CHARACTERS) - PLAIN


def listed(names: Sequence[str]) -> str:
    """Names as they are told: `a, b and c`."""
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])
