"""Lineage: a bounded walk from one event along one edge type, breadth first.

One round trip a level finds the nodes, one more the edges between them; the best path to each
node is then a matter of memory. All of it has one time limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from api.retrieval.edge_quality import edge_quality
from pipelines.graph.reader import GraphEdge, GraphNode
from pipelines.graph.reads.as_of import EventReads
from projections.schema import CAUSED_BY, FOLLOWS, INTENT_WEIGHTS, MAX_WEIGHT, EdgeRow


class Direction(StrEnum):
    """Which way lineage is followed."""

    CAUSES = "causes"
    EFFECTS = "effects"
    BOTH = "both"


class Bound(StrEnum):
    """What cut an answer off."""

    NODES = "max_nodes"
    DEPTH = "max_depth"
    TIME = "timeout_ms"


TEMPORAL_INTENT = "when"


def lineage_edge(intent: str) -> EdgeRow:
    """The edge type that answers an intent: order in time for `when`, causes for all others."""
    return FOLLOWS if intent == TEMPORAL_INTENT else CAUSED_BY


def _forward(row: EdgeRow, direction: Direction) -> bool:
    """Whether a step follows the arrow: a cause edge points back, the next event forward."""
    return (direction is Direction.CAUSES) == (row is CAUSED_BY)


@dataclass(slots=True)
class Lineage:
    """A walk, filled as it goes: what was found stays when time runs out.

    Attributes:
        nodes: by id, the asked event first, then level by level.
        depths: hops from the asked event, by id.
        edges: between the nodes, of the walked type.
        answered: whether at least one level came back.
        cut_by: the bounds beyond which there is more.
    """

    event_id: str
    row: EdgeRow
    intent: str
    directions: Sequence[Direction]
    max_depth: int
    max_nodes: int
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    edges: list[GraphEdge] = field(default_factory=list)
    answered: bool = False
    cut_by: set[Bound] = field(default_factory=set)

    @classmethod
    def of(
        cls, event_id: str, *, intent: str, direction: Direction, max_depth: int, max_nodes: int
    ) -> Lineage:
        """A walk that has not begun."""
        both = (Direction.CAUSES, Direction.EFFECTS)
        directions = both if direction is Direction.BOTH else (direction,)
        return cls(event_id, lineage_edge(intent), intent, directions, max_depth, max_nodes)

    def walk(self, tenant: str, graph: EventReads) -> bool:
        """Fill the walk; False when the event is not in the graph.

        Both directions together are the ancestors and the descendants: a walk never turns round,
        so other effects of the same cause are not part of it.

        Raises:
            QueryTimeout: the time was over; what was found until then is here.
        """
        self._begin()
        self.nodes.update(graph.events(tenant, [self.event_id]))
        if not self.nodes:
            return False
        self.depths[self.event_id] = 0
        frontiers = {direction: [self.event_id] for direction in self.directions}
        for depth in range(1, self.max_depth + 1):
            for direction in self.directions:
                frontiers[direction] = self._step(
                    tenant, graph, direction, frontiers[direction], depth
                )
            self.answered = True
            if not any(frontiers.values()) or Bound.NODES in self.cut_by:
                break
        else:
            self._look_beyond(tenant, graph, frontiers)
        self.edges = graph.edges_between(tenant, list(self.nodes), [self.row])
        return True

    def _begin(self) -> None:
        """A second attempt starts from nothing."""
        self.nodes.clear()
        self.depths.clear()
        self.cut_by.clear()
        self.edges = []
        self.answered = False

    def _step(
        self,
        tenant: str,
        graph: EventReads,
        direction: Direction,
        frontier: Sequence[str],
        depth: int,
    ) -> list[str]:
        """One level in one direction; its node ids."""
        if not frontier:
            return []
        room = self.max_nodes - len(self.nodes)
        found = graph.neighbours(
            tenant,
            frontier,
            self.row,
            forward=_forward(self.row, direction),
            seen=self.nodes,
            limit=room + 1,
        )
        if len(found) > room:
            self.cut_by.add(Bound.NODES)
        level = found[:room]
        self.nodes.update((node.node_id, node) for node in level)
        self.depths.update((node.node_id, depth) for node in level)
        return [node.node_id for node in level]

    def _look_beyond(
        self, tenant: str, graph: EventReads, frontiers: Mapping[Direction, Sequence[str]]
    ) -> None:
        """Whether the last level has neighbours that `max_depth` leaves out."""
        for direction, frontier in frontiers.items():
            if frontier and graph.neighbours(
                tenant,
                frontier,
                self.row,
                forward=_forward(self.row, direction),
                seen=self.nodes,
                limit=1,
            ):
                self.cut_by.add(Bound.DEPTH)

    def scores(self) -> dict[str, float]:
        """The best path score of every node, the asked event being 1.

        Without the edges (time ran out before they came) it is what a path of perfect edges of
        that depth would have.
        """
        weight = INTENT_WEIGHTS[self.intent][self.row.type] / MAX_WEIGHT
        best: dict[str, float] = {}
        for direction in self.directions:
            forward = _forward(self.row, direction)
            scores = best_path_scores(self.event_id, self.edges, forward, weight, self.max_depth)
            for node_id, score in scores.items():
                best[node_id] = max(score, best.get(node_id, 0.0))
        return {node_id: best.get(node_id, weight**depth) for node_id, depth in self.depths.items()}


def best_path_scores(
    start: str, edges: Iterable[GraphEdge], forward: bool, weight: float, max_depth: int
) -> dict[str, float]:
    """Product of weight and quality along the best path of at most `max_depth` edges, by node id.

    Args:
        start: where every path begins, with score 1.
        edges: all of one type.
        forward: walk from source to target, else against the arrow.
        weight: of the type for the intent, 0 to 1.
        max_depth: edges a path may have.
    """
    steps: dict[str, list[tuple[str, float]]] = {}
    for edge in edges:
        here, there = (edge.source, edge.target) if forward else (edge.target, edge.source)
        steps.setdefault(here, []).append((there, weight * edge_quality(edge.properties)))
    best = {start: 1.0}
    changed = {start}
    for _ in range(max_depth):
        improved: dict[str, float] = {}
        for here in changed:
            for there, factor in steps.get(here, ()):
                score = best[here] * factor
                if score > max(best.get(there, 0.0), improved.get(there, 0.0)):
                    improved[there] = score
        best.update(improved)
        changed = set(improved)
        if not changed:
            break
    return best
