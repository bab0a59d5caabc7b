"""What proves an answer: which of the events found, by what a question asks for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy

from api.retrieval.durations import from_type_to_type, stretch
from api.retrieval.plan import OF_ORDER, VALUES, Operator, Plan
from api.retrieval.story_acts import OF_ACTS, is_around
from api.retrieval.story_counts import alike, counted, failed_at, newest_alike
from api.retrieval.story_evidence import (
    MAX_TOLD,
    around_acts,
    asks_for_all,
    asks_for_record,
    changed_again,
    done_since,
    happened,
    happened_to,
    is_only_case,
    named_moment,
    promises,
    recorded,
    records_of,
    stating,
    with_what_helped,
)
from api.retrieval.story_features import Features
from api.retrieval.story_focus import (
    decision_meant,
    done_as_said_first,
    failure_meant,
    in_front,
    is_not_done,
    looked_up_for,
    ordered,
    reason_stated,
    reply_to,
    retried_first,
    said_better_first,
    stated_before,
    told_by_agent,
    went_through_first,
    what_worked_first,
)
from api.retrieval.story_limits import in_time
from api.retrieval.story_terms import COUNTED, GIVING_LEAVE, StoryTerms
from pipelines.columns.records import Array, Stories

_NOT: Final = re.compile(r"n['\u2019]t | not | cannot | never ")
_SPEAKING: Final = re.compile(
    r"(?<!\w)(?:ask\w*|sa(?:y|ys|id|ying)|t(?:ell\w*|old)|wr(?:it\w+|ote)|mention\w*|want\w*|request\w*|"
    r"thank\w*|suggest\w*)(?!\w)"
)
"""What somebody said is asked for itself, and not what they told of."""
_CARRIED_OUT: Final = re.compile(r"(?<!\w)(?:done|kept|fulfilled|carried\s+out|made\s+good)(?!\w)")
"""And here that it was done: "we said we'd get the photo, when was that done?"."""
_LEAVE: Final = re.compile(
    r"(?<!\w)(?:approv\w+|authori[sz]\w+|consent\w*|countersign\w*|sign\w*\s+off|clear(?:ed|ing)|"
    r"ok(?:ay)?ed|permit\w*|allow\w*|waiv\w+|sanctioned|endors\w+)(?!\w)"
)
"""Who let something through is asked, and not who then did it."""
_WANTS: Final = re.compile(rf"{_SPEAKING.pattern}|(?<!\w)(?:need\w*|prefer\w*)(?!\w)")
"""Why somebody wants something, or says so, is told by what they say."""
_SAID_AS_WELL: Final = frozenset((Operator.SEARCH, Operator.TIME))
"""Operators that what somebody said may answer as well as what was done."""
_OF_WHAT_WAS_DONE: Final = frozenset((Operator.ACTOR, Operator.CAUSE))
"""Operators of what somebody did, unless the question says that it failed."""
_OF_WHAT_ALL_IS: Final = frozenset((Operator.SEARCH, Operator.SIMILAR))
"""Operators of all that is known of a thing, and not of one field."""
_OF_WHAT_IS: Final = frozenset((Operator.SEARCH, Operator.VALUE))
"""Operators of which an attempt that failed says nothing."""


class Proof(NamedTuple):
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


def proof_of(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Proof:
    """The proof of an answer.

    Args:
        stories: that were stated.
        features: of their events.
        terms: of the question.
        plan: of it.
        order: places of all events, the best first.
    """
    proof = _of_operator(stories, features, terms, plan=plan, order=order)
    if not plan.lasting:
        return proof
    ends = from_type_to_type(stories, features, int(order[0]))
    if ends is not None and plan.operator is Operator.TIME:
        return Proof(in_front(ends, order), ends, is_known=True, is_exact=True)
    between = stretch(stories, features, plan, int(order[0]))
    if between is None:
        return proof._replace(is_known=False)
    return proof._replace(evidence=between)


def _of_operator(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Proof:
    order = _meant_first(stories, features, terms, plan=plan, order=order)
    operator, best = plan.operator, int(order[0])
    of_act = operator in OF_ACTS and not _gave_leave(stories, features, terms, plan=plan, best=best)
    act = _of_act(stories, features, terms, plan=plan, order=order) if of_act else None
    if act is not None:
        return act
    if operator in COUNTED:
        return _of_counted(stories, features, terms, plan=plan, order=order)
    if operator is Operator.LESSON and plan.failed:
        again = changed_again(stories, best)
        order = in_front(again if len(again) else done_since(stories, features, best), order)
    if terms.is_topicless and is_only_case(stories, features, plan, best):
        return Proof(order, order[:1], is_known=True)
    is_failure = _is_failure(features, terms, plan, best)
    named = features.acts.done or named_moment(stories, features, plan)
    if is_around(plan, terms) and named and not is_failure:
        beside = _around(stories, features, terms, plan, order=order, named=named)
        if len(beside):
            is_known = True if features.acts.done else None
            return Proof(in_front(beside, order), beside, is_known=is_known, is_exact=True)
    return _of_topic(stories, features, terms, plan=plan, order=order)


def _meant_first(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Array:
    """An order in which of several attempts or messages the one that is meant is in front."""
    order = _of_identifiers(stories, features, terms, plan=plan, order=order)
    if plan.operator is Operator.VALUE_AT:
        order = _until(stories, features, plan, order)
    if plan.operator in _OF_WHAT_IS and plan.failed is not True:
        order = what_worked_first(stories, features, order)
    if plan.operator is Operator.TIME and not (plan.failed or plan.lasting or features.is_an_act):
        order = went_through_first(stories, features, terms, order)
    if plan.operator in _SAID_AS_WELL and not (plan.failed or features.acts.done):
        order = said_better_first(stories, features, order)
    done = plan.operator is Operator.TIME and not (plan.failed or plan.lasting or plan.ahead)
    speaks = _SPEAKING.search(terms.text) is not None and _CARRIED_OUT.search(terms.text) is None
    if done and not speaks:
        order = done_as_said_first(stories, features, order)
    return order


def _of_identifiers(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Array:
    """An order in which what names the things of a question is in front of what speaks of others.

    "The reference act.759 stands in our papers, please explain" is about no other papers, and
    somebody's "thanks, bye" beside it is not what it is. What stands behind a failure elsewhere
    need not name what failed.
    """
    held, best = features.column("story_identifiers"), int(order[0])
    is_elsewhere = stories.leads_to[best] >= 0 or plan.operator in VALUES or plan.spans
    is_beside = held[best] > 0
    if is_beside and plan.operator in _OF_WHAT_ALL_IS:
        is_beside = bool(features.column("words")[best] > 0 or stories.holds[best].any())
    if not terms.identifiers or is_elsewhere or is_beside:
        return order
    naming = order[stories.holds[order].all(axis=1)]
    return in_front(naming[:1], order)


def _of_act(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Proof | None:
    """When something was done, or by whom; None: that is told as of any topic."""
    best = int(order[0])
    if is_not_done(stories, features, terms, plan=plan, best=best):
        return Proof(order, order[:1], is_known=False)
    is_act = features.acts.whole and features.is_an_act
    if len(by := ordered(stories, features, plan, best)):
        return Proof(in_front(by, order), by, is_known=is_act or None)
    return Proof(order, order[:1], is_known=True) if is_act else None


def _of_topic(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Proof:
    if plan.operator in OF_ORDER and plan.failed:
        order = _on_its_side(stories, features, plan, order)
    if plan.operator is Operator.CAUSE and plan.failed:
        return _of_cause(stories, features, terms, order=order)
    order = _what_was_done(stories, features, terms, plan=plan, order=order)
    if plan.operator is Operator.CAUSE and len(
        given := _reason(stories, features, terms, plan, order=order)
    ):
        return Proof(in_front(given, order), given, is_known=True, is_exact=True)
    if plan.operator is Operator.FAILURES:
        order = in_front(newest_alike(stories, features, terms, int(order[0])), order)
    if plan.operator is Operator.SEARCH and len(told := happened_to(stories, features, terms)):
        return Proof(in_front(told, order), told, is_known=True, is_exact=True, is_list=True)
    if plan.operator is Operator.ACTOR:
        reply = reply_to(stories, features, int(order[0]))
        if len(reply):
            return Proof(in_front(reply, order), reply, is_exact=True, is_words=True)
        told = told_by_agent(stories, features, terms, int(order[0]))
        order = in_front(told, order)
    if plan.operator is Operator.WINDOW and plan.spans:
        return _of_time(stories, features, terms, plan=plan, order=order)
    if plan.operator in VALUES and (asks_for_record(terms) or not features.facts):
        return _of_value(stories, features, terms, plan=plan, order=order)
    return _of_somebody(stories, features, terms, plan=plan, order=order)


def _until(stories: Stories, features: Features, plan: Plan, order: Array) -> Array:
    """An order in which what was so at a time is in front of what was said of it later."""
    best = int(order[0])
    if plan.end_ms is None or stories.occurred_ms[best] < plan.end_ms:
        return order
    return in_front(stated_before(stories, features, best, plan.end_ms), order)


def _what_was_done(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Array:
    """An order in which what was done is in front of the failure before it, of which nobody asks.

    Who lifted a lock is told by what let it through, not by what was refused for it. Where what
    came of a thing is asked by its identifier, a failure that does not say that is no answer.
    """
    best = int(order[0])
    of_story = stories.story[order] == stories.story[best]
    leave = _gave_leave(stories, features, terms, plan=plan, best=best)
    leave |= _is_asking(stories, features, terms, best)
    if plan.operator is Operator.ACTOR and leave:
        let = features.roles.between & features.roles.worked
        return in_front(order[of_story & let[order]], order)
    if plan.failed or plan.operator not in _OF_WHAT_WAS_DONE or not stories.failed[best]:
        return order
    if plan.operator is Operator.ACTOR:
        done = features.roles.between | features.roles.fixing_call | features.roles.fixing_result
        done &= ~stories.failed & (stories.person | ~features.roles.says)
        return in_front(order[of_story & done[order]], order)
    held = features.column("identifiers")
    call = features.roles.call_of[best]
    if not terms.identifiers or held[best] or (call >= 0 and held[call]):
        return order
    return in_front(order[of_story & (held[order] >= 1)], order)


def _gave_leave(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, best: int
) -> bool:
    """Whether it is asked who let something through that was refused at first, and is told of."""
    roles = features.roles
    is_attempt = bool(
        (roles.fixing_call | roles.fixing_result | roles.failed_call | stories.failed)[best]
    )
    asks = GIVING_LEAVE.search(terms.text) is not None
    asks |= is_attempt and _LEAVE.search(terms.text) is not None
    if is_attempt and not (asks or plan.failed or features.acts.done):
        asks = _SPEAKING.search(terms.text) is None  # "who waved it through?", in words of no tool
    of_story = (stories.story == stories.story[best]) & roles.between & roles.worked
    return plan.operator is Operator.ACTOR and asks and bool(of_story.any())


def _is_asking(stories: Stories, features: Features, terms: StoryTerms, best: int) -> bool:
    """Whether an agent asks for what lets a refused call through: what came of it says who did."""
    roles = features.roles
    asks = bool(roles.between[best] and not (roles.worked[best] or stories.person[best]))
    return asks and not features.acts.done and _SPEAKING.search(terms.text) is None


def _on_its_side(stories: Stories, features: Features, plan: Plan, order: Array) -> Array:
    """An order in which what came after a failure, or before what failed, is in front."""
    anchor = features.anchor
    if anchor is None:
        return order
    is_there = order > anchor if plan.operator is Operator.AFTER else order < anchor
    return in_front(order[is_there & (stories.story[order] == stories.story[anchor])], order)


def _of_somebody(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Proof:
    operator = plan.operator
    if operator is Operator.PROMISE:
        return _of_promises(stories, features, terms, plan=plan, order=order)
    if operator is Operator.PROFILE and features.profile and not asks_for_record(terms):
        saying = {fact.event_id for fact in features.profile}
        return Proof(order, numpy.flatnonzero([own_id in saying for own_id in stories.ids]))
    if operator is Operator.PROFILE:
        records = records_of(stories, features, terms)
        if records is not None:
            return Proof(in_front(records, order), records[:1], is_known=True, is_exact=True)
        evidence = recorded(stories, features, terms, order)
        first = order[:MAX_TOLD]  # what they said is asked for as well
        return Proof(in_front(first, in_front(evidence, order)), evidence)
    if operator is Operator.CALLS:
        return Proof(order, _calls_of(stories, features, int(order[0])))
    if operator is Operator.SIMILAR and plan.quoted and stories.failed[order[0]]:
        same = alike(stories, features, terms, int(order[0]))
        same = order[numpy.isin(order, same)]
        order = in_front(with_what_helped(stories, features, same), order)
    best = int(order[0])
    if operator is Operator.CAUSE and stories.person[best] and not _WANTS.search(terms.text):
        best = failed_at(stories, features, best)  # who complains says not why it is so
    if operator is Operator.CAUSE and len(failure := _failing(stories, features, best)):
        return _of_failure(stories, features, terms, order=in_front(failure, order))
    is_known = operator is Operator.CAUSE and _is_behind_what_is_named(stories, terms, best)
    return Proof(order, order[:1], is_known=is_known or None)


MAX_PROMISING: Final = 30
"""Words of agents that may promise something, of which all is read to see which do."""


def _of_promises(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Proof:
    """What was promised about what a question names, or all of it; what is left, if that is asked.

    A promise that says none of the words, in a story that says none, is about something else.
    """
    may_promise = promises(stories, features, terms)
    asks_open = plan.still or plan.guessed  # all ways to ask that are learned ask for these
    if asks_open and (may_promise & ~stories.fulfilled).any():
        may_promise &= ~stories.fulfilled
    promised = order[may_promise[order]]
    if terms.is_topicless and len(promised):  # to whom is who asks: all of it is meant
        return Proof(in_front(promised, order), promised[:MAX_PROMISING], is_known=True)
    about = features.column("story_words")[promised] > 0
    of_somebody = features.is_named or bool(terms.capitalised)
    if about.any() and not of_somebody:
        promised = promised[about]
    is_heard = bool(about.any()) or of_somebody
    is_known = None if len(promised) and is_heard else False
    return Proof(order, promised[:MAX_PROMISING], is_known=is_known)


def _around(
    stories: Stories,
    features: Features,
    terms: StoryTerms,
    plan: Plan,
    *,
    order: Array,
    named: Iterable[int],
) -> Array:
    """What stands around the acts that a question names; of why, a reason that was given, first."""
    beside = around_acts(stories, features, plan, named)
    if plan.operator is not Operator.CAUSE or not len(beside):
        return beside
    if len(behind := _behind(stories, int(beside[0]))):
        return in_front(behind, beside)
    if plan.failed is not None:
        return beside
    given = reason_stated(stories, features, terms, int(order[0]))
    return in_front(numpy.concatenate([beside[:1], given[given != beside[0]]]), beside)


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


def _of_counted(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Proof:
    evidence = counted(
        stories,
        features,
        terms,
        plan=plan,
        best=int(order[0]),
        speaks=_SPEAKING.search(terms.text) is not None,
    )
    is_known = None if len(evidence) else False
    return Proof(in_front(evidence, order), evidence, is_known=is_known)


def _of_cause(stories: Stories, features: Features, terms: StoryTerms, *, order: Array) -> Proof:
    """The failure that is asked about, and what another session did that stands behind it."""
    meant = failure_meant(stories, features, terms, order)
    if meant is not None:
        order = in_front(numpy.array([meant]), order)
    return _of_failure(stories, features, terms, order=order)


def _of_failure(stories: Stories, features: Features, terms: StoryTerms, *, order: Array) -> Proof:
    """The failure that is the first of all, and what another session did that stands behind it.

    What was changed tells more than what it broke, so it comes first; what was decided, as a
    policy, is what the failure itself names.
    """
    best = int(order[0])
    behind = _behind(stories, best)
    if not len(behind):
        is_behind = _is_behind_what_is_named(stories, terms, best) and not stories.guessed[best]
        return Proof(order, order[:1], is_known=is_behind or None)
    changed = (features.roles.other | features.roles.call)[behind].all()
    proving = numpy.concatenate([behind, order[:1]] if changed else [order[:1], behind])
    return Proof(in_front(proving, order), proving)


def _failing(stories: Stories, features: Features, best: int) -> Array:
    """The failure that an event is, or that its call ended in; empty: neither."""
    if not features.roles.failed_call[best]:
        return numpy.array([best] if stories.failed[best] else [], dtype=numpy.int64)
    return numpy.flatnonzero(stories.failed & (features.roles.call_of == best))


def _behind(stories: Stories, failure: int) -> Array:
    """What another session did last of all that stands behind a failure; empty: nothing.

    Or behind one that its story tells before: a record says that it failed, then the tool does.
    """
    before = stories.failed & (stories.story == stories.story[failure])
    before[failure + 1 :] = False
    failures = numpy.flatnonzero(before)
    exact = (stories.leads_to == failure) & ~stories.failed
    of_story = numpy.isin(stories.leads_to, failures) & ~stories.failed
    behind = numpy.flatnonzero(exact if exact.any() else of_story)
    return behind[numpy.argsort(-stories.occurred_ms[behind], kind="stable")][:1]


def _is_behind_what_is_named(stories: Stories, terms: StoryTerms, cause: int) -> bool:
    """Whether an event stands behind a failure that says each identifier of the question.

    Or, where it has none, whose story says each name of it and another word. The judge would look
    at what the event says itself, and what another session changed says nothing of the failure.
    """
    failure = int(stories.leads_to[cause])
    if failure < 0 or stories.failed[cause]:
        return False
    if terms.identifiers:
        return bool(stories.holds[failure].all())
    if stories.guessed[cause]:
        return False
    heard = stories.counts[stories.story == stories.story[failure]].any(axis=0)
    telling = [place for place, asking in enumerate(terms.is_asking) if not asking]
    names = [place for place in telling if terms.words[place] in terms.capitalised]
    others = [place for place in telling if place not in names]
    return bool(names and heard[names].all() and heard[others].any())


def _of_value(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Proof:
    best = int(order[0])
    records = records_of(stories, features, terms)
    if records is not None:
        return Proof(in_front(records, order), records[:1], is_known=True, is_exact=True)
    stated = stating(stories, features, terms)
    is_known = None
    if plan.operator is Operator.VALUE_BEFORE and not (features.column("sets") > 0).any():
        order = in_front(stated_before(stories, features, best), order)  # no record has the words
    if stated is not None and not stated.states[best]:
        if not stated.about[best]:
            order = in_front(order[stated.states[order]][:1], order)
        is_held = bool(terms.identifiers) and bool(stories.holds[best].all())
        is_open = is_held or not stated.names_value
        is_known = None if stated.states.any() or is_open else False
    order = in_front(looked_up_for(stories, features, int(order[0])), order)
    if plan.operator is Operator.VALUE and not plan.failed:
        order = retried_first(stories, features, order)
    return Proof(order, order[:1], is_known=is_known)


def _of_time(
    stories: Stories, features: Features, terms: StoryTerms, *, plan: Plan, order: Array
) -> Proof:
    is_all = asks_for_all(features, stories, terms)
    within = in_time(stories, plan)
    if (within & features.within).any():
        within &= features.within
    evidence = happened(stories, within, order, is_all=is_all)
    if not len(evidence):
        return Proof(order, order[:1], is_known=False)
    is_known = True if is_all else None
    return Proof(order, evidence, is_known=is_known)


def _calls_of(stories: Stories, features: Features, best: int) -> Array:
    """The calls of the story of the best event, in order of time."""
    called = (features.roles.call | features.roles.failed_call) & features.within
    return numpy.flatnonzero(called & (stories.story == stories.story[best]))
