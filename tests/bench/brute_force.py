"""Which events are alike, by comparing everything with everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Pair = tuple[str, str, str]
"""Tenant and two event ids, the smaller first."""

_AT_ONCE = 50
"""Queries compared at once: 100,000 cosines each."""


def pairs_above(vectors: Mapping[tuple[str, str], Any], threshold: float) -> dict[Pair, float]:
    """All pairs of a tenant's events above a plain cosine.

    Args:
        vectors: lists of numbers, of unit length, by (tenant, event id).
        threshold: plain cosine.
    """
    tenants: dict[str, list[str]] = {}
    for tenant, event_id in sorted(vectors):
        tenants.setdefault(tenant, []).append(event_id)
    found: dict[Pair, float] = {}
    for tenant, ids in tenants.items():
        matrix = np.array([vectors[tenant, one] for one in ids], dtype=np.float32)
        for first in range(0, len(ids), _AT_ONCE):
            cosines = matrix[first : first + _AT_ONCE] @ matrix.T
            for i, j in zip(*np.nonzero(cosines > threshold), strict=True):
                if first + i < j:
                    found[tenant, ids[first + int(i)], ids[int(j)]] = float(cosines[i, j])
    return found


Place = tuple[int, str]
"""When an event occurred, and its id."""


def nearest_before(
    pairs: Mapping[Pair, float],
    events: Mapping[tuple[str, str], tuple[int, str | None]],
    cap: int,
) -> dict[Pair, float]:
    """Of each event the `cap` nearest before it, of its user or nobody; of equals the latest.

    Args:
        pairs: with their cosines.
        events: by (tenant, event id) when they occurred, and whose they are.
        cap: at most so many of each.
    """
    before: dict[tuple[str, str], list[tuple[float, Place]]] = {}
    for (tenant, one, other), cosine in pairs.items():
        places = ((events[tenant, end][0], end) for end in (one, other))
        early, late = sorted(places)
        if events[tenant, early[1]][1] in (None, events[tenant, late[1]][1]):
            before.setdefault((tenant, late[1]), []).append((round(cosine, 6), early))
    return {
        (tenant, min(late, early), max(late, early)): cosine
        for (tenant, late), some in before.items()
        for cosine, (_, early) in sorted(some, reverse=True)[:cap]
    }
