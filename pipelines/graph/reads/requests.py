"""What says which tenants, and what of them, a pass is to look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from consolidation.payloads import MAX_REQUESTS
from enrichment.payloads import RequestedScope, parse_request
from pipelines.graph.client import GraphClient
from projections.identity import Position
from projections.schema import CONSOLIDATION_REQUEST, EVENT, PASS, SCOPE

# One step along the index for each tenant: their sessions are many.
_NEXT_TENANT = (
    f"MATCH (s:{SCOPE.label}) WHERE s.tenant > $after AND s.pending_importance IS NOT NULL "
    "RETURN s.tenant AS tenant ORDER BY s.tenant, s.pending_importance LIMIT 1"
)
_REQUESTING = f"MATCH (r:{CONSOLIDATION_REQUEST.label}) RETURN DISTINCT r.tenant AS tenant"
_MOST_PENDING = (
    "UNWIND $tenants AS tenant "
    f"RETURN tenant, COLLECT {{ MATCH (s:{SCOPE.label}) "
    "WHERE s.tenant = tenant AND s.pending_importance > 0 "
    "RETURN s.pending_importance ORDER BY s.pending_importance DESC LIMIT 1 } AS pending"
)
_REQUESTS = (
    f"MATCH (r:{CONSOLIDATION_REQUEST.label}) WHERE r.tenant = $tenant "
    "AND r.event_id IS NOT NULL "
    "RETURN r.event_id AS event_id, r.request AS request ORDER BY r.position LIMIT $limit"
)
_PASS = (
    f"MATCH (p:{PASS.label} {{tenant: $tenant}}) "
    "RETURN p.decided_at AS decided_at, p.ended_at.epochMillis AS ended_at_ms, "
    "p.communities_at.epochMillis AS communities_at_ms"
)
_OF_AGENT = (
    "UNWIND $ids AS id WITH id WHERE EXISTS { "
    f"MATCH (e:{EVENT.label}) USING INDEX e:{EVENT.label}({', '.join(EVENT.indexes[0])}) "
    "WHERE e.tenant = $tenant AND e.session_id = id AND e.occurred_at IS NOT NULL "
    "AND e.event_id IS NOT NULL AND e.agent_id = $agent_id } RETURN id"
)


class PendingRequest(NamedTuple):
    """A request that no pass has answered."""

    event_id: str
    asked: RequestedScope


class LastPass(NamedTuple):
    """The last pass of a tenant; all None when there was none.

    Attributes:
        decided_at: position of its decision.
        ended_at_ms: when it ended.
        communities_at_ms: when a pass last looked at the communities.
    """

    decided_at: Position | None = None
    ended_at_ms: int | None = None
    communities_at_ms: int | None = None


class RequestReader(GraphClient):
    """Answers which scopes a pass is to look at."""

    def tenants(self) -> list[str]:
        """Those that have events, or a request; where most is pending first."""
        found = {row["tenant"] for row in self.ask(_REQUESTING)}
        after = ""
        while rows := self.ask(_NEXT_TENANT, after=after):
            after = rows[0]["tenant"]
            found.add(after)
        pending = self.most_pending(found)
        return sorted(found, key=lambda tenant: (-pending[tenant], tenant))

    def most_pending(self, tenants: Iterable[str]) -> dict[str, int]:
        """What came, since a pass saw it last, to the session of each tenant that changed most."""
        rows = self.ask(_MOST_PENDING, tenants=sorted(tenants))
        return {row["tenant"]: row["pending"][0] if row["pending"] else 0 for row in rows}

    def requests(self, tenant: str) -> list[PendingRequest]:
        """The requests that wait, the oldest first, so many as one pass answers."""
        rows = self.ask(_REQUESTS, tenant=tenant, limit=MAX_REQUESTS)
        return [
            PendingRequest(
                row["event_id"],
                parse_request(orjson.loads(row["request"])) if row["request"] else RequestedScope(),
            )
            for row in rows
        ]

    def last_pass(self, tenant: str) -> LastPass:
        """What the graph shows of the last pass."""
        for row in self.ask(_PASS, tenant=tenant):
            decided_at = Position(*row["decided_at"]) if row["decided_at"] else None
            return LastPass(decided_at, row["ended_at_ms"], row["communities_at_ms"])
        return LastPass()

    def of_agent(self, tenant: str, agent_id: str, session_ids: Iterable[str]) -> set[str]:
        """Those of the sessions in which an agent took part."""
        rows = self.ask(_OF_AGENT, tenant=tenant, agent_id=agent_id, ids=sorted(session_ids))
        return {row["id"] for row in rows}
