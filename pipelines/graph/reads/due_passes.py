"""What says that a pass of consolidation is due, and what there is of events by age.

Nothing here is asked of one tenant: a worker looks for all of them, every few minutes, at nodes of
which there are few, or by index. Only `tiers` and `decay_scores` walk all events,
`decay_scores` without reading those that it does not draw.
"""

from __future__ import annotations

from consolidation.decay import HOUR_MS, decay_score
from consolidation.forgetting import EventKey
from consolidation.retention import DEFAULT_POLICY, Tier
from pipelines.graph.client import GraphClient
from projections.schema import (
    CONSOLIDATION_REQUEST,
    DEAD_LETTER,
    EVENT,
    FORGOTTEN,
    PLACEHOLDER,
)

_REQUESTING = f"MATCH (r:{CONSOLIDATION_REQUEST.label}) RETURN r.tenant AS tenant LIMIT 1"
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
# As `retention.age_ms`: from the later of occurrence and arrival, unless the clock is before that.
_AGED = (
    f"MATCH (e:{EVENT.label}) WHERE NOT e:{PLACEHOLDER} "
    "WITH e, toInteger(split(e.global_position, '-')[0]) AS arrived_ms, "
    "e.occurred_at.epochMillis AS occurred_ms "
    "WITH e, occurred_ms, CASE WHEN arrived_ms > occurred_ms AND arrived_ms <= $now_ms "
    "THEN arrived_ms ELSE occurred_ms END AS since_ms "
)
_TIERS = (
    f"{_AGED}WITH ($now_ms - since_ms) / toFloat($hour_ms) AS age_h "
    "RETURN CASE WHEN age_h < $warm THEN $tiers[0] WHEN age_h < $cold THEN $tiers[1] "
    "WHEN age_h < $archive THEN $tiers[2] ELSE $tiers[3] END AS tier, count(*) AS number"
)
# Properties are read of those alone that are drawn.
_SAMPLE = (
    f"MATCH (e:{EVENT.label}) WHERE rand() < $share AND NOT e:{PLACEHOLDER} "
    "RETURN e.occurred_at.epochMillis AS occurred_ms, "
    "coalesce(e.importance_score, e.importance_hint, 5) + coalesce(e.importance_boost, 0.0) "
    "AS importance"
)
_COUNT = f"MATCH (e:{EVENT.label}) RETURN count(e) AS number"  # the store keeps that number


class PassReads(GraphClient):
    """Answers whether a pass is due; safe to share between threads."""

    def are_requests(self) -> bool:
        """Whether any request for a pass waits."""
        return bool(self.ask(_REQUESTING))

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

    def tiers(self, now_ms: int) -> dict[str, int]:
        """How many events there are of each age, by the tiers that hold without overrides.

        Looks at every event: age depends on arrival too, and no index knows of both. Ask after a
        pass that has looked at everything, not more often.
        """
        policy = DEFAULT_POLICY
        rows = self.ask(
            _TIERS,
            now_ms=now_ms,
            hour_ms=HOUR_MS,
            warm=policy.warm_after_h,
            cold=policy.cold_after_h,
            archive=policy.archive_after_h,
            tiers=[tier.value for tier in Tier],
        )
        found = {row["tier"]: row["number"] for row in rows}
        return {tier.value: found.get(tier.value, 0) for tier in Tier}

    def decay_scores(self, now_ms: int, most: int) -> list[float]:
        """Decay scores of events drawn at random, each as likely as any other.

        Args:
            now_ms: the clock.
            most: events; so many on average when there are more, all when there are fewer.
        """
        (counted,) = self.ask(_COUNT)
        share = most / max(1, most, counted["number"])
        return [
            decay_score(now_ms, row["occurred_ms"], importance=min(10.0, row["importance"]))
            for row in self.ask(_SAMPLE, share=share)
        ]
