"""What the events of an episode are: words, uses of tools with what came of them, troubles.

A use of a tool is two events, told together: the call, and the result that names the call as its
cause. Uses that fail and are tried again until one goes through are one trouble with its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from consolidation.sources import Mentioned, SourceEvent
from enrichment.event_kinds import FAILED
from enrichment.text import cut

Kind = Literal["said", "call", "result", "instruction", "happened"]

NAME_CHARACTERS: Final = 200
"""Of the name of a tool or an entity; envelopes allow 512, which would not fit a dozen times."""

_WORD = re.compile(r"[a-z0-9]+")
_RESULT = frozenset(("result", "results", "returned", "output", "response"))
_ERROR = frozenset(("error", "failed", "failure", "exception", "timeout"))
_MESSAGE = frozenset(("message", "utterance", "chat"))
_INSTRUCTION = frozenset(("system", "developer", "instruction", "instructions"))
_TOOL = frozenset(("tool", "function"))
_RESOLVED = frozenset(("resolved", "recovered", "fixed", "restored", "mitigated", "rolled"))
_ENDED = ("completed", *FAILED)
_FAILURE_VERBS = ("failed", "timed out")
_VERBS = ("returned", *_FAILURE_VERBS)
"""What `enrichment.keywords.summary` writes behind the name of a tool."""
_ANSWERS = (None, "tool_result")
"""Rules of the cause that makes an event the result of a call; None: the producer named it."""
_ACTORS = frozenset(("agent", "tool", "user"))


class Act(NamedTuple):
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


class Trouble(NamedTuple):
    """Attempts at the same thing, of which at least the first failed.

    Attributes:
        failed: in their order, at least one.
        solved_by: the first that went through; None when none did.
    """

    failed: tuple[Act, ...]
    solved_by: Act | None


def kind_of(event: SourceEvent) -> Kind:
    """What an event is: by the words of its type, then by the line that enrichment made of it."""
    words = frozenset(_WORD.findall(event.event_type))
    speaker = event.speaker or ""
    if any(event.summary.startswith(f"{speaker} {verb}") for verb in _VERBS) and speaker:
        return "result" if event.tool_name or words & _TOOL else "happened"
    if words & _MESSAGE:
        return "instruction" if words & _INSTRUCTION else "said"
    if event.tool_name is not None or words & _TOOL:
        return "result" if words & (_RESULT | _ERROR) else "call"
    typed = event.summary.startswith((event.event_type, f"{speaker}: {event.event_type}"))
    if event.text and speaker and event.summary.startswith(f"{speaker}: ") and not typed:
        return "said"
    return "happened"


def is_failure(event: SourceEvent) -> bool:
    """Whether the event tells of a failure, by its status, its type or its line."""
    if event.status in FAILED:
        return True
    speaker = event.speaker or ""
    if speaker and any(event.summary.startswith(f"{speaker} {v}") for v in _FAILURE_VERBS):
        return True
    words = frozenset(_WORD.findall(event.event_type))
    return event.status is None and bool(words & _ERROR) and not words & (_MESSAGE | _RESOLVED)


def body_of(event: SourceEvent) -> str:
    """The event's line without the name of who or what it comes from."""
    line, speaker = event.summary, event.speaker or ""
    for lead in (*(f"{speaker} {verb}" for verb in _VERBS), speaker, event.event_type):
        if lead and (line == lead or line.startswith(f"{lead}: ")):
            return line[len(lead) + 2 :]
    return line


def actor_of(event: SourceEvent) -> str:
    """The name of who speaks or acts: of its subject, else the agent's id."""
    subjects = [one for one in event.entities if one.role == "subject" and _is_actor(one)]
    return subjects[0].name if subjects else event.agent_id


def is_by_user(event: SourceEvent) -> bool:
    """Whether a user speaks."""
    return any(one.role == "subject" and one.entity_type == "user" for one in event.entities)


def things_of(event: SourceEvent) -> Iterator[Mentioned]:
    """What an event mentions, without agents, tools, users and mere values."""
    return (one for one in event.entities if not _is_actor(one) and one.subtype not in LITERALS)


LITERALS: Final = frozenset(("value", "amount", "date", "time"))
"""Subtypes that say how much and when, not what about."""


def _is_actor(one: Mentioned) -> bool:
    return one.entity_type in _ACTORS


def acts(events: Sequence[SourceEvent]) -> list[Act]:
    """The uses of tools in an episode, and what else failed in it, by their first event.

    Args:
        events: of one episode, sorted.
    """
    by_id = {event.event_id: event for event in events}
    kinds = {event.event_id: kind_of(event) for event in events}
    found: list[Act] = []
    answered: set[str] = set()
    for event in events:
        if kinds[event.event_id] == "result":
            call = _call_of(event, by_id, kinds)
            if call is not None:
                answered.add(call.event_id)
            found.append(Act(_tool(event), call, event, is_failure(event)))
        elif kinds[event.event_id] == "happened" and is_failure(event):
            found.append(Act(event.event_type, None, event, True))
    for event in events:
        if kinds[event.event_id] == "call" and event.event_id not in answered:
            outcome = event if event.status in _ENDED else None
            found.append(Act(_tool(event), event, outcome, is_failure(event)))
    places = {event.event_id: place for place, event in enumerate(events)}
    return sorted(found, key=lambda act: (places[act.first.event_id], places[act.last.event_id]))


def _call_of(
    result: SourceEvent, by_id: Mapping[str, SourceEvent], kinds: Mapping[str, Kind]
) -> SourceEvent | None:
    for cause in result.causes:
        if cause.rule in _ANSWERS and kinds.get(cause.event_id) == "call":
            return by_id[cause.event_id]
    return None


def _tool(event: SourceEvent) -> str:
    """The tool's name; of a call of several, all of them."""
    tools = " and ".join(one.name for one in event.entities if one.role == "tool")
    return cut(event.tool_name or tools or event.speaker or event.event_type, NAME_CHARACTERS)


def troubles(events: Sequence[SourceEvent], done: Sequence[Act]) -> list[Trouble]:
    """Failures, each with the attempts that followed it and the one that went through.

    An act is another attempt at an earlier one when it is of the same name and its cause is what
    failed, or when the same agent acts on the same thing.

    Args:
        events: of the episode, sorted.
        done: its acts, by their first event.
    """
    found: list[Trouble] = []
    taken: set[int] = set()
    for place, act in enumerate(done):
        if not act.failed or place in taken:
            continue
        attempts = [act]
        solved_by = None
        for later in range(place + 1, len(done)):
            other = done[later]
            if later in taken or not any(_tries_again(one, other) for one in attempts):
                continue
            taken.add(later)
            if not other.failed:
                solved_by = other
                break
            attempts.append(other)
        if solved_by is None:
            solved_by = _resolution(events, attempts)
        found.append(Trouble(tuple(attempts), solved_by))
    return found


def _tries_again(failed: Act, other: Act) -> bool:
    if other.name != failed.name or other.outcome is None:
        return False
    caused_by = {cause.event_id for cause in other.first.causes}
    if not caused_by.isdisjoint(failed.event_ids):
        return True
    if other.call is None or failed.call is None or other.call.agent_id != failed.call.agent_id:
        return False
    before = {one.entity_id for one in things_of(failed.call)}
    return any(one.entity_id in before for one in things_of(other.call))


def _resolution(events: Sequence[SourceEvent], attempts: Sequence[Act]) -> Act | None:
    """An event whose type says that something was resolved, and whose cause is what failed."""
    failed = {event_id for act in attempts for event_id in act.event_ids}
    for event in events:
        causes = {cause.event_id for cause in event.causes}
        words = frozenset(_WORD.findall(event.event_type))
        if words & _RESOLVED and not is_failure(event) and causes & failed:
            return Act(event.event_type, None, event, False)
    return None


class Changed(NamedTuple):
    """An argument that two calls give differently."""

    name: str
    before: str
    after: str


def changed_arguments(before: SourceEvent, after: SourceEvent) -> list[Changed]:
    """What a second attempt was called with instead, in the order of the first's arguments.

    By the lines of the texts; of several lines with one name the first two that differ.
    """
    one, other = _arguments(before.text), _arguments(after.text)
    found = []
    for name, values in one.items():
        pairs = zip(values, other.get(name, ()), strict=False)
        different = next(((old, new) for old, new in pairs if old != new), None)
        if different is not None:
            found.append(Changed(name, *different))
    return found


def _arguments(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(": ")
        if colon and " " not in name:
            found.setdefault(name.rpartition(".")[2], []).append(value)
    return found


def ancestors(
    event: SourceEvent, by_id: Mapping[str, SourceEvent], stop: Iterable[str] = ()
) -> Iterator[SourceEvent]:
    """The causes of an event within an episode, and theirs, nearest first, each once.

    Args:
        event: where to begin; it is not among them.
        by_id: the events of the episode.
        stop: ids of events whose causes are not asked for, and which are left out.
    """
    seen = {event.event_id, *stop}
    level = [event]
    while level:
        above: list[SourceEvent] = []
        for one in level:
            for cause in one.causes:
                if cause.event_id in by_id and cause.event_id not in seen:
                    seen.add(cause.event_id)
                    above.append(by_id[cause.event_id])
        yield from above
        level = above
