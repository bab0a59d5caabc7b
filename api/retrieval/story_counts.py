"""Which events a question counts: those of the kind of the best one, and about the same. Pure."""

from __future__ import annotations

from typing import Final

import numpy

from api.retrieval.plan import Operator, Plan
from api.retrieval.story_features import Features
from api.retrieval.story_terms import StoryTerms
from enrichment.stems import stems_of
from pipelines.columns.records import Array, Stories

_ALIKE: Final = 0.75
"""Share, by rarity, of the words of the best event that another one of the same kind holds."""
_ALIKE_ATTEMPT: Final = 0.8
"""Likewise of the words that are said by its tool in its story, or, without a tool, by others."""


def counted(
    stories: Stories,
    features: Features,
    terms: StoryTerms,
    *,
    plan: Plan,
    best: int,
    speaks: bool,
) -> Array:
    """Places of the events that a question counts, in order of time; of users the first of each.

    Args:
        stories: that were found.
        features: of their events.
        terms: of the question.
        plan: of it: how often, or to which users.
        best: place of the event that answers it best.
        speaks: it asks about what somebody said.
    """
    is_of_failure = plan.operator is Operator.USERS or plan.failed
    if is_of_failure and not speaks:
        best = failed_at(stories, features, best)
    if not stories.failed[best]:
        best = _broken_at(stories, features, terms, best)
    evidence = alike(stories, features, terms, best)
    return _first_of_each(stories, evidence) if plan.operator is Operator.USERS else evidence


def alike(stories: Stories, features: Features, terms: StoryTerms, best: int) -> Array:
    """Places of the events of the kind of the best one and about the same, in order of time."""
    same = features.within & (stories.failed == stories.failed[best])
    if not stories.failed[best]:
        same &= stories.kind == stories.kind[best]
    holds = stories.counts > 0
    if stories.tool[best] >= 0 and _is_told_by_tool(stories, terms, best):
        same &= stories.tool == stories.tool[best]
    if stories.marks[best]:  # it says how it failed, as the question does
        same &= stories.marks > 0
    rarity = numpy.log1p(stories.total / numpy.maximum(stories.holding, 1))
    same &= _holds_alike(holds, rarity, best, _ALIKE)
    # people tell of the same failure in other words: the call with its outcomes tells what it was
    attempts = stories.story.astype(numpy.int64) * (len(stories.tools) + 1) + stories.tool
    _, attempt = numpy.unique(attempts, return_inverse=True)
    told = numpy.zeros((int(attempt.max()) + 1, holds.shape[1]), dtype=bool)
    numpy.logical_or.at(told, attempt, holds)
    same &= _holds_alike(told, rarity, int(attempt[best]), _ALIKE_ATTEMPT)[attempt]
    if terms.identifiers and stories.holds[best].any():
        same &= features.column("story_identifiers") > 0
    within = features.column("within")
    same &= within >= 0
    places = numpy.flatnonzero(same)
    return numpy.asarray(places[numpy.argsort(stories.occurred_ms[places], kind="stable")])


def _is_told_by_tool(stories: Stories, terms: StoryTerms, best: int) -> bool:
    """Whether its tool says what sort of event one is, and not the words of the question alone.

    A failure that says a few of them does not: `{"code": ...}` holds "the login code got lost" no
    more than any other that has a code.
    """
    holds = stories.counts[best] > 0
    if _names_tool(stories, terms, best) or not holds.any():
        return True
    telling = terms.telling(()) & ~terms.may_be_unsaid
    return bool(stories.failed[best]) and not bool(holds[telling].all() or stories.marks[best])


def _names_tool(stories: Stories, terms: StoryTerms, place: int) -> bool:
    """Whether the question has a word of the name of the tool that an event is of."""
    tool = int(stories.tool[place])
    return tool >= 0 and not stems_of(stories.tools[tool]).isdisjoint(terms.stems)


def _holds_alike(holds: Array, rarity: Array, best: int, share: float) -> Array:
    """Which rows hold so much, by rarity, of the stems that one of them holds."""
    weights = rarity * holds[best]
    return numpy.asarray(holds @ weights >= share * weights.sum())


def _first_of_each(stories: Stories, places: Array) -> Array:
    """The first event of each user, in order of time."""
    first: dict[int, int] = {}
    for place in places.tolist():
        if stories.user[place] >= 0:
            first.setdefault(int(stories.user[place]), place)
    return numpy.array(list(first.values()), dtype=numpy.int64)


def newest_alike(stories: Stories, features: Features, terms: StoryTerms, best: int) -> Array:
    """The newest of the events that are like the best one and say as much of the question."""
    places = alike(stories, features, terms, best)
    told = features.column("story_words")
    same = (stories.counts[places] > 0) == (stories.counts[best] > 0)
    return numpy.asarray(places[same.all(axis=1) & (told[places] >= told[best])][-1:])


def failed_at(stories: Stories, features: Features, told: int) -> int:
    """The failure of a tool of which somebody tells, or a record does, in its story; else it."""
    roles = features.roles
    is_record = roles.other[told] or (stories.failed[told] and stories.tool[told] < 0)
    if not (stories.person[told] or is_record):
        return told
    of_story = stories.story == stories.story[told]
    failed = numpy.flatnonzero(of_story & stories.failed & (stories.tool >= 0) & features.within)
    return int(failed[0]) if len(failed) else told


def _broken_at(stories: Stories, features: Features, terms: StoryTerms, told: int) -> int:
    """The failure of its tool, where a thing is said to have come to a bad end; else the event.

    Neither the call nor its result says so: "the drain got stuck" is told by what a drain failed
    with, and not by each drain.
    """
    broken = numpy.flatnonzero(terms.is_broken)
    if not len(broken) or stories.tool[told] < 0 or (stories.counts[told, broken] > 0).any():
        return told
    failed = stories.failed & (stories.tool == stories.tool[told]) & features.within
    failed &= stories.story == stories.story[told]
    return int(failed.argmax()) if failed.any() else told
