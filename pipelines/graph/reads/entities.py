"""What browsing asks the graph: lists of entities, one with its events, summaries and episodes.

Pages go on from where the last one ended, by the values they are sorted by: what comes or goes
meanwhile neither repeats nor hides anything else. Every question begins at nodes of the tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from neo4j.time import DateTime

from consolidation.summary_payloads import Scope as SummaryScope
from consolidation.summary_payloads import summary_ids_seen
from enrichment.names import components
from pipelines.graph.patterns import edges_at, index_seek
from pipelines.graph.reader import GraphNode, node_columns
from pipelines.graph.reads.facts import (
    BY_NAME,
    ENTITY_COLUMNS,
    ENTITY_NODE,
    IS_KNOWN,
    entity_name,
    seen_entity,
)
from pipelines.graph.reads.scope import (
    ScopedReads,
    allowed,
    match_by_id,
    stands,
    summaries_of,
    visible,
)
from pipelines.graph.rows import EntityName
from projections.identity import SEPARATOR
from projections.schema import (
    COMMUNITY,
    ENTITY,
    LINKED_TO,
    MEMBER_OF,
    REFERENCES,
    SAME_AS,
    SUMMARIZES,
    SUMMARY,
    TRAIT,
    TRAIT_EDGES,
)

MAX_PREFIXED: Final = 200
MAX_LINKS: Final = 50
MAX_PARTS: Final = 200
"""Summaries of one session, one for each of its users, that an operator is shown."""
MAX_COUNTED: Final = 10_000
"""Entities of a tenant among which the most mentioned are looked for."""

_TYPED = (
    "CASE WHEN $type IS NULL THEN true ELSE coalesce(n.corrected_type, n.entity_type) = $type END"
)

LISTED: Final = f"""
MATCH (n:{ENTITY.label}) {BY_NAME}
WHERE n.tenant = $tenant AND n.canonical_name >= $name AND {IS_KNOWN} AND {_TYPED}
  AND CASE WHEN n.canonical_name = $name THEN n.entity_id > $id ELSE true END
RETURN {ENTITY_COLUMNS}, n.canonical_name AS canonical_name
ORDER BY n.canonical_name, n.entity_id LIMIT $limit
"""
MOST_MENTIONED: Final = f"""
MATCH (n:{ENTITY.label}) {BY_NAME}
WHERE n.tenant = $tenant AND n.canonical_name IS NOT NULL AND n.entity_id IS NOT NULL AND {IS_KNOWN}
WITH n LIMIT $most
WITH n, COUNT {{ (n)<-[:{REFERENCES.type}]-() }} AS mentions
ORDER BY mentions DESC, n.entity_id LIMIT $limit
RETURN n.entity_id AS entity_id
"""
PREFIXED: Final = f"""
MATCH (n:{ENTITY.label}) {BY_NAME}
WHERE n.tenant = $tenant AND n.canonical_name STARTS WITH $name AND {IS_KNOWN}
RETURN {ENTITY_COLUMNS}
ORDER BY n.canonical_name, n.entity_id LIMIT $limit
"""
ENTITIES: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
WHERE {IS_KNOWN}
RETURN {ENTITY_NODE} AS node,
       head([(n)-[:{MEMBER_OF.type}]->(c:{COMMUNITY.label} {{tenant: $tenant}})
             WHERE {visible(COMMUNITY, "c")} | {node_columns("c", COMMUNITY)}]) AS community,
       [(n)-[s:{SAME_AS.type}]-(o:{ENTITY.label} {{tenant: $tenant}})
        WHERE NOT coalesce(s.retracted, false) AND {visible(ENTITY, "o")}
        | [o.entity_id, s.confidence, s.justification]]
       AS same
"""
_SUMMARY_COLUMNS = node_columns("s", SUMMARY)
_WRITTEN = visible(SUMMARY, "s")
SUMMARIES_OF: Final = f"""
UNWIND $ids AS id
{match_by_id("s", SUMMARY)}
WHERE {_WRITTEN}
RETURN {_SUMMARY_COLUMNS} AS node
"""
SUMMARIES_IN: Final = f"""
{summaries_of("s", "$session_id")}
  AND s.scope = $kind AND s.scope_id = $scope_id AND {_WRITTEN}
RETURN {_SUMMARY_COLUMNS} AS node
ORDER BY size(coalesce(s.user_ids, [])), s.user_ids, s.summary_id LIMIT {MAX_PARTS}
"""
BELOW: Final = f"""
UNWIND $ids AS id
{match_by_id("p", SUMMARY)}
MATCH (p)-[:{SUMMARIZES.type}]->(s:{SUMMARY.label} {{tenant: $tenant}})
WHERE {_WRITTEN}
WITH DISTINCT s, coalesce(head(s.time_range).epochMillis, 0) AS began
WHERE began >= $began AND CASE WHEN began = $began THEN s.summary_id > $after ELSE true END
RETURN {_SUMMARY_COLUMNS} AS node
ORDER BY began, s.summary_id LIMIT $limit
"""
LINKS: Final = f"""
{match_by_id("p", SUMMARY, "$id")}
MATCH (p)-[r:{LINKED_TO.type}]-(s:{SUMMARY.label} {{tenant: $tenant}})
WHERE {_WRITTEN} AND {visible(SUMMARY, "p")}
RETURN s.summary_id AS summary_id, s.scope AS scope, s.scope_id AS scope_id, r.reason AS reason,
       r.score AS score, r.evidence AS evidence, r.resolution_event_id AS resolution_event_id,
       r.event_id AS event_id
ORDER BY score DESC, summary_id, reason LIMIT $limit
"""
COMMUNITIES: Final = f"""
MATCH (c:{COMMUNITY.label}) {index_seek("c", COMMUNITY)}
WHERE c.tenant = $tenant AND c.community_id > $after AND {visible(COMMUNITY, "c")}
RETURN {node_columns("c", COMMUNITY)} AS node
ORDER BY c.community_id LIMIT $limit
"""
COMMUNITY_OF: Final = f"""
{match_by_id("c", COMMUNITY, "$id")}
WHERE {visible(COMMUNITY, "c")}
RETURN {node_columns("c", COMMUNITY)} AS node
"""
_TRAIT_TYPES = "|".join(row.type for row in TRAIT_EDGES.values())
TRAITS: Final = f"""
UNWIND $ids AS id
{match_by_id("n", ENTITY)}
MATCH (n)-[:{_TRAIT_TYPES}]->(t:{TRAIT.label} {{tenant: $tenant}})
WHERE {visible(TRAIT, "t")}
WITH DISTINCT t
RETURN {node_columns("t", TRAIT)} AS node
ORDER BY t.session_count DESC, t.strength DESC, t.trait_id
"""
_IN_COMMUNITY = f"""
{match_by_id("c", COMMUNITY, "$id")}
WHERE {visible(COMMUNITY, "c")}
{edges_at("c", MEMBER_OF.type, "n", leaves=False)}
WITH n WHERE n:{ENTITY.label} AND n.tenant = $tenant"""
MEMBERS: Final = f"""{_IN_COMMUNITY} AND n.entity_id > $after
WITH n WHERE {IS_KNOWN}
RETURN n.entity_id AS entity_id ORDER BY entity_id LIMIT $limit
"""


# What is kept from the viewer beside an answer; of many, the first MAX_COUNTED are looked at.
WITHHELD_ENTITIES: Final = f"""
MATCH (n:{ENTITY.label}) {BY_NAME}
WHERE n.tenant = $tenant AND n.canonical_name >= $name
  AND CASE WHEN n.canonical_name = $name THEN n.entity_id > $id ELSE true END
  AND CASE WHEN $last IS NULL THEN true ELSE n.canonical_name <= $last END
  AND {stands(ENTITY, "n")} AND {_TYPED}
WITH n LIMIT {MAX_COUNTED}
WITH n WHERE NOT {allowed(ENTITY, "n")}
RETURN count(n) AS withheld
"""
WITHHELD_BELOW: Final = f"""
UNWIND $ids AS id
{match_by_id("p", SUMMARY)}
MATCH (p)-[:{SUMMARIZES.type}]->(s:{SUMMARY.label} {{tenant: $tenant}})
WITH DISTINCT s LIMIT {MAX_COUNTED}
WITH s WHERE {stands(SUMMARY, "s")} AND NOT {allowed(SUMMARY, "s")}
RETURN count(s) AS withheld
"""


WITHHELD_MEMBERS: Final = f"""{_IN_COMMUNITY}
WITH n LIMIT {MAX_COUNTED}
WITH n WHERE {stands(ENTITY, "n")} AND NOT {allowed(ENTITY, "n")}
RETURN count(n) AS withheld
"""
WITHHELD_COMMUNITIES: Final = f"""
MATCH (c:{COMMUNITY.label}) {index_seek("c", COMMUNITY)}
WHERE c.tenant = $tenant AND c.community_id > $after
WITH c LIMIT {MAX_COUNTED}
WITH c WHERE {stands(COMMUNITY, "c")} AND NOT {allowed(COMMUNITY, "c")}
RETURN count(c) AS withheld
"""


class EntityNode(NamedTuple):
    """An entity as the graph has it.

    Attributes:
        community: of which it is a member; None: of none.
        same: what it was found to be the same as: id, confidence, justification.
    """

    node: GraphNode
    community: GraphNode | None
    same: Sequence[tuple[str, float | None, str | None]]


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
        canonical: id of the member that stands for all; one that the viewer knows.
        ids: of all members, those that the viewer does not know included, sorted.
        mentions: how many events mention a member that the viewer knows, by id.
    """

    canonical: str
    ids: Sequence[str]
    mentions: Mapping[str, int]

    @property
    def mention_count(self) -> int:
        """Events that mention it, one under several of its names once for each."""
        return sum(self.mentions.values())


class GroupReads(Protocol):
    """What tells which entities are one."""

    def same_as(self, ids: Iterable[str]) -> list[tuple[str, str]]:
        """Pairs that were found to be the same, from the ids on as far as five steps lead."""
        ...

    def mentioned(self, ids: Iterable[str]) -> dict[str, int]:
        """How many events that the viewer sees mention an entity that it knows, by id."""
        ...


def group_of(reads: GroupReads, ids: Sequence[str]) -> EntityGroup | None:
    """All that is the same as the most mentioned of some entities; None: the viewer knows none.

    Args:
        reads: of the viewer.
        ids: of entities that a caller may mean.
    """
    mentions = reads.mentioned(ids)
    if not mentions:
        return None
    own_id = max(mentions, key=lambda entity_id: (mentions[entity_id], entity_id))
    pairs = reads.same_as([own_id])
    together = sorted({own_id, *(entity_id for pair in pairs for entity_id in pair)})
    more = [entity_id for entity_id in together if entity_id not in mentions]
    if more:
        mentions |= reads.mentioned(more)
    members = {entity_id: mentions[entity_id] for entity_id in together if entity_id in mentions}
    canonical = components(pairs).get(own_id, own_id)
    if canonical not in members:  # the smallest id has never been mentioned
        canonical = min(members)
    return EntityGroup(canonical, together, members)


def community_of(members: Mapping[str, EntityNode]) -> GraphNode | None:
    """The community of what is one entity; None: it is of none."""
    return next(filter(None, (member.community for member in members.values())), None)


def shown_name(properties: Mapping[str, Any]) -> str:
    """What an entity is called: by a person, else as it was seen first."""
    for name in ("display_name", "name", "canonical_name"):
        if properties.get(name):
            return str(properties[name])
    return ""


def shown_type(properties: Mapping[str, Any]) -> str | None:
    """What an entity is: by a person's correction, else as it was seen first."""
    return properties.get("corrected_type") or properties.get("entity_type")


class EntityReads(ScopedReads):
    """Entities and summaries as one viewer sees them."""

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

    def entities(
        self, ids: Sequence[str], supporting: Mapping[str, Sequence[str]]
    ) -> dict[str, EntityNode]:
        """Entities with what belongs to them, by id; `supporting` as for `nodes`."""
        entities: dict[str, EntityNode] = {}
        if not ids:
            return entities
        for row in self._rows(ENTITIES, ids=list(ids), supporting=supporting):
            community = row["community"]
            entities[row["node"]["entity_id"]] = EntityNode(
                _node(ENTITY.label, "entity_id", seen_entity(row["node"], self._scope)),
                None if community is None else _node(COMMUNITY.label, "community_id", community),
                sorted({(edge[0], edge[1], edge[2]) for edge in row["same"]}),
            )
        return entities

    def summaries(self, summary_ids: Sequence[str]) -> list[GraphNode]:
        """Of some summaries those that are written and not gone, in the order of the ids."""
        rows = self._rows(SUMMARIES_OF, ids=list(summary_ids))
        nodes = [_node(SUMMARY.label, "summary_id", row["node"]) for row in rows]
        return sorted(nodes, key=lambda node: summary_ids.index(node.node_id))

    def summaries_told(self, scope: SummaryScope, scope_id: str) -> list[GraphNode]:
        """What the viewer is told of a scope: their own part, then nobody's; an operator of all.

        No index leads from an agent to its users: an operator names the user, or asks for the
        sessions.
        """
        viewer = self._scope
        if viewer.everyone and scope != "agent":
            return self.summaries_in(scope_id.split(SEPARATOR)[0], scope, scope_id)
        return self.summaries(summary_ids_seen(viewer.tenant, scope, scope_id, viewer.user_id))

    def summaries_in(self, session_id: str, scope: str, scope_id: str) -> list[GraphNode]:
        """All that was told of a session, or of an episode of it: of nobody first, then by user."""
        rows = self._rows(SUMMARIES_IN, session_id=session_id, kind=scope, scope_id=scope_id)
        return [_node(SUMMARY.label, "summary_id", row["node"]) for row in rows]

    def below(
        self, summary_ids: Sequence[str], after: tuple[int, str], limit: int
    ) -> list[GraphNode]:
        """What some summaries are made from, by when it begins, behind (time, id)."""
        began_ms, own_id = after
        rows = self._rows(BELOW, ids=list(summary_ids), began=began_ms, after=own_id, limit=limit)
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

    def community(self, community_id: str) -> GraphNode | None:
        """A community; None: it is not there, or not to be seen."""
        for row in self._rows(COMMUNITY_OF, id=community_id):
            return _node(COMMUNITY.label, "community_id", row["node"])
        return None

    def traits(self, ids: Sequence[str]) -> list[GraphNode]:
        """What is derived of users, by their entities, of all kinds: what most sessions show."""
        rows = self._rows(TRAITS, ids=list(ids))
        return [_node(TRAIT.label, "trait_id", row["node"]) for row in rows]

    def members(self, community_id: str, after: str, limit: int) -> list[str]:
        """Ids of the entities of a community behind an id, sorted."""
        rows = self._rows(MEMBERS, id=community_id, after=after, limit=limit)
        return [row["entity_id"] for row in rows]

    def withheld_entities(
        self, after: tuple[str, str], last: str | None, entity_type: str | None
    ) -> int:
        """How many entities of a page are kept from the viewer.

        Args:
            after: (canonical name, id) behind which the page begins.
            last: the canonical name at which it ends; None: it goes to the end of all.
            entity_type: of these; None: of all.
        """
        name, own_id = after
        return self._count(WITHHELD_ENTITIES, name=name, id=own_id, last=last, type=entity_type)

    def withheld_below(self, summary_ids: Sequence[str]) -> int:
        """How many of the summaries that a summary is made from are kept from the viewer."""
        return self._count(WITHHELD_BELOW, ids=list(summary_ids))

    def withheld_members(self, community_id: str) -> int:
        """How many of the entities of a community are kept from the viewer."""
        return self._count(WITHHELD_MEMBERS, id=community_id)

    def withheld_communities(self, after: str) -> int:
        """How many communities behind an id are kept from the viewer."""
        return self._count(WITHHELD_COMMUNITIES, after=after)

    def _count(self, text: str, **parameters: Any) -> int:
        (row,) = self._rows(text, **parameters)
        return int(row["withheld"])


def _node(label: str, key: str, columns: Mapping[str, Any]) -> GraphNode:
    properties = {name: _plain(value) for name, value in columns.items() if value is not None}
    return GraphNode(label, properties.pop(key), properties)


def _plain(value: Any) -> Any:
    """Lists of times as milliseconds."""
    if isinstance(value, list) and value and isinstance(value[0], DateTime):
        return [round(moment.to_native().timestamp() * 1000) for moment in value]
    return value
