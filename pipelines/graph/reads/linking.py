"""What a pass reads to link sessions and to weigh events: who shares, who failed, what hangs on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import neo4j

from consolidation.payloads import LinkCandidate, SessionLink
from consolidation.sources import FailedEvent
from consolidation.summary_payloads import summary_id
from enrichment.event_kinds import FAILED
from enrichment.names import components, edges_of_sameness
from pipelines.graph.client import GraphClient
from projections.identity import Position
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    LINKED_TO,
    PLACEHOLDER,
    REFERENCES,
    SAME_AS,
    SCOPE,
    SUMMARY,
)

RARE_REFERENCES = 1_000
"""What is mentioned more often is not rare, in however few sessions: counting those takes long."""
FAILED_EVENTS = 200
"""Events of one tool that failed, the latest of each status, among which alike ones are looked for.
"""
_EFFECTS = 64
"""More of them change no boost."""
_SAID_CHARACTERS = 1_000

_SAME = (
    f"UNWIND $ids AS id MATCH (:{ENTITY.label} {{tenant: $tenant, entity_id: id}})"
    f"-[s:{SAME_AS.type}]-(o:{ENTITY.label}) WHERE NOT coalesce(s.retracted, false) "
    "RETURN id AS one, o.entity_id AS other, "
    "coalesce(o.display_name, o.name, o.canonical_name) AS name, "
    "coalesce(o.corrected_type, o.entity_type) AS entity_type, o.subtype AS subtype"
)
_MENTIONING = (
    f"UNWIND $ids AS id MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}}) "
    f"WITH id, n WHERE COUNT {{ (n)<-[:{REFERENCES.type}]-() }} <= $most "
    f"RETURN collect([id, COLLECT {{ MATCH (n)<-[:{REFERENCES.type}]-(e:{EVENT.label}) "
    "WHERE e.session_id IS NOT NULL RETURN DISTINCT e.session_id LIMIT $few }]) AS entities"
)
_FAILED = (
    "UNWIND $tools AS tool UNWIND $statuses AS status CALL (tool, status) { "
    f"MATCH (e:{EVENT.label}) USING INDEX e:{EVENT.label}({', '.join(EVENT.indexes[1])}) "
    "WHERE e.tenant = $tenant AND e.tool_name = tool AND e.status = status "
    "AND e.occurred_at IS NOT NULL "
    "RETURN e ORDER BY e.occurred_at DESC LIMIT $most } "
    "WITH tool, e, coalesce(e.text, '') AS text ORDER BY e.occurred_at DESC, e.event_id "
    "RETURN tool, collect([e.session_id, tool, "
    "left(CASE WHEN text = '' THEN coalesce(e.summary, '') ELSE text END, $characters)]) AS failed"
)
_LINKS = (
    f"UNWIND $ids AS id MATCH (s:{SUMMARY.label} {{tenant: $tenant, summary_id: id}}) "
    "RETURN id, s.link_count_decided_at AS decided_at, "
    f"[(s)-[l:{LINKED_TO.type}]->(o:{SUMMARY.label}) | l {{.reason, .evidence, .score, "
    ".resolution_event_id, summary_id: o.summary_id, session_id: o.session_id, "
    "ended_at_ms: o.time_range[1].epochMillis}] AS links"
)
_LINKING = (
    f"UNWIND $ids AS id MATCH (s:{SUMMARY.label} {{tenant: $tenant, summary_id: id}}) "
    f"RETURN id, COLLECT {{ MATCH (s)<-[:{LINKED_TO.type}]-(o:{SUMMARY.label}) "
    "WHERE o.session_id IS NOT NULL RETURN DISTINCT o.session_id LIMIT $most } AS sessions"
)
_WEIGHTS = (
    f"UNWIND $ids AS id MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}}) "
    f"WHERE NOT e:{PLACEHOLDER} "
    "RETURN collect([id, e.session_id, "
    f"COUNT {{ MATCH (e)<-[:{CAUSED_BY.type}]-(x:{EVENT.label}) WHERE NOT x:{PLACEHOLDER} "
    "RETURN DISTINCT x LIMIT $effects }, coalesce(e.importance_boost, 0.0), "
    "e.importance_boost_decided_at]) AS weights"
)
_STATES = (
    f"UNWIND $ids AS id MATCH (s:{SCOPE.label} {{tenant: $tenant, session_id: id}}) "
    "RETURN collect([id, coalesce(s.event_count, 0), "
    "coalesce(s.pending_importance > 0, false)]) AS states"
)


class RecordedLinks(NamedTuple):
    """The links of a session as the graph shows them, and where they were decided."""

    decided_at: Position | None = None
    links: tuple[LinkCandidate, ...] = ()


class Weight(NamedTuple):
    """What an event's boost is, and part of what it is made from.

    Attributes:
        session_id: of the event.
        effects: different retained events that go back to it, as far as they matter.
        boost: as decided; 0 where nothing was.
        decided_at: position of that decision.
    """

    session_id: str
    effects: int
    boost: float
    decided_at: Position | None


class SessionState(NamedTuple):
    """What is known of a session before it is read.

    Attributes:
        event_count: how many came; those that were forgotten are counted, too.
        pending: a pass will look at it because it changed itself.
    """

    event_count: int = 0
    pending: bool = False


def same_entities(
    client: GraphClient, tenant: str, entity_ids: Iterable[str]
) -> list[neo4j.Record]:
    """Edges of sameness around entities: one, other, and of the other what it is called."""
    return edges_of_sameness(entity_ids, lambda ids: client.ask(_SAME, tenant=tenant, ids=ids))


class LinkingReader(GraphClient):
    """Answers the part of a pass that links sessions."""

    def mentioning(
        self, tenant: str, entity_ids: Iterable[str], few: int
    ) -> dict[str, frozenset[str]]:
        """The sessions that mention an entity, or one that is the same, if they are few.

        Args:
            tenant: of the entities.
            entity_ids: canonical ones.
            few: what more sessions mention is left out.
        """
        wanted = sorted(set(entity_ids))
        if not wanted:
            return {}
        canonical = components(
            (row["one"], row["other"]) for row in same_entities(self, tenant, wanted)
        )
        canonical |= {one: canonical.get(one, one) for one in wanted}
        rows = self.ask(
            _MENTIONING, tenant=tenant, ids=sorted(canonical), most=RARE_REFERENCES, few=few + 1
        )
        sessions: dict[str, set[str]] = {one: set() for one in wanted}
        answered = set()
        for own_id, some in (one for row in rows for one in row["entities"]):
            answered.add(own_id)
            sessions.setdefault(canonical[own_id], set()).update(some)
        for one in canonical.keys() - answered:  # mentioned too often to be counted
            sessions.pop(canonical[one], None)
        return {
            one: frozenset(sessions[one]) for one in wanted if 0 < len(sessions.get(one, ())) <= few
        }

    def failed(self, tenant: str, tools: Collection[str]) -> dict[str, list[FailedEvent]]:
        """Events of each tool that failed, the latest first."""
        if not tools:
            return {}
        rows = self.ask(
            _FAILED,
            tenant=tenant,
            tools=sorted(tools),
            statuses=list(FAILED),
            most=FAILED_EVENTS,
            characters=_SAID_CHARACTERS,
        )
        return {row["tool"]: [FailedEvent(*one) for one in row["failed"]] for row in rows}

    def recorded_links(self, tenant: str, session_ids: Iterable[str]) -> dict[str, RecordedLinks]:
        """The links of sessions as decided; nothing of a session of which nothing was decided."""
        own = {summary_id(tenant, "session", one): one for one in session_ids}
        rows = self.ask(_LINKS, tenant=tenant, ids=sorted(own)) if own else []
        return {
            own[row["id"]]: RecordedLinks(
                Position(*row["decided_at"]),
                tuple(
                    LinkCandidate(
                        SessionLink(
                            session_id=one["session_id"],
                            reason=one["reason"],
                            evidence=tuple(one["evidence"]),
                            score=one["score"],
                            resolution_event_id=one["resolution_event_id"],
                        ),
                        one["ended_at_ms"] or 0,
                    )
                    for one in row["links"]
                    if one["session_id"] is not None
                ),
            )
            for row in rows
            if row["decided_at"] is not None
        }

    def linking(self, tenant: str, session_ids: Iterable[str], most: int) -> dict[str, list[str]]:
        """Sessions that are linked to each of some sessions, so many at most."""
        own = {summary_id(tenant, "session", one): one for one in session_ids}
        rows = self.ask(_LINKING, tenant=tenant, ids=sorted(own), most=most)
        return {own[row["id"]]: row["sessions"] for row in rows}

    def weights(self, tenant: str, event_ids: Iterable[str]) -> dict[str, Weight]:
        """What events weigh, of those that are retained."""
        ids = sorted(set(event_ids))
        rows = self.ask(_WEIGHTS, tenant=tenant, ids=ids, effects=_EFFECTS) if ids else []
        return {
            own_id: Weight(session_id, effects, boost, Position(*at) if at else None)
            for row in rows
            for own_id, session_id, effects, boost, at in row["weights"]
        }

    def states(self, tenant: str, session_ids: Iterable[str]) -> dict[str, SessionState]:
        """What there is of sessions, of those that have anything."""
        ids = sorted(session_ids)
        rows = self.ask(_STATES, tenant=tenant, ids=ids) if ids else []
        return {own_id: SessionState(*state) for row in rows for own_id, *state in row["states"]}
