"""How important an event is, 1 to 10, by rules.

`RULES` is the whole of it; the documentation's table is made from it. Points of all rules that
hold are added to BASE. What the producer says (`importance_hint`) weighs three times as much as
that sum: it knows its trade, but it also hints 5 at everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from enrichment.event_kinds import FAILED, TOOL_USE, EventKind
from enrichment.patterns import identifiers
from enrichment.ports import EventText
from enrichment.vocabulary import GREETINGS, STOP_WORDS, word_set
from projections.events import Event

BASE = 4
"""Of an event that no rule says anything about: a little less than the 5 that is shown before
enrichment, because most events are routine."""
LOWEST, HIGHEST = 1, 10
HINT_WEIGHT = 3

_CHATTER_CHARACTERS = 120
_CHATTER_WORDS = 2
_QUESTION_CHARACTERS = 200
_QUOTES = " \n\"')"
_SHORT_CHARACTERS = 20


class Rule(NamedTuple):
    """A row of the table.

    Attributes:
        name: of the rule.
        condition: whether it holds for an event and its text.
        points: added when it holds.
        meaning: what holds, for the documentation.
    """

    name: str
    condition: Callable[[Event, EventText], bool]
    points: int
    meaning: str


_OUTCOMES = word_set(
    "incident incidents alert alerts error errors exception failure failed crashed outage breach "
    "escalated escalation refused rejected denied rollback reverted complaint charged_twice"
)
_DECISIONS = word_set(
    "decision decisions decided plan planned approval approvals approved hypothesis conclusion "
    "chosen agreement commitment goal"
)
_CHANGES = word_set(
    "resolved created changed deleted removed updated deployed released captured granted revoked "
    "completed finished published signed paid refunded purchased booked cancelled canceled learned"
)
_NOISE = word_set(
    "heartbeat ping tick health metric metrics telemetry progress token tokens chunk delta debug "
    "typing presence keepalive polled"
)
_CHANGING_TOOLS = word_set(
    "add apply approve assign book buy cancel charge close commit configure create delete deploy "
    "disable drop edit enable execute grant insert install merge modify move order patch pay post "
    "publish purchase put refund register release remove rename replace reset restart restore "
    "revert revoke send set submit transfer update upgrade upload write"
)
_READING_TOOLS = word_set(
    "browse calculate check count describe fetch find get grep inspect list load lookup ls open "
    "peek query read retrieve search show think view wait"
)
_FIRST_WORD = re.compile(r"[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")  # noqa: RUF001  # the apostrophe people type

_URGENT = re.compile(
    r"\b(?:urgent(?:ly)?|critical|emergency|immediately|asap|deadline|severe|fatal|security"
    r"|data loss|double[- ]charged|charged twice|fraud|never again|must not|complain(?:t|ing)?"
    r"|root cause)\b",
    re.IGNORECASE,
)
_DECIDING = re.compile(
    r"\b(?:(?:i|we)(?:'ve| have)? (?:decided|agreed|chose|concluded)|decision is|go ahead"
    r"|please proceed|i confirm|confirmed:|approved|let's (?:do|go with)|we(?:'ll| will) go with"
    r"|from now on|going forward)\b",
    re.IGNORECASE,
)
_PERSONAL = re.compile(
    r"\b(?:my name is|call me|i(?:'m| am) (?:allergic|vegan|vegetarian|married|engaged|pregnant"
    r"|divorced|single|moving|a [a-z]+(?:er|or|ist|ian)\b)|i (?:prefer|always|never|hate|moved|quit"
    r"|joined|adopted|graduated|passed|won|lost|bought|started|signed up|applied)"
    r"|my (?:wife|husband|partner|son|daughter|mother|mom|father|dad|birthday|wedding|address"
    r"|new job|doctor|dream|goal)|got (?:married|engaged|promoted|fired|hired|divorced)"
    r"|was (?:born|diagnosed|promoted|fired|hired)|passed away|remember that)\b",
    re.IGNORECASE,
)
_APOSTROPHE = str.maketrans("’", "'")  # noqa: RUF001


def _segments(event: Event) -> frozenset[str]:
    """Parts of the event's type, and the words in them: charged_twice, charged, twice."""
    parts = event.event_type.split(".")
    return frozenset(parts).union(word for part in parts for word in part.split("_"))


def _of_types(words: frozenset[str]) -> Callable[[Event, EventText], bool]:
    return lambda event, text: not words.isdisjoint(_segments(event))


_speaks_of_an_outcome = _of_types(_OUTCOMES)


def _tool_begins(words: frozenset[str]) -> Callable[[Event, EventText], bool]:
    def condition(event: Event, text: EventText) -> bool:
        if text.kind not in TOOL_USE:
            return False
        word = _FIRST_WORD.search(text.speaker or event.tool or "")
        return word is not None and word[0].lower() in words

    return condition


def _says(pattern: re.Pattern[str]) -> Callable[[Event, EventText], bool]:
    """Whether words somebody said match; what a tool returns or a policy says decides nothing."""

    def condition(event: Event, text: EventText) -> bool:
        spoken = text.spoken and not _is_instruction(event, text)
        return spoken and pattern.search(text.text.translate(_APOSTROPHE)) is not None

    return condition


def _is_failed(event: Event, text: EventText) -> bool:
    """Whether it failed; what an event's type says of it is counted as an outcome, not twice."""
    reported = text.kind is EventKind.FAILURE and not _speaks_of_an_outcome(event, text)
    return event.status in FAILED or reported


def _is_instruction(event: Event, text: EventText) -> bool:
    return text.kind is EventKind.INSTRUCTION


def _is_message(text: EventText) -> bool:
    return text.kind is EventKind.MESSAGE and text.spoken


def _has_amount(event: Event, text: EventText) -> bool:
    return any(span.label == "amount" for span in identifiers(text.text))


def _is_chatter(event: Event, text: EventText) -> bool:
    if not _is_message(text) or len(text.text) > _CHATTER_CHARACTERS or identifiers(text.text):
        return False
    if any(c.isdigit() for c in text.text):
        return False  # `Pay 4712, please.` is short, but it asks for something
    words = {word.lower() for word in _WORD.findall(text.text.translate(_APOSTROPHE))}
    return len(words - GREETINGS - STOP_WORDS) <= _CHATTER_WORDS


def _is_question(event: Event, text: EventText) -> bool:
    spoken = _is_message(text) and len(text.text) <= _QUESTION_CHARACTERS
    return spoken and text.text.rstrip(_QUOTES).endswith("?") and not identifiers(text.text)


def _is_short(event: Event, text: EventText) -> bool:
    return not text.structured and len(text.text) < _SHORT_CHARACTERS


RULES: tuple[Rule, ...] = (
    Rule("failed", _is_failed, 3, "the status is failed or timeout, or an error is reported"),
    Rule("outcome", _speaks_of_an_outcome, 3, "the type speaks of an incident, alert or refusal"),
    Rule("decision", _of_types(_DECISIONS), 3, "the type speaks of a decision, plan or approval"),
    Rule("change", _of_types(_CHANGES), 2, "the type says that something was changed or settled"),
    Rule("acting tool", _tool_begins(_CHANGING_TOOLS), 2, "the tool changes something: book, send"),
    Rule("reading tool", _tool_begins(_READING_TOOLS), -1, "the tool only looks: get, search"),
    Rule("instruction", _is_instruction, 1, "a system message: what the agent must keep to"),
    Rule("urgent", _says(_URGENT), 2, "somebody says: urgent, critical, deadline, charged twice"),
    Rule("deciding", _says(_DECIDING), 1, "somebody says: we decided, go ahead, from now on"),
    Rule(
        "personal", _says(_PERSONAL), 2, "somebody tells of themselves: I prefer, my wife, I moved"
    ),
    Rule("amount", _has_amount, 1, "an amount of money is named"),
    Rule("chatter", _is_chatter, -2, "a short turn of greetings, thanks and common words"),
    Rule("question", _is_question, -1, "a turn that ends by asking, and names no identifier"),
    Rule("short", _is_short, -1, f"a message or words of less than {_SHORT_CHARACTERS} characters"),
    Rule(
        "noise", _of_types(_NOISE), -3, "the type is a heartbeat, a metric or a piece of a stream"
    ),
)


def importance_score(event: Event, text: EventText) -> int:
    """The importance of an event, LOWEST to HIGHEST.

    BASE plus the points of the rules that hold, within the limits; with a hint, the mean of that
    and HINT_WEIGHT times the hint, halves rounded up.
    """
    score = BASE + sum(rule.points for rule in RULES if rule.condition(event, text))
    score = min(max(score, LOWEST), HIGHEST)
    if event.importance_hint is None:
        return score
    weights = HINT_WEIGHT + 1
    return (2 * (HINT_WEIGHT * event.importance_hint + score) + weights) // (2 * weights)
