"""Events that producers offer: the envelope's rules, and those of what they may state to Recollect.

The one place of these rules, for the API and for import. A statement that the ledger took in and
that no stage can apply would be a dead letter, told to an operator days later; refused here, it is
told to who made the mistake, field by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from enrichment.feedback import FEEDBACK_EVENT, Feedback, parse_feedback
from enrichment.requests import REQUESTED_EVENT, Asked, parse_request
from enrichment.statements import (
    ENTITY_CORRECTED,
    FACT_ASSERTED,
    FACT_RETRACTED,
    FactAsserted,
    Statement,
    parse_statement,
    stated_fact,
)
from projections.errors import InvalidEvent
from projections.events import Event, parse_event
from projections.system_events import SYSTEM_EVENTS, is_system_event

PUBLIC: Final = tuple(name for name, row in SYSTEM_EVENTS.items() if row.public)
"""System events that producers may send."""

STATEMENTS: Final = (FACT_ASSERTED, FACT_RETRACTED, ENTITY_CORRECTED)
"""Those among them that state something about the world."""
WITH_RULES: Final = (*STATEMENTS, FEEDBACK_EVENT, REQUESTED_EVENT)
"""Those whose payload has rules."""

MAX_ERRORS: Final = 100
"""Of one event: a payload of 256 KiB has room for 30,000 unknown fields, and a batch for a thousand
such payloads."""


def offered_event(raw: Any, *, now_ms: int, tenant: str | None = None) -> Event:
    """The event of an envelope that a producer may send.

    Args:
        raw: the decoded JSON of the envelope.
        now_ms: the receiver's clock, for the rule on events of the future.
        tenant: the caller's; None: the envelope's own, or the default.

    Raises:
        InvalidEvent: with every broken rule, each by field; at most MAX_ERRORS of them.
    """
    try:
        event = parse_event(raw, now_ms=now_ms, tenant=tenant)
        if is_system_event(event.event_type) and event.event_type not in PUBLIC:
            rule = f"of the types under memory. producers may send {', '.join(PUBLIC)}"
            raise InvalidEvent((("event_type", rule),))
    except InvalidEvent as error:
        raise _bounded((*error.errors, *_payload_errors(raw))) from None
    try:
        _check_statement(event)
    except InvalidEvent as error:
        raise _bounded(error.errors) from None
    return event


def _check_statement(event: Event) -> None:
    if event.event_type in WITH_RULES:
        said = _parsed(event.event_type, event.payload)
        if isinstance(said, FactAsserted):
            stated_fact(event, said, position_ms=0)


def _parsed(event_type: str, payload: Any) -> Statement | Feedback | Asked:
    if event_type == FEEDBACK_EVENT:
        return parse_feedback(payload)
    if event_type == REQUESTED_EVENT:
        return parse_request(payload)
    return parse_statement(event_type, payload)


def _payload_errors(raw: Any) -> tuple[tuple[str, str], ...]:
    """Of a statement in an envelope that is refused anyway, so that one answer names them all."""
    if isinstance(raw, Mapping) and raw.get("event_type") in WITH_RULES:
        try:
            _parsed(raw["event_type"], raw.get("payload"))
        except InvalidEvent as error:
            return error.errors
    return ()


def _bounded(errors: tuple[tuple[str, str], ...]) -> InvalidEvent:
    # the payload may be refused as a whole by both
    told = tuple(dict.fromkeys(errors))
    if len(told) > MAX_ERRORS:
        more = len(told) - MAX_ERRORS + 1
        told = (*told[: MAX_ERRORS - 1], ("(more)", f"{more:,} more rules broken"))
    return InvalidEvent(told)
