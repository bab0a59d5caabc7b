"""Values as the records of an answer state them: fields of calls and results, by a question."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from api.retrieval.plan import Operator, Plan
from api.retrieval.story_result import StoryAnswer
from api.retrieval.story_terms import VALUES
from api.schemas import Node
from enrichment.event_kinds import FAILED, EventKind
from enrichment.stems import same_root, stem_in, words_in
from enrichment.vocabulary import STOP_WORDS

Events = Mapping[str, Node]
"""The events that an answer shows by id, the best first."""


class Value(NamedTuple):
    """What a record says, and the ids of the events that prove it, the record first."""

    value: Any
    evidence: list[str]


class _Field(NamedTuple):
    """A field of what an event says; its name in words, at least one."""

    node_id: str
    words: tuple[str, ...]
    value: str


def value_of(plan: Plan, evidence: list[str], events: Events) -> Value | None:
    """The value that a question asks for; None: no record says it in so many words.

    Args:
        plan: of the question.
        evidence: ids of the events that prove the answer.
        events: that are shown.
    """
    read = _WAYS.get(plan.operator)
    return None if read is None or plan.lasting else read(plan, evidence, events)


# -- how many --------------------------------------------------------------------------------------

_HOW_MANY: Final = re.compile(r"^\W*(?:and\s+)?how\s+many\s+(?!times\b)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d{1,15}")
_COUNTS: Final = frozenset(("count", "quantity", "qty"))
"""Names of fields that say how many of what the record is about."""


def counted(story: StoryAnswer, events: Events) -> Value:
    """How many, as the outcomes of what is counted say, where each of them does.

    `sent: 41` says how many were sent by one call.
    """
    as_counted = Value(story.value, story.evidence)
    if not _HOW_MANY.match(story.plan.timeless):
        return as_counted
    outcomes = _outcomes(events)
    total, proofs = 0, []
    for event_id in story.evidence:
        node = outcomes.get(event_id) or events.get(event_id)
        number = None if node is None else _number(story.plan, _fields_of(node))
        if number is None:
            return as_counted
        total += int(number.value)
        proofs.append(number.node_id)
    return Value(total, proofs) if proofs else as_counted


def _number(plan: Plan, fields: Iterator[_Field]) -> _Field | None:
    """The number that a question asks for, by the field whose name says most of it; None: none.

    It is called in the same form: `order: 4711` says of no number of orders.
    """
    asked_for = _COUNTS.union(words_in(plan.timeless.lower()))
    numbers = [
        field
        for field in fields
        if asked_for.issuperset(field.words) and _NUMBER.fullmatch(field.value)
    ]
    shares = [len(field.words) - _COUNTS.issuperset(field.words) for field in numbers]
    best = [field for field, one in zip(numbers, shares, strict=True) if one == max(shares)]
    return best[0] if len(best) == 1 else None


# -- which, how much -------------------------------------------------------------------------------

_OF: Final = re.compile(r"\s(?:of|for)\s|(?<=\w)['\u2019]s\s")
_AUXILIARY: Final = r"(?:is|are|was|were|did|do|does|has|have|had|should|will)"
_WHICH: Final = re.compile(
    r"^\W*(?:and\s+)?(?:(?:in|on|at|to|from|with|for|under|by|of|until|since)\s+)?(?:"
    rf"(?:which|what)\s+(?P<noun>\w+(?:\s+\w+)?)\s+{_AUXILIARY}\b|"
    rf"which\s+(?P<subject>\w+)\s+(?!{_AUXILIARY}\b)\w)",
    re.IGNORECASE,
)
"""Its noun may be what did it: "which carrier took the order"."""
_HOW_MUCH: Final = re.compile(
    r"^\W*(?:and\s+)?how\s+much\s+(?:money\s+)?(?:did|does|do|was|were|has|have|is|are)\b",
    re.IGNORECASE,
)
_AMOUNT: Final = re.compile(r"\D{0,3}\d[\d.,]*(?:\s?\D{1,3})?")
_BESIDE: Final = 1
"""Words that a field's name may have beside what is asked for, as `fee_eur` has."""
_SAME: Final = {
    stem_in(one): stem_in(other)
    for one, other in (
        *(("state", "status"), ("total", "amount"), ("price", "amount"), ("cost", "amount")),
        *(("sum", "amount"), ("fee", "amount")),
    )
}
"""Words of which records have one or the other."""


def _stated(plan: Plan, evidence: list[str], events: Events) -> Value | None:
    """The field that a question asks for, of the first event or of its call or outcome."""
    before, _, behind = _OF.sub("\0", plan.topic, count=1).partition("\0")
    attribute = behind if re.search(r"['\u2019]s\s", plan.topic) else before
    return _called(_meanings(attribute), _fields(plan, evidence, events))


def _asked_by_name(plan: Plan, evidence: list[str], events: Events) -> Value | None:
    """The field that a question names: "which film was used", "how much did it cost"."""
    fields = _fields(plan, evidence, events)
    if match := _WHICH.match(plan.timeless):  # of several, "which films", none is the answer
        noun = match["noun"] or match["subject"]
        words = frozenset(words_in(noun.lower()))
        return _called(_meanings(noun), (one for one in fields if not words.isdisjoint(one.words)))
    if _HOW_MUCH.match(plan.timeless):
        return _called(_meanings("amount"), (one for one in fields if _AMOUNT.fullmatch(one.value)))
    if _HOW_MANY.match(plan.timeless):
        for node in _records(plan, evidence, events):
            if (number := _number(plan, _fields_of(node))) is not None:
                return Value(int(number.value), [number.node_id, *evidence])
    return None


def _called(wanted: frozenset[str], fields: Iterator[_Field]) -> Value | None:
    """The first field of that name, or whose name is part of it, or holds it."""
    for field in fields if wanted else ():
        key = frozenset(map(_meaning, field.words))
        if key <= wanted or (wanted <= key and len(key) <= len(wanted) + _BESIDE):
            return Value(field.value, [field.node_id])
    return None


def _meanings(text: str) -> frozenset[str]:
    return frozenset(_meaning(word) for word in words_in(text.lower()) if word not in STOP_WORDS)


def _meaning(word: str) -> str:
    stem = stem_in(word)
    return _SAME.get(stem, stem)


# -- who, when -------------------------------------------------------------------------------------

_BY: Final = frozenset(("by", "to"))
"""Ends the name of a field that says who: `approved_by`, `assigned_to`."""
_WHOEVER: Final = re.compile(r"\w{3,}(?:ee|er|or)")
"""A name of a field that says who: `assignee`, `approver`."""
_WHEN: Final = frozenset(("at", "on", "by", "until", "from", "date", "time", "day", "due"))
"""Stands in the name of a field that says when, beside what it is the time of: `valid_until`."""
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d\S*)?")
_NAMED: Final = re.compile(r"(?=.*[^\W\d_]).{1,80}", re.DOTALL)
_FIRST_EVENTS: Final = 10
_NEARLY: Final = 0.75
"""Share of the relevance of the first event."""
_NEARLY_BESIDE: Final = 0.5
"""The same for what happened in its session."""
_OF_NEARLY: Final = VALUES | {Operator.SEARCH}


def _when(plan: Plan, evidence: list[str], events: Events) -> Value | None:
    """When, as `due: 2026-12-12` says more of when something is due than when that was said."""
    return _of_what(plan, evidence, events, marks=_WHEN, form=_DATE)


def _who(plan: Plan, evidence: list[str], events: Events) -> Value | None:
    """Who, as `approved_by: Marta Oss` says more of who approved than whose call it was."""
    recorded = _of_what(plan, evidence, events, marks=_BY, form=_NAMED)
    return recorded or _said_by_a_person(plan, events)


def _of_what(
    plan: Plan,
    evidence: list[str],
    events: Events,
    *,
    marks: frozenset[str],
    form: re.Pattern[str],
) -> Value | None:
    topic = {stem_in(word) for word in words_in(plan.topic.lower())}
    for field in _fields(plan, evidence, events):
        of_what = [stem_in(w) for w in field.words if w not in marks] or [*field.words]
        is_meant = bool(of_what) and all(
            one in topic or any(same_root(one, other) for other in topic) for one in of_what
        )
        marked = plan.operator is Operator.TIME or field.words[-1] in marks
        marked |= _WHOEVER.fullmatch(field.words[-1]) is not None
        if is_meant and marked and form.fullmatch(field.value):
            return Value(field.value, [field.node_id, *evidence])
    return None


def _said_by_a_person(plan: Plan, events: Events) -> Value | None:
    """Who did it, by somebody's own words: "I replaced the fan"."""
    verb, *_ = [*plan.topic.split(), ""]
    stems = {stem_in(w) for w in words_in(plan.topic.lower()) if w not in STOP_WORDS}
    for node in islice(events.values(), _FIRST_EVENTS):
        text = summary_of(node)
        if node.attributes.get("kind") != EventKind.MESSAGE or not text or not verb:
            continue
        says = re.search(rf"\b(?:I|[Ww]e)(?:'ve|\s+\w+)?\s+{re.escape(verb)}\b", text)
        if says and stems <= {stem_in(word) for word in words_in(text.lower())}:
            return Value(node.attributes.get("speaker"), [node.node_id])
    return None


# -- records ---------------------------------------------------------------------------------------


def _fields(plan: Plan, evidence: list[str], events: Events) -> Iterator[_Field]:
    for node in _records(plan, evidence, events):
        yield from _fields_of(node)


def _records(plan: Plan, evidence: list[str], events: Events) -> Iterator[Node]:
    """The first event, its call or outcome, then what says the identifiers that are asked about.

    Where there are none, a value may stand in what is nearly as relevant as the first.

    What failed says nothing of what is, unless that is asked for.
    """
    first = events.get(evidence[0]) if evidence else None
    if first is None:
        return
    outcomes = _outcomes(events)
    identifiers = [
        word.strip(".,;:?!").lower() for word in plan.timeless.split() if _is_identifier(word)
    ]
    same = [node for node in events.values() if node is not first and _whose(node) == _whose(first)]
    if identifiers:
        about = [
            node
            for node in events.values()
            if all(one in (summary_of(node) or "").lower() for one in identifiers)
        ]
    elif plan.operator in _OF_NEARLY:
        about = [node for node in islice(events.values(), _FIRST_EVENTS) if _is_near(node, first)]
    else:
        about = []
    met: set[str] = set()
    for node in (first, *(same if first.attributes.get("tool_name") else ()), *about):
        outcome = outcomes.get(node.node_id, node)
        failed = any(one.attributes.get("status") in FAILED for one in (node, outcome))
        if node.node_id not in met and (plan.failed or not failed):
            yield node
        met.add(node.node_id)


def _is_near(node: Node, first: Node) -> bool:
    """Whether an event is nearly as relevant as the first."""
    beside = node.provenance.session_id == first.provenance.session_id
    share = _NEARLY_BESIDE if beside else _NEARLY
    return node.scores.relevance_score >= share * first.scores.relevance_score


def _is_identifier(word: str) -> bool:
    return any(map(str.isdigit, word)) and any(map(str.isalpha, word))


def _outcomes(events: Events) -> dict[str | None, Node]:
    """What a tool returned, by the id of its call."""
    return {
        node.attributes.get("parent_event_id"): node
        for node in events.values()
        if node.attributes.get("kind") in (EventKind.RESULT, EventKind.FAILURE)
    }


def _fields_of(node: Node) -> Iterator[_Field]:
    for part in (summary_of(node) or "").split("; "):
        *_, name, value = ["", *part.split(": ")]  # the first stands behind the tool's name
        if words := tuple(words_in(name.lower().replace("_", " "))):
            yield _Field(node.node_id, words, value.strip())


def _whose(node: Node) -> tuple[Any, Any]:
    return node.attributes.get("tool_name"), node.provenance.session_id


def summary_of(node: Node) -> str | None:
    """What an event says, in a sentence."""
    summary: str | None = node.attributes.get("summary")
    return summary


_WAYS: Final[Mapping[Operator, Callable[[Plan, list[str], Events], Value | None]]] = {
    Operator.ACTOR: _who,
    Operator.TIME: _when,
    Operator.SEARCH: _asked_by_name,
    **dict.fromkeys(VALUES, _stated),
}
"""How a record answers what an operator asks for."""
