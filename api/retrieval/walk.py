"""Bounded walks: level by level, within depth and size, and what was met stays when time runs out.

`BoundedWalk` is the loop that both walks share: `Lineage` follows one edge type from an event,
`api.retrieval.facts` facts from the entities that a query names. The walk of a subgraph query, over
all views at once, is the columns' own (`pipelines.columns.walked`).

One round trip a level finds the nodes, one more the edges between them; the best path to each
node is then a matter of memory. All of it has one time limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

import numpy

from api.retrieval.plan import Intent
from api.retrieval.policy import DEFAULT_POLICY, Policy
from api.schemas import Bound, Direction
from pipelines.columns.graph_scores import Ways, edge_qualities, path_scores
from pipelines.columns.reads import ColumnReads
from pipelines.graph.reader import GraphEdge, GraphNode
from pipelines.graph.reads.events import EventReads
from pipelines.graph.rows import StepEdge, is_event
from projections.schema import (
    CAUSED_BY,
    EDGE_CAPS,
    FOLLOWS,
    MAX_WEIGHT,
    MEMBER_OF,
    REFERENCES,
    SUMMARIZES,
    EdgeRow,
)

R = TypeVar("R")
F = TypeVar("F", bound=Sized)


@dataclass(slots=True, kw_only=True)
class BoundedWalk(ABC, Generic[R, F]):
    """A walk from a frontier to the next one, until a bound is reached or nothing is left.

    `R` is what a walk reads from, `F` what its frontiers are.

    Attributes:
        max_depth: levels that are read, at least 1.
        cut_by: the bounds beyond which there is more.
        levels: that were read to their end.
    """

    max_depth: int
    cut_by: set[Bound] = field(default_factory=set)
    levels: int = 0

    def _begin(self) -> None:
        """Forget what was met: a second attempt starts from nothing."""
        self.cut_by.clear()
        self.levels = 0

    def _follow(self, reads: R, frontier: F) -> None:
        """Read level by level.

        Raises:
            QueryTimeout: the time was over; what was met until then is here.
        """
        for depth in range(1, self.max_depth + 1):
            if not frontier or self._is_full():
                return
            frontier = self._expand(reads, frontier, depth)
            self.levels = depth
        if frontier and not self._is_full() and self._has_more(reads, frontier):
            self.cut_by.add(Bound.DEPTH)

    @abstractmethod
    def _is_full(self) -> bool:
        """Whether the bound of its size is reached."""

    @abstractmethod
    def _expand(self, reads: R, frontier: F, depth: int) -> F:
        """Read the level around a frontier, `depth` steps from the start; the next frontier."""

    @abstractmethod
    def _has_more(self, reads: R, frontier: F) -> bool:
        """Whether the level behind the last one holds anything new."""


TEMPORAL_INTENT: Intent = "when"
_IN_ORDER: Final[frozenset[Intent]] = frozenset((TEMPORAL_INTENT, "how_does"))
"""Intents that ask for what came next."""
Frontiers = dict[Direction, list[str]]
"""Event ids by the direction in which they were met; no direction without any."""


def lineage_edge(intent: Intent) -> EdgeRow:
    """The edge type that answers an intent: the order in time, or causes."""
    return FOLLOWS if intent in _IN_ORDER else CAUSED_BY


def _forward(row: EdgeRow, direction: Direction) -> bool:
    """Whether a step follows the arrow: a cause edge points back, the next event forward."""
    return (direction is Direction.CAUSES) == (row is CAUSED_BY)


_LEVELS_BELOW: Final = 3
"""From the summary of an agent to those of sessions, of episodes, and to events."""


def _is_below(edge: StepEdge) -> bool:
    """Whether what an edge leads to is what its other end was made from."""
    if edge.type == MEMBER_OF.type:
        return edge.reached == edge.source
    if edge.type in (REFERENCES.type, SUMMARIZES.type):
        return is_event(edge.reached) or edge.reached == edge.target
    return False


class Origin(NamedTuple):
    """A node that is no event, and the events that it comes from.

    Attributes:
        nodes: it, and the summaries or entities between it and the events, by wire id.
        depths: hops from it, of these; it at first, then level by level.
        edges: from it down to the events.
        event_ids: the best first.
    """

    nodes: dict[str, GraphNode]
    depths: dict[str, int]
    edges: list[GraphEdge]
    event_ids: list[str]


def origin_of(
    columns: ColumnReads, nodes_of: Callable[[Iterable[str]], dict[str, GraphNode]], node_id: str
) -> Origin | None:
    """What a node that is no event comes from; None: it is not in the graph, or not to be seen.

    Args:
        columns: what leads to what.
        nodes_of: reads nodes by wire id.
        node_id: where it begins.
    """
    depths, edges, events = {node_id: 0}, [], dict[str, None]()
    frontier = [node_id]
    for depth in range(1, _LEVELS_BELOW + 1):
        steps = columns.steps(frontier, EDGE_CAPS).edges()
        below = [edge for edge in steps if _is_below(edge)]
        edges += [GraphEdge(one.type, one.source, one.target, one.properties) for one in below]
        events |= dict.fromkeys(one.reached for one in below if is_event(one.reached))
        new = [one.reached for one in below if not is_event(one.reached)]
        frontier = [one for one in dict.fromkeys(new) if one not in depths]
        if not frontier:
            break
        depths |= dict.fromkeys(frontier, depth)
    seen = nodes_of(depths)
    if node_id not in seen:
        return None
    shown = {one: depth for one, depth in depths.items() if one in seen}
    return Origin(seen, shown, edges, list(events))


@dataclass(slots=True, kw_only=True)
class Lineage(BoundedWalk[EventReads, Frontiers]):
    """A walk from an event to its causes, its effects, or both.

    Both directions together are the ancestors and the descendants: a walk never turns round, so
    other effects of the same cause are not part of it. From what is no event it goes down to the
    events that this comes from, and on from each of them.

    Attributes:
        node_id: where it begins.
        origin: of what is no event.
        intent: that chooses the edge type.
        policy: whose weights count.
        nodes: by id, the event it begins at first, then level by level.
        depths: hops from that node, by id.
        edges: between the nodes, of the walked type, and those of the origin.
    """

    node_id: str
    origin: Origin | None = None
    intent: Intent
    direction: Direction
    max_nodes: int
    policy: Policy = DEFAULT_POLICY
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
        starts = [self.node_id]
        if self.origin is not None:
            starts = self._begin_above(self.origin)
        events = graph.events(starts)
        self.nodes.update(events)
        if not self.nodes:
            return False
        self.depths.update(dict.fromkeys(events, self._above))
        frontier = {direction: list(events) for direction in self.directions} if events else {}
        self._follow(graph, frontier)
        among = [node_id for node_id in self.nodes if is_event(node_id)]
        self.edges = graph.edges_between(among, [self.row])
        if self.origin is not None:
            ends = self.nodes.keys()
            self.edges += [e for e in self.origin.edges if e.source in ends and e.target in ends]
        return True

    def _begin_above(self, origin: Origin) -> list[str]:
        """Take what it begins at with what is nearest to it; the events that there is room for."""
        nearest = list(origin.depths.items())[: self.max_nodes]
        self.nodes.update((node_id, origin.nodes[node_id]) for node_id, _ in nearest)
        self.depths.update(nearest)
        starts = origin.event_ids[: self.max_nodes - len(nearest)]
        if len(nearest) + len(starts) < len(origin.nodes) + len(origin.event_ids):
            self.cut_by.add(Bound.NODES)
        return starts

    @property
    def _above(self) -> int:
        """Hops from where it begins to the events that are walked on from."""
        return 0 if self.origin is None else 1 + max(self.origin.depths.values())

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
                self.depths[node.node_id] = self._above + depth
            following[direction] = [node.node_id for node in level[:room]]
        return {direction: ids for direction, ids in following.items() if ids}

    def _has_more(self, reads: EventReads, frontier: Frontiers) -> bool:
        return any(self._neighbours(reads, *level, limit=1) for level in frontier.items())

    def _neighbours(
        self, reads: EventReads, direction: Direction, event_ids: Sequence[str], *, limit: int
    ) -> list[GraphNode]:
        """Nodes one step from the events that were not met yet."""
        forward = _forward(self.row, direction)
        return reads.neighbours(event_ids, self.row, forward=forward, seen=self.nodes, limit=limit)

    def scores(self) -> dict[str, float]:
        """The best path score of every node, what it begins at being 1, and its events.

        Without the edges (time ran out before they came) it is what a path of perfect edges of
        that depth would have.
        """
        weight = self.policy.weights[self.intent][self.row.type] / MAX_WEIGHT
        walked = [edge for edge in self.edges if edge.type == self.row.type]
        places = {node_id: place for place, node_id in enumerate(self.nodes)}
        starts = numpy.array([[depth <= self._above] for depth in self.depths.values()], "f8")
        best = numpy.zeros_like(starts)
        for direction in self.directions:
            forward = _forward(self.row, direction)
            ways = directed_ways(walked, places, weight, forward=forward)
            best = numpy.maximum(best, path_scores(starts, ways, self.max_depth))
        scored = zip(self.depths.items(), best[:, 0].tolist(), strict=True)
        return {
            node_id: score or weight ** max(0, depth - self._above)
            for (node_id, depth), score in scored
        }


def directed_ways(
    edges: Sequence[GraphEdge], places: Mapping[str, int], weight: float, *, forward: bool
) -> Ways:
    """Where edges of one type lead in one direction, and what passes them.

    Args:
        edges: all of one type.
        places: numbers of their ends.
        weight: of the type for the intent, 0 to 1.
        forward: from source to target, else against the arrow.
    """
    source = numpy.array([places[edge.source] for edge in edges], dtype=numpy.int32)
    target = numpy.array([places[edge.target] for edge in edges], dtype=numpy.int32)
    weights = weight * edge_qualities(edge.properties for edge in edges)[:, None]
    here, there = (source, target) if forward else (target, source)
    return Ways(here, there, weights)
