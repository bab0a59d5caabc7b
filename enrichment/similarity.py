"""Which events are alike: SIMILAR_TO from candidates, capped.

One edge a pair, smaller event id first. Approximate: which candidates are found depends on the
nearest-neighbour search, and on who came first. What always holds is checked by `verify`: the score
is the cosine of the two embeddings, above the threshold, and no event has more edges than the cap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from enrichment.vectors import cosines, levels
from projections.operations import (
    MergeEdge,
    Operation,
    RemoveEdge,
)
from projections.schema import SIMILAR_TO

THRESHOLD = 0.85
"""Plain cosine above which two events are alike (S0)."""
CAP = SIMILAR_TO.cap_per_node or 10
NEIGHBOURS = 2 * CAP + 4
"""Neighbours looked at for each event: some are taken by better ones."""

EventKey = tuple[str, str]


class Pair(NamedTuple):
    """Two events of one tenant, smaller event id first, and the plain cosine of their texts."""

    tenant: str
    first: str
    second: str
    cosine: float


def pair(tenant: str, event_id: str, other_id: str, plain: float) -> Pair:
    """The pair in its one order."""
    first, second = sorted((event_id, other_id))
    return Pair(tenant, first, second, min(1.0, plain))


def pairs_within(vectors: Mapping[EventKey, bytes]) -> list[Pair]:
    """Pairs of a block above the threshold, by their exact cosine.

    Of each event at least the `NEIGHBOURS` best: in a block of texts that are all alike, the
    others cannot get an edge, and there are as many of them as the square of the block.

    Args:
        vectors: as `vectors.unpack` gives them, by (tenant, event id).
    """
    pairs = []
    tenants: dict[str, list[str]] = {}
    for tenant, event_id in sorted(vectors):
        tenants.setdefault(tenant, []).append(event_id)
    for tenant, ids in tenants.items():
        if len(ids) < 2:
            continue
        rows = levels([vectors[tenant, each_id] for each_id in ids])
        products = cosines(rows, rows)
        np.fill_diagonal(products, -1.0)
        near = products > THRESHOLD
        if len(ids) > NEIGHBOURS:
            floor = np.partition(products, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS]
            near &= (products >= floor[:, None]) | (products >= floor[None, :])
        for i, j in zip(*np.nonzero(np.triu(near, k=1)), strict=True):
            pairs.append(pair(tenant, ids[int(i)], ids[int(j)], float(products[i, j])))
    return pairs


PairKey = tuple[str, str, str]
"""Tenant and both ends, the smaller first."""


class _CappedEdges:
    """The edges of events, other end → score, and which of them gives way when there is no room."""

    def __init__(self, edges: dict[EventKey, dict[str, float]]) -> None:
        self._edges = edges
        self._weakest: dict[EventKey, tuple[str, float]] = {}

    def has(self, key: EventKey, other: str) -> bool:
        return other in self._edges.get(key, {})

    def weakest_when_full(self, key: EventKey) -> tuple[str, float] | None:
        held = self._edges.setdefault(key, {})
        if len(held) < CAP:
            return None
        if key not in self._weakest:  # asked again and again for texts that are all alike
            self._weakest[key] = min(held.items(), key=lambda edge: (edge[1], edge[0]))
        return self._weakest[key]

    def add(self, key: EventKey, other: str, score: float) -> None:
        self._edges.setdefault(key, {})[other] = score
        self._weakest.pop(key, None)

    def drop(self, key: EventKey, other: str) -> None:
        self._edges.get(key, {}).pop(other, None)
        self._weakest.pop(key, None)


def similar_edges(
    candidates: Iterable[Pair], existing: Mapping[EventKey, Mapping[str, float]]
) -> list[Operation]:
    """Edges to make, and those to drop because better ones took their place.

    The best pairs come first. An event that has its fill gives up its weakest edge for a better
    one, if the other end has room or gains too.

    Args:
        candidates: pairs, above the threshold or not, some perhaps twice.
        existing: the edges that each event of a candidate has, other end → score.
    """
    edges = _CappedEdges({key: dict(others) for key, others in existing.items()})
    best = {p[:3]: p for p in candidates if p.cosine > THRESHOLD and p[1] != p[2]}
    merged: dict[PairKey, float] = {}
    dropped: set[PairKey] = set()
    for tenant, first, second, score in sorted(best.values(), key=lambda p: (-p.cosine, p)):
        ends = ((tenant, first), second), ((tenant, second), first)
        if all(edges.has(key, other) for key, other in ends):
            continue
        weakest = [None if edges.has(*end) else edges.weakest_when_full(end[0]) for end in ends]
        if any(weak is not None and weak[1] >= score for weak in weakest):
            continue
        for (key, _), weak in zip(ends, weakest, strict=True):
            if weak is not None and edges.has(key, weak[0]):
                edges.drop(key, weak[0])
                edges.drop((tenant, weak[0]), key[1])
                pair_key = (tenant, min(key[1], weak[0]), max(key[1], weak[0]))
                merged.pop(pair_key, None)
                dropped.add(pair_key)
        for key, other in ends:
            edges.add(key, other, score)
        merged[tenant, first, second] = score
        dropped.discard((tenant, first, second))
    return [
        *(
            RemoveEdge(type=SIMILAR_TO.type, source=(t, a), target=(t, b))
            for t, a, b in sorted(dropped)
        ),
        *(
            MergeEdge(
                type=SIMILAR_TO.type,
                source=(t, a),
                target=(t, b),
                values={"score": round(score, 6)},
            )
            for (t, a, b), score in sorted(merged.items())
        ),
    ]
