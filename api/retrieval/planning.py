"""What kind of thing a question asks for: the operator that answers it, and what limits it. Pure.

One row of `ROWS` is a way to ask for an operator. `question_forms` says how likely each operator
is, with the rows that match as evidence. The strongest row that a question matches decides, of
equally strong ones the first, unless another operator is likely enough to overrule it: the stronger
the row, the likelier it must be. What matched says how it is asked and not what about, so it is
left out of the topic, which is what an answer is searched by.

Times are found by `time_spans`, intents (which edges lead on) by `intent`; both are part of a plan.
Nothing here knows any tool, any product or any name: a plan is made of words that every domain
asks with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple

from api.retrieval.plan import IN_PAST, OF_ORDER, VALUES, Operator, Plan
from api.retrieval.plan_phrases import ROWS, SAYS_FAILED
from api.retrieval.query_terms import MAX_SEARCHED_CHARACTERS, as_meant
from api.retrieval.question_forms import SURELY_BELOW, reading, without_asking
from api.retrieval.time_windows import Window, at_its_beginning, exact_windows

_ALL: Final = frozenset(Operator)


class _Row(NamedTuple):
    operator: Operator
    strength: float
    pattern: re.Pattern[str]


_LIKELY: Final = ((0.95, 0.35), (1.0, 0.5), (1.15, 0.65), (math.inf, 0.9))
"""How likely what was learned must be to count, against a row of up to that strength."""
_LIKELY_PLAIN: Final = 0.97
"""How likely it must at least be that a question is a plain one of content, against any row."""
_GAP: Final = re.compile(r"\.\*\??")


def _compiled(pattern: str) -> re.Pattern[str]:
    """Of whole words; what stands in a gap between two parts of the phrase is of the topic."""
    with_gaps = _GAP.sub(lambda gap: f"({gap[0]})", pattern)
    return re.compile(rf"(?<!\w)(?:{with_gaps})(?!\w)", re.IGNORECASE)


_TABLE: Final = tuple(
    _Row(Operator(name), strength, _compiled(pattern))
    for name, strength, patterns in ROWS
    for pattern in patterns
)
WHAT_HAPPENED: Final = "what happened"
"""What a question asks for beyond the time that it names."""
_QUOTED: Final = re.compile(r"[\"\u201c\u201e](?P<text>[^\"\u201c\u201d]{8,})[\"\u201d\u201c]")
_AFTER_COLON: Final = re.compile(
    r"^[^:?]{3,60}(?::\s+(?P<text>(?=\S*[A-Z_]).{8,})|\?\s+(?P<code>(?=.*(?:\d|[_:]|[A-Z]{2})).{8,}))$",
    re.DOTALL,
)
"""What stands behind a colon, or behind a question if it looks like an error."""
_BETWEEN_ARROWS: Final = re.compile(r">>\s*([^<>\"]{8,}?)\s*<<")
_PASTED: Final = re.compile(
    r"^(?P<before>(?:[^:?]|(?<=\d):(?=\d)){3,60}:\s|(?:[^\W\d_]+,?\s+){1,6}?(?=\S*(?:_|-\d|[A-Z]{2}))(?=[^?]*[=:(]))"
    r"(?P<pasted>(?=.*(?:\d|[_=]|[A-Z]{2}))\S.{6,}?[\d)\]}>\"'](?:\s(?:[KMGT]i?B|[A-HJ-Z]))?)\s+"
    r"(?P<behind>[A-Z][^\W\d_]*(?:['\u2019]\w+)?,?(?:\s+[^\s\d:=_]+){2,})$",
    re.DOTALL,
)
"""An error that somebody pasted between two sentences, without a mark where it ends."""
_ERROR: Final = re.compile(
    r"^\W*(?:[A-Z][A-Za-z]*(?:Error|Exception|Timeout|Failure|Warning)|[A-Z]{2,}(?:_[A-Z0-9]+)+|"
    r"Traceback|Killed|panic|fatal|error|Segmentation)\b"
)
"""How an error begins that somebody has copied."""
_ASKS: Final = re.compile(
    r"^\W*(?:what|which|who\w*|when|where|why|how|did|do|does|is|are|was|were|has|have|had|can|"
    r"could|will|would|should|list|show|find|give|tell|count|explain|summar\w+|any)\b",
    re.IGNORECASE,
)
_AHEAD: Final = re.compile(
    r"\W*(?:(?:by|until|till)\s+)?when\s+(?:is|am|are|will|does|do|must|should|can|may|might|shall)\b",
    re.IGNORECASE,
)
_LASTING: Final = re.compile(
    r"\W*(?:and\s+)?(?:how\s+(?:long|much\s+time)\s+(?:did|does|has|have|had|was|were)|"
    r"(?:what\s+(?:is|was)\s+)?the\s+duration\s+of)\b",
    re.IGNORECASE,
)
_SOLVING: Final = re.compile(
    r"(?<!\w)(?:fix|solve|resolve|repair|recover|sort\s+out|(?:get|make)\s.*\bwork)(?!\w)",
    re.IGNORECASE,
)
_SESSION: Final = re.compile(
    r"(?<!\w)(?:session|conversation|chat|thread|run|case|ticket)(?!\w)", re.IGNORECASE
)
_THIS_SESSION: Final = re.compile(
    r"(?<!\w)(?:this|the\s+present|the\s+current|our)\s+(?:session|conversation|chat|thread|run)|"
    r"^\W*what\s+(?:has\s+)?happened(?:\s+(?:here|so\s+far))?\W*$",
    re.IGNORECASE,
)
_THIS_ONE: Final = re.compile(
    r"(?<!\w)(?:this|here)(?:\s+one)?(?=\s*(?:[,.;:!?]|please\b|pls\b|so\s+far\b|for\s+me\b|(?:been\s+)?about\b|$))",
    re.IGNORECASE,
)
"""What is summed up where nothing else is named: the session in which it is asked."""
_NEGATED: Final = re.compile(
    r"(?<!\w)why\s+(?:(?:could|did|was|were|is|are|does|do|has|have|can|would|will)"
    r"(?:n['\u2019]t|\s+(?:\S+\s+){0,5}?not|\s+(?:\S+\s+){0,5}?never)|ca(?:n['\u2019]t|nnot)|wo"
    r"n['\u2019]t)(?!\w)",
    re.IGNORECASE,
)
"""Why something was not done: it did not work."""
_COMPARED: Final = re.compile(
    r"^\W*(?:please\s+)?(?:compare\b|(?:what|which)\s+(?:is|are|was|were|has|have)?\s*(?:the\s+)?"
    r"(?:changed|different|differs?|differences?)\s+between\b|"
    r"how\s+(?:do|does|did|is|are)\s.*\b(?:compare|differ|different)\b)",
    re.IGNORECASE,
)
_STILL: Final = re.compile(
    r"(?<!\w)(?:still|open|outstanding|owe|left|pending|unkept|yet|unfulfilled)(?!\w)",
    re.IGNORECASE,
)
_SUCCEEDED: Final = re.compile(
    r"(?<!\w)(?:success\w*|succeed\w*|worked|passed|went\s+through|accepted|delivered|approved|confirmed|granted|"
    r"completed|green|finished)(?!\w)",
    re.IGNORECASE,
)


_THE_ONE_THAT: Final = re.compile(
    r"(?<!\w)(?!(?:it|is|was|say|said|know|me|mean|so|after|before)\b)\w+,?\s+(?:that|which)\s+"
    r"(?:was|were|got|has|had|came|went|made|brought|took|let|put|sent|found|finally|eventually|(?:the\s+)?\w+\s+(?:took|accepted|let)|"
    r"\w+ed)(?!\w)",
    re.IGNORECASE,
)
"""One of several attempts is meant, by what came of it: "the upload that the server took"."""
_OF_ONE: Final = (Operator.BEFORE, Operator.AFTER)
_NOT_MEANT: Final = re.compile(
    r"(?:(?:,|\s-)\s*(?:please,?\s+)?(?:and\s+)?not\s+(?:the\s+)?|\s+not\s+the\s+)"
    r"(?:old|previous|former|stale|outdated)(?:\s+(?:one|value|entry|state))?(?:,?\s+(?:please|pls|thx|thanks))?(?=\W*$)|"
    r"(?:,\s*|(?<!\s)\s+(?:-\s+)?)(?:please,?\s+)?(?:and\s+)?(?:not|rather\s+than|instead\s+of)\s+"
    r"(?:as\s+\w+\s+(?:is|are)\s+|what\s+\w+\s+(?:is|are)\s+|the\s+(?:one|value)\s+(?:of|from)\s+)?"
    r"(?:today(?:['\u2019]s)?|now|tonight)(?=\W*$)",
    re.IGNORECASE,
)
"""A time or a value that is not meant, behind the one that is."""
_WORD: Final = r"[\w.:~#/@&'\u2019-]+(?<!\.)"
_NAME: Final = r"(?:(?!I\b)[A-Z][\w'\u2019-]*|[\w.:~#/-]*\d[\w.:~#/-]*)"
_BEHIND: Final = (
    "as|at|in|on|by|of|for|to|from|with|until|till|and|or|but|is|was|are|were|has|had|before|after|"
    "right|just|now|today|then|back|again|these|those|this|that|please|pls|thanks|thx"
)
"""What may stand behind something of somebody and is no part of its name."""
_VALUE_OF: Final = re.compile(
    rf"(?<!\w)[Tt]he\s+(?:(?!(?:the|of|for)\s){_WORD}\s+){{1,5}}of\s+(?!in\b|at\b|on\b|by\b)(?:{_WORD}\s+){{0,5}}?"
    rf"{_NAME}(?:\s+{_NAME})*(?:(?<=['\u2019]s)\s+\w+(?:\s+(?!(?:{_BEHIND})\b)\w+)?)?"
)
"""Something of something that has a name: "the desk of Ana Sato", "the size of room R-12"."""
_ITS_VALUE: Final = re.compile(
    rf"^\W*(?:and\s+)?{_NAME}(?:\s+{_NAME})*['\u2019]s?\s+"
    r"(?:(?!\w+(?:ed|ing)\b)[^\W\d_][\w-]*\s+){0,2}"
    r"(?!(?:problem|issue|trouble|error|failure|incident|case|ticket|request|complaint|question|"
    r"message|reply|answer|story|session|conversation|day|week)\b|\w+[^\Wsui]s\b)"
    r"[^\W\d_][\w-]*\W*$"
)
"""The same, by a name in the genitive and one thing that is no plural: "Ana Sato's desk?"."""
_IN_WHICH: Final = re.compile(
    r"^\W*(?:and\s+)?(?:in|on|at|to|with|by|under)\s+(?:which|what)\s+\w+(?:\s+\w+)?\s+(?:is|are)\s+"
    r"(?:\S+\s+){0,3}?(?!\w+(?:ed|en)\b)\S+\s*$",
    re.IGNORECASE,
)
"""What something is in: "in which city is Ana?"."""
_OF_A_NAME: Final = 0.4
"""How sure it is that a value is asked for where nothing but such a name tells."""
_SURE: Final = 0.65
"""How likely at least what a question asks for must be, where only its form tells."""


@lru_cache(maxsize=256)
def plan_of(
    query: str,
    now_ms: int,
    zone: tzinfo = UTC,
    *,
    day_ms: int | None = None,
    besides: frozenset[Operator] = frozenset(),
    vector: tuple[float, ...] | None = None,
) -> Plan:
    """The plan of a question.

    Args:
        query: in a person's words; its first MAX_SEARCHED_CHARACTERS count.
        now_ms: the clock that "yesterday" counts from.
        zone: whose midnights days begin at.
        day_ms: a moment of the day that times of day are of, where it names none; None: of today.
        besides: operators that are not meant.
        vector: of the question; None: its words must do.
    """
    given = _NOT_MEANT.sub("", as_meant(query[:MAX_SEARCHED_CHARACTERS]))
    text = _with_quotes(given)
    spans = _without_errand(exact_windows(text, now_ms, zone, day_ms=day_ms), text)
    quoted = _quoted(text)
    timeless = _timeless(text, spans)
    not_meant = besides | (frozenset() if spans else _OF_A_TIME)
    if _I_PROMISED.search(text):  # what who asks said, and no task of the agents
        not_meant |= {Operator.PROMISE, Operator.OPEN}
    matching = rows_matching(text)
    read = reading(text, matching, vector=vector)
    operator, confidence, guessed = _asked(
        text, timeless, matching, shares=read.shares, besides=not_meant
    )
    unsure = guessed and confidence < _SURE
    of_name = _asks_of_name(timeless, operator, guessed=guessed, unsure=unsure)
    compares = _COMPARED.match(text) is not None
    if guessed and compares:  # of what there is of both, not of one value
        operator, confidence, guessed = Operator.SEARCH, 0.0, False
    if (confidence == 0 and quoted) or (text != given and operator in _ASKEDIN_PASTED):
        operator, confidence, guessed = Operator.SIMILAR, max(confidence, 0.8), False
    elif of_name and not (besides or compares):
        operator, confidence, guessed = Operator.VALUE, _OF_A_NAME, True
    if operator is Operator.VALUE and _ABOUT.search(text):
        operator, confidence, guessed = Operator.SEARCH, 0.0, False  # all of it tells, no field
    if operator is Operator.VALUE and spans and all(span.span.end_ms <= now_ms for span in spans):
        operator = Operator.VALUE_AT
    if operator is Operator.PROFILE and guessed and any(span.has_day for span in spans):
        operator = Operator.WINDOW  # of one day: "Ana on Wednesday, fill me in"
    spans = _windows_meant(operator, spans, text, now_ms)
    timeless = timeless if spans or operator in _HOWEVER_LONG else text
    sums_up = operator is Operator.SUMMARY or (
        operator is Operator.WINDOW and Operator.SUMMARY in matching
    )
    if sums_up and spans and not _SESSION.search(text):
        operator = Operator.WINDOW  # of a day: what happened on it
        left = _without(timeless, Operator.SUMMARY).strip(" ?.!,:;")
        timeless = left or WHAT_HAPPENED
    lasting = operator in _OF_LENGTH and _LASTING.match(text) is not None
    if lasting and _SOLVING.search(text):
        operator, timeless = Operator.LESSON, _topic(text, timeless, operator)
    return Plan(
        operator=operator,
        confidence=confidence,
        topic=quoted
        if operator is Operator.SIMILAR and quoted
        else _topic(text, timeless, operator),
        spans=tuple(span.span for span in spans),
        session=_THIS_SESSION.search(text) is not None
        or (operator is Operator.SUMMARY and _THIS_ONE.search(text) is not None),
        failed=_failed(text, operator),
        quoted=quoted,
        needs_day=not all(span.has_day for span in spans),
        timeless=timeless,
        ahead=operator is Operator.TIME and _AHEAD.match(text) is not None,
        lasting=lasting,
        still=_STILL.search(text) is not None,
        compares=compares,
        elsewhere=operator is Operator.CAUSE
        and (read.elsewhere or _OF_CHANGE.search(text) is not None),
        guessed=guessed,
    )


def _windows_meant(
    operator: Operator, spans: tuple[Window, ...], text: str, now_ms: int
) -> tuple[Window, ...]:
    """The windows of a question, as what it asks for has them.

    Of when something was, a time of day that no "at" or "between" leads up to says nothing: a
    record has it, "it reads 16:05 to 17:35". What is valid today may have been so for long, and
    what is promised may be done tonight.
    """
    is_now = any(span.span.first_ms <= now_ms < span.span.end_ms for span in spans)
    if operator is Operator.VALUE and is_now and IN_PAST.search(text) is None:
        return ()
    if operator is Operator.PROMISE and any(span.span.first_ms >= now_ms for span in spans):
        return ()
    if operator is Operator.VALUE_AT:
        return tuple(map(at_its_beginning, spans))
    is_told = not any(span.has_day or span.text[:1].isalpha() for span in spans)
    return () if is_told and operator is Operator.TIME else spans


_ERRAND: Final = re.compile(
    r"^\W*(?:i|we)(?:['\u2019](?:m|re)|\s+(?:am|are))?\s+(?:about\s+to|(?:prepar|plann|meet|visit|"
    r"send|host|cook|bring|fly|travell?)ing|meet|visit|host|take\s+over|taking\s+over)(?!\w)"
    r"[^.?!]*[.!]\s+(?=\S[^?]*\?\W*$)",
    re.IGNORECASE,
)
"""Who asks says first what for: "I'm preparing a talk for Monday. What did they ask of us?"."""


def _without_errand(spans: tuple[Window, ...], text: str) -> tuple[Window, ...]:
    """The windows of a question but for those of what it is asked for."""
    errand = _ERRAND.match(text)
    return spans if errand is None else tuple(s for s in spans if s.text not in errand[0])


_HOWEVER_LONG: Final = (Operator.VALUE, Operator.PROMISE)
"""Operators of what is so now, whenever it was said."""


def _asks_if_so(text: str) -> bool:
    """Whether no more than yes or no is asked for: "the pump, did it come back?"."""
    return _WHAT.search(text) is None and _IF_SO.match(re.split(r"[,;:]\s", text)[-1]) is not None


def _asks_of_name(text: str, operator: Operator, *, guessed: bool, unsure: bool) -> bool:
    """Whether something of what has a name is all that a question tells, and not if it is so."""
    named = _VALUE_OF.search(text)
    # "the on-call contact for Ana Sato?" says nothing of calls
    is_all = _VALUE_OF.fullmatch(text.strip(" ?.!").replace(" for ", " of ")) is not None
    may_be = operator is Operator.SEARCH or (
        guessed and (operator is Operator.PREFERENCE or (is_all and operator is Operator.CALLS))
    )
    may_be |= unsure and operator is Operator.PROFILE  # all of somebody is asked for otherwise
    is_all |= operator is Operator.SEARCH and _ITS_VALUE.match(text) is not None
    is_of_one = (is_all or named is not None) and _IF_SO.match(text) is None
    return may_be and (is_of_one or _IN_WHICH.match(text) is not None)


_IF_SO: Final = re.compile(
    r"^\W*(?:is|are|was|were|do|does|did|has|have|had|should|ought|"
    r"(?:can|could|will|would)(?!\s+you))\b",
    re.IGNORECASE,
)
_OF_CHANGE: Final = re.compile(
    r"(?<!\w)(?:root\s+causes?|ch(?:an|na)g(?:ed?|es|ing)|alter(?:ed|ations?)|modif(?:ied|ications?)|"
    r"reconfigur\w+|(?:decision|switch|move|measure|step)s?\s+(?:that|which)\s+"
    r"(?:explains?|caused?|led|lies?|brought)|from\s+the\s+sky|out\s+of\s+(?:nowhere|the\s+blue)|"
    r"all\s+of\s+a\s+sudden|the\s+other\s+end|on\s+our\s+(?:side|end))(?!\w)",
    re.IGNORECASE,
)
"""Says that something is behind what happened that was done before it."""
_ABOUT: Final = re.compile(
    r"(?:^\W*|[.!?;:,]\s+)what(?:\s+(?:is|are|was|were)|['\u2019]s)\s"
    r"(?:[^?]*\sabout|(?:it|this|that|these|those)\s+(?:from|for))\W*$",
    re.IGNORECASE,
)
_WHAT: Final = re.compile(r"(?<!\w)(?:what|which|how)(?!\w)", re.IGNORECASE)
_OF_PLACE: Final = (*_OF_ONE, Operator.FIRST)
"""Operators that ask for an event by its place among others."""
_WITHOUT_TIME: Final = frozenset((Operator.OPEN, Operator.FAILURES))
"""Operators that are asked for in whole sentences, to which a time may be added."""
_NEEDED: Final = {
    Operator.SIMILAR: re.compile(r"\d|[:\"\u201c`_]|(?i:\b(?:error|exception|fail\w*)\b)"),
    Operator.OPEN: re.compile(
        r"(?i)(?<!\w)(?:open|pending|outstanding|left|remain\w*|still|due|undone|wait\w*|un[a-z]+ed|"
        r"incomplete|to-?dos?|backlog|loose|hanging|dangling|stuck|progress|yet|not|never|over|"
        r"finish\w*|clos\w+|complet\w+|done|clear\w*|settle\w*|resolv\w+)(?!\w)"
    ),
    Operator.LAST: re.compile(
        r"(?i)(?<!\w)(?:last|lately|latest|newest|recent\w*|final|closing|parting|words?|messages?|said|says?|"
        r"wr[io]te\w*|written|heard?|told|tell|sent|mail|texts?|quote|lines?|repl\w+|note)(?!\w)"
    ),
}
"""What a question must have to be read so without a row: an error has a number or a mark, what is
open is said to be so, the last words are words."""
_OF_A_PROMISE: Final = re.compile(
    r"(?<!\w)(?:promis\w+|pledg\w+|assur\w+|commit\w*|undert\w+|announc\w+|ow(?:e|es|ed|ing)|word|"
    r"said|told|due|outstanding|pending|left|still|yet|wait\w*|kept|unkept|deliver\w*|follow\w*)(?!\w)",
    re.IGNORECASE,
)
_OPENED: Final = re.compile(
    r"(?<!\w)(?:did|has|have|had|does|do)\s+(?:\S+\s+){1,3}?open(?:ed)?\b(?!\s+yet)", re.IGNORECASE
)
_OF_LENGTH: Final = (Operator.TIME, Operator.LESSON)
_I_PROMISED: Final = re.compile(
    r"(?<!\w)(?:(?:did|have|had)\s+i\s+promised?|i(?:['\u2019](?:ve|d)|\s+(?:have|had))?\s+promised)(?!\w)",
    re.IGNORECASE,
)
_OF_A_TIME: Final = frozenset((Operator.WINDOW, Operator.VALUE_AT))
_ASKEDIN_PASTED: Final = frozenset((Operator.TIME, Operator.ACTOR, Operator.VALUE))
"""What else is asked of an error that was pasted: when it was there before, what somebody did."""


def _asked(
    text: str,
    timeless: str,
    matching: Mapping[Operator, float],
    *,
    shares: dict[str, float],
    besides: frozenset[Operator],
) -> tuple[Operator, float, bool]:
    """The operator that is asked for, how sure it is (0: nothing is understood), and if by guess.

    All rows that match, the words and the vector are weighed by what was learned from phrasings: a
    row that matches part of a question may mislead. The surer a row, the more it takes to overrule
    it.
    """
    allowed = _ALL - besides
    strengths = {one: strength for one, strength in matching.items() if one in allowed}
    if timeless != text:  # whole sentences, to which a time may be added
        strengths |= rows_matching(timeless, of=_WITHOUT_TIME & allowed)
    best = max(strengths, key=strengths.__getitem__, default=Operator.SEARCH)
    strength = strengths.get(best, 0.0)
    if Operator.VALUE_AT not in allowed:  # of a day that it does not name
        shares[Operator.VALUE] += shares[Operator.VALUE_AT]
    learned = max(allowed, key=lambda operator: shares[operator])
    # of a time that it does not name: it is rather a plain question than one of another operator
    without_time = max((matching.get(one, 0.0) for one in _OF_A_TIME - allowed), default=0.0)
    least = next(share for bound, share in _LIKELY if max(strength, without_time) <= bound)
    if learned is Operator.SEARCH:
        is_plain = shares[learned] >= max(least, _LIKELY_PLAIN)
        return (learned, 0.0, False) if is_plain else (best, min(1.0, strength), False)
    needed = _NEEDED.get(learned)
    is_meant = needed is None or needed.search(text) is not None
    if learned is Operator.OPEN and _OPENED.search(text) is not None:
        is_meant = False  # who opened something asks for no more than that
    if learned is Operator.PROMISE and _asks_if_so(text) and not _OF_A_PROMISE.search(text):
        is_meant = False  # "will her funding run out soon?" asks about her, and for no promise
    if learned in _OF_PLACE and _asks_if_so(text):
        is_meant = False  # "did the alert resolve?" asks for no event beside another
    if shares[learned] >= least and is_meant and learned is not best:
        return learned, shares[learned], strengths.get(learned, 0.0) < 1
    return best, min(1.0, strength), False


def rows_matching(text: str, *, of: Collection[Operator] = _ALL) -> dict[Operator, float]:
    """The strength of the strongest row of each operator that a question matches.

    They stand in the order of the table, so that of equally strong ones the first is met first.
    """
    strengths: dict[Operator, float] = {}
    for row in _TABLE:
        is_stronger = row.operator in of and row.strength > strengths.get(row.operator, 0.0)
        if is_stronger and row.pattern.search(text):
            strengths[row.operator] = row.strength
    return strengths


def _timeless(text: str, spans: tuple[Window, ...]) -> str:
    """The text without what says when: of "the notes of 3 May. Why?" it is "the notes . Why?"."""
    left = text
    for span in spans:
        for named in filter(None, (span.text, span.beside)):
            end = named[-1] if named.endswith((".", "?", "!")) else ""
            left = re.sub(rf"(?:(?<!\w)of\s+)?{re.escape(named)}", f" {end} ", left)
    return left


def _topic(text: str, timeless: str, operator: Operator) -> str:
    """The text without what says how it is asked, and without what says when."""
    left = _without(timeless, operator)
    if left == timeless and operator is not Operator.SEARCH:  # no row told how it is asked
        left = without_asking(left, timeless)
    elif operator is Operator.VALUE:  # a row told a part of it
        left = without_asking(left, timeless, below=SURELY_BELOW)
    if operator is Operator.VALUE_BEFORE:
        left = _AT_THE_END.sub("", left)
    if operator is Operator.VALUE and _HELD.match(timeless) is not None:
        left = _HELD.sub(r"\g<thing> of \g<whom>", timeless)
    named = _VALUE_OF.search(timeless) or _ITS_VALUE.match(timeless)
    if operator in VALUES and named is not None:
        left = named[0]  # what stands around it tells where it is looked up, or what for
    for chosen in (left, timeless, text):
        words = " ".join(chosen.split()).strip(" ?.!,:;")
        if re.search(r"\w{2}", words):
            return words
    return " ".join(text.split())


def _without(text: str, operator: Operator) -> str:
    """The text without what asks for an operator."""
    for row in _TABLE:
        if row.operator is operator is not Operator.SEARCH:  # nothing of its words is left out
            text = row.pattern.sub(_in_gaps, text)
    return text


_HELD: Final = re.compile(
    r"^\W*(?:and\s+)?(?:what|which)\s+(?P<thing>\w+(?:\s+\w+)?)\s+(?:do|does)\s+"
    r"(?P<whom>\S+(?:\s+\S+)?)\s+have(?!\w)",
    re.IGNORECASE,
)
"""What somebody has: "which role does Ana have in the ward?"."""
_AT_THE_END: Final = re.compile(r"\s+before\W*$", re.IGNORECASE)


def _in_gaps(match: re.Match[str]) -> str:
    return " ".join(["", *(gap for gap in match.groups() if gap), ""])


def _with_quotes(text: str) -> str:
    """A question with quotation marks around an error that was pasted into it without any."""
    text = _BETWEEN_ARROWS.sub(r'"\1"', text)
    match = _PASTED.match(text.strip())
    if match is None or _QUOTED.search(text) is not None or _ASKS.match(match["pasted"]):
        return text
    pasted = match["pasted"].replace('"', "'")
    return f'{match["before"].strip()} "{pasted}" {match["behind"]}'


def _quoted(text: str) -> str:
    """The error or the words that a question quotes."""
    if (match := _QUOTED.search(text)) is not None:
        return match["text"].strip()
    match = _AFTER_COLON.match(text.strip())
    if match is not None and not _ASKS.match(behind := match["text"] or match["code"]):
        return behind.strip(" ?")
    if _ERROR.match(text) and not _ASKS.match(text):
        return text.strip(" ?")
    return ""


_HELD_UP: Final = re.compile(
    r"(?<!\w)(?:the|a)\s+(?:(?:hold|stop|halt|block|freeze|veto|ban|stoppage|rebuff)\s+(?:on|of|for|to)|"
    r"(?:stopped|halted|blocked|frozen|vetoed|barred)\s+\w+)(?!\w)",
    re.IGNORECASE,
)
"""Calls what did not go on so, where something is asked for beside it: "the hold on BP-26"."""


def _failed(text: str, operator: Operator) -> bool | None:
    if operator is Operator.CAUSE and _NEGATED.search(text):
        return True
    if _SUCCEEDED.search(text):
        return False
    if SAYS_FAILED.search(text) or (operator in OF_ORDER and _HELD_UP.search(text)):
        return True
    return False if operator in _OF_ONE and _THE_ONE_THAT.search(text) else None
