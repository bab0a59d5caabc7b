"""What Stage 2 asks of the graph, as Cypher. No driver, no socket.

Every question is answered by a key or an index; `tests/contracts` explains each text.
"""

from __future__ import annotations

from functools import cache

from enrichment.causality import WINDOW
from enrichment.similarity import NEIGHBOURS
from projections.schema import (
    ENTITY,
    EVENT,
    FACT_HISTORY,
    FORGOTTEN,
    PLACEHOLDER,
    SIMILAR_TO,
    NodeRow,
    vector_index,
)

STRETCH = 2_000
"""Events between the first and the last of a batch in a session that are read at once."""
CANDIDATES = NEIGHBOURS + 1
"""Neighbours asked for: the event itself is one."""

ORDER = ", ".join(f"e.{name}" for name in EVENT.indexes[0])
_ORDER_BACK = ", ".join(f"e.{name} DESC" for name in EVENT.indexes[0])
# Stage 1 is ahead, and a dead letter of this stage is in the chain too: only what is enriched, or
# is now, counts, so that the graph depends on the enriched events and on nothing else.
# CASE, for an OR is planned as the union of two searches, sorted, which reads all of a session.
_COUNTS = "CASE WHEN e.importance_score IS NULL THEN e.event_id IN w[6] ELSE true END"


def _stretches(row: NodeRow, counts: str) -> str:
    """What stands around windows, of nodes with the chain's index for which `counts` holds."""
    chain = f"MATCH (e:{row.label}) USING INDEX e:{row.label}({', '.join(row.indexes[0])})"
    return (
        "UNWIND $windows AS w "
        "WITH w, datetime({epochMillis: w[2]}) AS low, datetime({epochMillis: w[4]}) AS high "
        f"CALL (w, low, high) {{ {chain} "
        "WHERE e.tenant = w[0] AND e.session_id = w[1] AND e.occurred_at <= low "
        "AND e.event_id IS NOT NULL "
        f"AND CASE WHEN e.occurred_at = low THEN e.event_id < w[3] ELSE true END AND {counts} "
        f"RETURN e ORDER BY {_ORDER_BACK} LIMIT {WINDOW} "
        f"UNION ALL {chain} "
        "WHERE e.tenant = w[0] AND e.session_id = w[1] AND low <= e.occurred_at <= high "
        "AND e.event_id IS NOT NULL "
        "AND CASE WHEN e.occurred_at = low THEN e.event_id >= w[3] ELSE true END "
        f"AND CASE WHEN e.occurred_at = high THEN e.event_id <= w[5] ELSE true END AND {counts} "
        f"RETURN e ORDER BY {ORDER} LIMIT {STRETCH} "
        f"UNION ALL {chain} "
        "WHERE e.tenant = w[0] AND e.session_id = w[1] AND e.occurred_at >= high "
        "AND e.event_id IS NOT NULL "
        f"AND CASE WHEN e.occurred_at = high THEN e.event_id > w[5] ELSE true END AND {counts} "
        f"RETURN e ORDER BY {ORDER} LIMIT {WINDOW} }} "
        "WITH w, collect([e.occurred_at.epochMillis, e.event_id, NOT e.event_id IN w[6]]) "
        "AS events RETURN w[0] AS tenant, w[1] AS session_id, events"
    )


STRETCHES = _stretches(EVENT, _COUNTS)
"""Rows [tenant, session, low ms, low id, high ms, high id, ids of the batch]: the events of the
stretch from low to high, and `WINDOW` more on each side, as [ms, event id, enriched before]."""
FORGOTTEN_STRETCHES = _stretches(FORGOTTEN, "e.importance_score IS NOT NULL")
"""The same of tombstones: what was forgotten after it was enriched."""

PRESENT_EVENTS = (
    f"UNWIND $keys AS k MATCH (e:{EVENT.label} {{tenant: k[0], event_id: k[1]}}) "
    f"WHERE NOT e:{PLACEHOLDER} RETURN e.tenant AS tenant, e.event_id AS event_id, "
    "e.embedding_model AS embedding_model"
)
LOCK_HISTORIES = (
    "UNWIND $keys AS k "
    f"MERGE (h:{FACT_HISTORY.label} {{tenant: k[0], history_id: k[1]}}) "
    "SET h.lock = true REMOVE h.lock "
    "RETURN h.tenant AS tenant, h.history_id AS history_id, coalesce(h.entries, []) AS entries"
)
"""Whoever adds to a history holds its lock until the commit, and has read what others added."""
LOCK_SIMILAR = (
    f"UNWIND $keys AS k MATCH (e:{EVENT.label} {{tenant: k[0], event_id: k[1]}}) "
    "SET e.lock = true REMOVE e.lock "
    "RETURN e.tenant AS tenant, e.event_id AS event_id, "
    f"[(e)-[s:{SIMILAR_TO.type}]-(o) | [o.event_id, s.score]] AS edges, "
    "coalesce(e.parted_from, []) AS parted"
)
KNOWN_ENTITIES = (
    f"UNWIND $keys AS k MATCH (n:{ENTITY.label} {{tenant: k[0], entity_id: k[1]}}) "
    f"WHERE NOT n:{ENTITY.placeholder} RETURN n.tenant AS tenant, n.entity_id AS entity_id"
)
NAMESAKES = (
    f"UNWIND $rows AS r MATCH (n:{ENTITY.label} {{tenant: r[0], canonical_name: r[2]}}) "
    "WHERE n.entity_id <> r[1] "
    "RETURN r[0] AS tenant, r[1] AS id, n.entity_id AS entity_id, n.canonical_name AS name, "
    "n.entity_type AS entity_type, n.subtype AS subtype"
)
"""Rows [tenant, entity id, canonical name]: entities of other types by the same name."""


@cache
def nearest_text(row: NodeRow, *, filtered: bool) -> str:
    """Rows [tenant, id, vector] → [id, score (, name, type, subtype)] of the nearest.

    The score is Neo4j's, (1 + cosine) / 2. The index of Neo4j 2026 computes it from the vectors as
    they were given (by measurement within 3e-7 of the cosine); reading those of all candidates to
    compute it again would double the cost of the question. 5.26 ranks by vectors that it has
    compressed, and does not say what it scores by, so there it is computed again.

    Args:
        row: Event or Entity.
        filtered: the index searches within the tenant (Neo4j 2026); else more is asked for and
            other tenants' are left out afterwards (5.26).
    """
    index, own = vector_index(row), row.key[1]
    more = ", n.canonical_name, n.entity_type, n.subtype" if row is ENTITY else ""
    if filtered:
        search = (
            f"MATCH (n:{row.label}) SEARCH n IN (VECTOR INDEX {index} FOR r[2] "
            f"WHERE n.tenant = r[0] LIMIT {CANDIDATES}) SCORE AS found "
        )
        score = "found"
    else:
        search = (
            f"CALL db.index.vector.queryNodes('{index}', {10 * CANDIDATES}, r[2]) "
            "YIELD node AS n, score AS found WITH n, found, r WHERE n.tenant = r[0] "
            f"ORDER BY found DESC LIMIT {CANDIDATES} "
        )
        score = f"vector.similarity.cosine(n.{row.vector}, r[2])"
    return (
        f"UNWIND $rows AS r CALL (r) {{ {search}"
        f"WITH n, r, found WHERE n.{own} <> r[1] "
        f"RETURN collect([n.{own}, {score}{more}]) "
        "AS near } "
        "RETURN r[0] AS tenant, r[1] AS id, near"
    )
