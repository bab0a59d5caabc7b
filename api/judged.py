"""What an answer says in a few words, what proves it, and how sure it is."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from api.retrieval.intent import PERSONAL
from api.retrieval.narrative import AnswerHead
from api.retrieval.plan import Operator, Plan
from api.retrieval.story_result import StoryAnswer
from api.retrieval.story_terms import VALUES
from api.schemas import Answer, AtlasResponse, Edge, Node, PlanReport
from enrichment.event_kinds import FAILED, EventKind
from enrichment.stems import stem_in, words_in
from enrichment.vocabulary import STOP_WORDS
from projections.events import timestamp_text
from projections.schema import CAUSED_BY, EVENT

NONE_KNOWN: Final = "None is known"
"""Told of a list of nothing."""
MAX_EVIDENCE: Final = 200
"""Ids of events that prove an answer."""


def judged(story: StoryAnswer | None, threshold: float) -> dict[str, Any]:
    """What `meta` says of the plan and of the judge.

    Args:
        story: None: no story was asked, or not in time.
        threshold: of the confidence from which on a question is answered.
    """
    if story is None:
        return {}
    first = min((span.first_ms for span in story.plan.spans), default=None)
    end = max((span.end_ms for span in story.plan.spans), default=None)
    plan = PlanReport(
        operator=story.plan.operator,
        confidence=story.plan.confidence,
        since=None if first is None else timestamp_text(first),
        until=None if end is None else timestamp_text(end),
    )
    answered = story.confidence >= threshold
    return {
        "plan": plan,
        "confidence": round(story.confidence, 4),
        "answered": answered,
        "explained": story.explained if story.decides else {},
    }


def answer_of(story: StoryAnswer, response: AtlasResponse, summary: str | None) -> Answer:
    """The value with its proof; where nothing is known, the number and the list of nothing.

    Args:
        story: what stories say.
        response: with its nodes, edges and `meta`.
        summary: of the session that a summary was asked of; None: there is none.
    """
    if not response.meta.answered:
        empty = {"count": 0, "list": []}.get(story.type)
        return Answer(type=story.type, value=empty, evidence=[])
    value, evidence = story.value, story.evidence
    events = {node.node_id: node for node in response.nodes if node.type == EVENT.label}
    if value is None and summary is not None:
        value = summary
    if story.type == "count":
        value, evidence = _reported(story, events)
    if not story.decides and value is None:
        evidence = list(events)[:1]
    if story.plan.operator in _SAID_OF_WHOM:
        recorded, evidence = _recorded(story.plan, evidence, events)
        value = recorded or value
    if value is None and story.plan.operator in VALUES:
        value, evidence = _stated(story.plan.topic, evidence, events)
    if value is None and story.type == "list":
        shown = filter(None, (events.get(one) for one in evidence))
        value = list(filter(None, map(_summary, shown)))
    if value is None and evidence and (first := events.get(evidence[0])) is not None:
        told = [first]
        if story.plan.operator is Operator.CAUSE:
            told += _behind(first, events, response.edges)
        evidence = [*(node.node_id for node in told), *evidence[1:]]
        value = " \u2190 ".join(filter(None, map(_summary, told))) or None
    return Answer(type=story.type, value=value, evidence=evidence[:MAX_EVIDENCE])


_HOW_MANY: Final = re.compile(r"^\W*(?:and\s+)?how\s+many\s+(?!times\b)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d{1,15}")


def _reported(story: StoryAnswer, events: Mapping[str, Node]) -> tuple[Any, list[str]]:
    """How many, as the outcomes of what is counted say, where each of them does.

    `sent: 41` says how many were sent by one call; its field is called as the question says, in
    the same form: `order: 4711` says of no number of orders.
    """
    if not _HOW_MANY.match(story.plan.timeless):
        return story.value, story.evidence
    asked_for = {*words_in(story.plan.timeless.lower()), "count"}
    outcomes = {node.attributes.get("parent_event_id"): node for node in events.values()}
    total, proofs = 0, []
    for event_id in story.evidence:
        node = outcomes.get(event_id) or events.get(event_id)
        numbers = [
            int(field.value)
            for field in ([] if node is None else _fields_of(node))
            if asked_for.issuperset(field.words) and _NUMBER.fullmatch(field.value)
        ]
        if node is None or len(numbers) != 1:
            return story.value, story.evidence
        total += numbers[0]
        proofs.append(node.node_id)
    return (total, proofs) if proofs else (story.value, story.evidence)


_OF: Final = re.compile(r"\s(?:of|for)\s|(?<=\w)['\u2019]s\s")


def _stated(
    topic: str, evidence: list[str], events: Mapping[str, Node]
) -> tuple[str | None, list[str]]:
    """The field that a question asks for, of the first event or of its call or outcome."""
    before, _, behind = _OF.sub("\0", topic, count=1).partition("\0")
    attribute = behind if re.search(r"['\u2019]s\s", topic) else before
    wanted = {_meaning(word) for word in words_in(attribute.lower()) if word not in STOP_WORDS}
    for field in _fields(evidence, events) if wanted else ():
        key = set(map(_meaning, field.words))
        if key <= wanted or wanted <= key:
            return field.value, [field.node_id, *evidence]
    return None, evidence


def _meaning(word: str) -> str:
    stem = stem_in(word)
    return _SAME.get(stem, stem)


_SAME: Final = {stem_in(one): stem_in(other) for one, other in (("state", "status"),)}
"""Words of which records have one or the other."""
_BY: Final = frozenset(("by", "to"))
"""Ends the name of a field that says who: `approved_by`, `assigned_to`."""
_WHEN: Final = frozenset(("at", "on", "by", "until", "from", "date", "time", "day"))
"""Stands in the name of a field that says when, beside what it is the time of: `valid_until`."""
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d\S*)?")
_NAMED: Final = re.compile(r"(?=.*[^\W\d_]).{1,80}", re.DOTALL)
_SAID_OF_WHOM: Final = {Operator.ACTOR: (_BY, _NAMED), Operator.TIME: (_WHEN, _DATE)}


def _recorded(
    plan: Plan, evidence: list[str], events: Mapping[str, Node]
) -> tuple[str | None, list[str]]:
    """Who, or when, as a field of the first event says, or one of its call or outcome.

    `approved_by: Marta Oss` says more of who approved than whose call it was, and `due: 2026-12-12`
    more of when something is due than when that was said.
    """
    marks, form = _SAID_OF_WHOM[plan.operator]
    topic = {stem_in(word) for word in words_in(plan.topic.lower())}
    for field in _fields(evidence, events):
        of_what = {stem_in(word) for word in field.words if word not in marks}
        marked = plan.operator is Operator.TIME or field.words[-1] in marks
        if of_what and of_what <= topic and marked and form.fullmatch(field.value):
            return field.value, [field.node_id, *evidence]
    return None, evidence


class _Field(NamedTuple):
    """A field of what an event says; its name in words, at least one."""

    node_id: str
    words: tuple[str, ...]
    value: str


def _fields(evidence: list[str], events: Mapping[str, Node]) -> Iterator[_Field]:
    """Those of the first event, then of its call or outcome."""
    first = events.get(evidence[0]) if evidence else None
    if first is None:
        return
    same = (
        node
        for node in events.values()
        if node.attributes.get("tool_name") and _whose(node) == _whose(first) and node is not first
    )
    for node in (first, *same):
        yield from _fields_of(node)


def _fields_of(node: Node) -> Iterator[_Field]:
    for part in (_summary(node) or "").split("; "):
        *_, name, value = ["", *part.split(": ")]  # the first stands behind the tool's name
        if words := tuple(words_in(name.lower().replace("_", " "))):
            yield _Field(node.node_id, words, value.strip())


def _whose(node: Node) -> tuple[Any, Any]:
    return node.attributes.get("tool_name"), node.provenance.session_id


def _summary(node: Node) -> str | None:
    summary: str | None = node.attributes.get("summary")
    return summary


def _behind(head: Node, events: Mapping[str, Node], edges: Sequence[Edge]) -> list[Node]:
    """The nearest failure that led to an event, and the first change of all that did."""
    causes = list(_causes(head.node_id, events, edges))
    failures = [node for node in causes if node.attributes.get("status") in FAILED]
    changes = [node for node in causes if node.attributes.get("kind") == EventKind.OTHER]
    chosen = [*failures[:1], *changes[-1:]]
    return list({node.node_id: node for node in chosen}.values())


def _causes(head: str, events: Mapping[str, Node], edges: Sequence[Edge]) -> Iterator[Node]:
    """The causes of an event among those that are shown, the nearest first."""
    before: dict[str, list[str]] = {}
    for edge in edges:
        if edge.type == CAUSED_BY.type and edge.target in events:
            before.setdefault(edge.source, []).append(edge.target)
    met, waiting = {head}, deque([head])
    while waiting:
        for cause in before.get(waiting.popleft(), ()):
            if cause not in met:
                met.add(cause)
                waiting.append(cause)
                yield events[cause]


def answer_head(response: AtlasResponse) -> AnswerHead | None:
    """What is told above the evidence; None: the question was not judged."""
    answer = response.answer
    if answer is None:
        return None
    first = answer.evidence[0] if answer.evidence else None
    if response.meta.plan is not None and response.meta.plan.operator in PERSONAL and answer.value:
        lines = list(zip(answer.value, answer.evidence, strict=False))
        return AnswerHead(None, bool(response.meta.answered), first, lines)
    words = {_summary(node) for node in response.nodes if node.node_id == first}
    value: str | None = None
    if isinstance(answer.value, list):
        value = ", ".join(map(str, answer.value)) or NONE_KNOWN
        if answer.value and {_summary(node) for node in response.nodes}.issuperset(answer.value):
            value = None  # the events are told below
    elif answer.value is not None and answer.value not in words:
        value = str(answer.value)
    return AnswerHead(value, bool(response.meta.answered), first)
