"""What browsing asks the graph: lists of entities, one with its events, summaries and episodes.

Pages go on from where the last one ended, by the values they are sorted by: what comes or goes
meanwhile neither repeats nor hides anything else. Every question has the tenant in its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from neo4j.time import DateTime

from enrichment.names import components
from pipelines.graph.reader import GraphNode, GraphRead, node_columns
from pipelines.graph.reads.facts import ENTITY_COLUMNS, IS_KNOWN, FactReads, entity_name
from pipelines.graph.rows import EntityName
from projections.schema import (
    COMMUNITY,
    ENTITY,
    EVENT,
    LINKED_TO,
    MEMBER_OF,
    REFERENCES,
    SAME_AS,
    SUMMARIZES,
    SUMMARY,
)

MAX_PREFIXED: Final = 200
MAX_LINKS: Final = 50
MAX_COUNTED: Final = 10_000
"""Entities of a tenant among which the most mentioned are looked for."""

_TYPED = (
    "CASE WHEN $type IS NULL THEN true ELSE coalesce(n.corrected_type, n.entity_type) = $type END"
)
_BY_NAME = f"USING INDEX n:{ENTITY.label}({', '.join(ENTITY.indexes[0])})"

LISTED: Final = f"""
MATCH (n:{ENTITY.label}) {_BY_NAME}
WHERE n.tenant = $tenant AND n.canonical_name >= $name AND {IS_KNOWN} AND {_TYPED}
  AND CASE WHEN n.canonical_name = $name THEN n.entity_id > $id ELSE true END
RETURN {ENTITY_COLUMNS}, n.canonical_name AS canonical_name
ORDER BY n.canonical_name, n.entity_id LIMIT $limit
"""
MOST_MENTIONED: Final = f"""
MATCH (n:{ENTITY.label}) {_BY_NAME}
WHERE n.tenant = $tenant AND n.canonical_name IS NOT NULL AND n.entity_id IS NOT NULL AND {IS_KNOWN}
WITH n LIMIT $most
WITH n, COUNT {{ (n)<-[:{REFERENCES.type}]-() }} AS mentions
ORDER BY mentions DESC, n.entity_id LIMIT $limit
RETURN n.entity_id AS entity_id
"""
PREFIXED: Final = f"""
MATCH (n:{ENTITY.label}) {_BY_NAME}
WHERE n.tenant = $tenant AND n.canonical_name STARTS WITH $name AND {IS_KNOWN}
RETURN {ENTITY_COLUMNS}
ORDER BY n.canonical_name, n.entity_id LIMIT $limit
"""
ENTITIES: Final = f"""
UNWIND $ids AS id
MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}})
WHERE {IS_KNOWN}
RETURN {node_columns("n", ENTITY)} AS node,
       COUNT {{ (n)<-[:{REFERENCES.type}]-() }} AS mentions,
       head([(n)-[:{MEMBER_OF.type}]->(c:{COMMUNITY.label} {{tenant: $tenant}})
             WHERE NOT c:{COMMUNITY.placeholder} AND NOT coalesce(c.gone, false)
             | {node_columns("c", COMMUNITY)}]) AS community,
       [(n)-[s:{SAME_AS.type}]-(o:{ENTITY.label} {{tenant: $tenant}})
        WHERE NOT coalesce(s.retracted, false) | [o.entity_id, s.confidence, s.justification]]
       AS same
"""
# A user's events are shown to who asks for that user, or for no user in particular.
EVENTS_OF: Final = f"""
UNWIND $ids AS id
MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}})<-[:{REFERENCES.type}]-
      (e:{EVENT.label} {{tenant: $tenant}})
WHERE NOT e:{EVENT.placeholder}
  AND CASE WHEN $user_id IS NULL OR e.user_id IS NULL THEN true ELSE e.user_id = $user_id END
  AND e.occurred_at <= datetime({{epochMillis: $at}})
  AND CASE WHEN e.occurred_at = datetime({{epochMillis: $at}}) THEN e.event_id > $id ELSE true END
WITH DISTINCT e ORDER BY e.occurred_at DESC, e.event_id LIMIT $limit
RETURN {node_columns("e", EVENT)} AS node
"""
MENTIONED: Final = f"""
UNWIND $events AS id
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})-[r:{REFERENCES.type}]->
      (n:{ENTITY.label} {{tenant: $tenant}})
WHERE n.entity_id IN $ids
RETURN id AS source, n.entity_id AS target, r.role AS role ORDER BY source, target, role
"""
_SUMMARY_COLUMNS = node_columns("s", SUMMARY)
_WRITTEN = f"NOT s:{SUMMARY.placeholder} AND NOT coalesce(s.gone, false)"
SUMMARY_OF: Final = f"""
MATCH (s:{SUMMARY.label} {{tenant: $tenant, summary_id: $id}})
WHERE {_WRITTEN}
RETURN {_SUMMARY_COLUMNS} AS node
"""
BELOW: Final = f"""
MATCH (:{SUMMARY.label} {{tenant: $tenant, summary_id: $id}})-[:{SUMMARIZES.type}]->
      (s:{SUMMARY.label} {{tenant: $tenant}})
WHERE {_WRITTEN}
WITH s, coalesce(head(s.time_range).epochMillis, 0) AS began
WHERE began >= $began AND CASE WHEN began = $began THEN s.summary_id > $after ELSE true END
RETURN {_SUMMARY_COLUMNS} AS node
ORDER BY began, s.summary_id LIMIT $limit
"""
LINKS: Final = f"""
MATCH (:{SUMMARY.label} {{tenant: $tenant, summary_id: $id}})-[r:{LINKED_TO.type}]-
      (s:{SUMMARY.label} {{tenant: $tenant}})
WHERE {_WRITTEN}
RETURN s.summary_id AS summary_id, s.scope AS scope, s.scope_id AS scope_id, r.reason AS reason,
       r.score AS score, r.evidence AS evidence, r.resolution_event_id AS resolution_event_id,
       r.event_id AS event_id
ORDER BY score DESC, summary_id, reason LIMIT $limit
"""
COMMUNITIES: Final = f"""
MATCH (c:{COMMUNITY.label})
WHERE c.tenant = $tenant AND c.community_id > $after AND NOT c:{COMMUNITY.placeholder}
  AND NOT coalesce(c.gone, false)
RETURN {node_columns("c", COMMUNITY)} AS node
ORDER BY c.community_id LIMIT $limit
"""


class EntityNode(NamedTuple):
    """An entity as the graph has it.

    Attributes:
        mentions: events that reference it.
        community: of which it is a member; None: of none.
        same: what it was found to be the same as: id, confidence, justification.
    """

    node: GraphNode
    mentions: int
    community: GraphNode | None
    same: Sequence[tuple[str, float | None, str | None]]


class Mention(NamedTuple):
    """That an event mentions an entity."""

    event_id: str
    entity_id: str
    role: str


class Link(NamedTuple):
    """A session that another one is linked to, and why."""

    summary_id: str
    scope: str
    scope_id: str
    reason: str
    score: float | None
    evidence: Sequence[str]
    resolution_event_id: str | None
    event_id: str | None


class EntityGroup(NamedTuple):
    """What was found to be one entity.

    Attributes:
        canonical: id of the member that stands for all; one that has been mentioned.
        ids: of all members, those that were never mentioned included, sorted.
        members: those that were mentioned, by id.
    """

    canonical: str
    ids: Sequence[str]
    members: Mapping[str, EntityNode]

    @property
    def mentions(self) -> int:
        """Events that mention it under any of its names."""
        return sum(member.mentions for member in self.members.values())

    @property
    def community(self) -> GraphNode | None:
        """Of which it is a member; None: of none."""
        communities = (member.community for member in self.members.values())
        return next(filter(None, communities), None)


def shown_name(properties: Mapping[str, Any]) -> str:
    """What an entity is called: by a person, else as it was seen first."""
    for name in ("display_name", "name", "canonical_name"):
        if properties.get(name):
            return str(properties[name])
    return ""


def shown_type(properties: Mapping[str, Any]) -> str | None:
    """What an entity is: by a person's correction, else as it was seen first."""
    return properties.get("corrected_type") or properties.get("entity_type")


class EntityReads:
    """Questions asked in one read transaction, for one tenant."""

    def __init__(self, graph: GraphRead, tenant: str) -> None:
        self._graph = graph
        self._tenant = tenant

    def listed(
        self, after: tuple[str, str], entity_type: str | None, limit: int
    ) -> list[tuple[str, EntityName]]:
        """Entities behind (canonical name, id), sorted by both, with their canonical names."""
        name, own_id = after
        rows = self._rows(LISTED, name=name, id=own_id, type=entity_type, limit=limit)
        return [(row["canonical_name"], entity_name(row)) for row in rows]

    def most_mentioned(self, limit: int) -> list[str]:
        """Ids of the entities that events mention most, among the first MAX_COUNTED by name."""
        rows = self._rows(MOST_MENTIONED, most=MAX_COUNTED, limit=limit)
        return [row["entity_id"] for row in rows]

    def prefixed(self, canonical_name: str) -> list[EntityName]:
        """The first entities whose canonical name begins so, sorted by it."""
        rows = self._rows(PREFIXED, name=canonical_name, limit=MAX_PREFIXED)
        return [entity_name(row) for row in rows]

    def entities(self, ids: Sequence[str]) -> dict[str, EntityNode]:
        """Entities with what belongs to them, by id."""
        entities = {}
        for row in self._rows(ENTITIES, ids=list(ids)):
            community = row["community"]
            entities[row["node"]["entity_id"]] = EntityNode(
                _node(ENTITY.label, "entity_id", row["node"]),
                row["mentions"],
                None if community is None else _node(COMMUNITY.label, "community_id", community),
                sorted({(edge[0], edge[1], edge[2]) for edge in row["same"]}),
            )
        return entities

    def group(self, ids: Sequence[str]) -> EntityGroup | None:
        """All that is the same as the most mentioned of some entities; None: nobody mentions any.

        Args:
            ids: of entities that a caller may mean.
        """
        nodes = self.entities(ids)
        if not nodes:
            return None
        own_id = max(nodes, key=lambda entity_id: (nodes[entity_id].mentions, entity_id))
        pairs = FactReads(self._graph, self._tenant).same_as([own_id])
        together = sorted({own_id, *(entity_id for pair in pairs for entity_id in pair)})
        members = self.entities(together)
        canonical = components(pairs).get(own_id, own_id)
        if canonical not in members:  # the smallest id has never been mentioned
            canonical = min(members)
        return EntityGroup(canonical, together, members)

    def events_of(
        self, ids: Sequence[str], before: tuple[int, str], user_id: str | None, limit: int
    ) -> list[GraphNode]:
        """Events that mention any of the entities, the newest first, behind (time, event id)."""
        at_ms, event_id = before
        rows = self._rows(
            EVENTS_OF, ids=list(ids), at=at_ms, id=event_id, user_id=user_id, limit=limit
        )
        return [_node(EVENT.label, "event_id", row["node"]) for row in rows]

    def mentioned(self, event_ids: Sequence[str], ids: Sequence[str]) -> list[Mention]:
        """Which of the events mention which of the entities, as what."""
        rows = self._rows(MENTIONED, events=list(event_ids), ids=list(ids))
        return [Mention(row["source"], row["target"], row["role"]) for row in rows]

    def summary(self, summary_id: str) -> GraphNode | None:
        """A summary; None: nobody has written it, or it is gone."""
        for row in self._rows(SUMMARY_OF, id=summary_id):
            return _node(SUMMARY.label, "summary_id", row["node"])
        return None

    def below(self, summary_id: str, after: tuple[int, str], limit: int) -> list[GraphNode]:
        """The summaries that a summary is made from, by when they begin, behind (time, id)."""
        began_ms, own_id = after
        rows = self._rows(BELOW, id=summary_id, began=began_ms, after=own_id, limit=limit)
        return [_node(SUMMARY.label, "summary_id", row["node"]) for row in rows]

    def links(self, summary_id: str) -> list[Link]:
        """The sessions that a session is linked to, the strongest first."""
        rows = self._rows(LINKS, id=summary_id, limit=MAX_LINKS)
        nodes = []
        for row in rows:
            values = {name: row[name] for name in Link._fields}
            nodes.append(Link(**{**values, "evidence": values["evidence"] or []}))
        return nodes

    def communities(self, after: str, limit: int) -> list[GraphNode]:
        """Communities behind an id, sorted by it."""
        rows = self._rows(COMMUNITIES, after=after, limit=limit)
        return [_node(COMMUNITY.label, "community_id", row["node"]) for row in rows]

    def _rows(self, text: str, **parameters: Any) -> list[Any]:
        return list(self._graph.rows(text, tenant=self._tenant, **parameters))


def _node(label: str, key: str, columns: Mapping[str, Any]) -> GraphNode:
    properties = {name: _plain(value) for name, value in columns.items() if value is not None}
    return GraphNode(label, properties.pop(key), properties)


def _plain(value: Any) -> Any:
    """Lists of times as milliseconds."""
    if isinstance(value, list) and value and isinstance(value[0], DateTime):
        return [round(moment.to_native().timestamp() * 1000) for moment in value]
    return value
