"""What two graphs of one ledger hold differently: after other rules, other models, or a fault.

Nothing is judged: neither is right. Both are streamed in the order of keys, so that memory is
bounded; a graph that is written meanwhile may show what is not folded in the other yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from pipelines.graph.port import Graph
from pipelines.proof.compare import Difference
from pipelines.proof.proof import streamed_edges, streamed_nodes
from pipelines.proof.report import Scope
from projections.schema import EDGES

EXAMPLES_OF_EACH: Final = 3
"""Told of each label or type and each way to differ."""
_WAYS: Final = {"missing": "only_first", "extra": "only_second", "different": "different"}


class TypeDifference(NamedTuple):
    """How far a label or an edge type differs.

    Attributes:
        type: label or edge type.
        first: how many the first graph has: nodes, or edges.
        only_first: nodes, or pairs of nodes joined by such edges, that it alone has.
        only_second: that the other alone has.
        different: that both have with other values.
        properties: how many times each property differs among these.
    """

    type: str
    first: int
    only_first: int
    only_second: int
    different: int
    properties: dict[str, int]


class TargetsDifference(NamedTuple):
    """What two graphs hold differently.

    Attributes:
        types: labels and edge types that differ, in the order of the schema.
        compared: nodes and edges of the first graph.
        behind: entries that one of them has folded and the other has not, by stage.
        examples: differences, the first few of each sort; `expected` is the first graph's value.
    """

    types: tuple[TypeDifference, ...]
    compared: int
    behind: dict[str, int]
    examples: tuple[Difference, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "same": not self.types,
            "compared": self.compared,
            "behind": self.behind,
            "types": [one._asdict() for one in self.types],
            "examples": [one.as_dict() for one in self.examples],
        }


def difference_of(first: Graph, second: Graph, scope: Scope) -> TargetsDifference:
    """Compare all that two graphs hold, checkpoints apart.

    Args:
        first: of a target.
        second: of another target of the same ledger.
        scope: of which the tenant alone counts.

    Raises:
        GraphUnavailable: one of them is away.
    """
    counts: Counter[str] = Counter()
    ways: dict[str, Counter[str]] = {}
    properties: dict[str, Counter[str]] = {}
    examples: list[Difference] = []
    for difference in _differences(first, second, scope, counts):
        way = _WAYS[difference.kind]
        told = ways.setdefault(difference.type, Counter())
        told[way] += 1
        properties.setdefault(difference.type, Counter()).update(list(difference.fields))
        if told[way] <= EXAMPLES_OF_EACH:
            examples.append(difference)
    return TargetsDifference(
        types=tuple(
            TypeDifference(
                type=name,
                first=counts[name],
                properties=dict(properties[name].most_common()),
                **{way: told[way] for way in _WAYS.values()},
            )
            for name, told in ways.items()
        ),
        compared=counts.total(),
        behind=_behind(first, second),
        examples=tuple(examples),
    )


def _differences(
    first: Graph, second: Graph, scope: Scope, counts: Counter[str]
) -> Iterator[Difference]:
    edges = (streamed_edges(row, first, second, scope, counts=counts) for row in EDGES.values())
    nodes = (change.difference for change in streamed_nodes(first, second, scope, counts))
    return chain(nodes, (change.difference for change in chain.from_iterable(edges)))


def _behind(first: Graph, second: Graph) -> dict[str, int]:
    """How many entries are folded in one of them alone, by stage."""
    left, right = _folded(first), _folded(second)
    apart: Counter[str] = Counter()
    for stage, partition in sorted(left | right):
        place = stage, partition
        apart[stage] += abs(left.get(place, 0) - right.get(place, 0))
    return dict(+apart)


def _folded(graph: Graph) -> dict[tuple[str, int], int]:
    return {(at.stage, at.partition): at.seq for at in graph.checkpoints()}
