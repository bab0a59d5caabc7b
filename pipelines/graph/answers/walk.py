"""Answers to the questions of `reads.walk`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from itertools import islice
from typing import Any, Final

from consolidation.payloads import CAUSE
from enrichment.event_kinds import EventKind
from pipelines.graph.answers.seen import Answer, Row, Seen, columns, event_row, properties, said_in
from pipelines.graph.reader import column_names
from pipelines.graph.reads import walk as asked
from pipelines.graph.rows import RETRIEVED, FoundEdge, FoundNode, wire_id
from projections.schema import (
    CAUSED_BY,
    EDGES,
    ENTITY,
    EVENT,
    LINKED_TO,
    RELATES_TO,
    SAME_AS,
    SUMMARY,
    NodeRow,
)

_SHOWN: Final[Mapping[str, Callable[[Seen, FoundEdge], bool]]] = {
    RELATES_TO.type: lambda seen, edge: seen.fact_holds(edge) and seen.fact_visible(edge),
    SAME_AS.type: lambda _, edge: not edge.values["retracted"],
}


def _is_shown(seen: Seen, edge: FoundEdge, type_: str) -> bool:
    return type_ not in _SHOWN or _SHOWN[type_](seen, edge)


def _nodes(seen: Seen) -> list[tuple[NodeRow, FoundNode]]:
    return [
        (row, node)
        for row in RETRIEVED
        for node in seen.visible_nodes(row, seen.given[f"{row.label.lower()}_ids"])
    ]


def _nodes_alone(seen: Seen) -> list[Row]:
    return [{"rows": [_node(seen, row, node) for row, node in _nodes(seen)]}]


def _nodes_and_edges(seen: Seen) -> list[Row]:
    nodes = _nodes(seen)
    among = {wire_id(row.label, node.key[1]) for row, node in nodes}
    edges = [edge for row, node in nodes for edge in _edges(seen, row, node.key[1], among)]
    told = seen.given["told"]
    texts = [
        [node.key[1], said_in(node)]
        for row, node in nodes
        if row is EVENT
        and (is_told := told.get(node.key[1])) is not None
        and (is_told or node.values["kind"] != EventKind.MESSAGE)
    ]
    return [{"rows": [[_node(seen, row, node) for row, node in nodes], edges, texts]}]


def _node(seen: Seen, row: NodeRow, node: FoundNode) -> list[Any]:
    if row is ENTITY:
        return [row.label, seen.entity_node(node)]
    values = columns(row, node)
    return [row.label, [values[name] for name in column_names(row)]]


def _edges(seen: Seen, source: NodeRow, own_id: str, among: Set[str]) -> list[Any]:
    return [
        [row.type, wire_id(source.label, own_id), target, properties(edge)]
        for row in EDGES.values()
        if row.source == source.label
        for label in filter(None, (row.target, row.other_target))
        for edge in seen.edges(row, [own_id], label=label)
        if (target := wire_id(label, edge.target[1])) in among and _is_shown(seen, edge, row.type)
    ]


def _story(seen: Seen) -> list[Row]:
    bounds = {"occurred_at": seen.given["first_ms"]}, {"occurred_at": seen.given["last_ms"]}
    events = seen.paged(
        EVENT, EVENT.indexes[0], (seen.given["session_id"],), least=bounds[0], most=bounds[1]
    )
    shown = (node for node in events if seen.visible(EVENT, node))
    return [event_row(node) for node in islice(shown, seen.given["limit"])]


def _causes(seen: Seen) -> list[Row]:
    effects = [node.key[1] for node in seen.events(seen.given["ids"])]
    edges = seen.edges(CAUSED_BY, effects)
    causes = {node.key: node for node in seen.events(edge.target[1] for edge in edges)}
    rows = [(edge, causes[edge.target]) for edge in edges if edge.target in causes]
    rows.sort(key=lambda row: (row[0].source[1], -row[1].values["occurred_at"], row[1].key[1]))
    return [
        {"effect": edge.source[1], "properties": properties(edge)} | event_row(node)
        for edge, node in rows[: seen.given["limit"]]
    ]


def _linked_causes(seen: Seen) -> list[Row]:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for effect in seen.events(seen.given["ids"]):
        for edge in _links(seen, effect.values["session_id"], CAUSE):
            values = edge.values
            if values["effect_event_id"] != effect.key[1]:
                continue
            for node in seen.events([values["cause_event_id"]]):
                told = {
                    "effect": effect.key[1],
                    "confidence": values["score"],
                    "evidence": list(values["evidence"] or ()),
                    "decided_by": values["event_id"],
                }
                place = (effect.key[1], -(values["score"] or 0.0), node.key[1])
                rows[*place, values["event_id"], tuple(told["evidence"])] = told | event_row(node)
    best = sorted(rows, key=lambda place: place[:3])[: seen.given["limit"]]
    return [rows[place] for place in best]


def _links(seen: Seen, session_id: str | None, reason: str) -> list[FoundEdge]:
    """Links of a reason from the summaries of a session, both ends of which the viewer sees."""
    if session_id is None:
        return []
    edges = seen.edges(LINKED_TO, [node.key[1] for node in seen.summaries_of(session_id)])
    ends = (edge.target[1] for edge in edges)
    shown = {node.key for node in seen.visible_nodes(SUMMARY, ends)}
    return [edge for edge in edges if edge.values["reason"] == reason and edge.target in shown]


def _gists(seen: Seen) -> list[Row]:
    rows = [
        {"summary_id": node.key[1], "session_id": session_id, "gist": node.values["gist"]}
        for session_id in sorted(set(seen.given["session_ids"]))
        for node in seen.summaries_of(session_id)
        if node.values["scope"] == "episode" and '"lessons":' in (node.values["gist"] or "")
    ]
    return list(rows[: seen.given["limit"]])


def _alike(seen: Seen) -> list[Row]:
    edges = _links(seen, seen.given["session_id"], asked.ALIKE_REASON)
    scores: dict[str, float] = {}
    sessions = {
        node.key: node.values["session_id"]
        for node in seen.nodes(SUMMARY, (edge.target[1] for edge in edges))
    }
    for edge in edges:
        session_id = sessions[edge.target]
        scores[session_id] = max(scores.get(session_id, 0.0), edge.values["score"])
    best = sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))[: asked.MAX_LINKED]
    return [{"session_id": session_id, "score": score} for session_id, score in best]


ANSWERS: Final[Mapping[str, Answer]] = {
    asked.NODES_OF: _nodes_alone,
    asked.SHOWN_OF: _nodes_and_edges,
    asked.STORY: _story,
    asked.CAUSES: _causes,
    asked.LINKED_CAUSES: _linked_causes,
    asked.GISTS: _gists,
    asked.ALIKE: _alike,
}
"""By text."""
