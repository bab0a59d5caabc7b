"""Reading an answer's records: which of them may answer, and the field of a name in them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from api.record_fields import (
    ENDS,
    Field,
    Shown,
    fields_of,
    holding,
    identifiers_in,
    is_echo,
    of_meant_row,
    outcomes_of,
    said_by,
)
from api.record_history import as_asked, has_failed, is_as_found, is_former
from api.retrieval.plan import VALUES, Operator, Plan
from api.schemas import Node
from enrichment.act_names import apart, first_word, is_reader
from enrichment.stems import same_root, stem_in, stems_of, telling_stems_of, words_in
from enrichment.vocabulary import STOP_WORDS, WRITE_VERBS


class Value(NamedTuple):
    """What a record says, and the ids of the events that prove it, the record first."""

    value: Any
    evidence: list[str]


_SAME: Final = {
    stem_in(one): stem_in(other)
    for one, other in (
        *(("state", "status"), ("total", "amount"), ("price", "amount"), ("cost", "amount")),
        *(("sum", "amount"), ("fee", "amount"), ("celsius", "temperature"), ("percent", "level")),
        *(("fahrenheit", "temperature"), ("kelvin", "temperature")),
        *(("on", "date"), ("at", "date")),
    )
}
"""Words of which records have one or the other."""

_OF_ANYTHING: Final = frozenset(map(stem_in, ("type", "kind", "class", "category")))
"""Names of fields that say of what sort a record is, whatever it is of."""

BESIDE: Final = 1
"""Words that a field's name may have beside what is asked for, as `fee_eur` has."""

FIRST_EVENTS: Final = 10

_NEARLY: Final = 0.75
"""Share of the relevance of the first event."""

_NEARLY_BESIDE: Final = 0.5
"""The same for what happened in its session."""

HALF: Final = 0.5
"""Share of the words that say what is asked about which an event of it says at least."""

_OF_NEARLY: Final = VALUES | {Operator.SEARCH, Operator.ACTOR}


def as_it_is_asked(field: Field | None, plan: Plan, shown: Shown) -> Value | None:
    """What a field says, as it is asked: now, unless a time is named, or before that."""
    if field is None:
        return None
    if is_as_found(plan):
        return Value(field.value, [field.node_id])
    stated = as_asked(field, plan, shown)
    return stated and Value(stated.value, list(dict.fromkeys((stated.node_id, field.node_id))))


def called(wanted: frozenset[str], fields: Iterable[Field], plan: Plan) -> Field | None:
    """The field of that name, or whose name is part of it, or holds it; the first of the best.

    What the question says itself is no answer to it, unless it asks what was so before that.
    """
    best: Field | None = None
    most = 0
    for field in fields if wanted else ():
        key = frozenset(map(meaning, field.words))
        if key <= _OF_ANYTHING and not key >= wanted:
            continue  # the `type` of anything is no blood type
        is_called = key <= wanted or (wanted <= key and len(key) <= len(wanted) + BESIDE)
        is_asked = is_former(plan) or not is_echo(field, plan.timeless)
        if is_called and len(key & wanted) > most and is_asked:
            best, most = field, len(key & wanted)
    return best


def meanings(text: str) -> frozenset[str]:
    """Of the words of a text that say something what they mean in names of fields."""
    return frozenset(meaning(word) for word in words_in(text.lower()) if word not in STOP_WORDS)


def meaning(word: str) -> str:
    """The stem of a word, one for all words that records use for the same."""
    stem = stem_in(word)
    return _SAME.get(stem, stem)


def saying_as_much(first: Node, plan: Plan, shown: Shown) -> Iterator[Node]:
    """The first events which say all that one of them says of a question, and did not fail."""
    told = telling_stems_of(plan.timeless) & stems_of(with_tool(first, shown))
    outcomes = outcomes_of(shown.events)
    for node in islice(shown.events.values(), FIRST_EVENTS):
        if _worked(node, outcomes) and told <= stems_of(with_tool(node, shown)):
            yield node


def says_half(plan: Plan, node: Node, shown: Shown) -> bool:
    """Whether an event, or its tool's name, has half of the words that say what is asked about."""
    topic = telling_stems_of(plan.topic)
    return len(topic & stems_of(with_tool(node, shown))) >= HALF * len(topic)


def as_written(value: object, evidence: list[str], shown: Shown) -> object:
    """A value as the event that proves it writes it.

    What only events of others name as it is written, a viewer is told in lower case.
    """
    if not isinstance(value, str) or not value.islower() or not evidence:
        return value
    node = shown.events.get(evidence[0])
    told = "" if node is None else said_by(node, shown)
    match = re.search(rf"(?<!\w){re.escape(value)}(?!\w)", told, re.IGNORECASE)
    return value if match is None else match[0]


def with_tool(node: Node, shown: Shown) -> str:
    """What an event says, and the words of its tool's name."""
    return f"{node.attributes.get('tool_name') or ''} {said_by(node, shown)}"


def asked_fields(plan: Plan, evidence: list[str], shown: Shown) -> Iterator[Field]:
    """The fields of `asked_records`, of a list those of the row that is meant first."""
    for node in asked_records(plan, evidence, shown):
        yield from of_meant_row(fields_of(node, shown), plan.timeless)


def asked_records(plan: Plan, evidence: list[str], shown: Shown) -> Iterator[Node]:
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
        about = [*with_outcomes(holding(identifiers, shown), outcomes)]
    elif plan.operator in _OF_NEARLY:
        numbers = set(filter(str.isdigit, words_in(plan.timeless)))
        about = [
            node
            for node in islice(events.values(), FIRST_EVENTS)
            if _is_near(node, first) and numbers.issubset(words_in(said_by(node, shown)))
        ]
    else:
        about = []
    met: set[str] = set()
    for node in (first, *(same if first.attributes.get("tool_name") else ()), *about):
        if node.node_id not in met and (plan.failed or _worked(node, outcomes)):
            yield node
        met.add(node.node_id)


def with_outcomes(nodes: Iterable[Node], outcomes: Mapping[str, Node]) -> Iterator[Node]:
    """Events, of calls with what came of them: that need not say again what it is of."""
    for node in nodes:
        yield node
        if node.node_id in outcomes:
            yield outcomes[node.node_id]


def _worked(node: Node, outcomes: Mapping[str, Node]) -> bool:
    """Whether neither an event nor what came of it is a failure."""
    return not (has_failed(node) or has_failed(outcomes.get(node.node_id, node)))


BY: Final = frozenset(("by", "to"))
"""Ends the name of a field that says who: `approved_by`, `assigned_to`."""

_WHO_IS: Final = re.compile(
    r"^\W*(?:and\s+)?who(?:\s+(?:is|are|was|were)|['\u2019]?s)\s", re.IGNORECASE
)

WHOEVER: Final = re.compile(r"\w{3,}(?:ee|er|or)")
"""A name of a field that says who: `assignee`, `approver`."""


def of_what(
    plan: Plan,
    evidence: list[str],
    shown: Shown,
    *,
    marks: frozenset[str],
    form: re.Pattern[str],
) -> Field | None:
    """The first field that says who or when of what is asked, as `approved_by` does of approving.

    Args:
        plan: of the question.
        evidence: ids of the events that prove the answer.
        shown: what is shown.
        marks: words of a name that say who, or when.
        form: of the value.
    """
    topic, spoken = stems_of(plan.topic), {*words_in(plan.timeless.lower())}
    of_role = _WHO_IS.match(plan.timeless) is not None
    for field in asked_fields(plan, evidence, shown):
        if plan.operator is Operator.TIME and ENDS.issuperset(field.words):
            continue  # "to" and "from" in a question are not of a stretch
        of_what = [stem_in(w) for w in field.words if w not in marks] or [*field.words]
        is_meant = all(_is_meant(one, topic) for one in of_what)
        marked = plan.operator is Operator.TIME or field.words[-1] in marks
        # who gave the waiver is not the waiver; who is the owner is
        is_role = of_role or field.words[-1] not in spoken
        marked |= is_role and WHOEVER.fullmatch(field.words[-1]) is not None
        if is_meant and marked and form.fullmatch(field.value):
            return field
    return None


def _is_meant(name: str, topic: frozenset[str]) -> bool:
    """Whether a name is a word of a question in any form: who owns something is its owner."""
    forms = {f"{one}{ending}" for one in topic for ending in ("", "er", "or")}
    return name in forms or any(same_root(name, one) for one in topic)


def with_outcome(evidence: list[str], shown: Shown) -> list[Node]:
    """The first event that proves an answer, and what came of it where it is a call."""
    both = [shown.events.get(event_id) for event_id in evidence[:1]]
    both += [outcomes_of(shown.events).get(event_id) for event_id in evidence[:1]]
    return [node for node in both if node is not None]


def look_up(plan: Plan, evidence: list[str], shown: Shown) -> tuple[Node, Node] | None:
    """The call of a tool that only looks and its result, where the first event is one of them.

    Or of one that is called after what is asked for and by no verb: `person.site` tells a site.
    None: the first event is of something else, the look-up failed, or only one of both is shown.
    """
    outcomes = outcomes_of(shown.events)
    for call_id, outcome in outcomes.items():
        call = shown.events.get(call_id)
        if call is not None and evidence[:1] in ([call_id], [outcome.node_id]):
            looks = _tells(plan, call.attributes.get("tool_name") or "")
            return (call, outcome) if looks and not has_failed(outcome) else None
    return None


_ASKING_TOOLS: Final = frozenset(("who", "whois", "when", "where", "which", "what"))
"""A tool whose name ends so asks: `rota.who`."""


def _tells(plan: Plan, tool: str) -> bool:
    """Whether a tool only looks, or is called by nothing but what is asked for: `person.site`."""
    *_, last = [tool, *words_in(apart(tool).lower())]
    if is_reader(tool) or last in _ASKING_TOOLS:
        return True
    is_bare = first_word(tool) == last and last not in WRITE_VERBS  # `buy_clay` tells no clay
    return is_bare and stems_of(last) <= telling_stems_of(plan.topic)


def with_call(told: list[Node], shown: Shown) -> list[Node]:
    """Some events, and of each outcome among them the call that it came of."""
    outcomes = outcomes_of(shown.events)
    ids = {node.node_id for node in told}
    calls = [shown.events.get(call) for call, outcome in outcomes.items() if outcome.node_id in ids]
    return [*told, *(call for call in calls if call is not None and call.node_id not in ids)]


def of_its_session(evidence: list[str], shown: Shown) -> list[Node]:
    """What is shown of the session of the first event."""
    first = shown.events.get(evidence[0]) if evidence else None
    if first is None:
        return []
    session = first.provenance.session_id
    return [node for node in shown.events.values() if node.provenance.session_id == session]


def _is_near(node: Node, first: Node) -> bool:
    """Whether an event is nearly as relevant as the first."""
    beside = node.provenance.session_id == first.provenance.session_id
    share = _NEARLY_BESIDE if beside else _NEARLY
    return node.scores.relevance_score >= share * first.scores.relevance_score


def _whose(node: Node) -> tuple[Any, Any]:
    return node.attributes.get("tool_name"), node.provenance.session_id
