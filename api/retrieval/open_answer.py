"""Questions about what is not closed: tickets, tasks, approvals, whatever was opened. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from api.retrieval.plan import AnswerType, Operator, Plan, StoryAnswer
from enrichment.stems import stem_in, words_in
from enrichment.vocabulary import STOP_WORDS, word_set
from pipelines.columns.records import OpenAsked, OpenThings

_MAX_STEMS: Final = 16
_SAYING_OPEN: Final = word_set(
    "open outstanding pending unresolved unfinished unanswered incomplete undone progress done "
    "closed resolved finished completed settled answered remain remains stays left remaining yet "
    "far moment today things item items matter matters point points anything something nothing "
    "list name all finish settle"
)
_COUNTS: Final = re.compile(r"^\W*how\s+many\b", re.IGNORECASE)


def open_asked(plan: Plan) -> OpenAsked:
    """What a question about open things asks for."""
    words = (word for word in words_in(plan.topic.lower()) if word not in STOP_WORDS)
    stems = dict.fromkeys(stem_in(word) for word in words if word not in _SAYING_OPEN)
    return OpenAsked(stems=tuple(stems)[:_MAX_STEMS], windows=plan.spans)


def open_answer(
    query: str, plan: Plan, wanted: OpenAsked, things: OpenThings
) -> StoryAnswer | None:
    """The answer; None: what is asked for was never opened, so something else may be meant.

    Args:
        query: as it is asked.
        plan: of it.
        wanted: what it asks for.
        things: that there are of it.
    """
    if not (things.ids or things.closed) and wanted.stems:
        return None
    is_known = bool(things.ids or things.closed)
    kind: AnswerType = "count" if _COUNTS.match(query) else "list"
    value: Any = len(things.ids) if kind == "count" else (None if things.ids else [])
    order = [*things.ids, *things.closed]
    return StoryAnswer(
        plan=plan,
        confidence=plan.confidence if is_known else 0.0,
        order=order,
        relevance={one: plan.confidence / (1 + place) for place, one in enumerate(order)},
        type=kind,
        value=value,
        evidence=things.ids or things.closed,
        decides=is_known,
        explained={},
    )


def otherwise_meant(plan: Plan) -> Plan:
    """The plan where nothing was opened by that name: what was promised may be meant."""
    return plan._replace(operator=Operator.PROMISE) if plan.operator is Operator.OPEN else plan


def with_promises(opened: StoryAnswer, promised: StoryAnswer) -> StoryAnswer:
    """All that is to be done: what is open, then what was promised."""
    if not promised.evidence or promised.confidence == 0:
        return opened
    still = opened.evidence if opened.value is None else []
    evidence = list(dict.fromkeys((*still, *promised.evidence)))
    order = list(dict.fromkeys((*evidence, *opened.order, *promised.order)))
    confidence = max(opened.confidence, promised.confidence)
    return opened._replace(
        confidence=confidence,
        order=order,
        relevance={one: confidence / (1 + place) for place, one in enumerate(order)},
        value=None,
        evidence=evidence,
        decides=True,
    )
