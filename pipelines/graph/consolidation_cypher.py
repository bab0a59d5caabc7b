"""What Stage 3 asks of the graph to apply decisions, as Cypher. No driver, no socket.

Every question is answered by a key; `tests/contracts` explains each text.
"""

from __future__ import annotations

from projections.schema import (
    CAUSED_BY,
    CHECKPOINT,
    COMMUNITY,
    CONSOLIDATION_REQUEST,
    DIRECT,
    ENTITY,
    EVENT,
    FORGOTTEN,
    MEMBER_OF,
    PASS,
    PLACEHOLDER,
    RELATES_TO,
    SCOPE,
    SUMMARIZES,
    SUMMARY,
    NodeRow,
)


def _each(name: str, row: NodeRow) -> str:
    """Rows of keys, and the node of each."""
    key = ", ".join(f"{part}: k[{n}]" for n, part in enumerate(row.key))
    return f"UNWIND $keys AS k MATCH ({name}:{row.label} {{{key}}}) "


LOCK_CHAINS = (
    f"UNWIND $keys AS k MATCH (c:{CHECKPOINT.label} {{stage: $stage, partition: k}}) "
    "SET c.lock = true REMOVE c.lock RETURN c.partition AS partition"
)
"""Whoever holds them keeps the projection from changing the chains of those partitions."""

LOCK_SCOPES = (
    f"UNWIND $keys AS k MERGE (s:{SCOPE.label} {{tenant: k[0], session_id: k[1]}}) "
    "SET s.lock = true REMOVE s.lock "
    "RETURN s.tenant AS tenant, s.session_id AS session_id, s.event_count AS event_count, "
    "s.importance_total AS importance_total, s.seen_events AS seen_events, "
    "s.seen_importance AS seen_importance"
)
COUNTED = (
    f"UNWIND $keys AS k OPTIONAL MATCH (e:{EVENT.label} {{tenant: k[0], event_id: k[1]}}) "
    f"OPTIONAL MATCH (f:{FORGOTTEN.label} {{tenant: k[0], event_id: k[1]}}) "
    "RETURN k[0] AS tenant, k[1] AS event_id, "
    "coalesce(e.importance_score, f.importance_score) AS importance, "
    "f IS NOT NULL AND NOT coalesce(f.recalled, false) AS forgotten, "
    "f.session_id IS NOT NULL AS placed"
)
SUMMARIES = (
    _each("s", SUMMARY)
    + "RETURN s.tenant AS tenant, s.summary_id AS summary_id, s.session_id AS session_id, "
    "s.decided_at AS decided_at, s.gone AS gone, s.gone_decided_at AS gone_decided_at, "
    "s.link_count_decided_at AS linked_at, "
    f"[(s)<-[:{SUMMARIZES.type}]-(a:{SUMMARY.label}) | a.summary_id] AS above"
)
SESSIONS_OF_SUMMARIES = (
    _each("s", SUMMARY)
    + "RETURN s.tenant AS tenant, s.summary_id AS id, s.session_id AS session_id"
)
SESSIONS_OF_EVENTS = (
    _each("e", EVENT) + "WITH e WHERE e.session_id IS NOT NULL "
    "RETURN DISTINCT e.tenant AS tenant, e.session_id AS session_id"
)
COMMUNITIES = (
    _each("c", COMMUNITY)
    + "RETURN c.tenant AS tenant, c.community_id AS community_id, c.run_id AS run_id, "
    "c.decided_at AS decided_at, c.gone AS gone, c.gone_decided_at AS gone_decided_at, "
    f"CASE WHEN k[2] THEN [(c)<-[m:{MEMBER_OF.type}]-(n:{ENTITY.label}) "
    "| [n.entity_id, m.run_id]] ELSE [] END AS members"
)
"""Rows [tenant, community id, with its members]."""
MEMBERSHIPS = (
    _each("n", ENTITY) + "RETURN n.tenant AS tenant, n.entity_id AS entity_id, "
    f"[(n)-[m:{MEMBER_OF.type}]->(:{COMMUNITY.label}) | m.decided_at] AS joined_at"
)
PRESENT_EVENTS = _each("e", EVENT) + "RETURN e.tenant AS tenant, e.event_id AS event_id"
"""Placeholders too."""
TOMBSTONES = (
    _each("f", FORGOTTEN) + "RETURN f.tenant AS tenant, f.event_id AS event_id, "
    "coalesce(f.recalled, false) AS recalled, f.recalled_decided_at AS decided_at, "
    "f.summary_id AS summary_id"
)
LEAVING = (
    _each("e", EVENT) + "RETURN e.tenant AS tenant, e.event_id AS event_id, "
    "e.session_id AS session_id, e.occurred_at.epochMillis AS occurred_at_ms, "
    "e.importance_score AS importance, "
    f"[(x:{EVENT.label})-[c:{CAUSED_BY.type}]->(e) WHERE c.mechanism = '{DIRECT}' "
    "| x.event_id] AS effects, "
    # one that holds more than its key waits for an event that was recalled
    f"[(e)-[c:{CAUSED_BY.type}]->(p:{PLACEHOLDER}) WHERE c.mechanism = '{DIRECT}' "
    f"AND size(keys(p)) = {len(EVENT.key)} "
    "| [p.event_id, [(o)-->(p) | coalesce(o.event_id, '')]]] AS causes"
)
PARTED = (
    f"UNWIND $keys AS k OPTIONAL MATCH (e:{EVENT.label} {{tenant: k[0], event_id: k[1]}}) "
    f"OPTIONAL MATCH (f:{FORGOTTEN.label} {{tenant: k[0], event_id: k[1]}}) "
    "WITH k, coalesce(e.parted_from, []) + coalesce(f.parted_from, []) AS parted "
    "WHERE size(parted) > 0 RETURN k[0] AS tenant, k[1] AS event_id, parted"
)
EVENT_ACCESSES = (
    _each("e", EVENT)
    # a placeholder counts when it waits for an event that was recalled
    + f"WITH e WHERE CASE WHEN e:{PLACEHOLDER} THEN e.access_count IS NOT NULL ELSE true END "
    "RETURN e.tenant AS tenant, e.event_id AS id, e.access_count AS times, "
    "e.last_accessed_at.epochMillis AS last_ms"
)
ENTITY_ACCESSES = (
    _each("n", ENTITY)
    + f"WITH n WHERE NOT n:{ENTITY.placeholder} "
    + "RETURN n.tenant AS tenant, n.entity_id AS id, n.access_count AS times, "
    "n.last_accessed_at.epochMillis AS last_ms"
)
FACTS = (
    f"UNWIND $keys AS k MATCH (a:{ENTITY.label} {{tenant: k[0], entity_id: k[1]}}) "
    f"MATCH (b:{ENTITY.label} {{tenant: k[0], entity_id: k[4]}}) "
    f"MATCH (a)-[r:{RELATES_TO.type}]->(b) WHERE r.relation = k[2] AND r.edge_type = k[3] "
    "AND r.valid_from = datetime({epochMillis: k[5]}) AND r.event_id = k[6] "
    "RETURN k AS key, r.retrieval_count AS weight, "
    "r.last_retrieved_at.epochMillis AS last_ms, r.faded_at.epochMillis AS faded_at_ms"
)
"""Rows [tenant, source, relation, edge type, target, valid_from in ms, event id]."""
LISTED = (
    f"UNWIND $keys AS k MATCH (s:{SUMMARY.label} {{tenant: k[0], summary_id: k[1]}}) "
    "WITH k, s WHERE k[2] IN s.source_event_ids "
    "RETURN k[0] AS tenant, k[1] AS summary_id, k[2] AS event_id"
)
"""Rows [tenant, summary id, event id]: those that the Summary lists."""
PASSES = (
    _each("p", PASS) + "RETURN p.tenant AS tenant, p.decided_at AS decided_at, "
    "p.answered_until AS answered_until, p.communities_at.epochMillis AS communities_at_ms"
)
REQUESTS = (
    _each("r", CONSOLIDATION_REQUEST)
    + "RETURN r.tenant AS tenant, r.event_id AS event_id, r.position AS position"
)
