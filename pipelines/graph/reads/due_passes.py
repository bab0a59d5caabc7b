"""Which recalled events have not come back."""

from __future__ import annotations

from consolidation.tombstones import EventKey
from pipelines.graph.client import GraphClient
from projections.schema import (
    DEAD_LETTER,
    EVENT,
    FORGOTTEN,
    PLACEHOLDER,
)

# Recalled, and not (wholly) there again; whom a dead letter stands for is not waited for.
_RETURNING = (
    f"MATCH (f:{FORGOTTEN.label}) WHERE f.recalled = true AND f.tenant >= $tenant "
    "AND f.event_id IS NOT NULL AND CASE WHEN f.tenant = $tenant "
    "THEN f.event_id > $event_id ELSE f.tenant > $tenant END AND NOT EXISTS { "
    f"MATCH (e:{EVENT.label} {{tenant: f.tenant, event_id: f.event_id}}) "
    f"WHERE NOT e:{PLACEHOLDER} AND (e.importance_score IS NOT NULL OR NOT $enriched) }} "
    f"AND NOT EXISTS {{ MATCH (d:{DEAD_LETTER.label}) "
    "WHERE d.tenant = f.tenant AND d.event_id = f.event_id } "
    "RETURN f.tenant AS tenant, f.event_id AS event_id "
    "ORDER BY f.tenant, f.event_id LIMIT $limit"
)


class PassReads(GraphClient):
    """Answers who has not come back; safe to share between threads."""

    def returning(
        self, limit: int, *, after: EventKey | None = None, enriched: bool
    ) -> list[EventKey]:
        """Events that were recalled and are not in the graph again, by key, so many at most.

        Args:
            limit: how many.
            after: the key behind which they stand; None: all.
            enriched: those that are there, and not enriched, too.
        """
        tenant, event_id = after or ("", "")
        rows = self.ask(
            _RETURNING, limit=limit, enriched=enriched, tenant=tenant, event_id=event_id
        )
        return [(row["tenant"], row["event_id"]) for row in rows]
