"""When something is, or was, as the records of an answer and what people said tell it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from api.record_fields import (
    Field,
    Shown,
    fields_of,
    holding,
    identifiers_in,
    is_record_of,
    occurred_at,
    of_meant_row,
    outcomes_of,
    words_of,
)
from api.record_history import has_failed, is_former, is_known_first
from api.record_numbers import asks_how_long_kept
from api.record_reading import (
    FIRST_EVENTS,
    HALF,
    Value,
    as_it_is_asked,
    of_what,
    saying_as_much,
    with_call,
    with_outcome,
    with_outcomes,
    with_tool,
)
from api.retrieval.plan import Operator, Plan
from api.retrieval.time_spans import MONTH_NUMBERS, clocks_in
from api.retrieval.time_windows import WEEKDAYS
from api.spoken_answers import is_said
from enrichment.stems import stem_in, stems_of, telling_stems_of
from enrichment.vocabulary import word_set

_WHEN: Final = frozenset(("at", "on", "by", "until", "from", "date", "time", "day", "due"))
"""Stands in the name of a field that says when, beside what it is the time of: `valid_until`."""

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d\S*)?")
_MONTH_OF_YEAR: Final = re.compile(r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])")
_STRETCH: Final = frozenset(("week", "month", "quarter", "semester", "term", "season", "year"))
"""Name a field that says in which stretch of a calendar something is: `week: 49`."""

_WEEKDAY: Final = f"(?:{'|'.join(WEEKDAYS)})"
_MONTH: Final = f"(?:{'|'.join(MONTH_NUMBERS)})[a-z]*"
_SAID_DAY: Final = re.compile(
    rf"(?<!\w)(?:{_DATE.pattern}|{_WEEKDAY}|(?:the\s+)?\d{{1,2}}(?:st|nd|rd|th)|"
    rf"\d{{1,2}}\.?\s+{_MONTH}|{_MONTH}\s+\d{{1,2}}|today|tonight|tomorrow)(?!\w)",
    re.IGNORECASE,
)
"""A day in a sentence."""
_DAY: Final = re.compile(
    rf"(?:next\s+|this\s+)?{_SAID_DAY.pattern}(?:,?\s.{{1,20}})?", re.IGNORECASE
)
"""A day as a record says it, with what stands behind it: `Tuesday 10:00`, `5 March`."""

_PLANNED: Final = re.compile(
    r"(?<!\w)(?:(?:meant|planned|scheduled|supposed|arranged)\s+(?:for|to)(?!\w)|(?:set|due)\s+for\W*$)|"
    r"^\W*(?:and\s+)?(?:(?:from|by|until|till|on|at)\s+)?(?:which|what)\s+(?:day|date|time)\s+"
    r"(?:is|are|will|does|do|must|should|can)(?!\w)|"
    r"^\W*(?:and\s+)?from\s+when\b.*?\b(?:is|are|will|does|do)(?!\w)",
    re.IGNORECASE,
)
_AMOUNT_ASKED: Final = re.compile(r"^\W*(?:and\s+)?how\s+(?:much|many)(?!\w)", re.IGNORECASE)
_TO_THE_END: Final = re.compile(
    r"(?<!\w)(?:until|till|ends?|ended|over|expires?|expired?|finish\w*|back|checkout|returns?)(?!\w)",
    re.IGNORECASE,
)


def _stems(words: str) -> frozenset[str]:
    return frozenset(map(stem_in, word_set(words)))


_BEGINS: Final = (
    _stems("start from begin beginning depart departure dep arrive arrival checkin"),
    _stems("date day scheduled effective at on due time when"),
)
"""Stand in the name of a date that says when something is, those that say its beginning first."""
_FINISHES: Final = (_stems("end to until till finish expires expiry through due checkout"),)
_OF_SETTING: Final = _stems(
    "set meant due planned scheduled supposed arranged date day time start begin end expire finish"
)
"""Say of a question how it asks when something is to be, and nothing of what."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")
_OF_ONESELF: Final = re.compile(r"(?<!\w)(?:my|our)\s+(?P<thing>\w+)", re.IGNORECASE)


def is_of_what_is_planned(plan: Plan) -> bool:
    """Whether it is asked when something is, will be or was to be: not when that was said."""
    return plan.operator is Operator.TIME and (
        plan.ahead or _PLANNED.search(plan.timeless) is not None
    )


def is_no_time(plan: Plan) -> bool:
    """Whether a question was read as one of time, and the time of an event is no answer to it."""
    if plan.operator is not Operator.TIME:
        return False
    is_amount = _AMOUNT_ASKED.match(plan.timeless) is not None
    return is_amount or is_of_what_is_planned(plan) or asks_how_long_kept(plan)


def when(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """When, as `due: 2026-12-12` says more of when something is due than when that was said."""
    named = of_what(plan, evidence, shown, marks=_WHEN, form=_DATE)
    is_planned = is_of_what_is_planned(plan)
    if not (is_planned or is_former(plan) or is_known_first(plan)):
        return named and Value(named.value, [named.node_id, *evidence])
    date = as_it_is_asked(named or _only_date(plan, evidence, shown), plan, shown)
    head = shown.events.get(evidence[0]) if evidence else None
    tells = head is not None and not is_said(head)
    may_be_said = tells and is_planned and not is_former(plan)
    return date or (_sentence_of_day(plan, shown) if may_be_said else None)


def _sentence_of_day(plan: Plan, shown: Shown) -> Value | None:
    """The sentence in which somebody says the day of what is asked about, where no record does.

    The one that says most of it; of oneself ("my move") what somebody says of themselves; of
    several the newest.
    """
    topic = telling_stems_of(plan.timeless) - _OF_SETTING
    match = _OF_ONESELF.search(plan.timeless)
    thing = None if match is None else match["thing"][:_FIRST_LETTERS]
    of_oneself = thing and re.compile(_FIRST_PERSON.format(re.escape(thing)), re.IGNORECASE)
    best: tuple[tuple[int, bool, str], str, str] | None = None
    for node in islice(shown.events.values(), FIRST_EVENTS):
        text = words_of(node, shown)
        if not is_said(node):
            continue
        words = len(topic & stems_of(text))
        sentences = _SENTENCE_END.split(text) if words and words >= HALF * len(topic) else []
        for sentence in sentences:
            is_own = bool(of_oneself and of_oneself.search(sentence))
            told = len(topic & stems_of(sentence))
            rank = (told, is_own, occurred_at(node))
            tells = says_when(sentence) and not sentence.endswith("?")
            if tells and (best is None or rank > best[0]):
                best = rank, sentence.strip(), node.node_id
    return None if best is None else Value(best[1], [best[2]])


def says_when(sentence: str) -> bool:
    """Whether a day or a time of day stands in a sentence."""
    clocks = any(not clock.is_part for clock in clocks_in(sentence))
    return clocks or _SAID_DAY.search(sentence) is not None


_FIRST_LETTERS: Final = 3
_FIRST_PERSON: Final = r"\b(?:my|our|I|we)(?:['\u2019]\w+|\s+(?:am|are|will|shall))?\s+{}\w*"


def _only_date(plan: Plan, evidence: list[str], shown: Shown) -> Field | None:
    """The date in the newest record of what is asked about, of a stretch the one that is meant.

    Where nothing is named by an identifier, that of what says as much of the question as the first
    event, or of what came of it.
    """
    identifiers = identifiers_in(plan.timeless)
    held = holding(identifiers, shown)
    records = (node for node in held if is_record_of(node, identifiers[0], shown))
    outcomes = outcomes_of(shown.events)
    about = [node for node in with_outcomes(records, outcomes) if not has_failed(node)]
    first = [] if identifiers else with_outcome(evidence, shown)
    question = telling_stems_of(plan.timeless) - _OF_SETTING
    told = " ".join(with_tool(node, shown) for node in with_call(first, shown))
    if first and len(question & stems_of(told)) < HALF * len(question):
        return None  # it is of something else
    if first and is_of_what_is_planned(plan):
        about += saying_as_much(first[0], plan, shown)
    about.sort(key=occurred_at, reverse=True)
    for node in (*about, *first):
        meant = of_meant_row(fields_of(node, shown), plan.timeless)
        dates = [field for field in meant if _is_date(field.value)]
        dates = dates or [*_stretches(meant, plan)]
        if (date := _meant_date(dates, plan)) is not None:
            return date
    return None


def _is_date(value: str) -> bool:
    return _DAY.fullmatch(value) is not None or _MONTH_OF_YEAR.fullmatch(value) is not None


def _stretches(fields: Iterable[Field], plan: Plan) -> Iterator[Field]:
    """Fields that say in which week, month or year what is planned is, as "week 49"."""
    for field in fields if is_of_what_is_planned(plan) else ():
        if len(field.words) == 1 and field.words[0] in _STRETCH and len(field.value) <= _SHORT:
            yield field._replace(value=f"{field.words[0]} {field.value}")


_SHORT: Final = 12
"""Characters of what a field of a calendar's stretch says: `W49`, `winter 2026`."""


def _meant_date(dates: list[Field], plan: Plan) -> Field | None:
    """The only date, or of several that of the beginning, of the end where that is asked for."""
    names = _FINISHES if _TO_THE_END.search(plan.timeless) else _BEGINS
    several = names if is_of_what_is_planned(plan) else ()
    named = ([one for one in dates if not of.isdisjoint(map(stem_in, one.words))] for of in several)
    for meant in (dates, *named):
        if len({field.value for field in meant}) == 1:
            return meant[0]
    return None
