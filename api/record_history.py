"""What records said of one thing, one after another: what it is now, what it was before. Pure.

Of several records of a thing the newest says what is, however the question was found: a table that
was reserved and moved twice stands where the last of them put it. What it was before is the last
value that was another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from api.record_fields import (
    Field,
    Shown,
    durations_in,
    fields_of,
    has_identifier,
    identifiers_in,
    is_echo,
    names_user,
    occurred_at,
    of_meant_row,
    outcomes_of,
    said_by,
)
from api.retrieval.plan import IN_PAST, VALUES, Operator, Plan
from api.schemas import Node
from enrichment.event_kinds import EventKind, is_failed
from enrichment.stems import stem_in, stems_of, telling_stems_of, words_in
from enrichment.vocabulary import word_set
from projections.events import timestamp_text

_FORMER: Final = re.compile(
    r"(?<!\w)before(?:\W*$|(?=\s+(?:it|that|this|they|he|she|i|we|you|the|my|our|his|her|their)\b))",
    re.IGNORECASE,
)
_AT_FIRST: Final = re.compile(r"(?<!\w)(?:originally|initially|at\s+first)(?!\w)", re.IGNORECASE)
_NEVER_FORMER: Final = frozenset((Operator.BEFORE, Operator.AFTER, Operator.WINDOW))
_IDENTIFIER: Final = re.compile(r"(?=\D*\d)(?=.*[^\W\d_])[\w./#~:@|=+-]{2,60}")
_DATE: Final = re.compile(r"\d{4}-\d\d(?:-\d\d)?(?:[T ].*)?")
_FROM_TO: Final = re.compile(
    r"(?<!\w)from\s+(?P<old>\S+(?:\s\S+){0,3}?)\s+to\s+(?P<new>\S+(?:\s\S+){0,3}?)(?=[\s.,;:!?)]|$)",
    re.IGNORECASE,
)
_AHEAD: Final = re.compile(r"(?<!\w)(?:will|going\s+to|gonna|shall)(?!\w)", re.IGNORECASE)
_MORE: Final = 1
"""Words that a name may have more than another one for the same."""
_STATES: Final = (EventKind.RESULT, EventKind.OTHER, EventKind.CALL)
"""Kinds of events that state what is: of a call what it asked for, where it worked."""


class Stated(NamedTuple):
    """A value of a thing, the event that says it, when that was, and the value until then."""

    value: str
    node_id: str
    at: str
    former: str = ""


def is_former(plan: Plan) -> bool:
    """Whether a question asks what something was before it was changed."""
    if plan.operator in _NEVER_FORMER:
        return False
    return plan.operator is Operator.VALUE_BEFORE or _FORMER.search(plan.timeless) is not None


def is_as_found(plan: Plan) -> bool:
    """Whether what was found is the answer, whatever was said later.

    A question may name a time, or ask how something went: "which film was used?".
    """
    if plan.operator is not Operator.VALUE_AT and plan.spans:
        return True
    in_past = plan.operator is Operator.SEARCH and IN_PAST.search(plan.timeless) is not None
    return in_past and not (is_former(plan) or is_known_first(plan))


def is_known_first(plan: Plan) -> bool:
    """Whether a question asks what something was to begin with."""
    return _AT_FIRST.search(plan.timeless) is not None


def has_failed(node: Node) -> bool:
    """Whether an event is a failure."""
    return is_failed(node.attributes.get("kind"), node.attributes.get("status"))


def as_asked(first: Field, plan: Plan, shown: Shown) -> Stated | None:
    """What a field of a thing says now, or said at the time that a question means.

    Args:
        first: the field of the record that was found.
        plan: of the question.
        shown: all that may say it, too.

    Returns:
        None: it is asked what it was before, and nothing says that it was ever another.
    """
    told = _with_put_right(history(first, plan, shown), shown)
    if plan.operator is Operator.VALUE_AT:
        return told[-1] if plan.end_ms is None else _as_of(plan.end_ms, told, shown)
    told = _each_value(told)
    if is_known_first(plan):
        return told[0]
    if not is_former(plan):
        ahead = _AHEAD.search(plan.timeless) and _in_a_sentence(told[-1], plan, shown, ahead=True)
        return ahead or told[-1]
    later = next((one for one in reversed(told[1:]) if is_said_in(one.value, plan)), told[-1])
    others = [one for one in told[: told.index(later)] if one.value != later.value]
    return others[-1] if others else _in_a_sentence(later, plan, shown)


def is_said_in(value: str, plan: Plan) -> bool:
    """Whether a question says a value: "before it became 400", "before it was a day"."""
    words = words_in(value.lower())
    return bool(words) and (
        {*words} <= {*words_in(plan.timeless.lower())} or value in durations_in(plan.timeless)
    )


def _each_value(told: Sequence[Stated]) -> list[Stated]:
    """What was stated, with the value before a change that nothing else states."""
    each: list[Stated] = []
    for stated in told:
        if stated.former and (not each or each[-1].value != stated.former):
            each.append(stated._replace(value=stated.former, former=""))
        each.append(stated)
    return each


def _as_of(end_ms: int, told: Sequence[Stated], shown: Shown) -> Stated | None:
    """What was so before a moment; the first change after it tells, too, what was until then."""
    end = timestamp_text(end_ms)
    until = [one for one in told if one.at < end]
    later = next((one for one in told if one.at >= end), None)
    changed = later.former if later is not None else ""
    if later is not None and changed and (not until or until[-1].value != changed):
        return later._replace(value=changed)
    return until[-1] if until else _changed_to(told[0].value, shown)


def _changed_to(value: str, shown: Shown) -> Stated | None:
    """What a record says that was changed to a value, which others only set; None: none does."""
    for node in shown.events.values():
        for field in fields_of(node, shown):
            if field.former and field.value == value:
                return Stated(field.former, node.node_id, occurred_at(node))
    return None


def _in_a_sentence(now: Stated, plan: Plan, shown: Shown, *, ahead: bool = False) -> Stated | None:
    """What a sentence says, as "the rent goes from 1450 to 1510" does where it is 1510 now.

    Args:
        now: what is, or what it is to be changed from.
        plan: of the question.
        shown: all that may say it.
        ahead: whether what it will be is asked for, and not what it was.
    """
    question = telling_stems_of(plan.timeless)
    for node in shown.events.values():
        text = said_by(node, shown)
        for match in _FROM_TO.finditer(text):
            old, new = match["old"], match["new"].rstrip(".,;:!?)")
            is_now = _plain(old if ahead else new) == _plain(now.value)
            if is_now and question & telling_stems_of(text):
                return Stated(new if ahead else old, node.node_id, occurred_at(node))
    return None


def _plain(value: str) -> str:
    """A value in lower case, without what sets thousands apart."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", value.lower())


def history(first: Field, plan: Plan, shown: Shown) -> Sequence[Stated]:
    """The values of a field of one thing in the order of time; of the stated one at least."""
    record = shown.events[first.node_id]
    outcomes = outcomes_of(shown.events)
    question = telling_stems_of(plan.timeless)
    told = question & stems_of(said_by(record, shown))
    named = identifiers_in(plan.timeless)
    key = None if named else _key(first, record, outcomes.get(record.node_id), plan, shown=shown)
    stated = {first.node_id: Stated(first.value, first.node_id, occurred_at(record), first.former)}
    if key is None and not (named or (told and plan.operator in VALUES)):
        return [*stated.values()]
    for node in shown.events.values():
        outcome = outcomes.get(node.node_id)
        if node.node_id in stated or not _states(node, outcome):
            continue
        goes_on = key is None and not told <= stems_of(said_by(node, shown))
        if goes_on and not _is_beside(node, record, named, shown):
            continue
        fields = of_meant_row(fields_of(node, shown), plan.timeless)
        beside = [] if outcome is None else fields_of(outcome, shown)
        if key is not None and not any(_is_same(field, key) for field in (*fields, *beside)):
            continue
        same = _called_alike(first, fields)
        if same is None or _only_names_user(same, first, shown):
            continue
        if not goes_on or same.words == first.words:
            stated[node.node_id] = Stated(same.value, node.node_id, occurred_at(node), same.former)
    return sorted(stated.values(), key=attrgetter("at"))


def _only_names_user(field: Field, first: Field, shown: Shown) -> bool:
    """Whether a value is the id of the user whose event it is of, where the first is no such id.

    Who has something changes as other values do: `owner: M-9` becomes `owner: M-7`.
    """
    return names_user(field, shown) and _numbered(field.value) != _numbered(first.value)


def _numbered(value: str) -> str:
    """What ids of one sort have in common: all but their numbers; of a name nothing."""
    named = re.sub(r"\d+", "0", value)
    return "" if named == value else named


def put_right(record: Node, shown: Shown) -> Stated | None:
    """The value with which a call went through that had failed with the one that an event says.

    None: nothing was put right, or several values were, of which nobody knows which is meant.
    """
    instead = _went_through_instead(record, shown)
    if not instead:
        return None
    given = {one.value for one in fields_of(record, shown)}
    if record.attributes.get("kind") == EventKind.MESSAGE:
        text = said_by(record, shown).lower()
        given = {value for value in instead if has_identifier(value.lower(), text)}
    righted = [stated for value, stated in instead.items() if value in given]
    return righted[0] if len(righted) == 1 else None


def _with_put_right(told: Sequence[Stated], shown: Shown) -> Sequence[Stated]:
    """The values, and what was given instead of the last where it had failed, and then worked.

    A record says what was known; a call that failed by it, and went through with another value of
    the same argument, shows that it was no longer so.
    """
    last = told[-1]
    instead = _went_through_instead(shown.events[last.node_id], shown)
    return [*told, instead[last.value]] if last.value in instead else told


def _went_through_instead(record: Node, shown: Shown) -> dict[str, Stated]:
    """By values that calls of an event's session failed with from it on, what then worked."""
    outcomes = outcomes_of(shown.events)
    later = [
        node
        for node in shown.events.values()
        if node.attributes.get("kind") == EventKind.CALL
        and node.provenance.session_id == record.provenance.session_id
        and occurred_at(node) >= occurred_at(record)
        and node.node_id in outcomes
    ]
    refused: dict[_Argument, list[str]] = {}
    instead: dict[str, Stated] = {}
    for call in sorted(later, key=occurred_at):
        given: dict[_Argument, list[str]] = {}
        for field in fields_of(call, shown):
            argument = (call.attributes.get("tool_name"), field.words)
            given.setdefault(argument, []).append(field.value)
        if has_failed(outcomes[call.node_id]):
            for argument, values in given.items():
                refused.setdefault(argument, []).extend(filter(_is_telling, values))
            continue
        for argument, values in given.items():  # of several values nobody knows which is instead
            for value in refused.get(argument, ()) if len(values) == 1 else ():
                if value != values[0]:
                    stated = Stated(values[0], call.node_id, occurred_at(call), value)
                    instead.setdefault(value, stated)
    return instead


_Argument = tuple[str | None, tuple[str, ...]]
"""A tool, and the words of the name of an argument."""
FLAGS: Final = word_set("true false yes no none null on off")


def _is_telling(value: str) -> bool:
    """Whether a value is the same wherever it stands: no flag, and no small number."""
    return value.lower() not in FLAGS and not (len(value) <= _SMALL and value.isdigit())


_SMALL: Final = 3
"""Digits of a number that may stand anywhere: how many, which attempt."""


def _is_beside(node: Node, record: Node, named: Sequence[str], shown: Shown) -> bool:
    """Whether an event of a record's session says one of some identifiers."""
    text = said_by(node, shown).lower()
    in_session = node.provenance.session_id == record.provenance.session_id
    return in_session and any(has_identifier(one, text) for one in named)


def _called_alike(first: Field, fields: Iterable[Field]) -> Field | None:
    """The field of the same name, or else of one with a word more or less: `limit_eur`."""
    stems = frozenset(map(stem_in, first.words))
    told = [(frozenset(map(stem_in, field.words)), field) for field in fields]
    alike = [(words, field) for words, field in told if len(stems ^ words) <= _MORE]
    held = [field for words, field in alike if stems <= words or stems >= words]
    return next((field for field in held if field.words == first.words), next(iter(held), None))


def _key(
    first: Field, record: Node, outcome: Node | None, plan: Plan, *, shown: Shown
) -> Field | None:
    """What a record calls the thing that it is of; None: nothing.

    By an identifier, or by what the question calls it: `room: nursery`.
    """
    fields = [*fields_of(record, shown)]
    others = [] if outcome is None else fields_of(outcome, shown)
    of_row = [field for field in fields if not first.row or field.row in ((), first.row)]
    # what it stands beside, then what holds it
    of_row.sort(key=lambda field: field.row != first.row)
    named = (field for field in [*of_row, *others] if field.words != first.words)
    return next((field for field in named if _is_identifier(field)), None) or next(
        (field for field in of_row if field != first and _is_named(field, plan.timeless)), None
    )


def _is_named(field: Field, question: str) -> bool:
    """Whether a question says what a field says, or half of a name: `Kestrel Ltd` is Kestrel."""
    stems = telling_stems_of(field.value)
    is_name = not field.value.islower() and 2 * len(stems & stems_of(question)) >= len(stems) > 0
    return is_name or is_echo(field, question)


def _is_identifier(field: Field) -> bool:
    return _IDENTIFIER.fullmatch(field.value) is not None and not _DATE.fullmatch(field.value)


def _is_same(field: Field, key: Field) -> bool:
    """Whether a field names the same thing: an identifier is one under any name."""
    return field.value == key.value and (field.words == key.words or _is_identifier(key))


def _states(node: Node, outcome: Node | None) -> bool:
    """Whether an event states what is: a call does where it worked."""
    kind = node.attributes.get("kind")
    if kind not in _STATES or has_failed(node):
        return False
    return kind != EventKind.CALL or (outcome is not None and not has_failed(outcome))


def settled(shown: Shown) -> Iterator[Node]:
    """The events that state what is, or was: of a call what it asked for, where it worked."""
    outcomes = outcomes_of(shown.events)
    return (node for node in shown.events.values() if _states(node, outcomes.get(node.node_id)))
