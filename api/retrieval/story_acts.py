"""What was done to what: tool calls that succeeded, and events whose type says what happened. Pure.

"When was order 4711 charged?" asks for an act: its verb is in the name of a tool (`charge_card`) or
of a type (`order.charged`), its object in the arguments, in the result or in the rest of the name.
A tool that looks does nothing (`find_refund` refunds nothing), unless looking is what is asked for;
a call that failed did nothing either, and what was only tried is not known to be done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

import numpy

from api.retrieval.plan import Operator, Plan
from api.retrieval.story_roles import Roles
from api.retrieval.story_terms import StoryTerms
from enrichment.act_names import base, is_reader, of_tool, of_type, says_verb
from enrichment.stems import is_short_for, same_root, stem
from pipelines.columns.records import Array, Stories

OF_ACTS: Final = frozenset((Operator.TIME, Operator.ACTOR))
"""Operators that may ask about what was done."""
AROUND_ACTS: Final = frozenset((Operator.AFTER, Operator.BEFORE, Operator.CAUSE, Operator.SIMILAR))
"""Operators that may ask for what stands around it, or is like it."""
_COVERED: Final = 0.6
"""Share, by rarity, of the words for the object of an act that it must hold."""
_ALL: Final = 0.999
_ALIKE: Final = 0.05
REFUSING: Final = frozenset(map(stem, ("reject", "refuse", "deny", "decline", "block")))
"""Verbs of what somebody did where a tool is called so, and else of how something failed."""
_FIRST: Final = re.compile(r"(?<!\w)(?:first|initially|originally)(?!\w)", re.IGNORECASE)


class Acts(NamedTuple):
    """What answers to the verb and to the object of a question.

    Attributes:
        done: places of the acts that fit best, in order of time.
        not_done: there are none, and a call that fits failed, something that fits was only asked
            for, or nobody ever named the object.
        failed: places of what fits and failed.
        whole: they hold all that the question says of the object.
    """

    done: tuple[int, ...]
    not_done: bool
    failed: frozenset[int] = frozenset()
    whole: bool = False

    def meant(self, terms: StoryTerms) -> int | None:
        """Which of several is meant: the last, unless the first is asked for; None: there is none.

        Returns:
            Its index in `done`.
        """
        if not self.done:
            return None
        return 0 if asks_for_first(terms) else len(self.done) - 1


NONE: Final = Acts((), not_done=False)


class _Act(NamedTuple):
    place: int
    call: int
    verbs: frozenset[str]
    others: frozenset[str]
    failed: bool
    tried: bool


_WHETHER: Final = (
    *(" is ", " was ", " are ", " were ", " has ", " have ", " did ", " does "),
    *(" how is ", " how was ", " how are ", " how were "),
)


_WHICH_DID: Final = re.compile(r" (?:and )?(?:which|what) \w+(?: \w+)? (?:did|have|has|had) ")
"""What an act was done to is asked for, by its verb: "which flight did you book?"."""


def asks_for_first(terms: StoryTerms) -> bool:
    """Whether of several the first is meant, and not the last."""
    return _FIRST.search(terms.text) is not None


def is_around(plan: Plan, terms: StoryTerms) -> bool:
    """Whether a question may ask what stands around an act, or for the act itself."""
    may_ask = terms.text.startswith(_WHETHER) or _WHICH_DID.match(terms.text) is not None
    return (plan.operator is Operator.SEARCH and may_ask) or plan.operator in AROUND_ACTS


def acts_asked(stories: Stories, roles: Roles, terms: StoryTerms, plan: Plan) -> Acts:
    """The acts that a question asks about; none, where it names no verb of an act.

    Args:
        stories: that were found.
        roles: of their events.
        terms: of the question.
        plan: of it.
    """
    around = is_around(plan, terms)
    if not (around or plan.operator in OF_ACTS) or not terms.stems:
        return NONE
    stems = [base(one) for one in terms.stems]
    eligible = set(REFUSING if plan.failed is True else stems)
    if eligible.isdisjoint(stems):
        return NONE
    rarity = numpy.log1p(stories.total / numpy.maximum(stories.holding, 1))
    # "rolled back" is what `rollback` does
    phrasal = {one.first: one.stem for one in terms.joined if one.first == one.second}

    @cache  # hundreds of events are of a few tools and types
    def meant(verbs: frozenset[str], nouns: frozenset[str]) -> frozenset[int]:
        return frozenset(
            place
            for place, one in enumerate(stems)
            if one in eligible
            and (
                _is_verb(one, verbs, nouns if around else frozenset())
                or phrasal.get(place) in verbs
            )
        )

    def covering(
        acts: Iterable[tuple[_Act, frozenset[int]]],
        places_of: Callable[[_Act], list[int]],
        least: float,
    ) -> list[tuple[_Act, float]]:
        shares = (
            (act, _covered(stories, terms, act, places_of(act), verbs=verbs, rarity=rarity))
            for act, verbs in acts
        )
        return [(act, share) for act, share in shares if share >= least]

    def with_call(act: _Act) -> list[int]:
        return [act.place] if act.call < 0 else [act.place, act.call]

    def with_story(act: _Act) -> list[int]:
        return list(range(int(roles.starts[act.place]), act.place + 1))

    nouns = _nouns(terms) if plan.operator is Operator.TIME else {}
    acts = list(_acts(stories, roles, meant, nouns))
    fitting = covering(acts, with_call, _COVERED)
    if around:
        fitting = _called_by_it(terms, fitting)
    if not fitting:  # what it was done to may have been named before
        succeeded = [
            (act, verbs)
            for act, verbs in acts
            if not (act.tried or act.failed)
            # a noun that is like its verb may be called something else: who sends is a sender
            and any(says_verb(stems[place], act.verbs) for place in verbs)
        ]
        by_story = covering(succeeded, with_story, _ALL)
        fitting = by_story if len(by_story) == 1 else []
    unknown = any(_is_unknown(stories, terms, verbs) for verbs in {verbs for _, verbs in acts})
    return _fitting(stories, fitting, unknown=unknown)


def _nouns(terms: StoryTerms) -> dict[str, int]:
    """Places of the words by which an act is called, by stem: "the push of feat-9"."""
    return {
        terms.stems[place]: place
        for place, word in enumerate(terms.words)
        if f" the {word} of " in terms.text
    }


def _called_by_it(terms: StoryTerms, fitting: list[tuple[_Act, float]]) -> list[tuple[_Act, float]]:
    """Of the calls those of the tools whose names say most of what the question says.

    A record that `update_flights` returns has passengers, too; they are changed by
    `update_passengers`.
    """
    says = [
        sum(_names_it(act, one) for one in terms.stems) if act.call >= 0 else 0
        for act, _ in fitting
    ]
    most = max(says, default=0)
    return [one for one, said in zip(fitting, says, strict=True) if one[0].call < 0 or said == most]


def _fitting(stories: Stories, fitting: list[tuple[_Act, float]], *, unknown: bool) -> Acts:
    """The acts that fit best, unless what was only tried fits better, or nothing known does."""
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
        failed=frozenset(act.place for act, _ in fitting if act.failed),
        whole=most >= _ALL,
    )


def _acts(
    stories: Stories,
    roles: Roles,
    meant: Callable[[frozenset[str], frozenset[str]], frozenset[int]],
    nouns: Mapping[str, int],
) -> Iterator[tuple[_Act, frozenset[int]]]:
    """The acts whose verbs are meant, each with the places of these in the question."""
    tools = [of_tool(name) for name in stories.tools]
    types = [of_type(name) for name in stories.types]
    by_noun = [
        frozenset(
            place
            for noun, place in nouns.items()
            if not is_reader(name) and any(same_root(noun, word) for word in words)
        )
        for name, (_, words) in zip(stories.tools, tools, strict=True)
    ]
    by_tool = [
        meant(verbs, verbs) | called for (verbs, _), called in zip(tools, by_noun, strict=True)
    ]
    by_type = [
        (meant(verbs, verbs | others), meant(asked_for, asked_for | others) if asked_for else None)
        for verbs, others, asked_for in types
    ]
    tool_fits = numpy.array([*map(bool, by_tool), False])  # the last one is that of none
    type_fits = numpy.array([*(bool(done or tried) for done, tried in by_type), False])
    has_tool = stories.tool >= 0
    fits = has_tool & tool_fits[stories.tool] & (roles.worked | stories.failed)
    fits |= ~has_tool & type_fits[stories.type] & (roles.other | stories.failed)
    places = numpy.flatnonzero(fits).tolist()
    for place in places:
        tool, failed = int(stories.tool[place]), bool(stories.failed[place])
        if tool >= 0:
            call = int(roles.call_of[place])
            act = _Act(place, call, *tools[tool], failed=failed, tried=failed)
            yield act, by_tool[tool]
            continue
        verbs, others, asked_for = types[int(stories.type[place])]
        happened, tried = by_type[int(stories.type[place])]
        act = _Act(place, -1, verbs, others, failed=failed, tried=False)
        if happened:
            yield act, happened
        if tried:
            yield act._replace(verbs=asked_for, tried=True), tried


def _is_verb(word: str, verbs: frozenset[str], nouns: frozenset[str]) -> bool:
    """Whether a word says what an act does; a noun may, where what stands around it is asked."""
    return says_verb(word, verbs) or any(same_root(word, noun) for noun in nouns)


def _names_it(act: _Act, word: str) -> bool:
    """Whether an act is called by a word: what people shorten, a name may hold whole."""
    return word in act.others or any(is_short_for(word, one) for one in act.others)


def _covered(
    stories: Stories,
    terms: StoryTerms,
    act: _Act,
    places: list[int],
    *,
    verbs: frozenset[int],
    rarity: Array,
) -> float:
    """Share of the object that an act or some places hold; 0: they lack an identifier."""
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
        holds = bool(says[place]) or _names_it(act, terms.stems[place])
        if not holds and any(map(str.isdigit, terms.words[place])):
            return 0.0
        whole += float(rarity[place])
        covered += float(rarity[place]) * holds
    return covered / whole if whole else 1.0


def _is_unknown(stories: Stories, terms: StoryTerms, verbs: frozenset[int]) -> bool:
    """Whether there is an object, and nobody ever heard a word of it, or its number."""
    objects = [
        place
        for place in range(len(terms.stems))
        if place not in verbs and not terms.is_asking[place]
    ]
    heard = [is_heard_of(stories, place) for place in objects]
    numbers = [any(map(str.isdigit, terms.words[place])) for place in objects]
    unsaid = [number for number, held in zip(numbers, heard, strict=True) if not held]
    return bool(objects) and (any(unsaid) or not any(heard))


def is_heard_of(stories: Stories, place: int) -> bool:
    """Whether anybody ever said a word of the question, or is called by it."""
    return bool(stories.holding[place]) or bool(stories.labels[:, place].any())


def is_asked_for(event_type: str) -> bool:
    """Whether a type says that something is to be done, and not that it was."""
    return bool(of_type(event_type)[2])
