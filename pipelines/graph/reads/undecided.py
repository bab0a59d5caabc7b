"""What a pass reads that asks anew: all is there, but nothing that was decided counts.

Whatever a pass would leave as it is, because nothing changed since it was decided, looks changed
here: every session, every digest, every fingerprint. Positions of decisions are shown as they are,
so that what is decided now is another decision than the one before, and what is no more is told.
Links and boosts are compared by what they say, whenever they were decided.
"""

from __future__ import annotations

from collections.abc import Iterable

from consolidation.sources import RecordedSession
from pipelines.graph.reads.communities import CommunityReader, RecordedCommunity
from pipelines.graph.reads.consolidation import ConsolidationReader, ScopeState
from pipelines.graph.reads.linking import LinkingReader, SessionState
from pipelines.graph.reads.requests import LastPass, RequestReader
from pipelines.graph.reads.sessions import SessionReader
from projections.identity import Position
from projections.schema import SCOPE

UNKNOWN = ""
"""A digest that nothing has."""

# By id: what is pending changes while the pass is applied, and a session would be seen twice.
_SESSIONS = (
    f"MATCH (s:{SCOPE.label}) WHERE s.tenant = $tenant AND s.session_id > $session_id "
    "RETURN s.session_id AS session_id, coalesce(s.event_count, 0) AS event_count, "
    "coalesce(s.importance_total, 0) AS importance_total, "
    "coalesce(s.pending_importance, 0) AS pending "
    "ORDER BY s.tenant, s.session_id LIMIT $limit"
)


class _UndecidedSessions(SessionReader):
    def recorded(self, tenant: str, session_ids: Iterable[str]) -> dict[str, RecordedSession]:
        """What was decided about sessions so far, without digests."""
        return {
            one: shown._replace(
                episodes=tuple(part._replace(digest=UNKNOWN) for part in shown.episodes)
            )
            for one, shown in super().recorded(tenant, session_ids).items()
        }


class _UndecidedLinks(LinkingReader):
    def states(self, tenant: str, session_ids: Iterable[str]) -> dict[str, SessionState]:
        """Of all of them: each is looked at in its own turn."""
        ids = list(session_ids)
        found = super().states(tenant, ids)
        return {one: found.get(one, SessionState())._replace(pending=True) for one in ids}


class _UndecidedCommunities(CommunityReader):
    def recorded(self, tenant: str) -> dict[str, RecordedCommunity]:
        """All communities by id, those that are there with a fingerprint that none has."""
        return {
            one: shown if shown.fingerprint is None else shown._replace(fingerprint=UNKNOWN)
            for one, shown in super().recorded(tenant).items()
        }


class _UndecidedPass(RequestReader):
    def last_pass(self, tenant: str) -> LastPass:
        """What the graph shows of the last pass; communities were never looked at."""
        return super().last_pass(tenant)._replace(communities_at_ms=None)


class UndecidedReader(ConsolidationReader):
    """As `ConsolidationReader`, of a graph of which nothing is decided yet."""

    session_reader = _UndecidedSessions
    link_reader = _UndecidedLinks
    community_reader = _UndecidedCommunities
    request_reader = _UndecidedPass

    def changed_sessions(
        self, tenant: str, *, after: ScopeState | None = None, least: int = 1, limit: int
    ) -> list[ScopeState]:
        """All sessions, by id; `least` does not matter."""
        behind = after.session_id if after else ""
        rows = self.ask(_SESSIONS, tenant=tenant, session_id=behind, limit=limit)
        return [ScopeState(*row.values()) for row in rows]

    def recorded_agent(self, tenant: str, agent_id: str) -> tuple[str | None, Position | None]:
        """No digest, and where it was decided about an agent last."""
        return None, super().recorded_agent(tenant, agent_id)[1]
