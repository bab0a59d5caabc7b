"""What a pass looks at: whole tenants, or a part of one that was asked for or that much came to.

And what it makes of the values of the nodes that it reads there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any, NamedTuple, cast

import orjson

from consolidation.payloads import MAX_REQUESTS
from consolidation.summary_payloads import Summary, parse_summary
from enrichment.payloads import RequestedScope, parse_request
from pipelines.graph.port import Reads
from pipelines.graph.rows import DEFAULT_IMPORTANCE, FoundNode
from projections.identity import Position
from projections.schema import CONSOLIDATION_REQUEST, PASS, SCOPE

WHOLE = 2**31 - 1
"""More events than a session has."""


def said_of(node: FoundNode) -> str:
    """The text of an event, or its line."""
    return node.values["text"] or node.values["summary"] or ""


def importance_of(values: Mapping[str, Any]) -> int:
    """Of an event, without its boost."""
    for name in ("importance_score", "importance_hint"):
        if values[name] is not None:
            return int(values[name])
    return DEFAULT_IMPORTANCE


def parsed_summary(gist: str) -> Summary:
    """A summary as the graph keeps it."""
    return parse_summary(orjson.loads(gist))


def position_of(parts: Iterable[int] | None) -> Position | None:
    """A position as the graph keeps it."""
    return None if parts is None else Position(*parts)


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
        traits_until: position of the last pass that looked at the users.
    """

    decided_at: Position | None = None
    ended_at_ms: int | None = None
    communities_at_ms: int | None = None
    traits_until: Position | None = None


def due(graph: Reads, reflection_importance: int = REFLECTION_IMPORTANCE) -> list[PassScope]:
    """What a pass should look at without waiting for its time.

    What was asked for comes first, then the sessions to which much came. A few questions by key and
    index, whatever the number of sessions.

    Args:
        graph: that is read.
        reflection_importance: that must be exceeded.
    """
    tenants = tenants_of(graph)
    requested = [
        PassScope(tenant, *one.asked) for tenant in tenants for one in requests_of(graph, tenant)
    ]
    pending = most_pending(graph, tenants)
    reflecting = [
        PassScope(tenant, least=reflection_importance + 1)
        for tenant in tenants
        if pending[tenant] > reflection_importance
    ]
    whole = {one.tenant for one in requested if one.is_whole}
    chosen = [one for one in (*requested, *reflecting) if one.is_whole or one.tenant not in whole]
    return list(dict.fromkeys(chosen))


def changed(graph: Reads) -> dict[str, int]:
    """Tenants to which anything came that no pass saw, and how much to one of their sessions."""
    pending = most_pending(graph, tenants_of(graph))
    return {tenant: importance for tenant, importance in pending.items() if importance > 0}


def tenants_of(graph: Reads) -> list[str]:
    """Those that have events, or a request; where most is pending first."""
    requesting = cast(Iterator[FoundNode], graph.stream(CONSOLIDATION_REQUEST.label))
    tenants = {node.key[0] for node in requesting}
    after: tuple[str, ...] = ()
    # One step along the index for each tenant: their sessions are many.
    while nodes := graph.scan(SCOPE.label, SCOPE.indexes[0], [()], after=after, limit=1).get(()):
        after = (nodes[0].key[0],)
        tenants.add(after[0])
    pending = most_pending(graph, tenants)
    return sorted(tenants, key=lambda tenant: (-pending[tenant], tenant))


def most_pending(graph: Reads, tenants: Iterable[str]) -> dict[str, int]:
    """What came, since a pass saw it last, to the session of each tenant that changed most."""
    rows = {(tenant,) for tenant in tenants}
    index = SCOPE.indexes[0]
    largest = graph.scan(SCOPE.label, index, sorted(rows), index, descending=True, limit=1)
    return {
        tenant: largest[tenant,][0].values[index[1]] if (tenant,) in largest else 0
        for (tenant,) in rows
    }


def are_requests(graph: Reads) -> bool:
    """Whether any request for a pass waits."""
    return bool(graph.scan(CONSOLIDATION_REQUEST.label, CONSOLIDATION_REQUEST.key, [()], limit=1))


def requests_of(graph: Reads, tenant: str) -> list[PendingRequest]:
    """The requests that wait, the oldest first, so many as one pass answers."""
    stream = graph.stream(CONSOLIDATION_REQUEST.label, ("position", "request"), tenants=[tenant])
    waiting = (node for node in cast(Iterator[FoundNode], stream) if node.values["position"])
    oldest = nsmallest(MAX_REQUESTS, waiting, key=lambda node: node.values["position"])
    return [
        PendingRequest(
            node.key[1],
            parse_request(orjson.loads(node.values["request"]))
            if node.values["request"]
            else RequestedScope(),
        )
        for node in oldest
    ]


def last_pass(graph: Reads, tenant: str) -> LastPass:
    """What the graph shows of the last pass."""
    names = ("decided_at", "ended_at", "communities_at", "traits_until")
    for node in graph.nodes(PASS.label, [(tenant,)], names).values():
        decided_at, ended_at_ms, communities_at_ms, until = (node.values[name] for name in names)
        return LastPass(position_of(decided_at), ended_at_ms, communities_at_ms, position_of(until))
    return LastPass()
