"""Events that may be ranked, as columns tell them: an array a column."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]


class Standings(NamedTuple):
    """Events that may be ranked, an array a column; a place each.

    Attributes:
        previous: place of the event before it in its session; -1: it is not among them.
        counts: how often it holds each stem that was asked for, a column a stem.
        stems: how many different ones it holds.
        cosines: with the question's vector; NaN: not known.
    """

    ids: list[str]
    authors: list[str]
    occurred_ms: Array
    importance: Array
    accesses: Array
    accessed_ms: Array
    words: Array
    asks: Array
    previous: Array
    counts: Array
    stems: Array
    cosines: Array
