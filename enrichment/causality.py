"""Inferred causes: which earlier events of a session an event goes back to, and by which rule.

Every cause is a function of the event and of the at most WINDOW retained events directly before
it in its session. Precision goes before recall: a rule that cannot tell two candidates apart
says nothing.

Value flow looks at the *first* mention of a value in the window. An output that mentions it
first (a tool's result, what a user or another agent said, any other event's payload) produced
it. When the agent itself came first, in a message, a thought or the arguments of a call, the
value is its own, and a result that repeats it produced nothing; so it is with values that the
instructions hold, which every step can see. Later outputs that repeat a value are never causes.
A value is distinctive when it has the form of one (`enrichment.features`) and few events of the
window put it out: PRODUCERS, by kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from enrichment.event_kinds import OUTCOMES, OWN_WORDS, RETRY, EventKind
from enrichment.features import Features, ValueKind, features, value_kind

__all__ = [
    "MAX_CAUSES",
    "PRODUCERS",
    "RULES",
    "VALUE_CONFIDENCE",
    "WINDOW",
    "Features",
    "InferredCause",
    "Rule",
    "features",
    "inferred_causes",
    "value_origins",
]

WINDOW: Final = 200
"""Retained events directly before an event that its causes are looked for in."""
MAX_CAUSES: Final = 8
"""Inferred causes of one event, the strongest first."""
MAX_EVIDENCE_CHARACTERS: Final = 200

RuleName = Literal["value_flow", "tool_result", "retry", "reply"]


class Rule(NamedTuple):
    """A row of the table of rules.

    Attributes:
        name: stored on the edge.
        meaning: when the rule says that one event caused another.
        confidence: the highest it gives, 0 to 1.
    """

    name: RuleName
    meaning: str
    confidence: float


RULES: Final = (
    Rule(
        "tool_result",
        "the result of a tool answers the newest call of its call id (0.98), else the newest "
        "unanswered call of that tool in the same trace (0.85); only when no parent is given",
        0.98,
    ),
    Rule(
        "value_flow",
        "a distinctive value of the event's input was first mentioned in the window by the "
        "output of the cause: identifier 0.95, number 0.8, word 0.75",
        0.95,
    ),
    Rule(
        "retry",
        "the newest failure of a tool, then a call of that tool with the same arguments (0.9) or "
        "nearly the same (0.75: at least two thirds of them), no success between",
        0.9,
    ),
    Rule(
        "reply",
        "a message within a day after a message of another speaker, no other message between, "
        "addressed to nobody else; only when no parent is given and at most two speak in the "
        "window",
        0.7,
    ),
)
"""The stronger rule wins where two name the same cause; of equal ones the earlier row."""

VALUE_CONFIDENCE: Final[Mapping[ValueKind, float]] = {
    "identifier": 0.95,
    "number": 0.8,
    "word": 0.75,
}
PRODUCERS: Final[Mapping[ValueKind, int]] = {"identifier": 50, "number": 1, "word": 1}
"""How many events of the window may put a value out before it is too common to tell a cause.

An identifier is repeated by many outputs and still comes from the first, up to a quarter of the
window; an equal number or name in a second output may well be another thing.
"""
PRODUCERS_AFTER_SPEECH: Final = 5
"""The same for numbers and words that somebody said first: what is asked for by name is looked
up, and comes back in what is found. Said twice before its first use, it may be two things."""

_CALL_ID_CONFIDENCE = 0.98
_NEWEST_CALL_CONFIDENCE = 0.85
_SAME_ARGUMENTS_CONFIDENCE = 0.9
_NEAR_ARGUMENTS_CONFIDENCE = 0.75
_REPLY_CONFIDENCE = 0.7
_MAX_SPEAKERS = 2
_REPLY_WITHIN_MS = 86_400_000
_NO_VALUES: frozenset[str] = frozenset()


class InferredCause(NamedTuple):
    """An edge from an event to what caused it.

    Attributes:
        cause_event_id: of the earlier event.
        rule: which rule says so.
        confidence: 0 to 1, a multiple of 0.0001.
        evidence: what matched, at most MAX_EVIDENCE_CHARACTERS.
    """

    cause_event_id: str
    rule: RuleName
    confidence: float
    evidence: str


def inferred_causes(before: Sequence[Features], effect: Features) -> list[InferredCause]:
    """The causes of an event, the strongest first, at most MAX_CAUSES, each cause once.

    Never the event itself, nor its `parent_event_id`: that edge is there already.

    Args:
        before: the at most WINDOW retained events directly before it in its session's order
            (occurred_at, event_id), the oldest first. Of a longer sequence the last ones count.
        effect: the event.
    """
    window = before[-WINDOW:]
    strongest: dict[str, InferredCause] = {}
    for rule in _RULES_IN_ORDER:
        for cause in rule(window, effect):
            if cause.cause_event_id in (effect.event_id, effect.parent_event_id):
                continue
            previous = strongest.get(cause.cause_event_id)
            if previous is None or cause.confidence > previous.confidence:
                strongest[cause.cause_event_id] = cause
    # the sort is stable: equal confidence, the rule's place in the table, then the window's order
    return sorted(strongest.values(), key=lambda cause: -cause.confidence)[:MAX_CAUSES]


def _tool_results(window: Sequence[Features], effect: Features) -> Iterator[InferredCause]:
    if effect.kind not in OUTCOMES or effect.parent_event_id is not None:
        return
    call = _call_by_id(window, effect)
    if call is not None:
        evidence = f"call id {effect.call_ids[0]}"
        yield _cause(call, "tool_result", _CALL_ID_CONFIDENCE, evidence)
    elif effect.tool_name is not None and not effect.call_ids:
        call = _unanswered_call(window, effect)
        if call is not None:
            evidence = f"newest unanswered call of {effect.tool_name}"
            yield _cause(call, "tool_result", _NEWEST_CALL_CONFIDENCE, evidence)


def _call_by_id(window: Sequence[Features], result: Features) -> Features | None:
    """The newest call with the id that a result answers; ids repeat in long conversations."""
    wanted = set(result.call_ids)
    if not wanted:
        return None
    calls = (earlier for earlier in reversed(window) if earlier.kind is EventKind.CALL)
    return next((call for call in calls if not wanted.isdisjoint(call.call_ids)), None)


def _unanswered_call(window: Sequence[Features], result: Features) -> Features | None:
    answered: set[str | None] = set()
    answers = 0
    for earlier in reversed(window):
        if earlier.tool_name != result.tool_name or earlier.trace_id != result.trace_id:
            continue
        if earlier.kind in OUTCOMES:
            if earlier.parent_event_id is None:
                answers += 1
            answered.add(earlier.parent_event_id)
        elif earlier.kind is EventKind.CALL and earlier.event_id not in answered:
            if not answers:
                return earlier
            answers -= 1
    return None


def _value_flows(window: Sequence[Features], effect: Features) -> Iterator[InferredCause]:
    flows: dict[str, list[str]] = {}
    for value, producer in value_origins(window, effect).items():
        flows.setdefault(producer, []).append(value)
    for earlier in window:
        values = flows.get(earlier.event_id)
        if values:
            values.sort(key=lambda value: (-VALUE_CONFIDENCE[value_kind(value)], value))
            confidence = VALUE_CONFIDENCE[value_kind(values[0])]
            yield _cause(earlier, "value_flow", confidence, _listed(values))


def value_origins(window: Sequence[Features], effect: Features) -> dict[str, str]:
    """The distinctive values of an event's input that an earlier output mentioned first.

    Returns:
        By value, the id of the event that produced it (the parent of `effect` included).
    """
    wanted = effect.consumed
    if not wanted:
        return {}
    first: dict[str, Features | None] = {}
    outputs: dict[str, int] = {}
    used: set[str] = set()
    for earlier in window:
        brought_up = earlier.stated
        put_out = earlier.produced
        if _speaks_for(earlier, effect):
            brought_up, put_out = brought_up | put_out, _NO_VALUES
        if not brought_up.isdisjoint(wanted):
            for value in brought_up & wanted:
                first.setdefault(value, None)
                used.add(value)
        if not put_out.isdisjoint(wanted):
            for value in put_out & wanted:
                origin = first.setdefault(value, earlier)
                if value_kind(value) == "identifier":
                    outputs[value] = outputs.get(value, 0) + 1
                elif value not in used:
                    # what comes back after its first use repeats that use: no second origin
                    again = earlier.kind is EventKind.MESSAGE and origin is not earlier
                    weight = PRODUCERS_AFTER_SPEECH if again else 1
                    outputs[value] = outputs.get(value, 0) + weight
    return {
        value: producer.event_id
        for value, producer in first.items()
        if producer is not None and outputs[value] <= _producers(value, producer)
    }


def _speaks_for(earlier: Features, effect: Features) -> bool:
    """Whether what an event puts out is no news to the agent: its own words, or instructions."""
    if earlier.kind is EventKind.MESSAGE:
        return earlier.agent_id == effect.agent_id
    return earlier.kind in OWN_WORDS


def _producers(value: str, first: Features) -> int:
    limit = PRODUCERS[value_kind(value)]
    return max(limit, PRODUCERS_AFTER_SPEECH) if first.kind is EventKind.MESSAGE else limit


def _retries(window: Sequence[Features], effect: Features) -> Iterator[InferredCause]:
    if effect.kind is not EventKind.CALL or effect.tool_name is None or not effect.arguments:
        return
    for place in range(len(window) - 1, -1, -1):
        outcome = window[place]
        if outcome.tool_name != effect.tool_name:
            continue
        if outcome.kind is EventKind.CALL:
            if not outcome.failed:
                continue  # it says nothing of how it ended
            call: Features | None = outcome
        else:
            # a failure may be all that there is of a call, and say what was asked for
            call = call_of(window[:place], outcome) or (outcome if outcome.arguments else None)
        if call is None or call.agent_id != effect.agent_id:
            continue
        confidence = _arguments_confidence(call.arguments, effect.arguments)
        if confidence:
            if outcome.failed:
                alike = "same" if confidence == _SAME_ARGUMENTS_CONFIDENCE else "nearly the same"
                evidence = f"{effect.tool_name} failed, then was called with {alike} arguments"
                yield _cause(outcome, RETRY, confidence, evidence)
            return


def call_of(window: Sequence[Features], outcome: Features) -> Features | None:
    """The call that a result belongs to."""
    if outcome.parent_event_id is not None:
        same = (f for f in reversed(window) if f.event_id == outcome.parent_event_id)
        return next((f for f in same if f.kind is EventKind.CALL), None)
    if outcome.call_ids:
        return _call_by_id(window, outcome)
    return _unanswered_call(window, outcome)


def _arguments_confidence(earlier: frozenset[bytes], later: frozenset[bytes]) -> float:
    if earlier == later:
        return _SAME_ARGUMENTS_CONFIDENCE
    if 3 * len(earlier & later) >= 2 * max(len(earlier), len(later)):
        return _NEAR_ARGUMENTS_CONFIDENCE
    return 0.0


def _replies(window: Sequence[Features], effect: Features) -> Iterator[InferredCause]:
    if effect.kind is not EventKind.MESSAGE or effect.parent_event_id is not None:
        return
    messages = [earlier for earlier in window if earlier.kind is EventKind.MESSAGE]
    speakers = {message.agent_id for message in messages} | {effect.agent_id}
    if not messages or len(speakers) > _MAX_SPEAKERS:
        return
    request = messages[-1]
    if request.agent_id == effect.agent_id:
        return
    if effect.occurred_at_ms - request.occurred_at_ms > _REPLY_WITHIN_MS:
        return  # sessions may go on for months, and a new day begins with something new
    if request.recipient not in (None, effect.agent_id):
        return
    if effect.recipient in (None, request.agent_id):
        evidence = f"{effect.agent_id} after {request.agent_id}"
        yield _cause(request, "reply", _REPLY_CONFIDENCE, evidence)


_RULES_IN_ORDER: Final[
    tuple[Callable[[Sequence[Features], Features], Iterator[InferredCause]], ...]
] = (_tool_results, _value_flows, _retries, _replies)


def _cause(earlier: Features, rule: RuleName, confidence: float, evidence: str) -> InferredCause:
    return InferredCause(
        earlier.event_id, rule, round(confidence, 4), evidence[:MAX_EVIDENCE_CHARACTERS]
    )


def _listed(values: Sequence[str]) -> str:
    """As many values as there is room for, none cut short; the first always fits."""
    text = values[0]
    for value in values[1:]:
        if len(text) + 2 + len(value) > MAX_EVIDENCE_CHARACTERS:
            break
        text += ", " + value
    return text
