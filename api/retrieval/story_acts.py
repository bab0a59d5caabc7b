"""What was done to what: tool calls that succeeded, and events whose type says what happened. Pure.

"When was order 4711 charged?" asks for an act: its verb is in the name of a tool (`charge_card`) or
of a type (`order.charged`), its object in the arguments, in the result or in the rest of the name.
A tool that looks does nothing (`find_refund` refunds nothing), unless looking is what is asked for;
a call that failed did nothing either, and what was only tried is not known to be done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Final, NamedTuple

import numpy

from api.retrieval.plan import Operator, Plan
from api.retrieval.story_roles import Roles
from api.retrieval.story_terms import StoryTerms
from enrichment.stems import stem, stem_in, words_in
from enrichment.vocabulary import READ_VERBS, word_set
from pipelines.columns.records import Array, Stories

OF_ACTS: Final = frozenset((Operator.TIME, Operator.ACTOR))
"""Operators that may ask about what was done."""
_COVERED: Final = 0.6
"""Share, by rarity, of the words for the object of an act that it must hold."""
_ALIKE: Final = 0.05
_SEGMENT: Final = re.compile(r"[./:]+")
_DONE: Final = word_set("given granted made done completed received confirmed finished succeeded")
"""What becomes of a noun that is a verb itself: `approval.given` says that somebody approved."""
_ASKED_FOR: Final = word_set("requested asked needed required pending proposed suggested")
"""What is not done yet where it stands behind such a noun."""
_NOMINAL: Final = (5, 5)
"""Letters that a verb and its noun begin with, and how many more the noun may have."""
_PAST: Final = {
    stem(past): stem(verb)
    for past, verb in (
        *(("sent", "send"), ("paid", "pay"), ("built", "build"), ("bought", "buy")),
        *(("sold", "sell"), ("written", "write"), ("wrote", "write"), ("lent", "lend")),
        *(("lost", "lose"), ("chosen", "choose"), ("chose", "choose"), ("drawn", "draw")),
        *(("broken", "break"), ("driven", "drive"), ("held", "hold"), ("met", "meet")),
        *(("left", "leave"), ("begun", "begin"), ("began", "begin"), ("spent", "spend")),
        *(("withdrawn", "withdraw"), ("rebuilt", "rebuild"), ("resent", "resend")),
        *(("frozen", "freeze"), ("stolen", "steal"), ("fed", "feed"), ("taught", "teach")),
    )
}
"""Stems of verbs whose past has another one."""
_FIRST: Final = re.compile(r"(?<!\w)(?:first|initially|originally)(?!\w)", re.IGNORECASE)


class Acts(NamedTuple):
    """What answers to the verb and to the object of a question.

    Attributes:
        done: places of the acts that fit best, in order of time.
        not_done: there are none, and a call that fits failed, something that fits was only asked
            for, or nobody ever named the object.
    """

    done: tuple[int, ...]
    not_done: bool

    def meant(self, terms: StoryTerms) -> int | None:
        """Which of several is meant: the last, unless the first is asked for; None: there is none.

        Returns:
            Its index in `done`.
        """
        if not self.done:
            return None
        return 0 if _FIRST.search(terms.text) else len(self.done) - 1


NONE: Final = Acts((), not_done=False)


class _Act(NamedTuple):
    place: int
    call: int
    verbs: frozenset[str]
    others: frozenset[str]
    failed: bool
    tried: bool


def acts_asked(stories: Stories, roles: Roles, terms: StoryTerms, plan: Plan) -> Acts:
    """The acts that a question asks about; none, where it names no verb of an act.

    Args:
        stories: that were found.
        roles: of their events.
        terms: of the question.
        plan: of it.
    """
    if plan.operator not in OF_ACTS or plan.failed is True or not terms.stems:
        return NONE
    stems = [_PAST.get(one, one) for one in terms.stems]
    rarity = numpy.log1p(stories.total / numpy.maximum(stories.holding, 1))
    fitting: list[tuple[_Act, float]] = []
    unknown = False

    @cache  # hundreds of events are of a few tools and types
    def meant(verbs: frozenset[str]) -> frozenset[int]:
        return frozenset(place for place, one in enumerate(stems) if _is_verb(one, verbs))

    for act in _acts(stories, roles, meant):
        verbs = meant(act.verbs)
        unknown = unknown or _is_unknown(stories, terms, verbs)
        if (share := _covered(stories, terms, act, verbs=verbs, rarity=rarity)) >= _COVERED:
            fitting.append((act, share))
    done = [(act, share) for act, share in fitting if not act.tried]
    most = max((share for _, share in done), default=0.0)
    tried = max((share for act, share in fitting if act.tried), default=0.0)
    if tried > most + _ALIKE:
        return Acts((), not_done=True)
    if unknown and not done:
        return Acts((), not_done=True)
    best = [act for act, share in done if share >= most - _ALIKE]
    if not all(act.failed for act in best):
        best = [act for act in best if not act.failed]
    best.sort(key=lambda act: (int(stories.occurred_ms[act.place]), act.place))
    return Acts(
        done=tuple(act.place for act in best),
        not_done=False,
    )


def _acts(
    stories: Stories, roles: Roles, meant: Callable[[frozenset[str]], Collection[int]]
) -> Iterator[_Act]:
    """The acts whose verbs are meant."""
    tools = [_of_tool(name) for name in stories.tools]
    types = [_of_type(name) for name in stories.types]
    by_tool = numpy.array([*(bool(meant(verbs)) for verbs, _ in tools), False])
    of_type = (bool(meant(verbs) or meant(asked_for)) for verbs, _, asked_for in types)
    by_type = numpy.array([*of_type, False])  # the last one is that of none
    has_tool = stories.tool >= 0
    fits = has_tool & by_tool[stories.tool] & (roles.worked | stories.failed)
    fits |= ~has_tool & by_type[stories.type] & (roles.other | stories.failed)
    places = numpy.flatnonzero(fits).tolist()
    calls = calls_of(stories, roles) if places else []
    for place in places:
        tool, failed = int(stories.tool[place]), bool(stories.failed[place])
        if tool >= 0:
            yield _Act(place, calls[place], *tools[tool], failed=failed, tried=failed)
            continue
        verbs, others, asked_for = types[int(stories.type[place])]
        if meant(verbs):
            yield _Act(place, -1, verbs, others, failed=failed, tried=False)
        if meant(asked_for):
            yield _Act(place, -1, asked_for, others, failed=failed, tried=True)


def calls_of(stories: Stories, roles: Roles) -> list[int]:
    """Of each outcome of a tool the place of its call; -1: it has none."""
    calls = [-1] * len(stories.ids)
    last: dict[tuple[int, int], int] = {}
    tool, story = stories.tool.tolist(), stories.story.tolist()
    outcome = (roles.worked | stories.failed).tolist()
    is_call = (roles.call | roles.failed_call).tolist()
    for place in range(len(calls)):
        key = story[place], tool[place]
        if is_call[place]:
            last[key] = place
        elif outcome[place] and tool[place] >= 0:
            calls[place] = last.get(key, -1)
    return calls


def _of_tool(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Stems of the verb of a tool, and of its other words."""
    return frozenset((stem_in(first_word(name)),)), frozenset(
        map(stem_in, words_in(_apart(name).lower()))
    )


def _of_type(name: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Stems of the words of a type that say what happened, of the others, and what is asked for."""
    words = words_in(_apart(name).lower())
    verbs = {stem_in(word) for word in words[1:] or words}
    others = frozenset(map(stem_in, words[:-1]))
    nouns = frozenset(f"{stem_in(word)}-" for word in words[:-1])
    if words and words[-1] in _DONE:
        verbs |= nouns
    asked_for = nouns if words and words[-1] in _ASKED_FOR else frozenset()
    return frozenset(verbs), others, asked_for


def _apart(name: str) -> str:
    """A name in camel case with its words apart."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)


def _is_verb(word: str, verbs: frozenset[str]) -> bool:
    if word in verbs:
        return True
    least, more = _NOMINAL
    return len(word) >= least and any(
        verb.endswith("-") and verb.startswith(word) and len(verb) - 1 - len(word) <= more
        for verb in verbs
    )


def _covered(
    stories: Stories, terms: StoryTerms, act: _Act, *, verbs: frozenset[int], rarity: Array
) -> float:
    """Share of the object that an act holds; 0: it lacks an identifier."""
    places = [act.place] if act.call < 0 else [act.place, act.call]
    says = numpy.asarray(
        (stories.counts[places] > 0).any(axis=0) | stories.labels[places].any(axis=0)
    )
    held = stories.holds[places].any(axis=0)
    if not held.all():
        return 0.0
    objects = [place for place in range(len(terms.stems)) if place not in verbs]
    telling = [place for place in objects if not terms.is_asking[place]]
    whole = covered = 0.0
    for place in telling:
        holds = bool(says[place]) or terms.stems[place] in act.others
        if not holds and any(map(str.isdigit, terms.words[place])):
            return 0.0
        whole += float(rarity[place])
        covered += float(rarity[place]) * holds
    return covered / whole if whole else 1.0


def _is_unknown(stories: Stories, terms: StoryTerms, verbs: frozenset[int]) -> bool:
    """Whether there is an object, and nobody ever said a word of it."""
    objects = [
        place
        for place in range(len(terms.stems))
        if place not in verbs and not terms.is_asking[place]
    ]
    is_said = bool(stories.holding[objects].any()) or bool(stories.labels[:, objects].any())
    return bool(objects) and not is_said


def is_asked_for(event_type: str) -> bool:
    """Whether a type says that something is to be done, and not that it was."""
    return bool(_of_type(event_type)[2])


def first_word(tool: str) -> str:
    """The word of a tool's name that says what it does; empty: it has none."""
    words = words_in(_SEGMENT.split(_apart(tool))[-1].lower())
    return words[0] if words else ""


def is_reader(tool: str) -> bool:
    """Whether a tool only looks, by its name."""
    return first_word(tool) in READ_VERBS
