"""Maximal marginal relevance: of events that say the same, the later ones step back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy

from api.retrieval.candidate_text import HalfVector
from api.retrieval.ranking import Ranked

MAX_COMPARED: Final = 200
"""Nodes at the head of a ranking that are put in another order."""


def diversified(
    ranked: Sequence[Ranked], vectors: Mapping[str, HalfVector], diversity: float
) -> list[Ranked]:
    """The ranking with each next node chosen by rank and by how little it is like those before.

    value = (1 - diversity) · rank + diversity · (1 - the largest cosine to a node before it),
    which becomes the rank; it never rises from one node to the next.

    Args:
        ranked: the best first; its first MAX_COMPARED are reordered.
        vectors: of unit length, by node id; what has none is like nothing.
        diversity: 0 (as it was) to 1 (likeness alone).
    """
    head, rest = list(ranked[:MAX_COMPARED]), list(ranked[MAX_COMPARED:])
    if diversity <= 0 or not head:
        return list(ranked)
    size = max((len(one) for one in vectors.values()), default=1)
    matrix = numpy.zeros((len(head), size))
    for place, one in enumerate(head):
        if one.node_id in vectors:
            matrix[place] = vectors[one.node_id]
    ranks = numpy.array([one.rank for one in head])
    likeness = numpy.zeros(len(head))
    left = list(range(len(head)))
    chosen = []
    while left:
        values = (1 - diversity) * ranks[left] + diversity * (1 - likeness[left])
        place = left.pop(int(values.argmax()))
        chosen.append(head[place]._replace(rank=float(values.max())))
        likeness = numpy.maximum(likeness, matrix @ matrix[place])
    share = 1 - diversity
    return [*chosen, *(one._replace(rank=one.rank * share) for one in rest)]
