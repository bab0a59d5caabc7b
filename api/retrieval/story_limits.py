"""What alone can answer an operator: calls, failures, a time, the words of somebody. Pure.

A ranking is learned; this is not. "Which calls failed?" is answered by failures, whatever else says
the same words, and "what did the support agent do?" by what that agent did.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy

from api.retrieval.fact_words import (
    WISHES,
    asked_as,
    asked_share,
    has_words,
    is_of_noun,
    is_place_asked,
    question_stems,
)
from api.retrieval.plan import VALUES, Operator, Plan
from api.retrieval.story_roles import Roles, said_by_agents
from api.retrieval.story_terms import OF_FACTS, StoryTerms
from enrichment.stems import stem_in, stems_of
from pipelines.columns.records import Array, Stories, StoryFact

_OF_AGENTS: Final = frozenset(
    (
        *(Operator.CALLS, Operator.FAILURES, Operator.COUNT, Operator.WINDOW, Operator.LAST),
        *(Operator.FIRST, Operator.SEARCH, Operator.LESSON, Operator.SUMMARY),
    )
)
"""Limited to what was done by the agent that the question names."""
_OF_USERS: Final = frozenset((Operator.CALLS, Operator.FAILURES, Operator.COUNT, Operator.PROMISE))
"""Limited to events of the user whom the question names."""
_OF_SESSIONS: Final = frozenset(
    (
        *(Operator.CALLS, Operator.FAILURES, Operator.COUNT, Operator.SUMMARY, Operator.WINDOW),
        *(Operator.CAUSE, Operator.LESSON),
    )
)
"""Limited to the session that the question names."""
ORDER: Final = {Operator.FIRST: 0, Operator.LAST: -1}
"""Operators that ask for a place in time, and which place that is."""


SAYING: Final = re.compile(
    r"(?<!\w)(?:ask|want|request|say|said|tell|told|writ|wrote|mention|complain|report|inquir|"
    r"enquir|bring|brought|contact|call|need|wish|messag|question|wonder|rais|promis|offer|"
    r"answer|repl|explain|confirm|recommend|suggest|advis|inform|warn|apolog|announc|remind)\w*",
    re.IGNORECASE,
)
"""What somebody does who puts a question; whoever asks who did it, did nothing else."""


_DID_I: Final = re.compile(
    r"^\W*what\s+(?:did|have|had)\s+i\s+(?:say|said|tell|told|ask|asked|mention|mentioned|"
    r"wr(?:ite|itten)|want|wanted|report|reported|decide|decided|promised?)(?!\w)",
    re.IGNORECASE,
)
"""Whoever asks is a person: what agents did is none of it."""


def within_limits(
    stories: Stories,
    roles: Roles,
    plan: Plan,
    facts: Sequence[StoryFact],
    *,
    is_bare: bool,
) -> Array:
    """Which events can answer, as far as that can be told; all, where none could.

    Each limit holds only where something is left by it: a name may be meant otherwise.

    Args:
        stories: that were found.
        roles: of their events.
        plan: of the question.
        facts: that it asks for.
        is_bare: it names somebody and no topic, so that time alone decides what was said last.
    """
    operator = plan.operator
    within = numpy.ones(len(stories.ids), dtype=bool)
    saying = {fact.event_id for fact in facts}
    by_fact = [own_id in saying for own_id in stories.ids] if facts else within
    for applies, limit in (
        (bool(facts), numpy.array(by_fact, dtype=bool)),
        (operator is Operator.WINDOW, in_time(stories, plan)),
        (operator in VALUES, ~stories.asks),
        (operator is Operator.ACTOR and not SAYING.search(plan.timeless), ~stories.asks),
        (operator is Operator.CALLS, roles.call | roles.failed_call),
        (operator is Operator.FAILURES, stories.failed),
        (operator in (Operator.COUNT, Operator.USERS) and plan.failed is True, stories.failed),
        (operator is Operator.SIMILAR and plan.failed is not False, stories.failed),
        (operator in ORDER, stories.named & roles.says),
        (operator is Operator.SEARCH and not _is_of_words(stories, plan), ~stories.asks),
        (operator is Operator.SEARCH and bool(_DID_I.match(plan.timeless)), stories.person),
        (operator is Operator.PROMISE, said_by_agents(stories)),
        (operator is Operator.PROMISE, stories.marks > 0),
        (operator is Operator.PROMISE, ~stories.fulfilled),
        (operator in _OF_AGENTS, stories.acted),
        (operator in _OF_USERS, stories.theirs),
        (operator in _OF_SESSIONS, stories.in_session),
    ):
        if applies and (within & limit).any():
            within &= limit
    if is_bare and operator in ORDER:
        places = numpy.flatnonzero(within)
        order = numpy.argsort(stories.occurred_ms[places], kind="stable")
        within[numpy.delete(places, order[ORDER[operator]])] = False
    return within


def _is_of_words(stories: Stories, plan: Plan) -> bool:
    """Whether what somebody said may be asked for itself, of whom it names or by what they did."""
    return bool(stories.named.any()) or SAYING.search(plan.timeless) is not None


def in_time(stories: Stories, plan: Plan) -> Array:
    """Which events occurred in the times that a plan limits its answer to; none without such."""
    at = stories.occurred_ms
    inside = [(at >= span.first_ms) & (at < span.end_ms) for span in plan.spans]
    return numpy.asarray(numpy.any([numpy.zeros(len(at), dtype=bool), *inside], axis=0))


MAX_PROFILE: Final = 20
"""Facts of somebody of whom all is asked."""
SURE: Final = 0.75
"""Of the words of a fact's name and relation, so much is asked for: less may be another fact."""


def facts_asked(
    facts: Sequence[StoryFact], terms: StoryTerms, plan: Plan, at_ms: int
) -> list[StoryFact]:
    """Those that are asked for, the best first: what holds, or what held last before that.

    Args:
        facts: about what the question names.
        terms: of the question.
        plan: of it.
        at_ms: the moment that is asked about.
    """
    if plan.operator not in OF_FACTS:
        return []
    before = plan.operator is Operator.VALUE_BEFORE
    stems = question_stems(plan.timeless) - (_FORMERLY if before else frozenset())
    chosen = _last_ended(facts, at_ms) if before else [fact for fact in facts if fact.holds(at_ms)]
    chosen = [one for one in chosen if is_of_noun(plan.timeless, one.relation, one.value)]
    worth = {fact: _worth(fact, stems, terms.text) for fact in chosen}
    sure = [fact for fact in worth if worth[fact] >= SURE] or _only(chosen, stems)
    return sorted(sure, key=lambda fact: (-worth[fact], -fact.from_ms, fact.event_id))


_FORMERLY: Final = frozenset(
    map(stem_in, ("before", "previously", "formerly", "previous", "former"))
)


def _only(facts: Sequence[StoryFact], stems: frozenset[str]) -> list[StoryFact]:
    """The facts that have all words of a question, if all are of one relation of one thing.

    "What is the timeout?" names `payments.gateway.timeout_s` where nothing else is a timeout.
    """
    holding = [
        fact for fact in facts if stems and stems <= stems_of(fact.source) | asked_as(fact.relation)
    ]
    return holding if len({(fact.source, fact.relation) for fact in holding}) == 1 else []


def facts_of_named(
    facts: Sequence[StoryFact], terms: StoryTerms, plan: Plan, at_ms: int
) -> list[StoryFact]:
    """The facts that hold of what a question names, where it asks for all that is known of it."""
    if plan.operator is not Operator.PROFILE:
        return []
    stems = question_stems(terms.text)
    held = [fact for fact in facts if fact.holds(at_ms) and stems_of(fact.source) <= stems]
    held.sort(key=lambda fact: (-fact.from_ms, fact.relation, fact.value))
    return held[:MAX_PROFILE]


def _last_ended(facts: Sequence[StoryFact], at_ms: int) -> list[StoryFact]:
    """Of each relation of each thing the fact that ended last before the moment.

    Where values stand side by side, as tools add them, none ends: the newest but one was there
    before the newest. Wishes do not follow each other.
    """
    ended: dict[tuple[str, str], tuple[int, int, StoryFact]] = {}
    beside: dict[tuple[str, str], list[StoryFact]] = {}
    for fact in facts:
        key = fact.source, fact.relation
        if fact.until_ms is not None and fact.until_ms <= at_ms:
            last = fact.until_ms, fact.from_ms, fact
            ended[key] = max(ended.get(key, last), last)
        elif fact.holds(at_ms) and fact.relation not in WISHES:
            beside.setdefault(key, []).append(fact)
    told = [fact for *_, fact in ended.values()]
    for key, held in beside.items():
        newest_ms = max(fact.from_ms for fact in held)
        older = [fact for fact in held if fact.from_ms < newest_ms]
        if older and key not in ended:
            told.append(max(older, key=lambda fact: (fact.from_ms, fact.value)))
    return told


def _worth(fact: StoryFact, stems: frozenset[str], text: str) -> float:
    """How much of a fact's name and of its relation is asked for, 0 to 1."""
    source = stems_of(fact.source)
    named = len(source & stems) / len(source) if source else 0.0
    if not has_words(fact.relation):  # what is called so has one value
        return named
    if is_place_asked(text, fact.relation) and len(stems - source - stems_of(fact.value)) <= 1:
        return named * SURE
    return named * asked_share(stems, fact.relation, (fact.source, fact.value))
