"""What a question asks for, and what the stories say to it: the records of both. Pure.

`planning` makes the plan of a question, `intent` tells its intents; the value of an answer is read
by `story_answer` and its like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

from api.retrieval.time_spans import TimeSpan
from projections.events import LAST_MS

Intent = Literal["why", "when", "what", "related", "general", "who_is", "how_does", "personalize"]

IN_PAST: Final = re.compile(r"(?<!\w)(?:was|were|did|had)(?!\w)", re.IGNORECASE)
"""A question asks about what is over."""


class Operator(StrEnum):
    """What answers a question."""

    SEARCH = "search"
    """What resembles it most: nothing more is understood."""
    CAUSE = "cause"
    """What went wrong, and what was behind it."""
    LESSON = "lesson"
    """What was different when it worked."""
    CALLS = "calls"
    """Tools that were used, calls that were made."""
    FAILURES = "failures"
    """Calls that failed."""
    ACTOR = "actor"
    """Who did it."""
    TIME = "time"
    """When it was."""
    LAST = "last"
    """The newest words of somebody, or about something."""
    FIRST = "first"
    """The oldest ones."""
    WINDOW = "window"
    """What happened in a stretch of time."""
    AFTER = "after"
    """What came next to something."""
    BEFORE = "before"
    """What came before something."""
    COUNT = "count"
    """How often it happened."""
    USERS = "users"
    """Which users it happened to; over all users."""
    VALUE = "value"
    """What something is set to now."""
    VALUE_BEFORE = "value_before"
    """What it was set to before it was changed."""
    VALUE_AT = "value_at"
    """What it was set to at some time."""
    PREFERENCE = "preference"
    """How somebody wants something done."""
    PROFILE = "profile"
    """What is known of somebody."""
    HOW_DOES = "how_does"
    """How somebody goes about something."""
    PERSONALIZE = "personalize"
    """What to heed for somebody in what is at hand."""
    SIMILAR = "similar"
    """Earlier cases of an error."""
    PROMISE = "promise"
    """What was promised and is not done yet."""
    OPEN = "open"
    """What was opened or asked for, and is not closed."""
    SUMMARY = "summary"
    """A session as a whole."""


OF_ORDER: Final = (Operator.AFTER, Operator.BEFORE)
"""Operators that ask for what stands next to something."""
VALUES: Final = frozenset((Operator.VALUE, Operator.VALUE_BEFORE, Operator.VALUE_AT))
"""Operators that ask what something is or was set to."""


class Plan(NamedTuple):
    """What a question asks for.

    Attributes:
        operator: what answers it.
        confidence: that it does, 0 to 1.
        topic: the question without the words that say how it is asked; never empty.
        spans: stretches of time that limit it exactly, in no order; empty: none does.
        session: it asks about the session in which it is asked.
        failed: it asks about something that failed; None: it does not say.
        quoted: the text that it quotes, an error for example; empty: none.
        needs_day: it names a time of day and no day.
        timeless: the question without what says when.
        ahead: it asks when something is, or will be: no answer is when that was said.
        lasting: it asks how long something took.
        still: it asks for what is left, and not for all there was.
        compares: it asks how things differ.
        elsewhere: it asks for a cause, and which earlier change of something else that is.
        guessed: no row says so, only its words and its vector: it may be a plain question.
    """

    operator: Operator
    confidence: float
    topic: str
    spans: tuple[TimeSpan, ...] = ()
    session: bool = False
    failed: bool | None = None
    quoted: str = ""
    needs_day: bool = False
    timeless: str = ""
    ahead: bool = False
    lasting: bool = False
    still: bool = False
    compares: bool = False
    elsewhere: bool = False
    guessed: bool = False

    @property
    def end_ms(self) -> int | None:
        """Up to when it limits its answer, milliseconds since the epoch; None: no time does."""
        return max((span.end_ms for span in self.spans), default=None)

    def limited(self, since_ms: int | None, until_ms: int | None) -> Plan:
        """The plan with a time that was given, instead of what the question says of it."""
        if since_ms is None and until_ms is None:
            return self
        first_ms = 0 if since_ms is None else since_ms
        end_ms = LAST_MS if until_ms is None else until_ms
        return self._replace(spans=(TimeSpan(first_ms, end_ms),))


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
