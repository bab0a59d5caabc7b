"""What leaves besides events: similar pairs, entities, facts. Read `retention` first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from consolidation.decay import (
    LINK_DECAY_PER_DAY,
    Retrievals,
    effective_confidence,
    retrieval_count,
)
from consolidation.forgetting_payloads import FactKey
from consolidation.retention import RetentionPolicy


class SimilarEdge(NamedTuple):
    """A SIMILAR_TO edge.

    Attributes:
        first: event id, the smaller of the two.
        second: event id.
        score: plain cosine.
        hot: whether one of its ends is in the hot tier.
    """

    first: str
    second: str
    score: float
    hot: bool = False


def similar_departures(
    edges: Iterable[SimilarEdge], policy: RetentionPolicy
) -> list[tuple[str, str]]:
    """The pairs that are no longer similar, sorted.

    An event keeps its `similar_keep` best edges, so an edge goes when it is not among the best of
    either end; a popular event may keep more, those that are the best its neighbours have. What
    scores below `similar_score` goes whatever its rank. A hot end keeps all its edges. Of equal
    scores the smaller other end ranks first.

    Args:
        edges: all those of every event whose edges may go; each once.
        policy: of the tenant.
    """
    if not policy.enabled:
        return []
    ranked: dict[str, list[tuple[float, str]]] = {}
    given = list(edges)
    for edge in given:
        ranked.setdefault(edge.first, []).append((-edge.score, edge.second))
        ranked.setdefault(edge.second, []).append((-edge.score, edge.first))
    best = {
        event_id: {other for _, other in sorted(others)[: policy.similar_keep]}
        for event_id, others in ranked.items()
    }
    return sorted(
        (edge.first, edge.second)
        for edge in given
        if not edge.hot
        and (
            edge.score < policy.similar_score
            or (edge.second not in best[edge.first] and edge.first not in best[edge.second])
        )
    )


class RetainedEntity(NamedTuple):
    """What archiving asks of an entity.

    Attributes:
        entity_id: within the tenant.
        edges: of any type, in either direction.
        access_count: how many reads returned it.
        archived: already.
    """

    entity_id: str
    edges: int
    access_count: int = 0
    archived: bool = False


def archived_entities(entities: Iterable[RetainedEntity], policy: RetentionPolicy) -> list[str]:
    """Ids of the entities to archive, sorted: without edges, and hardly asked for."""
    return sorted(
        one.entity_id
        for one in entities
        if policy.enabled
        and not one.archived
        and one.edges == 0
        and one.access_count < policy.entity_min_accesses
    )


def returning_entities(entities: Iterable[RetainedEntity]) -> list[str]:
    """Ids of archived entities that have edges again, sorted; forgetting need not be enabled."""
    return sorted(one.entity_id for one in entities if one.archived and one.edges > 0)


class RetainedFact(NamedTuple):
    """What expiring asks of a fact.

    Attributes:
        key: of its edge.
        confidence: 0 to 1.
        valid_to_ms: exclusive; None: open.
        retrievals: as stored; None: never retrieved.
        expired: already.
    """

    key: FactKey
    confidence: float
    valid_to_ms: int | None = None
    retrievals: Retrievals | None = None
    expired: bool = False


def expiring_facts(
    facts: Iterable[RetainedFact],
    policy: RetentionPolicy,
    now_ms: int,
    decay_per_day: float = LINK_DECAY_PER_DAY,
) -> list[FactKey]:
    """Keys of the facts to expire, sorted: they ended, and hardly anything speaks for them.

    A fact that begins later than `now_ms` is not valid now either, but it has its time before it:
    it stays.
    """
    return sorted(
        fact.key
        for fact in facts
        if policy.enabled
        and not fact.expired
        and fact.valid_to_ms is not None
        and fact.valid_to_ms <= now_ms
        and effective_confidence(
            fact.confidence, retrieval_count(fact.retrievals, now_ms, decay_per_day)
        )
        < policy.fact_min_confidence
    )
