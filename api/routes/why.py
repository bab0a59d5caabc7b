"""Why something happened: the event that is asked about, its causes over sessions, what helped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from api.answers import (
    JsonResponse,
    MarkdownResponse,
    also_markdown,
    atlas_node,
    atlas_response,
    wants_markdown,
)
from api.dependencies import Reader, ServicesOf, body_of, documented_body, no_query
from api.errors import BODY_PROBLEMS, READ_PROBLEMS, problem_responses
from api.retrieval.answer import Retrieval
from api.retrieval.cause_tree import CauseTree, Step, told_line
from api.retrieval.narrative import estimated_tokens
from api.retrieval.summaries import Learned
from api.retrieval.why import Explained, Explaining
from api.schemas import Bound, Node
from api.services import ReadContext, begin_read
from api.why_schemas import (
    ArgumentChange,
    LessonShown,
    TreeNode,
    WhyAnswer,
    WhyQuery,
    WhyResponse,
)
from consolidation.decay import DecayWeights
from pipelines.graph.reader import GraphEdge
from pipelines.graph.rows import SUMMARY_PREFIX
from projections.schema import CAUSED_BY

router = APIRouter(prefix="/v1/query", tags=["memory"], dependencies=[Depends(no_query)])


@router.post(
    "/why",
    response_model=WhyResponse,
    responses={
        **also_markdown("The tree; as Markdown, its text"),
        **problem_responses(*READ_PROBLEMS, *BODY_PROBLEMS),
    },
    openapi_extra=documented_body(WhyQuery),
)
async def query_why(
    caller: Reader,
    services: ServicesOf,
    query: Annotated[WhyQuery, Depends(body_of(WhyQuery))],
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Why something happened, as a tree: the event that is asked about, and its causes below it.

    The event is chosen by what the question says; `doubtful` says that another one is nearly as
    likely, and `head` names it. Causes cross sessions: what a producer named, what a rule
    inferred, and changes elsewhere that name what the failure names. `helped` tells what was
    different when it went through, here or after a similar failure. `Accept: text/markdown` gives
    the text alone.
    """
    context = await begin_read(services, caller, query, session_id=query.session_id)

    def work() -> WhyResponse:
        with services.connections.graph.opened() as graph:
            explaining = Explaining(context, graph, lambda read: Retrieval(read, graph).answer())
            return _response(context, explaining.explain())

    response = await services.query(work, timeout_ms=context.deadline.remaining_ms())
    context.record([node.node_id for node in response.nodes])
    if wants_markdown(accept):
        return MarkdownResponse(response.answer.text)
    return JsonResponse(response)


def _response(context: ReadContext[WhyQuery], explained: Explained) -> WhyResponse:
    head, tree = explained.head, explained.tree
    steps = [] if tree is None else list(tree.steps.values())
    atlas = atlas_response(
        context,
        [*_nodes(context, explained, steps), *_beside(context, explained)],
        [] if tree is None else _edges(tree),
        cut_by=[] if tree is None else _cut_by(tree),
        intent="why",
        weights=DecayWeights(recency=0.0, importance=0.0, relevance=1.0),
        inferred_intents={"why": 1.0},
        intent_override=None,
        seed_nodes=[] if head is None else [head.event.node.node_id],
        degraded=explained.degraded,
        withheld=context.withheld(lambda: explained.withheld),
    )
    answer = WhyAnswer(
        head=None if head is None else head.event.node.node_id,
        confidence=0.0 if head is None else head.confidence,
        doubtful=head is None or head.doubtful,
        tree=[_tree_node(step) for step in steps],
        helped=[_lesson(one) for one in explained.learned],
        text=_within(explained.text(), context.query.max_tokens),
    )
    return WhyResponse(nodes=atlas.nodes, edges=atlas.edges, meta=atlas.meta, answer=answer)


def _nodes(
    context: ReadContext[WhyQuery], explained: Explained, steps: Iterable[Step]
) -> Iterable[Node]:
    """The events of the tree; what is nearer to the head, and more certain, ranks higher."""
    ranks: dict[str | None, float] = {None: 1.0}
    for step in steps:
        node_id = step.event.node.node_id
        ranks[node_id] = ranks[step.cause_of] * step.confidence
        yield atlas_node(
            step.event.node,
            now_ms=context.now_ms,
            relevance=min(1.0, max(0.0, explained.ranks.get(node_id, 0.0))),
            rank=ranks[node_id],
            depth=step.depth,
        )


def _beside(context: ReadContext[WhyQuery], explained: Explained) -> Iterable[Node]:
    for node_id, node in explained.beside.items():
        relevance = min(1.0, max(0.0, explained.ranks.get(node_id, 0.0)))
        yield atlas_node(node, now_ms=context.now_ms, relevance=relevance, rank=0.0)


def _edges(tree: CauseTree) -> list[GraphEdge]:
    """The steps between events of the tree, each once, sorted."""
    edges = {
        (edge.effect, edge.cause.node.node_id, edge.mechanism, edge.rule or ""): GraphEdge(
            CAUSED_BY.type,
            edge.effect,
            edge.cause.node.node_id,
            {
                "mechanism": edge.mechanism,
                "rule": edge.rule,
                "confidence": edge.confidence,
                "evidence": ", ".join(edge.evidence) or None,
            },
        )
        for edge in tree.edges
        if edge.cause.node.node_id in tree.steps
    }
    return [edges[key] for key in sorted(edges)]


def _cut_by(tree: CauseTree) -> list[Bound]:
    cut = ((Bound.DEPTH, tree.cut_by_depth), (Bound.NODES, tree.cut_by_nodes))
    return [bound for bound, reached in cut if reached]


def _tree_node(step: Step) -> TreeNode:
    return TreeNode(
        node_id=step.event.node.node_id,
        cause_of=step.cause_of,
        mechanism=step.mechanism,
        rule=step.rule,
        confidence=step.confidence,
        line=told_line(step.event),
        evidence=list(step.evidence),
        decided_by=step.decided_by,
    )


def _lesson(learned: Learned) -> LessonShown:
    lesson = learned.lesson
    return LessonShown(
        text=lesson.text,
        tool=lesson.tool,
        error=lesson.error,
        attempts=lesson.attempts,
        differences=[
            ArgumentChange(
                name=change.name,
                before=change.before,
                after=change.after,
                source_event_id=change.source_event_id,
            )
            for change in lesson.differences
        ],
        failed_event_ids=list(lesson.failed_event_ids),
        solved_event_ids=list(lesson.solved_event_ids),
        helped_by=list(lesson.helped_by),
        session_id=learned.session_id,
        summary_id=f"{SUMMARY_PREFIX}{learned.summary_id}",
        same_story=learned.same_story,
    )


def _within(text: str, max_tokens: int) -> str:
    """The first lines of a text that fit; an estimate of tokens, as for evidence."""
    lines = text.split("\n")
    while len(lines) > 1 and estimated_tokens("\n".join(lines)) > max_tokens:
        lines.pop()
    return "\n".join(lines)
