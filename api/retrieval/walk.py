"""One bounded walk over all views at once, and what its paths are worth to each intent.

The intents of a query walk together: each level asks once for the edges around the nodes that are
most promising to any of them, and the paths are scored for each intent apart afterwards. So three
intents cost as many round trips as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from api.retrieval.activation import EDGES_AT_ONCE, Activation, ActivationConfig, Link
from api.retrieval.edge_quality import edge_quality
from api.retrieval.intent import Intent
from api.retrieval.pagerank import WeightedEdge, personalised_pagerank
from consolidation.decay import DAY_MS
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.scope import Scope
from pipelines.graph.reads.walk import StepEdge, steps
from projections.schema import (
    CAUSED_BY,
    FOLLOWS,
    INTENT_WEIGHTS,
    MAX_WEIGHT,
    REFERENCES,
    RELATES_TO,
    SIMILAR_TO,
)

BEAM: Final = 32
"""Nodes of a level that are walked on from."""
MAX_REACHED: Final = 3_000
"""Nodes of a walk; a query for 500 is answered from far fewer."""
SHARE_OF_OTHERS: Final = 0.2
"""What a node gains from other intents than the one that reaches it best (S0)."""
MIN_SCORE: Final = 1e-4
"""A path worth less is not followed."""

# A fact weighs as the view that it belongs to.
_VIEWS: Final = {
    "causal": CAUSED_BY.type,
    "temporal": FOLLOWS.type,
    "semantic": SIMILAR_TO.type,
    "entity": REFERENCES.type,
}


Ways = dict[str, list[tuple[str, float]]]
"""By wire id what can be reached over one edge, and what passes it, 0 to 1."""


def edge_weight(edge: StepEdge, intent: Intent) -> float:
    """What an edge lets through for an intent, 0 to 1: weight / 5 times its quality."""
    type_ = _VIEWS.get(edge.view, edge.type) if edge.type == RELATES_TO.type else edge.type
    return INTENT_WEIGHTS[intent][type_] / MAX_WEIGHT * edge_quality(edge.properties)


def blended_weight(edge: StepEdge, intents: Mapping[Intent, float]) -> float:
    """The same for several intents at once: their mean by confidence."""
    total = sum(intents.values())
    return sum(edge_weight(edge, one) * value for one, value in intents.items()) / total


def ways_of(
    edges: Iterable[StepEdge],
    intent: Intent,
    *,
    hop_share: float = 1.0,
    known: Ways | None = None,
) -> Ways:
    """Where edges lead, both ways; from what is closed (a literal value) nothing leads on.

    Args:
        edges: that were met.
        intent: whose weights count.
        hop_share: what passes an edge beside its weight.
        known: of other edges; these are added to it.
    """
    ways = {} if known is None else known
    for edge in edges:
        weight = edge_weight(edge, intent) * hop_share
        if weight > 0:
            for here, there in ((edge.source, edge.target), (edge.target, edge.source)):
                if not edge.closed or here != edge.reached:
                    ways.setdefault(here, []).append((there, weight))
    return ways


def path_scores(seeds: Mapping[str, float], ways: Ways, max_depth: int) -> dict[str, float]:
    """Seed score times the product of weights along the best path of at most `max_depth` edges.

    Args:
        seeds: by wire id, 0 to 1.
        ways: that paths may take.
        max_depth: edges of a path, at most.
    """
    best = dict(seeds)
    changed: Iterable[str] = list(best)
    for _ in range(max_depth):
        improved: dict[str, float] = {}
        for here in changed:
            own = best[here]
            for there, weight in ways.get(here, ()):
                score = own * weight
                if score > best.get(there, 0.0) and score > improved.get(there, 0.0):
                    improved[there] = score
        if not improved:
            break
        best.update(improved)
        changed = improved
    return best


def merged_scores(
    scores: Mapping[Intent, Mapping[str, float]], intents: Mapping[Intent, float]
) -> dict[str, float]:
    """The best intent's score, weighted by its confidence, and a fifth of what the others add."""
    weighted: dict[str, list[float]] = {}
    for intent, found in scores.items():
        for node_id, score in found.items():
            weighted.setdefault(node_id, []).append(score * intents[intent])
    return {
        node_id: max(values) + SHARE_OF_OTHERS * (sum(values) - max(values))
        for node_id, values in weighted.items()
    }


@dataclass(slots=True)
class Walk:
    """A walk, filled as it goes: what was found stays when time runs out.

    Attributes:
        intents: with their confidences, at least one.
        seeds: by wire id, with scores from 0 to 1.
        edges: that were met, once each.
        depths: fewest edges from a seed, by wire id.
        complete: nothing had to be left out for want of time.
    """

    scope: Scope
    intents: Mapping[Intent, float]
    seeds: Mapping[str, float]
    max_depth: int
    edges: dict[tuple[str, str, str, str], StepEdge] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    complete: bool = False
    _ways: dict[Intent, Ways] = field(default_factory=dict)

    def walk(self, graph: GraphRead) -> None:
        """Read the edges around the seeds, level by level.

        Raises:
            QueryTimeout: the time was over; what was found until then is here.
        """
        self._begin()
        expanded: set[str] = set()
        for depth in range(1, self.max_depth + 1):
            frontier = self._frontier(expanded, depth - 1)
            if not frontier or len(self.depths) >= MAX_REACHED:
                break
            expanded.update(frontier)
            self._take(steps(graph, self.scope, frontier), depth)
        self.complete = True

    def activate(self, graph: GraphRead, config: ActivationConfig) -> dict[str, float]:
        """Read the edges around what is active, hop by hop; the activations at the end.

        Raises:
            QueryTimeout: the time was over.
        """
        self._begin()
        spreading = Activation(self.seeds, config)
        asked: set[str] = set()
        while active := spreading.active():
            new = [one for one in active if one not in asked]
            for first in range(0, len(new), EDGES_AT_ONCE):
                chunk = new[first : first + EDGES_AT_ONCE]
                self._take(steps(graph, self.scope, chunk), spreading.hops + 1)
            asked.update(new)
            spreading.spread(self._links())
        self.complete = True
        return spreading.activated()

    def scores(self) -> dict[str, float]:
        """Merged path scores of all intents, by wire id."""
        found = {
            intent: path_scores(self.seeds, self._ways.get(intent, {}), self.max_depth)
            for intent in self.intents
        }
        return merged_scores(found, self.intents)

    def pagerank(self, worth: Mapping[str, float] | None = None) -> dict[str, float]:
        """Personalised PageRank over what was read, the best node being 1.

        A seed without edges (a name that nobody has) would keep what the others are measured by.

        Args:
            worth: of the seeds, by wire id, where it is not their scores: those of the paths that
                other seeds have to them.
        """
        ends = {end for edge in self.edges.values() for end in (edge.source, edge.target)}
        known = self.seeds if worth is None else {one: worth.get(one, 0.0) for one in self.seeds}
        seeds = {one: score for one, score in known.items() if one in ends} or known
        edges = [
            WeightedEdge(edge.source, edge.target, blended_weight(edge, self.intents))
            for edge in self.edges.values()
        ]
        scores = personalised_pagerank(seeds, edges)
        best = max(scores.values(), default=1.0)
        return {node_id: score / best for node_id, score in scores.items()}

    def _begin(self) -> None:
        """A second attempt starts from nothing."""
        self.edges.clear()
        self.depths.clear()
        self._ways.clear()
        self.depths.update(dict.fromkeys(self.seeds, 0))
        self.complete = False

    def _take(self, found: Sequence[StepEdge], depth: int) -> None:
        new = []
        for edge in found:
            key = (edge.type, edge.source, edge.target, edge.view)
            if key not in self.edges:
                self.edges[key] = edge
                new.append(edge)
            self.depths.setdefault(edge.reached, depth)
        for intent in self.intents:
            self._ways[intent] = ways_of(new, intent, known=self._ways.get(intent))

    def _frontier(self, expanded: set[str], depth: int) -> list[str]:
        """The most promising nodes that were not walked on from yet."""
        closed = {edge.reached for edge in self.edges.values() if edge.closed}
        scores = self.scores() if depth else dict(self.seeds)
        open_ = [
            (-score, node_id)
            for node_id, score in scores.items()
            if score >= MIN_SCORE and node_id not in expanded and node_id not in closed
        ]
        return [node_id for _, node_id in sorted(open_)[: max(BEAM, len(self.seeds) * (not depth))]]

    def _links(self) -> list[Link]:
        return [
            Link(
                edge.source,
                edge.target,
                min(1.0, blended_weight(edge, self.intents)),
                0.0 if edge.at_ms is None else max(0, self.scope.now_ms - edge.at_ms) / DAY_MS,
            )
            for edge in self.edges.values()
            if not edge.closed
        ]
