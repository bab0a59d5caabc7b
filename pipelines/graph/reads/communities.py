"""What a pass reads to find communities, page by page, and to say what they are about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from consolidation.sources import (
    READ_FACTS,
    SHARED,
    Described,
    InnerFact,
    LinkingFact,
    NamedEntity,
)
from enrichment.names import VALUE
from pipelines.graph.client import GraphClient
from projections.identity import Position
from projections.schema import COMMUNITY, ENTITY, MEMBER_OF, RELATES_TO, SAME_AS

ENTITIES_AT_ONCE: Final = 2_000
COMMUNITIES_AT_ONCE: Final = 200
VECTORS_AT_ONCE: Final = 500

_HOLDS = (
    "r.expired_at IS NULL AND r.faded_at IS NULL "
    "AND r.valid_from <= datetime({epochMillis: $now_ms}) "
    "AND CASE WHEN r.valid_to IS NULL THEN true "
    "ELSE r.valid_to > datetime({epochMillis: $now_ms}) END"
)
_ENTITIES = (
    f"MATCH (n:{ENTITY.label}) WHERE n.tenant = $tenant AND n.entity_id > $after "
    "WITH n ORDER BY n.tenant, n.entity_id LIMIT $limit "
    "RETURN n.entity_id AS entity_id, "
    f"COLLECT {{ MATCH (n)-[r:{RELATES_TO.type}]-() WHERE {_HOLDS} "
    "RETURN DISTINCT coalesce(r.user_id, '') LIMIT 2 } AS users, "
    f"[(n)-[s:{SAME_AS.type}]->(o:{ENTITY.label}) WHERE NOT coalesce(s.retracted, false) "
    "| o.entity_id] AS same"
)
_FACTS = (
    f"MATCH (n:{ENTITY.label}) WHERE n.tenant = $tenant "
    "AND $after < n.entity_id <= $last "
    f"MATCH (n)-[r:{RELATES_TO.type}]->(o:{ENTITY.label}) WHERE {_HOLDS} "
    "RETURN n.entity_id AS source_id, o.entity_id AS target_id, "
    "coalesce(o.subtype = $literal, false) AS literal, coalesce(r.user_id, '') AS user, "
    "coalesce(r.confidence, 1.0) AS confidence, "
    "[r.relation, r.edge_type, toString(r.valid_from.epochMillis), r.event_id] AS key"
)
_RECORDED = (
    f"MATCH (c:{COMMUNITY.label}) WHERE c.tenant = $tenant AND c.community_id > $after "
    "WITH c ORDER BY c.tenant, c.community_id LIMIT $limit "
    "RETURN c.community_id AS community_id, c.fingerprint AS fingerprint, "
    "coalesce(c.user_id, '') AS user, coalesce(c.gone, false) AS gone, "
    "c.decided_at AS decided_at, c.gone_decided_at AS gone_decided_at, "
    f"[(c)<-[:{MEMBER_OF.type}]-(n:{ENTITY.label}) | n.entity_id] AS members"
)
_NAMES = (
    f"UNWIND $ids AS id MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}}) "
    "RETURN id, coalesce(n.display_name, n.name, n.canonical_name, '') AS name, "
    "coalesce(n.corrected_type, n.entity_type, '') AS entity_type, n.subtype AS subtype"
)
_INNER_FACTS = (
    f"UNWIND $ids AS id MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}}) "
    "CALL (n) { "
    f"MATCH (n)-[r:{RELATES_TO.type}]-(:{ENTITY.label}) "
    f"WHERE {_HOLDS} AND coalesce(r.user_id, '') = $user "
    "RETURN r ORDER BY r.confidence DESC, r.support_count DESC, r.fact LIMIT $most } "
    "WITH DISTINCT r, startNode(r) AS a, endNode(r) AS b "
    "RETURN a.entity_id AS source_id, b.entity_id AS target_id, "
    "coalesce(b.subtype = $literal, false) AS literal, coalesce(r.fact, '') AS fact, "
    "coalesce(r.confidence, 1.0) AS confidence, coalesce(r.support_count, 1) AS support_count"
)
_VECTORS = (
    f"UNWIND $ids AS id MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}}) "
    f"WHERE n.{ENTITY.vector} IS NOT NULL RETURN n.{ENTITY.vector} AS vector"
)


class RecordedCommunity(NamedTuple):
    """A community as the graph shows it.

    Attributes:
        fingerprint: None: it is no more.
        user: whose facts made it, or SHARED.
        decided_at: position of what was decided of it last; None: nothing yet.
        members: entity ids.
    """

    fingerprint: str | None
    user: str
    decided_at: Position | None
    members: tuple[str, ...]


class CommunityReader(GraphClient):
    """Answers the part of a pass that finds communities."""

    def entities(self, tenant: str, now_ms: int) -> Iterator[list[NamedEntity]]:
        """All entities, page by page, sorted; facts that name them hold at `now_ms`."""
        after = ""
        while True:
            rows = self.ask(
                _ENTITIES, tenant=tenant, after=after, limit=ENTITIES_AT_ONCE, now_ms=now_ms
            )
            if not rows:
                return
            after = rows[-1]["entity_id"]
            yield [NamedEntity(row["entity_id"], row["users"], row["same"]) for row in rows]

    def facts(
        self, tenant: str, after: str, last: str, now_ms: int, chunk_edges: int
    ) -> Iterator[list[LinkingFact]]:
        """The facts about a page of entities, so many in memory at once.

        Args:
            tenant: of the entities.
            after: id before the first entity of the page.
            last: id of the last one.
            now_ms: when the facts hold.
            chunk_edges: at least 1.
        """
        chunk: list[LinkingFact] = []
        rows = self.stream(
            _FACTS,
            chunk_edges,
            tenant=tenant,
            after=after,
            last=last,
            now_ms=now_ms,
            literal=VALUE,
        )
        for row in rows:
            source_id, target_id, literal, user, confidence, key = row.values()
            chunk.append(
                LinkingFact(
                    source_id=source_id,
                    target_id=target_id,
                    literal=literal,
                    user=user,
                    confidence=confidence,
                    key=tuple(key),
                )
            )
            if len(chunk) == chunk_edges:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def recorded(self, tenant: str) -> dict[str, RecordedCommunity]:
        """All communities by id, those that are no more included."""
        found: dict[str, RecordedCommunity] = {}
        after = ""
        while rows := self.ask(_RECORDED, tenant=tenant, after=after, limit=COMMUNITIES_AT_ONCE):
            after = rows[-1]["community_id"]
            for row in rows:
                positions = [row["decided_at"], row["gone_decided_at"]]
                found[row["community_id"]] = RecordedCommunity(
                    None if row["gone"] else row["fingerprint"],
                    row["user"],
                    max((Position(*one) for one in positions if one), default=None),
                    tuple(row["members"]),
                )
        return found

    def described(self, tenant: str, entity_ids: Sequence[str]) -> dict[str, Described]:
        """What entities are called, by id."""
        rows = self.ask(_NAMES, tenant=tenant, ids=list(entity_ids))
        return {
            row["id"]: Described(row["name"], row["entity_type"], row["subtype"]) for row in rows
        }

    def inner_facts(
        self, tenant: str, entity_ids: Sequence[str], user: str, now_ms: int
    ) -> list[InnerFact]:
        """The strongest facts of a user, or of nobody, that name these entities.

        Args:
            tenant: of the entities.
            entity_ids: few.
            user: whose facts, or SHARED.
            now_ms: when the facts hold.
        """
        rows = self.ask(
            _INNER_FACTS,
            tenant=tenant,
            ids=list(entity_ids),
            user=user,
            now_ms=now_ms,
            most=5 * READ_FACTS,
            literal=VALUE,
        )
        return [
            InnerFact(
                source_id=row["source_id"],
                target_id=None if row["literal"] else row["target_id"],
                fact=row["fact"],
                confidence=row["confidence"],
                support_count=row["support_count"],
            )
            for row in rows
        ]

    def vectors(self, tenant: str, entity_ids: Sequence[str]) -> Iterator[bytes]:
        """The vectors of entities that have one, as little-endian float32."""
        for start in range(0, len(entity_ids), VECTORS_AT_ONCE):
            part = list(entity_ids[start : start + VECTORS_AT_ONCE])
            for row in self.ask(_VECTORS, tenant=tenant, ids=part):
                yield np.asarray(row["vector"], dtype="<f4").tobytes()


def user_of(owner: str) -> str | None:
    """The user that owns it; None: it is shared."""
    return None if owner == SHARED else owner
