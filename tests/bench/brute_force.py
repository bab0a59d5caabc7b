"""Nearest neighbours by comparing everything with everything: what an index is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Pair = tuple[str, str, str]
"""Tenant and two event ids, the smaller first."""

_AT_ONCE = 50
"""Queries compared at once: 100,000 cosines each."""


def best_cosines(vectors: Vectors, queries: Sequence[int], count: int) -> Vectors:
    """The cosines of the nearest others of each query, best first: one row of `count` each."""
    rows = []
    for first in range(0, len(queries), _AT_ONCE):
        part = list(queries[first : first + _AT_ONCE])
        cosines = vectors[part] @ vectors.T
        cosines[range(len(part)), part] = -2.0  # not itself
        rows.append(-np.sort(np.partition(-cosines, count - 1, axis=1)[:, :count], axis=1))
    return np.concatenate(rows)


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


def capped(pairs: Mapping[Pair, float], cap: int) -> dict[Pair, float]:
    """Best pairs first, each if both its ends have room for one of `cap` edges."""
    used: dict[tuple[str, str], int] = {}
    kept: dict[Pair, float] = {}
    for pair, cosine in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
        tenant, one, other = pair
        ends = ((tenant, one), (tenant, other))
        if all(used.get(end, 0) < cap for end in ends):
            kept[pair] = cosine
            for end in ends:
                used[end] = used.get(end, 0) + 1
    return kept
