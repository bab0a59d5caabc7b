"""What the memory tells to a question: planned, then listed exactly or read from stories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from api.retrieval.durations import session_lasted, sessions_asked
from api.retrieval.fact_meaning import Embed, asks_value, in_words_of_facts
from api.retrieval.fact_words import in_words_of_records
from api.retrieval.intent import PERSONAL
from api.retrieval.outstanding import open_answer, open_asked, otherwise_meant, with_promises
from api.retrieval.person_answers import (
    person_answer,
    preferred,
    profile_of,
    remarked,
    stated_by_fact,
)
from api.retrieval.personal import OF_LINES
from api.retrieval.persons import Asking, PersonAsked, Persons, by_name
from api.retrieval.plan import Operator, Plan, StoryAnswer
from api.retrieval.planning import WHAT_HAPPENED, plan_of
from api.retrieval.story_answer import nearest_first, story_answer
from api.retrieval.story_evidence import asks_behind, beside_labels, may_be_kept
from api.retrieval.story_lists import (
    acts_answer,
    acts_listed,
    is_unheard_of,
    list_answer,
    list_asked,
)
from api.retrieval.story_terms import PROMISED, StoryTerms, stories_asked, story_terms
from pipelines.columns.reads import ColumnReads
from pipelines.columns.records import ListAsked, Stories, StoriesAsked

_MAY_BE_PLAIN: Final = frozenset(
    (
        *(Operator.COUNT, Operator.USERS, Operator.CALLS, Operator.PREFERENCE, Operator.OPEN),
        Operator.PROMISE,
    )
)
"""Operators whose words plain questions of content have, too: "how many orders did we lose?"."""
_SURELY_A_WISH: Final = 0.75
"""How likely a wish is asked for, from which on it is not read as a plain question besides."""
_OF_A_PHRASE: Final = 0.5
"""Of a row that is less sure, "the side of Ann" is no more than a phrase."""
_NOT_PLAIN: Final = frozenset(Operator) - {Operator.SEARCH}


def told(
    reads: ColumnReads,
    asking: Asking,
    *,
    hits: Sequence[str],
    vector: Sequence[float] | None,
    persons: Persons | None = None,
) -> StoryAnswer:
    """The answer, empty where there is none.

    Args:
        reads: of the viewer.
        asking: the question.
        hits: ids of events that the channels found, the best first.
        vector: of the question; None: it has none.
        persons: that questions about a person are answered from; None: stories alone.

    Raises:
        QueryTimeout: there was no answer in time.
        GraphUnavailable: nobody holds the columns.
    """
    plan = planned(reads, asking, vector)
    answer = _told(reads, PersonAsked(asking, plan, hits, vector), persons)
    may_be_plain = plan.guessed and plan.operator in _MAY_BE_PLAIN
    if plan.operator is Operator.VALUE and plan.confidence < _OF_A_PHRASE:
        may_be_plain = not answer.confidence
    if not may_be_plain or asking.intent is not None or persons is None:
        return answer
    unsure = plan.operator is Operator.PREFERENCE and plan.confidence < _SURELY_A_WISH
    if answer.confidence >= persons.threshold and not unsure:
        return answer
    if plan.operator is Operator.PROMISE and answer.confidence > 0:  # it says a word of the topic
        return answer
    plain = planned(reads, asking, vector, besides=_NOT_PLAIN)
    other = _told(reads, PersonAsked(asking, plain, hits, vector), persons)
    return max(answer, other, key=lambda told: told.confidence)


def _told(reads: ColumnReads, question: PersonAsked, persons: Persons | None) -> StoryAnswer:
    """The answer to a question as its plan understands it."""
    as_put = question
    asking, plan, hits, vector = question
    if plan.operator not in PERSONAL:
        embed = None if persons is None else persons.embed
        answer = _by_stories(reads, asking, plan, hits=hits, vector=vector, embed=embed)
        if (meaning := in_words_of_records(asking.query)) is not None:
            asking = asking._replace(query=meaning)
            meant = planned(reads, asking, vector)
            other = _by_stories(reads, asking, meant, hits=hits, vector=vector)
            is_unsaid = answer.decides and answer.value is None
            is_surer = other.confidence > answer.confidence
            if is_unsaid or (is_surer and (answer.value is None or other.value is not None)):
                answer, question = other, PersonAsked(asking, meant, hits, vector)
        if persons is None:
            return answer
        answer = _of_persons(persons, question, stated_by_fact(persons, as_put, answer))
        asks_fact = answer.value is None or plan.operator is Operator.ACTOR
        if asks_fact and asks_value(plan) is not None:
            named = by_name(persons, as_put)
            other = answer if named is None else _told(reads, named, persons)
            if answer.value is None and other.value is not None:
                return other if other.confidence >= persons.threshold else answer
            return max(other, answer, key=lambda told: told.confidence)
        return answer
    if plan.operator is Operator.PROFILE:
        answer = _by_stories(reads, asking, plan, hits=hits, vector=vector)
        is_limited = asking.within is not None  # what is known besides is of any time and session
        return answer if persons is None or is_limited else profile_of(persons, question, answer)
    personal = None if persons is None else person_answer(persons, question)
    if personal is not None:
        return personal
    plan = planned(reads, asking._replace(intent=None), vector, besides=OF_LINES)
    answer = _by_stories(reads, asking, plan, hits=hits, vector=vector)
    question = question._replace(plan=plan)
    if persons is None:
        return answer
    return _of_persons(persons, question, stated_by_fact(persons, question, answer))


def _of_persons(persons: Persons, question: PersonAsked, answer: StoryAnswer) -> StoryAnswer:
    """What stories told, in the order of what is known of whom it is asked about."""
    if question.plan.operator is Operator.PREFERENCE:
        return preferred(persons, question, answer)
    return remarked(persons, question, answer)


def _by_stories(
    reads: ColumnReads,
    asking: Asking,
    plan: Plan,
    *,
    hits: Sequence[str],
    vector: Sequence[float] | None,
    embed: Embed | None = None,
) -> StoryAnswer:
    """The answer that is listed, or read from stories."""
    if plan.operator is Operator.OPEN:
        wished = open_asked(plan)
        answer = open_answer(asking.query, plan, wished, reads.open_things(wished))
        if answer is not None and (wished.stems or answer.type == "count"):
            return answer
        promised = _by_stories(reads, asking, otherwise_meant(plan), hits=hits, vector=vector)
        return promised if answer is None else with_promises(answer, promised)
    terms = story_terms(asking.query, plan)
    acts = acts_listed(asking.query, plan, terms, asking.session_id)
    exact = _read_off(reads, asking, plan, terms, acts=acts)
    if exact is not None:
        return exact
    question = stories_asked(terms, plan, hits=hits, vector=vector, session_id=asking.session_id)
    stories = reads.stories(question)
    if asks_behind(stories, terms, plan):
        plan = plan._replace(elsewhere=True)
        stories = reads.stories(question._replace(by_change=True))
    if (span := beside_labels(stories, terms, plan)) is not None:
        of_time = plan._replace(
            operator=Operator.WINDOW, topic=WHAT_HAPPENED, timeless=WHAT_HAPPENED, spans=(span,)
        )
        asking = asking._replace(query=WHAT_HAPPENED)
        answer = _by_stories(reads, asking, of_time, hits=hits, vector=vector)
        return nearest_first(answer, is_before=plan.operator is Operator.BEFORE)
    answer = _read(reads, asking, question, stories, terms=terms, plan=plan)
    if embed is not None and (answer.value is None or plan.operator is Operator.ACTOR):
        for meant in in_words_of_facts(reads, stories, terms, plan, answer=answer, embed=embed):
            put = asking._replace(query=meant.query)
            other = _by_stories(reads, put, meant.planned(plan), hits=hits, vector=vector)
            if meant.answers(other, answer, stories, terms):
                return meant.limited(other)
    is_blank = plan.operator is Operator.SEARCH and not terms.stems
    is_unheard = acts and answer.decides and is_unheard_of(stories, terms, plan, answer.order[0])
    if is_blank or is_unheard:
        answer = answer._replace(confidence=0.0)
    return answer


def _read(
    reads: ColumnReads,
    asking: Asking,
    question: StoriesAsked,
    stories: Stories,
    *,
    terms: StoryTerms,
    plan: Plan,
) -> StoryAnswer:
    """The answer of stories; of what an agent said would be done, also by what kept that."""
    answer = story_answer(stories, terms, plan, now_ms=asking.now_ms, zone=asking.zone)
    if not answer.order or not may_be_kept(stories, plan, answer.order):
        return answer
    stories = reads.stories(question._replace(promising=PROMISED))
    return story_answer(stories, terms, plan, now_ms=asking.now_ms, zone=asking.zone)


def _read_off(
    reads: ColumnReads, asking: Asking, plan: Plan, terms: StoryTerms, *, acts: Sequence[ListAsked]
) -> StoryAnswer | None:
    """The answer that needs no ranking; None: there is none."""
    for sort in sessions_asked(plan, terms, asking.session_id) if plan.lasting else ():
        if (listed := reads.listed(sort)).total:
            return session_lasted(plan, listed, reads.listed(sort._replace(newest_first=True)))
    wanted = list_asked(asking.query, plan, terms, asking.session_id)
    if wanted is not None and (listed := reads.listed(wanted)).total:
        return list_answer(asking.query, plan, listed)
    for sort in acts:
        if (listed := reads.listed(sort)).total:
            return acts_answer(asking.query, plan, listed)
    return None


def planned(
    reads: ColumnReads,
    asking: Asking,
    vector: Sequence[float] | None = None,
    *,
    besides: frozenset[Operator] = frozenset(),
) -> Plan:
    """The plan; times of no day are of the newest day of which the viewer sees something.

    Args:
        reads: of the viewer.
        asking: the question.
        vector: of it; None: it has none.
        besides: operators that are not meant.
    """
    query, now_ms, zone = asking.query, asking.now_ms, asking.zone
    meaning = None if vector is None else tuple(vector)
    plan = plan_of(query, now_ms, zone, besides=besides, vector=meaning)
    if plan.needs_day and (last_ms := reads.last_ms(now_ms + 1)) is not None:
        plan = plan_of(query, now_ms, zone, day_ms=last_ms, besides=besides, vector=meaning)
    if asking.within is not None:
        plan = plan.limited(asking.within.since_ms, asking.within.until_ms)
    meant = next((one for one, intent in PERSONAL.items() if intent == asking.intent), None)
    return plan if meant is None else plan._replace(operator=meant, confidence=1.0)
