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
from typing import Any, Final

import numpy

from api.retrieval.durations import duration_text
from api.retrieval.plan import OF_ORDER, READ_OFF, AnswerType, Operator, Plan, StoryAnswer
from api.retrieval.story_features import Features, features_of
from api.retrieval.story_focus import actor_of, knows_named
from api.retrieval.story_limits import ORDER
from api.retrieval.story_proof import proof_of
from api.retrieval.story_ranker import confidence_of, explained, story_scores
from api.retrieval.story_roles import roles_of
from api.retrieval.story_terms import StoryTerms, stems_of_parts
from enrichment.vocabulary import relation_words, word_set
from pipelines.columns.records import MESSAGE, Array, Stories

ACTS_SHARE: Final = 0.05
"""Share of tool calls and their outcomes among the events from which on they tell stories of acts:
a conversation of people is ranked as one (`relevance`)."""
SCORE_SPREAD: Final = 3.0
"""Score between an event that answers and one that is worth 1/e of it."""
GUESSED_AT_MOST: Final = 0.8
"""How sure it is at most that a change is behind a failure, where only their meaning says so."""
MAX_EXPLAINED: Final = 20
_BOTH_ENDS: Final = 2
_TO_BE: Final = re.compile(r"(?<!\w)whom?\s+(?:should|shall|must|ought|to)(?!\w)", re.IGNORECASE)
"""Who is to do something, or whom one is to ask, is told by what somebody said and not by them."""
_NAMED_SESSION: Final = re.compile(
    r" (?:session|conversation|chat|thread|run) (?=\S*[\d_-])\S*[^\W\d_]\S* "
)
"""A session by its name, which has a digit or a hyphen."""
_PARTICIPLE: Final = re.compile(
    r" (?:the|a|an|that|our|my|his|her|their) (?P<word>[^\W\d_]+e[dn]|"
    r"(?:with|up)?held|stuck|lost|cut|shut|hung|blown|thrown|torn|caught) "
)
_NO_FAILURE: Final = word_set(
    "requested asked planned scheduled mentioned named given ordered needed wanted expected agreed"
)
"""Participles of what need not have failed."""
_ACT: Final = re.compile(r" (?:the|that|our|my|his|her|their) [^\W\d_]+ of ")
"""What was done, by a noun and nothing that says how it went."""
_CODE: Final = re.compile(r" (?:the|that|an?) \d+ ")
"""A failure by its number: "the 554 on the delivery of the letter"."""
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
    if _is_of_session(stories, terms, plan):
        plan = plan._replace(operator=Operator.SUMMARY)
    if stories.guessed.any():
        stories = _unexplained(stories)
    features = features_of(stories, terms, plan, now_ms)
    scores = story_scores(features, plan)
    if (failed := _failed_beside(stories, features, terms, plan)) is not None:
        plan = plan._replace(failed=failed)
        features = features_of(stories, terms, plan, now_ms)
        scores = story_scores(features, plan)
    order = numpy.lexsort((numpy.arange(len(scores)), -scores))
    confidence = confidence_of(features, scores, plan)
    of_one = plan.session or _NAMED_SESSION.search(terms.text) is not None
    if plan.operator is Operator.SUMMARY and of_one and not stories.in_session.any():
        confidence = 0.0  # nothing has happened in it, or nobody here may see it
    proof = proof_of(stories, features, terms, plan=plan, order=order)
    order, evidence = proof.order, proof.evidence
    named = knows_named(stories, features, terms, plan=plan, best=int(order[0]))
    if named is not None:
        proof = proof._replace(is_known=named)
    if proof.is_known is not None:
        confidence = max(plan.confidence, READ_OFF) if proof.is_known else 0.0
    if plan.elsewhere and stories.guessed[int(order[0])]:
        confidence = min(confidence, GUESSED_AT_MOST)
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


def _unexplained(stories: Stories) -> Stories:
    """The stories without a guess at what is behind a failure that was put right where it was."""
    explained = stories.guessed & roles_of(stories).has_fix[stories.leads_to]
    return stories._replace(
        leads_to=numpy.where(explained, -1, stories.leads_to), guessed=stories.guessed & ~explained
    )


def _is_of_session(stories: Stories, terms: StoryTerms, plan: Plan) -> bool:
    """Whether a session is named, and nothing else that was said there: then all of it is meant."""
    if plan.operator is not Operator.SEARCH or not stories.in_session.any():
        return False
    parts = {part for identifier in terms.identifiers for part in stems_of_parts(identifier)}
    others = numpy.array([stem not in parts for stem in terms.stems], dtype=bool)
    return not stories.counts[stories.in_session][:, others].any()


def _failed_beside(
    stories: Stories, features: Features, terms: StoryTerms, plan: Plan
) -> bool | None:
    """Whether that failed next to which something is asked for; None: its plan says, or nothing.

    "What came before the delivery of the letter?" asks for the one that went through at last: of
    one that did not somebody would say so.
    """
    anchor = features.anchor
    if plan.operator not in OF_ORDER or plan.failed is not None or anchor is None:
        return None
    if _is_beside_failure(stories, features, terms, anchor):
        return True
    is_done = bool(features.roles.has_fix[anchor]) and not features.acts.done
    return False if is_done and _ACT.search(terms.text) and not _CODE.search(terms.text) else None


def _is_beside_failure(
    stories: Stories, features: Features, terms: StoryTerms, anchor: int
) -> bool:
    """Whether what stands next to something is asked for that failed, in whatever word.

    "What came after the vetoed plan?", "after the 409": no list has all such words. What is called
    by a participle that nothing says there but the failure, is what failed; so is what a number or
    a name calls that only a failure of that story says.
    """
    of_story = stories.story == stories.story[anchor]
    elsewhere = stories.counts[of_story & ~stories.failed].any(axis=0)
    told = stories.counts[of_story & stories.failed].any(axis=0) & ~elsewhere
    by_code = terms.capitalised.union(filter(str.isdigit, terms.words))
    if any(word in by_code and told[place] for place, word in enumerate(terms.words)):
        return True
    is_failure = stories.failed[anchor] or features.roles.failed_call[anchor]
    if not (features.acts.failed if features.acts.done else is_failure):
        return False  # of what failed once and was done, the former is called otherwise
    called = {match["word"] for match in _PARTICIPLE.finditer(terms.text)} - _NO_FAILURE
    return any(word in called and not elsewhere[place] for place, word in enumerate(terms.words))


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
    words = int(stories.kind[best]) == MESSAGE
    talk = words and (_TO_BE.search(plan.timeless) or not _decides(stories, features, plan))
    return bool(asks and talk and not features.facts)


def _fits(stories: Stories, features: Features, plan: Plan, best: int) -> bool:
    """Whether the best event is of the kind that the operator was trained to find.

    What an agent did of its own accord has no failure at its end: why it did, and what stood
    before and after, is told by paths. So is a record that is asked for by its identifier.
    """
    if features.facts:
        return True
    if plan.operator is Operator.CAUSE:
        is_cause = stories.leads_to[best] >= 0
        return bool(is_cause or stories.failed[best] or features.roles.other[best])
    if plan.operator in (Operator.AFTER, Operator.BEFORE):
        return plan.failed is not None
    return not (plan.operator in (Operator.VALUE, Operator.PROFILE) and features.held)


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
        lines = (f"{relation_words(one.relation)} {one.value}" for one in features.profile)
        return list(dict.fromkeys(lines))
    return None
