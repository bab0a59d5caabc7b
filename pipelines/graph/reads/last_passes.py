"""When consolidation last looked at whom, and who waits for it: for `recollect status`.

Asked of all tenants: there is one node for each of them, and few requests.
"""

from __future__ import annotations

from typing import NamedTuple

from pipelines.graph.reader import STATUS_TIMEOUT_MS, GraphReader
from projections.schema import CONSOLIDATION_REQUEST, PASS

_LAST = (
    f"CALL () {{ MATCH (p:{PASS.label}) RETURN p.tenant AS tenant "
    f"UNION MATCH (r:{CONSOLIDATION_REQUEST.label}) RETURN r.tenant AS tenant }} "
    f"OPTIONAL MATCH (p:{PASS.label} {{tenant: tenant}}) "
    f"WITH tenant, p, COUNT {{ (r:{CONSOLIDATION_REQUEST.label} {{tenant: tenant}}) }} AS waiting "
    "RETURN tenant, p.ended_at.epochMillis AS ended_at_ms, p.complete AS complete, "
    "p.communities_at.epochMillis AS communities_at_ms, waiting "
    "ORDER BY waiting > 0 DESC, coalesce(p.ended_at.epochMillis, 0), tenant LIMIT $limit"
)


class TenantPass(NamedTuple):
    """The last pass of a tenant.

    Attributes:
        tenant: whose memory.
        ended_at_ms: by the clock of the pass; None: there was none.
        complete: whether it had time for all that there was to do.
        communities_at_ms: when a pass last looked at the communities; None: never.
        waiting: requests that none has answered.
    """

    tenant: str
    ended_at_ms: int | None
    complete: bool | None
    communities_at_ms: int | None
    waiting: int


def last_passes(reader: GraphReader, limit: int) -> list[TenantPass]:
    """Those of so many tenants at most: for whom requests wait before the rest, then by age.

    Raises:
        GraphUnavailable, QueryTimeout: the graph cannot be asked.
    """
    rows = reader.read(lambda graph: graph.rows(_LAST, limit=limit), timeout_ms=STATUS_TIMEOUT_MS)
    return [TenantPass(*row.values()) for row in rows]
