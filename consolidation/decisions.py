"""What the system events of this stage say, and the events that say it.

The payloads are in `payloads` (`memory.consolidated`) and `forgetting_payloads`
(`memory.forgotten`, `memory.recalled`, `memory.accessed`); `memory.consolidation_requested` is read
by `enrichment.payloads`, `memory.feedback` by `enrichment.payloads`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from consolidation.forgetting_payloads import (
    ACCESSED_EVENT,
    FORGOTTEN_EVENT,
    RECALLED_EVENT,
    Accessed,
    Departed,
    parse_accessed,
    parse_departure,
)
from consolidation.payloads import (
    CONSOLIDATED_EVENT,
    Consolidated,
    Requested,
    parse_consolidated,
)
from enrichment.entity_matching import DECIDER
from enrichment.payloads import (
    FEEDBACK_EVENT,
    REQUESTED_EVENT,
    Feedback,
    parse_feedback,
    parse_request,
)
from projections.events import Event, canonical_json, derived_event_id
from projections.positions import START, Position
from projections.system_events import PARTITION_KEY

Decision = Consolidated | Departed | Requested | Accessed | Feedback


# -- events ----------------------------------------------------------------------------------------


def decision_event(
    event_type: str, tenant: str, payload: Mapping[str, Any], now_ms: int, *about: object
) -> Event:
    """A decision as an event; its id is what it is about, so a crash never decides twice.

    Args:
        event_type: of the event.
        tenant: that it is about.
        payload: what is decided.
        now_ms: the clock, which the decision bears.
        about: what is decided on what grounds: the subject, a digest of what is said of it
            and the position of the decision that the graph shows (None: there is none).
            Without that position, what is decided a second time, after something else was,
            would be taken for the first.
    """
    grounds = ("" if one is None else str(one) for one in about)
    return Event(
        tenant=tenant,
        event_id=derived_event_id(event_type, tenant, *grounds),
        event_type=event_type,
        occurred_at_ms=now_ms,
        session_id=PARTITION_KEY,
        agent_id=DECIDER,
        trace_id=PARTITION_KEY,
        payload=payload,
    )


def recall_events(
    tenant: str,
    payloads: Iterable[Mapping[str, Any]],
    decided_at: Iterable[Position | None],
    now_ms: int,
) -> list[Event]:
    """Decisions that what is away comes back; the same again after a crash.

    Args:
        tenant: whose memory.
        payloads: of `recalled_payloads`.
        decided_at: positions of the decisions by which it went, None where nobody knows.
        now_ms: the clock.
    """
    newest = max((at for at in decided_at if at is not None), default=START)
    return [
        decision_event(
            RECALLED_EVENT, tenant, payload, now_ms, *(canonical_json(payload).decode(), newest)
        )
        for payload in payloads
    ]


# -- and back --------------------------------------------------------------------------------------


def parse_decision(event: Event) -> Decision | None:
    """What a system event of this stage says; None: nothing that is applied.

    Raises:
        InvalidEvent: with every broken rule of the payload, each by field.
    """
    if event.event_type == CONSOLIDATED_EVENT:
        return parse_consolidated(event.payload)
    if event.event_type in (FORGOTTEN_EVENT, RECALLED_EVENT):
        return parse_departure(event.event_type, event.payload)
    if event.event_type == REQUESTED_EVENT:
        return _requested(event.payload)
    if event.event_type == ACCESSED_EVENT:
        return parse_accessed(event.payload)
    if event.event_type == FEEDBACK_EVENT:
        return parse_feedback(event.payload)
    return None


def _requested(payload: Any) -> Requested:
    if payload is None:
        return Requested(None)
    parse_request(payload)
    return Requested(canonical_json(payload).decode())
