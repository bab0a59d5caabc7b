"""What leaves besides events: similar pairs, entities, facts. Read `retention` first.

Similar pairs that were dropped are remembered at their first end, so that they are not made again:
an event that is folded once more (it was recalled) looks for its neighbours once more. Its list
goes with it: to the tombstone when it is forgotten, and back when it is recalled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from consolidation.decay import (
    LINK_DECAY_PER_DAY,
    Retrievals,
    effective_confidence,
    retrieval_count,
)
from consolidation.forgetting_payloads import FactKey
from consolidation.retention import RetentionPolicy
from consolidation.tombstones import EventKey
from projections.operations import DecideNode
from projections.positions import Position
from projections.schema import EVENT, FORGOTTEN


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


MAX_DROPPED: Final = 500
"""Ids that an event keeps, the largest: those of version 7 are the latest."""


class DroppedPairs:
    """What events were parted from, while decisions are applied in their order.

    Args:
        shown: by event, as node or tombstone has it.
        came: whether the ledger held an event at a position.
        away: whether an event is forgotten, and was not recalled.
    """

    def __init__(
        self,
        shown: Mapping[EventKey, Iterable[str]],
        came: Callable[[EventKey, Position], bool],
        away: Callable[[EventKey], bool],
    ) -> None:
        self._parted = {key: set(ids) for key, ids in shown.items()}
        self._came = came
        self._away = away
        self._decided: dict[tuple[str, EventKey], tuple[Position, list[str]]] = {}

    def part(self, position: Position, tenant: str, pairs: Iterable[tuple[str, str]]) -> None:
        """Pairs are dropped."""
        for first, second in pairs:
            self._parted.setdefault((tenant, first), set()).add(second)
            self._decide(position, (tenant, first))

    def move(self, position: Position, tenant: str, event_ids: Iterable[str]) -> None:
        """Events leave, or come back."""
        for event_id in event_ids:
            if self._parted.get((tenant, event_id)):
                self._decide(position, (tenant, event_id))

    def _decide(self, position: Position, key: EventKey) -> None:
        """The tombstone has the list while the event is away, the event while it is there."""
        away = self._away(key)
        if not away and not self._came(key, position):
            return
        ids = sorted(self._parted[key])[-MAX_DROPPED:]
        self._decided[FORGOTTEN.label if away else EVENT.label, key] = position, ids
        if away:  # with all that its node held
            self._decided.pop((EVENT.label, key), None)

    def operations(self) -> Iterator[DecideNode]:
        """The lists, where they belong."""
        for (label, key), (position, ids) in self._decided.items():
            yield DecideNode(label=label, key=key, name="parted_from", value=ids, position=position)
