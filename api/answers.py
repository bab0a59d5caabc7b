"""From what was read to what is sent: nodes and edges in the Atlas form, JSON by orjson."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from api.retrieval.rank import DECAY_WEIGHTS, MAX_IMPORTANCE, decay_score
from api.schemas import Edge, Node, Provenance, Scores
from pipelines.adapters.graph_reader import DEFAULT_IMPORTANCE, GraphEdge, GraphNode
from projections.events import timestamp_text
from projections.schema import EDGES, NODES, Kind

_PROVENANCE: Final = (
    "global_position",
    "occurred_at",
    "session_id",
    "agent_id",
    "trace_id",
)
# Said by `scores` or `provenance`, or nobody's business outside.
_NOT_ATTRIBUTES: Final = frozenset({*_PROVENANCE, "text"})


class JsonResponse(Response):
    """A model as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        if isinstance(content, BaseModel):
            content = content.model_dump()
        return orjson.dumps(content)


def _attribute_kinds(label: str) -> dict[str, Kind]:
    return {
        prop.name: prop.kind
        for prop in NODES[label].properties
        if prop.name not in _NOT_ATTRIBUTES and prop.kind is not Kind.VECTOR
    }


_ATTRIBUTES: Final = {row.label: _attribute_kinds(row.label) for row in NODES.values()}
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
    return min(MAX_IMPORTANCE, round(boosted))


def event_provenance(event_id: str, fields: Mapping[str, Any]) -> Provenance:
    """The pointer to the ledger; `fields` has the wire's names, times as text."""
    return Provenance(event_id=event_id, **{name: fields[name] for name in _PROVENANCE})


def atlas_node(
    node: GraphNode,
    *,
    now_ms: int,
    relevance: float,
    rank: float | None = None,
    depth: int | None = None,
) -> Node:
    """An event of the graph in the Atlas form.

    Args:
        node: as read.
        now_ms: the clock for recency.
        relevance: 0 to 1.
        rank: what the answer is sorted by; None: the decay score.
        depth: hops from the asked node.
    """
    properties = node.properties
    occurred_at_ms: int = properties["occurred_at"]
    importance = importance_of(properties)
    decay = decay_score(
        used_at_ms=max(occurred_at_ms, properties.get("last_accessed_at") or 0),
        now_ms=now_ms,
        importance=importance,
        access_count=properties.get("access_count") or 0,
        relevance=relevance,
        weights=DECAY_WEIGHTS,
    )
    kinds = _ATTRIBUTES[node.label]
    return Node(
        node_id=node.node_id,
        type=node.label,
        attributes={name: _shown(properties.get(name), kind) for name, kind in kinds.items()},
        provenance=event_provenance(
            node.node_id, {**properties, "occurred_at": timestamp_text(occurred_at_ms)}
        ),
        scores=Scores(
            decay_score=decay,
            relevance_score=relevance,
            importance_score=importance,
            rank_score=decay if rank is None else rank,
        ),
        depth=depth,
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
