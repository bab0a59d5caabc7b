"""Recall of facts (S2): from the entities a query names, along facts, to what is known about them.

The walk reads the facts around the seeds level by level; scores are a matter of memory then. What
was found to be the same is one entity here, by the smallest id of its component.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from api.retrieval.fact_words import asked_share, question_stems
from api.retrieval.intent import Seed
from api.retrieval.walk import BoundedWalk
from api.schemas import Bound
from consolidation.decay import DAY_MS, Retrievals, effective_confidence, retrieval_count
from consolidation.forgetting_payloads import FactKey
from enrichment.names import VALUE, components
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.rows import FactEnd, FactRow

MIN_COST: Final = 0.01
"""Of an edge: a path of sure facts has a length all the same (S2, PRISM)."""
MAX_FRONTIER: Final = 500
"""Entities of a level that are walked on from."""
MAX_FACTS_READ: Final = 5_000
"""Of one recall: a hub in the middle of a large graph leads everywhere."""
MAX_SOURCES: Final = 20
"""Events that a fact names."""
_HIGHEST = 2.0
"""Score of a fact."""
_LOOKED_AT_BEYOND = 10
"""Facts of an entity of the last level, to tell whether there are more."""


class FactScore(NamedTuple):
    """Why a fact stands where it stands.

    Attributes:
        confidence: effective, A-MEM's boost included, 0 to 1.
        match: of the seed that it scores by, 0 to 1.
        hop: edges between that seed and the fact's nearer end.
        composite: match x 1 / (1 + hop) x confidence; in an activation, what reached both ends.
        score: what facts are sorted by; 0 to 2.
    """

    confidence: float
    match: float
    hop: int
    composite: float
    score: float


class RecalledFact(NamedTuple):
    """A fact with its score.

    Attributes:
        source, target: as the canonical entities of their components.
        properties: of the edge.
        scores: why it stands where it stands.
        sources: ids of the events that say so, the one that names it first, at most 20.
        key: of the edge, between the entities as they were mentioned.
    """

    source: FactEnd
    target: FactEnd
    properties: Mapping[str, Any]
    scores: FactScore
    sources: tuple[str, ...]
    key: FactKey


def with_decay(base: float, age_days: float, decay_rate: float) -> float:
    """A score with S2's boost of what is recent: at most twice the base.

    Args:
        base: 0 or more.
        age_days: since the fact began to hold; the future counts as now.
        decay_rate: a day, above 0 or 0 for no decay.
    """
    return min(2 * base, base + base / (1 + max(0.0, age_days) * decay_rate))


def edge_cost(confidence: float, cosine: float | None) -> float:
    """PRISM's cost of an edge: low for what is sure and near to the query; never below 0.01.

    Args:
        confidence: effective, 0 to 1.
        cosine: of the query and the entity that the edge leads to; None: by confidence alone.
    """
    distance = 1.0 if cosine is None else 1.0 - cosine
    return max(MIN_COST, (1.0 - confidence) * distance)


def confidence_of(properties: Mapping[str, Any], now_ms: int) -> float:
    """A fact's effective confidence at a moment: its own, raised by how often it was retrieved."""
    confidence = properties.get("confidence")
    return effective_confidence(
        1.0 if confidence is None else confidence, retrievals(properties, now_ms)
    )


def retrievals(properties: Mapping[str, Any], now_ms: int) -> float:
    """How often a fact was retrieved, decayed to a moment."""
    weight, at_ms = properties.get("retrieval_count"), properties.get("last_retrieved_at")
    stored = Retrievals(weight, at_ms) if weight and at_ms is not None else None
    return retrieval_count(stored, now_ms)


def age_days(properties: Mapping[str, Any], now_ms: int) -> float:
    """Days since a fact began to hold; 0 for one that will."""
    began_ms: int = properties["valid_from"]
    return max(0, now_ms - began_ms) / DAY_MS


@dataclass(slots=True, kw_only=True)
class FactWalk(BoundedWalk[FactReads, list[str]]):
    """A bounded walk along facts, breadth first.

    Attributes:
        wanted: which facts count.
        query_vector: PRISM's, to prefer what is near to the query; None: confidence alone.
        facts: in order of discovery, by key.
        canonical: entity id → id of its component, for all that were met and are not their own.
        names: canonical id → how it is shown.
        costs: canonical id → cost of the cheapest path from a seed.
    """

    wanted: FactFilter
    query_vector: Sequence[float] | None = None
    facts: dict[tuple[Any, ...], FactRow] = field(default_factory=dict)
    canonical: dict[str, str] = field(default_factory=dict)
    names: dict[str, FactEnd] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    _pairs: list[tuple[str, str]] = field(default_factory=list)
    _expanded: set[str] = field(default_factory=set)

    def of(self, entity_id: str) -> str:
        """The canonical id of an entity."""
        return self.canonical.get(entity_id, entity_id)

    def walk(self, reads: FactReads, seeds: Iterable[str]) -> None:
        """Read the facts up to `max_depth` levels around the seeds.

        Raises:
            QueryTimeout: the time was over; what was met until then is here.
        """
        self._begin()
        frontier = self._met(reads, seeds)
        self.costs = dict.fromkeys((self.of(entity_id) for entity_id in frontier), 0.0)
        self._follow(reads, frontier)

    def _begin(self) -> None:
        BoundedWalk._begin(self)
        for met in (self.facts, self.canonical, self.names, self.costs, self._expanded):
            met.clear()
        self._pairs.clear()

    def _is_full(self) -> bool:
        return len(self.facts) >= MAX_FACTS_READ

    def _expand(self, reads: FactReads, frontier: list[str], depth: int) -> list[str]:
        walked = self._cheapest(frontier)
        self._expanded.update(walked)
        rows = reads.facts_of(walked, self.wanted)
        if len(rows) > (room := MAX_FACTS_READ - len(self.facts)):
            self.cut_by.add(Bound.NODES)
            rows = rows[:room]
        following = self.take(reads, rows)
        self._spend(reads, rows)
        return following

    def _has_more(self, reads: FactReads, frontier: list[str]) -> bool:
        few = self.wanted._replace(per_entity=_LOOKED_AT_BEYOND)
        beyond = reads.facts_of(self._cheapest(frontier), few)
        return any(row.key not in self.facts for row in beyond)

    def _met(self, reads: FactReads, ids: Iterable[str]) -> list[str]:
        """All members of the components of the entities, those walked on from left out."""
        new = {entity_id for entity_id in ids if entity_id not in self._expanded}
        pairs = reads.same_as(new)
        self._pairs += pairs
        if pairs:
            self.canonical = components(self._pairs)
        new |= {entity_id for pair in pairs for entity_id in pair} - self._expanded
        return sorted(new)

    def take(self, reads: FactReads, rows: Sequence[FactRow]) -> list[str]:
        """Facts that were met; the entities that they lead to, those that are the same included."""
        self.facts.update((row.key, row) for row in rows)
        ends = {end.entity_id: end for row in rows for end in (row.source, row.target)}
        # a literal is everybody's, so nothing that shares one is connected by it
        following = self._met(
            reads, (end_id for end_id, end in ends.items() if end.subtype != VALUE)
        )
        for own_id, end in ends.items():
            if own_id == self.of(own_id) or self.of(own_id) not in self.names:
                self.names[self.of(own_id)] = end._replace(entity_id=self.of(own_id))
        return following

    def _cheapest(self, frontier: Sequence[str]) -> list[str]:
        """The entities of a level in order of their cost, as many as are walked on from."""
        ordered = sorted(frontier, key=lambda end: (self.costs.get(self.of(end), 1.0), end))
        if len(ordered) > MAX_FRONTIER:
            self.cut_by.add(Bound.NODES)
        return ordered[:MAX_FRONTIER]

    def _spend(self, reads: FactReads, rows: Sequence[FactRow]) -> None:
        """Costs of the entities that the rows lead to."""
        new = {
            end.entity_id
            for row in rows
            for end in (row.source, row.target)
            if self.of(end.entity_id) not in self.costs
        }
        cosines: Mapping[str, float] = {}
        if self.query_vector is not None and new:
            cosines = reads.cosines(new, self.query_vector)
        before = dict(self.costs)
        for row in rows:
            confidence = confidence_of(row.properties, self.wanted.at_ms)
            for here, there in ((row.source, row.target), (row.target, row.source)):
                if (start := before.get(self.of(here.entity_id))) is None:
                    continue
                to = self.of(there.entity_id)
                cost = start + edge_cost(confidence, cosines.get(there.entity_id))
                self.costs[to] = min(cost, self.costs.get(to, cost))

    def links(self) -> list[tuple[str, str, FactRow]]:
        """The facts with the canonical ids of their ends."""
        return [
            (self.of(row.source.entity_id), self.of(row.target.entity_id), row)
            for row in self.facts.values()
        ]

    def end(self, row_end: FactEnd) -> FactEnd:
        """An end of a fact as its canonical entity."""
        own_id = self.of(row_end.entity_id)
        return self.names.get(own_id, row_end._replace(entity_id=own_id))


def hop_distances(
    starts: Iterable[str], links: Iterable[tuple[str, str, FactRow]]
) -> dict[str, dict[str, int]]:
    """Of each start, the edges of the shortest undirected path to what it reaches (S2)."""
    neighbours: dict[str, set[str]] = {}
    for source, target, _ in links:
        neighbours.setdefault(source, set()).add(target)
        neighbours.setdefault(target, set()).add(source)
    reached = {}
    for start in starts:
        distances = {start: 0}
        frontier = [start]
        while frontier:
            following = []
            for here in frontier:
                for there in neighbours.get(here, ()):
                    if there not in distances:
                        distances[there] = distances[here] + 1
                        following.append(there)
            frontier = following
        reached[start] = distances
    return reached


def recalled(
    walk: FactWalk,
    seeds: Sequence[Seed],
    *,
    now_ms: int,
    decay_rate: float,
    limit: int,
    query: str = "",
) -> list[RecalledFact]:
    """The facts of a walk by S2's scores, the best first, one of each (entity, relation, target).

    Args:
        walk: done.
        seeds: with their scores.
        now_ms: the clock, for ages and boosts.
        decay_rate: of S2's temporal decay, a day.
        limit: how many at most.
        query: what it asks for comes first: the nearer to its words, the more a fact is raised
            towards the highest score.
    """
    stems = question_stems(query)
    links = walk.links()
    distances = hop_distances((seed.entity_id for seed in seeds), links)
    scored = []
    for source, target, row in links:
        nearest = _nearest(seeds, distances, (source, target))
        if nearest is None:
            continue
        share, match, hop = nearest
        confidence = confidence_of(row.properties, now_ms)
        composite = share * confidence
        score = with_decay(composite, age_days(row.properties, now_ms), decay_rate)
        wanted = asked_share(stems, row.properties["relation"], (row.source.name, row.target.name))
        score += wanted * share * (_HIGHEST - score)
        scores = FactScore(
            confidence=confidence, match=match, hop=hop, composite=composite, score=score
        )
        scored.append(recalled_fact(walk, row, scores))
    return _best_of_each(walk, scored)[:limit]


def _nearest(
    seeds: Sequence[Seed], distances: Mapping[str, Mapping[str, int]], ends: tuple[str, str]
) -> tuple[float, float, int] | None:
    """Of the seed that a fact scores most by: score / (1 + hop), score, hop; None: none reaches."""
    best: tuple[float, float, int] | None = None
    for seed in seeds:
        reached = distances[seed.entity_id]
        hop = min((reached[end] for end in ends if end in reached), default=None)
        if hop is not None and (best is None or seed.score / (1 + hop) > best[0]):
            best = (seed.score / (1 + hop), seed.score, hop)
    return best


def activated(
    walk: FactWalk,
    seeds: Sequence[Seed],
    activation: Mapping[str, float],
    *,
    now_ms: int,
    limit: int,
) -> list[RecalledFact]:
    """The facts of a walk both of whose ends are active, by what has reached them.

    Recency is in the activation already (SA-INV-05), so nothing is added for it.
    """
    links = walk.links()
    matches = {seed.entity_id: seed.score for seed in seeds}
    hops: dict[str, int] = {}
    for distances in hop_distances(matches, links).values():
        for own_id, hop in distances.items():
            hops[own_id] = min(hop, hops.get(own_id, hop))
    scored = []
    for source, target, row in links:
        ends = (source, target)
        if not all(end in activation for end in ends):
            continue
        score = min(activation[end] for end in ends)
        scores = FactScore(
            confidence=confidence_of(row.properties, now_ms),
            match=max(matches.get(end, 0.0) for end in ends),
            hop=min(hops.get(end, walk.max_depth) for end in ends),
            composite=score,
            score=score,
        )
        scored.append(recalled_fact(walk, row, scores))
    return _best_of_each(walk, scored)[:limit]


def recalled_fact(walk: FactWalk, row: FactRow, scores: FactScore) -> RecalledFact:
    """A fact of a walk with its scores."""
    properties = row.properties
    said_by = [properties["event_id"], *reversed(properties.get("supporting_event_ids") or ())]
    return RecalledFact(
        source=walk.end(row.source),
        target=walk.end(row.target),
        properties=properties,
        scores=scores,
        sources=tuple(dict.fromkeys(said_by))[:MAX_SOURCES],
        key=key_of(row),
    )


def key_of(row: FactRow) -> FactKey:
    """What tells a fact from every other."""
    properties = row.properties
    return FactKey(
        source_id=row.source.entity_id,
        relation=properties["relation"],
        edge_type=properties["edge_type"],
        target_id=row.target.entity_id,
        valid_from_ms=properties["valid_from"],
        event_id=properties["event_id"],
    )


class RankedFact(NamedTuple):
    """A place in a ranking of facts: where the fact is found again, and its scores.

    Attributes:
        digest: of the fact's whole key; tells it from others that the event says of these ends.
    """

    source_id: str
    target_id: str
    event_id: str
    digest: str
    scores: FactScore


def _digest(key: FactKey) -> str:
    return blake2b(orjson.dumps(key.parts), digest_size=4).hexdigest()


def ranked_fact(fact: RecalledFact) -> RankedFact:
    """The place of a fact that was found."""
    key = fact.key
    return RankedFact(
        source_id=key.source_id,
        target_id=key.target_id,
        event_id=key.event_id,
        digest=_digest(key),
        scores=fact.scores,
    )


def read_page(reads: FactReads, walk: FactWalk, page: Sequence[RankedFact]) -> list[RecalledFact]:
    """The facts of a page as they are now, in its order; those that are gone are left out.

    Args:
        reads: the transaction.
        walk: that has not begun; it is given the facts.
        page: of a ranking.

    Returns:
        Facts with the scores of the ranking. What other events said the same is not looked for.
    """
    rows = reads.facts_between(
        (ranked.source_id, ranked.target_id, ranked.event_id) for ranked in page
    )
    walk.take(reads, rows)
    by_place = {(*_place(key := key_of(row)), _digest(key)): row for row in rows}
    return [
        recalled_fact(walk, row, ranked.scores)
        for ranked in page
        if (row := by_place.get(ranked[:4])) is not None
    ]


def _place(key: FactKey) -> tuple[str, str, str]:
    return key.source_id, key.target_id, key.event_id


def _best_of_each(walk: FactWalk, scored: Iterable[RecalledFact]) -> list[RecalledFact]:
    """One fact of each (entity, relation, target), with the sources of all, the best first."""

    def order(fact: RecalledFact) -> tuple[Any, ...]:
        cost = max(walk.costs.get(end.entity_id, 1.0) for end in (fact.source, fact.target))
        properties = fact.properties
        newest = -properties["valid_from"]
        return -fact.scores.score, cost, newest, properties["event_id"], properties["relation"]

    best: dict[tuple[str, str, str], RecalledFact] = {}
    for fact in sorted(scored, key=order):
        key = (fact.source.entity_id, fact.properties["relation"], fact.target.entity_id)
        first = best.get(key)
        if first is None:
            best[key] = fact
        else:
            sources = tuple(dict.fromkeys([*first.sources, *fact.sources]))[:MAX_SOURCES]
            best[key] = first._replace(sources=sources)
    return list(best.values())
