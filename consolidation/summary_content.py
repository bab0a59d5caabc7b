"""What every summary holds, and how it is put into words.

Counts and shares of several gists add up, so that a level is made from the one below alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from consolidation.episode_acts import NAME_CHARACTERS
from consolidation.highlights import Highlight, by_time, listed
from enrichment.text import cut
from projections.events import timestamp_text

MAX_PARTICIPANTS: Final = 12
MAX_TOOLS: Final = 10
MAX_ENTITIES: Final = 16

_TOLD_NAMES = 4
_TOLD_TOOLS = 6
_TOLD_ENTITIES = 6
_TOLD_FAILING = 2
_NAME_CHARACTERS = 60
"""Of a name in a sentence; ids may have hundreds."""


class Participant(NamedTuple):
    """An agent that takes part.

    Attributes:
        agent_id: as events carry it.
        name: by which it is known: of the user who speaks through it, else the agent's own; short,
            for display.
        events: of it, all of them.
        messages: that it said.
        calls: of tools that it made.
    """

    agent_id: str
    name: str
    events: int = 0
    messages: int = 0
    calls: int = 0


class ToolUse(NamedTuple):
    """How often a tool was used, and how often that failed."""

    name: str
    calls: int = 0
    failed: int = 0


class KeyEntity(NamedTuple):
    """Something that the events are about, or a user.

    Attributes:
        entity_id: of the canonical one of its sameness component.
        name: for display.
        entity_type: user, service, resource or concept.
        weight: ten times the importance of the events that mention it, less when it is mentioned
            everywhere.
    """

    entity_id: str
    name: str
    entity_type: str
    weight: int = 0


class Gist(NamedTuple):
    """What every summary holds.

    Attributes:
        content: a line on who, with what and about what, then a line for each highlight.
        highlights: best first.
        participants: most active first, at most MAX_PARTICIPANTS.
        tools: most used first, at most MAX_TOOLS.
        entities: heaviest first, at most MAX_ENTITIES.
        event_count: of its events.
        importance_total: of their importance.
        failed_count: of failures: uses of tools, and other events that tell of one.
        started_at_ms: of the first event.
        ended_at_ms: of the last event.
    """

    content: str
    highlights: tuple[Highlight, ...]
    participants: tuple[Participant, ...]
    tools: tuple[ToolUse, ...]
    entities: tuple[KeyEntity, ...]
    event_count: int
    importance_total: int
    failed_count: int
    started_at_ms: int
    ended_at_ms: int


def participants(found: Iterable[Participant]) -> tuple[Participant, ...]:
    """One for each agent, their counts added up, under the name that it has most often."""
    merged: dict[str, Participant] = {}
    names: dict[str, dict[str, int]] = {}
    for one in found:
        known = merged.get(one.agent_id, Participant(one.agent_id, one.name))
        merged[one.agent_id] = known._replace(
            events=known.events + one.events,
            messages=known.messages + one.messages,
            calls=known.calls + one.calls,
        )
        counts = names.setdefault(one.agent_id, {})
        counts[one.name] = counts.get(one.name, 0) + one.events
    named = [
        one._replace(name=_short(min(counts, key=lambda name: (-counts[name], name))))
        for agent_id, one in merged.items()
        if (counts := names[agent_id])
    ]
    named.sort(key=lambda one: (-(one.messages + one.calls), -one.events, one.agent_id))
    return tuple(named[:MAX_PARTICIPANTS])


def tool_uses(found: Iterable[ToolUse]) -> tuple[ToolUse, ...]:
    """One for each tool, the counts added up; of equals the one that was used first."""
    merged: dict[str, ToolUse] = {}
    for one in found:
        known = merged.get(one.name, ToolUse(one.name))
        merged[one.name] = ToolUse(one.name, known.calls + one.calls, known.failed + one.failed)
    return tuple(sorted(merged.values(), key=lambda one: -one.calls)[:MAX_TOOLS])


def key_entities(found: Iterable[KeyEntity]) -> tuple[KeyEntity, ...]:
    """One for each entity, the weights added up; of two with one name only the heavier."""
    merged: dict[str, KeyEntity] = {}
    for one in found:
        known = merged.get(one.entity_id, one._replace(weight=0))
        merged[one.entity_id] = known._replace(weight=known.weight + one.weight)
    ranked = sorted(merged.values(), key=lambda one: (-one.weight, one.name, one.entity_id))
    named: dict[str, KeyEntity] = {}
    for one in ranked:
        named.setdefault(one.name.casefold(), one._replace(name=cut(one.name, NAME_CHARACTERS)))
    return tuple(named.values())[:MAX_ENTITIES]


# -- in words --------------------------------------------------------------------------------------


def worded(gist: Gist, opening: str, characters: int) -> Gist:
    """The gist with its content: the opening, who and what it is about, the highlights by time.

    As many as there is room for, the best before the others.
    """
    lines = [_who_and_what(gist, opening)]
    dated = _day(gist.started_at_ms) != _day(gist.ended_at_ms)
    left = characters - len(lines[0])
    kept: dict[Highlight, str] = {}
    for one in gist.highlights:
        line = f"{_day(one.occurred_at_ms)} {one.text}" if dated else one.text
        if len(line) < left:
            kept[one] = line
            left -= len(line) + 1
    lines += [kept[one] for one in by_time(kept)]
    return gist._replace(content=cut("\n".join(lines), characters))


def days(gist: Gist) -> str:
    """The day of the events, or the first and the last."""
    first, last = _day(gist.started_at_ms), _day(gist.ended_at_ms)
    return first if first == last else f"{first} to {last}"


def _day(ms: int) -> str:
    return timestamp_text(ms)[:10]


def _who_and_what(gist: Gist, opening: str) -> str:
    acting = [one.name for one in gist.participants if one.calls]
    speaking = [one.name for one in gist.participants if one.messages and not one.calls]
    users = [one.name for one in gist.entities if one.entity_type == "user"]
    tools = [one.name for one in gist.tools]
    if acting:
        served = users or speaking
        whom = f", for {_some(served, _TOLD_NAMES)}," if served else ""
        line = f"{_some(acting, _TOLD_NAMES)}{whom} used {_some(tools, _TOLD_TOOLS, 'tools')}"
    elif len(speaking) > 1:
        line = f"{_some(speaking, _TOLD_NAMES)} talked"
    elif speaking:
        line = f"{speaking[0]} spoke"
    else:
        names = [one.name for one in gist.participants]
        many = f"{gist.event_count:,} event{'s' if gist.event_count > 1 else ''}"
        line = f"{_some(names, _TOLD_NAMES)}, {many}"
        if tools:
            line += f", with {_some(tools, _TOLD_TOOLS, 'tools')}"
    people = [_plain(one) for one in (*acting, *speaking, *users)]
    things = [
        one.name
        for one in gist.entities
        if not any(person.startswith(_plain(one.name)) for person in people)
    ]
    if things:
        line += f"; about {listed([_short(name) for name in things[:_TOLD_ENTITIES]])}"
    worst = sorted(gist.tools, key=lambda one: -one.failed)[:_TOLD_FAILING]
    failing = [
        f"{_short(one.name)} {one.failed:,} of {one.calls:,} times"
        for one in worst
        if one.failed > 1
    ]
    if failing:
        line += f"; failed: {listed(failing)}"
    return f"{opening}: {line}."


def _plain(name: str) -> str:
    """A name as it is compared: `Mel` begins `Melanie`, `Omar Davis` begins `omar_davis_3817`."""
    return name.casefold().replace("_", " ")


def _some(names: Sequence[str], count: int, what: str = "") -> str:
    """As many names as are told, and how many others there are."""
    if len(names) <= count:
        return listed([_short(name) for name in names])
    left = len(names) - count + 1
    others = f"{left} other {what}" if what else f"{left} others"
    return listed([*(_short(name) for name in names[: count - 1]), others])


def _short(name: str) -> str:
    return cut(" ".join(name.split()), _NAME_CHARACTERS)
