"""What a pass reads of sessions: what happened in them, and what was decided about them.

Sessions are read along their index, all of a page at once; what events mention and what they go
back to are edges, and each entity is read once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import orjson

from consolidation.sources import (
    Cause,
    Described,
    Mentioned,
    RecordedEpisode,
    RecordedSession,
    SourceEvent,
)
from consolidation.summary_payloads import EpisodeSummary, Summary, parse_summary, summary_id
from enrichment.event_kinds import FAILED, EventKind
from enrichment.names import components, edges_of_sameness
from pipelines.graph.port import Reads
from pipelines.graph.rows import DEFAULT_IMPORTANCE, End, FoundEdge, FoundNode
from projections.identity import Position
from projections.operations import Key
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    REFERENCES,
    SAME_AS,
    SUMMARIZES,
    SUMMARY,
)

DIRECT_CONFIDENCE = 1.0
"""Of a cause that the producer named."""
WHOLE = 2**31 - 1
"""More events than a session has."""
_RETRY = "retry"
"""The rule of the causes by which a later event tells that an earlier one failed."""
_SCALARS = (
    "event_type",
    "session_id",
    "agent_id",
    "trace_id",
    "tool_name",
    "status",
    "user_id",
    "speaker",
)
_SHOWN = (
    *_SCALARS,
    "importance_score",
    "importance_hint",
    "text",
    "summary",
    "keywords",
    "kind",
    "occurred_at",
)
_SLIM = ("tool_name", "status", "user_id", "occurred_at")
_NAMES = (
    "display_name",
    "name",
    "canonical_name",
    "corrected_type",
    "entity_type",
    "subtype",
)
_EPISODE = ("gist", "source_digest", "decided_at", "source_event_ids")

Sessions = Mapping[str, list[FoundNode]]
_Causes = Mapping[Key, tuple[Cause, ...]]


# -- events ----------------------------------------------------------------------------------------


def source_events(
    graph: Reads, tenant: str, session_ids: Collection[str]
) -> dict[str, list[SourceEvent]]:
    """The retained events of sessions, of those that retain any, by time.

    Entities are the canonical ones of their components.
    """
    sessions = session_members(graph, tenant, session_ids, _SHOWN)
    mentions, causes, entities = _around(graph, tenant, sessions, ("role",))
    return {
        session_id: [
            _event(node, mentions.get(node.key, ()), entities, causes.get(node.key, ()))
            for node in nodes
        ]
        for session_id, nodes in sessions.items()
    }


def slim_events(
    graph: Reads, tenant: str, session_ids: Collection[str]
) -> dict[str, list[SourceEvent]]:
    """The same as far as other sessions are concerned with them.

    Entities without roles, and no words but `text` of uses of tools that failed, which is the
    event's line where it has no text.
    """
    sessions = session_members(graph, tenant, session_ids, _SLIM)
    mentions, causes, entities = _around(graph, tenant, sessions)
    words = graph.nodes(EVENT.label, _failed(sessions, causes), ("text", "summary"))
    texts = {key: said_of(node) for key, node in words.items()}
    return {
        session_id: [
            SourceEvent(
                event_id=node.key[1],
                event_type="",
                occurred_at_ms=node.values["occurred_at"],
                session_id=session_id,
                agent_id="",
                trace_id="",
                tool_name=node.values["tool_name"],
                status=node.values["status"],
                user_id=node.values["user_id"],
                text=texts.get(node.key, ""),
                entities=tuple(
                    dict.fromkeys(entities[edge.target[1]] for edge in mentions.get(node.key, ()))
                ),
                causes=causes.get(node.key, ()),
            )
            for node in nodes
        ]
        for session_id, nodes in sessions.items()
    }


def session_members(
    graph: Reads, tenant: str, session_ids: Iterable[str], properties: Collection[str]
) -> dict[str, list[FoundNode]]:
    """The events of sessions, of those that have any, by time."""
    rows = [(tenant, session_id) for session_id in sorted(session_ids)]
    chains = graph.scan(EVENT.label, EVENT.indexes[0], rows, tuple(properties), limit=WHOLE)
    return {row[1]: nodes for row, nodes in chains.items()}


def said_of(node: FoundNode) -> str:
    """The text of an event, or its line."""
    return node.values["text"] or node.values["summary"] or ""


def importance_of(values: Mapping[str, Any]) -> int:
    """Of an event, without its boost."""
    for name in ("importance_score", "importance_hint"):
        if values[name] is not None:
            return int(values[name])
    return DEFAULT_IMPORTANCE


def _around(
    graph: Reads, tenant: str, sessions: Sessions, properties: tuple[str, ...] = ()
) -> tuple[Mapping[Key, list[FoundEdge]], _Causes, Mapping[str, Mentioned]]:
    """What events mention, what they go back to, and what is mentioned."""
    times = {
        node.key: int(node.values["occurred_at"]) for nodes in sessions.values() for node in nodes
    }
    mentions = graph.edges(REFERENCES.type, times, properties)
    ids = {edge.target[1] for edges in mentions.values() for edge in edges}
    return mentions, _causes(graph, times), _entities(graph, tenant, ids)


def _causes(graph: Reads, times: dict[Key, int]) -> _Causes:
    """The most certain edge to each retained cause, the nearest causes first."""
    edges = graph.edges(CAUSED_BY.type, times, ("rule", "confidence"))
    outside = {edge.target for some in edges.values() for edge in some} - times.keys()
    others = graph.nodes(EVENT.label, outside, ("occurred_at",))
    times = times | {
        key: node.values["occurred_at"] for key, node in others.items() if node.visible
    }
    return {
        key: _most_certain((edge for edge in some if edge.target in times), times)
        for key, some in edges.items()
    }


def _most_certain(edges: Iterable[FoundEdge], times: Mapping[Key, int]) -> tuple[Cause, ...]:
    certain: dict[Key, Cause] = {}
    for edge in edges:
        confidence = edge.values["confidence"]
        confidence = DIRECT_CONFIDENCE if confidence is None else confidence
        before = certain.get(edge.target)
        if before is None or before.confidence < confidence:
            certain[edge.target] = Cause(edge.target[1], edge.values["rule"], confidence)
    return tuple(certain[key] for key in sorted(certain, key=lambda key: (-times[key], key[1])))


def _failed(sessions: Sessions, causes: _Causes) -> list[Key]:
    """Uses of tools that failed, by their status or because they were tried again."""
    failed = []
    for nodes in sessions.values():
        retried = {
            cause.event_id
            for node in nodes
            for cause in causes.get(node.key, ())
            if cause.rule == _RETRY
        }
        failed += [
            node.key
            for node in nodes
            if node.values["tool_name"] is not None
            and (node.values["status"] in FAILED or node.key[1] in retried)
        ]
    return failed


def _event(
    node: FoundNode,
    mentions: Iterable[FoundEdge],
    entities: Mapping[str, Mentioned],
    causes: tuple[Cause, ...],
) -> SourceEvent:
    values = node.values
    mentioned = {entities[edge.target[1]]._replace(role=edge.values["role"]) for edge in mentions}
    return SourceEvent(
        event_id=node.key[1],
        occurred_at_ms=values["occurred_at"],
        importance=importance_of(values),
        text=values["text"] or "",
        summary=values["summary"] or "",
        keywords=tuple(values["keywords"] or ()),
        entities=tuple(
            sorted(mentioned, key=lambda entity: (entity.role, entity.name, entity.entity_id))
        ),
        causes=causes,
        kind=EventKind(values["kind"] or EventKind.OTHER),
        **{name: values[name] for name in _SCALARS},
    )


# -- entities --------------------------------------------------------------------------------------


def described(graph: Reads, tenant: str, entity_ids: Iterable[str]) -> dict[str, Described]:
    """What entities are called, by id."""
    keys = [(tenant, entity_id) for entity_id in sorted(set(entity_ids))]
    return {
        key[1]: Described(
            _first(node, "display_name", "name", "canonical_name"),
            _first(node, "corrected_type", "entity_type"),
            node.values["subtype"],
        )
        for key, node in graph.nodes(ENTITY.label, keys, _NAMES).items()
    }


def _first(node: FoundNode, *names: str) -> str:
    """The first of some properties that is there."""
    return next((node.values[name] for name in names if node.values[name] is not None), "")


def same_entities(graph: Reads, tenant: str, entity_ids: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of entities that are the same: around entities, those that they lead to, and so on."""

    def around(ids: list[str]) -> list[dict[str, str]]:
        keys = [(tenant, entity_id) for entity_id in ids]
        edges = graph.edges(SAME_AS.type, keys, ("retracted",), by=End.EITHER)
        return [
            {"one": end[1], "other": (edge.target if edge.source == end else edge.source)[1]}
            for end, some in edges.items()
            for edge in some
            if not edge.values["retracted"]
        ]

    return [(row["one"], row["other"]) for row in edges_of_sameness(entity_ids, around)]


def degrees(graph: Reads, tenant: str, entity_ids: Iterable[str]) -> dict[str, int]:
    """How many references each entity has."""
    keys = [(tenant, entity_id) for entity_id in sorted(set(entity_ids))]
    counted = graph.degrees(REFERENCES.type, keys, by=End.TARGET)
    return {key[1]: degree for key, degree in counted.items()}


def _entities(graph: Reads, tenant: str, entity_ids: set[str]) -> dict[str, Mentioned]:
    """Of entities that are the same the canonical one, by id; without a role.

    One that nothing mentions has no name; then it is called as the next of its component.
    """
    if not entity_ids:
        return {}
    pairs = same_entities(graph, tenant, entity_ids)
    names = described(graph, tenant, entity_ids.union(*pairs))
    canonical = components(pairs)
    named: dict[str, Described] = {}
    for entity_id in sorted(names):  # the canonical one itself, unless nothing mentions it
        if names[entity_id].name:
            named.setdefault(canonical.get(entity_id, entity_id), names[entity_id])
    mentioned = {}
    for entity_id in entity_ids:
        first = canonical.get(entity_id, entity_id)
        mentioned[entity_id] = Mentioned(first, *named.get(first, Described("", "")), role="")
    return mentioned


# -- what was decided ------------------------------------------------------------------------------


def recorded_sessions(
    graph: Reads, tenant: str, session_ids: Iterable[str]
) -> dict[str, RecordedSession]:
    """What was decided about sessions so far; nothing of those that no decision names."""
    own_ids = {(tenant, summary_id(tenant, "session", one)): one for one in session_ids}
    nodes = graph.nodes(SUMMARY.label, own_ids, ("decided_at",))
    below = graph.edges(SUMMARIZES.type, nodes, label=SUMMARY.label)
    targets = {edge.target for edges in below.values() for edge in edges}
    episodes = {
        key: _recorded_episode(node)
        for key, node in graph.nodes(SUMMARY.label, targets, _EPISODE).items()
        if node.visible
    }
    return {
        own_ids[key]: RecordedSession(
            position_of(node.values["decided_at"]),
            tuple(episodes[edge.target] for edge in below.get(key, ()) if edge.target in episodes),
        )
        for key, node in nodes.items()
    }


def parsed_summary(gist: str) -> Summary:
    """A summary as the graph keeps it."""
    return parse_summary(orjson.loads(gist))


def position_of(parts: Iterable[int] | None) -> Position | None:
    """A position as the graph keeps it."""
    return None if parts is None else Position(*parts)


def _recorded_episode(node: FoundNode) -> RecordedEpisode:
    gist, digest, decided_at, event_ids = (node.values[name] for name in _EPISODE)
    summary = parsed_summary(gist)
    assert isinstance(summary, EpisodeSummary)
    return RecordedEpisode(
        node.key[1], digest, Position(*decided_at), summary, event_ids=tuple(event_ids)
    )
