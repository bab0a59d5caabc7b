"""Values as the records of an answer state them: fields of calls and results, by a question."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from api.comparisons import asks_for_more
from api.record_days import says_when, when
from api.record_fields import (
    Shown,
    fields_of,
    is_echo,
    is_one_of_several,
    names_user,
    occurred_at,
    of_meant_row,
    said_by,
    summary_of,
)
from api.record_history import FLAGS, has_failed, is_former
from api.record_numbers import (
    AMOUNT,
    asks_how_long_kept,
    asks_how_many,
    how_many,
    how_much,
    lasted,
    measured,
)
from api.record_persons import who
from api.record_reading import (
    FIRST_EVENTS,
    Value,
    as_it_is_asked,
    asked_fields,
    asked_records,
    called,
    look_up,
    meaning,
    meanings,
)
from api.retrieval.fact_words import AUXILIARY, noun_asked
from api.retrieval.plan import VALUES, Operator, Plan
from api.schemas import Node
from api.spoken_answers import is_said
from enrichment.event_kinds import EventKind
from enrichment.stems import stem_in, stems_of, telling_stems_of, words_in


def value_of(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The value that a question asks for; None: no record says it in so many words.

    Args:
        plan: of the question.
        evidence: ids of the events that prove the answer.
        shown: what is shown.
    """
    is_length = plan.lasting or asks_how_long_kept(plan)
    read = lasted if is_length else _WAYS.get(plan.operator)
    if plan.operator is Operator.TIME and asks_how_many(plan):  # "how many days did it wait"
        read = how_many
    return None if read is None else read(plan, evidence, shown)


_OF: Final = re.compile(r"\s(?:of|for)\s|(?<=\w)['\u2019]s\s")

_HOW_MUCH: Final = re.compile(
    r"^\W*(?:and\s+)?(?:how\s+much\s+(?:of\s+(?:the\s+)?\S+\s+|(?P<stuff>(?:\w+\s+){1,3}?))?"
    r"(?:did|does|do|was|were|has|have|is|are|may|can|might|should|will|must)\b|"
    r"what\s+(?:\w+\s+)?(?:did|does|do|will)\s.*\s(?:cost|spend|pay|charge)\b)",
    re.IGNORECASE,
)

_WHAT_WAS: Final = re.compile(
    r"^\W*what\s+(?:was|were)\s+(?:the|my|our|his|her|its|their)\s+(?P<attribute>\w+(?:\s+\w+)?)"
    r"(?:\W*$|\s+(?:of|for|in|on|at)\s)",
    re.IGNORECASE,
)

_WHAT_OF: Final = re.compile(
    r"^\W*what\s+(?:is|are|was|were)\s+(?:\w+\s+){0,2}\w+['\u2019]s\s+\w", re.IGNORECASE
)
"""Of what of somebody or something it is asked: "what was the kiln's limit"."""

_HOW_BIG: Final = re.compile(
    r"^\W*(?:and\s+)?how\s+(?P<measure>\w+)\s+(?:is|was|are|were)\b", re.IGNORECASE
)
_WHERE: Final = re.compile(r"^\W*where(?!\w)", re.IGNORECASE)


_NUMBERED: Final = re.compile(r"(?<!\w)(?:number|phone|telephone|iban)(?!\w)", re.IGNORECASE)
"""What is told by digits."""
_ANY_DIGIT: Final = re.compile(r"\d")


def asks_how_much(plan: Plan) -> bool:
    """Whether an amount is asked for."""
    return _HOW_MUCH.match(plan.timeless) is not None


def asks_for_number(plan: Plan) -> bool:
    """Whether a number is asked for: an amount, how many there are, or what is told by digits."""
    return asks_how_much(plan) or asks_how_many(plan) or _is_numbered(plan)


def _is_numbered(plan: Plan) -> bool:
    return plan.operator in VALUES and _NUMBERED.search(plan.topic) is not None


def lacks_number(plan: Plan, node: Node, shown: Shown, *, decides: bool) -> bool:
    """Whether a number is asked for, and an event says none, or none of what has that number.

    Args:
        plan: of the question.
        node: the event.
        shown: what is shown.
        decides: tools were used here; in talk a number may be told by the names of what there is.
    """
    text = said_by(node, shown)
    if asks_how_much(plan):
        numbers = set(filter(str.isdigit, words_in(plan.timeless)))
        return _SAID_NUMBER.search(text) is None or not numbers.issubset(words_in(text))
    if not (decides and asks_for_number(plan)):
        return False
    return (_ANY_DIGIT if _is_numbered(plan) else _SAID_NUMBER).search(text) is None


_SAID_NUMBER: Final = re.compile(
    r"\d|(?<!\w)(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|"
    r"(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|"
    r"dozens?|hundreds?|thousands?|nothing|none|no|free|much|many|more|less|few|several|all|both|"
    r"single|couple|pair|twins?)(?!\w)",
    re.IGNORECASE,
)


def _stated(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The field that a question asks for, of the first event or of its call or outcome."""
    if asks_how_much(plan):
        return _asked_by_name(plan, evidence, shown)
    if match := _HOW_BIG.match(plan.timeless):
        size = measured(match["measure"].lower(), asked_fields(plan, evidence, shown))
        return as_it_is_asked(size, plan, shown)
    attributes = [_attribute(plan.topic)]
    if noun := noun_asked(plan.timeless):  # "which address had we on file"
        attributes.append(noun)
    # Who somebody is says what they have only where nothing else does: `holding: <their id>`.
    fields = sorted(asked_fields(plan, evidence, shown), key=lambda field: names_user(field, shown))
    if _WHERE.match(plan.timeless):  # "placed: yes" is no place
        fields = [field for field in fields if field.value.lower() not in FLAGS]
    told = (called(meanings(name), fields, plan) for name in attributes)
    field = next(filter(None, told), None)
    if field is not None:
        return as_it_is_asked(field, plan, shown)
    return _of_its_form(plan, shown) or _looked_up(plan, evidence, shown)


def _looked_up(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The one thing that a look-up returned which neither its call nor the question says.

    "Where is the kiln course on Monday?" is told by `room: 4`, beside the course that was given.
    """
    if (both := look_up(plan, evidence, shown)) is None:
        return None
    call, result = both
    given = {field.value for field in fields_of(call, shown)}
    fields = [
        field
        for field in fields_of(result, shown)
        if field.value not in given
        and field.value.lower() not in FLAGS
        and not is_echo(field, plan.timeless)
    ]
    if _WHERE.match(plan.timeless):
        fields = [field for field in fields if not says_when(field.value)]
    if len(fields) != 1:
        return None
    value = as_it_is_asked(fields[0], plan, shown)
    return value and Value(value.value, list(dict.fromkeys((*value.evidence, call.node_id))))


def _attribute(topic: str) -> str:
    """What is asked for of somebody or something: "the serial number of Tessa's boiler"."""
    of = _OF.search(topic)
    if of is None:
        return topic
    return topic[: of.start()] if of[0].strip().isalpha() else topic[of.end() :]


_FORMS: Final = (
    (
        re.compile(r"(?<!\w)e-?mail(?:s|\s+address)?(?!\w)", re.I),
        re.compile(r"[\w.+-]+@\w[\w.-]*\w"),
    ),
    (
        re.compile(r"(?<!\w)(?:link|url|web\s*(?:site|page))(?!\w)", re.I),
        re.compile(r"https?://\S+\w"),
    ),
)
"""What is known by its form, whatever the field is called or the sentence says."""


def _of_its_form(plan: Plan, shown: Shown) -> Value | None:
    """What has the form of what a question names, where an event says a single one of it."""
    form = next((form for named, form in _FORMS if named.search(plan.timeless)), None)
    if form is None or is_former(plan):
        return None
    for node in islice(shown.events.values(), FIRST_EVENTS):
        matches = set(form.findall(said_by(node, shown)))
        if len(matches) == 1 and not has_failed(node):
            return Value(matches.pop(), [node.node_id])
    return None


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
    wanted = stems_of(noun_asked(plan.timeless))
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
    if noun := noun_asked(plan.timeless):  # of several, "which films", none is the answer
        if (whole := _says_all(plan, shown)) is not None:
            return whole
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
    if _WHAT_OF.match(plan.timeless):
        at_a_time = Operator.VALUE_AT if plan.spans else Operator.VALUE
        return _stated(plan._replace(operator=at_a_time), evidence, shown)
    if match := _WHAT_WAS.match(plan.timeless):
        field = called(meanings(match["attribute"]), fields, plan)
        return as_it_is_asked(field, plan, shown) or _said_to_be(plan, shown)
    if _HOW_BIG.match(plan.timeless):
        return _looked_up(plan, evidence, shown)
    return _in_a_phrase(plan, evidence, shown) or how_many(plan, evidence, shown)


_ASKS_SOMETHING: Final = re.compile(
    rf"(?<!\w)(?:wh\w+|how|{AUXILIARY[3:-1]}|can|could|would|list|show|find|not?|n't)(?!\w)|[,;:]",
    re.IGNORECASE,
)


def _in_a_phrase(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """The field that a question names in no sentence: "I-7 due date", "pool size on 5 May".

    What else the question says the record says, too.
    """
    if _ASKS_SOMETHING.search(plan.timeless):
        return None
    at_a_time = Operator.VALUE_AT if plan.spans else Operator.VALUE
    plan = plan._replace(operator=at_a_time)
    for node in asked_records(plan, evidence, shown):
        fields = [] if is_said(node) else of_meant_row(fields_of(node, shown), plan.timeless)
        name = meanings(plan.timeless) - stems_of(" ".join(field.value for field in fields))
        if len(name) > 1 and (field := called(name, fields, plan)) is not None:
            return as_it_is_asked(field, plan, shown)
    return None


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
        (occurred_at(node), told["value"].strip(), node.node_id)
        for node in shown.events.values()
        if node.attributes.get("kind") == EventKind.MESSAGE
        and (told := pattern.search(said_by(node, shown))) is not None
    ]
    if not sentences:
        return None
    _, value, node_id = max(sentences)
    return Value(value, [node_id])


def _whom(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who it was, by the records; who it is by the one name that a look-up returned."""
    return who(plan, evidence, shown) or _looked_up(plan, evidence, shown)


_WAYS: Final[Mapping[Operator, Callable[[Plan, list[str], Shown], Value | None]]] = {
    Operator.ACTOR: _whom,
    Operator.TIME: when,
    Operator.SEARCH: _asked_by_name,
    **dict.fromkeys(VALUES, _stated),
}
"""How a record answers what an operator asks for."""
