"""What is derived of a user from several sessions: habits, skills and interests. Rules, no model.

Nothing is said of fewer than LEAST_SESSIONS sessions, nothing without the events that show it, and
nothing of what a person is (see `is_protected`). It is a function of the sessions alone: how long
something holds unless it is seen again follows from when it was seen, so time decides nothing anew.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import log2
from typing import Final, NamedTuple

from consolidation.actions import actions, things_of
from consolidation.decay import DAY_MS
from consolidation.habits import (
    PERSON,
    USUAL,
    Recurring,
    Session,
    Sight,
    beginnings,
    choices,
    is_own,
    sequences,
)
from consolidation.payloads import (
    LEAST_SESSIONS,
    MAX_NAME_CHARACTERS,
    MAX_PROVING,
    Trait,
    TraitKind,
)
from consolidation.sources import Mentioned
from consolidation.summary_payloads import SUMMARY_DIGEST_BYTES, summary_id
from enrichment.act_names import objects_of
from enrichment.grounded import is_protected, of_protected_tool
from enrichment.patterns import identifiers
from enrichment.stems import stem_in
from enrichment.vocabulary import cut
from projections.identity import SEPARATOR

MOST_SESSIONS: Final = 50
"""The newest ones of a user, from which all is derived."""
HALF_LIVES_MS: Final[Mapping[TraitKind, int]] = {
    "pattern": 90 * DAY_MS,
    "skill": 90 * DAY_MS,
    "interest": 30 * DAY_MS,
}
MOST_HALF_LIVES: Final = 2
"""That something holds at most without being seen, however often it was seen before."""
MOST_OF_A_KIND: Final[Mapping[TraitKind, int]] = {"pattern": 5, "skill": 5, "interest": 10}
CARRIED_THROUGH: Final = 0.75
"""Of the sessions that use a tool: so many end its use with success, or it is no skill."""
WITH: Final = " + "
"""Between tools that are used together."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_NOT_OF_INTEREST: Final = frozenset((PERSON, "group"))
"""Subtypes: whom a user speaks of, and the peoples, faiths and parties that somebody belongs to."""
_INTERESTING: Final = frozenset(("concept", "service"))
"""Types of entities; resources are files, orders and the like."""


def traits_of(
    tenant: str,
    user_id: str,
    sessions: Iterable[Session],
    liked: Mapping[str, str] | None = None,
) -> list[Trait]:
    """What the sessions of a user have in common.

    Args:
        tenant: whose memory.
        user_id: whose sessions.
        sessions: in any order; the newest MOST_SESSIONS count.
        liked: what the user said to like, by id; None: nothing. It is of interest if the user's
            words name it, though it be a plain noun and so no entity that they mention.

    Returns:
        At most MOST_OF_A_KIND of each kind, what most sessions show first.
    """
    newest = sorted(sessions, key=lambda events: (events[0].occurred_at_ms, events[0].event_id))
    newest = newest[-MOST_SESSIONS:]
    if len(newest) < LEAST_SESSIONS:
        return []
    whose = tenant, user_id
    patterns = (*sequences(newest), *choices(newest), *beginnings(newest))
    return [
        *_strongest(_trait(whose, "pattern", pattern) for pattern in patterns),
        *_skills(whose, newest),
        *_strongest(
            _trait(whose, "interest", interest) for interest in _interests(newest, liked or {})
        ),
    ]


def remembered(before: Trait, now: Trait | None, retained: Collection[str]) -> Trait | None:
    """What is said of a trait after some of its proofs were forgotten: no less than before.

    Args:
        before: what was said.
        now: what the retained events say; None: nothing.
        retained: ids of the retained events.
    """
    if all(own_id in retained for own_id in before.event_ids):
        return now
    if now is None:
        return before
    return replace(
        now,
        session_count=max(before.session_count, now.session_count),
        first_seen_ms=min(before.first_seen_ms, now.first_seen_ms),
        holds_until_ms=max(before.holds_until_ms, now.holds_until_ms),
    )


def _strongest(traits: Iterable[Trait]) -> list[Trait]:
    ranked = sorted(
        traits,
        key=lambda trait: (-trait.session_count, -trait.strength, trait.name, trait.trait_id),
    )
    return ranked[: MOST_OF_A_KIND[ranked[0].kind]] if ranked else []


def _trait(whose: tuple[str, str], kind: TraitKind, recurring: Recurring) -> Trait:
    tenant, user_id = whose
    shown = sorted(recurring.shown, reverse=True)
    times = [one.at_ms for one in shown]
    of_each = max(1, MAX_PROVING // len(shown))
    proving = dict.fromkeys(own_id for one in shown for own_id in one.event_ids[:of_each])
    sessions = dict.fromkeys(one.session_id for one in shown)
    told = (summary_id(tenant, "session", session_id, (user_id,)) for session_id in sessions)
    text = SEPARATOR.join(("trait", tenant, kind, recurring.what, user_id))
    return Trait(
        trait_id=blake2b(text.encode(), digest_size=SUMMARY_DIGEST_BYTES).hexdigest(),
        kind=kind,
        name=cut(recurring.name, MAX_NAME_CHARACTERS),
        strength=max(round(recurring.strength, 4), 0.0001),
        session_count=len(shown),
        first_seen_ms=times[-1],
        last_seen_ms=times[0],
        holds_until_ms=holds_until_ms(times, HALF_LIVES_MS[kind]),
        event_ids=tuple(proving)[:MAX_PROVING],
        summary_ids=tuple(told)[:MAX_PROVING],
    )


def holds_until_ms(times: Sequence[int], half_life_ms: int) -> int:
    """When what was seen at these times has faded to less than one sighting that is fresh.

    Args:
        times: milliseconds since the epoch, at least one.
        half_life_ms: in which a sighting counts half.
    """
    last = max(times)
    weight = sum(0.5 ** ((last - at_ms) / half_life_ms) for at_ms in times)
    return last + round(half_life_ms * min(log2(weight), MOST_HALF_LIVES))


# -- skills ----------------------------------------------------------------------------------------


class _Skill(NamedTuple):
    """What is carried through: one tool, or several that belong together.

    Attributes:
        tools: of which it is.
        tried: numbers of the sessions that use any of them.
        through: by number, the sessions that end such a use with success.
    """

    tools: tuple[str, ...]
    tried: frozenset[int]
    through: Mapping[int, Sight]

    def recurring(self, what: str, name: str) -> Recurring:
        share = len(self.through) / len(self.tried)
        return Recurring(what, name, list(self.through.values()), share)


def _skills(whose: tuple[str, str], sessions: Sequence[Session]) -> list[Trait]:
    """Tools whose use ends well in most of the sessions that have any, and their parents."""
    skills = {
        _trait(whose, "skill", one.recurring(one.tools[0], one.tools[0])): one
        for one in _carried_through(sessions)
    }
    told = {trait: skills[trait] for trait in _strongest(skills)}
    parents: dict[str, Trait] = {}
    for what, name, parent in _parents(list(told.values())):
        whole = _trait(whose, "skill", parent.recurring(what, name))
        parents |= dict.fromkeys(parent.tools, whole)
    return [
        *dict.fromkeys(parents.values()),
        *(
            replace(trait, parent_id=parents[one.tools[0]].trait_id)
            if one.tools[0] in parents
            else trait
            for trait, one in told.items()
        ),
    ]


def _carried_through(sessions: Sequence[Session]) -> Iterator[_Skill]:
    tried: dict[str, set[int]] = {}
    through: dict[str, dict[int, Sight]] = {}
    for number, events in enumerate(sessions):
        last = {use.name: use for use in actions(events) if use.tool and use.outcome}
        for name, use in last.items():
            if of_protected_tool(name):
                continue
            tried.setdefault(name, set()).add(number)
            if not use.failed:
                sight = Sight(events[0].occurred_at_ms, (use.last.event_id,), use.last.session_id)
                through.setdefault(name, {})[number] = sight
    for name, shown in through.items():
        if len(shown) >= LEAST_SESSIONS and len(shown) >= CARRIED_THROUGH * len(tried[name]):
            yield _Skill((name,), frozenset(tried[name]), shown)


def _parents(skills: Sequence[_Skill]) -> Iterator[tuple[str, str, _Skill]]:
    """What at least two skills are parts of: what it is, its name, and all of it.

    What tools are called after, the word of most tools first; those that are called after nothing
    in common, by being used together.
    """
    left = sorted(skills)
    while named := _most_shared(left):
        name, parts = named
        left = [one for one in left if one not in parts]
        yield f"parent {stem_in(name)}", name, _joined(parts)
    while left:
        together = [left.pop(0)]
        for part in together:  # grows meanwhile
            more = [one for one in left if _are_used_together(part, one)]
            left = [one for one in left if one not in more]
            together += more
        if len(together) > 1:
            parent = _joined(sorted(together))
            yield f"parent {WITH.join(parent.tools)}", WITH.join(parent.tools), parent


def _most_shared(skills: Sequence[_Skill]) -> tuple[str, list[_Skill]] | None:
    """The word that most tools are called after, as most of them have it, and these."""
    by_stem: dict[str, list[tuple[str, _Skill]]] = {}
    for skill in skills:
        for word in objects_of(skill.tools[0]):
            by_stem.setdefault(stem_in(word), []).append((word, skill))
    shared = [words for words in by_stem.values() if len({one.tools for _, one in words}) > 1]
    if not shared:
        return None
    most = max(shared, key=lambda words: (len(words), sorted(word for word, _ in words)))
    words = sorted(word for word, _ in most)
    return max(words, key=words.count), list({one.tools: one for _, one in most}.values())


def _are_used_together(skill: _Skill, other: _Skill) -> bool:
    both = skill.through.keys() & other.through.keys()
    return len(both) >= LEAST_SESSIONS and len(both) >= USUAL * len(skill.tried | other.tried)


def _joined(skills: Sequence[_Skill]) -> _Skill:
    through: dict[int, Sight] = {}
    for skill in skills:
        for number, sight in skill.through.items():
            before = through.get(number, sight)
            ids = dict.fromkeys((*before.event_ids, *sight.event_ids))
            through[number] = sight._replace(event_ids=tuple(ids))
    tools = tuple(tool for one in skills for tool in one.tools)
    return _Skill(tools, frozenset().union(*(one.tried for one in skills)), through)


# -- interests -------------------------------------------------------------------------------------


def _interests(sessions: Sequence[Session], liked: Mapping[str, str]) -> Iterator[Recurring]:
    """What the user's own words name, in several sessions."""
    liked = {one: name for one, name in liked.items() if not is_protected(name)}
    shown: dict[str, dict[int, Sight]] = {}
    names: dict[str, str] = {}
    words = [[event for event in events if is_own(event)] for events in sessions]
    own_names = {word for events in words for event in events for word in _words(event.agent_id)}
    own_names |= {
        word
        for events in sessions
        for event in events
        for thing in event.entities
        if thing.subtype == PERSON or _is_somebody(thing.name, event.text)
        for word in _words(thing.name)
    }  # whom another sentence takes for a thing
    for number, events in enumerate(words):
        for event in events:
            if is_protected(event.text):
                continue
            things = {
                thing.entity_id: thing.name
                for thing in things_of(event)
                if _may_interest(thing) and _names(event.text, thing.name) is not False
            }
            things |= {one: name for one, name in liked.items() if _names(event.text, name)}
            for own_id, name in things.items():
                if not own_names.issuperset(_words(name)):
                    sight = Sight(event.occurred_at_ms, (event.event_id,), event.session_id)
                    shown.setdefault(own_id, {}).setdefault(number, sight)
                    names[own_id] = name
    for own_id, where in shown.items():
        if len(where) >= LEAST_SESSIONS:
            strength = len(where) / len(sessions)
            yield Recurring(own_id, names[own_id], list(where.values()), strength)


def _words(name: str) -> list[str]:
    return _WORD.findall(name.casefold())


_BESIDE: Final = re.compile(r"\[[^\]]*\]")
"""What stands beside somebody's words: that a picture or a file comes with them, and what of."""
_MINDS: Final = "(?:loves|likes|wants|says|said|thinks|knows|feels|hopes|told|asked|agreed)"


def _names(text: str, name: str) -> bool | None:
    """Whether somebody's own words name a thing, and not only whose another thing is.

    None: they are told elsewhere, or name it in another form.
    """
    parts = r"\W+".join(map(re.escape, name.split()))
    named = re.compile(rf"(?<!\w){parts}(?:e?s)?(?!\w)(?P<whose>['\u2019]s)?", re.IGNORECASE)
    places = [match["whose"] is None for match in named.finditer(_BESIDE.sub(" ", text))]
    if places:
        return any(places)
    return None if named.search(text) is None else False


def _is_somebody(name: str, text: str) -> bool:
    """Whether a text speaks of a name as one does of a person."""
    if not name[:1].isupper():
        return False
    who = re.escape(name)
    pattern = (
        rf"(?<!\w)(?:{who} (?:and I\b|{_MINDS}\b)|(?:I|me|[Ss]?[Hh]e is) (?:and )?{who}(?!\w))"
    )
    return re.search(pattern, text) is not None


def _may_interest(thing: Mentioned) -> bool:
    return (
        thing.entity_type in _INTERESTING
        and thing.subtype not in _NOT_OF_INTEREST
        and not identifiers(thing.name)
        and not is_protected(thing.name)
    )
