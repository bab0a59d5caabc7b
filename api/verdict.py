"""What an answer says in a few words, what proves it, and how sure it is."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from types import MappingProxyType
from typing import Any, Final

from api.comparisons import compared, foremost
from api.record_days import is_no_time
from api.record_fields import Shown, fields_of, said_by, summary_of
from api.record_history import has_failed, put_right
from api.record_numbers import asks_for_sum, asks_how_long_kept, asks_how_many, counted
from api.record_reading import as_written, look_up, says_half
from api.record_values import (
    asks_for_number,
    brought_up_to_date,
    each_of,
    lacks_number,
    value_of,
)
from api.retrieval.intent import PERSONAL
from api.retrieval.narrative import AnswerHead
from api.retrieval.outstanding import promised_in
from api.retrieval.plan import VALUES, Operator, Plan, StoryAnswer
from api.retrieval.story_evidence import MAX_TOLD
from api.schemas import Answer, AtlasResponse, Edge, Node, PlanReport
from api.spoken_answers import is_said, said_first, said_time
from enrichment.event_kinds import EventKind
from enrichment.stems import stem_in
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
    end = story.plan.end_ms
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


_SAID_OF_WHOM: Final = (Operator.ACTOR, Operator.TIME)
"""Who did it and when it was is known of each event; a record says more."""


def answer_of(
    story: StoryAnswer,
    response: AtlasResponse,
    summary: str | None,
    texts: Mapping[str, str] = MappingProxyType({}),
    zone: tzinfo = UTC,
) -> Answer:
    """The value with its proof; where nothing is known, the number and the list of nothing.

    Args:
        story: what stories say.
        response: with its nodes, edges and `meta`.
        summary: of the session that a summary was asked of; None: there is none.
        texts: what the first events say as a whole, by id.
        zone: of the days that it is answered in.
    """
    if not response.meta.answered:
        empty = {"count": 0, "list": []}.get(story.type)
        return Answer(type=story.type, value=empty, evidence=[])
    events = {node.node_id: node for node in response.nodes if node.type == EVENT.label}
    shown = Shown(events, texts)
    if asks_for_sum(story.plan):
        return Answer(type=story.type, value=None, evidence=[])
    compares = compared(story.plan, story.evidence, shown) or foremost(story.plan, shown)
    return compares or _told(story, response, summary, shown, zone=zone)


def lacks_value(plan: Plan, answer: Answer) -> bool:
    """Whether nothing says who, when, how much or what sum, however near the first event is."""
    of_one = plan.operator in _SAID_OF_WHOM or asks_for_sum(plan) or asks_for_number(plan)
    return answer.value is None and of_one


_PROVED_BY_ONE: Final = (*VALUES, Operator.ACTOR)


def proof_first(nodes: Sequence[Node], answer: Answer, plan: Plan) -> list[Node]:
    """The nodes of an answer, the one that says who it was or what is so before other events.

    It is as relevant as the one that stood there.
    """
    told = [*nodes]
    proof = answer.evidence[0] if answer.evidence else None
    if proof not in {node.node_id for node in told} or answer.type in ("list", "count"):
        return told
    place = next(place for place, node in enumerate(told) if node.node_id == proof)
    node = told[place]
    first = next(one for one, other in enumerate(told) if other.type == node.type)
    by_one = plan.operator in _PROVED_BY_ONE or asks_how_many(plan)
    by_record = is_no_time(plan) or plan.operator is Operator.SEARCH
    among_records = not (is_said(told[first]) and is_said(node))
    if place <= first or not (by_one or (by_record and among_records)):
        return told
    before = told[first].scores
    scores = dataclasses.replace(
        node.scores, relevance_score=before.relevance_score, rank_score=before.rank_score
    )
    moved = dataclasses.replace(node, scores=scores)
    return [*told[:first], moved, *(one for one in told[first:] if one is not node)]


def _told(
    story: StoryAnswer,
    response: AtlasResponse,
    summary: str | None,
    shown: Shown,
    *,
    zone: tzinfo,
) -> Answer:
    evidence, events = story.evidence, shown.events
    value = as_written(_of_story(story), evidence, shown)
    if value is None and summary is not None:
        value = summary
    promised = story.plan.operator is Operator.PROMISE and story.type == "list"
    if not story.decides and value is None and not promised:
        evidence = said_first(events)
        value = _said_when(story, events, evidence, zone)
    if story.type == "count":
        value, evidence = counted(story, shown)
    elif (value is None or story.plan.operator in _SAID_OF_WHOM) and (
        recorded := value_of(story.plan, evidence, shown)
    ):
        value, evidence = recorded.value, list(dict.fromkeys((*recorded.evidence, *evidence)))
    elif newer := brought_up_to_date(value, story.plan, evidence, shown):
        value, evidence = newer.value, list(dict.fromkeys((*newer.evidence, *evidence)))
    if story.plan.operator is Operator.PROMISE and value is None:
        value, evidence = _promised(evidence, shown, is_list=story.type == "list")
    if value is None and story.type == "list":
        if story.plan.operator is Operator.OPEN:
            evidence = [one for one in evidence if one not in events or _to_be_done(one, shown)]
        listed = filter(None, (events.get(one) for one in evidence))
        value = each_of(story.plan, evidence, shown) or list(filter(None, map(summary_of, listed)))
    if value is None and evidence and evidence[0] in events:
        value, evidence = _as_events_say(story, evidence, shown, response.edges)
    return Answer(type=story.type, value=value, evidence=evidence[:MAX_EVIDENCE])


def _as_events_say(
    story: StoryAnswer, evidence: list[str], shown: Shown, edges: Sequence[Edge]
) -> tuple[str | None, list[str]]:
    """What the events that prove an answer say, or the value that it was put right by."""
    head = shown.events[evidence[0]]
    if story.plan.operator is Operator.VALUE and (righted := put_right(head, shown)) is not None:
        return righted.value, list(dict.fromkeys((righted.node_id, *evidence)))
    evidence = _as_returned(story.plan, evidence, shown)
    told = _with_causes(story, shown.events[evidence[0]], shown, edges)
    proofs = list(dict.fromkeys([*(node.node_id for node in told), *evidence[1:]]))
    return _summarised(story, told, shown), proofs


def _as_returned(plan: Plan, evidence: list[str], shown: Shown) -> list[str]:
    """What proves a value: what a look-up returned, before what it was asked by."""
    asks = plan.operator in (*VALUES, Operator.SEARCH) and not is_said(shown.events[evidence[0]])
    both = look_up(plan, evidence, shown) if asks else None
    return evidence if both is None else list(dict.fromkeys((both[1].node_id, *evidence)))


def _summarised(story: StoryAnswer, told: Sequence[Node], shown: Shown) -> str | None:
    """What events say in a sentence each; a record as a whole is neither a name nor a day.

    A value it is where it says half of what is asked about at least.
    """
    if lacks_number(story.plan, told[0], shown, decides=story.decides):
        return None
    is_record = not is_said(told[0])
    if is_record and (story.plan.operator in _SAID_OF_WHOM or asks_how_long_kept(story.plan)):
        return None
    is_value = story.plan.operator in VALUES and not story.plan.guessed
    if is_record and is_value and not says_half(story.plan, told[0], shown):
        return None
    return " \u2190 ".join(filter(None, map(summary_of, told))) or None


def _of_story(story: StoryAnswer) -> Any:
    """What stories say; when something was told is no answer to when it is to be."""
    return None if is_no_time(story.plan) else story.value


def _said_when(
    story: StoryAnswer, events: Mapping[str, Node], evidence: Sequence[str], zone: tzinfo
) -> str | None:
    """When it was, by what somebody said; None: that is not asked for, or the words must tell."""
    head = events.get(evidence[0]) if evidence else None
    asked_for = story.plan.operator is Operator.TIME and not story.plan.ahead
    is_time = asked_for and not story.plan.lasting and story.type == "value"
    return said_time(head, zone) if is_time and head is not None and is_said(head) else None


def _promised(evidence: list[str], shown: Shown, *, is_list: bool) -> tuple[Any, list[str]]:
    """The sentences that promise something, of several a list, and the events that have them.

    Where none does in so many words, the events speak for themselves: all, if all are asked for.
    """
    told = {
        one: words
        for one in evidence
        if one in shown.events and (words := promised_in(said_by(shown.events[one], shown)))
    }
    if not told:
        return None, evidence[: MAX_TOLD if is_list else 1]
    several = is_list or len(told) > 1
    return [*told.values()] if several else next(iter(told.values())), [*told]


def _to_be_done(event_id: str, shown: Shown) -> bool:
    """Whether what is listed as open is, of what somebody said, a promise in so many words."""
    node = shown.events[event_id]
    return not is_said(node) or promised_in(said_by(node, shown)) is not None


def _with_causes(
    story: StoryAnswer, first: Node, shown: Shown, edges: Sequence[Edge]
) -> list[Node]:
    """The first event; where its cause is asked for, with what led to it."""
    if story.plan.operator is not Operator.CAUSE:
        return [first]
    decided = [shown.events[one] for one in story.evidence[1:2] if one in shown.events]
    if decided and story.plan.failed is None:
        return [first, *decided]  # who asked for it says more of why than what failed before
    behind = _behind(first, shown.events, edges)
    return [first, *(behind or decided)]


def _behind(head: Node, events: Mapping[str, Node], edges: Sequence[Edge]) -> list[Node]:
    """The nearest failure that led to an event, and the first change of all that did."""
    causes = list(_causes(head.node_id, events, edges))
    failures = [node for node in causes if has_failed(node)]
    changes = [
        node
        for node in causes
        if node.attributes.get("kind") == EventKind.OTHER
        and any(_may_be_behind(node, one) for one in (head, *failures[:1]))
    ]
    chosen = [*failures[:1], *changes[-1:]]
    return list({node.node_id: node for node in chosen}.values())


def _may_be_behind(change: Node, head: Node) -> bool:
    """Whether a change among the causes of an event may be what is told of them.

    In the session of the event nearly everything before it led to it: such a change must say
    something that the event says.
    """
    if change.provenance.session_id != head.provenance.session_id:
        return True
    values = " ".join(field.value for field in fields_of(change, Shown({}, {})))
    return not _marks(values).isdisjoint(_marks(summary_of(head) or ""))


def _marks(text: str) -> set[str]:
    """The words of a text that say something: identifiers whole, of others their stems."""
    words = {word.strip(".,;:?!'\"()").lower() for word in text.split()} - STOP_WORDS
    return {stem_in(word) if word.isalpha() else word for word in words}


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
    words = {summary_of(node) for node in response.nodes if node.node_id == first}
    value: str | None = None
    if isinstance(answer.value, list):
        value = ", ".join(map(str, answer.value)) or NONE_KNOWN
        if answer.value and {summary_of(node) for node in response.nodes}.issuperset(answer.value):
            value = None  # the events are told below
    elif answer.value is not None and answer.value not in words:
        value = str(answer.value)
    return AnswerHead(value, bool(response.meta.answered), first)
