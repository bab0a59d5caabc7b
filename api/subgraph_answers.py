"""The answer to a query for a subgraph: nodes, what they say in a few words, and the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from api.answers import atlas_node, atlas_response
from api.read_schemas import SubgraphQuery
from api.retrieval.channels import Outcome, Subgraph
from api.retrieval.intent import strongest_intent
from api.retrieval.narrative import AnswerHead, Evidence, evidence_markdown
from api.retrieval.ranking import Ranked
from api.schemas import AtlasResponse, ChannelReport, Node
from api.services import ReadContext
from api.spoken_answers import unless_of_others, unless_only_asked
from api.stored_events import pending_nodes
from api.verdict import answer_of, judged, lacks_value, proof_first
from pipelines.graph.reads.events import EventReads
from projections.errors import GraphError, LedgerError
from projections.events import timestamp_ms
from projections.schema import EVENT

_UNVALUED: Final = 0.9
"""Of the threshold: so sure at most is an answer without what is asked for."""


def subgraph_response(
    context: ReadContext[SubgraphQuery], page: Subgraph, next_cursor: str | None
) -> AtlasResponse:
    """The answer to a subgraph query.

    Args:
        context: of the read.
        page: of its ranking, with its nodes.
        next_cursor: of the page behind this one.
    """
    intent = context.query.intent
    nodes = [_ranked_node(page, ranked, context.now_ms) for ranked in page.ranking]
    story = page.story and unless_only_asked(page.story, nodes, context.query.query)
    story = story and unless_of_others(story, nodes, page.texts, context.query.query)
    response = atlas_response(
        context,
        nodes,
        page.edges,
        cut_by=page.notes.cut_by,
        intent=strongest_intent(page.intents),
        weights=page.weights,
        inferred_intents=dict(page.inferred) if intent is None else {},
        intent_override=intent,
        seed_nodes=page.seeds,
        seed_names=page.seed_names,
        unknown_seeds=page.notes.unknown_seeds,
        retrieval_method=page.method,
        channels={name: _report(outcome) for name, outcome in page.notes.outcomes.items()},
        degraded=page.notes.degraded,
        withheld=context.withheld(lambda: len(page.withheld)),
        next_cursor=next_cursor,
        **judged(story, context.settings.answer_threshold),
    )
    if story is not None:
        response.answer = answer = answer_of(
            story, response, page.summary, page.texts, zone=context.query.zone()
        )
        if lacks_value(story.plan, answer):
            surest = _UNVALUED * context.settings.answer_threshold
            confidence = min(story.confidence, surest)
            response.meta.answered, response.meta.confidence = False, round(confidence, 4)
            answer.evidence = []
        response.nodes = proof_first(response.nodes, answer, story.plan)
        response.meta.count = answer.value if answer.type == "count" else None
    return response


def _ranked_node(page: Subgraph, ranked: Ranked, now_ms: int) -> Node:
    return atlas_node(
        page.nodes[ranked.node_id],
        now_ms=now_ms,
        relevance=min(1.0, max(0.0, ranked.relevance)),
        rank=ranked.rank,
        depth=ranked.depth,
        found_by=ranked.found_by,
        pending=ranked.node_id in page.pending,
        retrieval_reason="direct" if ranked.signal is None else "proactive",
        proactive_signal=ranked.signal,
    )


def _report(outcome: Outcome) -> ChannelReport:
    size = len(outcome.value) if isinstance(outcome.value, list | tuple | dict) else 0
    return ChannelReport(status=outcome.status, found=size, ms=outcome.ms)


def evidence_of(
    context: ReadContext[Any],
    response: AtlasResponse,
    max_tokens: int,
    head: AnswerHead | None = None,
) -> str:
    """The events of an answer in reading order, the best of them if not all fit.

    Called on a thread; events whose words do not come in time are summed up.

    Args:
        context: of the read.
        response: its nodes, the best first.
        max_tokens: estimated, see `estimated_tokens`.
        head: of the text.
    """
    nodes = response.nodes
    ids = [node.node_id for node in nodes if node.type == EVENT.label]
    texts: dict[str, str] = {}
    summed_up = {node.node_id for node in nodes if node.attributes.get("summary")}
    unread_ids = [each for each in ids if each not in summed_up]
    with suppress(GraphError), context.services.connections.graph.reader() as reader:
        texts = context.read(reader, lambda graph: EventReads(graph, context.scope).texts(ids))
        # What no stage has read yet: the graph lacks the event, or its words.
        unread_ids = [each for each in ids if not texts.get(each)]
    if unread_ids:
        with suppress(LedgerError):
            unread = pending_nodes(context.services.ledger(), context.scope, unread_ids)
            texts |= {
                event_id: node.properties.get("text", "") for event_id, node in unread.items()
            }
    events = [evidence for node in nodes if (evidence := _evidence(node, texts)) is not None]
    of_users = 0 if context.scope.user_id else response.meta.withheld or 0
    return evidence_markdown(events, max_tokens=max_tokens, head=head, of_users=of_users)


def _evidence(node: Node, texts: Mapping[str, str]) -> Evidence | None:
    """An event of an answer; None for other nodes."""
    attributes, origin = node.attributes, node.provenance
    if node.type != EVENT.label or origin.occurred_at is None:
        return None

    def text_of(name: str) -> str | None:
        value = attributes.get(name)
        return value if isinstance(value, str) else None

    return Evidence(
        event_id=node.node_id,
        occurred_at_ms=timestamp_ms(origin.occurred_at),
        session_id=origin.session_id or "",
        agent_id=origin.agent_id or "",
        event_type=text_of("event_type") or "",
        text=texts.get(node.node_id) or text_of("summary") or "",
        speaker=text_of("speaker"),
        tool_name=text_of("tool_name"),
        status=text_of("status"),
        note=(node.proactive_signal or "").replace("_", " ") or None,
    )
