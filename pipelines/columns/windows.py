"""An event with those around it in its session: which they are, and how much each counts.

A turn of a conversation is short, and half of what it is about stands in the turns around it. So
its words, and its vector, are summed with those of its neighbours in FOLLOWS order, weighted down
by distance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy

from pipelines.columns.tables import Array

NEIGHBOUR_STEPS: Final = 3
"""Events to either side that count as context: an answer stands beside its question."""
_FADING: Final = 2.0
"""Steps over which the weight of a neighbour falls to 1/e."""
_LATER: Final = 0.8
"""Weight of what comes after against what comes before: answers follow questions."""


class Neighbour(NamedTuple):
    """For each event the place of one at some distance, or how many events there are: none.

    Attributes:
        distance: in steps; negative: it comes before.
        places: an event each.
        weight: 0 to 1.
    """

    distance: int
    places: Array
    weight: float


def neighbour_weight(distance: int) -> float:
    """Weight of the event so many steps later (negative: earlier); 1 for the event itself."""
    return float(numpy.exp(-abs(distance) / _FADING)) * (_LATER if distance > 0 else 1.0)


def neighbours(previous: Array) -> list[Neighbour]:
    """Those up to NEIGHBOUR_STEPS away; no step leads over one that is not among the events.

    Args:
        previous: of each event the place of the one before it; negative: it is not among them.
    """
    none = len(previous)
    places = numpy.arange(none)
    follows = (previous >= 0) & (previous != places)
    back = numpy.full(none + 1, none)
    forth = numpy.full(none + 1, none)
    back[:none][follows] = previous[follows]
    forth[previous[follows]] = places[follows]
    met = []
    for step, sign in ((back, -1), (forth, 1)):
        at = numpy.arange(none + 1)
        for distance in range(1, NEIGHBOUR_STEPS + 1):
            at = step[at]
            away = sign * distance
            met.append(Neighbour(away, at[:none], neighbour_weight(away)))
    return met


def of_neighbour(column: Any, neighbour: Neighbour) -> Any:
    """The values of each event's neighbour; 0 where there is none."""
    return _padded(column)[neighbour.places]


def windowed(column: Any, around: Iterable[Neighbour]) -> Any:
    """The values of each event and of its neighbours, summed by weight."""
    total = column.copy()
    padded = _padded(column)
    for neighbour in around:
        total += padded[neighbour.places] * column.dtype.type(neighbour.weight)
    return total


def _padded(column: Any) -> Any:
    """The values, and 0: that of a neighbour that is not there."""
    return numpy.concatenate([column, numpy.zeros_like(column[:1])])
