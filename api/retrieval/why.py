"""The question why, answered once: find the event that it is about, its causes, and what helped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from api.connections import OpenGraph
from api.read_schemas import SubgraphQuery
from api.retrieval.cause_tree import BEFORE_MS, CauseTree, tree_lines
from api.retrieval.channels import Subgraph
from api.retrieval.query_terms import query_terms
from api.retrieval.summaries import Learned, lessons_in
from api.retrieval.time_spans import TimeSpan
from api.retrieval.why_head import Head, RankedEvent, Story, head_of, is_failure_event, stories_of
from api.services import ReadContext
from api.why_schemas import WhyQuery
from consolidation.actions import Failure, failure_signature
from consolidation.links import are_alike
from consolidation.summary_payloads import Lesson
from pipelines.graph.reader import GraphNode, GraphRead
from pipelines.graph.reads.events import EventReads
from pipelines.graph.reads.walk import CauseReads, StoryEvent
from projections.errors import QueryTimeout
from projections.schema import EVENT

MAX_FOUND: Final = 60
"""Events that the question finds, among which the story is looked for."""
MAX_STORY: Final = 300
"""Events of one story that are read."""
MAX_SIMILAR: Final = 10
"""Sessions that failed alike, of which lessons are read."""
Finds = Callable[[ReadContext[SubgraphQuery]], Subgraph]


@dataclass
class Explained:
    """What is answered.

    Attributes:
        head: None: nothing was found that could be explained.
        tree: of its causes.
        learned: what helped.
        beside: the events that this names and the tree does not have, by id.
        ranks: of the events that the question found, by id.
        degraded: what the answer had to go without.
    """

    head: Head | None = None
    tree: CauseTree | None = None
    learned: Sequence[Learned] = ()
    beside: Mapping[str, GraphNode] = field(default_factory=dict)
    ranks: Mapping[str, float] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)
    withheld: int = 0

    def text(self) -> str:
        """The answer in Markdown."""
        if self.tree is None:
            return "Nothing is known of it.\n"
        lines = list(tree_lines(self.tree))
        if self.head is not None and self.head.doubtful:
            lines.append("\nThis may not be what was asked about: something else is as likely.")
        if self.learned:
            lines.append("\nWhat helped:")
            lines += [_told(one) for one in self.learned]
        return "\n".join(lines) + "\n"


def _told(learned: Learned) -> str:
    where = "" if learned.same_story else f" (a similar failure, in {learned.session_id})"
    return f"- {learned.lesson.text}{where} [{learned.lesson.solved_event_ids[-1]}]"


class Explaining:
    """One question, on a thread of its own.

    Args:
        context: of the request.
        graph: that it is answered from.
        finds: what a query for a subgraph finds there.
    """

    def __init__(self, context: ReadContext[WhyQuery], graph: OpenGraph, finds: Finds) -> None:
        self._context = context
        self._graph = graph
        self._finds = finds

    def explain(self) -> Explained:
        """The answer.

        Raises:
            QueryTimeout: the event could not be found in time.
            GraphUnavailable: Neo4j is away.
        """
        answer = Explained()
        ranked = self._given() or self._ranked(answer)
        answer.ranks = {one.node.node_id: one.rank for one in ranked}
        context, reader = self._context, self._graph.reader
        head = context.read(reader, lambda graph: self._head(graph, ranked))
        if head is None:
            return answer
        query = context.query
        answer.head = head
        answer.tree = CauseTree(head, query.max_depth, query.max_nodes)
        try:
            context.read(reader, lambda graph: self._grow(graph, answer))
        except QueryTimeout:
            answer.degraded.append("the causes could not all be read in time")
        return answer

    # -- the event that is explained ---------------------------------------------------------------

    def _given(self) -> list[RankedEvent]:
        """The event that the caller names."""
        head = self._context.query.head
        if head is None:
            return []
        scope = self._context.scope
        events = self._context.read(
            self._graph.reader, lambda graph: EventReads(graph, scope).events([head.lower()])
        )
        return [RankedEvent(node, 1.0) for node in events.values()]

    def _ranked(self, answer: Explained) -> list[RankedEvent]:
        """What the question finds, as a query for a subgraph does, the best first."""
        context, query = self._context, self._context.query
        if query.head is not None:
            return []
        subgraph = SubgraphQuery(
            query=query.query,
            session_id=query.session_id,
            agent_id=query.agent_id,
            user_id=query.user_id,
            intent="why",
            max_nodes=MAX_FOUND,
            timeout_ms=query.timeout_ms,
            as_of=query.as_of,
            as_of_position=query.as_of_position,
            record_access=False,
            proactive=False,
        )
        page = self._finds(_of_subgraph(context, subgraph))
        answer.degraded += page.notes.degraded
        answer.withheld = len(page.withheld)
        ranked = [
            RankedEvent(node, one.rank)
            for one in page.ranking
            if (node := page.nodes[one.node_id]).label == EVENT.label
            and one.node_id not in page.pending
        ]
        spans = () if page.story is None else page.story.plan.spans
        within = [one for one in ranked if any(_is_of(span, one.node) for span in spans)]
        return within or ranked

    def _head(self, graph: GraphRead, ranked: Sequence[RankedEvent]) -> Head | None:
        reads = CauseReads(graph, self._context.scope)
        stories = stories_of(ranked)
        for story in stories:
            story.events = _story(reads, story)
        query = self._context.query
        if query.head is None:
            return head_of(query_terms(query.query), stories, query.session_id)
        given = query.head.lower()
        return next(
            (
                Head(event, story, 1.0)
                for story in stories
                for event in story.events
                if event.node.node_id == given
            ),
            None,
        )

    # -- its causes, and what helped ---------------------------------------------------------------

    def _grow(self, graph: GraphRead, answer: Explained) -> None:
        scope = self._context.scope
        reads, head, tree = CauseReads(graph, scope), answer.head, answer.tree
        if head is None or tree is None:
            return
        tree.grow(reads)
        if head.rival is not None and self._belongs(reads, head, tree, head.rival):
            answer.head = head = tree.head = head.without_rival()
        session_id = head.story.session_id
        similar = reads.alike(session_id)[:MAX_SIMILAR]
        learned = list(lessons_in(reads.gists([session_id])))
        learned += lessons_in(reads.gists(similar)) if similar else ()
        answer.learned = helped(head, tree.steps, learned)
        named = dict.fromkeys(_named(answer.learned))
        beside = [one for one in named if one not in tree.steps]
        answer.beside = EventReads(graph, scope).events(beside) if beside else {}

    def _belongs(self, reads: CauseReads, head: Head, tree: CauseTree, rival: StoryEvent) -> bool:
        """Whether a rival is a cause of the head, or goes back to it: then both tell one story."""
        if rival.node.node_id in tree.steps:
            return True
        query = self._context.query
        other = CauseTree(head._replace(event=rival), query.max_depth, query.max_nodes)
        other.grow(reads)
        return head.event.node.node_id in other.steps


def _is_of(span: TimeSpan, node: GraphNode) -> bool:
    return span.first_ms <= int(node.properties["occurred_at"]) < span.end_ms


def _of_subgraph(
    context: ReadContext[WhyQuery], query: SubgraphQuery
) -> ReadContext[SubgraphQuery]:
    return ReadContext(
        context.services,
        context.scope,
        query,
        deadline=context.deadline,
        tells_withheld=context.tells_withheld,
        is_fresh=context.is_fresh,
    )


def _story(reads: CauseReads, story: Story) -> list[StoryEvent]:
    """The events of a story, and what came shortly before and after."""
    events = reads.story(
        story.session_id, story.first_ms - BEFORE_MS, story.last_ms + BEFORE_MS, MAX_STORY
    )
    return [event for event in events if event.node.properties.get("trace_id") == story.trace_id]


def _named(learned: Iterable[Learned]) -> Iterable[str]:
    for learning in learned:
        lesson = learning.lesson
        yield from (*lesson.solved_event_ids, *lesson.helped_by, *lesson.failed_event_ids)


MAX_HELPED: Final = 4


def helped(head: Head, in_tree: Iterable[str], learned: Sequence[Learned]) -> list[Learned]:
    """What helped against what is explained, at most MAX_HELPED: of its own story first.

    Args:
        head: that is explained.
        in_tree: ids of its causes, and itself.
        learned: of its session and of similar ones.
    """
    story = {event.node.node_id for event in head.story.events}
    ids = set(in_tree) | {head.event.node.node_id}
    same, alike = [], []
    for learning in learned:
        lesson = learning.lesson
        proofs = {*lesson.failed_event_ids, *lesson.solved_event_ids, *lesson.helped_by}
        if proofs & ids or (proofs & story and _is_like(head, lesson)):
            same.append(learning._replace(same_story=True))
        elif not proofs & story and _is_like(head, lesson):
            alike.append(learning)
    same.sort(key=lambda learning: not _is_like(head, learning.lesson))
    return [*same, *alike][:MAX_HELPED]


def _is_like(head: Head, lesson: Lesson) -> bool:
    """Whether a lesson is of a failure like the head."""
    properties, event = head.event.node.properties, head.event
    tool = properties.get("tool_name")
    if tool != lesson.tool or not is_failure_event(event):
        return False
    mine = Failure(lesson.tool, failure_signature(event.text), event.node.node_id)
    return are_alike(mine, mine._replace(signature=failure_signature(lesson.error)))
