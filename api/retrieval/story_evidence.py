"""What proves an answer: records of somebody, events of a time, what states a value. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Final, NamedTuple

import numpy

from api.retrieval.plan import OF_ORDER, Operator, Plan
from api.retrieval.plan_phrases import ASKING_WORDS
from api.retrieval.story_acts import acts_asked, asks_for_first
from api.retrieval.story_features import Features
from api.retrieval.story_roles import (
    CALL,
    FOUND_FIRST,
    in_order,
    only_looks,
    roles_of,
    said_by_agents,
    words_of_agent,
)
from api.retrieval.story_terms import (
    LIKELY_TOLD,
    StoryTerms,
    stems_of_parts,
    stems_of_ways,
    ways_of_failing,
)
from api.retrieval.time_spans import TimeSpan
from consolidation.decay import DAY_MS
from enrichment.act_names import first_word
from enrichment.event_kinds import EventKind
from enrichment.stems import stem_in, stems_of, words_in
from enrichment.vocabulary import WRITE_VERBS, word_set
from pipelines.columns.records import KINDS, MESSAGE, Array, Stories

MAX_TOLD: Final = 10
"""Events that an answer lists."""
_MAX_SAID: Final = 3
_MAX_ATTRIBUTE: Final = 2
"""Words of an attribute, as "phone number" has; more tell a story."""
_THOUGHT: Final = KINDS.index(EventKind.THOUGHT)
_INSTRUCTION: Final = KINDS.index(EventKind.INSTRUCTION)
_ACTS: Final = tuple(
    KINDS.index(kind) for kind in (EventKind.RESULT, EventKind.DECISION, EventKind.OTHER)
)
"""Kinds by which something was done, where it did not fail."""


def recorded(stories: Stories, features: Features, terms: StoryTerms, order: Array) -> Array:
    """What is recorded of somebody: what was done by them or for them, and what names them.

    What they said is no record of them: it is told, and a little of it, where there is nothing
    else.

    Args:
        stories: that were found.
        features: of their events.
        terms: of the question.
        order: places, the best first.
    """
    roles = features.roles
    names = _names(stories, terms)
    called = [stems_of(agent) for agent in stories.agents]
    acting = [number for number, parts in enumerate(called) if parts and parts <= names]
    done = (roles.worked & ~only_looks(stories)) | (roles.other & (stories.kind != _THOUGHT))
    by_them = (numpy.isin(stories.agent, acting) | stories.acted) & (done | stories.failed)
    columns = [place for place, one in enumerate(terms.stems) if one in names]
    naming = roles.other & (stories.counts[:, columns] > 0).any(axis=1) & done
    for chosen in (by_them | naming, stories.theirs & done):
        if chosen.any():
            best = order[chosen[order]][:MAX_TOLD]
            return in_order(stories, _as_called(stories, features, best))
    words = stories.named & roles.says & ~stories.asks
    return in_order(stories, order[words[order]][:_MAX_SAID]) if words.any() else order[:1]


def _as_called(stories: Stories, features: Features, places: Array) -> Array:
    """Outcomes by their calls, which say what was done."""
    calls = features.roles.call_of
    by_call = (
        place if calls[place] < 0 or stories.failed[place] else calls[place]
        for place in places.tolist()
    )
    return numpy.array(list(dict.fromkeys(by_call)), dtype=numpy.int64)


def _names(stories: Stories, terms: StoryTerms) -> set[str]:
    """Stems of the words of a question that name somebody."""
    authors = numpy.unique(stories.author[stories.named]).tolist()
    parts = {
        stem_in(word)
        for number in authors
        if number >= 0
        for word in words_in(stories.authors[number].lower())
    }
    return parts | {stem_in(word) for word in terms.words if word in terms.capitalised}


_RECORD: Final = word_set("detail details record information info data profile")
_WHOLE: Final = _RECORD | word_set("state status full")
"""Words by which a record is asked for as a whole."""


def asks_for_record(terms: StoryTerms) -> bool:
    """Whether a question asks for the whole record of what it names by an identifier."""
    return len(terms.identifiers) == 1 and not _RECORD.isdisjoint(terms.text.split())


def records_of(stories: Stories, features: Features, terms: StoryTerms) -> Array | None:
    """The records of the one thing that a question asks for as a whole, by its identifier.

    A record is what a tool returned that was called with the identifier and says it or only looks,
    then what says it of a tool that is named after what the thing is called. The newest first, and
    those of the session in which it is asked.

    Returns:
        Places; None: something else is asked for, or there is none.
    """
    if len(terms.identifiers) != 1:
        return None
    parts = {stem_in(word) for word in words_in(terms.identifiers[0])}
    left = {
        stem
        for word, stem, asking in zip(terms.words, terms.stems, terms.is_asking, strict=True)
        if stem not in parts and word not in _WHOLE and not asking
    }
    calls = features.roles.call_of
    holds = stories.holds[:, 0]
    called = [stems_of(tool) for tool in stories.tools]
    about = numpy.array([left <= words for words in called] + [False], dtype=bool)[stories.tool]
    by_call = numpy.where(calls >= 0, holds[calls], False)
    looked_up = by_call & only_looks(stories)
    records = features.roles.worked & about & (holds | looked_up)
    if not records.any():
        return None
    first = by_call.astype(int) + stories.in_session
    if not left:  # no tool can be called after it, so what writes for it is no record of it
        first += looked_up
    order = numpy.lexsort((-stories.occurred_ms, -first))
    return numpy.asarray(order[records[order]])


def promises(stories: Stories, features: Features, terms: StoryTerms) -> Array:
    """Which words of agents may promise something to those whom the question names."""
    words = said_by_agents(stories) & (stories.marks > 0)
    if (words & stories.theirs).any():  # whose agent it was that promised says less than to whom
        return numpy.asarray(words & stories.theirs)
    names = [
        place
        for place, word in enumerate(terms.words)
        if word in terms.capitalised and not terms.is_asking[place]
    ]
    if not (features.is_named or names):
        return numpy.asarray(words)
    naming = (stories.counts[:, names] > 0) | stories.labels[:, names]
    about = stories.named if features.is_named else numpy.asarray(naming.all(axis=1))
    return numpy.asarray(words & (stories.theirs | _of_stories(stories, about)))


def happened(stories: Stories, within: Array, order: Array, *, is_all: bool) -> Array:
    """The best events of the time that a question limits its answer to, in their order.

    Args:
        stories: that were found.
        within: those of that time, by whom it names.
        order: places, the best first.
        is_all: it names no topic: of each story some, so that none is told alone.
    """
    inside = order[within[order]]
    if is_all:
        turns: Counter[int] = Counter()
        places = []
        for story in stories.story[inside].tolist():
            places.append(turns[story])
            turns[story] += 1
        inside = inside[numpy.argsort(places, kind="stable")]
    return in_order(stories, inside[:MAX_TOLD])


def asks_for_all(features: Features, stories: Stories, terms: StoryTerms) -> bool:
    """Whether a question about a time names no topic: nothing, or somebody of that time."""
    names = _names(stories, terms) if features.is_named else set()
    return all(
        word in ASKING_WORDS or stem in names
        for word, stem in zip(terms.words, terms.stems, strict=True)
    )


_HAPPENED_TO: Final = re.compile(r"^ (?:and )?what (?:has |had )?(?:happened|went on) (?:to|with) ")


def happened_to(stories: Stories, features: Features, terms: StoryTerms) -> Array:
    """What happened to the one thing that a question names by identifiers, in the order of time.

    Of a call that worked its outcome tells it; empty: something else is asked for, or there is
    nothing.
    """
    if not stories.holds.shape[1] or _HAPPENED_TO.match(terms.text) is None:
        return numpy.zeros(0, dtype=numpy.int64)
    roles = features.roles
    told = (roles.other & (stories.kind != _THOUGHT)) | roles.worked | stories.failed
    told &= features.within
    places = numpy.flatnonzero(told & stories.holds.all(axis=1))
    return in_order(stories, places)[-MAX_TOLD:]


def is_only_case(stories: Stories, features: Features, plan: Plan, best: int) -> bool:
    """Whether the best event is of the only story with what a question without a topic asks for.

    What stands behind a failure, or what failed where nothing does; what worked after a failure.
    """
    behind = (stories.leads_to >= 0) & ~stories.failed
    flags = {
        Operator.CAUSE: behind if behind.any() else stories.failed,
        Operator.LESSON: features.roles.has_fix,
    }.get(plan.operator)
    if flags is None or not flags.any():
        return False
    if (flags & stories.in_session).any():
        flags = flags & stories.in_session
    cases = numpy.unique(stories.story[flags])
    return len(cases) == 1 and bool(cases[0] == stories.story[best])


def changed_again(stories: Stories, best: int) -> Array:
    """What was done to the cause of the failures of a story, later: the same kind of change again.

    A call that went through at the second try got by; what undid the cause is what solved it.
    """
    failures = numpy.flatnonzero(stories.failed & (stories.story == stories.story[best]))
    again: dict[int, None] = {}
    for cause in numpy.flatnonzero(numpy.isin(stories.leads_to, failures)).tolist():
        later = (stories.story == stories.story[cause]) & (stories.type == stories.type[cause])
        later &= (stories.tool == stories.tool[cause]) & ~stories.failed
        later &= stories.occurred_ms > stories.occurred_ms[stories.leads_to[cause]]
        if stories.kind[cause] != MESSAGE:
            again |= dict.fromkeys(numpy.flatnonzero(later).tolist())
    places = numpy.array(list(again), dtype=numpy.int64)
    is_call = stories.kind[places] == CALL
    return numpy.asarray(places[numpy.lexsort((-stories.occurred_ms[places], is_call))])


def done_since(stories: Stories, features: Features, best: int) -> Array:
    """What was done about a failure that nobody tried again, the call of the last act first.

    A refusal may be got over by another tool: that it was tried again then is recorded nowhere.
    Empty: the story of an event has no failure, its failure was retried, or nothing was done.
    """
    roles, nothing = features.roles, numpy.zeros(0, dtype=numpy.int64)
    of_story = stories.story == stories.story[best]
    failures = numpy.flatnonzero(of_story & stories.failed & (stories.tool >= 0))
    if roles.has_fix[best] or not len(failures):
        return nothing
    worked = roles.worked & ~only_looks(stories) & (roles.call_of >= 0)
    done = numpy.flatnonzero(of_story & worked)
    done = done[done > failures[-1]][-1:]
    return numpy.concatenate([roles.call_of[done], done]) if len(done) else nothing


def asks_behind(stories: Stories, terms: StoryTerms, plan: Plan) -> bool:
    """Whether a failure is named by what nothing but the failure says: "the E-COLD on bath B-4".

    What it says itself is no answer then, and what is behind it may be a change elsewhere.
    """
    if plan.operator is not Operator.CAUSE or plan.elsewhere or not terms.identifiers:
        return False
    roles = roles_of(stories)
    parts = {part for identifier in terms.identifiers for part in stems_of_parts(identifier)}
    ways = set(stems_of_ways(ways_of_failing(terms.text)))
    spoken = zip(terms.words, terms.stems, terms.is_asking, strict=True)
    naming = numpy.array([not (asks or one in parts | ways) for _, one, asks in spoken], dtype=bool)
    for place in numpy.flatnonzero(stories.failed & stories.holds.all(axis=1) & ~roles.has_fix):
        others = (stories.story == stories.story[place]) & ~stories.failed
        heard = stories.counts[others].any(axis=0)
        if ((stories.counts[place] > 0) & ~heard & naming).any():
            return True
    return False


def may_be_kept(stories: Stories, plan: Plan, order: Sequence[str]) -> bool:
    """Whether it is asked when something was done, and an agent's words were found first.

    Args:
        stories: that were found.
        plan: of the question.
        order: ids of the events, what answers it best first.
    """
    if plan.operator is not Operator.TIME or plan.ahead or plan.failed:
        return False
    places = [stories.ids.index(one) for one in order[:FOUND_FIRST]]
    return words_of_agent(stories, numpy.array(places, dtype=numpy.int64)) is not None


def beside_labels(stories: Stories, terms: StoryTerms, plan: Plan) -> TimeSpan | None:
    """The time after or before what a question calls by the name of a session or of an agent.

    "What happened after the deploy?": `deploy-agent` did something, and no tool is called so. Of
    several stretches the newest is meant, unless it asks for the first.
    """
    columns = [place for place, asking in enumerate(terms.is_asking) if not asking]
    if plan.operator not in OF_ORDER or plan.failed is not None or not columns:
        return None
    named = stories.labels[:, columns].all(axis=1)
    acts = named & ~stories.failed & numpy.isin(stories.kind, _ACTS)
    if not acts.any() or acts_asked(stories, roles_of(stories), terms, plan).done:
        return None
    done = numpy.flatnonzero(acts)
    at_ms = stories.occurred_ms[done]
    meant = done[(at_ms.argmin() if asks_for_first(terms) else at_ms.argmax())]
    begun_ms = int(stories.occurred_ms[done[stories.story[done] == stories.story[meant]]].min())
    if plan.operator is Operator.BEFORE:
        return TimeSpan(begun_ms - DAY_MS, begun_ms)
    return TimeSpan(begun_ms + 1, begun_ms + DAY_MS)


def with_what_helped(stories: Stories, features: Features, alike: Array) -> Array:
    """Failures that are alike, the best first, then what made it work in their stories."""
    helped = numpy.flatnonzero(features.roles.fixing_call)
    of_story = (helped[stories.story[helped] == story] for story in stories.story[alike].tolist())
    return numpy.array(list(dict.fromkeys([*alike, *chain.from_iterable(of_story)])), "i8")


_MOST_ACTS: Final = 5
_MOST_BESIDE: Final = 5
_SHARED: Final = 2
"""Words of the question that an act and an event of another story hold."""


class _Around(NamedTuple):
    """An act, its call (-1: none), and the direction in which it is looked from it."""

    stories: Stories
    features: Features
    act: int
    call: int
    step: int


def named_moment(stories: Stories, features: Features, plan: Plan) -> tuple[int, ...]:
    """The event that a question names by what it says, where no act is named; of a call its end.

    "What did you do once she had agreed?" names words of somebody, and no verb of a tool.
    """
    anchor = features.anchor
    if plan.operator not in OF_ORDER or plan.failed is not None or anchor is None:
        return ()
    outcomes = numpy.flatnonzero(features.roles.call_of == anchor)
    return (int(outcomes[0]) if len(outcomes) else anchor,)


def around_acts(stories: Stories, features: Features, plan: Plan, named: Iterable[int]) -> Array:
    """What stands around the acts that a question names, or why they were done, the best first.

    Of several acts those of the session in which it is asked come first, then the newest: what is
    nearest to each of them, then what is farther away.

    Args:
        stories: that were found.
        features: of their events.
        plan: of the question.
        named: places of the acts.
    """
    calls = features.roles.call_of
    acts = sorted(
        named,
        key=lambda act: (bool(stories.in_session[act]), int(stories.occurred_ms[act])),
        reverse=True,
    )
    chosen = _BESIDE.get(plan.operator, _itself)
    step = -1 if plan.operator is Operator.BEFORE else 1
    told = [
        chosen(_Around(stories, features, act, call=int(calls[act]), step=step))
        for act in acts[:_MOST_ACTS]
    ]
    if len(told) == 1:
        told = [told[0][:_MOST_BESIDE]]
    in_turn = (
        place
        for turn in zip_longest(*(_pairs(one) for one in told), fillvalue=())
        for pair in turn
        for place in pair
    )
    return numpy.array(list(dict.fromkeys(in_turn)), dtype=numpy.int64)


def _pairs(places: list[int]) -> list[tuple[int, ...]]:
    return [tuple(places[first : first + 2]) for first in range(0, len(places), 2)]


def _next(around: _Around) -> list[int]:
    """The events of the story behind an act, or before it; its own outcome after the nearest.

    Where its story ends with it, what names the same things elsewhere comes next.
    """
    stories, act, step = around.stories, around.act, around.step
    start = around.call if step < 0 and around.call >= 0 else act
    outcome = [act] if around.call >= 0 and step > 0 else []
    last = start + step * (_MOST_BESIDE + 1)
    places = [
        place
        for place in range(start + step, last, step)
        if 0 <= place < len(stories.ids) and stories.story[place] == stories.story[act]
    ]
    if not places:
        away_ms = step * (stories.occurred_ms - stories.occurred_ms[act])
        same = (stories.counts > 0) & (stories.counts[act] > 0)
        near = numpy.flatnonzero(
            (same.sum(axis=1) >= _SHARED) & (away_ms > 0) & (stories.kind != _INSTRUCTION)
        )
        places = near[numpy.argsort(away_ms[near], kind="stable")][:_MOST_BESIDE].tolist()
    return [*places[:1], *outcome, *places[1:]]


def _itself(around: _Around) -> list[int]:
    return [around.act] if around.call < 0 else [around.act, around.call]


def _reasons(around: _Around) -> list[int]:
    """Its call, the last words of a person before it, and the last result about the same."""
    stories, roles = around.stories, around.features.roles
    start = around.call if around.call >= 0 else around.act
    before = range(start - 1, int(roles.starts[around.act]) - 1, -1)
    by_person = [place for place in before if stories.person[place]]
    holding = [place for place in before if stories.holds[place].any()]
    returned = [place for place in before if roles.worked[place]]
    others = [place for place in holding if roles.other[place] or stories.failed[place]]
    about = [place for place in returned if place in holding] or others or returned
    naming = [place for place in by_person if place in holding]
    return [start, *by_person[:1], *about[:1], *naming[-1:]]


_BESIDE: Final[Mapping[Operator, Callable[[_Around], list[int]]]] = {
    Operator.AFTER: _next,
    Operator.BEFORE: _next,
    Operator.CAUSE: _reasons,
}
"""Places beside an act, by operator: of the act, of its call, in which direction."""


class Stating(NamedTuple):
    """Which events can state a value of what a question names, and which are about it at all.

    Attributes:
        states: by event.
        about: by event.
        names_value: the question says which value, in more than words that only ask for one.
    """

    states: Array
    about: Array
    names_value: bool


def stating(stories: Stories, features: Features, terms: StoryTerms) -> Stating | None:
    """Which events can state a value of something that a question names; None: it names nothing.

    A value stands in what somebody said, in a record that was returned or kept, or in what was
    written with success: about what the question names. In the arguments of other calls it may be
    anybody's. Where people speak of the value, what they say next to it may be the value alone.
    """
    entity = [place for place, word in enumerate(terms.words) if _names_thing(word, terms)]
    if not (entity or features.is_named or terms.identifiers):
        entity = [
            place
            for place, word in enumerate(terms.words)
            if f" of the {word} " in terms.text and stories.holding[place] > 0
        ]
    attribute = [place for place in range(len(terms.words)) if place not in entity]
    telling = [place for place in attribute if not terms.is_asking[place]]
    attribute = telling or attribute
    likely = [place for place in attribute if terms.shares[place] >= LIKELY_TOLD]
    if terms.identifiers and not likely:
        return None  # what it is, all of it: "MK-7, which paper is it?"
    if not 0 < len(attribute) <= _MAX_ATTRIBUTE:
        return None
    if not (entity or features.is_named or terms.identifiers):
        return None
    roles = features.roles
    calls = roles.call_of
    counts = stories.counts > 0
    both = counts | numpy.where(calls[:, None] >= 0, counts[calls], False)
    names = both[:, entity]
    about = names.all(axis=1) if entity else numpy.zeros(len(names), dtype=bool)
    if terms.identifiers:
        held = stories.holds | numpy.where(calls[:, None] >= 0, stories.holds[calls], False)
        about |= held.any(axis=1)
    writing = [first_word(name) in WRITE_VERBS for name in stories.tools]
    writes = numpy.array([*writing, False], dtype=bool)[stories.tool]
    says = counts[:, attribute].any(axis=1)
    spoken = _of_stories(stories, roles.says & says) & _of_stories(stories, about | stories.named)
    statement = roles.says & ~stories.asks
    saying = statement & (about | stories.named | stories.theirs)
    returned = roles.worked & (about | stories.theirs)
    record = roles.other & (stories.kind != _THOUGHT) & (about | stories.theirs)
    written = roles.call & writes & about
    stated = says & (saying | returned | record | written)
    return Stating(
        states=stated | (statement & spoken),
        about=about | stories.named | stories.theirs,
        names_value=bool(telling),
    )


def _of_stories(stories: Stories, chosen: Array) -> Array:
    """Which events are of a story with one of those that were chosen."""
    return numpy.isin(stories.story, stories.story[chosen])


def _names_thing(word: str, terms: StoryTerms) -> bool:
    return word in terms.capitalised or any(map(str.isdigit, word))
