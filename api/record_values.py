"""Values as the records of an answer state them: fields of calls and results, by a question."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from api.record_fields import (
    Field,
    Shown,
    fields_of,
    holding,
    identifiers_in,
    is_echo,
    is_one_of_several,
    is_record_of,
    of_meant_row,
    outcomes_of,
    said_by,
)
from api.record_history import as_asked, has_failed, is_as_found, is_former
from api.retrieval.durations import duration_text
from api.retrieval.plan import Operator, Plan
from api.retrieval.story_result import StoryAnswer
from api.retrieval.story_terms import VALUES
from api.schemas import Node
from enrichment.act_names import is_reader
from enrichment.event_kinds import EventKind
from enrichment.stems import same_root, stem_in, stems_of, telling_stems_of, words_in
from enrichment.vocabulary import STOP_WORDS, word_set


class Value(NamedTuple):
    """What a record says, and the ids of the events that prove it, the record first."""

    value: Any
    evidence: list[str]


def value_of(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The value that a question asks for; None: no record says it in so many words.

    Args:
        plan: of the question.
        evidence: ids of the events that prove the answer.
        shown: what is shown.
    """
    read = _lasted if plan.lasting else _WAYS.get(plan.operator)
    return None if read is None else read(plan, evidence, shown)


# -- how many --------------------------------------------------------------------------------------

_HOW_MANY: Final = re.compile(r"^\W*(?:and\s+)?how\s+many\s+(?!times\b)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d{1,15}")
_COUNTS: Final = frozenset(("count", "quantity", "qty"))
"""Names of fields that say how many of what the record is about."""


def counted(story: StoryAnswer, shown: Shown) -> Value:
    """How many, as the outcomes of what is counted say, where each of them does.

    `sent: 41` says how many were sent by one call.
    """
    as_counted = Value(story.value, story.evidence)
    if not _HOW_MANY.match(story.plan.timeless):
        return as_counted
    outcomes = outcomes_of(shown.events)
    total, proofs = 0, []
    for event_id in story.evidence:
        node = outcomes.get(event_id) or shown.events.get(event_id)
        fields = [] if node is None else fields_of(node, shown)
        number = None if _names_one(story.plan, fields) else _number(story.plan, fields)
        if number is None:
            return as_counted
        total += int(number.value)
        proofs.append(number.node_id)
    return Value(total, proofs) if proofs else as_counted


_COUNTED: Final = re.compile(
    r"^\W*(?:and\s+)?how\s+many\s+(?P<noun>.+?)\s+(?:is|are|was|were|did|do|does|has|have|had)\s",
    re.IGNORECASE,
)


def _names_one(plan: Plan, fields: Iterable[Field]) -> bool:
    """Whether a record is of one of what is counted: `order: O-7` is one order.

    How many lamps were ordered counts lamps.
    """
    match = _COUNTED.match(plan.timeless)
    question = stems_of(match["noun"] if match else plan.timeless)
    return any(
        not field.row
        and STOP_WORDS.isdisjoint(field.words)
        and question.issuperset(map(stem_in, field.words))
        and any(map(str.isdigit, field.value))
        and any(map(str.isalpha, field.value))
        for field in fields
    )


def _number(plan: Plan, fields: Iterable[Field]) -> Field | None:
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
    r"^\W*(?:and\s+)?(?:how\s+much\s+(?:of\s+(?:the\s+)?\S+\s+|\w+\s+)?(?:did|does|do|was|were|has|have|is|are)\b|"
    r"what\s+(?:did|does|do|will)\s.*\s(?:cost|spend)\b)",
    re.IGNORECASE,
)
_WHAT_WAS: Final = re.compile(
    r"^\W*what\s+(?:was|were)\s+(?:the|my|our|his|her|its|their)\s+(?P<attribute>\w+(?:\s+\w+)?)"
    r"(?:\W*$|\s+(?:of|for|in|on|at)\s)",
    re.IGNORECASE,
)
_HOW_BIG: Final = re.compile(
    r"^\W*(?:and\s+)?how\s+(?P<measure>\w+)\s+(?:is|was|are|were)\b", re.IGNORECASE
)
_AMOUNT: Final = re.compile(r"\D{0,3}\d[\d.,]*(?:\s?\D{1,3})?")
_MEASURES: Final[Mapping[str, frozenset[str]]] = {
    "big": word_set("size volume"),
    "large": word_set("size area volume"),
    "long": word_set("length duration"),
    "high": word_set("height level"),
    "tall": word_set("height"),
    "wide": word_set("width"),
    "deep": word_set("depth"),
    "heavy": word_set("weight mass"),
    "far": word_set("distance"),
    "old": word_set("age"),
    "fast": word_set("speed rate"),
    "hot": word_set("temperature"),
    "cold": word_set("temperature"),
    "full": word_set("level"),
    "expensive": word_set("amount"),
}
"""What is measured, by the word that asks how much of it there is."""
_BESIDE: Final = 1
"""Words that a field's name may have beside what is asked for, as `fee_eur` has."""
_SAME: Final = {
    stem_in(one): stem_in(other)
    for one, other in (
        *(("state", "status"), ("total", "amount"), ("price", "amount"), ("cost", "amount")),
        *(("sum", "amount"), ("fee", "amount"), ("celsius", "temperature")),
        *(("fahrenheit", "temperature"), ("kelvin", "temperature")),
    )
}
"""Words of which records have one or the other."""
_UNITS_MS: Final = {
    name: ms
    for names, ms in (
        *(
            ("ms millis milliseconds", 1),
            ("s sec secs seconds", 1_000),
            ("min mins minutes", 60_000),
        ),
        *(("h hours", 3_600_000), ("days", 86_400_000)),
    )
    for name in names.split()
}
_LENGTHS: Final = word_set("duration elapsed runtime took time total")
"""Stand before a unit in the name of a field that says how long something took."""


def _noun(match: re.Match[str]) -> str:
    """What `_WHICH` asks for."""
    return match["noun"] or match["subject"]


def _stated(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The field that a question asks for, of the first event or of its call or outcome."""
    if _HOW_MUCH.match(plan.timeless):
        return _asked_by_name(plan, evidence, shown)
    if match := _HOW_BIG.match(plan.timeless):
        return _measured(match["measure"].lower(), _fields(plan, evidence, shown))
    before, _, behind = _OF.sub("\0", plan.topic, count=1).partition("\0")
    attribute = behind if re.search(r"['\u2019]s\s", plan.topic) else before
    return _told(_called(_meanings(attribute), _fields(plan, evidence, shown), plan), plan, shown)


def _told(field: Field | None, plan: Plan, shown: Shown) -> Value | None:
    """What a field says, as it is asked: now, unless a time is named, or before that."""
    if field is None:
        return None
    if is_as_found(plan):
        return Value(field.value, [field.node_id])
    stated = as_asked(field, plan, shown)
    return stated and Value(stated.value, list(dict.fromkeys((stated.node_id, field.node_id))))


def brought_up_to_date(value: Any, plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """A value that the first event states as a field, as the records of the same thing go on.

    None: it is no field of a record.
    """
    head = shown.events.get(evidence[0]) if evidence else None
    if head is None or plan.operator not in (*VALUES, Operator.SEARCH):
        return None
    if head.attributes.get("kind") not in (EventKind.RESULT, EventKind.CALL):
        return None
    fields = [field for field in fields_of(head, shown) if field.value == value]
    return _told(fields[0], plan, shown) if len(fields) == 1 else None


def _saying_as_much(first: Node, plan: Plan, shown: Shown) -> Iterator[Node]:
    """The first events which say all that one of them says of a question, and did not fail."""
    told = telling_stems_of(plan.timeless) & stems_of(said_by(first, shown))
    outcomes = outcomes_of(shown.events)
    for node in islice(shown.events.values(), _FIRST_EVENTS):
        failed = has_failed(node) or has_failed(outcomes.get(node.node_id, node))
        if not failed and told <= stems_of(said_by(node, shown)):
            yield node


def each_of(plan: Plan, evidence: list[str], shown: Shown) -> list[str]:
    """The different values of a field, of which all that a list of acts has are asked for.

    "Which services were deployed?" asks for `service` of each of them; nothing, where one lacks it.
    """
    match = _WHICH.match(plan.timeless)
    wanted = stems_of(_noun(match)) if match else frozenset()
    told: dict[str, None] = {}
    for event_id in evidence:
        node = shown.events.get(event_id)
        fields = [] if node is None else fields_of(node, shown)
        meant = [field for field in fields if {*map(stem_in, field.words)} == wanted]
        if not meant:
            return []
        told[meant[0].value] = None
    return [*told]


def _asked_by_name(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The field that a question names: "which film was used", "how much did it cost"."""
    fields = _fields(plan, evidence, shown)
    if match := _WHICH.match(plan.timeless):  # of several, "which films", none is the answer
        noun = _noun(match)
        words = frozenset(map(_meaning, words_in(noun.lower())))
        told = [*fields]
        of_noun = (
            field
            for field in told
            if not words.isdisjoint(map(_meaning, field.words))
            and not is_one_of_several(field, told, plan.timeless)
        )
        return _told(_called(_meanings(noun), of_noun, plan), plan, shown)
    if _HOW_MUCH.match(plan.timeless):
        amounts = [field for field in fields if _AMOUNT.fullmatch(field.value)]
        return _told(
            _called(_meanings("amount"), amounts, plan) or _done(plan, amounts), plan, shown
        )
    if match := _WHAT_WAS.match(plan.timeless):
        field = _called(_meanings(match["attribute"]), fields, plan)
        return _told(field, plan, shown) or _said_to_be(plan, shown)
    if _HOW_MANY.match(plan.timeless):
        number = _of_stock(plan, evidence, shown) or next(_numbers(plan, evidence, shown), None)
        return number and Value(int(number.value), [number.node_id, *evidence])
    return None


_HAVING: Final = re.compile(
    r"(?<!\w)(?:do|does)\s+(?:we|i|you|they|he|she|\S+)\s+(?:still\s+|now\s+)*have(?!\w)|"
    r"(?<!\w)(?:are|is)\s+(?:there|left|available|in\s+stock)(?!\w)",
    re.IGNORECASE,
)
_STOCK: Final = word_set("stock left remaining available hand stored balance inventory")
"""Stand in the name of a field that says how many of something there are."""


def _of_stock(plan: Plan, evidence: list[str], shown: Shown) -> Field | None:
    """How many there are, where that is asked: what is in stock, or what a tool counted.

    How many were ordered, moved or sold is of what was done, and says not how many there are.
    """
    if not _HAVING.search(plan.timeless):
        return None
    called, others = [], []
    for node in _records(plan, evidence, shown):
        meant = [*of_meant_row(fields_of(node, shown), plan.timeless)]
        rows = {field.row for field in meant if is_echo(field, plan.timeless)}
        called += [
            field
            for field in meant
            if _NUMBER.fullmatch(field.value)
            and not _STOCK.isdisjoint(field.words)
            and (not rows or field.row in rows)
        ][:1]
        if (number := _number(plan, meant)) is not None:
            looks = is_reader(node.attributes.get("tool_name") or "")
            others.append(((not looks, not _OF_AN_ORDER.isdisjoint(number.words)), number))
    others.sort(key=lambda one: one[0])
    return next(iter([*called, *(number for _, number in others)]), None)


_OF_AN_ORDER: Final = word_set("quantity qty")
"""Names of fields that say how many of something are to be had, not how many there are."""


def _numbers(plan: Plan, evidence: list[str], shown: Shown) -> Iterator[Field]:
    """The numbers that a question asks for, of each record that has one."""
    acts = {*evidence[:1], *(node.node_id for node in _outcome(evidence, shown))}
    for node in _records(plan, evidence, shown):
        meant = [*of_meant_row(fields_of(node, shown), plan.timeless)]
        number = _number(plan, meant)
        if number is None and node.node_id in acts:
            number = _number_of_act(plan, meant)
        if number is not None:
            yield number


def _outcome(evidence: list[str], shown: Shown) -> Iterator[Node]:
    """What came of the call that was found."""
    outcome = outcomes_of(shown.events).get(evidence[0]) if evidence else None
    if outcome is not None:
        yield outcome


def _number_of_act(plan: Plan, fields: Iterable[Field]) -> Field | None:
    """How many an act was about: `changed_rows: 40` of the call that changed them."""
    match = _COUNTED.match(plan.timeless)
    noun = _meanings(match["noun"]) if match else frozenset()
    named = (field for field in fields if _NUMBER.fullmatch(field.value))
    return _called(noun, named, plan)


_IS: Final = (
    r"\s+(?:is|was|are|were)(?:\s+now)?\s+(?P<value>[^,;!?]+?)(?:[,;!?]|\.(?:\s|$)|\s+and\s|$)"
)
_WHAT_IS: Final = re.compile(
    r"^\W*what(?:\s+(?:is|are|was|were)|['\u2019]s)\s+(?:the|my|our|your)\s+"
    r"(?P<thing>[\w -]+?)\W*$",
    re.IGNORECASE,
)


def _said_to_be(plan: Plan, shown: Shown) -> Value | None:
    """What something is, as somebody said it last: "the tide error is 0.2"."""
    match = _WHAT_IS.match(plan.timeless)
    if match is None or is_former(plan):
        return None
    thing = r"\s+".join(map(re.escape, match["thing"].split()))
    pattern = re.compile(rf"(?<!\w)(?:the|my|our|your)\s+{thing}{_IS}", re.IGNORECASE)
    said = [
        (node.provenance.occurred_at or "", told["value"].strip(), node.node_id)
        for node in shown.events.values()
        if node.attributes.get("kind") == EventKind.MESSAGE
        and (told := pattern.search(said_by(node, shown))) is not None
    ]
    if not said:
        return None
    _, value, node_id = max(said)
    return Value(value, [node_id])


def _measured(measure: str, fields: Iterable[Field]) -> Value | None:
    """The number under a name of what a word asks the measure of: `size_mb`."""
    names = frozenset(map(_meaning, _MEASURES.get(measure, ())))
    for field in fields:
        if not names.isdisjoint(map(_meaning, field.words)) and _AMOUNT.fullmatch(field.value):
            return Value(field.value, [field.node_id])
    return None


def _done(plan: Plan, amounts: Iterable[Field]) -> Field | None:
    """How much of what was done: `freed_gb: 38` says how much was freed, `spent_eur` was spent."""
    question = telling_stems_of(plan.timeless)
    for field in amounts:
        said = sum(stem_in(word) in question for word in field.words)
        if said and said >= len(field.words) - _BESIDE and not is_echo(field, plan.timeless):
            return field
    return None


def _lasted(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """How long it took by the record of what the question is about: `minutes: 112`.

    That counts more than when its events were told.
    """
    identifiers = identifiers_in(plan.timeless)
    if plan.operator is not Operator.TIME:
        return None
    for node in holding(identifiers, shown) if identifiers else _records(plan, evidence, shown):
        for field in () if has_failed(node) else fields_of(node, shown):
            *before, unit = field.words
            is_length = unit in _UNITS_MS and _LENGTHS.issuperset(before)
            if is_length and re.fullmatch(r"\d+(?:\.\d+)?", field.value):
                lasted = duration_text(round(float(field.value) * _UNITS_MS[unit]))
                return Value(lasted, [node.node_id, *evidence])
    return None


def _called(wanted: frozenset[str], fields: Iterable[Field], plan: Plan) -> Field | None:
    """The field of that name, or whose name is part of it, or holds it; the first of the best.

    What the question says itself is no answer to it.
    """
    best: Field | None = None
    most = 0
    for field in fields if wanted else ():
        key = frozenset(map(_meaning, field.words))
        is_called = key <= wanted or (wanted <= key and len(key) <= len(wanted) + _BESIDE)
        if is_called and len(key & wanted) > most and not is_echo(field, plan.timeless):
            best, most = field, len(key & wanted)
    return best


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
_WEEKDAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAY: Final = re.compile(
    rf"{_DATE.pattern}|(?:next\s+|this\s+)?{_WEEKDAY}(?:,?\s.{{1,20}})?|"
    rf"\d{{1,2}}(?:st|nd|rd|th|\.)?\s+{_MONTH}(?:,?\s.{{1,15}})?|"
    rf"{_MONTH}\s+\d{{1,2}}(?:,?\s.{{1,15}})?|(?:today|tonight|tomorrow)(?:\s.{{1,20}})?",
    re.IGNORECASE,
)
"""A day as a record says it, with what stands behind it: `Tuesday 10:00`, `5 March`."""
_NAMED: Final = re.compile(r"(?=.*[^\W\d_]).{1,80}", re.DOTALL)
_FIRST_EVENTS: Final = 10
_NEARLY: Final = 0.75
"""Share of the relevance of the first event."""
_NEARLY_BESIDE: Final = 0.5
"""The same for what happened in its session."""
_OF_NEARLY: Final = VALUES | {Operator.SEARCH, Operator.ACTOR}


def _when(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """When, as `due: 2026-12-12` says more of when something is due than when that was said."""
    named = _of_what(plan, evidence, shown, marks=_WHEN, form=_DATE)
    if not (plan.ahead or is_former(plan)):
        return named and Value(named.value, [named.node_id, *evidence])
    return _told(named or _only_date(plan, evidence, shown), plan, shown)


def _only_date(plan: Plan, evidence: list[str], shown: Shown) -> Field | None:
    """The only date in the newest record of what is asked about.

    That is one which holds the identifiers, or says as much of the question as the first event.
    """
    first = shown.events.get(evidence[0]) if evidence else None
    if identifiers := identifiers_in(plan.timeless):
        about = [
            node
            for node in holding(identifiers, shown)
            if is_record_of(node, identifiers[0], shown) and not has_failed(node)
        ]
    else:
        about = [] if first is None else [*_saying_as_much(first, plan, shown)]
    about.sort(key=lambda node: node.provenance.occurred_at or "", reverse=True)
    for node in about:
        meant = of_meant_row(fields_of(node, shown), plan.timeless)
        dates = [field for field in meant if _DAY.fullmatch(field.value)]
        if len({field.value for field in dates}) == 1:
            return dates[0]
    return None


def _who(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who, as `approved_by: Marta Oss` says more of who approved than whose call it was."""
    named = _of_what(plan, evidence, shown, marks=_BY, form=_NAMED)
    if named is not None:
        return Value(named.value, [named.node_id, *evidence])
    return _said_by_a_person(plan, shown) or _by_role(plan, evidence, shown)


def _of_what(
    plan: Plan,
    evidence: list[str],
    shown: Shown,
    *,
    marks: frozenset[str],
    form: re.Pattern[str],
) -> Field | None:
    topic = stems_of(plan.topic)
    for field in _fields(plan, evidence, shown):
        of_what = [stem_in(w) for w in field.words if w not in marks] or [*field.words]
        is_meant = all(_is_meant(one, topic) for one in of_what)
        marked = plan.operator is Operator.TIME or field.words[-1] in marks
        marked |= _WHOEVER.fullmatch(field.words[-1]) is not None
        if is_meant and marked and form.fullmatch(field.value):
            return field
    return None


def _is_meant(name: str, topic: frozenset[str]) -> bool:
    """Whether a name is a word of a question in any form: who owns something is its owner."""
    forms = {f"{one}{ending}" for one in topic for ending in ("", "er", "or")}
    return name in forms or any(same_root(name, one) for one in topic)


_STATES: Final = word_set("state status decision outcome result verdict")
_CARES: Final = re.compile(
    r"(?<!\w)(?:work(?:s|ing)?\s+on|responsible|in\s+charge|handl(?:es|ing)|tak(?:es|ing)\s+care|"
    r"look(?:s|ing)\s+after|deal(?:s|ing)\s+with|on\s+call)(?!\w)",
    re.IGNORECASE,
)
_CARING: Final = word_set("assignee assigned owner responsible handler")
"""Stand in the name of a field that says who has something in hand."""


def _by_role(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who, by a record of what is asked about which names one person.

    Where its state is what the question says was done (`state: declined`, `decided_by`), or where
    the question asks who has it in hand.
    """
    identifiers = identifiers_in(plan.timeless)
    first = [] if identifiers else [shown.events.get(one) for one in evidence[:1]]
    for node in (*holding(identifiers, shown), *filter(None, first)):
        fields = [] if has_failed(node) else fields_of(node, shown)
        if _CARES.search(plan.timeless):
            who = [field for field in fields if not _CARING.isdisjoint(field.words)]
        elif any(_STATES.issuperset(f.words) and is_echo(f, plan.timeless) for f in fields):
            who = [field for field in fields if field.words[-1] in _BY and len(field.words) > 1]
        else:
            continue
        if len({field.value for field in who}) == 1 and _NAMED.fullmatch(who[0].value):
            return Value(who[0].value, [node.node_id, *evidence])
    return None


def _said_by_a_person(plan: Plan, shown: Shown) -> Value | None:
    """Who did it, by somebody's own words: "I replaced the fan"."""
    verb, *_ = [*plan.topic.split(), ""]
    stems = telling_stems_of(plan.topic)
    for node in islice(shown.events.values(), _FIRST_EVENTS):
        text = said_by(node, shown)
        if node.attributes.get("kind") != EventKind.MESSAGE or not text or not verb:
            continue
        says = re.search(rf"\b(?:I|[Ww]e)(?:'ve|\s+\w+)?\s+{re.escape(verb)}\b", text)
        if says and stems <= stems_of(text):
            return Value(node.attributes.get("speaker"), [node.node_id])
    return None


# -- records ---------------------------------------------------------------------------------------


def _fields(plan: Plan, evidence: list[str], shown: Shown) -> Iterator[Field]:
    for node in _records(plan, evidence, shown):
        yield from of_meant_row(fields_of(node, shown), plan.timeless)


def _records(plan: Plan, evidence: list[str], shown: Shown) -> Iterator[Node]:
    """The first event, its call or outcome, then what says the identifiers that are asked about.

    Where there are none, a value may stand in what is nearly as relevant as the first.

    What failed says nothing of what is, unless that is asked for.
    """
    events = shown.events
    first = events.get(evidence[0]) if evidence else None
    if first is None:
        return
    outcomes = outcomes_of(events)
    same = [node for node in events.values() if node is not first and _whose(node) == _whose(first)]
    if identifiers := identifiers_in(plan.timeless):
        about = [*holding(identifiers, shown)]
    elif plan.operator in _OF_NEARLY:
        about = [node for node in islice(events.values(), _FIRST_EVENTS) if _is_near(node, first)]
    else:
        about = []
    met: set[str] = set()
    for node in (first, *(same if first.attributes.get("tool_name") else ()), *about):
        outcome = outcomes.get(node.node_id, node)
        if node.node_id not in met and (
            plan.failed or not (has_failed(node) or has_failed(outcome))
        ):
            yield node
        met.add(node.node_id)


def _is_near(node: Node, first: Node) -> bool:
    """Whether an event is nearly as relevant as the first."""
    beside = node.provenance.session_id == first.provenance.session_id
    share = _NEARLY_BESIDE if beside else _NEARLY
    return node.scores.relevance_score >= share * first.scores.relevance_score


def _whose(node: Node) -> tuple[Any, Any]:
    return node.attributes.get("tool_name"), node.provenance.session_id


_WAYS: Final[Mapping[Operator, Callable[[Plan, list[str], Shown], Value | None]]] = {
    Operator.ACTOR: _who,
    Operator.TIME: _when,
    Operator.SEARCH: _asked_by_name,
    **dict.fromkeys(VALUES, _stated),
}
"""How a record answers what an operator asks for."""
