"""Habits: what several sessions of a user do alike. Rules, no model; `traits` says what for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from math import comb
from typing import Final, NamedTuple

from consolidation.actions import actions, is_by_user
from consolidation.payloads import LEAST_SESSIONS
from consolidation.sources import SourceEvent
from enrichment.event_kinds import EventKind, type_words
from enrichment.grounded import is_protected, of_protected_tool
from enrichment.patterns import identifiers
from enrichment.persons import USER_ROLES

PERSON: Final = "person"
"""Subtype of whom a user speaks of."""
MOST_STEPS: Final = 5
"""Tools of a sequence, of which there are two at least."""
LEAST_BEGUN: Final = 5
"""Days, or parts of days, on which sessions begin, before anything is said of when they do."""
BY_CHANCE: Final = 0.01
"""How likely it may be that sessions which begin at any time look as if they had a habit."""
WORKING_DAYS: Final = 5
"""Of a week, and"""
WAKING_PARTS: Final = 2
"""of a day, among which it is a chance: nobody comes at night, and many never on Sundays."""
USUAL: Final = 0.6
"""Of the sessions, or of those that use the first tool of a sequence: so many, or it is no habit.
Of tools that come in any order, each pair follows in some sessions."""
THEN: Final = ", then "
"""Between the tools of a sequence, in its name."""
_HOURS: Final = 6
"""Of a part of a day."""
_DAYS: Final = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")


class Sight(NamedTuple):
    """A session that shows something, and the events by which."""

    at_ms: int
    event_ids: tuple[str, ...]
    session_id: str


Session = Sequence[SourceEvent]
"""A user's own events of one session, sorted, at least one."""


class Recurring(NamedTuple):
    """What sessions show.

    Attributes:
        what: tells it from all others of its kind.
        name: in words.
        shown: the sessions that show it.
        strength: the share of the sessions that could show it, above 0.
    """

    what: str
    name: str
    shown: Sequence[Sight]
    strength: float


# -- habits ----------------------------------------------------------------------------------------


def sequences(sessions: Sequence[Session]) -> Iterator[Recurring]:
    """Tools that follow each other, in several sessions.

    A part of a longer sequence is told, too, if enough sessions have the part alone.
    """
    used: dict[str, set[int]] = {}
    shown: dict[tuple[str, ...], dict[int, Sight]] = {}
    for number, events in enumerate(sessions):
        for steps, event_ids in _runs(events):
            used.setdefault(steps[0], set()).add(number)
            if len(set(steps)) > 1:
                sight = Sight(events[0].occurred_at_ms, event_ids, events[0].session_id)
                shown.setdefault(steps, {}).setdefault(number, sight)
    often = {
        steps: where
        for steps, where in shown.items()
        if len(where) >= LEAST_SESSIONS and len(where) >= USUAL * len(used[steps[0]])
    }
    for steps, where in often.items():
        without = (
            len(where.keys() - longer_where.keys())
            for longer, longer_where in often.items()
            if _is_part(steps, longer)
        )
        if all(left >= LEAST_SESSIONS for left in without):
            name = THEN.join(steps)
            share = len(where) / len(used[steps[0]])
            yield Recurring(f"sequence {name}", name, list(where.values()), share)


def _runs(events: Session) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Stretches of the tools that were used, and the events that say so; tried again is once."""
    done = (use for use in actions(events) if use.tool and not of_protected_tool(use.name))
    uses = [next(same) for _, same in groupby(done, key=lambda use: use.name)]
    for length in range(1, MOST_STEPS + 1):
        for start in range(len(uses) - length + 1):
            part = uses[start : start + length]
            yield (
                tuple(use.name for use in part),
                tuple(dict.fromkeys(use.last.event_id for use in part)),
            )


def _is_part(steps: tuple[str, ...], longer: tuple[str, ...]) -> bool:
    starts = range(len(longer) - len(steps) + 1)
    return len(steps) < len(longer) and any(
        longer[start : start + len(steps)] == steps for start in starts
    )


def beginnings(sessions: Sequence[Session]) -> Iterator[Recurring]:
    """When sessions begin: on a day of the week, in a part of the day (UTC).

    Several on one day are one occasion: they are one visit, or were imported together.
    """
    days: dict[tuple[str, int], tuple[int, Sight]] = {}
    parts: dict[tuple[str, int], tuple[int, Sight]] = {}
    for events in sessions:
        first = events[0]
        at = datetime.fromtimestamp(first.occurred_at_ms / 1000, UTC)
        sight = Sight(first.occurred_at_ms, (first.event_id,), first.session_id)
        date, part = at.date().isoformat(), at.hour // _HOURS
        days.setdefault((date, 0), (at.weekday(), sight))
        parts.setdefault((date, part), (part, sight))
    yield from _habits(days.values(), [f"on {day}" for day in _DAYS], WORKING_DAYS)
    hours = [(hour, hour + _HOURS) for hour in range(0, 24, _HOURS)]
    names = [f"between {a:02}:00 and {b:02}:00 UTC" for a, b in hours]
    yield from _habits(parts.values(), names, WAKING_PARTS)


def _habits(
    begun: Iterable[tuple[int, Sight]], names: Sequence[str], places: int
) -> Iterator[Recurring]:
    by_place: dict[int, list[Sight]] = {}
    for place, sight in begun:
        by_place.setdefault(place, []).append(sight)
    total = sum(map(len, by_place.values()))
    for place, shown in by_place.items():
        share = len(shown) / total
        enough = len(shown) >= LEAST_SESSIONS and total >= LEAST_BEGUN and share >= USUAL
        if enough and by_chance(len(shown), total, places) <= BY_CHANCE:
            yield Recurring(f"begins {names[place]}", f"comes {names[place]}", shown, share)


def by_chance(times: int, total: int, places: int) -> float:
    """How likely it is that one of several equal places has so many of all, or more.

    At most: the places are counted as if they had nothing to do with each other.
    """
    tail = sum(
        comb(total, number) * (places - 1) ** (total - number) for number in range(times, total + 1)
    )
    return min(1.0, float(places * tail / places**total))


def is_own(event: SourceEvent) -> bool:
    """Whether it is the user who speaks, and no agent to them."""
    if event.kind is not EventKind.MESSAGE:
        return False
    return is_by_user(event) or not type_words(event.event_type).isdisjoint(USER_ROLES)


# -- choices ---------------------------------------------------------------------------------------

MOST_LETTERS: Final = 40
"""Of a value that is chosen."""
_FIELD: Final = re.compile(r"^(?P<path>[\w.]+): (?P<value>\S.*)$", re.MULTILINE)


def choices(sessions: Sequence[Session]) -> Iterator[Recurring]:
    """What is chosen again and again: values of arguments of calls that worked.

    A value is chosen where the user named it before, or where it is one of several that a tool
    offered under the same key; any other may be the agent's.
    """
    decided: dict[str, set[int]] = {}
    shown: dict[tuple[str, str], dict[int, Sight]] = {}
    for number, events in enumerate(sessions):
        for key, value, event in _chosen(events):
            decided.setdefault(key, set()).add(number)
            if value is not None:
                sight = Sight(events[0].occurred_at_ms, (event.event_id,), event.session_id)
                shown.setdefault((key, value), {})[number] = sight
    for (key, value), where in shown.items():
        share = len(where) / len(decided[key])
        if len(where) >= LEAST_SESSIONS and share >= USUAL:
            name = f"chooses {key.replace('_', ' ')}: {value}"
            yield Recurring(f"choice {key} {value.casefold()}", name, list(where.values()), share)


def _chosen(events: Session) -> Iterator[tuple[str, str | None, SourceEvent]]:
    """Keys of arguments, their values if they were chosen, and the calls; in their order."""
    uses = {use.call.event_id: use for use in actions(events) if use.call and use.tool}
    words, offered = "", dict[str, set[str]]()
    names = {event.agent_id.casefold() for event in events if is_own(event)}
    things = (thing for event in events for thing in event.entities)
    names |= {thing.name.casefold() for thing in things if thing.subtype == PERSON}
    for event in events:
        if is_own(event):
            words = f"{words}\n{event.text.casefold()}"
        elif event.kind is EventKind.RESULT:
            for key, value in _fields(event):
                offered.setdefault(key, set()).add(value)
        elif event.event_id in uses and not uses[event.event_id].failed:
            for key, value in _fields(event):
                offers = offered.get(key, set())
                is_chosen = _says(words, value) or (value in offers and len(offers) > 1)
                is_chosen = is_chosen and value.casefold() not in names
                yield key, value if is_chosen and _may_be_chosen(key, value) else None, event


def _fields(event: SourceEvent) -> Iterator[tuple[str, str]]:
    """The last name of each field that a text tells, and its value."""
    for field in _FIELD.finditer(event.text):
        yield field["path"].rpartition(".")[2], field["value"].strip()


def _says(words: str, value: str) -> bool:
    named = re.escape(value.casefold())
    return re.search(rf"(?<!\w){named}(?!\w)", words) is not None


def _may_be_chosen(key: str, value: str) -> bool:
    is_word = len(value) <= MOST_LETTERS and re.search(r"[^\W\d_]{2}", value) is not None
    told = f"{key.replace('_', ' ')} {value}"
    return is_word and not identifiers(value) and not is_protected(told)
