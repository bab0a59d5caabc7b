"""Highlights: what may be told of an episode, in words that are understood alone, and the choice.

What was asked for and what came of it are worth most, then what failed and how that ended, then
what was done and said, by importance. The words are those of the events: a result is told by what
it says that no event before it said, a success after failures by what was different.

A candidate knows how much it is worth and what it speaks of; of two that speak of the same things
the second is worth less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from consolidation.actions import (
    Action,
    Incident,
    actions,
    actor_of,
    ancestors,
    body_of,
    happened,
    incidents,
    is_by_user,
    things_of,
)
from consolidation.lessons import listed, solution
from consolidation.sources import SourceEvent, place_of
from consolidation.summary_payloads import (
    HIGHLIGHT_CHARACTERS,
    MAX_HIGHLIGHTS,
    MAX_PROOFS,
    Highlight,
    HighlightKind,
)
from enrichment.event_kinds import EventKind
from enrichment.phrases import MIN_WORD_CHARACTERS, PLAIN, WORD
from enrichment.vocabulary import GREETINGS, cut

CHATTER: Final = 2
"""Weight up to which nothing is told unless there is nothing else."""
_ROUTINE = 3
_ENOUGH = 3
"""When so much is told, nothing of weight _ROUTINE is added."""
_REPEATED = 3
"""Taken off the weight of what speaks of nothing new; a share of it off others."""
_FIRST_REQUEST = 8
_OUTCOME = 8
_INCIDENT = 4
_REFUSED = 2
_REQUEST = 1
_ORDINARY = 4
"""Importance of an event that no rule of enrichment says anything about."""
_FEW_WORDS = 3
_MANY_WORDS = 6
"""Of content in a line: fewer take 2 off its weight, as many or more add 1."""

_REASON_CHARACTERS = 100
_NEWS_CHARACTERS = 100
_OPENING_CHARACTERS = 160
_MAX_TARGETS = 3
_MAX_NEWS = 4
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n+")
_MARKUP = re.compile(r"\*\*|`|(?<=: )[*#•-]+ ?")
_LIST_MARK = re.compile(r"^\s*(?:[-*•+]|\d{1,2}[.)])\s+")
_ANNOUNCED = 3
"""Lines that are told of a list."""
_SUBSTANCE = 25
"""Characters; a shorter first sentence is a greeting or an assent."""
_REACTION = re.compile(
    rf"(?:{'|'.join(sorted(GREETINGS))}|you|your|you're|you've|that's|it's great|sounds"
    r"|(?:(?:i|we) )?(?:(?:so|totally|completely|absolutely|fully|really) )?agree)\b",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\b(?:unfortunately|unable|cannot|can't|couldn't|won't|not (?:able|allowed|eligible|possible"
    r"|permitted|available)|refused?|declined?)\b",
    re.IGNORECASE,
)


class Candidate(NamedTuple):
    """What may become a highlight.

    Attributes:
        weight: how much it is worth telling.
        topics: what it speaks of; what others have spoken of already is worth less.
    """

    highlight: Highlight
    weight: int
    topics: frozenset[str]


class _Context(NamedTuple):
    """An episode taken apart.

    Attributes:
        events: of the episode, sorted.
        by_id: the same, by id.
        places: of the events in it, by id.
        mentions: how many of its events mention an entity, by entity id.
        first_said: the place of the event whose text has a value first, by the value.
    """

    events: Sequence[SourceEvent]
    by_id: Mapping[str, SourceEvent]
    places: Mapping[str, int]
    mentions: Mapping[str, int]
    first_said: Mapping[str, int]


def episode_highlights(events: Sequence[SourceEvent]) -> tuple[Highlight, ...]:
    """The highlights of an episode, best first.

    Args:
        events: of the episode, sorted, at least one.
    """
    return best(list(_candidates(events)), MAX_HIGHLIGHTS)


def _context(events: Sequence[SourceEvent]) -> _Context:
    mentions: dict[str, int] = {}
    first_said: dict[str, int] = {}
    for place, event in enumerate(events):
        for entity_id in {entity.entity_id for entity in event.entities}:
            mentions[entity_id] = mentions.get(entity_id, 0) + 1
        for line in event.text.split("\n"):
            first_said.setdefault(_value_of(line), place)
    return _Context(
        events=events,
        by_id={event.event_id: event for event in events},
        places={event.event_id: place for place, event in enumerate(events)},
        mentions=mentions,
        first_said=first_said,
    )


def _candidates(events: Sequence[SourceEvent]) -> Iterator[Candidate]:
    context = _context(events)
    done = actions(events)
    failing = incidents(events, done)
    for incident in failing:
        yield _incident(incident, context)
    told = {
        action.event_ids
        for incident in failing
        for action in (*incident.failed, incident.solved_by)
        if action
    }
    others = [action for action in done if action.event_ids not in told]
    messages = [event for event in events if event.kind is EventKind.MESSAGE]
    requests = _requests(messages, done)
    answers = [event for event in messages if event.event_id not in requests]
    outcome = _outcome(answers, requests, others, done) if requests or done else None
    for action in others:
        yield _action(action, "outcome" if action is outcome else "action", context)
    for event in answers:
        if event is outcome:
            yield _conclusion(event)
        else:
            yield _answer(event, to_request=bool(requests))
    yield from _request_candidates(requests, done, context)
    acted = {event_id for action in done for event_id in action.event_ids}
    for event in events:
        if event.event_id not in acted and happened(event):
            yield _happening(event)


def _request_candidates(
    requests: Mapping[str, SourceEvent], done: Sequence[Action], context: _Context
) -> Iterator[Candidate]:
    first = next(
        (
            request
            for request in requests.values()
            if len(request.text or request.summary) >= _SUBSTANCE
        ),
        None,
    )
    led = _led(requests, done, context.by_id)
    for event in requests.values():
        yield _request(event, first=event is first, led=event.event_id in led)


def _requests(messages: Sequence[SourceEvent], done: Sequence[Action]) -> dict[str, SourceEvent]:
    """What users said, and, where somebody uses tools, what others said to them; by event id."""
    callers = {action.call.agent_id for action in done if action.call is not None}
    return {
        event.event_id: event
        for event in messages
        if is_by_user(event) or (callers and event.agent_id not in callers)
    }


def _outcome(
    answers: Sequence[SourceEvent],
    requests: Mapping[str, SourceEvent],
    others: Sequence[Action],
    done: Sequence[Action],
) -> SourceEvent | Action | None:
    """The answer of most substance to the last request of substance, else the last answer.

    When something was done after that and matters, then that.
    """
    places = [place_of(request) for request in requests.values() if _says_something(request)]
    telling = [event for event in answers if _says_something(event)]
    final = [event for event in telling if not places or place_of(event) > max(places)]
    answer = max(final, key=_substance) if final else (telling[-1] if telling else None)
    acting = [action for action in done if action.importance > _ORDINARY]
    last = acting[-1] if acting else None
    if last is not None and (answer is None or place_of(last.last) > place_of(answer)):
        return last if last in others else None
    return answer


def _says_something(event: SourceEvent) -> bool:
    return event.importance > CHATTER and len(content_words(_opening(event))) >= _FEW_WORDS


def _substance(event: SourceEvent) -> tuple[int, int, str]:
    words = content_words(_opening(event))
    return event.importance + min(len(words) // _FEW_WORDS, 2), *place_of(event)


def _led(
    requests: Mapping[str, SourceEvent], done: Sequence[Action], by_id: Mapping[str, SourceEvent]
) -> set[str]:
    """The requests that actions go back to, of each one that matters the nearest."""
    leading = set()
    for action in done:
        if action.importance > _ORDINARY:
            above = (event.event_id for event in ancestors(action.first, by_id))
            leading.add(next((event_id for event_id in above if event_id in requests), ""))
    return leading


# -- words -----------------------------------------------------------------------------------------


def _request(event: SourceEvent, *, first: bool, led: bool) -> Candidate:
    """What somebody asked for: the first thing, and what led to an action, count more."""
    who = actor_of(event)
    text = _line(f"{who} asked" if first else who, _opening(event))
    return _by_itself(event, "request", text, _FIRST_REQUEST if first else _REQUEST + led)


def _conclusion(event: SourceEvent) -> Candidate:
    text = _line(f"{actor_of(event)} concluded", _opening(event))
    return _by_itself(event, "outcome", text, _OUTCOME)


def _answer(event: SourceEvent, *, to_request: bool) -> Candidate:
    """Something said; where something was asked for, a refusal rather than what else is said.

    Where people talk to each other, what somebody says of what the other said is worth less; so
    is a line that only announces a list, which is told with how the list begins.
    """
    refusal = _refusal(event) if to_request else ""
    words = refusal or body_of(event)
    extra = _REFUSED if refusal else 0
    if words.endswith(":") or (not to_request and _REACTION.match(words)):
        extra -= 1
    if words.endswith(":"):
        words = f"{words} {'; '.join(_announced(event, words))}".rstrip()
    return _by_itself(event, "said", _line(actor_of(event), words), extra)


def _announced(event: SourceEvent, announcement: str) -> list[str]:
    """The first lines of what a line announces, without what marks them as a list."""
    listing = event.text.partition(announcement)[2].split("\n")
    lines = (_LIST_MARK.sub("", line).replace("**", "").strip() for line in listing)
    return [line for line in lines if line][:_ANNOUNCED]


def _happening(event: SourceEvent) -> Candidate:
    text = _line(f"{event.event_type} by {actor_of(event)}", body_of(event))
    return _by_itself(event, "happened", text, 0)


def _by_itself(event: SourceEvent, kind: HighlightKind, text: str, extra: int) -> Candidate:
    """Something that one event says alone; worth a little less or more by how much that is."""
    words = content_words(text) - content_words(actor_of(event))
    extra += (len(words) >= _MANY_WORDS) - 2 * (len(words) < _FEW_WORDS)
    highlight = _highlight(kind, text, (event,))
    return Candidate(highlight, event.importance + extra, words)


def _refusal(event: SourceEvent) -> str:
    """The first sentence that says that something cannot be; empty when none does."""
    sentences = _SENTENCE_END.split(event.text or body_of(event))
    return next((sentence for sentence in sentences if _REFUSAL.search(sentence)), "")


def _opening(event: SourceEvent) -> str:
    """The first paragraph, without greetings before it and the announcement of a list after it.

    Of a text that is not kept the event's line.
    """
    paragraph = next((line for line in event.text.split("\n") if len(line) >= _SUBSTANCE), "")
    sentences = _SENTENCE_END.split(paragraph)
    while len(sentences) > 1 and len(sentences[0]) < _SUBSTANCE:
        sentences = sentences[1:]
    if len(sentences) > 1 and sentences[-1].endswith(":"):
        sentences = sentences[:-1]
    return cut(" ".join(sentences), _OPENING_CHARACTERS) if paragraph else body_of(event)


def _action(action: Action, kind: HighlightKind, context: _Context) -> Candidate:
    on = _on(action, context, _MAX_TARGETS)
    lead = f"{actor_of(action.first)} used {action.name}{on}" if action.call else action.name
    text = _line(lead, _news(action, context))
    highlight = _highlight(kind, text, (action.first, action.last), of=action)
    extra = _OUTCOME if kind == "outcome" else int(action.importance > _ORDINARY)
    return Candidate(highlight, action.importance + extra, content_words(text))


def _on(action: Action, context: _Context, most: int) -> str:
    """On what: the things that the call is about, first those that the episode is about."""
    if action.call is None:
        return ""
    ranked = sorted(
        things_of(action.call), key=lambda thing: (-context.mentions[thing.entity_id], thing.name)
    )
    names = list(dict.fromkeys(entity.name for entity in ranked))[:most]
    return f" on {listed(names)}" if names else ""


def _news(action: Action, context: _Context) -> str:
    """What came back and no event before said, names of things before other values."""
    if action.outcome is None or action.outcome is action.call:
        return ""
    if not action.outcome.text:
        return body_of(action.outcome)
    place = context.places[action.outcome.event_id]
    lines = [
        line
        for line in action.outcome.text.split("\n")
        if line and context.first_said[_value_of(line)] == place
    ]
    named = {entity.name for entity in action.outcome.entities}
    lines.sort(key=lambda line: _value_of(line) not in named)
    fields: dict[str, str] = {}
    for line in lines:
        fields.setdefault(_field(line).partition(": ")[0], _field(line))
    return cut("; ".join([*fields.values()][:_MAX_NEWS]), _NEWS_CHARACTERS)


def _value_of(line: str) -> str:
    """The value of a line `key: value`; of any other the line."""
    name, colon, value = line.partition(": ")
    return value if colon and " " not in name else line


def _field(line: str) -> str:
    """The line with the last part of its key."""
    name, colon, value = line.partition(": ")
    return f"{name.rpartition('.')[2]}: {value}" if colon and " " not in name else line


def _incident(incident: Incident, context: _Context) -> Candidate:
    first, last, solved_by = incident.failed[0], incident.failed[-1], incident.solved_by
    members = [event for action in incident.failed for event in (action.first, action.last)]
    times = {1: "", 2: " twice"}.get(len(incident.failed), f" {len(incident.failed)} times")
    verb = "timed out" if last.last.status == "timeout" else "failed"
    at_last = ", at last" if body_of(last.last) != body_of(first.last) else ""
    lead = f"{first.name}{_on(first, context, 1)} {verb}{times}{at_last}"
    reason = body_of(last.last)
    text = _line(lead, cut(reason, _REASON_CHARACTERS) if reason else "")
    if solved_by is not None:
        members += [solved_by.first, solved_by.last]
        between = context.events[
            context.places[last.last.event_id] + 1 : context.places[solved_by.first.event_id]
        ]
        text = f"{text.rstrip('.')}; {solution(incident.failed, solved_by, between)}"
    kind: HighlightKind = "failure" if solved_by is None else "resolution"
    highlight = _highlight(kind, text, members, of=first)
    return Candidate(highlight, highlight.importance + _INCIDENT, content_words(text))


def _highlight(
    kind: HighlightKind, text: str, events: Sequence[SourceEvent], *, of: Action | None = None
) -> Highlight:
    """Proved by the events, of which the first tells whose it is unless an action does."""
    ids = tuple(dict.fromkeys(event.event_id for event in events))
    return Highlight(
        kind=kind,
        text=cut(" ".join(_MARKUP.sub("", text).split()), HIGHLIGHT_CHARACTERS),
        event_ids=ids if len(ids) <= MAX_PROOFS else (*ids[: MAX_PROOFS - 1], ids[-1]),
        importance=max(event.importance for event in events),
        occurred_at_ms=min(event.occurred_at_ms for event in events),
        agent_id=of.first.agent_id if of else events[0].agent_id,
        tool=of.tool if of else None,
    )


def _line(lead: str, body: str) -> str:
    return f"{lead}: {body}" if body else lead


# -- the choice ------------------------------------------------------------------------------------


def best(candidates: Sequence[Candidate], count: int) -> tuple[Highlight, ...]:
    """The `count` that are most worth telling together, best first."""
    told: set[str] = set()
    left = sorted(
        candidates,
        key=lambda candidate: (
            -candidate.weight,
            -len(candidate.topics),
            candidate.highlight.occurred_at_ms,
        ),
    )
    chosen: list[Highlight] = []
    while left and len(chosen) < count:
        place = max(range(len(left)), key=lambda n: (_worth(left[n], told), -n))
        candidate = left.pop(place)
        enough = len(chosen) >= _ENOUGH
        if (candidate.weight <= CHATTER and chosen) or (candidate.weight <= _ROUTINE and enough):
            continue
        chosen.append(candidate.highlight)
        told |= candidate.topics
    return tuple(chosen)


def _worth(candidate: Candidate, told: set[str]) -> int:
    """Times 100: the weight, less by how much of its topics was told."""
    repeated = len(candidate.topics & told) * 100 // max(len(candidate.topics), 1)
    return 100 * candidate.weight - _REPEATED * repeated


def content_words(text: str) -> frozenset[str]:
    """The words of a text that are on no list of plain words, in lower case."""
    words = (match[0].lower() for match in WORD.finditer(text))
    return frozenset(word for word in words if len(word) >= MIN_WORD_CHARACTERS) - PLAIN
