"""What is answered about a person: what is known of them, or what stories told, ordered by that.

A ranking is learned from questions of every kind. What somebody wishes, and what they told of
themselves, is known without it: the one is a fact, the other is said and nothing is done upon it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy

from api.retrieval.fact_words import WISHES, asked_as, in_words_of_records, question_stems, says_all
from api.retrieval.narrative import one_line
from api.retrieval.personal import (
    Episode,
    Known,
    Line,
    Topic,
    episode_of,
    heeded,
    lines_answer,
    others_lines,
    practised,
    profile_lines,
    telling_of,
    wish_lines,
)
from api.retrieval.persons import (
    WHO_ASKS,
    PersonAsked,
    Persons,
    is_of_who_asks,
    known_of,
    stories_of_person,
    topic_of,
)
from api.retrieval.plan import Operator, Plan, StoryAnswer
from api.retrieval.profiles import Proofs, messages_of, profile_order, remarks_in
from api.retrieval.story_answer import story_answer
from api.retrieval.story_evidence import asks_for_record
from api.retrieval.story_terms import OF_FACTS, story_terms
from api.retrieval.summaries import lessons_in
from api.retrieval.wish_answer import Stated, asked_of, stated, wished
from enrichment.names import canonical_name
from enrichment.stems import stem_in, stems_of, telling_stems_of, words_in
from pipelines.columns.reads import Wanted
from pipelines.columns.records import OpenAsked, Stories
from pipelines.graph.reader import GraphNode, GraphRead
from pipelines.graph.reads.events import EventReads
from pipelines.graph.reads.walk import CauseReads
from pipelines.graph.rows import FactRow
from projections.schema import EDGES, MAX_WEIGHT

MAX_OPEN: Final = 3
MAX_NAMES: Final = 3
"""By which open things are looked for."""
MAX_LESSONS: Final = 3
NO_TOPIC: Final = Topic(frozenset(), {}, dict.fromkeys(EDGES, MAX_WEIGHT))
"""All that is known of somebody is asked for."""
_ASKS_OTHERWISE: Final = re.compile(
    r"^\W*(?:why|when|since|until|how\s+(?!old|do(?:es)?\s+(?:\S+\s+){1,2}(?:like|prefer)\b)|is|are|does|do|did|can|am|has|have)\b"
    r"|\b(?:not|n't|never|before|used|did|had|former|previous|said|say|told|tell)\b"
    r"|n['\u2019]t\b",
    re.IGNORECASE,
)
"""What a fact that holds does not answer by what it leads to."""
_POSSESSIVE: Final = re.compile(r"['\u2019]s\b")
_ASKS_SEVERAL: Final = re.compile(r"(?<!\w)(?:all|are|every|each|which|list)(?!\w)", re.IGNORECASE)
_OF_WHO_ASKS: Final = frozenset(map(stem_in, WHO_ASKS))
_ASKS_WHO: Final = re.compile(r"^\W*who\s+(?:is|are|was|were)\b", re.IGNORECASE)
SAID_ENOUGH: Final = 0.5
"""Share of the words of a question by which something is known to be what it asks for."""
_MEANT_ENOUGH: Final = 0.35
"""So much a remark is like a question for a value that is known otherwise; below, it is about
something else."""
_BY_THE_WAY: Final = frozenset(
    (Operator.SEARCH, Operator.VALUE, Operator.ACTOR, Operator.CAUSE, Operator.HOW_DOES)
)
"""Operators that may ask for what somebody told of themselves."""


def person_answer(persons: Persons, question: PersonAsked) -> StoryAnswer | None:
    """The answer; None: nobody is meant who is known, or nothing of it is known of them."""
    person = known_of(persons, question)
    if person is None:
        return None
    topic = topic_of(persons, question, person)
    if question.plan.operator is Operator.HOW_DOES:
        episode = _once(persons, question, person, topic)
        lines = practised(person, topic, episode)
        if episode is not None:
            lines += persons.graph(lambda graph: _told(graph, persons, episode))
    else:
        lines = [*heeded(person, topic), *_open(persons, question, person)]
    return lines_answer(question.plan, lines) if lines else None


def _once(persons: Persons, question: PersonAsked, person: Known, topic: Topic) -> Episode | None:
    """The newest episode that shows it and worked."""
    terms = story_terms(question.asking.query, question.plan)
    stories = stories_of_person(persons, question, terms, question.plan)
    return episode_of(stories, terms, person=person, wanted=topic.stems)


def _told(graph: GraphRead, persons: Persons, episode: Episode) -> list[Line]:
    """The steps of an episode, and what was learned in it."""
    events = EventReads(graph, persons.scope).events(episode.steps)
    steps = [events[step] for step in episode.steps if step in events]
    lines = [
        Line(f"step {number}: {_words(one)}", one.node_id) for number, one in enumerate(steps, 1)
    ]
    sessions = dict.fromkeys(step.properties["session_id"] for step in steps)
    for learned in lessons_in(CauseReads(graph, persons.scope).gists(list(sessions))):
        proofs = learned.lesson.solved_event_ids
        if episode.event_ids.issuperset(proofs) and len(lines) < len(steps) + MAX_LESSONS:
            lines.append(Line(f"learned: {one_line(learned.lesson.text)}", proofs[-1]))
    return lines


def _words(event: GraphNode) -> str:
    values = event.properties
    return one_line(values.get("summary") or values.get("tool_name") or values["event_type"])


def _open(persons: Persons, question: PersonAsked, person: Known) -> list[Line]:
    """What was opened for the person and is not closed, and what was promised and is not kept."""
    opened = dict.fromkeys(
        own_id
        for name in sorted(person.names)[:MAX_NAMES]
        for own_id in persons.reads.open_things(_opened_for(name)).ids
    )
    plan = Plan(Operator.PROMISE, confidence=1.0, topic=person.name)
    terms = story_terms(person.name, plan)
    stories = stories_of_person(persons, question._replace(hits=(), vector=None), terms, plan)
    promise = story_answer(
        stories, terms, plan, now_ms=question.asking.now_ms, zone=question.asking.zone
    )
    promised = promise.evidence[:1] if promise.confidence >= persons.threshold else []
    ids = list(dict.fromkeys([*promised, *list(opened)[-MAX_OPEN:]]))

    def ask(graph: GraphRead) -> list[Line]:
        events = EventReads(graph, persons.scope).events(ids)
        return [
            Line(f"open: {_words(events[own_id])}", own_id) for own_id in ids if own_id in events
        ]

    return persons.graph(ask) if ids else []


def _opened_for(name: str) -> OpenAsked:
    return OpenAsked(tuple(sorted(telling_stems_of(name))))


def profile_of(persons: Persons, question: PersonAsked, answer: StoryAnswer) -> StoryAnswer:
    """A profile that stories told, with what is derived of the person."""
    is_told = isinstance(answer.value, list)
    terms = story_terms(question.asking.query, question.plan)
    person = known_of(persons, question)
    if person is None:
        return answer
    if not (is_told or question.asking.intent or terms.identifiers):
        told = _of_talk(persons, question, answer, person)
        is_all = frozenset(terms.stems) <= _stems_of_names(person) | _OF_WHO_ASKS
        lines = profile_lines(person, NO_TOPIC) if is_all else []
        if lines and told.confidence < persons.threshold:
            return lines_answer(told.plan, lines)
        return _with_lines(told, lines) if lines and is_of_who_asks(question.asking.query) else told
    is_called_so = not person.names.isdisjoint(map(canonical_name, terms.identifiers))
    if not (is_told or question.asking.intent or is_called_so):
        return answer  # records of something else
    lines = profile_lines(person, topic_of(persons, question, person))
    if not lines:
        return answer
    if not (is_told or is_called_so):
        return lines_answer(answer.plan, lines)
    answer = _valued(answer, lines)
    if not is_told or asks_for_record(terms):
        return answer  # the record of them stays in front
    return _ordered(answer, _in_profile(persons, question, answer, person))


def _of_talk(
    persons: Persons, question: PersonAsked, answer: StoryAnswer, person: Known
) -> StoryAnswer:
    """Who somebody is to others, where people talk, or where that is what is asked.

    Else what was done by and for them.
    """
    asks_who = _ASKS_WHO.match(question.asking.query) is not None
    lines = others_lines(person) if asks_who or not answer.decides else []
    if not lines:
        return answer
    lines += profile_lines(person._replace(of_others=()), NO_TOPIC)
    answer = answer._replace(confidence=max(answer.confidence, persons.threshold))
    if answer.decides:
        return _with_lines(answer, lines)
    return _valued(answer, lines)


def _valued(answer: StoryAnswer, lines: Sequence[Line]) -> StoryAnswer:
    """The answer with lines for its value, each proved by its event."""
    return answer._replace(
        value=[line.text for line in lines], evidence=[line.event_id for line in lines]
    )


def _with_lines(answer: StoryAnswer, lines: Sequence[Line]) -> StoryAnswer:
    """The same, with the events that prove them in front."""
    front = (line.event_id for line in lines)
    return _ordered(_valued(answer, lines), list(dict.fromkeys([*front, *answer.order])))


def stated_by_fact(persons: Persons, question: PersonAsked, answer: StoryAnswer) -> StoryAnswer:
    """What a fact of whom it is asked about says, where it says all of it and no act answers.

    What somebody told of themselves is meant before what was done, where they ask about themselves:
    "who is my deputy?" asks for no act, and never for who asks. What a person has corrected
    answers whatever else does.
    """
    query = question.asking.query
    of_who_asks = is_of_who_asks(query)
    is_known = answer.decides and answer.confidence >= persons.threshold and not of_who_asks
    has_actor = of_who_asks and question.plan.operator is Operator.ACTOR
    is_told = is_known or (answer.value is not None and not has_actor)
    if _ASKS_OTHERWISE.search(query) or (is_told and question.plan.operator not in OF_FACTS):
        return answer
    person = known_of(persons, question)
    if person is None:
        return answer
    best = _saying_all(person, query)
    if is_told:  # a person's own word stands above what was told and done
        best = [fact for fact in best if fact.properties.get("source") == "user_edit"]
        if not best:
            return answer
    if not best:
        is_asker = isinstance(answer.value, str) and canonical_name(answer.value) in person.names
        return answer._replace(value=None) if has_actor and is_asker else answer
    best.sort(key=lambda fact: -fact.properties["valid_from"])
    if not _ASKS_SEVERAL.search(query):
        last = best[0].properties["event_id"]
        best = [
            fact for fact in best if not _is_written(fact) or fact.properties["event_id"] == last
        ]
    front = list(dict.fromkeys(fact.properties["event_id"] for fact in best))
    if answer.decides:
        shown = [one for one in front if one in answer.order]
        answer = _ordered(answer, list(dict.fromkeys([*shown, *answer.order])))
    return answer._replace(
        confidence=max(answer.confidence, persons.threshold),
        value=", ".join(dict.fromkeys(fact.target.name for fact in best)),
        evidence=front,
    )


def _saying_all(person: Known, query: str) -> list[FactRow]:
    """The facts of a person that say all a question asks for, and more than it says."""
    names = _stems_of_names(person)
    versions = [query, in_words_of_records(query) or query]
    stems = [question_stems(version) - names for version in versions]
    return [
        fact
        for fact in person.facts
        if any(says_all(stem, fact.properties["relation"], fact.target.name) for stem in stems)
        and not stems_of(fact.target.name) <= stems[0]  # it says more than the question
    ]


def _is_written(fact: FactRow) -> bool:
    """Whether a tool wrote it: of several values that it wrote the last one is meant."""
    return bool(fact.properties.get("source") == "system")


def _ordered(answer: StoryAnswer, order: Sequence[str]) -> StoryAnswer:
    """The answer with its events in another order, worth what the places are worth."""
    worth = sorted((answer.relevance.get(one, 0.0) for one in order), reverse=True)
    return answer._replace(order=list(order), relevance=dict(zip(order, worth, strict=True)))


def _in_profile(
    persons: Persons,
    question: PersonAsked,
    answer: StoryAnswer,
    person: Known,
) -> list[str]:
    """The events that tell of a person, in their order."""
    newest = sorted(telling_of(person), key=lambda fact: -fact.properties["valid_from"])
    ids = list(dict.fromkeys(fact.properties["event_id"] for fact in newest))
    wishes = {
        fact.properties["event_id"] for fact in newest if fact.properties["relation"] in WISHES
    }
    proofs = Proofs(
        wishes=[own_id for own_id in ids if own_id in wishes and own_id not in person.former],
        former=[own_id for own_id in ids if own_id in person.former],
        facts=[own_id for own_id in ids if own_id not in wishes],
    )
    stories = _told_of(persons, question, [*ids, *answer.order])
    return profile_order(stories, answer.order, proofs, _importances(persons, stories))


def _told_of(persons: Persons, question: PersonAsked, hits: Sequence[str]) -> Stories:
    terms = story_terms(question.asking.query, question.plan)
    hits = list(dict.fromkeys(hits))
    return stories_of_person(persons, question._replace(hits=hits), terms, question.plan)


def _importances(persons: Persons, stories: Stories) -> dict[str, float]:
    """Of what persons say, by id."""
    wanted = Wanted((), messages_of(stories), (), 0, stems=(), vector=None)
    standings = persons.reads.standings(wanted)
    return dict(zip(standings.ids, standings.importance.tolist(), strict=True))


def preferred(persons: Persons, question: PersonAsked, answer: StoryAnswer) -> StoryAnswer:
    """A wish that stories told, or the one that is asked for of all that a person stated."""
    person = known_of(persons, question)
    if person is None or not answer.order or answer.value is not None:
        return answer
    wishes = stated(person.facts)
    terms = story_terms(question.asking.query, question.plan)
    names = _stems_of_names(person)
    if wishes and frozenset(terms.stems) <= names | _OF_WHO_ASKS | asked_as(WISHES[0]):
        return lines_answer(question.plan, wish_lines(person))
    wishes = _with_remarks(persons, question, answer, wishes)
    ranked = wished(wishes, persons.reads, terms, names=names, vector=question.vector)
    if not ranked:
        return answer
    best, share = wishes[ranked[0].place], ranked[0].said
    if not (best.is_known or share):
        return answer
    front = best.event_id
    former = [wishes[one.place].event_id for one in ranked if one.is_former]
    behind = [one for one in dict.fromkeys(former) if one != front]
    others = [one for one in answer.order if one != front and one not in behind]
    confidence = answer.confidence
    if share >= SAID_ENOUGH and best.is_known:
        confidence = max(confidence, persons.threshold)
    ordered = _ordered(answer, [front, *others[:1], *behind, *others[1:]])
    worth = {**ordered.relevance, front: max(confidence, *ordered.relevance.values())}
    return ordered._replace(confidence=confidence, relevance=worth, evidence=[front])


def _with_remarks(
    persons: Persons, question: PersonAsked, answer: StoryAnswer, wishes: Sequence[Stated]
) -> list[Stated]:
    """Wishes, and what the person remarked, which may be one that is not known."""
    stories = _told_of(persons, question, answer.order)
    wish_ids = {wish.event_id for wish in wishes}
    at_ms = {
        stories.ids[place]: int(stories.occurred_ms[place])
        for place in numpy.flatnonzero(stories.named).tolist()
    }
    remarks = remarks_in(stories, [*at_ms], _importances(persons, stories), besides=wish_ids)
    told = (Stated("", own_id, at_ms[own_id], is_anew=False, is_known=False) for own_id in remarks)
    return [*wishes, *told]


def _as_they_say_it(query: str, names: frozenset[str]) -> str:
    """A question as the person would put it of themselves: "Am I overworked?" for "Is Ann Lee …".

    What people tell by the way they tell in the first person, and a name leads a vector to
    whatever has that name.
    """
    words: list[str] = []
    for word in query.split():
        if not _is_name(word, names):
            words.append(word)
            continue
        spoken = "my" if _POSSESSIVE.search(word) else "I"
        if words and words[-1].rstrip(_ENDS) == "I":
            words.pop()
        words.append(spoken + word[len(word.rstrip(_ENDS)) :])
    text = " ".join(words)
    for verb, of_mine in _OF_MINE:
        text = verb.sub(of_mine, text)
    return text


_ENDS: Final = ".,;:?!"
_OF_MINE: Final = tuple(
    (re.compile(rf"(?<!\w){verb} I(?!\w)", re.IGNORECASE), f"{spoken} I")
    for verb, spoken in (("is", "am"), ("does", "do"), ("has", "have"))
)
"""Verbs before a name, as they are before "I"."""


def _is_name(word: str, names: frozenset[str]) -> bool:
    parts = words_in(_POSSESSIVE.sub("", word).lower())
    return bool(parts) and names.issuperset(map(stem_in, parts))


def _stems_of_names(person: Known) -> frozenset[str]:
    return frozenset(stem_in(word) for name in person.names for word in words_in(name))


def remarked(persons: Persons, question: PersonAsked, answer: StoryAnswer) -> StoryAnswer:
    """What somebody told by the way, where nothing says what is asked of them.

    Words of a question that nobody used cannot be searched for; of the few things that a person
    told of themselves the one that means the most of it is the likeliest.
    """
    plan = question.plan
    is_known = answer.confidence >= persons.threshold
    if plan.operator not in _BY_THE_WAY or not answer.decides:
        return answer  # where people only talk, all of it is told by the way
    if answer.value is not None and (is_known or plan.operator is not Operator.ACTOR):
        return answer  # who said what is found does it by the way, too
    if plan.failed:
        return answer  # nobody tells by the way what an act of ours failed of
    terms = story_terms(question.asking.query, plan)
    if terms.identifiers or not terms.capitalised:
        return answer
    person = known_of(persons, question)
    if person is None:
        return answer
    stories = _told_of(persons, question, answer.order)
    theirs = {
        stories.ids[place] for place in numpy.flatnonzero(stories.theirs | stories.named).tolist()
    }
    order = [one for one in answer.order if one in theirs]
    remarks = remarks_in(stories, order, _importances(persons, stories))
    if not remarks:
        return answer
    first = answer.order[0]
    ids = list(dict.fromkeys([first, *remarks]))
    told = [Stated("", own_id, from_ms=0, is_anew=False) for own_id in ids]
    names = _stems_of_names(person)
    vector = persons.embed(_as_they_say_it(question.asking.query, names)) or question.vector
    shares, near = asked_of(told, persons.reads, terms, names=names, vector=vector)
    match = dict(zip(ids, map(sum, zip(shares, near, strict=True)), strict=True))
    if first not in remarks and shares[0] >= SAID_ENOUGH:
        return answer
    remarks.sort(key=lambda event_id: -match[event_id])
    is_told = shares[0] > 0 or (first in theirs and first in messages_of(stories))
    if is_told and match[first] >= match[remarks[0]]:
        return answer
    if plan.operator is Operator.VALUE and is_known and match[remarks[0]] < _MEANT_ENOUGH:
        return answer
    return _ordered(answer, list(dict.fromkeys([*remarks, *answer.order])))._replace(
        value=None, evidence=remarks[:1]
    )
