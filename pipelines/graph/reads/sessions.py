"""What a pass reads of sessions: what happened in them, and what was decided about them.

An answer has one row a session, in which all its events are lists: a row for each event takes five
times as long to be made, sent and read. What an event mentions is read by id, and each entity once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import orjson

from consolidation.sources import Cause, Mentioned, RecordedEpisode, RecordedSession, SourceEvent
from consolidation.summary_payloads import EpisodeSummary, Summary, parse_summary, summary_id
from enrichment.event_kinds import FAILED, EventKind
from enrichment.names import components
from pipelines.graph.client import GraphClient
from pipelines.graph.reads.linking import same_entities
from projections.identity import Position
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    PLACEHOLDER,
    REFERENCES,
    SUMMARIZES,
    SUMMARY,
)

DIRECT_CONFIDENCE = 1.0
"""Of a cause that the producer named."""
_RETRY = "retry"
"""The rule of the causes by which a later event tells that an earlier one failed."""
_OF_SESSIONS = (
    "UNWIND $ids AS own "
    f"MATCH (e:{EVENT.label}) USING INDEX e:{EVENT.label}({', '.join(EVENT.indexes[0])}) "
    "WHERE e.tenant = $tenant AND e.session_id = own "
    "AND e.occurred_at IS NOT NULL AND e.event_id IS NOT NULL "
)
_CAUSES = (
    f"[(e)-[c:{CAUSED_BY.type}]->(o:{EVENT.label}) WHERE NOT o:{PLACEHOLDER} | "
    "[o.event_id, c.rule, coalesce(c.confidence, $direct), o.occurred_at.epochMillis]]"
)
_EVENTS = (
    f"{_OF_SESSIONS}RETURN own, collect([e.event_id, e.event_type, e.occurred_at.epochMillis, "
    "e.session_id, e.agent_id, e.trace_id, e.tool_name, e.status, e.user_id, "
    "coalesce(e.importance_score, e.importance_hint, 5), "
    "coalesce(e.text, ''), coalesce(e.summary, ''), e.speaker, coalesce(e.keywords, []), "
    "coalesce(e.kind, $other), "
    f"[(e)-[r:{REFERENCES.type}]->(n:{ENTITY.label}) | [n.entity_id, r.role]], {_CAUSES}]) "
    "AS events"
)
_SLIM_EVENTS = (
    f"{_OF_SESSIONS}RETURN own, collect([e.event_id, e.occurred_at.epochMillis, "
    "e.tool_name, e.status, e.user_id, "
    f"[(e)-[:{REFERENCES.type}]->(n:{ENTITY.label}) | n.entity_id], {_CAUSES}]) AS events"
)
_SAID = (
    f"UNWIND $ids AS id MATCH (e:{EVENT.label} {{tenant: $tenant, event_id: id}}) "
    "WITH id, coalesce(e.text, '') AS text, coalesce(e.summary, '') AS summary "
    "RETURN id, CASE WHEN text = '' THEN summary ELSE text END AS said"
)
_NAMES = (
    f"UNWIND $ids AS id MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}}) "
    "RETURN collect([id, coalesce(n.display_name, n.name, n.canonical_name, ''), "
    "coalesce(n.corrected_type, n.entity_type, ''), n.subtype]) AS entities"
)
_DEGREES = (
    f"UNWIND $ids AS id MATCH (n:{ENTITY.label} {{tenant: $tenant, entity_id: id}}) "
    f"RETURN collect([id, COUNT {{ (n)<-[:{REFERENCES.type}]-() }}]) AS degrees"
)
_RECORDED = (
    f"UNWIND $ids AS id MATCH (s:{SUMMARY.label} {{tenant: $tenant, summary_id: id}}) "
    "RETURN id, s.decided_at AS decided_at, "
    f"[(s)-[:{SUMMARIZES.type}]->(e:{SUMMARY.label}) WHERE e.gist IS NOT NULL | "
    "[e.summary_id, e.source_digest, e.decided_at, e.gist, e.source_event_ids]] AS episodes"
)

_Entities = Mapping[str, Mentioned]
"""What entities are called, by id: of those that are the same the canonical one, without a role."""


class SessionReader(GraphClient):
    """Answers what sessions are made of; safe to share between threads."""

    def events(self, tenant: str, session_ids: Collection[str]) -> dict[str, list[SourceEvent]]:
        """The retained events of sessions, of those that retain any, by time.

        Entities are the canonical ones of their components.
        """
        rows = self.ask(
            _EVENTS,
            tenant=tenant,
            ids=sorted(session_ids),
            direct=DIRECT_CONFIDENCE,
            other=EventKind.OTHER.value,
        )
        sessions = {row["own"]: row["events"] for row in rows}
        entities = self._entities(
            tenant, (own_id for values in _each(sessions) for own_id, _ in values[-2])
        )
        mentioned = {
            (own_id, role): entities[own_id]._replace(role=role)
            for own_id, role in {(*one,) for values in _each(sessions) for one in values[-2]}
        }
        return {
            own: [_event(values, mentioned) for values in events]
            for own, events in sessions.items()
        }

    def slim_events(
        self, tenant: str, session_ids: Collection[str]
    ) -> dict[str, list[SourceEvent]]:
        """The same as far as other sessions are concerned with them.

        Entities without roles, and no words but `text` of uses of tools that failed, which is the
        event's line where it has no text.
        """
        rows = self.ask(
            _SLIM_EVENTS, tenant=tenant, ids=sorted(session_ids), direct=DIRECT_CONFIDENCE
        )
        sessions = {row["own"]: row["events"] for row in rows}
        entities = self._entities(
            tenant, (own_id for values in _each(sessions) for own_id in values[-2])
        )
        said = self._said(tenant, _failed(sessions))
        return {
            own: [_slim_event(own, values, entities, said) for values in events]
            for own, events in sessions.items()
        }

    def degrees(self, tenant: str, entity_ids: Iterable[str]) -> dict[str, int]:
        """How many references each entity has."""
        ids = sorted(set(entity_ids))
        rows = self.ask(_DEGREES, tenant=tenant, ids=ids) if ids else []
        return {own_id: degree for row in rows for own_id, degree in row["degrees"]}

    def recorded(self, tenant: str, session_ids: Iterable[str]) -> dict[str, RecordedSession]:
        """What was decided about sessions so far; nothing of those that no decision names."""
        own = {summary_id(tenant, "session", one): one for one in session_ids}
        return {
            own[row["id"]]: RecordedSession(
                position_of(row["decided_at"]), tuple(map(_recorded_episode, row["episodes"]))
            )
            for row in self.ask(_RECORDED, tenant=tenant, ids=sorted(own))
        }

    def _entities(self, tenant: str, entity_ids: Iterable[str]) -> _Entities:
        ids = set(entity_ids)
        if not ids:
            return {}
        rows = self.ask(_NAMES, tenant=tenant, ids=sorted(ids))
        known = {
            own_id: Mentioned(
                entity_id=own_id, name=name, entity_type=entity_type, subtype=subtype, role=""
            )
            for row in rows
            for own_id, name, entity_type, subtype in row["entities"]
        }
        known |= {
            one: Mentioned(entity_id=one, name="", entity_type="", subtype=None, role="")
            for one in ids - known.keys()
        }
        same = same_entities(self, tenant, ids)
        for row in same:
            kinds = row["name"] or "", row["entity_type"] or "", row["subtype"]
            known[row["other"]] = Mentioned(row["other"], *kinds, "")
        canonical = components((row["one"], row["other"]) for row in same)
        return {one: known.get(canonical.get(one, one), known[one]) for one in ids}

    def _said(self, tenant: str, event_ids: Iterable[str]) -> dict[str, str]:
        ids = sorted(event_ids)
        rows = self.ask(_SAID, tenant=tenant, ids=ids) if ids else []
        return {row["id"]: row["said"] for row in rows}


def parsed_summary(gist: str) -> Summary:
    """A summary as the graph keeps it."""
    return parse_summary(orjson.loads(gist))


def position_of(parts: Iterable[int] | None) -> Position | None:
    """A position as the graph keeps it."""
    return None if parts is None else Position(*parts)


def _each(sessions: Mapping[str, list[list[Any]]]) -> Iterator[list[Any]]:
    return (values for events in sessions.values() for values in events)


def _failed(sessions: Mapping[str, list[list[Any]]]) -> set[str]:
    """Uses of tools that failed, by their status or because they were tried again."""
    found = set()
    for events in sessions.values():
        retried = {cause[0] for values in events for cause in values[-1] if cause[1] == _RETRY}
        for event_id, _, tool, status, *_ in events:
            if tool is not None and (status in FAILED or event_id in retried):
                found.add(event_id)
    return found


def _event(values: list[Any], mentioned: Mapping[tuple[str, str], Mentioned]) -> SourceEvent:
    *scalars, keywords, kind, mentions, causes = values
    entities = {mentioned[own_id, role] for own_id, role in mentions}
    ordered = sorted(entities, key=lambda one: (one.role, one.name, one.entity_id))
    tail = (tuple(keywords), tuple(ordered), _causes(causes), EventKind(kind))
    return SourceEvent._make((*scalars, *tail))


def _slim_event(
    session_id: str, values: list[Any], entities: _Entities, said: Mapping[str, str]
) -> SourceEvent:
    event_id, occurred_at_ms, tool, status, user_id, mentions, causes = values
    return SourceEvent(
        event_id=event_id,
        event_type="",
        occurred_at_ms=occurred_at_ms,
        session_id=session_id,
        agent_id="",
        trace_id="",
        tool_name=tool,
        status=status,
        user_id=user_id,
        text=said.get(event_id, ""),
        entities=tuple(dict.fromkeys(entities[own_id] for own_id in mentions)),
        causes=_causes(causes),
    )


def _causes(rows: list[list[Any]]) -> tuple[Cause, ...]:
    """The most certain edge to each cause, the nearest causes first."""
    found: dict[str, tuple[int, Cause]] = {}
    for event_id, rule, confidence, occurred_at_ms in rows:
        before = found.get(event_id)
        if before is None or before[1].confidence < confidence:
            found[event_id] = (-occurred_at_ms, Cause(event_id, rule, confidence))
    ordered = sorted(found.values(), key=lambda one: (one[0], one[1].event_id))
    return tuple(cause for _, cause in ordered)


def _recorded_episode(values: list[Any]) -> RecordedEpisode:
    own_id, digest, decided_at, gist, event_ids = values
    summary = parsed_summary(gist)
    assert isinstance(summary, EpisodeSummary)
    return RecordedEpisode(
        summary_id=own_id,
        digest=digest,
        decided_at=Position(*decided_at),
        summary=summary,
        event_ids=tuple(event_ids),
    )
