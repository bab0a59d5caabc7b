"""Which of the events found is meant: a failure, what worked, an act that was done. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy

from api.retrieval.plan import VALUES, Operator, Plan
from api.retrieval.question_forms import forms
from api.retrieval.story_acts import is_asked_for, is_heard_of
from api.retrieval.story_features import Features
from api.retrieval.story_limits import SAYING
from api.retrieval.story_roles import in_order, only_looks, said_by_agents, words_of_agent
from api.retrieval.story_terms import StoryTerms, stems_of_parts, stems_of_ways, ways_of_failing
from enrichment.act_names import (
    apart,
    base,
    first_word,
    http_method,
    is_reader,
    of_tool,
    of_type,
    says_verb,
)
from enrichment.event_kinds import EventKind
from enrichment.stems import same_root, stem_in, words_in
from enrichment.vocabulary import word_set
from pipelines.columns.records import KINDS, MESSAGE, Array, Stories


def failure_meant(
    stories: Stories, features: Features, terms: StoryTerms, order: Array
) -> int | None:
    """The failure that a question asks the cause of, where what was found first is none of it.

    One that says all identifiers of the question, itself or by its call, comes before what says
    them not; what was said, or was looked up, is no failure. None: the first may stay.
    """
    best, roles = int(order[0]), features.roles
    if (refusal := refused_by(stories, features, terms)) is not None:
        return refusal
    failures = order[stories.failed[order] & features.within[order]]
    if not len(failures):
        return None
    if stories.holds.shape[1]:
        all_held = numpy.asarray(with_call(stories, features).all(axis=1))
        told = failures[all_held[failures]]
        is_cause = not stories.failed[best] and stories.leads_to[best] in told
        if len(told) and not (all_held[best] or is_cause):
            return int(told[0])
        if stories.failed[best] and not all_held[best]:
            return _decided_of(stories, features, order)
        if all_held[best] and not (features.column("story_identifiers")[failures] > 0).any():
            return _decided_of(stories, features, order)
    if (
        not stories.holds.shape[1]
        and (telling := _of_telling_story(features, failures)) is not None
    ):
        return telling
    if (called := _called_so(stories, terms, failures, best)) is not None:
        return called
    if stories.failed[best] or roles.other[best]:
        return None
    of_story = failures[stories.story[failures] == stories.story[best]]
    return int(of_story[0] if len(of_story) else failures[0])


def reason_stated(stories: Stories, features: Features, terms: StoryTerms, best: int) -> Array:
    """Where the reason stands that somebody gave for what a question asks; empty: nobody did.

    It says "because" or the like and a word of the question, and its story says as much of that as
    the one of the best event. Words that nobody ever said, at most half of them, count for nothing:
    what is asked about as raised was set.
    """
    telling = terms.telling(())
    heard = telling & numpy.array([is_heard_of(stories, place) for place in range(len(telling))])
    if not terms.stems or not 2 * heard.sum() >= telling.sum():
        return numpy.zeros(0, dtype=numpy.int64)
    holds = stories.counts[:, heard] > 0
    rarity = numpy.log1p(stories.total / numpy.maximum(stories.holding[heard], 1))
    _, story = numpy.unique(stories.story, return_inverse=True)
    of_story = numpy.zeros(
        (int(story.max()) + 1, holds.shape[1] + stories.holds.shape[1]), dtype=bool
    )
    numpy.logical_or.at(of_story, story, numpy.hstack([holds, stories.holds]))
    covered = of_story[:, : holds.shape[1]] @ rarity
    giving = (stories.marks > 0) & ~stories.asks & ~stories.failed & features.within
    giving &= holds.any(axis=1) & of_story[story, holds.shape[1] :].all(axis=1)
    giving &= covered[story] >= max(covered[story[best]], rarity.sum() / 2)
    places = numpy.flatnonzero(giving)
    order = numpy.lexsort((-stories.occurred_ms[places], -(holds @ rarity)[places]))
    return numpy.asarray(places[order[:1]])


_SAID_ENOUGH: Final = 0.6
"""Share, by rarity, of the words of a question that the story of a decision says."""
_SAID_MORE: Final = 0.2
"""So much more of them than what was found first says."""
_EACH_WORD: Final = 0.999
_DECISION: Final = KINDS.index(EventKind.DECISION)


def decision_meant(stories: Stories, features: Features, order: Array) -> Array:
    """The decision that a question asks the reason of: it says why itself. None: an empty array.

    Where a question says of nothing that it failed, what was decided is the likelier to be meant,
    the more of the question it says.
    """
    words, of_story = features.column("words"), features.column("story_words")
    decided = numpy.asarray(order[(stories.kind[order] == _DECISION) & features.within[order]])
    if not len(decided):
        return decided
    best = decided[words[decided].argmax()]
    first = int(order[0])
    says_all = words[first] < _EACH_WORD <= words[best]
    more = words[best] - words[first] >= _SAID_MORE or stories.kind[first] == _DECISION or says_all
    is_meant = more and of_story[best] >= _SAID_ENOUGH
    return numpy.array([best] if is_meant else [], dtype=numpy.int64)


def knows_named(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, best: int
) -> bool | None:
    """Whether what a question names by an identifier is known for certain; None: the judge says.

    It is not where nobody ever said it, where what was found tells of others alone, or where a
    person is named who only shares a name with one who is known; where two things are compared, it
    is that both are known.
    """
    is_new = _names_nothing_known(stories, features, terms, plan=plan, best=best)
    if is_new or _names_namesake(stories, terms):
        return False
    if _is_said_of_others(stories, features, plan, best):
        return False
    compares = plan.compares and stories.holds.shape[1] > 1
    return True if compares and bool(stories.holds.any(axis=0).all()) else None


def _names_nothing_known(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, best: int
) -> bool:
    """Whether a question names something by an identifier that nobody ever said, or is called by.

    Of an error that is like others the number may be new; what is like it is asked for.
    """
    is_like = plan.operator in (Operator.SIMILAR, Operator.LESSON) or bool(plan.quoted)
    is_like = is_like or (bool(stories.failed[best]) and _repeats(stories, best))
    if is_like or features.held != 0 or features.facts or features.is_named:
        return False
    names = {
        name.lower()
        for column in (stories.authors, stories.agents, stories.users, stories.tools, stories.types)
        for name in column
    }
    called = names.intersection(terms.identifiers)
    return not (called or stories.in_session.any() or _is_label(stories, terms))


def _names_namesake(stories: Stories, terms: StoryTerms) -> bool:
    """Whether a question names somebody of whom one name is a known person's, and the other new."""
    spoken = numpy.unique(stories.author[stories.person & (stories.author >= 0)])
    persons = [words_in(stories.authors[number].lower()) for number in spoken.tolist()]
    whole = [label for label in persons if label[1:]]
    labels = [words_in(name.lower()) for name in (*stories.authors, *stories.users)]
    for given, family in terms.full_names:
        if any({given, *family} <= set(label) for label in labels):
            continue
        of_given = any(label[0] == given for label in whole)
        of_family = any({*family} <= {*label[1:]} for label in whole)
        new = (given,) if of_family else family
        if of_given != of_family and _is_new(stories, terms, new):
            return True
    return False


def _is_new(stories: Stories, terms: StoryTerms, names: Sequence[str]) -> bool:
    """Whether names are words of the question that nobody said, and that say not how it asks."""
    places = [terms.words.index(name) for name in names if name in terms.words]
    is_heard = any(is_heard_of(stories, place) for place in places)
    return len(places) == len(names) and not (is_heard or forms().words.intersection(names))


_REPEATED_WORDS: Final = 4
"""At least so many different words of an error are those of one that was pasted."""
_REPEATED_SHARE: Final = 0.6
"""And such a part of all of its words."""


def _repeats(stories: Stories, failure: int) -> bool:
    """Whether a question says most of what a failure says: an error that was pasted into it."""
    repeated = int((stories.counts[failure] > 0).sum())
    least = max(_REPEATED_WORDS, _REPEATED_SHARE * stories.words[failure])
    return repeated >= float(least)


_OF_ONE: Final = VALUES | {Operator.SEARCH}
"""Operators that ask what is, or was, of the thing that they name."""


def _is_said_of_others(stories: Stories, features: Features, plan: Plan, best: int) -> bool:
    """Whether something is asked of a known thing, and what was found tells of others alone."""
    if plan.operator not in _OF_ONE or features.held != 1 or features.facts:
        return False
    return bool(features.column("story_identifiers")[best] == 0) and not stories.in_session[best]


def _is_label(stories: Stories, terms: StoryTerms) -> bool:
    """Whether a session or an agent is called by a number that the question says."""
    numbers = [
        place
        for place, word in enumerate(terms.words)
        if any(word in words_in(identifier) for identifier in terms.identifiers)
    ]
    return bool(numbers) and bool(stories.labels[:, numbers].all(axis=1).any())


def _decided_of(stories: Stories, features: Features, order: Array) -> int | None:
    """What happened to all that a question names and says most of it, where nothing of it failed.

    A review that asks for changes refuses without an error.
    """
    about = order[features.roles.other[order] & stories.holds[order].all(axis=1)]
    if not len(about):
        return None
    lengths = stories.words[about]
    return int(about[lengths.argmax()])


def _of_telling_story(features: Features, failures: Array) -> int | None:
    """The first of some failures whose story says most of the question, the first's much less.

    What a tool reports has other words than what was wanted: the story has them.
    """
    shares = features.column("story_words")[failures]
    if shares.max() - shares[0] < _SAID_MORE:
        return None
    return int(failures[shares.argmax()])


def _called_so(stories: Stories, terms: StoryTerms, failures: Array, best: int) -> int | None:
    """The failure of a story whose tool is called by more words of a question than the first's.

    Why the push was rejected is told by `git_push`, and not by the tests that failed before it.
    """
    if stories.tool[best] < 0 or stories.holds.shape[1]:
        return None
    same = failures[
        (stories.story[failures] == stories.story[best]) & (stories.tool[failures] >= 0)
    ]
    named = {int(place): _named_in(stories, terms, int(place)) for place in same}
    most = max(named.values(), default=0)
    if most <= _named_in(stories, terms, best):
        return None
    return next(place for place, number in named.items() if number == most)


def in_front(places: Array, order: Array) -> Array:
    """An order with some places before all others."""
    behind = order[~numpy.isin(order, places)]
    return numpy.concatenate([places, behind]).astype(numpy.int64)


def what_worked_first(stories: Stories, features: Features, order: Array) -> Array:
    """An order in which an attempt that failed stands behind what worked of the same tool.

    Only where the first event is such an attempt: what is, was not set by it. Where none about the
    same things worked, how it failed comes before what was tried.
    """
    best, roles = int(order[0]), features.roles
    if not (roles.failed_call[best] or (stories.failed[best] and stories.tool[best] >= 0)):
        return order
    same = (stories.tool == stories.tool[best]) & (stories.story == stories.story[best])
    worked = same & ~(roles.failed_call | stories.failed)
    if stories.holds.shape[1]:
        worked &= (with_call(stories, features) | ~stories.holds[best]).all(axis=1)
    first = order[worked[order]][:1]
    if not len(first) and roles.failed_call[best]:
        later = same & stories.failed & (stories.occurred_ms >= stories.occurred_ms[best])
        first = numpy.flatnonzero(later)[:1]
    return in_front(first, order)


def retried_first(stories: Stories, features: Features, order: Array) -> Array:
    """An order in which a call that went through is in front of the words that asked for it.

    Only where it failed at first: what was asked for had to be put right, and the call says it all.
    """
    best, roles = int(order[0]), features.roles
    if not (stories.person[best] and roles.has_fix[best]):
        return order
    later = (stories.story == stories.story[best]) & (numpy.arange(len(order)) > best)
    if not (later & stories.failed).any():
        return order
    return in_front(numpy.flatnonzero(later & roles.fixing_call)[:1], order)


_CLEARLY: Final = 0.2
"""Share of a question's words, by rarity, and difference of cosines, that tell messages apart."""
_HARDLY: Final = 0.05


def said_better_first(stories: Stories, features: Features, order: Array) -> Array:
    """An order in which a message stands in front that says more of a question than the first does.

    By its words or by its meaning, and by neither less: what else speaks for the first is where it
    stands, and its length. Before what is no message it comes only where it says each word, and
    that was no more than looked up.
    """
    best, words, meaning = int(order[0]), features.column("words"), features.column("meaning")
    more, nearer = words - words[best], meaning - meaning[best]
    says_more = (more >= _CLEARLY) & (nearer >= -_HARDLY)
    if int(stories.kind[best]) == MESSAGE:
        says_more |= (nearer >= _CLEARLY) & (more >= 0)
    else:
        tool = int(stories.tool[best])
        says_more &= (words >= _EACH_WORD) & (tool >= 0 and is_reader(stories.tools[tool]))
    says_more &= (stories.kind == MESSAGE) & ~stories.asks & features.within
    return in_front(order[says_more[order]][:1], order)


def went_through_first(
    stories: Stories, features: Features, terms: StoryTerms, order: Array
) -> Array:
    """An order in which an act that went through at last stands before what it took.

    When the booking was is not when the rate was looked up or its approval was asked for, although
    these say the same words: the story that they are of had one aim, which failed at first. What
    was looked up or asked for itself is called by more words of the question than the act.
    """
    best, roles = int(order[0]), features.roles
    if len(later := _went_through_later(stories, features, best)):
        return in_front(later, order)
    tool = int(stories.tool[best])
    if tool < 0 or stories.failed[best] or roles.fixing_call[best] or roles.fixing_result[best]:
        return order
    done = numpy.flatnonzero(roles.fixing_result & (stories.story == stories.story[best]))
    if not (is_reader(stories.tools[tool]) or (done > best).any()):
        return order
    named = {place: _named_in(stories, terms, place) for place in (best, *done.tolist())}
    meant = [place for place in done.tolist() if named[place] >= named[best]]
    return in_front(numpy.array(meant[-1:], dtype=numpy.int64), order)


def done_as_said_first(stories: Stories, features: Features, order: Array) -> Array:
    """An order in which what was done stands before the words by which an agent said it would be.

    They say what the question says, and what was done for the same user later need not. Where it
    was done in the story of the words, they tell of it.
    """
    best, roles = int(order[0]), features.roles
    words = words_of_agent(stories, order)
    if words is not None and (kept_by := int(stories.kept_by[words])) >= 0:
        return in_front(numpy.array([kept_by]), order)
    if words != best:
        return order
    done = roles.worked & ~only_looks(stories) & (features.column("sets") > 0)
    done &= _of_same_user(stories, best) & features.within
    if (done & (stories.story == stories.story[best])).any():
        return order
    later = order[(done & (stories.occurred_ms > stories.occurred_ms[best]))[order]]
    return in_front(later[:1], order)


def looked_up_for(stories: Stories, features: Features, best: int) -> Array:
    """What was looked up for a person who asked, of whose words the same is asked; empty: nothing.

    They said no more than what they wanted to know. Who wants it changed says what it is to be, and
    then something was done besides.
    """
    roles = features.roles
    behind = stories.story == stories.story[best]
    behind[: best + 1] = False
    if not (roles.says[best] and stories.person[best] and behind.any()):
        return numpy.zeros(0, dtype=numpy.int64)
    later = numpy.flatnonzero(behind & roles.says & stories.person)
    behind[int(later[0]) if len(later) else len(behind) :] = False
    looks = only_looks(stories)
    if (behind & roles.call & ~looks).any():
        return numpy.zeros(0, dtype=numpy.int64)
    return numpy.flatnonzero(behind & roles.worked & looks)[:1]


def stated_before(
    stories: Stories, features: Features, best: int, until_ms: int | None = None
) -> Array:
    """What set or told, for the same user, the same thing as the best story does, before it did.

    The call that set it, or the record that was looked up, the newest before a time. A thing is
    what tools are called by but for what they do: `slot.move` and `GET /slot` are of one. Empty:
    nothing did.
    """
    looks, roles = only_looks(stories), features.roles
    same = _of_same_user(stories, best) & (stories.tool >= 0)
    of_story = stories.story == stories.story[best]
    sets = roles.call & ~looks
    things = {_thing(stories, tool) for tool in stories.tool[same & of_story & sets].tolist()}
    begins_ms = int(stories.occurred_ms[of_story].min())
    early = stories.occurred_ms < (begins_ms if until_ms is None else min(until_ms, begins_ms))
    places = numpy.flatnonzero(same & early & (sets | (roles.worked & looks)))
    of_tools = {tool: _thing(stories, tool) for tool in set(stories.tool[places].tolist())}
    same_tools = {
        tool for tool, thing in of_tools.items() if any(thing <= o or o <= thing for o in things)
    }
    states = [place for place in places.tolist() if int(stories.tool[place]) in same_tools]
    return in_order(stories, numpy.array(states, dtype=numpy.int64))[-1:]


def _of_same_user(stories: Stories, place: int) -> Array:
    return numpy.asarray((stories.user >= 0) & (stories.user == stories.user[place]))


def _thing(stories: Stories, tool: int) -> frozenset[str]:
    """The words of a tool's name but its verb; all of them, where it has no other."""
    name = stories.tools[tool]
    words = frozenset(words_in(apart(name).lower()))
    return words - {first_word(name), (http_method(name) or "").lower()} or words


def _went_through_later(stories: Stories, features: Features, best: int) -> Array:
    """Where a story did not get a thing done: the outcome of the next that did, for the same user.

    With the tool that failed last in it, and as many of the identifiers that are asked about.
    """
    roles, of_story = features.roles, stories.story == stories.story[best]
    failed = numpy.flatnonzero(of_story & stories.failed & (stories.tool >= 0))
    if not len(failed) or roles.has_fix[best]:
        return failed[:0]
    tool = stories.tool[failed[-1]]
    done = roles.worked & (stories.tool == tool) & (stories.user == stories.user[best])
    done &= stories.occurred_ms > stories.occurred_ms[failed[-1]]
    if stories.holds.shape[1]:
        held = with_call(stories, features)
        done &= (held | ~held[of_story].any(axis=0)).all(axis=1)
    places = numpy.flatnonzero(done)
    return places[numpy.argsort(stories.occurred_ms[places], kind="stable")][:1]


def _named_in(stories: Stories, terms: StoryTerms, place: int) -> int:
    """How many words of a question the tool of an event is called by.

    What stands right before an identifier says what that is of: "the payout on claim C-7".
    """
    _, words = of_tool(stories.tools[stories.tool[place]])
    kinds = {
        stem_in(word)
        for one in terms.identifiers
        for word in re.findall(rf" (\S+) (?={re.escape(one)} )", terms.text)
    }
    of_question = set(terms.stems) - kinds
    return sum(any(same_root(one, word) for word in words) for one in of_question)


def with_call(stories: Stories, features: Features) -> Array:
    """Which identifiers each event holds, itself or by its call."""
    calls = features.roles.call_of
    return stories.holds | numpy.where(calls[:, None] >= 0, stories.holds[calls], False)


def refused_by(stories: Stories, features: Features, terms: StoryTerms) -> int | None:
    """The first act that did what a question asks the reason of: `decision: declined`.

    It says all identifiers and how it was refused; tools that only look decide nothing.
    """
    ways = set(stems_of_ways(ways_of_failing(terms.text)))
    places_of_ways = [place for place, one in enumerate(terms.stems) if one in ways]
    if not (places_of_ways and stories.holds.shape[1]):
        return None
    roles = features.roles
    acts = (roles.call | roles.worked | roles.other) & ~roles.failed_call & ~only_looks(stories)
    acts &= stories.holds.all(axis=1) & (stories.counts[:, places_of_ways] > 0).any(axis=1)
    places = numpy.flatnonzero(acts)
    return int(places[stories.occurred_ms[places].argmin()]) if len(places) else None


_SETTLING: Final = frozenset(
    map(
        stem_in, word_set("approve merge reject decline deny close sign cancel authorise authorize")
    )
)
"""Acts that settle something: who did any of them to it, and when, is told by nothing else."""


def is_never_done(
    stories: Stories, features: Features, terms: StoryTerms, operator: Operator
) -> bool:
    """Whether an act is asked about, and nothing says it of the identifiers.

    That somebody approved one thing does not say who approved another one; and that somebody opened
    it does not, either. Where a question tells more than the act it may be told in other words.
    """
    if not stories.holds.shape[1] or features.acts.done or not terms.stems:
        return False
    parts = {part for one in terms.identifiers for part in stems_of_parts(one)}
    others = [place for place, word in enumerate(terms.stems) if word not in parts]
    place = others[0] if len(others) == 1 else 0
    verb = terms.stems[place]
    is_bare = len(others) == 1 and verb in _SETTLING
    acts = [of_tool(name)[0] for name in stories.tools] + [
        of_type(name)[0] for name in stories.types
    ]
    is_act = operator is Operator.ACTOR and any(says_verb(base(verb), verbs) for verbs in acts)
    if not (is_bare or is_act):
        return False
    about = stories.holds.all(axis=1)
    says = stories.counts[:, place] > 0
    by_tool = numpy.array(
        [
            *(any(same_root(verb, word) for word in of_tool(tool)[1]) for tool in stories.tools),
            False,
        ]
    )
    says |= by_tool[stories.tool]
    return not (about & says & ~stories.asks).any()


def told_by_agent(stories: Stories, features: Features, terms: StoryTerms, best: int) -> Array:
    """What agents say of an act on what a question names, where nothing else speaks of that.

    "A director has to approve RQ-3" is worth telling, and whoever says so is not who approved.
    """
    none = numpy.zeros(0, dtype=numpy.int64)
    if not stories.holds.shape[1] or features.acts.done or not terms.stems:
        return none
    if features.roles.other[best] or with_call(stories, features)[best].all():
        return none
    says = stories.holds.all(axis=1) & (stories.counts[:, 0] > 0)
    agents = says & said_by_agents(stories)
    return none if (says & ~agents & ~stories.asks).any() else numpy.flatnonzero(agents)


def reply_to(stories: Stories, features: Features, best: int) -> Array:
    """What somebody said to the question of another, which is found, or is found by its question.

    Empty: what is found is neither, or nobody said anything.
    """
    says = features.roles.says & (stories.story == stories.story[best])
    others = numpy.flatnonzero(says & (stories.author != stories.author[best]))
    before, later = others[others < best], others[others > best]  # in the order of time
    if not says[best]:
        return others[:0]
    if stories.asks[best]:
        return later[~stories.asks[later]][:1]
    is_reply = not (stories.counts[best] > 0).any() and stories.asks[before[-1:]].any()
    return numpy.array([best] if is_reply else [], dtype=numpy.int64)


def is_not_done(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, best: int
) -> bool:
    """Whether what is asked about was tried, or asked for, and is not known to be done."""
    if features.acts.done:
        return False
    if plan.operator in _OF_ACT and is_never_done(stories, features, terms, plan.operator):
        return True
    asked_for = stories.type[best] >= 0 and is_asked_for(stories.types[stories.type[best]])
    return features.acts.not_done or (plan.operator is Operator.TIME and asked_for)


_OF_ACT: Final = (Operator.ACTOR, Operator.TIME)
_ASKED_FOR: Final = re.compile(
    r"(?<!\w)(?:ask(?:ed|s)?\s+(?:\w+\s+)?(?:for|to)|request(?:ed|s)?|want(?:ed|s)?|demand(?:ed|s)?)"
    r"(?!\w)",
    re.IGNORECASE,
)


_ASKS_AGENT: Final = re.compile(r"(?<!\w)(?:agents?|bots?|assistants?|tools?)(?!\w)", re.IGNORECASE)


def ordered(stories: Stories, features: Features, plan: Plan, best: int) -> Array:
    """Place of the words by which a person had a change made that a tool made; empty: none.

    A change is told behind the call that made it, by an event of its own (`config.changed`). Who
    asks who changed something means who wanted it so, unless an agent is asked for.
    """
    roles = features.roles
    is_meant = plan.operator is Operator.ACTOR and not _ASKS_AGENT.search(plan.timeless)
    if not is_meant or stories.tool[best] < 0:
        return numpy.array([], dtype=int)
    same = stories.story == stories.story[best]
    places = numpy.arange(len(same))
    if not (same & roles.other & (places > best)).any():
        return numpy.array([], dtype=int)
    words = same & stories.person & roles.says & ~stories.asks
    return numpy.flatnonzero(words & (places < best))[-1:]


def actor_of(stories: Stories, features: Features, plan: Plan, best: int) -> str | None:
    """Who did it: of a call and of what came of it who called the tool, or who asked for that."""
    if stories.tool[best] >= 0 and _ASKED_FOR.search(plan.timeless):
        start = int(features.roles.starts[best])
        asking = [place for place in range(start, best) if stories.person[place]]
        best = asking[-1] if asking else best
    if stories.tool[best] >= 0:
        agent = int(stories.agent[best])
        return stories.agents[agent] if agent >= 0 else None
    if features.roles.says[best] and not (stories.person[best] or SAYING.search(plan.timeless)):
        return None  # an agent tells of it, and not of itself
    author = int(stories.author[best])
    return stories.authors[author] if author >= 0 else None
