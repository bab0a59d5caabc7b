"""A ranking as the Atlas form has it: nodes, edges, and how they were found."""

from __future__ import annotations

from api.answers import atlas_edges, atlas_node, shown_weights
from api.query_schemas import SubgraphQuery
from api.retrieval.answer import Found
from api.retrieval.channels import Outcome
from api.retrieval.intent import strongest_intent
from api.retrieval.ranking import Ranked
from api.retrieval.traverse import Bound
from api.schemas import AtlasResponse, Capacity, ChannelReport, Meta, Node


def subgraph_response(
    found: Found, asked: SubgraphQuery, *, now_ms: int, query_ms: int, next_cursor: str | None
) -> AtlasResponse:
    """The answer to a subgraph query.

    Args:
        found: its ranking is the page, its nodes are read.
        asked: the query.
        now_ms: the clock for recency.
        query_ms: how long it took.
        next_cursor: of the page behind this one.
    """
    nodes = [_node(found, one, now_ms) for one in found.ranking]
    cut_by = sorted(found.notes.cut_by)
    return AtlasResponse(
        nodes=nodes,
        edges=atlas_edges(found.edges),
        meta=Meta(
            query_ms=query_ms,
            nodes_returned=len(nodes),
            truncated=bool(cut_by),
            truncated_by=[Bound(one) for one in cut_by],
            intent=strongest_intent(found.intents),
            inferred_intents=dict(found.inferred) if asked.intent is None else {},
            intent_override=asked.intent,
            seed_nodes=found.seeds,
            proactive_nodes_count=sum(node.retrieval_reason == "proactive" for node in nodes),
            scoring_weights=shown_weights(found.weights),
            capacity=Capacity(
                max_nodes=asked.max_nodes, used_nodes=len(nodes), max_depth=asked.max_depth
            ),
            retrieval_method=found.method,
            channels={name: _report(outcome) for name, outcome in found.notes.outcomes.items()},
            degraded=found.notes.degraded,
            next_cursor=next_cursor,
        ),
    )


def _node(found: Found, one: Ranked, now_ms: int) -> Node:
    node = atlas_node(
        found.nodes[one.node_id],
        now_ms=now_ms,
        relevance=min(1.0, max(0.0, one.relevance)),
        rank=one.rank,
        depth=one.depth,
    )
    node.found_by = list(one.found_by)
    if one.signal is not None:
        node.retrieval_reason, node.proactive_signal = "proactive", one.signal
    return node


def _report(outcome: Outcome) -> ChannelReport:
    size = len(outcome.value) if isinstance(outcome.value, list | tuple | dict) else 0
    return ChannelReport(status=outcome.status, found=size, ms=outcome.ms)
