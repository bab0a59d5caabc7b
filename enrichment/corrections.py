"""What a user puts right of how they are reached: "no, it is ada@example.com".

A message that takes something back, or says that it was mistyped, and gives one address or number
by which people are reached gives the user's own: that is what was asked for, or was read wrongly.
Precision is worth more than recall: without both there is no fact.
"""

from __future__ import annotations

import re
from typing import Final

from enrichment.facts import Assertion, literal
from enrichment.patterns import identifiers
from enrichment.persons import speaker_of, spoken_fact
from enrichment.ports import EventText
from enrichment.vocabulary import is_functional
from projections.events import Event

CORRECTED_CONFIDENCE: Final = 8_000
_REACHED_BY: Final = {"email": "has_email", "phone": "has_phone"}
_WRONG: Final = re.compile(
    r"\b(?:no|nope|wrong|incorrect|typo|mistyped|misspell(?:ed|t)|mistake|not right|correction"
    r"|i meant|outdated|old one)\b",
    re.IGNORECASE,
)
_IT_IS: Final = re.compile(
    r"\b(?:it(?:'s|\u2019s| is| should be| must be| ought to be| reads)"
    r"|(?:that|this|mine|the (?:right|correct|new|current) one)(?:'s|\u2019s| is| should be)"
    r"|i meant|i mean|correct is|right is|(?:e-?mail|address|number) is)\s+$",
    re.IGNORECASE,
)


def corrected_facts(event: Event, text: EventText, *, position_ms: int) -> list[Assertion]:
    """By what the user says that they are reached instead.

    Args:
        event: that says it.
        text: of the event.
        position_ms: when the ledger took the event in.
    """
    user = speaker_of(event, text)
    if user is None or "?" in text.text or _WRONG.search(text.text) is None:
        return []
    spans = [span for span in identifiers(text.text) if span.label in _REACHED_BY]
    if len(spans) != 1 or _IT_IS.search(text.text[: spans[0].start]) is None:
        return []
    relation = _REACHED_BY[spans[0].label]
    target = literal(text.text[spans[0].start : spans[0].end])
    if target is None:
        return []
    return [
        spoken_fact(
            event,
            user,
            relation,
            target,
            position_ms=position_ms,
            confidence=CORRECTED_CONFIDENCE,
            functional=is_functional(relation),
        )
    ]
