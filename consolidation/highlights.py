"""The few things of an episode that are worth telling, each with the events that prove it.

What was asked for and what came of it come first, then what failed and how that ended, then what
was done and said, by importance. Of two that speak of the same things the second counts less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

from consolidation.acts import (
    Act,
    Trouble,
    actor_of,
    acts,
    ancestors,
    body_of,
    changed_arguments,
    is_by_user,
    kind_of,
    things_of,
    troubles,
)
from consolidation.sources import SourceEvent
from consolidation.windows import place_of
from enrichment.text import cut

HighlightKind = Literal["request", "action", "failure", "resolution", "outcome", "said", "happened"]
KINDS: Final[tuple[str, ...]] = get_args(HighlightKind)

MAX_HIGHLIGHTS: Final = 8
"""Of an episode."""
MAX_PROOFS: Final = 20
"""Events that one highlight names."""
HIGHLIGHT_CHARACTERS: Final = 200

_REASON_CHARACTERS = 110
_VALUE_CHARACTERS = 40
_CHANGED = 2
_CHATTER = 2
"""Importance up to which nothing is told unless there is nothing else."""
_OPENING_CHARACTERS = 160
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n+")
_SUBSTANCE = 25
"""Characters; a shorter first sentence is a greeting or an assent."""
_REFUSAL = re.compile(
    r"\b(?:unfortunately|unable|cannot|can't|couldn't|won't|not (?:able|allowed|eligible|possible"
    r"|permitted|available)|refused?|declined?)\b",
    re.IGNORECASE,
)


class Highlight(NamedTuple):
    """Something worth telling.

    Attributes:
        kind: what it is.
        text: one line of at most HIGHLIGHT_CHARACTERS that is understood by itself.
        event_ids: that prove it, in their order, at most MAX_PROOFS; of a resolution the first is
            what failed, the last what resolved it.
        importance: of the most important of them, 1 to 10.
        occurred_at_ms: of the first of them.
        agent_id: who did, said or asked it.
        tool: that was used, if one was.
    """

    kind: HighlightKind
    text: str
    event_ids: tuple[str, ...]
    importance: int
    occurred_at_ms: int
    agent_id: str
    tool: str | None = None


class Candidate(NamedTuple):
    """What may become a highlight.

    Attributes:
        weight: how much it is worth telling.
        topics: what it speaks of; what others have spoken of already is worth less.
    """

    highlight: Highlight
    weight: int
    topics: frozenset[str]


_FIRST_REQUEST = 8
_OUTCOME = 8
_TROUBLE = 4
_REQUEST = 1
_REFUSED = 2
_REPEATED = 3
"""Taken off the weight of what speaks of nothing new."""


def highlights(events: Sequence[SourceEvent]) -> tuple[Highlight, ...]:
    """The highlights of an episode, best first.

    Args:
        events: of the episode, sorted, at least one.
    """
    return best(list(_candidates(events)), MAX_HIGHLIGHTS)


def by_time(found: Iterable[Highlight]) -> list[Highlight]:
    """Highlights in the order in which a story is told."""
    return sorted(found, key=lambda one: (one.occurred_at_ms, one.event_ids))


def best(candidates: Sequence[Candidate], count: int) -> tuple[Highlight, ...]:
    """The `count` that are most worth telling together, best first."""
    told: set[str] = set()
    left = sorted(candidates, key=lambda one: (-one.weight, one.highlight.occurred_at_ms))
    chosen: list[Highlight] = []
    while left and len(chosen) < count:
        place = max(range(len(left)), key=lambda n: (_worth(left[n], told), -n))
        one = left.pop(place)
        if one.weight <= _CHATTER and chosen:
            break
        chosen.append(one.highlight)
        told |= one.topics
    return tuple(chosen)


def _worth(one: Candidate, told: set[str]) -> int:
    return one.weight - (_REPEATED if one.topics <= told else 0)


def _candidates(events: Sequence[SourceEvent]) -> Iterator[Candidate]:
    by_id = {event.event_id: event for event in events}
    done = acts(events)
    found = troubles(events, done)
    for trouble in found:
        yield _trouble(trouble, by_id)
    told = {act.event_ids for one in found for act in (*one.failed, one.solved_by) if act}
    others = [act for act in done if act.event_ids not in told]
    spoken = [event for event in events if kind_of(event) == "said"]
    asked = _requests(spoken, done)
    answers = [event for event in spoken if event.event_id not in asked]
    outcome = _outcome(answers, others, done) if asked or done else None
    for act in others:
        yield _action(act, "outcome" if act is outcome else "action")
    for event in answers:
        yield _answer(event, "outcome" if event is outcome else "said")
    first = next((event for event in asked.values() if _is_informative(event)), None)
    led = _led(asked, done, by_id)
    for event in asked.values():
        yield _request(event, first=event is first, led=event.event_id in led)
    acted = {event_id for act in done for event_id in act.event_ids}
    for event in events:
        if event.event_id not in acted and kind_of(event) == "happened":
            yield _happening(event)


_ORDINARY = 4
"""Importance of an event that no rule of enrichment says anything about."""


def _requests(spoken: Sequence[SourceEvent], done: Sequence[Act]) -> dict[str, SourceEvent]:
    """What users said, and, where somebody uses tools, what others said to them; by event id."""
    callers = {act.call.agent_id for act in done if act.call is not None}
    return {
        event.event_id: event
        for event in spoken
        if is_by_user(event) or (callers and event.agent_id not in callers)
    }


def _outcome(
    answers: Sequence[SourceEvent], others: Sequence[Act], done: Sequence[Act]
) -> SourceEvent | Act | None:
    """The last answer of substance, or the act that came after it and matters."""
    answer = next((event for event in reversed(answers) if _is_informative(event)), None)
    acting = [act for act in done if act.importance > _ORDINARY]
    last = acting[-1] if acting else None
    if last is not None and (answer is None or place_of(last.last) > place_of(answer)):
        return last if last in others else None
    return answer


def _led(
    asked: Mapping[str, SourceEvent], done: Sequence[Act], by_id: Mapping[str, SourceEvent]
) -> set[str]:
    """The requests that acts go back to, of each act that matters the nearest."""
    found = set()
    for act in done:
        if act.importance > _ORDINARY:
            above = (event.event_id for event in ancestors(act.first, by_id))
            found.add(next((event_id for event_id in above if event_id in asked), ""))
    return found


def _is_informative(event: SourceEvent) -> bool:
    return event.importance > _CHATTER and bool(event.keywords or any(things_of(event)))


def _topics(*events: SourceEvent | None) -> frozenset[str]:
    return frozenset(
        name.lower()
        for event in events
        if event is not None
        for name in (*event.keywords, *(one.name for one in things_of(event)))
    )


# -- in words --------------------------------------------------------------------------------------


def _request(event: SourceEvent, *, first: bool, led: bool) -> Candidate:
    """What somebody asked for: the first thing, and what led to an act, count more."""
    who = actor_of(event)
    text = _line(f"{who} asked" if first else who, _opening(event))
    return _by_itself(event, "request", text, _FIRST_REQUEST if first else _REQUEST + led)


def _answer(event: SourceEvent, kind: HighlightKind) -> Candidate:
    who = actor_of(event)
    if kind == "outcome":
        return _by_itself(event, kind, _line(f"{who} concluded", _opening(event)), _OUTCOME)
    refusal = _refusal(event)
    text = _line(who, refusal or body_of(event))
    return _by_itself(event, kind, text, _REFUSED if refusal else 0)


def _refusal(event: SourceEvent) -> str:
    """The first sentence that says that something cannot be; empty when none does."""
    sentences = _SENTENCE_END.split(event.text or body_of(event))
    return next((one for one in sentences if _REFUSAL.search(one)), "")


def _happening(event: SourceEvent) -> Candidate:
    text = _line(f"{event.event_type} by {actor_of(event)}", body_of(event))
    return _by_itself(event, "happened", text, 0)


def _by_itself(event: SourceEvent, kind: HighlightKind, text: str, extra: int) -> Candidate:
    """Something that one event says alone."""
    highlight = _highlight(kind, text, (event,), event.agent_id)
    return Candidate(highlight, event.importance + extra, _topics(event))


def _opening(event: SourceEvent) -> str:
    """The first paragraph from where it says something; of a text that is not kept its line."""
    paragraph = next((one for one in event.text.split("\n") if len(one) >= _SUBSTANCE), "")
    sentences = _SENTENCE_END.split(paragraph)
    while len(sentences) > 1 and len(sentences[0]) < _SUBSTANCE:
        sentences = sentences[1:]
    return cut(" ".join(sentences), _OPENING_CHARACTERS) if paragraph else body_of(event)


def _action(act: Act, kind: HighlightKind) -> Candidate:
    lead = f"{actor_of(act.first)} used {act.name}{_on(act)}" if act.call else act.name
    text = _line(lead, _news(act))
    highlight = _highlight(kind, text, (act.first, act.last), act.first.agent_id, act.tool)
    extra = _OUTCOME if kind == "outcome" else int(act.importance > _ORDINARY)
    return Candidate(highlight, act.importance + extra, _topics(act.call, act.outcome))


_MAX_TARGETS = 3


def _on(act: Act) -> str:
    """On what: the things that the call is about, in the order in which it names them."""
    if act.call is None:
        return ""
    line, text = act.call.summary, act.call.text
    names = {one.name: (line + text).find(one.name) for one in things_of(act.call)}
    placed = sorted(names, key=lambda name: (names[name] < 0, names[name], name))[:_MAX_TARGETS]
    return f" on {listed(placed)}" if placed else ""


def _news(act: Act) -> str:
    """What came back and was not in the call: a result often repeats what it was asked for."""
    if act.outcome is None or act.call is None or act.outcome is act.call:
        return "" if act.outcome is act.call else body_of(act.last)
    given = {line.partition(": ")[2] for line in act.call.text.split("\n")} - {""}
    parts = body_of(act.outcome).split("; ")
    return "; ".join(part for part in parts if part.partition(": ")[2] not in given)


def _trouble(trouble: Trouble, by_id: Mapping[str, SourceEvent]) -> Candidate:
    first, solved_by = trouble.failed[0], trouble.solved_by
    members = [event for act in trouble.failed for event in (act.first, act.last)]
    times = {1: "", 2: " twice"}.get(len(trouble.failed), f" {len(trouble.failed)} times")
    verb = "timed out" if first.last.status == "timeout" else "failed"
    reason = cut(body_of(first.last), _REASON_CHARACTERS) if body_of(first.last) else ""
    text = _line(f"{first.name}{_on(first)} {verb}{times}", reason)
    if solved_by is not None:
        members += [solved_by.first, solved_by.last]
        text = f"{text.rstrip('.')}; {_solution(trouble.failed[-1], solved_by, by_id)}"
    ordered = list(dict.fromkeys(members))
    return Candidate(
        _highlight(
            "failure" if solved_by is None else "resolution",
            text,
            ordered,
            first.first.agent_id,
            first.tool,
        ),
        max(event.importance for event in ordered) + _TROUBLE,
        _topics(*ordered),
    )


def _solution(failed: Act, solved_by: Act, by_id: Mapping[str, SourceEvent]) -> str:
    """What was different when it went through."""
    if solved_by.name != failed.name:
        return f"then {_line(solved_by.name, body_of(solved_by.last))}"
    changed: list[str] = []
    if failed.call is not None and solved_by.call is not None:
        changed = [
            f"{one.name} {cut(one.after, _VALUE_CHARACTERS)} "
            f"instead of {cut(one.before, _VALUE_CHARACTERS)}"
            for one in changed_arguments(failed.call, solved_by.call)[:_CHANGED]
        ]
        if not changed and failed.call.text and failed.call.text == solved_by.call.text:
            return "went through when tried again"
    if changed:
        return f"went through with {listed(changed)}"
    between = [
        one.tool_name
        for one in ancestors(solved_by.first, by_id, failed.event_ids)
        if one.tool_name not in (None, failed.name) and kind_of(one) == "result"
    ]
    names = [name for name in dict.fromkeys(between) if name]
    return f"went through after {listed(names[:_MAX_TARGETS])}" if names else "went through later"


def _highlight(
    kind: HighlightKind,
    text: str,
    events: Sequence[SourceEvent],
    agent_id: str,
    tool: str | None = None,
) -> Highlight:
    ids = tuple(dict.fromkeys(event.event_id for event in events))
    kept = ids if len(ids) <= MAX_PROOFS else (*ids[: MAX_PROOFS - 1], ids[-1])
    return Highlight(
        kind,
        cut(" ".join(text.split()), HIGHLIGHT_CHARACTERS),
        kept,
        max(event.importance for event in events),
        min(event.occurred_at_ms for event in events),
        agent_id,
        tool,
    )


def _line(lead: str, rest: str) -> str:
    return f"{lead}: {rest}" if rest else lead


def listed(names: Sequence[str]) -> str:
    """Names as they are told: `a, b and c`."""
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])
