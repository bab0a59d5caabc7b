"""Bounded walks: level by level, within depth and size, and what was met stays when time runs out.

`BoundedWalk` is the loop that all walks share; `Walk` follows all views at once for a subgraph
query, `Lineage` one edge type from an event, `api.retrieval.facts` facts from the
entities that a query names.

One round trip a level finds the nodes, one more the edges between them; the best path to each
node is then a matter of memory. All of it has one time limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from api.retrieval.graph_scores import (
    EDGES_AT_ONCE,
    Activation,
    ActivationConfig,
    Link,
    Ways,
    WeightedEdge,
    blended_scores,
    blended_weight,
    edge_quality,
    path_scores,
    personalised_pagerank,
    ways_of,
)
from api.retrieval.intent import Intent
from api.retrieval.policy import DEFAULT_POLICY, Policy
from api.schemas import Bound, Direction
from consolidation.decay import DAY_MS
from pipelines.graph.reader import GraphEdge, GraphNode, GraphRead
from pipelines.graph.reads.events import EventReads
from pipelines.graph.reads.scope import Scope
from pipelines.graph.reads.walk import nodes, steps
from pipelines.graph.rows import StepEdge, is_event
from projections.schema import (
    CAUSED_BY,
    FOLLOWS,
    MAX_WEIGHT,
    MEMBER_OF,
    REFERENCES,
    SUMMARIZES,
    EdgeRow,
)

R = TypeVar("R")
F = TypeVar("F", bound=Sized)

BEAM: Final = 32
"""Nodes of a level that are walked on from."""
MAX_REACHED: Final = 3_000
"""Nodes of a walk; a query for 500 is answered from far fewer."""
MIN_SCORE: Final = 1e-4
"""A path worth less is not followed."""


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


@dataclass(slots=True, kw_only=True)
class Walk(BoundedWalk[GraphRead, list[str]]):
    """A walk over all views, whose paths are worth something else to each intent.

    The intents of a query walk together: each level asks once for the edges around the nodes that
    are most promising to any of them, and the paths are scored for each intent apart afterwards.
    So three intents cost as many round trips as one.

    Attributes:
        intents: with their confidences, at least one.
        seeds: by wire id, with scores from 0 to 1.
        policy: whose weights count.
        edges: that were met, once each.
        depths: fewest edges from a seed, by wire id.
    """

    scope: Scope
    intents: Mapping[Intent, float]
    seeds: Mapping[str, float]
    policy: Policy = DEFAULT_POLICY
    edges: dict[tuple[str, str, str, str], StepEdge] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    _ways: dict[Intent, Ways] = field(default_factory=dict)
    _expanded: set[str] = field(default_factory=set)

    def walk(self, graph: GraphRead) -> None:
        """Read the edges around the seeds, level by level.

        Raises:
            QueryTimeout: the time was over; what was met until then is here.
        """
        self._begin()
        self._follow(graph, self._frontier(dict(self.seeds), len(self.seeds)))

    def activate(self, graph: GraphRead, config: ActivationConfig) -> dict[str, float]:
        """Read the edges around what is active, hop by hop; the activations at the end.

        Raises:
            QueryTimeout: the time was over.
        """
        self._begin()
        spreading = Activation(self.seeds, config)
        while active := spreading.active():
            new = [node_id for node_id in active if node_id not in self._expanded]
            for first in range(0, len(new), EDGES_AT_ONCE):
                chunk = new[first : first + EDGES_AT_ONCE]
                self._take(
                    steps(graph, self.scope, chunk, self.policy.edge_caps), spreading.hops + 1
                )
            self._expanded.update(new)
            spreading.spread(self._links())
        return spreading.activated()

    def scores(self) -> dict[str, float]:
        """Path scores of all intents together, by wire id."""
        by_intent = {
            intent: path_scores(self.seeds, self._ways.get(intent, {}), self.max_depth)
            for intent in self.intents
        }
        return blended_scores(by_intent, self.intents, self.policy.other_intents_share)

    def pagerank(self, worth: Mapping[str, float] | None = None) -> dict[str, float]:
        """Personalised PageRank over what was read, the best node being 1.

        A seed without edges (a name that nobody has) would keep what the others are measured by.

        Args:
            worth: of the seeds, by wire id, where it is not their scores: those of the paths that
                other seeds have to them.
        """
        scores = (
            self.seeds if worth is None else {seed: worth.get(seed, 0.0) for seed in self.seeds}
        )
        ends = self.ends()
        seeds = {node_id: score for node_id, score in scores.items() if node_id in ends} or scores
        weights = self.policy.weights
        edges = [
            WeightedEdge(edge.source, edge.target, blended_weight(edge, self.intents, weights))
            for edge in self.edges.values()
        ]
        ranks = personalised_pagerank(seeds, edges)
        best = max(ranks.values(), default=1.0)
        return {node_id: rank / best for node_id, rank in ranks.items()}

    def ends(self) -> set[str]:
        """Wire ids of the nodes at the edges that were met."""
        # a list: a walk that was given up may go on in its thread
        return {end for edge in list(self.edges.values()) for end in (edge.source, edge.target)}

    def _begin(self) -> None:
        BoundedWalk._begin(self)
        for met in (self.edges, self.depths, self._ways, self._expanded):
            met.clear()
        self.depths.update(dict.fromkeys(self.seeds, 0))

    def _is_full(self) -> bool:
        return len(self.depths) >= MAX_REACHED

    def _expand(self, reads: GraphRead, frontier: list[str], depth: int) -> list[str]:
        self._expanded.update(frontier)
        self._take(steps(reads, self.scope, frontier, self.policy.edge_caps), depth)
        return self._frontier(self.scores()) if depth < self.max_depth else []

    def _has_more(self, reads: GraphRead, frontier: list[str]) -> bool:
        return False  # never asked: a ranking does not say what lies beyond its depth

    def _take(self, edges: Sequence[StepEdge], depth: int) -> None:
        new = []
        for edge in edges:
            key = (edge.type, edge.source, edge.target, edge.view)
            if key not in self.edges:
                self.edges[key] = edge
                new.append(edge)
            self.depths.setdefault(edge.reached, depth)
        for intent in self.intents:
            self._ways[intent] = ways_of(
                new, self.policy.weights[intent], others=self._ways.get(intent)
            )

    def _frontier(self, scores: Mapping[str, float], least: int = 0) -> list[str]:
        """The most promising nodes that were not walked on from yet, `BEAM` or `least` of them."""
        closed = {edge.reached for edge in self.edges.values() if edge.closed}
        promising = sorted(
            (-score, node_id)
            for node_id, score in scores.items()
            if score >= MIN_SCORE and node_id not in self._expanded and node_id not in closed
        )
        return [node_id for _, node_id in promising[: max(BEAM, least)]]

    def _links(self) -> list[Link]:
        weights = self.policy.weights
        return [
            Link(
                edge.source,
                edge.target,
                min(1.0, blended_weight(edge, self.intents, weights)),
                0.0 if edge.at_ms is None else max(0, self.scope.now_ms - edge.at_ms) / DAY_MS,
            )
            for edge in self.edges.values()
            if not edge.closed
        ]


TEMPORAL_INTENT: Intent = "when"
Frontiers = dict[Direction, list[str]]
"""Event ids by the direction in which they were met; no direction without any."""


def lineage_edge(intent: Intent) -> EdgeRow:
    """The edge type that answers an intent: order in time for `when`, causes for all others."""
    return FOLLOWS if intent == TEMPORAL_INTENT else CAUSED_BY


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


def origin_of(graph: GraphRead, scope: Scope, node_id: str) -> Origin | None:
    """What a node that is no event comes from; None: it is not in the graph, or not to be seen."""
    depths, edges, events = {node_id: 0}, [], dict[str, None]()
    frontier = [node_id]
    for depth in range(1, _LEVELS_BELOW + 1):
        below = [edge for edge in steps(graph, scope, frontier) if _is_below(edge)]
        edges += [GraphEdge(one.type, one.source, one.target, one.properties) for one in below]
        events |= dict.fromkeys(one.reached for one in below if is_event(one.reached))
        new = [one.reached for one in below if not is_event(one.reached)]
        frontier = [one for one in dict.fromkeys(new) if one not in depths]
        if not frontier:
            break
        depths |= dict.fromkeys(frontier, depth)
    seen = nodes(graph, scope, depths)
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
        best: dict[str, float] = {}
        walked = [edge for edge in self.edges if edge.type == self.row.type]
        starts = [one for one, depth in self.depths.items() if depth <= self._above]
        for direction in self.directions:
            ways = directed_ways(walked, weight, forward=_forward(self.row, direction))
            paths = path_scores(dict.fromkeys(starts, 1.0), ways, self.max_depth)
            for node_id, score in paths.items():
                best[node_id] = max(score, best.get(node_id, 0.0))
        return {
            node_id: best.get(node_id, weight ** max(0, depth - self._above))
            for node_id, depth in self.depths.items()
        }


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
