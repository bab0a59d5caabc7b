"""What a ranking and a judge know of each event of the stories that were found. Pure.

A feature is a number near 0 to 1 with the same meaning in every question: how much of what is asked
for an event says itself, how much its story says, which part it has in the story, how it stands in
time and to the people whom the question means. None knows a word of any domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy

from api.retrieval.plan import Operator, Plan
from api.retrieval.story_acts import OF_ACTS, Acts, acts_asked
from api.retrieval.story_limits import facts_asked, facts_of_named, in_time, within_limits
from api.retrieval.story_roles import Roles, roles_of
from api.retrieval.story_terms import LIKELY_TOLD, StoryTerms
from consolidation.decay import DAY_MS
from enrichment.stems import words_in
from pipelines.columns.records import Array, Stories, StoryFact

_SATURATION: Final = 0.6
_NEAR: Final = (0.6, 0.35, 0.2)
"""Weights of what stands one, two and three events away."""
_MEANING: Final = 0.8
"""Of a cosine, beside the share of the words that a story says; so much of an identifier, too."""
_LIKE_THE_BEST: Final = (0.25, 0.35)
"""How far below the best a story may stand and still be about the same: closely, and loosely."""
_LABEL: Final = 0.7
"""Of a word that an event says, where the name of its session or of its agent holds it."""
_ASSERTING: Final = 0.7
"""Share of the best match that an event has which sets what is asked for."""
_FADING_MS: Final = 6 * DAY_MS
_MARKS_ENOUGH: Final = 2
_FAR: Final = 99
_BY_WHOM: Final = (" who ", " whose ", " by whom ", " when ")
_STEPS: Final = 4


class Features(NamedTuple):
    """Of all events of the stories, and of the question as a whole.

    Attributes:
        names: of the columns.
        matrix: a row an event, a column a feature.
        roles: of the events.
        match: how well each story fits, by event.
        unknown: share of the question's words, by rarity, that nobody ever said.
        unknown_names: capitalised words of the question that nobody ever said.
        covered: the largest share of the words that a story says.
        held: share of the identifiers that some event holds; None: it names none.
        is_named: it names somebody who is known.
        is_bare: it names such a person and no topic.
        asserting: whether an event sets what is asked for, by event.
        facts: that the question asks for without a doubt, the best first.
        profile: facts of somebody of whom all is asked, the newest first.
        within: whether an event can answer at all, by event.
        acts: that the question asks about.
    """

    names: tuple[str, ...]
    matrix: Array
    roles: Roles
    match: Array
    unknown: float
    unknown_names: int
    covered: float
    held: float | None
    is_named: bool
    is_bare: bool
    asserting: Array
    facts: Sequence[StoryFact]
    profile: Sequence[StoryFact]
    within: Array
    acts: Acts

    @property
    def is_an_act(self) -> bool:
        """Whether `within` is the act that the question asks about."""
        return bool(self.acts.done) and int(self.within.sum()) == 1

    @property
    def anchor(self) -> int | None:
        """The place of the event that the question names by what it says; None: there is none."""
        places = numpy.flatnonzero(self.column("anchor"))
        return int(places[0]) if len(places) else None

    def column(self, name: str) -> Array:
        """A feature of all events."""
        return numpy.asarray(self.matrix[:, self.names.index(name)])


def features_of(stories: Stories, terms: StoryTerms, plan: Plan, now_ms: int) -> Features:
    """The features of every event.

    Args:
        stories: at least one event.
        terms: of the question.
        plan: of it.
        now_ms: when it is asked.
    """
    return _Making(stories, terms, plan, now_ms).features()


class _Making:
    def __init__(self, stories: Stories, terms: StoryTerms, plan: Plan, now_ms: int) -> None:
        self._told = stories
        self._terms = terms
        self._plan = plan
        self._now_ms = now_ms
        self._count = len(stories.ids)
        self._story = stories.story
        self._stories = int(stories.story[-1]) + 1
        self.roles = roles_of(stories)
        self._firsts = numpy.flatnonzero(self.roles.place == 0)
        self._begins_ms = stories.occurred_ms[self._firsts]
        self._ends_ms = stories.occurred_ms[self._firsts + self.roles.length[self._firsts] - 1]
        self._columns: dict[str, Array] = {}

    def features(self) -> Features:
        telling = self._terms.telling(self._names())
        counts = self._told.counts[:, telling]
        holding = self._told.holding[telling]
        total = max(self._told.total, int(holding.max(initial=0)))
        rarity = numpy.log1p((total - holding + 0.5) / (holding + 0.5))
        rarity *= numpy.sqrt(self._terms.shares)[telling]  # it is a guess, half believed
        shares = numpy.array(self._terms.shares)
        unmeant = self._terms.may_be_unsaid | (shares < LIKELY_TOLD)
        unheard = unmeant[telling] & (holding == 0)
        if not unheard.all():
            rarity[unheard] = 0.0
        whole = float(rarity.sum()) or 1.0
        covered = numpy.minimum(1.0, counts / (counts + _SATURATION) * (1 + _SATURATION))
        labels = _LABEL * self._told.labels[:, telling]
        words = numpy.maximum(covered, labels) @ rarity / whole
        by_story = numpy.maximum.reduceat(numpy.maximum(counts > 0, labels), self._firsts)
        story_said = by_story @ rarity / whole
        held, story_held = self._identifiers()
        cosines = numpy.nan_to_num(self._told.cosines)
        story_cosines = self._largest(cosines)
        match = story_said + _MEANING * story_cosines + _MEANING * story_held
        self._words(words, story_said)
        self._meaning(cosines, story_cosines)
        self._named_things(held, story_held)
        self._match(match)
        asserting = self._order(match, words)
        self._kinds(cosines)
        self._anchor(match, words, cosines=cosines, held=held)
        self._form()
        names = tuple(self._columns)
        is_bare = self._is_bare()
        at_ms = self._until_ms() - 1
        acts = acts_asked(self._told, self.roles, self._terms, self._plan)
        # who did it is not whose it is, unless somebody is asked for by what a fact calls them
        by_act = bool(acts.done) and self._terms.text.startswith(_BY_WHOM)
        facts_of_it = () if by_act else self._told.facts
        facts = facts_asked(facts_of_it, self._terms, self._plan, at_ms)
        return Features(
            names=names,
            matrix=numpy.array([self._columns[name] for name in names]).T,
            roles=self.roles,
            match=match[self._story],
            unknown=float(rarity[(holding == 0) & ~labels.any(axis=0)].sum() / whole),
            unknown_names=self._unknown_names(telling),
            covered=float(story_said.max()),
            held=float(held.max()) if self._terms.identifiers else None,
            is_named=bool(self._told.named.any()),
            is_bare=is_bare,
            asserting=asserting,
            facts=facts,
            profile=facts_of_named(self._told.facts, self._terms, self._plan, at_ms),
            within=self._within(acts, facts, is_bare=is_bare),
            acts=acts,
        )

    def _within(self, acts: Acts, facts: Sequence[StoryFact], *, is_bare: bool) -> Array:
        asks_act = self._plan.operator in OF_ACTS and not facts
        if asks_act and (meant := acts.meant(self._terms)) is not None:
            only = numpy.zeros(self._count, dtype=bool)
            only[acts.done[meant]] = True
            return only
        return within_limits(self._told, self.roles, self._plan, facts, is_bare=is_bare)

    def _is_bare(self) -> bool:
        return bool(self._told.named.any()) and not set(self._terms.words) - self._names()

    def _names(self) -> set[str]:
        """Parts of the names of those whom the question means."""
        authors = numpy.unique(self._told.author[self._told.named]).tolist()
        names = (self._told.authors[author].lower() for author in authors if author >= 0)
        return {part for name in names for word in words_in(name) for part in (word, name)}

    def _unknown_names(self, telling: Array) -> int:
        words, holding = self._terms.words, self._told.holding
        return sum(
            bool(telling[place]) and not holding[place] and word in self._terms.capitalised
            for place, word in enumerate(words)
        )

    def _largest(self, values: Array) -> Array:
        """The largest of each story."""
        return numpy.asarray(numpy.maximum(-1.0, numpy.maximum.reduceat(values, self._firsts)))

    # -- what is said ------------------------------------------------------------------------------

    def _words(self, words: Array, story_said: Array) -> None:
        best = float(words.max()) or 1.0
        near = words.copy()
        for place, other, weight in self._beside():
            near[place] += weight * words[other]
        self._columns |= {
            "words": words,
            "words_of_best": words / best,
            "words_near": numpy.minimum(near, 2.0),
            "story_words": story_said[self._story],
        }

    def _meaning(self, cosines: Array, story_cosines: Array) -> None:
        near, weights = numpy.zeros(self._count), numpy.zeros(self._count)
        for place, other, weight in self._beside():
            near[place] += weight * cosines[other]
            weights[place] += weight
        mean = numpy.bincount(self._story, cosines) / numpy.bincount(self._story)
        self._columns |= {
            "meaning": cosines,
            "meaning_of_best": cosines - float(cosines.max()),
            "meaning_near": numpy.where(weights > 0, near / numpy.maximum(weights, 1e-9), cosines),
            "story_meaning": story_cosines[self._story],
            "story_mean": mean[self._story],
        }

    def _beside(self) -> Iterable[tuple[Array, Array, float]]:
        """Places, the places some steps away in the same story, and the weight of that distance."""
        for distance, weight in enumerate(_NEAR, 1):
            if self._count > distance:
                same = numpy.flatnonzero(self._story[distance:] == self._story[:-distance])
                yield same + distance, same, weight
                yield same, same + distance, weight

    def _identifiers(self) -> tuple[Array, Array]:
        """Share of the identifiers that each event holds, and each story at once."""
        if not self._terms.identifiers:
            return numpy.zeros(self._count), numpy.zeros(self._stories)
        held = self._told.holds.mean(axis=1)
        return held, numpy.maximum(0.0, self._largest(held))

    def _named_things(self, held: Array, story_held: Array) -> None:
        names_any = float(bool(self._terms.identifiers))
        of_named = numpy.maximum(0.0, self._largest(self._told.named.astype(float)))
        in_session = self._told.in_session.astype(float)
        self._columns |= {
            "identifiers": held,
            "story_identifiers": story_held[self._story],
            "identifiers_missing": names_any * (story_held[self._story] - 1),
            "named": self._told.named.astype(float),
            "story_named": of_named[self._story],
            "theirs": self._told.theirs.astype(float),
            "acted": self._told.acted.astype(float),
            "in_session": in_session,
            "elsewhere": (in_session - 1) * float(bool(in_session.any())),
        }

    # -- which story -------------------------------------------------------------------------------

    def _match(self, match: Array) -> None:
        behind = match - float(match.max())
        within = numpy.zeros(self._count)
        if self._plan.spans and self._plan.operator is not Operator.VALUE_AT:
            within = numpy.where(in_time(self._told, self._plan), 1.0, -1.0)
        age_ms = numpy.maximum(0, self._now_ms - self._told.occurred_ms)
        close = numpy.flatnonzero(behind > -_LIKE_THE_BEST[0])
        self._columns |= {
            "story_behind": numpy.maximum(-1.0, behind)[self._story],
            "best_story": (behind[self._story] > -1e-9).astype(float),
            "behind_failure": self._behind_failure(behind),
            "within": within,
            "recent": numpy.exp(-age_ms / _FADING_MS),
            "newest": self._places(close, self._ends_ms, newest=True)[self._story],
            "oldest": self._places(close, self._begins_ms, newest=False)[self._story],
        }

    def _behind_failure(self, behind: Array) -> Array:
        """How well the story fits in which a failure is that an event of another session caused."""
        leads = self._told.leads_to
        fits = numpy.maximum(0.0, 1.0 + behind)[self._story]
        return numpy.where(leads >= 0, fits[leads], 0.0)

    def _places(self, stories: Array, at_ms: Array, *, newest: bool) -> Array:
        """1 for the newest (or oldest) of some stories, then a half, a third; 0 for all others."""
        at = at_ms[stories]
        order = stories[numpy.argsort(-at if newest else at, kind="stable")]
        places = numpy.zeros(self._stories)
        places[order] = 1.0 / (1 + numpy.arange(len(order)))
        return places

    def _order(self, match: Array, words: Array) -> Array:
        """Features of the order in time; which events set what is asked for."""
        until_ms = self._until_ms()
        behind = match - float(match.max())
        loose = numpy.flatnonzero((behind > -_LIKE_THE_BEST[1]) & (self._begins_ms < until_ms))
        before = self._places(loose, self._ends_ms, newest=True)
        second = numpy.zeros(self._stories)
        second[before == 0.5] = 1.0  # the second place of `_places`
        asserting = self._asserting(words, until_ms)
        at_ms = numpy.where(asserting, self._told.occurred_ms, -1)
        set_ms = numpy.maximum.reduceat(at_ms, self._firsts)
        setting = set_ms >= 0
        set_at = self._places(numpy.flatnonzero(setting), set_ms, newest=True)
        last, one_before = set_at == 1.0, set_at == 0.5
        last_said, first_said = self._said_by_named()
        self._columns |= {
            "last_said": last_said,
            "first_said": first_said,
            "newest_before": before[self._story],
            "second_before": second[self._story],
            "too_late": -(self._told.occurred_ms >= until_ms).astype(float),
            "set_last": last[self._story].astype(float),
            "set_before": one_before[self._story].astype(float),
            "set_earlier": ((set_at > 0) & ~last & ~one_before)[self._story].astype(float),
            "sets": asserting.astype(float),
            "sets_last": (last[self._story] & asserting).astype(float),
            "set_once": last[self._story] * float(setting.sum() == 1),
        }
        return asserting

    def _until_ms(self) -> int:
        return self._now_ms + 1 if self._plan.end_ms is None else self._plan.end_ms

    def _asserting(self, words: Array, until_ms: int) -> Array:
        roles = self.roles
        setting = (roles.call & ~roles.failed_call) | roles.worked | roles.other
        if self._told.named.any() and (setting & self._told.theirs).any():
            setting = setting & self._told.theirs  # what is so of others was not set for them
        best = float((words * setting).max(initial=0.0))
        if best <= 0:
            return numpy.zeros(self._count, dtype=bool)
        early = self._told.occurred_ms < until_ms
        return numpy.asarray(setting & (words >= _ASSERTING * best) & early)

    def _said_by_named(self) -> tuple[Array, Array]:
        """1 for the last (first) message of those whom the question means, then a half, a third."""
        places = numpy.flatnonzero(self._told.named & self.roles.says)
        last, first = numpy.zeros(self._count), numpy.zeros(self._count)
        order = places[numpy.argsort(self._told.occurred_ms[places], kind="stable")]
        shares = 1.0 / (1 + numpy.arange(len(order)))
        first[order], last[order[::-1]] = shares, shares
        return last, first

    # -- which part of it --------------------------------------------------------------------------

    def _kinds(self, cosines: Array) -> None:
        told, roles = self._told, self.roles
        flags = {
            "person_says": told.person,
            "agent_says": roles.says & ~told.person,
            "call": roles.call,
            "worked": roles.worked,
            "failed": told.failed,
            "other": roles.other,
            "failed_call": roles.failed_call,
            "fixing_call": roles.fixing_call,
            "fixing_result": roles.fixing_result,
            "helped": roles.between & roles.worked,
            "person_helped": roles.between & told.person,
            "asked_for_help": roles.between & roles.call,
            "retried": roles.retried,
            "first": roles.place == 0,
            "opening": (roles.place <= 1) & told.person,
            "last": roles.place == roles.length - 1,
            "story_failed": roles.has_failure,
            "story_fixed": roles.has_fix,
            "nobodys": told.user < 0,
        }
        flags |= self._beside_acts()
        self._columns |= {name: flag.astype(float) for name, flag in flags.items()}
        self._columns["person_meaning"] = cosines * told.person

    def _beside_acts(self) -> dict[str, Array]:
        """Of messages: whether something was done right after one, or right before it.

        What is done at once was a request; what tells of it is no promise.
        """
        roles = self.roles
        acts, agent_says = ~roles.says, roles.says & ~self._told.person
        then_act = self._onwards(acts, 1)
        acted = then_act | (self._onwards(agent_says, 1) & self._onwards(acts, 2))
        return {
            "acted_upon": roles.says & acted,
            "tells_of_act": roles.says & self._onwards(acts, -1),
        }

    def _onwards(self, flags: Array, steps: int) -> Array:
        """Whether the event so many steps on, or back, is of the same story and has the flag."""
        others = numpy.arange(self._count) + steps
        inside = (others >= 0) & (others < self._count)
        others = numpy.where(inside, others, 0)
        return numpy.asarray(inside & (self._story[others] == self._story) & flags[others])

    def _anchor(self, match: Array, words: Array, *, cosines: Array, held: Array) -> None:
        """How far each event of the best story is from the event that the question names."""
        roles, failed = self.roles, self._plan.failed
        of_named = numpy.maximum(0.0, self._largest(self._told.named.astype(float)))
        fitting = match + 0.25 * of_named
        fitting = fitting + 0.3 * roles.has_failure[self._firsts] * float(failed is True)
        fitting = fitting + 0.3 * roles.has_fix[self._firsts] * float(failed is False)
        begin = int(self._firsts[int(fitting.argmax())])
        story = slice(begin, begin + int(roles.length[begin]))
        meant = self._with_calls(words + 0.8 * cosines + 0.3 * held)[story]
        if failed is False:
            meant = meant + 0.9 * roles.fixing_result[story] + 0.3 * roles.worked[story]
        else:
            meant = meant + 0.8 * roles.first_failure[story] + 0.3 * self._told.failed[story]
        anchor = begin + int(meant.argmax())
        if self._plan.operator is Operator.BEFORE:
            anchor = self._called(anchor, begin)
        steps = numpy.full(self._count, _FAR)
        steps[story] = numpy.arange(story.start, story.stop) - anchor
        for distance in range(1, _STEPS + 1):
            self._columns[f"after_{distance}"] = (steps == distance).astype(float)
            self._columns[f"before_{distance}"] = (steps == -distance).astype(float)
        self._columns |= {
            "after_more": ((steps > _STEPS) & (steps < _FAR)).astype(float),
            "before_more": (steps < -_STEPS).astype(float),
            "anchor": (steps == 0).astype(float),
            "story_of_anchor": (steps < _FAR).astype(float),
        }

    def _with_calls(self, meant: Array) -> Array:
        """An outcome is meant by what its call says, too: it need not repeat what it is of."""
        calls = self.roles.call_of
        return numpy.asarray(numpy.where(calls < 0, meant, numpy.maximum(meant, meant[calls])))

    def _called(self, place: int, begin: int) -> int:
        """The call that an outcome belongs to: what came before it came before that."""
        if self._told.failed[place] or self.roles.worked[place]:
            tool = self._told.tool[place]
            for earlier in range(place - 1, begin - 1, -1):
                if self.roles.call[earlier] and self._told.tool[earlier] == tool:
                    return earlier
        return place

    def _form(self) -> None:
        marked = numpy.minimum(1.0, self._told.marks / _MARKS_ENOUGH) * self.roles.says
        marked *= self._plan.operator is not Operator.CAUSE  # a reason need not be a message
        places = numpy.flatnonzero(marked)
        order = places[numpy.argsort(-self._told.occurred_ms[places], kind="stable")]
        newest = numpy.zeros(self._count)
        newest[order] = 1.0 / (1 + numpy.arange(len(order)))
        self._columns["marked"] = marked
        self._columns["marked_by_agent"] = marked * ~self._told.person
        self._columns["marked_newest"] = newest
        self._columns["length"] = numpy.log1p(self._told.words)
        self._columns["asks"] = self._told.asks.astype(float)
