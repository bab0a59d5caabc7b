"""What a pass of consolidation reads of the graph; it writes nothing.

Every question has the tenant in the key of its pattern and goes by a key or an index. A pass runs
beside live work: what it reads may be a moment old, which costs at most another pass.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import neo4j

from consolidation.sources import Totals
from consolidation.summary_payloads import SessionSummary, summary_id
from pipelines.graph.client import GraphClient
from pipelines.graph.reads.communities import CommunityReader
from pipelines.graph.reads.linking import LinkingReader
from pipelines.graph.reads.requests import RequestReader
from pipelines.graph.reads.sessions import SessionReader, parsed_summary, position_of
from projections.identity import Position
from projections.schema import SCOPE, SUMMARIZES, SUMMARY

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


class ConsolidationReader(GraphClient):
    """Answers a pass, its parts through readers of their own; safe to share between threads.

    Args:
        driver: of the target.
        database: of the target.
        timeout_s: of one question.
    """

    session_reader: ClassVar[type[SessionReader]] = SessionReader
    link_reader: ClassVar[type[LinkingReader]] = LinkingReader
    community_reader: ClassVar[type[CommunityReader]] = CommunityReader
    request_reader: ClassVar[type[RequestReader]] = RequestReader

    def __init__(
        self, driver: neo4j.Driver, database: str = "neo4j", *, timeout_s: float = 60.0
    ) -> None:
        super().__init__(driver, database, timeout_s=timeout_s)
        self.sessions = self.session_reader(driver, database, timeout_s=timeout_s)
        self.links = self.link_reader(driver, database, timeout_s=timeout_s)
        self.communities = self.community_reader(driver, database, timeout_s=timeout_s)
        self.requests = self.request_reader(driver, database, timeout_s=timeout_s)

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

    def recorded_agent(self, tenant: str, agent_id: str) -> tuple[str | None, Position | None]:
        """Digest and position of what was decided about an agent last."""
        for row in self.ask(_AGENT, tenant=tenant, id=summary_id(tenant, "agent", agent_id)):
            return row["digest"], position_of(row["decided_at"])
        return None, None

    def agents_behind(self, tenant: str) -> set[str]:
        """Agents of which a session was summarised after they were: ids.

        A pass that was cut short after its sessions left them so; nothing else tells that they are
        to be looked at.
        """
        found = set()
        for row in self.ask(_AGENTS_BEHIND, tenant=tenant):
            for one in parsed_summary(row["gist"]).participants:
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
        sessions = [parsed_summary(row["gist"]) for row in rows]
        values = [value or 0 for value in totals.values()]
        return [one for one in sessions if isinstance(one, SessionSummary)], Totals(*values)
