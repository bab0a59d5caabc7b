"""What two graphs of one ledger hold differently: after other rules, other models, or a fault.

Nothing is judged: neither is right. Both are streamed in the order of keys, so that memory is
bounded; a graph that is written meanwhile may show what is not folded in the other yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from pipelines.graph.port import Graph
from pipelines.proof.compare import Difference
from pipelines.proof.proof import streamed_edges, streamed_nodes
from pipelines.proof.report import Scope
from projections.schema import DEAD_LETTER, EDGES

EXAMPLES_OF_EACH: Final = 3
"""Told of each label or type and each way to differ."""
_WAYS: Final = {"missing": "only_first", "extra": "only_second", "different": "different"}


class TypeDifference(NamedTuple):
    """How far a label or an edge type differs.

    Attributes:
        type: label or edge type.
        first: how many the first graph has: nodes, or edges; None: it was not counted.
        only_first: nodes, or pairs of nodes joined by such edges, that it alone has.
        only_second: that the other alone has.
        different: that both have with other values.
        properties: how many times each property differs among these.
    """

    type: str
    first: int | None
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
        tenants: what differs of each tenant, without values; dead letters are of none.
    """

    types: tuple[TypeDifference, ...]
    compared: int
    behind: dict[str, int]
    examples: tuple[Difference, ...]
    tenants: dict[str, dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "same": not self.types,
            "compared": self.compared,
            "behind": self.behind,
            "types": [kind._asdict() for kind in self.types],
            "examples": [example.as_dict() for example in self.examples],
        }


class _Tally:
    """Differences counted by type, by the way they differ and by property; a few are kept."""

    def __init__(self) -> None:
        self.examples: list[Difference] = []
        self._ways: dict[str, Counter[str]] = {}
        self._properties: dict[str, Counter[str]] = {}

    def add(self, difference: Difference) -> None:
        way = _WAYS[difference.kind]
        counted = self._ways.setdefault(difference.type, Counter())
        counted[way] += 1
        names = list(difference.fields)
        self._properties.setdefault(difference.type, Counter()).update(names)
        if counted[way] <= EXAMPLES_OF_EACH:
            self.examples.append(difference)

    def types(self, numbers: Mapping[str, int] | None = None) -> tuple[TypeDifference, ...]:
        """What was counted; `numbers`: how many the first graph has of each type."""
        return tuple(
            TypeDifference(
                type=name,
                first=None if numbers is None else numbers[name],
                properties=dict(self._properties[name].most_common()),
                **{way: counted[way] for way in _WAYS.values()},
            )
            for name, counted in self._ways.items()
        )

    def without_values(self) -> dict[str, Any]:
        """For pages that others look at: what differs, and not how."""
        return {
            "types": [kind._asdict() for kind in self.types()],
            "examples": [
                {**example.as_dict(), "fields": list(example.fields)} for example in self.examples
            ],
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
    whole = _Tally()
    tenants: dict[str, _Tally] = {}
    for difference in _differences(first, second, scope, counts):
        whole.add(difference)
        if difference.type != DEAD_LETTER.label:  # all others are stored by tenant
            tenants.setdefault(str(difference.key[0]), _Tally()).add(difference)
    return TargetsDifference(
        types=whole.types(counts),
        compared=counts.total(),
        behind=_behind(first, second),
        examples=tuple(whole.examples),
        tenants={name: tally.without_values() for name, tally in tenants.items()},
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
