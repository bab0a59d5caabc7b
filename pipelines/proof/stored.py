"""Sums over everything that a store holds of each node and edge, whichever store it is.

As `sums`, by label and type; but here vectors, positions and bookkeeping count, too, since it is
about what one store must have taken over from another.
"""

from __future__ import annotations

from array import array
from collections import Counter
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy

from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.proof.sums import (
    MODULUS,
    digested,
    edge_number_of,
    element_digest,
    node_number,
)
from projections.schema import EDGES, NODES


class StoredSums:
    """Adds up nodes and edges.

    Args:
        stages: of which the digests are added up, too.

    Attributes:
        sums: of all that is stored, by label and type.
        digests: of what each stage wrote, by its name.
    """

    def __init__(self, stages: tuple[str, ...] = ()) -> None:
        self.sums: Counter[str] = Counter()
        self.digests: Counter[str] = Counter(dict.fromkeys(stages, 0))
        self._stages = stages

    def add(self, name: str, item: FoundNode | FoundEdge) -> None:
        """Take in a node or an edge; what it has not may be missing or None."""
        held, number = item.values, 0
        if isinstance(item, FoundNode):
            node, vector = NODES[name], NODES[name].vector
            values = [held.get(one) for one in _names(name)]
            if vector is not None:
                values.append(_numbers(held.get(vector)))
            number = element_digest(name, *item.key, item.visible, *values)
            for stage in _written(name, self._stages) if item.visible else ():
                self.digests[stage] += node_number(node, stage, item.key, held)
        else:
            edge = EDGES[name]
            values = [held.get(one) for one in _names(name)]
            number = element_digest(name, item.source, item.target, item.label, *values)
            for stage in _written(name, self._stages):
                self.digests[stage] += edge_number_of(
                    edge, stage, item.source, item.target, values=held
                )
        self.sums[name] = (self.sums[name] + number) % MODULUS


@cache
def _names(name: str) -> tuple[str, ...]:
    """All properties of a label or type but for the key and the vector of an index."""
    if name in EDGES:
        return tuple(p.name for p in EDGES[name].properties)
    row = NODES[name]
    return tuple(p.name for p in row.stored() if p.name not in (*row.key, row.vector))


@cache
def _written(name: str, stages: tuple[str, ...]) -> tuple[str, ...]:
    """The stages whose digests cover something of a label or type."""
    if name in EDGES:
        return tuple(stage for stage in stages if EDGES[name].written_by(stage))
    return tuple(stage for stage in stages if digested(NODES[name], stage))


def _numbers(vector: Any) -> Any:
    """A vector by its bytes, an array or a tuple alike; anything else as it is.

    In a dictionary, which no property is.
    """
    if isinstance(vector, numpy.ndarray):
        data = vector.astype("<f8").tobytes()
    elif isinstance(vector, tuple) and type(vector[0]) is float:  # a list has one type in Neo4j
        data = array("d", vector).tobytes()
    else:
        return vector
    return {"": blake2b(data, digest_size=32).hexdigest()}
