"""Bounded walks: level by level, within depth and size, and what was met stays when time runs out.

`BoundedWalk` is the loop that all walks share; `Walk` follows all views at once for a subgraph
query, `Lineage` one edge type from an event, `api.retrieval.facts` facts from the
entities that a query names.

One round trip a level finds the nodes, one more the edges between them; the best path to each
node is then a matter of memory. All of it has one time limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, Generic, NamedTuple, TypeVar

import numpy

from api.retrieval.graph_scores import (
    EDGES_AT_ONCE,
    Activation,
    ActivationConfig,
    Link,
    Ways,
    blended_scores,
    edge_qualities,
    path_scores,
    personalised_pagerank,
)
from api.retrieval.intent import Intent
from api.retrieval.policy import DEFAULT_POLICY, Policy
from api.retrieval.walk_result import Met, met_at_first
from api.schemas import Bound, Direction
from consolidation.decay import DAY_MS
from pipelines.columns.reads import ColumnReads
from pipelines.columns.records import Array, Steps
from pipelines.graph.reader import GraphEdge, GraphNode
from pipelines.graph.reads.events import EventReads
from pipelines.graph.reads.scope import Scope
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
class Walk(BoundedWalk[ColumnReads, list[str]]):
    """A walk over all views, whose paths are worth something else to each intent.

    The intents of a query walk together: each level asks once for the edges around the nodes that
    are most promising to any of them, and the paths are scored for each intent apart afterwards.
    So three intents cost as many round trips as one.

    Attributes:
        intents: with their confidences, at least one.
        seeds: by wire id, with scores from 0 to 1.
        policy: whose weights count.
        met: nodes and edges, the seeds first; a whole one at any time, for a walk that was given
            up may go on in its thread.
    """

    scope: Scope
    intents: Mapping[Intent, float]
    seeds: Mapping[str, float]
    policy: Policy = DEFAULT_POLICY
    met: Met = field(default_factory=lambda: met_at_first(()))
    _expanded: set[str] = field(default_factory=set)

    def walk(self, columns: ColumnReads) -> None:
        """Read the edges around the seeds, level by level.

        Raises:
            QueryTimeout: the time was over; what was met until then is here.
        """
        self._begin()
        self._follow(columns, self._frontier(self._seed_scores(self.met), len(self.seeds)))

    def activate(self, columns: ColumnReads, config: ActivationConfig) -> dict[str, float]:
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
                self.take(columns.steps(chunk, self.policy.edge_caps), spreading.hops + 1)
            self._expanded.update(new)
            spreading.spread(self._links())
        return spreading.activated()

    def take(self, steps: Steps, depth: int) -> None:
        """Edges were met that lead `depth` steps away."""
        self.met = self.met.joined(steps, depth)

    def scores(self) -> dict[str, float]:
        """Path scores of all intents together, by wire id, of what a path leads to."""
        met = self.met
        scores = zip(met.ids, self._path_scores(met).tolist(), strict=True)
        return {node_id: score for node_id, score in scores if score > 0 or node_id in self.seeds}

    def pagerank(self, worth: Mapping[str, float] | None = None) -> dict[str, float]:
        """Personalised PageRank over what was read, the best node being 1.

        A seed without edges (a name that nobody has) would keep what the others are measured by.

        Args:
            worth: of the seeds, by wire id, where it is not their scores: those of the paths that
                other seeds have to them.
        """
        met = self.met
        scores = self._seed_scores(met)
        if worth is not None:
            scores[: len(self.seeds)] = [worth.get(seed, 0.0) for seed in self.seeds]
        connected = met.connected()
        if connected[: len(self.seeds)].any():
            scores[~connected] = 0.0
        ranks = personalised_pagerank(scores, met.undirected(self._blended(met)))
        best = ranks.max(initial=0.0)
        ranked = zip(met.ids, ranks.tolist(), strict=True)
        return {node_id: rank / best for node_id, rank in ranked if rank > 0}

    def depths(self) -> dict[str, int]:
        """Fewest edges from a seed, by wire id."""
        met = self.met
        return dict(zip(met.ids, met.depths.tolist(), strict=True))

    def ends(self) -> set[str]:
        """Wire ids of the nodes at the edges that were met."""
        met = self.met
        return {met.ids[place] for place in numpy.flatnonzero(met.connected()).tolist()}

    def _begin(self) -> None:
        BoundedWalk._begin(self)
        self._expanded.clear()
        self.met = met_at_first(self.seeds)

    def _is_full(self) -> bool:
        return len(self.met.ids) >= MAX_REACHED

    def _expand(self, reads: ColumnReads, frontier: list[str], depth: int) -> list[str]:
        self._expanded.update(frontier)
        self.take(reads.steps(frontier, self.policy.edge_caps), depth)
        return self._frontier(self._path_scores(self.met)) if depth < self.max_depth else []

    def _has_more(self, reads: ColumnReads, frontier: list[str]) -> bool:
        return False  # never asked: a ranking does not say what lies beyond its depth

    def _seed_scores(self, met: Met) -> Array:
        scores = numpy.zeros(len(met.ids))
        scores[: len(self.seeds)] = list(self.seeds.values())
        return scores

    def _path_scores(self, met: Met) -> Array:
        ways = met.ways(met.weights(self.intents, self.policy.weights))
        seeds = numpy.tile(self._seed_scores(met)[:, None], len(self.intents))
        scores = path_scores(seeds, ways, self.max_depth)
        confidences = numpy.array(list(self.intents.values()))
        return blended_scores(scores, confidences, self.policy.other_intents_share)

    def _blended(self, met: Met) -> Array:
        """What each edge lets through for all intents at once: their mean by confidence."""
        confidences = numpy.array(list(self.intents.values()))
        weights = met.weights(self.intents, self.policy.weights)
        return numpy.asarray(weights @ confidences / confidences.sum())

    def _frontier(self, scores: Array, least: int = 0) -> list[str]:
        """The most promising nodes that were not walked on from yet, `BEAM` or `least` of them."""
        ids = self.met.ids
        places = numpy.flatnonzero((scores >= MIN_SCORE) & ~self.met.closed())
        promising = (
            (-score, ids[place])
            for place, score in zip(places.tolist(), scores[places].tolist(), strict=True)
            if ids[place] not in self._expanded
        )
        return [node_id for _, node_id in nsmallest(max(BEAM, least), promising)]

    def _links(self) -> list[Link]:
        met, now_ms = self.met, self.scope.now_ms
        confidences = numpy.minimum(1.0, self._blended(met))
        ages = numpy.maximum(0.0, now_ms - numpy.nan_to_num(met.steps.at_ms, nan=now_ms)) / DAY_MS
        ids, steps = met.ids, met.steps
        columns = (steps.source, steps.target, confidences, ages)
        rows = zip(*(column[~steps.closed].tolist() for column in columns), strict=True)
        return [Link(ids[a], ids[b], confidence, age) for a, b, confidence, age in rows]


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
