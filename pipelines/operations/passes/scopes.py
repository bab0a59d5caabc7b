"""What a pass looks at: whole tenants, or a part of one that was asked for or that much came to."""

from __future__ import annotations

from typing import NamedTuple

from enrichment.payloads import RequestedScope
from pipelines.graph.reads.consolidation import ConsolidationReader

REFLECTION_IMPORTANCE = 150
"""More importance than that since its last pass, and a session is looked at without waiting."""


class PassScope(NamedTuple):
    """What of a tenant a pass looks at.

    Attributes:
        tenant: whose memory.
        session_id: only this session.
        agent_id: only the sessions of this agent that changed.
        least: only sessions that changed by at least that importance.
    """

    tenant: str
    session_id: str | None = None
    agent_id: str | None = None
    least: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether the pass looks at the whole tenant, with communities and forgetting."""
        return self.session_id is None and self.agent_id is None and self.least <= 1

    def answers(self, request: RequestedScope) -> bool:
        """Whether a pass of this scope has done what was asked for."""
        return self.is_whole or (
            request != RequestedScope()
            and request == RequestedScope(self.session_id, self.agent_id)
        )


def due(
    reader: ConsolidationReader, reflection_importance: int = REFLECTION_IMPORTANCE
) -> list[PassScope]:
    """What a pass should look at without waiting for its time.

    What was asked for comes first, then the sessions to which much came. A few questions by key and
    index, whatever the number of sessions.

    Args:
        reader: of the graph.
        reflection_importance: that must be exceeded.
    """
    tenants = reader.requests.tenants()
    requested = [
        PassScope(tenant, *one.asked)
        for tenant in tenants
        for one in reader.requests.requests(tenant)
    ]
    pending = reader.requests.most_pending(tenants)
    reflecting = [
        PassScope(tenant, least=reflection_importance + 1)
        for tenant in tenants
        if pending[tenant] > reflection_importance
    ]
    whole = {one.tenant for one in requested if one.is_whole}
    chosen = [one for one in (*requested, *reflecting) if one.is_whole or one.tenant not in whole]
    return list(dict.fromkeys(chosen))
