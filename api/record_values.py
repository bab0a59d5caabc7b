"""Values as the records of an answer state them: fields of calls and results, by a question."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from api.comparisons import asks_for_more
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
    said_by,
    summary_of,
)
from api.record_history import has_failed, is_former, is_known_first
from api.record_numbers import AMOUNT, how_many, how_much, lasted, measured
from api.record_reading import (
    FIRST_EVENTS,
    Value,
    as_it_is_asked,
    asked_fields,
    called,
    meaning,
    meanings,
    saying_as_much,
    with_outcome,
)
from api.retrieval.plan import Operator, Plan
from api.retrieval.story_terms import VALUES
from api.schemas import Node
from enrichment.event_kinds import EventKind
from enrichment.stems import same_root, stem_in, stems_of, telling_stems_of, words_in
from enrichment.vocabulary import word_set


def value_of(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The value that a question asks for; None: no record says it in so many words.

    Args:
        plan: of the question.
        evidence: ids of the events that prove the answer.
        shown: what is shown.
    """
    read = lasted if plan.lasting else _WAYS.get(plan.operator)
    return None if read is None else read(plan, evidence, shown)


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
    r"^\W*(?:and\s+)?(?:how\s+much\s+(?:of\s+(?:the\s+)?\S+\s+|(?P<stuff>(?:\w+\s+){1,3}?))?(?:did|does|do|was|were|has|have|is|are)\b|"
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


def _noun(match: re.Match[str]) -> str:
    """What `_WHICH` asks for."""
    return match["noun"] or match["subject"]


def _stated(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The field that a question asks for, of the first event or of its call or outcome."""
    if _HOW_MUCH.match(plan.timeless):
        return _asked_by_name(plan, evidence, shown)
    if match := _HOW_BIG.match(plan.timeless):
        return measured(match["measure"].lower(), asked_fields(plan, evidence, shown))
    before, _, behind = _OF.sub("\0", plan.topic, count=1).partition("\0")
    attribute = behind if re.search(r"['\u2019]s\s", plan.topic) else before
    return as_it_is_asked(
        called(meanings(attribute), asked_fields(plan, evidence, shown), plan), plan, shown
    )


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
    return as_it_is_asked(fields[0], plan, shown) if len(fields) == 1 else None


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
    fields = asked_fields(plan, evidence, shown)
    if asks_for_more(plan):
        return None  # the first of several need not be it
    if match := _WHICH.match(plan.timeless):  # of several, "which films", none is the answer
        if (whole := _says_all(plan, shown)) is not None:
            return whole
        noun = _noun(match)
        words = frozenset(map(meaning, words_in(noun.lower())))
        told = [*fields]
        of_noun = (
            field
            for field in told
            if not words.isdisjoint(map(meaning, field.words))
            and not is_one_of_several(field, told, plan.timeless)
        )
        return as_it_is_asked(called(meanings(noun), of_noun, plan), plan, shown)
    if match := _HOW_MUCH.match(plan.timeless):
        amounts = [field for field in fields if AMOUNT.fullmatch(field.value)]
        return as_it_is_asked(how_much(match["stuff"], amounts, plan), plan, shown)
    if match := _WHAT_WAS.match(plan.timeless):
        field = called(meanings(match["attribute"]), fields, plan)
        return as_it_is_asked(field, plan, shown) or _said_to_be(plan, shown)
    return how_many(plan, evidence, shown)


def _says_all(plan: Plan, shown: Shown) -> Value | None:
    """What failed and says each word of a question: "no courier drives on Mondays".

    A field of what did not fail would claim the opposite.
    """
    question = telling_stems_of(plan.timeless)
    for node in islice(shown.events.values(), FIRST_EVENTS):
        if has_failed(node) and question <= stems_of(text := said_by(node, shown)):
            return Value(summary_of(node) or text, [node.node_id])
    return None


_IS: Final = (
    r"\s+(?:is|was|are|were)(?:\s+now)?\s+(?P<value>[^,;!?]+?)(?:[,;!?]|\.(?:\s|$)|\s+and\s|$)"
)

_WHAT_IS: Final = re.compile(
    r"^\W*what(?:\s+(?:is|are|was|were)|['\u2019]s)\s+(?:the|my|our|your)\s+"
    r"(?P<thing>[\w -]+?)\W*$",
    re.IGNORECASE,
)


def _said_to_be(plan: Plan, shown: Shown) -> Value | None:
    """What something is, as somebody sentences it last: "the tide error is 0.2"."""
    match = _WHAT_IS.match(plan.timeless)
    if match is None or is_former(plan):
        return None
    thing = r"\s+".join(map(re.escape, match["thing"].split()))
    pattern = re.compile(rf"(?<!\w)(?:the|my|our|your)\s+{thing}{_IS}", re.IGNORECASE)
    sentences = [
        (node.provenance.occurred_at or "", told["value"].strip(), node.node_id)
        for node in shown.events.values()
        if node.attributes.get("kind") == EventKind.MESSAGE
        and (told := pattern.search(said_by(node, shown))) is not None
    ]
    if not sentences:
        return None
    _, value, node_id = max(sentences)
    return Value(value, [node_id])


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


def _when(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """When, as `due: 2026-12-12` says more of when something is due than when that was said."""
    named = _of_what(plan, evidence, shown, marks=_WHEN, form=_DATE)
    if not (plan.ahead or is_former(plan) or is_known_first(plan)):
        return named and Value(named.value, [named.node_id, *evidence])
    return as_it_is_asked(named or _only_date(plan, evidence, shown), plan, shown)


def _only_date(plan: Plan, evidence: list[str], shown: Shown) -> Field | None:
    """The only date in the newest record of what is asked about.

    Where nothing is named by an identifier, that of what says as much of the question as the first
    event, or of what came of it.
    """
    identifiers = identifiers_in(plan.timeless)
    about = [
        node
        for node in holding(identifiers, shown)
        if is_record_of(node, identifiers[0], shown) and not has_failed(node)
    ]
    first = [] if identifiers else with_outcome(evidence, shown)
    question = telling_stems_of(plan.timeless)
    if first and question.isdisjoint(
        one for node in first for one in stems_of(said_by(node, shown))
    ):
        return None  # it is of something else
    about += saying_as_much(first[0], plan, shown) if first and plan.ahead else ()
    about.sort(key=lambda node: node.provenance.occurred_at or "", reverse=True)
    for node in (*about, *first):
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
    return (
        _said_by_a_person(plan, shown)
        or _by_role(plan, evidence, shown)
        or _handed_to(plan, evidence, shown)
        or _agreed(plan, evidence, shown)
    )


def _of_what(
    plan: Plan,
    evidence: list[str],
    shown: Shown,
    *,
    marks: frozenset[str],
    form: re.Pattern[str],
) -> Field | None:
    topic = stems_of(plan.topic)
    for field in asked_fields(plan, evidence, shown):
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


_HANDED: Final = re.compile(
    r"(?<!\w)(?:hand(?:ed|over|ing)?|pass(?:ed|ing)?|gave|given|gives?|transferred|escalated|took|"
    r"taken|takes|picked|landed?|ended|saw|dealt|finish(?:ed)?|clos(?:ed|es)|charge|first\s+agent)(?!\w)",
    re.IGNORECASE,
)
_HANDING: Final = re.compile(
    r"(?<!\w)who\s+(?:has\s+|had\s+)?(?:handed|passed|gave|given|transferred|escalated)(?!\w)",
    re.IGNORECASE,
)


def _handed_to(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who got it, by a record in the session of the first event that says from whom to whom."""
    if _HANDED.search(plan.timeless) is None or _HANDING.search(plan.timeless) is not None:
        return None
    for node in _of_its_session(evidence, shown):
        if node.attributes.get("tool_name"):
            continue
        values = {field.words: field.value for field in fields_of(node, shown)}
        giver, taker = values.get(("from",)), values.get(("to",))
        if taker and giver and giver == node.provenance.agent_id:
            return Value(taker, [node.node_id, *evidence])
    return None


def _of_its_session(evidence: list[str], shown: Shown) -> list[Node]:
    """What is shown of the session of the first event."""
    first = shown.events.get(evidence[0]) if evidence else None
    if first is None:
        return []
    session = first.provenance.session_id
    return [node for node in shown.events.values() if node.provenance.session_id == session]


_AGREEING: Final = frozenset(
    stem_in(word)
    for word in word_set(
        "approve authorise authorize sign cosign countersign grant allow permit clear okay waive "
        "release accept agree endorse consent confirm declare override vouch sanction certify"
    )
)
"""To say yes to what was refused without it."""

_AGREED: Final = _BY | word_set("signatory approver")
_NAMES: Final = word_set("name login user email handle")
_NOBODY: Final = word_set(
    "order number error door server folder letter color carrier container provider parameter "
    "customer user owner member buyer passenger caller reporter author holder"
)
"""Ends as a word for who decides does, and means a thing, or whom it is decided for."""
_CALLED: Final = re.compile(r"(?=.*[^\W\d_]{2})[^\d]{2,60}")
"""A name has no digit."""


def _agreed(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who said yes, by what a tool returned between a refusal and what then went through.

    The outcome of another tool, in the session of the first event, names one person: `granted_by`,
    `signatory`, or a role such as `approver`.
    """
    if _AGREEING.isdisjoint(stems_of(plan.topic.replace("-", ""))):
        return None
    told = _of_its_session(evidence, shown)
    refusing = {node.attributes.get("tool_name") for node in told if has_failed(node)}
    for node in told:
        tool = node.attributes.get("tool_name")
        if node.attributes.get("kind") != EventKind.RESULT or tool in refusing or has_failed(node):
            continue
        who = {
            field.value
            for field in fields_of(node, shown)
            if _says_who(field) and _CALLED.fullmatch(field.value)
        }
        if refusing and len(who) == 1:
            return Value(who.pop(), [node.node_id, *evidence])
    return None


def _says_who(field: Field) -> bool:
    """Whether a field names a person, by its name or by that of the record that it stands in."""
    within = words_in(field.row[0].lower()) if field.row and field.words[-1] in _NAMES else []
    return any(
        word in _AGREED or (_WHOEVER.fullmatch(word) is not None and word not in _NOBODY)
        for word in (field.words[-1], *within[-1:])
    )


def _said_by_a_person(plan: Plan, shown: Shown) -> Value | None:
    """Who did it, by somebody's own words: "I replaced the fan"."""
    verb, *_ = [*plan.topic.split(), ""]
    stems = telling_stems_of(plan.topic)
    for node in islice(shown.events.values(), FIRST_EVENTS):
        text = said_by(node, shown)
        if node.attributes.get("kind") != EventKind.MESSAGE or not text or not verb:
            continue
        says = re.search(rf"\b(?:I|[Ww]e)(?:'ve|\s+\w+)?\s+{re.escape(verb)}\b", text)
        if says and stems <= stems_of(text):
            return Value(node.attributes.get("speaker"), [node.node_id])
    return None


_WAYS: Final[Mapping[Operator, Callable[[Plan, list[str], Shown], Value | None]]] = {
    Operator.ACTOR: _who,
    Operator.TIME: _when,
    Operator.SEARCH: _asked_by_name,
    **dict.fromkeys(VALUES, _stated),
}
"""How a record answers what an operator asks for."""
