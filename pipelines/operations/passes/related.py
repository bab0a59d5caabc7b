"""What a pass reads to link sessions and to weigh events: who shares, who failed, what hangs on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from consolidation.causes import says_changed
from consolidation.hierarchy import LEVELS
from consolidation.payloads import LinkCandidate, SessionLink
from consolidation.sources import FailedEvent, SourceEvent
from enrichment.event_kinds import FAILED, EventKind
from enrichment.names import components
from pipelines.graph.port import Reads
from pipelines.graph.rows import End, FoundEdge, FoundNode
from pipelines.operations.passes.entity_names import same_entities
from pipelines.operations.passes.scopes import WHOLE, position_of, said_of
from projections.identity import Position
from projections.operations import Key
from projections.schema import CAUSED_BY, EVENT, LINKED_TO, REFERENCES, SCOPE, SUMMARY

RARE_REFERENCES = 1_000
"""What is mentioned more often is not rare, in however few sessions: counting those takes long."""
FAILED_EVENTS = 200
"""Events of one tool that failed, the latest of each status, among which alike ones are looked for.
"""
OTHER_EVENTS = 1_000
"""Events that are no use of a tool and no words, the latest, among which changes are looked for."""
_EFFECTS = 64
"""More of them change no boost."""
_SAID_CHARACTERS = 1_000
_LINK = (
    *("reason", "evidence", "score", "resolution_event_id"),
    *("effect_event_id", "cause_event_id"),
)
_WEIGHT = ("session_id", "importance_boost", "importance_boost_decided_at")


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


def mentioning(
    graph: Reads, tenant: str, entity_ids: Iterable[str], few: int
) -> dict[str, frozenset[str]]:
    """The sessions that mention an entity, or one that is the same, if they are few.

    Args:
        graph: that is read.
        tenant: of the entities.
        entity_ids: as their sessions know them.
        few: what more sessions mention is left out.
    """
    wanted = sorted(set(entity_ids))
    if not wanted:
        return {}
    canonical = components(same_entities(graph, tenant, wanted))
    canonical |= {entity_id: canonical.get(entity_id, entity_id) for entity_id in wanted}
    degrees = graph.degrees(REFERENCES.type, _keys(tenant, canonical), by=End.TARGET)
    counted = [key for key, degree in degrees.items() if degree <= RARE_REFERENCES]
    across = graph.across(REFERENCES.type, counted, "session_id", by=End.TARGET, most=few + 1)
    sessions: dict[str, set[str]] = {}
    for key, some in across.items():
        sessions.setdefault(canonical[key[1]], set()).update(some)
    for entity_id in canonical.keys() - {key[1] for key in counted}:
        sessions.pop(canonical[entity_id], None)  # mentioned too often to be counted
    return {
        entity_id: frozenset(sessions[canonical[entity_id]])
        for entity_id in wanted
        if 0 < len(sessions.get(canonical[entity_id], ())) <= few
    }


def failed_events(
    graph: Reads, tenant: str, tools: Collection[str]
) -> dict[str, list[FailedEvent]]:
    """Events of each tool that failed, the latest first."""
    by = EVENT.indexes[1]
    rows = [(tenant, tool, status) for tool in sorted(tools) for status in FAILED]
    names = ("session_id", "occurred_at", "text", "summary")
    found_nodes = graph.scan(EVENT.label, by, rows, names, descending=True, limit=FAILED_EVENTS)
    by_tool: dict[str, list[FoundNode]] = {}
    for (_, tool, _), nodes in found_nodes.items():
        by_tool.setdefault(tool, []).extend(nodes)
    return {
        tool: [
            FailedEvent(node.values["session_id"], tool, said_of(node)[:_SAID_CHARACTERS])
            for node in sorted(nodes, key=lambda node: (-node.values["occurred_at"], node.key))
        ]
        for tool, nodes in by_tool.items()
    }


def changed_events(graph: Reads, tenant: str) -> list[SourceEvent]:
    """What says by its type that something changed, the latest first; with its text."""
    names = ("event_type", "session_id", "status", "trace_id", "occurred_at", "text", "summary")
    row = (tenant, EventKind.OTHER.value)
    nodes = graph.scan(
        EVENT.label, EVENT.indexes[2], [row], names, descending=True, limit=OTHER_EVENTS
    )
    return [
        SourceEvent(
            event_id=node.key[1],
            occurred_at_ms=node.values["occurred_at"],
            agent_id="",
            text=said_of(node),
            **{name: node.values[name] for name in names[:4]},
        )
        for node in nodes.get(row, ())
        if says_changed(node.values["event_type"])
    ]


def recorded_links(
    graph: Reads, tenant: str, session_ids: Iterable[str]
) -> dict[str, RecordedLinks]:
    """The links of sessions as decided; nothing of a session of which nothing was decided."""
    own_ids = _summaries(graph, tenant, session_ids)
    nodes = graph.nodes(SUMMARY.label, own_ids, ("link_count_decided_at",))
    decided_at = {
        key: Position(*position)
        for key, node in nodes.items()
        if (position := node.values["link_count_decided_at"]) is not None
    }
    edges = graph.edges(LINKED_TO.type, decided_at, _LINK)
    targets = {edge.target for some in edges.values() for edge in some}
    others = graph.nodes(SUMMARY.label, targets, ("session_id", "time_range", "user_ids"))
    return {
        own_ids[key]: RecordedLinks(
            position,
            tuple(
                _candidate(edge, others[edge.target])
                for edge in edges.get(key, ())
                if edge.target in others and others[edge.target].values["session_id"] is not None
            ),
        )
        for key, position in sorted(decided_at.items(), key=lambda item: item[1])
    }


def _candidate(edge: FoundEdge, other: FoundNode) -> LinkCandidate:
    reason, evidence, score, resolution, effect, cause = (edge.values[name] for name in _LINK)
    session_id, times = other.values["session_id"], other.values["time_range"]
    return LinkCandidate(
        SessionLink(
            session_id=session_id,
            reason=reason,
            evidence=tuple(evidence),
            score=score,
            resolution_event_id=resolution,
            user_ids=tuple(other.values["user_ids"] or ()) or None,
            effect_event_id=effect,
            cause_event_id=cause,
        ),
        times[1] if times else 0,
    )


def linking(
    graph: Reads, tenant: str, session_ids: Iterable[str], most: int
) -> dict[str, tuple[str, ...]]:
    """Sessions that are linked to each of some sessions, so many at most."""
    own_ids = _summaries(graph, tenant, session_ids)
    across = graph.across(LINKED_TO.type, own_ids, "session_id", by=End.TARGET, most=most)
    linking_ids: dict[str, tuple[str, ...]] = {}
    for key, sessions in across.items():
        before = linking_ids.get(own_ids[key], ())
        linking_ids[own_ids[key]] = tuple(dict.fromkeys((*before, *sessions)))[:most]
    return linking_ids


def weights(graph: Reads, tenant: str, event_ids: Iterable[str]) -> dict[str, Weight]:
    """What events weigh, of those that are retained."""
    nodes = graph.nodes(EVENT.label, _keys(tenant, event_ids), _WEIGHT)
    nodes = {key: node for key, node in nodes.items() if node.visible}
    effects = graph.across(CAUSED_BY.type, nodes, "event_id", by=End.TARGET, most=_EFFECTS)
    weighed = {}
    for key, node in nodes.items():
        session_id, boost, decided_at = (node.values[name] for name in _WEIGHT)
        count = len(effects.get(key, ()))
        weighed[key[1]] = Weight(session_id, count, boost or 0.0, position_of(decided_at))
    return weighed


def states(graph: Reads, tenant: str, session_ids: Iterable[str]) -> dict[str, SessionState]:
    """What there is of sessions, of those that have anything."""
    names = ("event_count", "pending_importance")
    return {
        key[1]: SessionState(node.values[names[0]] or 0, (node.values[names[1]] or 0) > 0)
        for key, node in graph.nodes(SCOPE.label, _keys(tenant, session_ids), names).items()
    }


def _keys(tenant: str, own_ids: Iterable[str]) -> list[Key]:
    return [(tenant, own_id) for own_id in sorted(set(own_ids))]


def _summaries(graph: Reads, tenant: str, session_ids: Iterable[str]) -> dict[Key, str]:
    """The sessions, by the keys of their summaries, one for each of their users."""
    rows = [(tenant, session_id) for session_id in sorted(set(session_ids))]
    shown = graph.scan(SUMMARY.label, SUMMARY.indexes[0], rows, ("level",), limit=WHOLE)
    level = LEVELS["session"]
    return {
        node.key: row[1]
        for row, nodes in shown.items()
        for node in nodes
        if node.values["level"] == level
    }
