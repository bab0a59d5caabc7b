"""What forgetting reads of the graph, page by page; it writes nothing.

Events, entities and facts are read once a pass, in the order of an index, so that memory is bounded
by a page. Every question has the tenant in the key of its pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import neo4j

from consolidation.decay import Retrievals
from consolidation.forgetting import RetainedEntity, RetainedFact
from consolidation.forgetting_payloads import FactKey
from consolidation.retention import RetainedEvent
from pipelines.graph.client import GraphClient
from projections.identity import START, Position
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    FORGOTTEN,
    PLACEHOLDER,
    RELATES_TO,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
)

EVENTS_AT_ONCE = 2_000
ENTITIES_AT_ONCE = 2_000
SIMILAR_AT_ONCE = 500
"""Events whose SIMILAR_TO, and those of their neighbours, are read at once."""

_CHAIN = f"USING INDEX e:{EVENT.label}({', '.join(EVENT.indexes[0])})"
_OLD = (
    f"MATCH (e:{EVENT.label}) {_CHAIN} WHERE e.tenant = $tenant AND e.session_id >= $session_id "
    "AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL "
    "AND e.occurred_at <= datetime({epochMillis: $until_ms}) "
    "AND CASE WHEN e.session_id > $session_id THEN true "
    "WHEN e.occurred_at = datetime({epochMillis: $at_ms}) THEN e.event_id > $event_id "
    "ELSE e.occurred_at > datetime({epochMillis: $at_ms}) END "
)
"""Events up to a moment, behind a place in the order of session and time."""
_ORDER = f"ORDER BY {', '.join(f'e.{name}' for name in EVENT.indexes[0])} LIMIT $limit "
_PLACE = "e.session_id AS session_id, e.occurred_at.epochMillis AS occurred_at_ms, "
_ARRIVED = "toInteger(split({0}.global_position, '-')[0])"
_AGE = (
    "e.event_id AS event_id, "
    f"{_ARRIVED.format('e')} AS arrived_ms, e.last_accessed_at.epochMillis AS last_access_ms"
)

_EVENTS = (
    f"{_OLD}WITH e {_ORDER}RETURN {_PLACE}{_AGE}, coalesce(e.access_count, 0) AS access_count, "
    "coalesce(e.importance_score, e.importance_hint, 5) AS importance, "
    "coalesce(e.importance_boost, 0.0) AS boost, "
    f"COUNT {{ MATCH (x:{EVENT.label})-[:{CAUSED_BY.type}]->(e) WHERE NOT x:{PLACEHOLDER} "
    "RETURN DISTINCT x } AS effects, "
    # only a cause that may be protected waits for what becomes of its effects
    f"[(e)-[:{CAUSED_BY.type}]->(c:{EVENT.label}) WHERE NOT c:{PLACEHOLDER} "
    f"AND COUNT {{ (c)<-[:{CAUSED_BY.type}]-() }} >= $protected | c.event_id] AS causes, "
    f"[(s:{SUMMARY.label})-[:{SUMMARIZES.type}]->(e) WHERE NOT s:{SUMMARY.placeholder} "
    "AND s.source_event_ids IS NOT NULL | s.summary_id] AS summaries"
)
_SIMILAR = (
    f"{_OLD}AND COUNT {{ (e)-[:{SIMILAR_TO.type}]-() }} >= $least WITH e {_ORDER}"
    f"RETURN {_PLACE}{_AGE}, [(e)-[s:{SIMILAR_TO.type}]-(o:{EVENT.label}) | "
    "[o.event_id, s.score, o.occurred_at.epochMillis, "
    f"{_ARRIVED.format('o')}, o.last_accessed_at.epochMillis, "
    f"[(o)-[t:{SIMILAR_TO.type}]-(x:{EVENT.label}) | [x.event_id, t.score]]]] AS near"
)
_TOMBSTONES = (
    f"UNWIND $ids AS id MATCH (f:{FORGOTTEN.label} {{tenant: $tenant, event_id: id}}) "
    "RETURN id, f.recalled_decided_at AS decided_at"
)
_ENTITIES = (
    f"MATCH (n:{ENTITY.label}) WHERE n.tenant = $tenant AND n.entity_id > $after "
    f"WITH n ORDER BY n.tenant, n.entity_id LIMIT $limit "
    "RETURN n.entity_id AS entity_id, COUNT { (n)--() } AS edges, "
    f"n:{ENTITY.placeholder} AS hidden, coalesce(n.access_count, 0) AS access_count, "
    "coalesce(n.status, '') = $archived AS archived, n.status_decided_at AS decided_at, "
    f"[(n)-[r:{RELATES_TO.type}]->(o:{ENTITY.label}) WHERE r.valid_to IS NOT NULL "
    "AND r.valid_to <= datetime({epochMillis: $now_ms}) AND r.expired_at IS NULL "
    "AND r.faded_at IS NULL AND r.confidence < $confidence | "
    "[n.entity_id, r.relation, r.edge_type, o.entity_id, r.valid_from.epochMillis, r.event_id, "
    "r.confidence, r.valid_to.epochMillis, r.retrieval_count, "
    "r.last_retrieved_at.epochMillis]] AS facts"
)


class Aged(NamedTuple):
    """What decides how old an event is; see `retention.age_ms`."""

    event_id: str
    occurred_at_ms: int
    arrived_ms: int
    last_access_ms: int | None


class Neighbour(NamedTuple):
    """An event that is alike, how much, and what it is like itself (scores by event id)."""

    aged: Aged
    score: float
    near: Mapping[str, float]


class Alike(NamedTuple):
    """An event and those it is like."""

    aged: Aged
    near: tuple[Neighbour, ...]


class ShownEntity(NamedTuple):
    """An entity, where its status was decided (None: nowhere), and its facts that ended."""

    entity: RetainedEntity
    decided_at: Position | None
    facts: tuple[RetainedFact, ...]


class ForgettingReader(GraphClient):
    """Answers what may be forgotten; safe to share between threads."""

    def events(
        self, tenant: str, *, until_ms: int, protected: int, page: int = EVENTS_AT_ONCE
    ) -> Iterator[list[RetainedEvent]]:
        """Events that occurred until a moment, by session and time, page by page.

        Args:
            tenant: whose.
            until_ms: inclusive.
            protected: `causes` are those that have at least so many edges from effects.
            page: so many at once.
        """
        rows = self.by_place(
            _EVENTS, tenant=tenant, until_ms=until_ms, limit=page, protected=protected
        )
        for some in rows:
            yield [
                RetainedEvent(
                    *_aged(row),
                    access_count=row["access_count"],
                    importance=row["importance"],
                    boost=row["boost"],
                    causal_in_degree=row["effects"],
                    causes=tuple(sorted(set(row["causes"]))),
                    summary_id=min(row["summaries"], default=None),
                )
                for row in some
            ]

    def alike(
        self, tenant: str, *, until_ms: int, least: int, page: int = SIMILAR_AT_ONCE
    ) -> Iterator[list[Alike]]:
        """Events with at least so many SIMILAR_TO that occurred until a moment, page by page."""
        for some in self.by_place(
            _SIMILAR, tenant=tenant, until_ms=until_ms, limit=page, least=least
        ):
            yield [
                Alike(
                    Aged(*_aged(row)),
                    tuple(
                        Neighbour(Aged(other, *times), score, dict(near))
                        for other, score, *times, near in row["near"]
                    ),
                )
                for row in some
            ]

    def tombstones(self, tenant: str, event_ids: Iterable[str]) -> dict[str, Position]:
        """Those of the events that were forgotten once, and where that was last decided of."""
        rows = self.ask(_TOMBSTONES, tenant=tenant, ids=sorted(event_ids))
        return {row["id"]: Position(*(row["decided_at"] or START)) for row in rows}

    def entities(
        self,
        tenant: str,
        *,
        now_ms: int,
        archived: str,
        confidence: float,
        page: int = ENTITIES_AT_ONCE,
    ) -> Iterator[list[ShownEntity]]:
        """Entities by id, each with its facts that ended and have less confidence, page by page."""
        after = ""
        while rows := self.ask(
            _ENTITIES,
            tenant=tenant,
            after=after,
            limit=page,
            now_ms=now_ms,
            archived=archived,
            confidence=confidence,
        ):
            yield [_entity(row) for row in rows if not row["hidden"]]
            after = rows[-1]["entity_id"]


def _aged(row: neo4j.Record) -> tuple[str, int, int, int | None]:
    return row["event_id"], row["occurred_at_ms"], row["arrived_ms"], row["last_access_ms"]


def _entity(row: neo4j.Record) -> ShownEntity:
    decided_at = row["decided_at"]
    facts = []
    for *key, confidence, valid_to_ms, weight, last_ms in row["facts"]:
        retrievals = None if weight is None else Retrievals(weight, last_ms)
        facts.append(RetainedFact(FactKey(*key), confidence, valid_to_ms, retrievals))
    return ShownEntity(
        RetainedEntity(row["entity_id"], row["edges"], row["access_count"], row["archived"]),
        None if decided_at is None else Position(*decided_at),
        tuple(facts),
    )
