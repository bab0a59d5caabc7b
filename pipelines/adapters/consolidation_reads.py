"""What a pass of consolidation reads of the graph, session by session; it writes nothing.

Every question has the tenant in the key of its pattern and goes by a key or an index. A pass runs
beside live work: what it reads may be a moment old, which costs at most another pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import neo4j
import orjson

from consolidation.digests import summary_id
from consolidation.recorded import RecordedEpisode, RecordedSession
from consolidation.sources import Cause, Mentioned, SourceEvent
from consolidation.summaries import EpisodeSummary, SessionSummary, Totals
from consolidation.summary_payloads import Summary, from_payload
from enrichment.resolution import components
from pipelines.adapters.community_reads import CommunityReader
from pipelines.adapters.graph_questions import GraphQuestions
from pipelines.adapters.linking_reads import LinkingReader
from pipelines.adapters.request_reads import RequestReader
from projections.positions import Position
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    PLACEHOLDER,
    REFERENCES,
    SCOPE,
    SUMMARIZES,
    SUMMARY,
)

DIRECT_CONFIDENCE = 1.0
"""Of a cause that the producer named."""
_MOST = 2**53
"""More importance than any session has."""
_CHANGED = (
    f"MATCH (s:{SCOPE.label}) WHERE s.tenant = $tenant "
    "AND $least <= s.pending_importance <= $pending "
    "AND CASE WHEN s.pending_importance = $pending THEN s.session_id > $session_id ELSE true END "
    "RETURN s.session_id AS session_id, s.event_count AS event_count, "
    "s.importance_total AS importance_total, s.pending_importance AS pending "
    "ORDER BY s.pending_importance DESC, s.session_id LIMIT $limit"
)
_CHANGED_SESSION = (
    f"MATCH (s:{SCOPE.label} {{tenant: $tenant, session_id: $session_id}}) "
    "WHERE s.pending_importance >= $least "
    "RETURN s.session_id AS session_id, s.event_count AS event_count, "
    "s.importance_total AS importance_total, s.pending_importance AS pending"
)
_SESSIONS = (
    "UNWIND $ids AS own "
    f"MATCH (e:{EVENT.label}) USING INDEX e:{EVENT.label}({', '.join(EVENT.indexes[0])}) "
    "WHERE e.tenant = $tenant AND e.session_id = own "
    "AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL "
    "RETURN e.event_id AS event_id, e.event_type AS event_type, "
    "e.occurred_at.epochMillis AS occurred_at_ms, e.session_id AS session_id, "
    "e.agent_id AS agent_id, e.trace_id AS trace_id, e.tool_name AS tool_name, "
    "e.status AS status, e.user_id AS user_id, "
    "coalesce(e.importance_score, e.importance_hint, 5) AS importance, "
    "coalesce(e.text, '') AS text, coalesce(e.summary, '') AS summary, e.speaker AS speaker, "
    "coalesce(e.keywords, []) AS keywords, "
    f"[(e)-[r:{REFERENCES.type}]->(n:{ENTITY.label}) | "
    "[n.entity_id, coalesce(n.display_name, n.name, n.canonical_name), "
    "coalesce(n.corrected_type, n.entity_type), n.subtype, r.role]] AS entities, "
    f"[(e)-[c:{CAUSED_BY.type}]->(o:{EVENT.label}) WHERE NOT o:{PLACEHOLDER} | "
    "[o.event_id, c.rule, coalesce(c.confidence, $direct), o.occurred_at.epochMillis]] AS causes"
)
_DEGREES = (
    f"UNWIND $ids AS id MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}}) "
    f"RETURN id, COUNT {{ (n)<-[:{REFERENCES.type}]-() }} AS degree"
)
_RECORDED = (
    f"MATCH (s:{SUMMARY.label} {{tenant: $tenant, summary_id: $id}}) "
    "RETURN s.decided_at AS decided_at, "
    f"[(s)-[:{SUMMARIZES.type}]->(e:{SUMMARY.label}) | e {{"
    ".summary_id, .source_digest, .decided_at, .gist, .source_event_ids}] AS episodes"
)
_AGENT = (
    f"MATCH (a:{SUMMARY.label} {{tenant: $tenant, summary_id: $id}}) "
    "RETURN a.source_digest AS digest, a.decided_at AS decided_at"
)
_AGENT_TOTALS = (
    f"MATCH (:{SUMMARY.label} {{tenant: $tenant, summary_id: $id}})-[:{SUMMARIZES.type}]->"
    f"(s:{SUMMARY.label}) WHERE s.gist IS NOT NULL "
    "RETURN count(s) AS session_count, sum(s.event_count) AS event_count, "
    "sum(s.importance_total) AS importance_total, sum(s.failed_count) AS failed_count, "
    "min(s.time_range[0]).epochMillis AS started_at_ms, "
    "max(s.time_range[1]).epochMillis AS ended_at_ms"
)
_AGENT_SESSIONS = (
    f"MATCH (:{SUMMARY.label} {{tenant: $tenant, summary_id: $id}})-[:{SUMMARIZES.type}]->"
    f"(s:{SUMMARY.label}) WHERE s.gist IS NOT NULL "
    "RETURN s.gist AS gist ORDER BY s.importance_total DESC, s.summary_id LIMIT $most"
)
_AGENTS_BEHIND = (
    f"MATCH (s:{SUMMARY.label}) WHERE s.tenant = $tenant AND s.summary_id IS NOT NULL "
    f"AND s.level = 2 MATCH (a:{SUMMARY.label})-[:{SUMMARIZES.type}]->(s) "
    "WHERE coalesce(a.decided_at, [0, 0]) < s.decided_at "
    "RETURN a.summary_id AS id, collect(s.gist)[0] AS gist"
)


class ScopeState(NamedTuple):
    """What a session has come to, and what of it no pass has seen.

    Attributes:
        pending: importance that came since the last pass.
    """

    session_id: str
    event_count: int
    importance_total: int
    pending: int


class ConsolidationReader(GraphQuestions):
    """Answers a pass, its parts through readers of their own; safe to share between threads.

    Args:
        driver: of the target.
        database: of the target.
        timeout_s: of one question.
    """

    def __init__(
        self, driver: neo4j.Driver, database: str = "neo4j", *, timeout_s: float = 60.0
    ) -> None:
        super().__init__(driver, database, timeout_s=timeout_s)
        self.links = LinkingReader(driver, database, timeout_s=timeout_s)
        self.communities = CommunityReader(driver, database, timeout_s=timeout_s)
        self.requests = RequestReader(driver, database, timeout_s=timeout_s)

    def changed_sessions(
        self, tenant: str, *, after: ScopeState | None = None, least: int = 1, limit: int
    ) -> list[ScopeState]:
        """Sessions that have changed by at least that importance, what changed most first.

        Args:
            tenant: whose.
            after: the last one of those that were given before.
            least: importance that came since the last pass.
            limit: so many at most.
        """
        pending, session_id = (after.pending, after.session_id) if after else (_MOST, "")
        rows = self.ask(
            _CHANGED,
            tenant=tenant,
            pending=pending,
            session_id=session_id,
            least=least,
            limit=limit,
        )
        return [ScopeState(*row.values()) for row in rows]

    def changed_session(self, tenant: str, session_id: str, *, least: int = 1) -> list[ScopeState]:
        """That session alone, if it has changed by at least that importance."""
        rows = self.ask(_CHANGED_SESSION, tenant=tenant, session_id=session_id, least=least)
        return [ScopeState(*row.values()) for row in rows]

    def session_events(self, tenant: str, session_id: str) -> list[SourceEvent]:
        """The retained events of a session; entities by the canonical one of their component."""
        return self.events_of_sessions(tenant, [session_id]).get(session_id, [])

    def events_of_sessions(
        self, tenant: str, session_ids: Collection[str]
    ) -> dict[str, list[SourceEvent]]:
        """The same of several sessions in one question, of those that retain anything."""
        rows = self.ask(_SESSIONS, tenant=tenant, ids=sorted(session_ids), direct=DIRECT_CONFIDENCE)
        ids = {entity[0] for row in rows for entity in row["entities"]}
        canonical = self._canonical(tenant, ids)
        found: dict[str, list[SourceEvent]] = {}
        for row in rows:
            found.setdefault(row["session_id"], []).append(_source_event(row, canonical))
        return found

    def degrees(self, tenant: str, entity_ids: Iterable[str]) -> dict[str, int]:
        """How many references each entity has."""
        ids = sorted(set(entity_ids))
        rows = self.ask(_DEGREES, tenant=tenant, ids=ids) if ids else []
        return {row["id"]: row["degree"] for row in rows}

    def recorded_session(self, tenant: str, session_id: str) -> RecordedSession:
        """What was decided about a session so far."""
        own_id = summary_id(tenant, "session", session_id)
        for row in self.ask(_RECORDED, tenant=tenant, id=own_id):
            episodes = [_recorded_episode(one) for one in row["episodes"] if one["gist"]]
            return RecordedSession(_position(row["decided_at"]), tuple(episodes))
        return RecordedSession(None, ())

    def recorded_agent(self, tenant: str, agent_id: str) -> tuple[str | None, Position | None]:
        """Digest and position of what was decided about an agent last."""
        for row in self.ask(_AGENT, tenant=tenant, id=summary_id(tenant, "agent", agent_id)):
            return row["digest"], _position(row["decided_at"])
        return None, None

    def agents_behind(self, tenant: str) -> set[str]:
        """Agents of which a session was summarised after they were: ids.

        A pass that was cut short after its sessions left them so; nothing else tells that they are
        to be looked at.
        """
        found = set()
        for row in self.ask(_AGENTS_BEHIND, tenant=tenant):
            for one in _summary(row["gist"]).gist.participants:
                if summary_id(tenant, "agent", one.agent_id) == row["id"]:
                    found.add(one.agent_id)
        return found

    def agent_sessions(
        self, tenant: str, agent_id: str, most: int
    ) -> tuple[list[SessionSummary], Totals]:
        """The most important sessions of an agent, and sums over all of them."""
        own_id = summary_id(tenant, "agent", agent_id)
        (totals,) = self.ask(_AGENT_TOTALS, tenant=tenant, id=own_id)
        rows = self.ask(_AGENT_SESSIONS, tenant=tenant, id=own_id, most=most)
        sessions = [_summary(row["gist"]) for row in rows]
        values = [value or 0 for value in totals.values()]
        return [one for one in sessions if isinstance(one, SessionSummary)], Totals(*values)

    def _canonical(self, tenant: str, entity_ids: Iterable[str]) -> dict[str, Mentioned]:
        """For entities that are the same as others: the canonical one, without a role."""
        rows = self.same(tenant, entity_ids)
        known = {
            row["other"]: Mentioned(
                row["other"], row["name"] or "", row["entity_type"] or "", row["subtype"], ""
            )
            for row in rows
        }
        edges = ((row["one"], row["other"]) for row in rows)
        return {one: known[first] for one, first in components(edges).items() if first in known}


def _source_event(row: neo4j.Record, canonical: Mapping[str, Mentioned]) -> SourceEvent:
    values = row.data()
    entities = {
        canonical[own_id]._replace(role=role)
        if own_id in canonical
        else Mentioned(own_id, name or "", entity_type or "", subtype, role)
        for own_id, name, entity_type, subtype, role in values.pop("entities")
    }
    causes: dict[str, tuple[int, Cause]] = {}
    for event_id, rule, confidence, occurred_at_ms in values.pop("causes"):
        before = causes.get(event_id)
        if before is None or before[1].confidence < confidence:
            causes[event_id] = (-occurred_at_ms, Cause(event_id, rule, confidence))
    return SourceEvent(
        **{**values, "keywords": tuple(values["keywords"])},
        entities=tuple(sorted(entities, key=lambda one: (one.role, one.name, one.entity_id))),
        causes=tuple(
            cause for _, cause in sorted(causes.values(), key=lambda one: (one[0], one[1].event_id))
        ),
    )


def _recorded_episode(values: Mapping[str, Any]) -> RecordedEpisode:
    summary = _summary(values["gist"])
    assert isinstance(summary, EpisodeSummary)
    decided_at = _position(values["decided_at"])
    assert decided_at is not None
    return RecordedEpisode(
        values["summary_id"],
        values["source_digest"],
        decided_at,
        summary,
        tuple(values["source_event_ids"]),
    )


def _summary(gist: str) -> Summary:
    return from_payload(orjson.loads(gist))


def _position(parts: Sequence[int] | None) -> Position | None:
    return None if parts is None else Position(*parts)
