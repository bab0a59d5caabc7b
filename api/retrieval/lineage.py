"""Lineage: a bounded walk from one event along one edge type, breadth first.

One round trip a level finds the nodes, one more the edges between them; the best path to each
node is then a matter of memory. All of it has one time limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from api.retrieval.graph_scores import Ways, edge_quality, path_scores
from api.retrieval.intent import Intent
from api.retrieval.walk import BoundedWalk
from api.schemas import Bound, Direction
from pipelines.graph.reader import GraphEdge, GraphNode
from pipelines.graph.reads.as_of import EventReads
from projections.schema import CAUSED_BY, FOLLOWS, INTENT_WEIGHTS, MAX_WEIGHT, EdgeRow

TEMPORAL_INTENT: Intent = "when"
Frontiers = dict[Direction, list[str]]
"""Event ids by the direction in which they were met; no direction without any."""


def lineage_edge(intent: Intent) -> EdgeRow:
    """The edge type that answers an intent: order in time for `when`, causes for all others."""
    return FOLLOWS if intent == TEMPORAL_INTENT else CAUSED_BY


def _forward(row: EdgeRow, direction: Direction) -> bool:
    """Whether a step follows the arrow: a cause edge points back, the next event forward."""
    return (direction is Direction.CAUSES) == (row is CAUSED_BY)


@dataclass(slots=True, kw_only=True)
class Lineage(BoundedWalk[EventReads, Frontiers]):
    """A walk from an event to its causes, its effects, or both.

    Both directions together are the ancestors and the descendants: a walk never turns round, so
    other effects of the same cause are not part of it.

    Attributes:
        intent: that chooses the edge type.
        nodes: by id, the event it begins at first, then level by level.
        depths: hops from that event, by id.
        edges: between the nodes, of the walked type.
    """

    tenant: str
    event_id: str
    intent: Intent
    direction: Direction
    max_nodes: int
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    edges: list[GraphEdge] = field(default_factory=list)

    @property
    def row(self) -> EdgeRow:
        """The edge type that is walked."""
        return lineage_edge(self.intent)

    @property
    def directions(self) -> Sequence[Direction]:
        """In which it walks."""
        both = (Direction.CAUSES, Direction.EFFECTS)
        return both if self.direction is Direction.BOTH else (self.direction,)

    def walk(self, graph: EventReads) -> bool:
        """Fill the walk; False when the event is not in the graph.

        Raises:
            QueryTimeout: the time was over; what was met until then is here.
        """
        self._begin()
        self.nodes.update(graph.events(self.tenant, [self.event_id]))
        if not self.nodes:
            return False
        self.depths[self.event_id] = 0
        self._follow(graph, {direction: [self.event_id] for direction in self.directions})
        self.edges = graph.edges_between(self.tenant, list(self.nodes), [self.row])
        return True

    def _begin(self) -> None:
        BoundedWalk._begin(self)
        self.nodes.clear()
        self.depths.clear()
        self.edges = []

    def _is_full(self) -> bool:
        return Bound.NODES in self.cut_by

    def _expand(self, reads: EventReads, frontier: Frontiers, depth: int) -> Frontiers:
        following = {}
        for direction, event_ids in frontier.items():
            room = self.max_nodes - len(self.nodes)
            level = self._neighbours(reads, direction, event_ids, limit=room + 1)
            if len(level) > room:
                self.cut_by.add(Bound.NODES)
            for node in level[:room]:
                self.nodes[node.node_id] = node
                self.depths[node.node_id] = depth
            following[direction] = [node.node_id for node in level[:room]]
        return {direction: ids for direction, ids in following.items() if ids}

    def _has_more(self, reads: EventReads, frontier: Frontiers) -> bool:
        return any(self._neighbours(reads, *level, limit=1) for level in frontier.items())

    def _neighbours(
        self, reads: EventReads, direction: Direction, event_ids: Sequence[str], *, limit: int
    ) -> list[GraphNode]:
        """Nodes one step from the events that were not met yet."""
        forward = _forward(self.row, direction)
        return reads.neighbours(
            self.tenant, event_ids, self.row, forward=forward, seen=self.nodes, limit=limit
        )

    def scores(self) -> dict[str, float]:
        """The best path score of every node, the event that it begins at being 1.

        Without the edges (time ran out before they came) it is what a path of perfect edges of
        that depth would have.
        """
        weight = INTENT_WEIGHTS[self.intent][self.row.type] / MAX_WEIGHT
        best: dict[str, float] = {}
        for direction in self.directions:
            ways = directed_ways(self.edges, weight, forward=_forward(self.row, direction))
            for node_id, score in path_scores({self.event_id: 1.0}, ways, self.max_depth).items():
                best[node_id] = max(score, best.get(node_id, 0.0))
        return {node_id: best.get(node_id, weight**depth) for node_id, depth in self.depths.items()}


def directed_ways(edges: Iterable[GraphEdge], weight: float, *, forward: bool) -> Ways:
    """Where edges of one type lead in one direction, and what passes them.

    Args:
        edges: all of one type.
        weight: of the type for the intent, 0 to 1.
        forward: from source to target, else against the arrow.
    """
    ways: Ways = {}
    for edge in edges:
        here, there = (edge.source, edge.target) if forward else (edge.target, edge.source)
        ways.setdefault(here, []).append((there, weight * edge_quality(edge.properties)))
    return ways
