"""From an event to its causes, over sessions, as a tree; and the tree in words.

Causes are CAUSED_BY edges, those that a producer named and those that a rule inferred; beside them
causes in other sessions that were recorded (`consolidation/causes.py`). What is only read together,
and written nowhere, says so by its rule: an earlier failure of the same story that names the same
(`same_failure`), and what led to a change in another session (`named_before`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from api.retrieval.why_head import Head, is_failure_event, kind_of
from consolidation.causes import folded, names_in, says_name
from enrichment.event_kinds import EventKind
from enrichment.vocabulary import cut
from pipelines.graph.reads.walk import CauseEdge, CauseReads, StoryEvent
from projections.events import timestamp_text
from projections.schema import INFERRED

LINKED_RULE: Final = "shared_name"
"""A change in another session that names what the failure names; recorded."""
SAME_FAILURE_RULE: Final = "same_failure"
NAMED_BEFORE_RULE: Final = "named_before"
_READ_CONFIDENCE: Final = 0.6
"""Of a step that is read together."""
BEFORE_MS: Final = 30 * 60_000
"""Of the story of a change, that is read before it."""
_MAX_BEFORE: Final = 50
_MAX_LED: Final = 4
"""Steps of the story of a change."""
LINE_CHARACTERS: Final = 240


class Step(NamedTuple):
    """A place in the tree.

    Attributes:
        event: at it.
        cause_of: id of the event that it is a cause of; None: the head.
        depth: steps from the head.
        mechanism, rule, confidence, evidence, decided_by: of the step that led here.
    """

    event: StoryEvent
    cause_of: str | None = None
    depth: int = 0
    mechanism: str | None = None
    rule: str | None = None
    confidence: float = 1.0
    evidence: tuple[str, ...] = ()
    decided_by: str | None = None


@dataclass
class CauseTree:
    """The causes of an event, each once, where it was met first.

    Attributes:
        head: that is explained.
        max_depth: steps from it.
        max_nodes: places in all.
        steps: by event id, the head first, then level by level.
        edges: every step that was read between two of them.
        cut_by_depth, cut_by_nodes: there is more than that.
    """

    head: Head
    max_depth: int
    max_nodes: int
    steps: dict[str, Step] = field(default_factory=dict)
    edges: list[CauseEdge] = field(default_factory=list)
    cut_by_depth: bool = False
    cut_by_nodes: bool = False

    def grow(self, reads: CauseReads) -> None:
        """Read the causes; what was met when the time is over is the answer."""
        event = self.head.event
        self.steps[event.node.node_id] = Step(event)
        frontier = [event]
        for depth in range(1, self.max_depth + 1):
            frontier = self._level(reads, frontier, depth)
            if not frontier:
                break
        else:
            self.cut_by_depth = bool(reads.causes(_ids(frontier), 1)) if frontier else False
        self._add_what_led_to_changes(reads)

    def _level(
        self, reads: CauseReads, frontier: Sequence[StoryEvent], depth: int
    ) -> list[StoryEvent]:
        ids = _ids(frontier)
        edges = reads.causes(ids, 4 * self.max_nodes)
        edges += reads.linked_causes(ids, self.max_nodes, LINKED_RULE)
        if depth == 1:
            edges += _same_failures(self.head, edges)
        self.edges += edges
        places = {event_id: place for place, event_id in enumerate(ids)}
        edges.sort(key=lambda edge: (places[edge.effect], edge.rule is not None, -edge.confidence))
        return list(self._added(edges, depth))

    def _added(self, edges: Iterable[CauseEdge], depth: int) -> Iterator[StoryEvent]:
        for edge in edges:
            event_id = edge.cause.node.node_id
            if event_id in self.steps:
                continue
            if len(self.steps) >= self.max_nodes:
                self.cut_by_nodes = True
                return
            self.steps[event_id] = Step(
                event=edge.cause,
                cause_of=edge.effect,
                depth=depth,
                mechanism=edge.mechanism,
                rule=edge.rule,
                confidence=edge.confidence,
                evidence=edge.evidence,
                decided_by=edge.decided_by,
            )
            yield edge.cause

    def _add_what_led_to_changes(self, reads: CauseReads) -> None:
        """Of a change in another session, what was said and done about it right before."""
        linked = [edge for edge in self.edges if edge.rule == LINKED_RULE]
        for edge in linked:
            effect = self.steps.get(edge.cause.node.node_id)
            if effect is None:
                continue
            at_ms = int(edge.cause.node.properties["occurred_at"])
            session_id = str(edge.cause.node.properties["session_id"])
            story = reads.story(session_id, at_ms - BEFORE_MS, at_ms, _MAX_BEFORE)
            led = list(_named_before(edge.cause, story))[:_MAX_LED]
            for event in led:
                if effect.depth >= self.max_depth:
                    self.cut_by_depth = True
                    break
                step = _read_together(effect.event, event, NAMED_BEFORE_RULE)
                if event.node.node_id not in self.steps:
                    self.edges.append(step)
                    list(self._added([step], effect.depth + 1))
                effect = self.steps.get(event.node.node_id, effect)


def _same_failures(head: Head, edges: Sequence[CauseEdge]) -> list[CauseEdge]:
    """Earlier failures of the story that name what the head names, unless they are its causes."""
    if not is_failure_event(head.event):
        return []
    told = {edge.cause.node.node_id for edge in edges} | {head.event.node.node_id}
    at_ms = head.event.node.properties["occurred_at"]
    text = folded(_words(head.event))
    return [
        _read_together(head.event, event, SAME_FAILURE_RULE)
        for event in head.story.events
        if event.node.properties["occurred_at"] < at_ms
        and event.node.node_id not in told
        and event.node.properties.get("tool_name") is None
        and is_failure_event(event)
        and any(says_name(text, name) for name, _ in names_in(_words(event)))
    ]


def _named_before(change: StoryEvent, story: Iterable[StoryEvent]) -> Iterator[StoryEvent]:
    """What spoke of what a change names, in its trace and before it, the latest first."""
    place = _place(change)
    names = [name for name, _ in names_in(_words(change))]
    for event in sorted(story, key=_place, reverse=True):
        in_trace = event.node.properties.get("trace_id") == change.node.properties.get("trace_id")
        if in_trace and _place(event) < place and kind_of(event) is not EventKind.INSTRUCTION:
            text = folded(_words(event))
            if any(says_name(text, name) for name in names):
                yield event


def _place(event: StoryEvent) -> tuple[int, str]:
    return event.node.properties["occurred_at"], event.node.node_id


def _read_together(effect: StoryEvent, cause: StoryEvent, rule: str) -> CauseEdge:
    return CauseEdge(
        effect=effect.node.node_id,
        cause=cause,
        mechanism=INFERRED,
        rule=rule,
        confidence=_READ_CONFIDENCE,
    )


def _ids(events: Iterable[StoryEvent]) -> list[str]:
    return [event.node.node_id for event in events]


# -- in words --------------------------------------------------------------------------------------


def told_line(event: StoryEvent) -> str:
    """An event in one line: when, what, and what it says."""
    properties = event.node.properties
    name = str(properties.get("tool_name") or properties.get("event_type") or "")
    kind, speaker = kind_of(event), properties.get("speaker")
    if kind is EventKind.MESSAGE and speaker:
        name = str(speaker)
    elif is_failure_event(event) and properties.get("tool_name"):
        name = f"{name} failed"
    elif kind is EventKind.RESULT:
        name = f"{name} returned"
    at = timestamp_text(int(properties["occurred_at"]))[:16].replace("T", " ")
    words = "; ".join(line for line in _words(event).split("\n") if line)
    body = words if not words.startswith(f"{name}: ") else words[len(name) + 2 :]
    return cut(f"{at} {name}: {body}" if body else f"{at} {name}", LINE_CHARACTERS)


def _words(event: StoryEvent) -> str:
    return event.text or str(event.node.properties.get("summary") or "")


def tree_lines(tree: CauseTree) -> Iterator[str]:
    """The tree as a Markdown list, causes below their effects."""
    below: dict[str | None, list[Step]] = {}
    for step in tree.steps.values():
        below.setdefault(step.cause_of, []).append(step)
    waiting = [(step, 0) for step in reversed(below.get(None, []))]
    while waiting:
        step, level = waiting.pop()
        lead = "because " if level else ""
        yield f"{'  ' * level}- {lead}{told_line(step.event)}{_how(step)}"
        children = below.get(step.event.node.node_id, [])
        # a chain without forks stays on one level, so that it stays narrow
        deeper = level + 1 if level == 0 or len(children) > 1 else level
        waiting += [(child, deeper) for child in reversed(children)]


def _how(step: Step) -> str:
    """What is to be said of a step that no producer named; and the event's id."""
    names = ", ".join(step.evidence)
    told: Mapping[str, str] = {
        LINKED_RULE: f" (both name {names}; {step.confidence:.2f})",
        SAME_FAILURE_RULE: " (the same failure)",
        NAMED_BEFORE_RULE: " (said or done right before)",
    }
    return f"{told.get(step.rule or '', '')} [{step.event.node.node_id}]"
