"""What alone can answer an operator: calls, failures, a time, the words of somebody. Pure.

A ranking is learned; this is not. "Which calls failed?" is answered by failures, whatever else says
the same words, and "what did the support agent do?" by what that agent did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy

from api.retrieval.operators import Operator
from api.retrieval.plan import Plan
from api.retrieval.story_roles import Roles
from pipelines.columns.standings import Array
from pipelines.columns.story_records import Stories, StoryFact

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
    for applies, limit in (
        (bool(facts), numpy.array([one in saying for one in stories.ids], dtype=bool)),
        (operator is Operator.WINDOW, in_time(stories, plan)),
        (operator is Operator.CALLS, roles.call | roles.failed_call),
        (operator is Operator.FAILURES, stories.failed),
        (operator in (Operator.COUNT, Operator.USERS) and plan.failed is True, stories.failed),
        (operator is Operator.SIMILAR and plan.failed is not False, stories.failed),
        (operator in ORDER, stories.named & roles.says),
        (operator is Operator.PROMISE, roles.says & ~stories.person & ~stories.asks),
        (operator is Operator.PROMISE, stories.marks > 0),
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


def in_time(stories: Stories, plan: Plan) -> Array:
    """Which events occurred in the times that a plan limits its answer to; none without such."""
    at = stories.occurred_ms
    inside = [(at >= span.first_ms) & (at < span.end_ms) for span in plan.spans]
    return numpy.asarray(numpy.any([numpy.zeros(len(at), dtype=bool), *inside], axis=0))
