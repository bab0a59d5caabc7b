"""What the stories say to a question: an order, a value, and the events that prove it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from api.retrieval.plan import Plan

AnswerType = Literal["events", "value", "count", "list", "tree", "summary"]
READ_OFF: Final = 0.95
"""That something is known which was read off the events."""


class StoryAnswer(NamedTuple):
    """What the stories say to a question.

    Attributes:
        plan: what was understood.
        confidence: that the memory knows it, 0 to 1.
        order: ids of events, the best first.
        relevance: of each of them, 0 to 1.
        type: of the answer.
        value: a number, names, a date, what a fact says; None: the text of the first piece of
            evidence.
        evidence: ids of the events that prove the value.
        decides: whether the order stands: else the answer is ranked by what is said alone.
        explained: what counted most for the first events, by id and feature.
    """

    plan: Plan
    confidence: float
    order: list[str]
    relevance: Mapping[str, float]
    type: AnswerType
    value: Any
    evidence: list[str]
    decides: bool
    explained: Mapping[str, Mapping[str, float]]
