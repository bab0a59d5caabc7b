"""From what was read to what is sent: nodes and edges in the Atlas form, JSON by orjson."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from api.read_schemas import GraphReadQuery, PageMeta, PageQuery
from api.retrieval.plan import Intent
from api.schemas import (
    AtlasResponse,
    Bound,
    Capacity,
    Edge,
    Meta,
    Node,
    NodeProvenance,
    Scores,
    ScoringWeights,
)
from api.services import ReadContext
from api.stored_events import PROVENANCE
from consolidation.decay import DECAY_WEIGHTS, HIGHEST_IMPORTANCE, DecayWeights, decay_score
from enrichment.names import ACTIVE
from pipelines.graph.reader import GraphEdge, GraphNode
from pipelines.graph.rows import DEFAULT_IMPORTANCE
from pipelines.ledger.ledger import Ledger
from projections.errors import KeysUnavailable, LedgerError, UndecodableEntry
from projections.events import timestamp_text
from projections.identity import Position
from projections.schema import EDGES, ENTITY, EVENT, MAX_SUPPORTING, NODES, Kind

GQ = TypeVar("GQ", bound=GraphReadQuery)
PQ = TypeVar("PQ", bound=PageQuery)

# Said by `scores` or `provenance`, or of use to the stages alone.
_NOT_ATTRIBUTES: Final = frozenset(
    {
        *PROVENANCE,
        *("text", "decided_at", "source_event_ids", "source_digest", "gist"),
        *("embedding_model", "parted_from", "corrected_type", "link_count"),
        *("first_event_id", "first_user_id"),
    }
)
_UNWRITTEN: Final[Mapping[str, Mapping[str, Any]]] = {
    EVENT.label: {"access_count": 0},
    ENTITY.label: {"access_count": 0, "status": ACTIVE},
}
"""What a property that nobody has written says, by label."""


class JsonResponse(Response):
    """A model as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        if isinstance(content, BaseModel) and not isinstance(content, AtlasResponse):
            return content.model_dump_json().encode()
        return as_json(content)


def as_json(answer: Any) -> bytes:
    """An answer as it is sent; of models, which have no other names for their fields, all."""
    return orjson.dumps(answer, default=dict)


def _attribute_kinds(label: str) -> dict[str, Kind]:
    return {
        prop.name: prop.kind
        for prop in NODES[label].properties
        if prop.name not in _NOT_ATTRIBUTES and prop.kind is not Kind.VECTOR
    }


_ATTRIBUTES: Final = {row.label: _attribute_kinds(row.label) for row in NODES.values()}
_UNSET: Final = {
    label: {**dict.fromkeys(kinds), **_UNWRITTEN.get(label, {})}
    for label, kinds in _ATTRIBUTES.items()
}


def _times(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    return {name: kind for name, kind in kinds.items() if kind in (Kind.TIME, Kind.TIMES)}


_TIMES: Final = {label: _times(kinds) for label, kinds in _ATTRIBUTES.items()}
_EDGE_TIMES: Final = {
    row.type: _times({prop.name: prop.kind for prop in row.properties}) for row in EDGES.values()
}


def _shown(properties: Mapping[str, Any], times: Mapping[str, Kind]) -> dict[str, Any]:
    """Properties on the wire: those that are times as text."""
    shown = dict(properties)
    for name, kind in times.items():
        value = shown.get(name)
        if value is not None:
            several = kind is Kind.TIMES
            shown[name] = list(map(timestamp_text, value)) if several else timestamp_text(value)
    return shown


def importance_of(properties: Mapping[str, Any]) -> int:
    """The stages' score with its boost; before them the producer's hint, else 5."""
    score = properties.get("importance_score")
    if score is None:
        return int(properties.get("importance_hint") or DEFAULT_IMPORTANCE)
    boosted: float = score + (properties.get("importance_boost") or 0)
    return min(HIGHEST_IMPORTANCE, round(boosted))


def importance_shown(node: GraphNode) -> int:
    """Of an event its own; of a summary the mean of its events; of what is neither, 5."""
    if node.label == EVENT.label:
        return importance_of(node.properties)
    total, count = node.properties.get("importance_total"), node.properties.get("event_count")
    mean = round(total / count) if total and count else DEFAULT_IMPORTANCE
    return max(1, min(HIGHEST_IMPORTANCE, mean))


def used_at_ms(node: GraphNode) -> int:
    """When it was there or was read last; of a derived node, the newest that it is made from."""
    properties = node.properties
    newest: int | None = None
    for name in _USED:
        at_ms = properties.get(name)
        if at_ms is not None and (newest is None or at_ms > newest):
            newest = at_ms
    for at_ms in properties.get("time_range") or ():
        newest = at_ms if newest is None else max(newest, at_ms)
    return newest if newest is not None else properties.get("created_at") or 0


_USED: Final = ("occurred_at", "last_seen", "updated_at", "last_accessed_at")


def _of_event(
    event_id: str, properties: Mapping[str, Any], supporting: Sequence[str]
) -> NodeProvenance:
    return NodeProvenance(
        event_id=event_id,
        global_position=properties.get("global_position"),
        occurred_at=timestamp_text(properties["occurred_at"]),
        session_id=properties.get("session_id"),
        agent_id=properties.get("agent_id"),
        trace_id=properties.get("trace_id"),
        supporting_event_ids=list(supporting),
    )


def node_provenance(node: GraphNode) -> NodeProvenance:
    """The pointer of a node to the ledger; of an entity that events mention, to the newest."""
    properties = node.properties
    if node.label == EVENT.label:
        return _of_event(node.node_id, properties, ())
    supports: Sequence[Mapping[str, Any]] = properties.get("supports") or ()
    if supports:
        ids = [support["event_id"] for support in supports]
        return _of_event(ids[0], supports[0], ids)
    at_ms = properties.get("last_seen") or properties.get("created_at")
    supporting = properties.get("source_event_ids") or properties.get("supporting_event_ids") or []
    position = properties.get("decided_at")
    return NodeProvenance(
        event_id=properties.get("event_id") or properties.get("first_event_id"),
        global_position=None if position is None else str(Position(*position)),
        occurred_at=None if at_ms is None else timestamp_text(at_ms),
        session_id=properties.get("session_id"),
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
    **more: Any,
) -> Node:
    """A node of the graph in the Atlas form.

    Args:
        node: as read.
        now_ms: the clock for recency.
        relevance: 0 to 1.
        rank: what the answer is sorted by; None: the decay score.
        depth: hops from the asked node.
        more: further fields of `Node`: how it was found.
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
    attributes = dict(_UNSET[node.label])
    for name, value in properties.items():
        if name in attributes and value is not None:
            attributes[name] = value
    return Node(
        node_id=node.node_id,
        type=node.label,
        attributes=_shown(attributes, _TIMES[node.label]),
        provenance=node_provenance(node),
        scores=Scores(
            decay_score=decay,
            relevance_score=relevance,
            importance_score=importance,
            rank_score=decay if rank is None else rank,
        ),
        depth=depth,
        **more,
    )


def atlas_edges(edges: Iterable[GraphEdge]) -> list[Edge]:
    """Edges in the Atlas form."""
    return [
        Edge(
            source=edge.source,
            target=edge.target,
            type=edge.type,
            properties=_shown(edge.properties, _EDGE_TIMES[edge.type]),
        )
        for edge in edges
    ]


def atlas_response(
    context: ReadContext[GQ],
    nodes: list[Node],
    edges: Iterable[GraphEdge],
    *,
    cut_by: Iterable[Bound],
    intent: Intent,
    weights: DecayWeights,
    **meta: Any,
) -> AtlasResponse:
    """Nodes and edges, and how they were found.

    Args:
        context: of the read.
        nodes: the best first.
        edges: between them.
        cut_by: the bounds beyond which there is more.
        intent: that the answer is to.
        weights: of `rank_score`.
        meta: further fields of `Meta`.
    """
    query = context.query
    capacity = Capacity(max_nodes=query.max_nodes, used_nodes=len(nodes), max_depth=query.max_depth)
    told = _meta(
        context, nodes, cut_by=cut_by, intent=intent, weights=weights, capacity=capacity, **meta
    )
    return AtlasResponse(nodes=nodes, edges=atlas_edges(edges), meta=Meta(**told))


def _meta(
    context: ReadContext[Any],
    nodes: Sequence[Node],
    *,
    cut_by: Iterable[Bound],
    weights: DecayWeights,
    **more: Any,
) -> dict[str, Any]:
    """The fields of `Meta`, with those that only the route knows."""
    bounds = sorted(cut_by)
    return {
        "query_ms": context.deadline.elapsed_ms(),
        "nodes_returned": len(nodes),
        "truncated": bool(bounds),
        "truncated_by": bounds,
        "proactive_nodes_count": sum(node.retrieval_reason == "proactive" for node in nodes),
        "scoring_weights": ScoringWeights(
            recency=weights.recency, importance=weights.importance, relevance=weights.relevance
        ),
        "policy_version": context.services.policy.version,
        "user_id": context.scope.viewer,
        **more,
    }


def page_meta(
    context: ReadContext[PQ],
    met: int,
    nodes: Sequence[Node] = (),
    *,
    withheld: int | None,
    begun_at: Iterable[str] = (),
    next_cursor: str | None,
) -> PageMeta:
    """How a page came about that is no answer to a question.

    Args:
        context: of the read.
        met: items that were read: one more than the limit, if there is another page.
        nodes: of the page and around it.
        withheld: how much was kept from the viewer.
        begun_at: wire ids of the nodes that the page is about.
        next_cursor: of the page behind this one.
    """
    limit = context.query.limit
    told = _meta(
        context,
        nodes,
        cut_by=[Bound.LIMIT] if met > limit else [],
        weights=DECAY_WEIGHTS,
        intent="general",
        inferred_intents={},
        intent_override=None,
        seed_nodes=list(begun_at),
        capacity=Capacity(max_nodes=limit, used_nodes=min(met, limit), max_depth=1),
        withheld=withheld,
        next_cursor=next_cursor,
    )
    return PageMeta(returned=min(met, limit), **told)


MAX_CONTENT_BYTES: Final = 1024 * 1024
"""Of all payloads of an answer, the best nodes' first."""


def add_contents(nodes: Iterable[Node], tenant: str, ledger: Callable[[], Ledger]) -> None:
    """Give each event node its payload, or the reason why it has none."""
    events = [node for node in nodes if node.type == EVENT.label]
    if not events:
        return
    try:
        entries = ledger().find_many([(tenant, node.node_id) for node in events])
    except LedgerError:
        for node in events:
            node.content_omitted = "ledger away"
        return
    room = MAX_CONTENT_BYTES
    for node in events:
        entry = entries.get((tenant, node.node_id))
        if entry is None:
            node.content_omitted = "not in the ledger"
        elif len(entry.data) > room:
            node.content_omitted = "too large"
        else:
            room -= len(entry.data)
            try:
                node.content = entry.event().payload
            except UndecodableEntry:
                node.content_omitted = "not in the ledger"
            except KeysUnavailable:
                node.content_omitted = "sealed"


MEDIA_TYPE: Final = "text/markdown"


class MarkdownResponse(Response):
    """Text in Markdown, UTF-8."""

    media_type = MEDIA_TYPE


def wants_markdown(accept: str | None) -> bool:
    """Whether an Accept header names Markdown, and JSON not before it."""
    qualities = dict(map(_quality, (accept or "").lower().split(",")))
    return qualities.get(MEDIA_TYPE, 0.0) > qualities.get("application/json", 0.0)


def _quality(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip() for piece in part.split(";"))
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return name, float(value)
            except ValueError:
                return name, 0.0
    return name, 1.0


def also_markdown(description: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for OpenAPI: the same answer as text."""
    content = {MEDIA_TYPE: {"schema": {"type": "string"}}}
    return {200: {"description": description, "content": content}}
