"""From what was read to what is sent: nodes and edges in the Atlas form, JSON by orjson."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from api.event_schemas import Provenance
from api.schemas import Edge, Node, NodeProvenance, Scores, ScoringWeights
from consolidation.decay import HIGHEST_IMPORTANCE, DecayWeights, decay_score
from pipelines.graph.reader import DEFAULT_IMPORTANCE, GraphEdge, GraphNode
from projections.events import timestamp_text
from projections.positions import Position
from projections.schema import EDGES, EVENT, NODES, Kind

_PROVENANCE: Final = (
    "global_position",
    "occurred_at",
    "session_id",
    "agent_id",
    "trace_id",
)
# Said by `scores` or `provenance`, or nobody's business outside.
_NOT_ATTRIBUTES: Final = frozenset(
    {*_PROVENANCE, "text", "decided_at", "source_event_ids", "source_digest", "gist"}
)


class JsonResponse(Response):
    """A model as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        if isinstance(content, BaseModel):
            return content.model_dump_json().encode()
        return orjson.dumps(content)


def _attribute_kinds(label: str) -> dict[str, Kind]:
    return {
        prop.name: prop.kind
        for prop in NODES[label].properties
        if prop.name not in _NOT_ATTRIBUTES and prop.kind is not Kind.VECTOR
    }


_ATTRIBUTES: Final = {row.label: _attribute_kinds(row.label) for row in NODES.values()}
_TIMES: Final = {
    label: {name: kind for name, kind in kinds.items() if kind in (Kind.TIME, Kind.TIMES)}
    for label, kinds in _ATTRIBUTES.items()
}
_EDGE_KINDS: Final = {
    row.type: {prop.name: prop.kind for prop in row.properties} for row in EDGES.values()
}


def _shown(value: Any, kind: Kind | None) -> Any:
    """A property on the wire: times as text."""
    if value is None:
        return None
    if kind is Kind.TIME:
        return timestamp_text(value)
    if kind is Kind.TIMES:
        return [timestamp_text(item) for item in value]
    return value


def importance_of(properties: Mapping[str, Any]) -> int:
    """The stages' score with its boost; before them the producer's hint, else 5."""
    score = properties.get("importance_score")
    if score is None:
        return int(properties.get("importance_hint") or DEFAULT_IMPORTANCE)
    boosted: float = score + (properties.get("importance_boost") or 0)
    return min(HIGHEST_IMPORTANCE, round(boosted))


def event_provenance(event_id: str, fields: Mapping[str, Any]) -> Provenance:
    """The pointer to the ledger; `fields` has the wire's names, times as text."""
    return Provenance(event_id=event_id, **{name: fields[name] for name in _PROVENANCE})


MAX_SUPPORTING: Final = 20
"""Events that a derived node names."""


def importance_shown(node: GraphNode) -> int:
    """Of an event its own; of a summary the mean of its events; of what is neither, 5."""
    if node.label == EVENT.label:
        return importance_of(node.properties)
    total, count = node.properties.get("importance_total"), node.properties.get("event_count")
    mean = round(total / count) if total and count else DEFAULT_IMPORTANCE
    return max(1, min(HIGHEST_IMPORTANCE, mean))


def used_at_ms(node: GraphNode) -> int:
    """When it was there or was read last; of a derived node, the newest that it is made from."""
    known = node.properties
    times = [known.get(name) for name in ("occurred_at", "last_seen", "updated_at")]
    times += [known.get("last_accessed_at"), *(known.get("time_range") or ())]
    return max((at for at in times if at is not None), default=known.get("created_at") or 0)


def node_provenance(node: GraphNode) -> NodeProvenance:
    """The pointer of a node to the ledger."""
    known = node.properties
    if node.label == EVENT.label:
        fields = {**known, "occurred_at": timestamp_text(known["occurred_at"])}
        return NodeProvenance(
            event_id=node.node_id, **{name: fields.get(name) for name in _PROVENANCE}
        )
    at_ms = known.get("last_seen") or known.get("created_at")
    supporting = known.get("source_event_ids") or known.get("supporting_event_ids") or []
    position = known.get("decided_at")
    return NodeProvenance(
        event_id=known.get("event_id") or known.get("first_event_id"),
        global_position=None if position is None else str(Position(*position)),
        occurred_at=None if at_ms is None else timestamp_text(at_ms),
        session_id=known.get("session_id"),
        agent_id=None,
        trace_id=None,
        supporting_event_ids=list(supporting)[-MAX_SUPPORTING:],
    )


def atlas_node(
    node: GraphNode,
    *,
    now_ms: int,
    relevance: float,
    rank: float | None = None,
    depth: int | None = None,
) -> Node:
    """A node of the graph in the Atlas form.

    Args:
        node: as read.
        now_ms: the clock for recency.
        relevance: 0 to 1.
        rank: what the answer is sorted by; None: the decay score.
        depth: hops from the asked node.
    """
    properties = node.properties
    importance = importance_shown(node)
    decay = decay_score(
        now_ms,
        used_at_ms(node),
        access_count=properties.get("access_count") or 0,
        importance=importance,
        relevance=relevance,
    )
    attributes = {name: properties.get(name) for name in _ATTRIBUTES[node.label]}
    for name, kind in _TIMES[node.label].items():
        attributes[name] = _shown(attributes[name], kind)
    return Node(
        node_id=node.node_id,
        type=node.label,
        attributes=attributes,
        provenance=node_provenance(node),
        scores=Scores(
            decay_score=decay,
            relevance_score=relevance,
            importance_score=importance,
            rank_score=decay if rank is None else rank,
        ),
        depth=depth,
    )


def shown_weights(weights: DecayWeights) -> ScoringWeights:
    """How `rank_score` weighs."""
    return ScoringWeights(
        recency=weights.recency, importance=weights.importance, relevance=weights.relevance
    )


def atlas_edges(edges: Iterable[GraphEdge]) -> list[Edge]:
    """Edges in the Atlas form."""
    return [
        Edge(
            source=edge.source,
            target=edge.target,
            type=edge.type,
            properties={
                name: _shown(value, _EDGE_KINDS[edge.type].get(name))
                for name, value in edge.properties.items()
            },
        )
        for edge in edges
    ]
