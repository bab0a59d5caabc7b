"""Whoever follows a graph by its change feed: a mirror that reads again what each change names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipelines.graph.port import Graph
from pipelines.graph.rows import Change, End, FoundEdge
from projections.errors import ChangesLost
from projections.operations import Key
from projections.schema import EDGES, NODES, EdgeRow
from tests.graph_dump import dump


class Follower:
    """Holds a graph as `dump` shows it, and keeps up with it.

    Attributes:
        held: what it holds.
        place: of the feed, behind the last changes that it has read.
        loads: how often it has read all.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.loads = 0
        self.load()

    def load(self) -> None:
        """Read everything."""
        self.place = self.graph.feed()
        self.held = dump(self.graph)
        self.loads += 1

    def follow(self, most: int) -> None:
        """Read what has changed since, so many changes at a time."""
        while True:
            try:
                told = self.graph.changes(self.place, most)
            except ChangesLost:
                self.load()
                continue
            for change in told.changes:
                self._take(change)
            self.place = told.place
            if not told.more:
                return

    def _take(self, change: Change) -> None:
        if change.everything:
            self.held = dump(self.graph)
        for label in change.nodes.keys() | change.removed.keys():
            self._read_nodes(label, (*change.nodes.get(label, ()), *change.removed.get(label, ())))
        for label, keys in change.removed.items():
            self._read_around(label, keys)
        for type_, keys in change.cleared.items():
            for target in targets(EDGES[type_]):
                self._read_edges(EDGES[type_], keys, End.SOURCE, target)
        for type_, pairs in change.edges.items():
            self._read_pairs(EDGES[type_], pairs)

    def _read_nodes(self, label: str, keys: Iterable[Key]) -> None:
        names = [p.name for p in NODES[label].stored()]
        found = self.graph.nodes(label, keys, names)
        for key in keys:
            self.held.nodes.pop((label, key), None)
        for node in found.values():
            self.held.nodes[label, node.key] = node.visible, plain(node.values)

    def _read_pairs(self, row: EdgeRow, pairs: Iterable[tuple[Key, Key, str]]) -> None:
        names = [p.name for p in row.properties]
        for target in targets(row):
            ends = [(source, end) for source, end, label in pairs if label == target]
            found = self.graph.between(row.type, ends, names, label=target)
            for source, end in ends:
                self.held.edges.pop((row.type, source, end, target), None)
            self._hold(row.type, _each(found.values()))

    def _read_around(self, label: str, keys: Iterable[Key]) -> None:
        for row in EDGES.values():
            for target in targets(row):
                if row.source == label:
                    self._read_edges(row, keys, End.SOURCE, target)
                if target == label:
                    self._read_edges(row, keys, End.TARGET, target)

    def _read_edges(self, row: EdgeRow, keys: Iterable[Key], by: End, target: str) -> None:
        names = [p.name for p in row.properties]
        found = self.graph.edges(row.type, keys, names, by=by, label=target)
        wanted, at = set(keys), 1 if by is End.SOURCE else 2
        for place in list(self.held.edges):
            if place[0] == row.type and place[at] in wanted and place[3] == target:
                del self.held.edges[place]
        self._hold(row.type, _each(found.values()))

    def _hold(self, type_: str, edges: Iterable[FoundEdge]) -> None:
        for edge in edges:
            place = type_, edge.source, edge.target, edge.label
            self.held.edges.setdefault(place, []).append(plain(edge.values))


def targets(row: EdgeRow) -> list[str]:
    """Labels that edges of a type may end at."""
    return [label for label in (row.target, row.other_target) if label]


def plain(values: Any) -> dict[str, Any]:
    """Without what is None."""
    return {name: value for name, value in values.items() if value is not None}


def _each(groups: Iterable[list[FoundEdge]]) -> Iterable[FoundEdge]:
    return (edge for group in groups for edge in group)
