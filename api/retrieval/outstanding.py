"""What is still to be done: what was opened and is not closed, and what was promised. Pure.

Tickets, tasks, approvals, whatever was opened, are told by columns. A promise is a sentence in
which somebody says what they will do: such events stand before others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.retrieval.plan import AnswerType, Operator, Plan, StoryAnswer
from api.retrieval.ranking import Ranked
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


# -- promises --------------------------------------------------------------------------------------

_SENTENCE: Final = re.compile(r"[^.!?\n]*(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]*")
_WILL: Final = re.compile(
    r"(?<!\w)(?:(?:i|we)\s*(?:['\u2019]ll|\s(?:will|shall|promise|am\s+going\s+to|are\s+going\s+to))|"
    r"(?:i['\u2019]m|we['\u2019]re)\s+going\s+to|i\s+(?:\w+\s+)?will|"
    r"(?:count|rely)\s+on\s+(?:me|us)|(?:you\s+have|i\s+give\s+you)\s+(?:my|our)\s+word|"
    r"promise(?:d)?(?=\W*$))(?!\w)",
    re.IGNORECASE,
)
"""Somebody says what they themselves will do, or that they promise it."""
_AHEAD: Final = (
    r"(?=[^.!?]{0,120}\b(?:after|before|by|until|till|tomorrow|tonight|within|once|at\s+once|"
    r"as\s+(?:soon|early)\s+as|[a-z]+day\s+(?:at\s+the\s+)?latest|this\s+(?:week|month)|"
    r"next\s+(?:week|month|time)|(?:on|for)\s+[a-z]+day|the\s+(?:day|hour|minute|moment))\b)"
)
"""A time ahead, or a condition, is named behind it."""
_NO_ACT: Final = (
    r"(?:had|have|was|were|am|are|did|do|need|can|cannot|could|know|think|see|saw|got|\w+ed)\b"
)
_SOON: Final = re.compile(
    r"(?<!\w)(?:(?:i|we)\s+(?:take\s+care\s+of|see\s+to)(?!\w)|"
    r"(?:i|we)\s+(?!\w+ed\b)[a-z]+\b[^.!?]{3,80}\band\s+(?:let\s+you\s+know|"
    r"keep\s+you\s+posted|(?:come|get)\s+back\s+to\s+you)(?!\w)|"
    rf"let\s+me\s+(?!(?:know|see|think)\b)[a-z]+\b{_AHEAD}|"
    rf"(?:i['\u2019]m|i\s+am|we['\u2019]re|we\s+are)\s+(?!being\b)[a-z]+ing\b{_AHEAD}|(?:i|we)\s+"
    rf"(?!{_NO_ACT})"
    rf"[a-z]+\b{_AHEAD}|(?:i|we)\s+have\s+(?:\w+\s+){{1,4}}?\w+(?:ed|en|t)\b[^.!?]{{0,60}}\b"
    r"(?:by|before|until)\s+(?:[a-z]+day|tomorrow|tonight|noon)(?!\w)|"
    rf"(?:i|we)\s+(?!{_NO_ACT})[a-z]+\s+(?:\w+\s+){{1,3}}for\s+you(?!\w))",
    re.IGNORECASE,
)
"""Somebody says in the present what they themselves do next: "I add those tests after lunch",
"I'm sending it the day it comes in", "let me split it, you have it before Monday"."""
_TO_COME: Final = re.compile(
    r"(?<!\w)(?:(?:you|it|this|that|they|\w+)\s*(?:['\u2019]ll|\s(?:will|shall))\s+"
    r"(?:be|get|receive|have|hear|come|arrive|follow)|"
    r"you\s+(?:get|receive|hear)|(?:you\s+have\s+(?:it|them|this|that)|\w+s\s+(?:\w+\s+)?you|"
    rf"(?:comes|arrives|follows)(?!,))\b{_AHEAD})(?!\w)",
    re.IGNORECASE,
)
"""Somebody says what will be done."""
_AS_A_RULE: Final = re.compile(
    r"(?<!\w)(?:as\s+a\s+rule|usually|normally|typically|generally|in\s+general|in\s+most\s+cases|"
    r"mostly|often|(?:cannot|can['\u2019]?t|could\s+not)\s+promise)(?!\w)",
    re.IGNORECASE,
)
"""What is so in general is promised to nobody."""
_HEEDED: Final = re.compile(
    r"(?:(?<!\w)(?:will|shall)|['\u2019]ll)\s+(?:\w+\s+)?(?:keep|stick|remember|respect|honou?r|heed|"
    r"go\s+by|abide|note|bear|follow|observe|mind)(?!\w)(?:\s+\w+){0,2}?"
    r"\s+(?:that|it|this|so)(?:\s+in\s+mind)?\W*$|"
    r"(?<!\w)(?:(?:how|what|as)\s+(?:it|things)|so\s+(?:it|that))\s+(?:will|shall)\s+be"
    r"(?:\s+\w+)?\W*$",
    re.IGNORECASE,
)
"""That a wish is heard is no task of its own: "I will keep to that"."""


def promised_in(text: str) -> str | None:
    """The sentences that promise something, as they were said; None: none does.

    What somebody will do themselves before what will be done; what is so as a rule is no promise.
    """
    sentences = [found.strip() for found in _SENTENCE.findall(text)]
    told = [
        sentence
        for sentence in sentences
        if sentence
        and not (sentence.endswith("?") or _AS_A_RULE.search(sentence) or _HEEDED.search(sentence))
    ]
    for pattern in (_WILL, _SOON, _TO_COME):
        if promising := [one for one in told if pattern.search(one)]:
            return " ".join(promising)
    return None


def promising_first(ranking: Sequence[Ranked], texts: Mapping[str, str]) -> list[Ranked]:
    """A ranking in which what promises in so many words stands before what is read with it.

    Args:
        ranking: the best first.
        texts: of the first events, by id.
    """
    read = [ranked for ranked in ranking if ranked.node_id in texts]
    moved = iter(sorted(read, key=lambda ranked: promised_in(texts[ranked.node_id]) is None))
    return [
        place
        if place.node_id not in texts
        else next(moved)._replace(rank=place.rank, relevance=place.relevance)
        for place in ranking
    ]
