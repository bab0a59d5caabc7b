"""What the memory tells to a question: planned, then listed exactly or read from stories."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import NamedTuple

from api.retrieval.open_answer import open_answer, open_asked, otherwise_meant
from api.retrieval.plan import Operator, Plan, plan_of
from api.retrieval.story_answer import StoryAnswer, story_answer
from api.retrieval.story_lists import (
    acts_answer,
    acts_listed,
    is_unheard_of,
    list_answer,
    list_asked,
)
from api.retrieval.story_terms import stories_asked, story_terms
from pipelines.columns.reads import ColumnReads
from pipelines.graph.reads.scope import Within


class Asking(NamedTuple):
    """A question as it was put.

    Attributes:
        query: in words.
        now_ms: when.
        zone: of the days that it means.
        session_id: in which it is asked.
        within: what was given beside it; None: nothing.
    """

    query: str
    now_ms: int
    zone: tzinfo
    session_id: str
    within: Within | None


def told(
    reads: ColumnReads, asking: Asking, *, hits: Sequence[str], vector: Sequence[float] | None
) -> StoryAnswer:
    """The answer, empty where there is none.

    Args:
        reads: of the viewer.
        asking: the question.
        hits: ids of events that the channels found, the best first.
        vector: of the question; None: it has none.

    Raises:
        QueryTimeout: there was no answer in time.
        GraphUnavailable: nobody holds the columns.
    """
    plan = planned(reads, asking)
    if plan.operator is Operator.OPEN:
        wished = open_asked(plan)
        answer = open_answer(asking.query, plan, wished, reads.open_things(wished))
        if answer is not None:
            return answer
        plan = otherwise_meant(plan)
    terms = story_terms(asking.query, plan)
    wanted = list_asked(asking.query, plan, terms, asking.session_id)
    if wanted is not None:
        listed = reads.listed(wanted)
        if listed.total:
            return list_answer(asking.query, plan, listed)
    wanted = acts_listed(asking.query, plan, terms, asking.session_id)
    if wanted is not None:
        listed = reads.listed(wanted)
        if listed.total:
            return acts_answer(asking.query, plan, listed)
    question = stories_asked(terms, plan, hits=hits, vector=vector, session_id=asking.session_id)
    stories = reads.stories(question)
    answer = story_answer(stories, terms, plan, now_ms=asking.now_ms, zone=asking.zone)
    if wanted is not None and answer.decides and is_unheard_of(stories, terms):
        answer = answer._replace(confidence=0.0)
    return answer


def planned(reads: ColumnReads, asking: Asking) -> Plan:
    """The plan; times of no day are of the newest day of which the viewer sees something."""
    query, now_ms, zone = asking.query, asking.now_ms, asking.zone
    plan = plan_of(query, now_ms, zone)
    if plan.needs_day and (last_ms := reads.last_ms(now_ms + 1)) is not None:
        plan = plan_of(query, now_ms, zone, day_ms=last_ms)
    if asking.within is not None:
        plan = plan.limited(asking.within.since_ms, asking.within.until_ms)
    return plan
