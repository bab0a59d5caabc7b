"""What the events of an episode are: words, uses of tools with what came of them, incidents.

A use of a tool is two events, told together: the call, and the result that names the call as its
cause. Uses that fail and are tried again until one goes through are one incident with its end.
What failed has a signature that equal failures share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final, NamedTuple

from consolidation.sources import Mentioned, SourceEvent
from consolidation.summary_payloads import NAME_CHARACTERS
from enrichment.event_kinds import (
    FAILED,
    OUTCOMES,
    EventKind,
    is_failed,
    is_of_tool,
    is_resolution,
)
from enrichment.patterns import identifiers
from enrichment.text import summary_body
from enrichment.vocabulary import STOP_WORDS, cut

_WORDS = frozenset((EventKind.MESSAGE, EventKind.INSTRUCTION))
_ENDED = ("completed", *FAILED)
_ANSWERS = (None, "tool_result")
"""Rules of the cause that makes an event the result of a call; None: the producer named it."""
_ACTORS = frozenset(("agent", "tool", "user"))
_DIGITS = re.compile(r"\d+")
_LONG = 8
"""Characters of a value that may be spelled wrongly; shorter words that are alike are others."""
_SPELLED_ALIKE = 0.85


class Action(NamedTuple):
    """A use of a tool, or something else that happened and may have failed.

    Attributes:
        name: of the tool, else the event's type; at most NAME_CHARACTERS.
        call: None when only the result is there, and for what is no use of a tool.
        outcome: None when nothing came back; the call itself when that tells how it ended.
        failed: whether the outcome is a failure.
    """

    name: str
    call: SourceEvent | None
    outcome: SourceEvent | None
    failed: bool

    @property
    def first(self) -> SourceEvent:
        """The earlier of its events."""
        event = self.call or self.outcome
        assert event is not None
        return event

    @property
    def last(self) -> SourceEvent:
        """The later of its events."""
        event = self.outcome or self.call
        assert event is not None
        return event

    @property
    def tool(self) -> str | None:
        """The name, when it is a tool's."""
        used = self.call is not None or self.last.tool_name is not None
        return self.name if used else None

    @property
    def event_ids(self) -> tuple[str, ...]:
        """Of the call and of the outcome."""
        return tuple(dict.fromkeys((self.first.event_id, self.last.event_id)))

    @property
    def importance(self) -> int:
        """Of the more important of its events."""
        return max(self.first.importance, self.last.importance)


class Incident(NamedTuple):
    """Attempts at the same thing, of which at least the first failed.

    Attributes:
        failed: in their order, at least one.
        solved_by: the first that went through; None when none did.
    """

    failed: tuple[Action, ...]
    solved_by: Action | None


def happened(event: SourceEvent) -> bool:
    """Whether the event is neither words nor the use of a tool."""
    used = event.kind is EventKind.CALL or is_tool_result(event)
    return event.kind not in _WORDS and not used


def is_tool_result(event: SourceEvent) -> bool:
    """Whether the event is what came of the use of a tool."""
    return event.kind in OUTCOMES and is_of_tool(event.event_type, event.tool_name)


def is_failure(event: SourceEvent) -> bool:
    """Whether the event tells of a failure."""
    return is_failed(event.kind, event.status)


def body_of(event: SourceEvent) -> str:
    """The event's line without the name of who or what it comes from."""
    return summary_body(event.summary, event.speaker, event.event_type)


def actor_of(event: SourceEvent) -> str:
    """The name of who speaks or acts: of its subject, else the agent's id."""
    subjects = [
        entity for entity in event.entities if entity.role == "subject" and _is_actor(entity)
    ]
    return subjects[0].name if subjects else event.agent_id


def is_by_user(event: SourceEvent) -> bool:
    """Whether a user speaks."""
    return any(
        entity.role == "subject" and entity.entity_type == "user" for entity in event.entities
    )


def things_of(event: SourceEvent) -> Iterator[Mentioned]:
    """What an event mentions, without agents, tools, users and mere values."""
    return (
        entity
        for entity in event.entities
        if not _is_actor(entity) and entity.subtype not in LITERALS
    )


LITERALS: Final = frozenset(("value", "amount", "date", "time"))
"""Subtypes that say how much and when, not what about."""


def _is_actor(entity: Mentioned) -> bool:
    return entity.entity_type in _ACTORS


def actions(events: Sequence[SourceEvent]) -> list[Action]:
    """The uses of tools in an episode, and what else failed in it, by their first event.

    Args:
        events: of one episode, sorted.
    """
    by_id = {event.event_id: event for event in events}
    uses: list[Action] = []
    answered: set[str] = set()
    for event in events:
        if is_tool_result(event):
            call = answered_call(event, by_id)
            if call is not None:
                answered.add(call.event_id)
            uses.append(Action(_tool(event), call, event, is_failure(event)))
        elif happened(event) and is_failure(event):
            uses.append(Action(event.event_type, None, event, True))
    for event in events:
        if event.kind is EventKind.CALL and event.event_id not in answered:
            outcome = event if event.status in _ENDED else None
            uses.append(Action(_tool(event), event, outcome, is_failure(event)))
    places = {event.event_id: place for place, event in enumerate(events)}
    return sorted(uses, key=lambda use: (places[use.first.event_id], places[use.last.event_id]))


def answered_call(result: SourceEvent, by_id: Mapping[str, SourceEvent]) -> SourceEvent | None:
    """The call that a result of a tool answers.

    Args:
        result: for which `is_tool_result` holds.
        by_id: the events among which the call is looked for.
    """
    for cause in result.causes:
        call = by_id.get(cause.event_id)
        if call is not None and call.kind is EventKind.CALL and cause.rule in _ANSWERS:
            return call
    return None


def _tool(event: SourceEvent) -> str:
    """The tool's name; of a call of several, all of them."""
    tools = " and ".join(entity.name for entity in event.entities if entity.role == "tool")
    return cut(event.tool_name or tools or event.speaker or event.event_type, NAME_CHARACTERS)


def incidents(events: Sequence[SourceEvent], done: Sequence[Action]) -> list[Incident]:
    """Failures, each with the attempts that followed it and the one that went through.

    An action is another attempt at an earlier one when it is of the same name and its cause is what
    failed, or when the same agent acts on the same thing, or only adds arguments or puts the
    spelling right.

    Args:
        events: of the episode, sorted.
        done: its actions, by their first event.
    """
    failing: list[Incident] = []
    taken: set[int] = set()
    for place, action in enumerate(done):
        if not action.failed or place in taken:
            continue
        attempts = [action]
        solved_by = None
        for later in range(place + 1, len(done)):
            other = done[later]
            if later in taken or not any(
                _tries_again(attempt, other) or _repeats(attempt, other) for attempt in attempts
            ):
                continue
            taken.add(later)
            if not other.failed:
                solved_by = other
                break
            attempts.append(other)
        if solved_by is None:
            solved_by = _resolution(events, attempts)
        failing.append(Incident(tuple(attempts), solved_by))
    return failing


def _tries_again(failed: Action, other: Action) -> bool:
    if other.name != failed.name or other.outcome is None:
        return False
    caused_by = {cause.event_id for cause in other.first.causes}
    if not caused_by.isdisjoint(failed.event_ids):
        return True
    if other.call is None or failed.call is None or other.call.agent_id != failed.call.agent_id:
        return False
    before = {thing.entity_id for thing in things_of(failed.call)}
    return any(thing.entity_id in before for thing in things_of(other.call))


def _repeats(failed: Action, other: Action) -> bool:
    """Whether a call repeats another, but for arguments added or how one value is spelled.

    Numbers tell one thing from the next, so values that differ in digits are not of one spelling.
    """
    if other.name != failed.name or other.outcome is None:
        return False
    if other.call is None or failed.call is None or other.call.agent_id != failed.call.agent_id:
        return False
    before, after = argument_lines(failed.call.text), argument_lines(other.call.text)
    if not before or not before.keys() <= after.keys():
        return False
    different = [name for name in before if before[name] != after[name]]
    return len(different) <= 1 and all(
        _is_spelling_of(first, second)
        for name in different
        for first, second in zip(before[name], after[name], strict=False)
        if first != second
    )


def _is_spelling_of(first: str, second: str) -> bool:
    if _DIGITS.findall(first) != _DIGITS.findall(second):
        return False
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    shorter = min(len(first), len(second))
    return (
        shorter >= _LONG
        and len(first) + len(second) <= _READ_CHARACTERS
        and (matcher.ratio() >= _SPELLED_ALIKE)
    )


def _resolution(events: Sequence[SourceEvent], attempts: Sequence[Action]) -> Action | None:
    """An event whose type says that something was resolved, and whose cause is what failed."""
    failed = {event_id for action in attempts for event_id in action.event_ids}
    for event in events:
        causes = {cause.event_id for cause in event.causes}
        if is_resolution(event.event_type) and not is_failure(event) and causes & failed:
            return Action(event.event_type, None, event, False)
    return None


def argument_lines(text: str) -> dict[str, list[str]]:
    """The values of each argument by its last name, as the lines of a call's text give them."""
    arguments: dict[str, list[str]] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(": ")
        if colon and " " not in name:
            arguments.setdefault(name.rpartition(".")[2], []).append(value)
    return arguments


def ancestors(event: SourceEvent, by_id: Mapping[str, SourceEvent]) -> Iterator[SourceEvent]:
    """The causes of an event within an episode, and theirs, nearest first, each once.

    Args:
        event: where to begin; it is not among them.
        by_id: the events of the episode.
    """
    seen = {event.event_id}
    level = [event]
    while level:
        above: list[SourceEvent] = []
        for below in level:
            for cause in below.causes:
                if cause.event_id in by_id and cause.event_id not in seen:
                    seen.add(cause.event_id)
                    above.append(by_id[cause.event_id])
        yield from above
        level = above


SIGNATURE_CHARACTERS: Final = 200
MAX_FAILURES: Final = 50
"""Of a session, the first ones; a tool that fails a thousand times fails in few ways."""
PLACEHOLDER: Final = "<value>"

_READ_CHARACTERS = 1_000
_TRACEBACK = re.compile(r"^\s*(?:Traceback \(most recent call last\)|Stack trace)", re.IGNORECASE)
_FRAME = re.compile(r"\s*(?:at |File |in |\.\.\. |\^|~)")
_QUOTED = re.compile(r"(?<!\w)(['\"`])(?!\1)[^\n]{1,200}?\1(?!\w)|“[^”\n]{1,200}”|«[^»\n]{1,200}»")
_NUMBER = re.compile(
    r"(?P<code>(?<![A-Za-z])(?:http|status|code|error|errno|exit)\W{1,3}\d{1,3}(?![\w.,]?\d))"
    r"|(?<![A-Za-z_<])[-+]?\d+(?:[.,:]\d+)*",
    re.IGNORECASE,
)
_LISTED = re.compile(rf"{PLACEHOLDER}(?:[\s,;|/]+{PLACEHOLDER})+")
_BLANKS = re.compile(r"\s+")
_WORD = re.compile(r"[^\W\d_]{2,}|\d+")
_EDGES = " .:;,!-"
_NAMED = "key"
"""Label of identifiers that tell what failed rather than for whom: settings, modules."""


class Failure(NamedTuple):
    """A way in which a tool failed in a session.

    Attributes:
        tool: that failed.
        signature: of what it said; never empty.
        event_id: the first such failure.
        resolution_event_id: the outcome of its retry, when that succeeded.
    """

    tool: str
    signature: str
    event_id: str
    resolution_event_id: str | None = None


@lru_cache(maxsize=8_192)  # a tool says the same again and again, and so is asked for it
def failure_signature(text: str) -> str:
    """What an error text says, without whom and what it says it about.

    The first line, of a traceback the last; quoted values, identifiers and numbers become
    PLACEHOLDER, lists of those one; lower case. Up to three digits after `status`,
    `code`, `error`, `http`, `errno` or `exit` stay: 404 is another failure than 503.

    Returns:
        At most SIGNATURE_CHARACTERS; empty when the text says nothing.
    """
    line = _telling_line(text[:_READ_CHARACTERS])
    line = _QUOTED.sub(PLACEHOLDER, line)
    pieces, last = [], 0
    for span in identifiers(line):
        if span.label != _NAMED:
            pieces += [line[last : span.start], PLACEHOLDER]
            last = span.end
    line = "".join(pieces) + line[last:]
    line = _NUMBER.sub(lambda match: match["code"] or PLACEHOLDER, line)
    line = _LISTED.sub(PLACEHOLDER, line)
    line = _BLANKS.sub(" ", line.lower()).strip(_EDGES)
    return line[:SIGNATURE_CHARACTERS].rstrip(_EDGES) if words_of(line) else ""


def _telling_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    if _TRACEBACK.match(lines[0]):
        messages = [line for line in lines[1:] if not line[0].isspace() and not _FRAME.match(line)]
        return messages[-1] if messages else lines[0]
    return lines[0]


@lru_cache(maxsize=4_096)
def words_of(signature: str) -> frozenset[str]:
    """The words that two signatures are compared by."""
    words = _WORD.findall(signature.replace(PLACEHOLDER, " "))
    return frozenset(word for word in words if word not in STOP_WORDS)


def failures_of(events: Iterable[SourceEvent]) -> tuple[Failure, ...]:
    """The ways in which tools failed in one session, by tool and signature.

    An event failed when its status says so, or when a later call is a retry of it. Of equal
    failures the first, with the first resolution that one of them found.
    """
    ordered = sorted(events, key=lambda event: (event.occurred_at_ms, event.event_id))
    effects = _effects(ordered)
    failures: dict[tuple[str, str], Failure] = {}
    for event in ordered:
        if event.tool_name is None or not (
            event.status in FAILED or _retries(event.event_id, effects)
        ):
            continue
        signature = failure_signature(event.text or event.summary)
        if not signature:
            continue
        resolution = _resolution_of(event, effects)
        key = (event.tool_name, signature)
        before = failures.get(key)
        if before is None:
            if len(failures) < MAX_FAILURES:
                failures[key] = Failure(*key, event.event_id, resolution)
        elif before.resolution_event_id is None and resolution is not None:
            failures[key] = before._replace(resolution_event_id=resolution)
    return tuple(failures[key] for key in sorted(failures))


class _Effect(NamedTuple):
    """An event that goes back to another, by which rule."""

    event: SourceEvent
    rule: str | None


_Effects = Mapping[str, list[_Effect]]


def _effects(ordered: Iterable[SourceEvent]) -> _Effects:
    effects: dict[str, list[_Effect]] = {}
    for event in ordered:
        for cause in event.causes:
            effects.setdefault(cause.event_id, []).append(_Effect(event, cause.rule))
    return effects


def solved(events: Iterable[SourceEvent]) -> frozenset[str]:
    """Ids of what failed in a session and went through when it was tried again."""
    events = list(events)
    effects = _effects(events)
    return frozenset(
        event.event_id
        for event in events
        if is_failure(event) and _resolution_of(event, effects) is not None
    )


def _retries(event_id: str, effects: _Effects) -> list[SourceEvent]:
    return [effect.event for effect in effects.get(event_id, ()) if effect.rule == "retry"]


def _resolution_of(failed: SourceEvent, effects: _Effects) -> str | None:
    """The outcome that ended a chain of retries well; None: given up, or nobody knows."""
    seen = {failed.event_id}
    waiting = [failed]
    while waiting:
        for call in _retries(waiting.pop(0).event_id, effects):
            if call.event_id in seen:
                continue
            seen.add(call.event_id)
            for outcome in _outcomes(call, effects):
                if outcome.status not in FAILED and not _retries(outcome.event_id, effects):
                    return outcome.event_id
                waiting.append(outcome)
    return None


def _outcomes(call: SourceEvent, effects: _Effects) -> list[SourceEvent]:
    """What a call returned, by rule or as the producer named its parent; else its own status."""
    results = [
        effect.event
        for effect in effects.get(call.event_id, ())
        if effect.event.tool_name == call.tool_name
        and (effect.rule == "tool_result" or (effect.rule is None and _ended(effect.event)))
    ]
    return results or ([call] if _ended(call) else [])


def _ended(event: SourceEvent) -> bool:
    return event.status == "completed" or event.status in FAILED
