"""From the stories that were found to an answer: the order of events, a value, and how sure. Pure.

The ranker orders events; what an operator can say exactly (how often, which users, on what day, who
said something last) is read off the events that it puts first. The judge says whether the memory
knows what is asked for; nothing is an answer below a threshold, and what is nearest is shown all
the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any, Final, NamedTuple

import numpy

from api.retrieval.durations import duration_text, from_type_to_type, stretch
from api.retrieval.plan import Operator, Plan
from api.retrieval.story_acts import OF_ACTS, is_around
from api.retrieval.story_evidence import (
    MAX_TOLD,
    around_acts,
    asks_for_all,
    asks_for_record,
    changed_again,
    happened,
    happened_to,
    is_only_case,
    promises,
    recorded,
    records_of,
    stating,
    with_what_helped,
)
from api.retrieval.story_features import Features, features_of
from api.retrieval.story_focus import (
    actor_of,
    decision_meant,
    failure_meant,
    is_not_done,
    knows_named,
    reason_stated,
    reply_to,
    told_by_agent,
    what_worked_first,
)
from api.retrieval.story_limits import ORDER, in_time
from api.retrieval.story_ranker import confidence_of, explained, story_scores
from api.retrieval.story_result import READ_OFF, AnswerType, StoryAnswer
from api.retrieval.story_terms import COUNTED, VALUES, StoryTerms
from enrichment.stems import stems_of
from enrichment.vocabulary import relation_words
from pipelines.columns.records import MESSAGE, Array, Stories

ACTS_SHARE: Final = 0.05
"""Share of tool calls and their outcomes among the events from which on they tell stories of acts:
a conversation of people is ranked as one (`relevance`)."""
SCORE_SPREAD: Final = 3.0
"""Score between an event that answers and one that is worth 1/e of it."""
MAX_EXPLAINED: Final = 20
_ALIKE: Final = 0.75
"""Share, by rarity, of the words of the best event that another one of the same kind holds."""
_ALIKE_ATTEMPT: Final = 0.8
"""Likewise of the words that are said by its tool in its story, or, without a tool, by others."""
_BOTH_ENDS: Final = 2
_NOT: Final = re.compile(r"n['\u2019]t | not | cannot | never ")
_NAMED_SESSION: Final = re.compile(
    r" (?:session|conversation|chat|thread|run) (?=\S*[\d_-])\S*[^\W\d_]\S* "
)
"""A session by its name, which has a digit or a hyphen."""
_OF_WHAT_IS: Final = frozenset((Operator.SEARCH, Operator.VALUE))
"""Operators of which an attempt that failed says nothing."""
_LISTED: Final = frozenset((Operator.PROFILE, Operator.WINDOW))
"""What they ask for is all of it."""
_TYPES: Final[Mapping[Operator, AnswerType]] = {
    Operator.COUNT: "count",
    Operator.USERS: "list",
    Operator.CALLS: "list",
    Operator.TIME: "value",
    Operator.VALUE: "value",
    Operator.VALUE_BEFORE: "value",
    Operator.VALUE_AT: "value",
    Operator.ACTOR: "value",
    Operator.SUMMARY: "summary",
}


def story_answer(
    stories: Stories, terms: StoryTerms, plan: Plan, *, now_ms: int, zone: tzinfo
) -> StoryAnswer:
    """The answer of stories.

    Args:
        stories: that were stated.
        terms: of the question.
        plan: of it.
        now_ms: when it is asked.
        zone: of the days that it is answered in.
    """
    if not stories.ids:
        return _empty(plan)
    features = features_of(stories, terms, plan, now_ms)
    scores = story_scores(features, plan)
    order = numpy.lexsort((numpy.arange(len(scores)), -scores))
    confidence = confidence_of(features, scores, plan)
    of_one = plan.session or _NAMED_SESSION.search(terms.text) is not None
    if plan.operator is Operator.SUMMARY and of_one and not stories.in_session.any():
        confidence = 0.0  # nothing has happened in it, or nobody here may see it
    proof = _proof(stories, features, terms, plan=plan, order=order)
    order, evidence = proof.order, proof.evidence
    named = knows_named(stories, features, terms, plan=plan, best=int(order[0]))
    if named is not None:
        proof = proof._replace(is_known=named)
    if proof.is_known is not None:
        confidence = max(plan.confidence, READ_OFF) if proof.is_known else 0.0
    gap = numpy.maximum(0.0, scores[order].max() - scores[order]) / SCORE_SPREAD
    worth = numpy.minimum.accumulate(confidence * numpy.exp(-gap))
    ids = [stories.ids[place] for place in order.tolist()]
    decides = _decides(stories, features, plan)
    decides = decides and (proof.is_exact or _fits(stories, features, plan, int(order[0])))
    return StoryAnswer(
        plan=plan,
        confidence=confidence,
        order=ids,
        relevance=dict(zip(ids, worth.tolist(), strict=True)),
        type="list" if proof.is_list or _is_listed(plan, terms) else _type(plan),
        value=None
        if proof.is_words or _is_said(stories, features, plan, int(order[0]))
        else _value(stories, features, plan, order, evidence=evidence, zone=zone),
        evidence=[stories.ids[place] for place in evidence.tolist()],
        decides=decides,
        explained={
            stories.ids[place]: explained(features, plan, place)
            for place in order[: MAX_EXPLAINED if decides else 0].tolist()
        },
    )


class _Proof(NamedTuple):
    """What proves an answer.

    Attributes:
        order: of all places, what proves it in front where that decides.
        evidence: places.
        is_known: it is for certain, or for certain not; None: the judge says.
        is_exact: it is read off the events, and not ranked.
        is_words: what was said is the answer, and not who said it.
        is_list: all of the evidence is the answer.
    """

    order: Array
    evidence: Array
    is_known: bool | None = None
    is_exact: bool = False
    is_words: bool = False
    is_list: bool = False


def _proof(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> _Proof:
    proof = _of_operator(stories, features, terms, plan=plan, order=order)
    if not plan.lasting:
        return proof
    ends = from_type_to_type(stories, features)
    if ends is not None and plan.operator is Operator.TIME:
        return _Proof(_in_front(ends, order), ends, is_known=True, is_exact=True)
    between = stretch(stories, features, plan, int(order[0]))
    if between is None:
        return proof._replace(is_known=False)
    return proof._replace(evidence=between)


def _of_operator(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> _Proof:
    if plan.operator in _OF_WHAT_IS and plan.failed is not True:
        order = what_worked_first(stories, features, order)
    operator, best = plan.operator, int(order[0])
    if operator in OF_ACTS and is_not_done(stories, features, terms, plan=plan, best=best):
        return _Proof(order, order[:1], is_known=False)
    if operator in COUNTED:
        return _of_alike(stories, features, terms, plan=plan, order=order)
    if operator in OF_ACTS and features.acts.whole and features.is_an_act:
        return _Proof(order, order[:1], is_known=True)
    if operator is Operator.LESSON and plan.failed and len(again := changed_again(stories, best)):
        order = _in_front(again, order)
    if terms.is_topicless and is_only_case(stories, features, plan, best):
        return _Proof(order, order[:1], is_known=True)
    is_failure = _is_failure(features, terms, plan, best)
    if is_around(plan, terms) and features.acts.done and not is_failure:
        beside = _around(stories, features, terms, plan, order=order)
        if len(beside):
            return _Proof(_in_front(beside, order), beside, is_known=True, is_exact=True)
    return _of_topic(stories, features, terms, plan=plan, order=order)


def _of_topic(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> _Proof:
    if plan.operator is Operator.CAUSE and plan.failed:
        return _of_cause(stories, features, terms, order=order)
    if plan.operator is Operator.CAUSE and len(
        given := _reason(stories, features, terms, plan, order=order)
    ):
        return _Proof(_in_front(given, order), given, is_known=True, is_exact=True)
    if plan.operator is Operator.SEARCH and len(told := happened_to(stories, features, terms)):
        return _Proof(_in_front(told, order), told, is_known=True, is_exact=True, is_list=True)
    if plan.operator is Operator.ACTOR:
        reply = reply_to(stories, features, int(order[0]))
        if len(reply):
            return _Proof(_in_front(reply, order), reply, is_exact=True, is_words=True)
        told = told_by_agent(stories, features, terms, int(order[0]))
        order = _in_front(told, order)
    if plan.operator is Operator.WINDOW and plan.spans:
        return _of_time(stories, features, terms, plan=plan, order=order)
    if plan.operator in VALUES and (asks_for_record(terms) or not features.facts):
        return _of_value(stories, features, terms, plan=plan, order=order)
    return _of_somebody(stories, features, terms, plan=plan, order=order)


def _of_somebody(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> _Proof:
    operator = plan.operator
    if operator is Operator.PROMISE:
        return _of_promises(stories, features, terms, plan=plan, order=order)
    if operator is Operator.PROFILE and features.profile and not asks_for_record(terms):
        saying = {fact.event_id for fact in features.profile}
        return _Proof(order, numpy.flatnonzero([own_id in saying for own_id in stories.ids]))
    if operator is Operator.PROFILE:
        records = records_of(stories, features, terms)
        if records is not None:
            return _Proof(_in_front(records, order), records[:1], is_known=True, is_exact=True)
        evidence = recorded(stories, features, terms, order)
        first = order[:MAX_TOLD]  # what they said is asked for as well
        return _Proof(_in_front(first, _in_front(evidence, order)), evidence)
    if operator is Operator.CALLS:
        return _Proof(order, _calls_of(stories, features, int(order[0])))
    if operator is Operator.SIMILAR and plan.quoted and stories.failed[order[0]]:
        alike = order[numpy.isin(order, _alike(stories, features, terms, int(order[0])))]
        order = _in_front(with_what_helped(stories, features, alike), order)
    return _Proof(order, order[:1])


def _of_promises(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> _Proof:
    """What was promised about what a question names, or all of it; what is left, if that is asked.

    A promise that says none of the words, in a story that says none, is about something else.
    """
    may_promise = promises(stories, features, terms)
    if plan.still and (may_promise & ~stories.fulfilled).any():
        may_promise &= ~stories.fulfilled
    promised = order[may_promise[order]]
    if terms.is_topicless and len(promised):  # to whom is who asks: all of it is meant
        return _Proof(_in_front(promised, order), promised[:MAX_TOLD], is_known=True)
    about = features.column("story_words")[promised] > 0
    of_somebody = features.is_named or bool(terms.capitalised)
    if about.any() and not of_somebody:
        promised = promised[about]
    is_heard = bool(about.any()) or of_somebody
    is_known = None if len(promised) and is_heard else False
    return _Proof(order, promised[:MAX_TOLD], is_known=is_known)


def _around(
    stories: Stories, features: Features, terms: StoryTerms, plan: Plan, *, order: Array
) -> Array:
    """What stands around the acts that a question names; of why, a reason that was given, first."""
    beside = around_acts(stories, features, plan)
    if plan.operator is not Operator.CAUSE or plan.failed is not None or not len(beside):
        return beside
    given = reason_stated(stories, features, terms, int(order[0]))
    return _in_front(numpy.concatenate([beside[:1], given[given != beside[0]]]), beside)


def _reason(
    stories: Stories, features: Features, terms: StoryTerms, plan: Plan, *, order: Array
) -> Array:
    """What says why something was done, in so many words or as a decision; empty: nothing does."""
    given = (
        reason_stated(stories, features, terms, int(order[0])) if plan.failed is None else order[:0]
    )
    return given if len(given) else decision_meant(stories, features, order)


def _is_failure(features: Features, terms: StoryTerms, plan: Plan, best: int) -> bool:
    """Whether a failure is asked about: what led to it is learned, not read off an act.

    Of an act that failed at first and was done, "why was it done?" asks for the latter.
    """
    if plan.failed is False and plan.operator is not Operator.CAUSE:
        return True
    is_of_act = terms.text.startswith(" why ") and _NOT.search(terms.text) is None
    is_of_failure = plan.failed is not None or not is_of_act
    failed = best in features.acts.failed and (is_of_failure or not features.acts.done)
    return bool(plan.quoted) or (plan.operator is Operator.CAUSE and failed)


def _of_alike(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> _Proof:
    evidence = _alike(stories, features, terms, int(order[0]))
    if plan.operator is Operator.USERS:
        evidence = _first_of_each(stories, evidence)
    is_known = None if len(evidence) else False
    return _Proof(_in_front(evidence, order), evidence, is_known=is_known)


def _of_cause(stories: Stories, features: Features, terms: StoryTerms, *, order: Array) -> _Proof:
    """The failure that is asked about, then what another session did that stands behind it."""
    meant = failure_meant(stories, features, terms, order)
    if meant is not None:
        order = _in_front(numpy.array([meant]), order)
    first = int(order[0])
    behind = numpy.flatnonzero((stories.leads_to == first) & ~stories.failed)
    behind = behind[numpy.argsort(-stories.occurred_ms[behind], kind="stable")][:1]
    if not len(behind):
        return _Proof(order, order[:1])
    proving = numpy.concatenate([order[:1], behind])
    return _Proof(_in_front(proving, order), proving)


def _of_value(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> _Proof:
    best = int(order[0])
    records = records_of(stories, features, terms)
    if records is not None:
        return _Proof(_in_front(records, order), records[:1], is_known=True, is_exact=True)
    stated = stating(stories, features, terms)
    if stated is None or stated.states[best]:
        return _Proof(order, order[:1])
    if not stated.about[best]:
        order = _in_front(order[stated.states[order]][:1], order)
    return _Proof(order, order[:1], is_known=None if stated.states.any() else False)


def _of_time(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> _Proof:
    is_all = asks_for_all(features, stories, terms)
    within = in_time(stories, plan)
    if (within & features.within).any():
        within &= features.within
    evidence = happened(stories, within, order, is_all=is_all)
    if not len(evidence):
        return _Proof(order, order[:1], is_known=False)
    is_known = True if is_all else None
    return _Proof(order, evidence, is_known=is_known)


def nearest_first(answer: StoryAnswer, *, is_before: bool) -> StoryAnswer:
    """An answer whose evidence is in the order of time, by how near it is to where that begins."""
    evidence = answer.evidence[::-1] if is_before else answer.evidence
    order = list(dict.fromkeys([*evidence, *answer.order]))
    worth = sorted(answer.relevance.values(), reverse=True)
    return answer._replace(order=order, relevance=dict(zip(order, worth, strict=True)))


def _empty(plan: Plan) -> StoryAnswer:
    return StoryAnswer(
        plan=plan,
        confidence=0.0,
        order=[],
        relevance={},
        type=_type(plan),
        value={Operator.COUNT: 0, Operator.USERS: [], Operator.CALLS: []}.get(plan.operator),
        evidence=[],
        decides=False,
        explained={},
    )


def _type(plan: Plan) -> AnswerType:
    return _TYPES.get(plan.operator, "events")


def _decides(stories: Stories, features: Features, plan: Plan) -> bool:
    """Whether tools were used here, or the question asks for a place in an order and no more."""
    acts = features.roles.call | features.roles.worked | stories.failed
    if acts.mean() >= ACTS_SHARE:
        return True
    if plan.operator in ORDER and features.is_bare:
        return True
    return plan.operator is Operator.SUMMARY and bool(stories.in_session.any())


def _is_listed(plan: Plan, terms: StoryTerms) -> bool:
    """Whether all is asked for of what there is, or of what was promised."""
    return plan.operator in _LISTED or _asks_promises(plan, terms)


def _asks_promises(plan: Plan, terms: StoryTerms) -> bool:
    """Whether all is asked for that was promised."""
    return plan.operator is Operator.PROMISE and terms.is_topicless


def _is_said(stories: Stories, features: Features, plan: Plan, best: int) -> bool:
    """Whether the words of somebody are the answer: who said them, and when, is of these alone."""
    asks = plan.operator in (Operator.ACTOR, Operator.TIME) and not plan.lasting
    talk = not _decides(stories, features, plan) and int(stories.kind[best]) == MESSAGE
    return asks and talk and not features.facts


def _fits(stories: Stories, features: Features, plan: Plan, best: int) -> bool:
    """Whether the best event is of the kind that the operator was trained to find.

    What an agent did of its own accord has no failure at its end: why it did, and what stood
    before and after, is told by paths. So is a record that is asked for by its identifier.
    """
    if features.facts:
        return True
    if plan.operator is Operator.CAUSE:
        return bool(stories.failed[best] or features.roles.other[best])
    if plan.operator in (Operator.AFTER, Operator.BEFORE):
        return plan.failed is not None
    return not (plan.operator in (Operator.VALUE, Operator.PROFILE) and features.held)


def _alike(stories: Stories, features: Features, terms: StoryTerms, best: int) -> Array:
    """Places of the events of the kind of the best one and about the same, in order of time."""
    same = features.within & (stories.failed == stories.failed[best])
    if not stories.failed[best]:
        same &= stories.kind == stories.kind[best]
    if _names_tool(stories, terms, best):
        same &= stories.tool == stories.tool[best]
    if stories.marks[best]:  # it says how it failed, as the question does
        same &= stories.marks > 0
    holds = stories.counts > 0
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


def _calls_of(stories: Stories, features: Features, best: int) -> Array:
    """The calls of the story of the best event, in order of time."""
    called = (features.roles.call | features.roles.failed_call) & features.within
    return numpy.flatnonzero(called & (stories.story == stories.story[best]))


def _in_front(places: Array, order: Array) -> Array:
    behind = order[~numpy.isin(order, places)]
    return numpy.concatenate([places, behind]).astype(numpy.int64)


def _value(
    stories: Stories,
    features: Features,
    plan: Plan,
    order: Array,
    *,
    evidence: Array,
    zone: tzinfo,
) -> Any:
    first = stories.ids[order[0]]
    if (fact := next((one for one in features.facts if one.event_id == first), None)) is not None:
        return fact.value
    if plan.operator is Operator.COUNT:
        return len(evidence)
    if plan.operator is Operator.USERS:
        return [stories.users[stories.user[place]] for place in evidence.tolist()]
    if plan.operator is Operator.CALLS:
        tools = [int(stories.tool[place]) for place in evidence.tolist()]
        return list(dict.fromkeys(stories.tools[tool] for tool in tools if tool >= 0))
    if plan.lasting:
        at_ms = stories.occurred_ms[evidence]
        lasted_ms = int(at_ms[1] - at_ms[0]) if len(at_ms) == _BOTH_ENDS else 0
        return duration_text(lasted_ms) if lasted_ms else None
    if plan.operator is Operator.TIME and not plan.ahead:
        at_s = int(stories.occurred_ms[order[0]]) / 1_000
        return datetime.fromtimestamp(at_s, zone).isoformat(timespec="seconds")
    if plan.operator is Operator.ACTOR:
        return actor_of(stories, features, plan, int(order[0]))
    if plan.operator is Operator.PROFILE and features.profile:
        return [f"{relation_words(one.relation)} {one.value}" for one in features.profile]
    return None
