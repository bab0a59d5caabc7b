"""How many, how much and how long, as the records of an answer state it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

from api.record_fields import (
    Field,
    Shown,
    duration_ms,
    fields_of,
    holding,
    identifiers_in,
    is_echo,
    occurred_at,
    of_meant_row,
    outcomes_of,
    words_of,
)
from api.record_history import has_failed, is_said_in, settled
from api.record_reading import (
    BESIDE,
    Value,
    as_it_is_asked,
    asked_records,
    called,
    meaning,
    meanings,
    of_its_session,
    with_outcome,
    with_tool,
)
from api.retrieval.durations import duration_text
from api.retrieval.plan import VALUES, Operator, Plan, StoryAnswer
from api.spoken_answers import is_said
from enrichment.act_names import is_reader
from enrichment.stems import stem_in, stems_of, telling_stems_of, words_in
from enrichment.vocabulary import STOP_WORDS, word_set

_HOW_MANY: Final = re.compile(r"^\W*(?:and\s+)?(?:for\s+)?how\s+many\s+(?!times?\b)", re.IGNORECASE)

_NUMBER: Final = re.compile(r"\d{1,15}")

_DECIMAL: Final = re.compile(r"\d{1,15}(?:\.\d+)?")

_COUNTS: Final = frozenset(("count", "quantity", "qty"))
"""Names of fields that say how many of what the record is about."""

_PEOPLE: Final = word_set(
    "people persons guests attendees participants visitors passengers pax party"
)
"""Names of fields that say how many people there are."""


def asks_how_many(plan: Plan) -> bool:
    """Whether a number of things is asked for, and not how often something was so."""
    return _HOW_MANY.match(plan.timeless) is not None


def counted(story: StoryAnswer, shown: Shown) -> Value:
    """How many, as the outcomes of what is counted say, where each of them does.

    `sent: 41` says how many were sent by one call.
    """
    as_counted = Value(story.value, story.evidence)
    if not asks_how_many(story.plan):
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
    r"^\W*(?:and\s+)?(?:for\s+)?how\s+many\s+(?P<noun>.+?)\s+(?:is|are|was|were|did|do|does|has|have|had)\s",
    re.IGNORECASE,
)


def _names_one(plan: Plan, fields: Iterable[Field]) -> bool:
    """Whether a record is of one of what is counted: `order: O-7`, `order_id: 7` is one order.

    How many lamps were ordered counts lamps.
    """
    match = _COUNTED.match(plan.timeless)
    question = stems_of(match["noun"] if match else plan.timeless)
    for field in fields:
        noun = [word for word in field.words if word not in _OF_KEYS]
        is_key = len(noun) < len(field.words) or any(map(str.isalpha, field.value))
        is_counted = bool(noun) and stem_in(noun[-1]) in question and STOP_WORDS.isdisjoint(noun)
        if not field.row and is_counted and is_key and any(map(str.isdigit, field.value)):
            return True
    return False


_OF_KEYS: Final = word_set("id key no number ref reference")
"""Behind the name of what a key is of: `order_id`."""


_BESIDE_UNITS: Final = frozenset(("since", "total", "num"))
"""Stand beside what is counted: `since_days`, `num_seats`."""


def _number(plan: Plan, fields: Iterable[Field]) -> Field | None:
    """The number that a question asks for, by the field whose name says most of it; None: none.

    It is called in the same form: `order: 4711` says of no number of orders.
    """
    asked_for = (_COUNTS | _BESIDE_UNITS).union(words_in(plan.timeless.lower()))
    if not asked_for.isdisjoint(_PEOPLE):
        asked_for |= _PEOPLE
    numbers = [
        field
        for field in fields
        if asked_for.issuperset(field.words) and _NUMBER.fullmatch(field.value)
    ]
    shares = [len(field.words) - _COUNTS.issuperset(field.words) for field in numbers]
    best = [field for field, one in zip(numbers, shares, strict=True) if one == max(shares)]
    return best[0] if len(best) == 1 else None


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
    stocked, others = [], []
    for node in asked_records(plan, evidence, shown):
        meant = [*of_meant_row(fields_of(node, shown), plan.timeless)]
        rows = {field.row for field in meant if is_echo(field, plan.timeless)}
        stocked += [
            field
            for field in meant
            if _NUMBER.fullmatch(field.value)
            and not _STOCK.isdisjoint(field.words)
            and (not rows or field.row in rows)
        ][:1]
        if (number := _number(plan, meant)) is not None:
            looks = is_reader(node.attributes.get("tool_name") or "")
            others.append(((not looks, not _OF_AN_ORDER.isdisjoint(number.words)), number))
    others.sort(key=itemgetter(0))
    return next(iter([*stocked, *(number for _, number in others)]), None)


_OF_AN_ORDER: Final = word_set("quantity qty")
"""Names of fields that say how many of something are to be had, not how many there are."""


def _numbers(plan: Plan, evidence: list[str], shown: Shown) -> Iterator[Field]:
    """The numbers that a question asks for, of each record that has one."""
    acts = {node.node_id for node in with_outcome(evidence, shown)}
    for node in asked_records(plan, evidence, shown):
        meant = [*of_meant_row(fields_of(node, shown), plan.timeless)]
        number = _number(plan, meant)
        if number is None and node.node_id in acts:
            number = _number_of_act(plan, meant)
        if number is not None:
            yield number


def _number_of_act(plan: Plan, fields: Iterable[Field]) -> Field | None:
    """How many an act was about: `changed_rows: 40` of the call that changed them."""
    match = _COUNTED.match(plan.timeless)
    noun = meanings(match["noun"]) if match else frozenset()
    named = (field for field in fields if _NUMBER.fullmatch(field.value))
    return called(noun, named, plan)


AMOUNT: Final = re.compile(r"\D{0,3}\d[\d.,]*(?:\s?\D{1,3})?")

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


def measured(measure: str, fields: Iterable[Field]) -> Field | None:
    """The number under a name of what a word asks the measure of: `size_mb`."""
    names = frozenset(map(meaning, _MEASURES.get(measure, ())))
    for field in fields:
        if not names.isdisjoint(map(meaning, field.words)) and AMOUNT.fullmatch(field.value):
            return field
    return None


_MONEY: Final = frozenset(("eur", "euros", "usd", "dollars", "gbp", "pounds", "chf", "francs"))


_CODE: Final = re.compile(r"[A-Za-z]+\d")
"""How a value begins that is no amount, though it has a number: `TP1912`."""


def how_much(stuff: str | None, amounts: Sequence[Field], plan: Plan) -> Field | None:
    """How much of something, or how much money; None: no record says it.

    Args:
        stuff: what it is asked of; None: of money.
        amounts: fields that may say it, the best first.
        plan: of the question.
    """
    if stuff is not None and stuff.split() != ["money"]:
        told = (called(meanings(name), amounts, plan) for name in (stuff, "quantity", "qty"))
        return next(filter(None, told), None) or _amount_done(plan, amounts)
    in_money = [field for field in amounts if field.words[-1] in _MONEY]
    of_first = [field for field in in_money if field.node_id == in_money[0].node_id]
    if len(of_first) == 1:
        return of_first[0]
    counted = [field for field in amounts if not _CODE.match(field.value)]
    return called(meanings("amount"), counted, plan) or _amount_done(plan, counted)


def _is_asked(word: str, question: frozenset[str]) -> bool:
    """Whether a question has a word of a name, or what it is made of: `monthly` is a month."""
    return stem_in(word) in question or any(
        len(stem) >= _SHORTEST_UNIT and word == f"{stem}ly" for stem in question
    )


_SHORTEST_UNIT: Final = 4


def _amount_done(plan: Plan, amounts: Iterable[Field]) -> Field | None:
    """How much of what was done: `freed_gb: 38` says how much was freed, `spent_eur` was spent."""
    question = telling_stems_of(plan.timeless)
    for field in amounts:
        shared = sum(_is_asked(word, question) for word in field.words)
        if shared and shared >= len(field.words) - BESIDE and not is_echo(field, plan.timeless):
            return field
    return None


_KEPT: Final = re.compile(
    r"^\W*(?:and\s+)?how\s+long\s+(?:do|does|did|is|are|was|were|will|has|have|can|may|could|shall)\s.*?"
    r"(?<!\w)(?:holds?|held|keep|kept|cached?|stored?|retain(?:ed)?|lives?|valid|good|waits?)(?!\w)",
    re.IGNORECASE,
)
"""How long something is kept is a setting, and not how long an act took."""
_KEEPING: Final = word_set("ttl retention lifetime validity expiry timeout age keep cache")
"""Stand in the name of a field that says how long something is kept."""


_SUM: Final = re.compile(
    r"(?<!\w)(?:total|sum|average|mean|median)\s+(?:\w+\s+){0,3}?(?:of|for|over|across|from)\s+"
    r"(?:all|every|each)(?!\w)|"
    r"(?<!\w)(?:all|every|each)\s+(?:\S+\s+){1,6}(?:combined|on\s+average|in\s+total)(?!\w)",
    re.IGNORECASE,
)


def asks_for_sum(plan: Plan) -> bool:
    """Whether something of all of several is asked for, which no single record says."""
    return plan.operator in (*VALUES, Operator.SEARCH) and _SUM.search(plan.timeless) is not None


def asks_how_long_kept(plan: Plan) -> bool:
    """Whether a question asks how long something is kept: no act lasted as long."""
    return _KEPT.match(plan.timeless) is not None


def lasted(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """How long it took by the record of what the question is about: `minutes: 112`.

    Or by what came of the call that it is about. That counts more than when events were told. How
    long something is kept says `ttl: 300`.
    """
    if asks_how_long_kept(plan):
        return as_it_is_asked(_keeping(plan, shown), plan, shown) or _stretch_told(evidence, shown)
    if plan.operator is not Operator.TIME:
        return None
    identifiers = identifiers_in(plan.timeless)
    both = [shown.events[event_id] for event_id in evidence if event_id in shown.events]
    of_one_tool = len({node.attributes.get("tool_name") for node in both}) == 1
    for node in holding(identifiers, shown) if identifiers else both if of_one_tool else ():
        for field in () if has_failed(node) else fields_of(node, shown):
            is_meant = "since" not in field.words or _BEEN.search(plan.timeless) is not None
            if is_meant and (ms := duration_ms(field)) is not None:
                return Value(duration_text(round(ms)), [node.node_id, *evidence])
    return None


_BEEN: Final = re.compile(r"(?<!\w)(?:has|have|had)\s.*\bbeen(?!\w)", re.IGNORECASE)
"""Asks since when something is so, and not how long it took."""
_CALENDAR: Final = (("days",), ("weeks",), ("months",), ("years",))
"""Names of fields that say for how long something is good, and not how long an act took."""


def _stretch_told(evidence: list[str], shown: Shown) -> Value | None:
    """The one stretch of days or more that the first event says, or what came of it: `days: 90`."""
    told = [
        field
        for node in with_outcome(evidence, shown)
        for field in fields_of(node, shown)
        if field.words in _CALENDAR and _DECIMAL.fullmatch(field.value) and not has_failed(node)
    ]
    if len(told) != 1:
        return None
    return Value(f"{told[0].value} {told[0].words[0]}", [told[0].node_id, *evidence])


def _keeping(plan: Plan, shown: Shown) -> Field | None:
    """How long something is kept, by the newest record of it; that which the question names first.

    Its tool or what it says has a word of the question.
    """
    question = telling_stems_of(plan.timeless)
    told = [
        (
            (is_said_in(field.value, plan), bool(field.former), occurred_at(node)),
            field,
        )
        for node in settled(shown)
        if question & stems_of(with_tool(node, shown))
        for field in fields_of(node, shown)
        if not _KEEPING.isdisjoint(field.words) and _DECIMAL.fullmatch(field.value)
    ]
    return max(told, key=itemgetter(0))[1] if told else None


def how_many(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """How many, as a record says it; None: that is not asked for, or none says it."""
    if not asks_how_many(plan):
        return None
    number = _of_stock(plan, evidence, shown) or next(_numbers(plan, evidence, shown), None)
    told = as_it_is_asked(number, plan, shown)
    if told is None:
        return _said_number(plan, evidence, shown)
    if not _NUMBER.fullmatch(told.value):
        return None
    return Value(int(told.value), [*told.evidence, *evidence])


def _said_number(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The number of what is asked for as somebody said it last where the first event is told.

    "They count, 24 credits." says how many credits there were, behind who asked for them.
    """
    match = _COUNTED.match(plan.timeless)
    if match is None:
        return None
    noun = stem_in(match["noun"].split()[-1].lower())
    numbers = [
        (occurred_at(node), int(told["number"]), node.node_id)
        for node in filter(is_said, of_its_session(evidence, shown))
        for told in _NUMBER_OF.finditer(words_of(node, shown))
        if stem_in(told["noun"].lower()) == noun
    ]
    if not numbers:
        return None
    _, number, node_id = max(numbers)
    return Value(number, list(dict.fromkeys((node_id, *evidence))))


_NUMBER_OF: Final = re.compile(
    r"(?<![\w.,:/-])(?P<number>\d{1,9})\s+(?:of\s+\S+\s+)?(?P<noun>[^\W\d_]+)(?![^.!]*\?)"
)
"""A number of something, in no question."""
