"""What a pass reads of sessions: what happened in them, and what was decided about them.

Sessions are read along their index, all of a page at once; what events mention and what they go
back to are edges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from consolidation.causes import failed_call, may_change
from consolidation.sources import (
    Cause,
    Mentioned,
    RecordedEpisode,
    RecordedSession,
    SourceEvent,
)
from consolidation.summary_payloads import (
    EpisodeSummary,
    SessionSummary,
    users_named,
)
from enrichment.event_kinds import RETRY, EventKind, is_failed
from pipelines.graph.port import Reads
from pipelines.graph.rows import End, FoundEdge, FoundNode
from pipelines.operations.passes.entity_names import EntityNames
from pipelines.operations.passes.scopes import WHOLE, importance_of, parsed_summary, said_of
from projections.identity import Position
from projections.operations import Key
from projections.schema import (
    CAUSED_BY,
    EVENT,
    FORGOTTEN,
    REFERENCES,
    SUMMARY,
)

DIRECT_CONFIDENCE = 1.0
"""Of a cause that the producer named."""
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
_SLIM = ("event_type", "trace_id", "tool_name", "status", "user_id", "kind", "occurred_at")
_RECORDED = ("gist", "source_digest", "decided_at", "source_event_ids")

Sessions = Mapping[str, list[FoundNode]]
_Causes = Mapping[Key, tuple[Cause, ...]]


# -- events ----------------------------------------------------------------------------------------


def source_events(
    graph: Reads, tenant: str, session_ids: Collection[str]
) -> dict[str, list[SourceEvent]]:
    """The retained events of sessions, of those that retain any, by time.

    Entities are the canonical ones of their components, as far as its user knows these.
    """
    sessions = session_members(graph, tenant, session_ids, _SHOWN)
    causes, names = _around(graph, tenant, sessions, ("role", "name"))
    return {
        session_id: [
            _event(node, names.of(session_id, node), causes.get(node.key, ())) for node in nodes
        ]
        for session_id, nodes in sessions.items()
    }


def slim_events(
    graph: Reads, tenant: str, session_ids: Collection[str]
) -> dict[str, list[SourceEvent]]:
    """The same as far as other sessions are concerned with them.

    Entities without roles, and no words but `text` of what failed, which is the event's line where
    it has no text, of the call that failed so, and of what was changed.
    """
    sessions = session_members(graph, tenant, session_ids, _SLIM)
    causes, names = _around(graph, tenant, sessions, ("name",))
    slim = {
        session_id: [
            SourceEvent(
                event_id=node.key[1],
                event_type=node.values["event_type"],
                occurred_at_ms=node.values["occurred_at"],
                session_id=session_id,
                agent_id="",
                trace_id=node.values["trace_id"],
                tool_name=node.values["tool_name"],
                status=node.values["status"],
                user_id=node.values["user_id"],
                entities=tuple(dict.fromkeys(names.of(session_id, node))),
                causes=causes.get(node.key, ()),
                kind=EventKind(node.values["kind"] or EventKind.OTHER),
            )
            for node in nodes
        ]
        for session_id, nodes in sessions.items()
    }
    return _with_words(graph, tenant, slim)


def _with_words(
    graph: Reads, tenant: str, slim: Mapping[str, list[SourceEvent]]
) -> dict[str, list[SourceEvent]]:
    """The same with the words that other sessions are concerned with."""
    telling = {event.event_id for events in slim.values() for event in _telling(events)}
    words = graph.nodes(
        EVENT.label, [(tenant, one) for one in sorted(telling)], ("text", "summary")
    )
    texts = {key[1]: said_of(node) for key, node in words.items()}
    return {
        session_id: [
            event._replace(text=texts[event.event_id]) if event.event_id in texts else event
            for event in events
        ]
        for session_id, events in slim.items()
    }


def session_members(
    graph: Reads, tenant: str, session_ids: Iterable[str], properties: Collection[str]
) -> dict[str, list[FoundNode]]:
    """The events of sessions, of those that have any, by time."""
    rows = [(tenant, session_id) for session_id in sorted(session_ids)]
    chains = graph.scan(EVENT.label, EVENT.indexes[0], rows, tuple(properties), limit=WHOLE)
    return {row[1]: nodes for row, nodes in chains.items()}


def _around(
    graph: Reads, tenant: str, sessions: Sessions, properties: tuple[str, ...]
) -> tuple[_Causes, EntityNames]:
    """What events go back to, and what they mention."""
    times = {
        node.key: int(node.values["occurred_at"]) for nodes in sessions.values() for node in nodes
    }
    mentions = graph.edges(REFERENCES.type, times, properties)
    return _causes(graph, times), EntityNames(graph, tenant, sessions, mentions)


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


def _telling(events: Sequence[SourceEvent]) -> Iterable[SourceEvent]:
    """What failed or was tried again, the calls of what failed, and what was changed."""
    by_id = {event.event_id: event for event in events}
    calls = (failed_call(event, by_id) for event in events)
    failed = {call.event_id for call in calls if call is not None}
    retried = {cause.event_id for event in events for cause in event.causes if cause.rule == RETRY}
    return (
        event
        for event in events
        if is_failed(event.kind, event.status)
        or (event.tool_name is not None and event.event_id in retried)
        or event.event_id in failed
        or may_change(event)
    )


def _event(
    node: FoundNode, mentions: Iterable[Mentioned], causes: tuple[Cause, ...]
) -> SourceEvent:
    values = node.values
    return SourceEvent(
        event_id=node.key[1],
        occurred_at_ms=values["occurred_at"],
        importance=importance_of(values),
        text=values["text"] or "",
        summary=values["summary"] or "",
        keywords=tuple(values["keywords"] or ()),
        entities=tuple(
            sorted(set(mentions), key=lambda entity: (entity.role, entity.name, entity.entity_id))
        ),
        causes=causes,
        kind=EventKind(values["kind"] or EventKind.OTHER),
        **{name: values[name] for name in _SCALARS},
    )


def degrees(graph: Reads, tenant: str, entity_ids: Iterable[str]) -> dict[str, int]:
    """How many references each entity has."""
    keys = [(tenant, entity_id) for entity_id in sorted(set(entity_ids))]
    counted = graph.degrees(REFERENCES.type, keys, by=End.TARGET)
    return {key[1]: degree for key, degree in counted.items()}


# -- what was decided ------------------------------------------------------------------------------


def recorded_sessions(
    graph: Reads, tenant: str, session_ids: Iterable[str], users: Mapping[str, str | None]
) -> dict[str, RecordedSession]:
    """What was decided about sessions so far; nothing of those that no decision names.

    Args:
        graph: that is read.
        tenant: of the sessions.
        session_ids: of the sessions.
        users: whose events they retain, by event id.
    """
    rows = [(tenant, session_id) for session_id in sorted(session_ids)]
    shown = graph.scan(SUMMARY.label, SUMMARY.indexes[0], rows, _RECORDED, limit=WHOLE)
    recorded = {}
    for row, nodes in shown.items():
        summaries: dict[str, tuple[Position, SessionSummary]] = {}
        episodes = []
        for node in nodes:
            summary = parsed_summary(node.values["gist"])
            position = Position(*node.values["decided_at"])
            if isinstance(summary, SessionSummary):
                summaries[node.key[1]] = position, summary
            elif isinstance(summary, EpisodeSummary):
                digest, event_ids = node.values["source_digest"], node.values["source_event_ids"]
                episodes.append(
                    RecordedEpisode(
                        summary_id=node.key[1],
                        digest=digest,
                        decided_at=position,
                        summary=summary,
                        event_ids=tuple(event_ids),
                        user_ids=summary.user_ids,
                    )
                )
        recorded[row[1]] = RecordedSession(summaries, tuple(episodes))
    return _with_users(graph, tenant, recorded, users)


def _with_users(
    graph: Reads,
    tenant: str,
    recorded: dict[str, RecordedSession],
    users: Mapping[str, str | None],
) -> dict[str, RecordedSession]:
    """The same with the users of those that were decided before users were written down."""
    bare = [one for some in recorded.values() for one in some.episodes if one.user_ids is None]
    left = {
        (tenant, event_id) for one in bare for event_id in one.event_ids if event_id not in users
    }
    tombstones = graph.nodes(FORGOTTEN.label, sorted(left), ("session_id", "user_id"))
    owners = {**users} | {
        key[1]: node.values["user_id"]
        for key, node in tombstones.items()
        if node.values["session_id"] is not None
    }

    def owned(episode: RecordedEpisode) -> RecordedEpisode:
        if episode.user_ids is not None or any(
            event_id not in owners for event_id in episode.event_ids
        ):
            return episode
        return episode._replace(
            user_ids=users_named(owners[event_id] for event_id in episode.event_ids)
        )

    return {
        session_id: some._replace(episodes=tuple(map(owned, some.episodes)))
        for session_id, some in recorded.items()
    }
