"""What a question for causes reads: a story, what stands before an event, and what was learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from consolidation.payloads import CAUSE
from pipelines.graph.reader import EVENT_COLUMNS, GraphNode, event_node, plain_properties
from pipelines.graph.reads.events import OF_SESSION
from pipelines.graph.reads.scope import ScopedReads, visible
from projections.schema import CAUSED_BY, EVENT, LINKED_TO, SUMMARY

_ALIKE: Final = "similar_failure"
MAX_LINKED: Final = 20
"""Links of one session that are looked at, the strongest first."""
MAX_GISTS: Final = 50
"""Episodes of one session of which lessons are read, the first."""

STORY: Final = f"""{OF_SESSION}
  AND e.occurred_at >= datetime({{epochMillis: $first_ms}})
  AND e.occurred_at <= datetime({{epochMillis: $last_ms}}) AND {visible(EVENT, "e")}
WITH e ORDER BY e.occurred_at, e.event_id LIMIT $limit
RETURN {EVENT_COLUMNS} AS node, coalesce(e.text, '') AS text
"""
CAUSES: Final = f"""
UNWIND $ids AS id
MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})
MATCH (a)-[r:{CAUSED_BY.type}]->(e:{EVENT.label})
WHERE e.tenant = $tenant AND {visible(EVENT, "a")} AND {visible(EVENT, "e")}
WITH id, r, e ORDER BY id, e.occurred_at DESC, e.event_id LIMIT $limit
RETURN id AS effect, properties(r) AS properties, {EVENT_COLUMNS} AS node,
       coalesce(e.text, '') AS text
"""
LINKED_CAUSES: Final = f"""
UNWIND $ids AS id
MATCH (a:{EVENT.label} {{tenant: $tenant, event_id: id}})
WHERE {visible(EVENT, "a")}
MATCH (p:{SUMMARY.label} {{tenant: $tenant, session_id: a.session_id}})
MATCH (p)-[r:{LINKED_TO.type}]->(s:{SUMMARY.label})
WHERE s.tenant = $tenant AND r.reason = '{CAUSE}' AND r.effect_event_id = id
  AND {visible(SUMMARY, "p")} AND {visible(SUMMARY, "s")}
MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: r.cause_event_id}})
WHERE {visible(EVENT, "e")}
WITH DISTINCT id, e, r.score AS confidence, r.evidence AS evidence, r.event_id AS decided_by
ORDER BY id, confidence DESC, e.event_id LIMIT $limit
RETURN id AS effect, confidence, evidence, decided_by, {EVENT_COLUMNS} AS node,
       coalesce(e.text, '') AS text
"""
GISTS: Final = f"""
UNWIND $session_ids AS session_id
MATCH (p:{SUMMARY.label} {{tenant: $tenant, session_id: session_id}})
WHERE p.scope = 'episode' AND p.gist CONTAINS '"lessons":' AND {visible(SUMMARY, "p")}
WITH p ORDER BY p.session_id, p.summary_id LIMIT $limit
RETURN p.summary_id AS summary_id, p.session_id AS session_id, p.gist AS gist
"""
ALIKE: Final = f"""
MATCH (p:{SUMMARY.label} {{tenant: $tenant, session_id: $session_id}})
MATCH (p)-[r:{LINKED_TO.type}]->(s:{SUMMARY.label})
WHERE s.tenant = $tenant AND r.reason = '{_ALIKE}'
  AND {visible(SUMMARY, "p")} AND {visible(SUMMARY, "s")}
WITH s.session_id AS session_id, max(r.score) AS score
RETURN session_id, score ORDER BY score DESC, session_id LIMIT {MAX_LINKED}
"""


class StoryEvent(NamedTuple):
    """An event with all that was kept of its words."""

    node: GraphNode
    text: str


class CauseEdge(NamedTuple):
    """A step from an effect to a cause.

    Attributes:
        effect: id of the effect.
        cause: the event that it goes back to.
        mechanism: direct or inferred.
        rule: that inferred it.
        confidence: 0 to 1; 1 of what a producer named.
        evidence: what both name.
        decided_by: id of the decision, if one recorded it.
    """

    effect: str
    cause: StoryEvent
    mechanism: str
    rule: str | None
    confidence: float
    evidence: tuple[str, ...] = ()
    decided_by: str | None = None


class Gist(NamedTuple):
    """What is known of an episode from which something was learned."""

    summary_id: str
    session_id: str
    gist: str


class CauseReads(ScopedReads):
    """Causes and lessons as one viewer sees them."""

    def story(self, session_id: str, first_ms: int, last_ms: int, limit: int) -> list[StoryEvent]:
        """The events of a session in a stretch of time, by time."""
        rows = self._rows(
            STORY, session_id=session_id, first_ms=first_ms, last_ms=last_ms, limit=limit
        )
        return [_story_event(row) for row in rows]

    def causes(self, event_ids: Iterable[str], limit: int) -> list[CauseEdge]:
        """The steps to the causes of events, by effect, the latest causes first."""
        rows = self._rows(CAUSES, ids=sorted(set(event_ids)), limit=limit)
        return [_cause_edge(row) for row in rows]

    def linked_causes(self, event_ids: Iterable[str], limit: int, rule: str) -> list[CauseEdge]:
        """The steps to causes in other sessions that were recorded, the most certain first.

        Args:
            event_ids: of effects.
            limit: how many at most.
            rule: that found them.
        """
        rows = self._rows(LINKED_CAUSES, ids=sorted(set(event_ids)), limit=limit)
        return [
            CauseEdge(
                effect=row["effect"],
                cause=_story_event(row),
                mechanism="inferred",
                rule=rule,
                confidence=row["confidence"],
                evidence=tuple(row["evidence"] or ()),
                decided_by=row["decided_by"],
            )
            for row in rows
        ]

    def gists(self, session_ids: Sequence[str]) -> list[Gist]:
        """The episodes of sessions from which something was learned."""
        rows = self._rows(GISTS, session_ids=list(session_ids), limit=MAX_GISTS)
        return [Gist(row["summary_id"], row["session_id"], row["gist"]) for row in rows]

    def alike(self, session_id: str) -> list[str]:
        """The sessions that failed like one, the most alike first."""
        return [row["session_id"] for row in self._rows(ALIKE, session_id=session_id)]


def _story_event(row: Any) -> StoryEvent:
    return StoryEvent(event_node(row), row["text"])


def _cause_edge(row: Any) -> CauseEdge:
    properties: Mapping[str, Any] = plain_properties(row["properties"])
    confidence, evidence = properties.get("confidence"), properties.get("evidence")
    return CauseEdge(
        effect=row["effect"],
        cause=_story_event(row),
        mechanism=properties["mechanism"],
        rule=properties.get("rule"),
        confidence=1.0 if confidence is None else confidence,
        evidence=() if evidence is None else (evidence,),
    )
