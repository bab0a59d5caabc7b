"""What the graph finds relevant beside a question: earlier resolutions, what matters, what is used.

One question; each of its parts is bounded before it sorts, like a step of a walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from enrichment.causality import RETRY
from enrichment.event_kinds import FAILED
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.channels import IMPORTANCE, SHOWN
from pipelines.graph.reads.scope import MAX_SCANNED, Scope, rows_in, visible
from pipelines.graph.rows import DEFAULT_IMPORTANCE, LEAST, Least, Signalled
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    LINKED_TO,
    REFERENCES,
    SIMILAR_TO,
    SUMMARY,
)

ALIKE_RESOLVED: Final = f"""
  UNWIND $session_ids AS id
  MATCH (s:{SUMMARY.label} {{tenant: $tenant, summary_id: id}})-[l:{LINKED_TO.type}]->
        (o:{SUMMARY.label} {{tenant: $tenant}})
  WHERE l.resolution_event_id IS NOT NULL AND l.score >= $least_score
    AND {visible(SUMMARY, "s")} AND {visible(SUMMARY, "o")}
  WITH l ORDER BY l.score DESC, l.resolution_event_id LIMIT $most
  MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: l.resolution_event_id}})
  WHERE {SHOWN}
  RETURN 'recurring_pattern' AS signal, e.event_id AS event_id, l.score AS score"""
"""Sessions that failed alike, and the event that resolved it there."""
SIMILAR_RESOLVED: Final = f"""
  UNWIND $event_ids AS id
  MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})
        -[s:{SIMILAR_TO.type}]-(b:{EVENT.label} {{tenant: $tenant}})
  WHERE b.session_id <> a.session_id AND b.status IN $failures AND {visible(EVENT, "b")}
    AND {visible(EVENT, "a")}
  MATCH (b)<-[c:{CAUSED_BY.type}]-(e:{EVENT.label} {{tenant: $tenant}})
  WHERE c.rule = $retry AND e.status = $success AND {SHOWN}
  WITH e, max(s.score * coalesce(c.confidence, 1.0)) AS score
  RETURN 'recurring_pattern' AS signal, e.event_id AS event_id, score
  ORDER BY score DESC, event_id LIMIT $most"""
"""Events of other sessions that are alike and failed, and the retry that succeeded."""
IMPORTANT_MENTIONS: Final = f"""
  UNWIND $entity_ids AS id
  MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}})
  WHERE {visible(ENTITY, "n")}
  CALL (n) {{
    MATCH (n)<-[:{REFERENCES.type}]-(e:{EVENT.label} {{tenant: $tenant}})
    WITH DISTINCT e LIMIT {MAX_SCANNED}
    WITH e, {IMPORTANCE} + coalesce(e.importance_boost, 0) AS importance
    WHERE importance >= $least_importance AND {SHOWN}
    RETURN e, importance ORDER BY importance DESC, e.occurred_at DESC, e.event_id LIMIT $most
  }}
  RETURN 'entity_context' AS signal, e.event_id AS event_id,
         CASE WHEN importance > 10 THEN 1.0 ELSE importance / 10.0 END AS score"""
"""Important events about what the query is about."""
READ_AGAIN: Final = f"""
  UNWIND $history AS id
  MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}})
  WHERE coalesce(e.access_count, 0) >= $least_accesses AND {SHOWN}
  RETURN 'retrieval_history' AS signal, e.event_id AS event_id,
         CASE WHEN e.access_count > 10 THEN 1.0 ELSE e.access_count / 10.0 END AS score"""
"""Events that the session was shown before, and that were read again."""
PROACTIVE: Final = (
    "CALL () {"
    + "\n  UNION ALL".join((ALIKE_RESOLVED, SIMILAR_RESOLVED, IMPORTANT_MENTIONS, READ_AGAIN))
    + "\n}\nRETURN signal, event_id, score ORDER BY score DESC, event_id"
)


class Beside(NamedTuple):
    """What proactive context starts from.

    Attributes:
        session_ids: ids of the summaries of the sessions that the answer is about.
        event_ids: of the best events of the answer.
        entity_ids: own ids of the entities that the query names.
        history: ids of events that were shown in this session before.
    """

    session_ids: Sequence[str]
    event_ids: Sequence[str]
    entity_ids: Sequence[str]
    history: Sequence[str]


def proactive(
    graph: GraphRead, scope: Scope, beside: Beside, least: Least = LEAST
) -> list[Signalled]:
    """Events nobody asked for, the most telling first; one may come by several signals."""
    rows = rows_in(
        graph,
        scope,
        PROACTIVE,
        **beside._asdict(),
        least_score=least.score,
        least_importance=least.importance,
        least_accesses=least.accesses,
        most=least.most,
        failures=list(FAILED),
        success="completed",
        retry=RETRY,
        default_importance=DEFAULT_IMPORTANCE,
    )
    return [Signalled(row["event_id"], row["signal"], row["score"]) for row in rows]
