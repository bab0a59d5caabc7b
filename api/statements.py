"""What a caller states becomes an event of the ledger, made now and appended once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.responses import Response

from api.answers import JsonResponse
from api.dependencies import Caller, Services
from api.errors import current_request_id
from api.event_schemas import Accepted
from api.routes.events import refuse_when_busy
from enrichment.payloads import offered_event
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.observe import logs
from projections.errors import EventConflict, InvalidEvent, InvalidInput
from projections.events import Event, decode_event, timestamp_text
from projections.system_events import PARTITION_KEY

_log = logs.get_logger(__name__)

STATEMENT_PROBLEMS: Final = (
    "unauthenticated",
    "forbidden",
    "malformed-json",
    "body-too-large",
    "unsupported-media-type",
    "invalid-input",
    "event-conflict",
    "overloaded",
    "ledger-unavailable",
    "partition-halted",
    "internal",
)
"""What a route may answer that takes a statement."""
_PAYLOAD: Final = "payload."


async def take_statement(services: Services, event: Callable[[], Event], done: str) -> Response:
    """Append what a caller states, unless ingest has to wait; the answer says where it can be read.

    Args:
        services: of the ledger.
        event: makes it from the request; called on a thread of its own.
        done: what has happened then, for the log.

    Raises:
        ApiProblem: the API is overloaded, or the body is no JSON.
        InvalidInput: naming the fields as the request has them.
        EventConflict: the id is taken by anything else.
        LedgerUnavailable, GraphAhead: nothing can be appended now.
    """
    refuse_when_busy(services)
    accepted = await services.append(lambda: _append_stated(services.ledger(), event(), done))
    return JsonResponse(
        accepted, status_code=202, headers={"Location": f"/v1/events/{accepted.event_id}"}
    )


def system_event(
    event_id: Any, event_type: str, payload: Mapping[str, Any], caller: Caller
) -> Event:
    """An event that the caller makes now.

    Args:
        event_id: as sent; None: a random one, for saying the same again is saying it twice.
        event_type: one that producers may send.
        payload: as sent.
        caller: whose tenant and name it bears.

    Raises:
        InvalidInput: naming the fields as the request has them.
    """
    now_ms = time.time_ns() // 1_000_000
    try:
        return offered_event(
            {
                "event_id": str(uuid.uuid4()) if event_id is None else event_id,
                "event_type": event_type,
                "occurred_at": timestamp_text(now_ms),
                "session_id": PARTITION_KEY,
                "agent_id": caller.name,
                "trace_id": f"request-{current_request_id()}",
                "payload": payload,
            },
            now_ms=now_ms,
            tenant=caller.tenant,
        )
    except InvalidEvent as error:
        raise InvalidInput(
            tuple((name.removeprefix(_PAYLOAD), rule) for name, rule in error.errors)
        ) from None


def _append_stated(ledger: Ledger, event: Event, done: str) -> Accepted:
    """Append it; sent again with the same id and payload it is the same, whenever that was.

    Raises:
        EventConflict: the id is taken by anything else.
    """
    outcome = ledger.append([event], request_id=current_request_id())[0]
    if isinstance(outcome, EventConflict):
        return _stated_before(ledger, event, outcome)
    if not isinstance(outcome, Appended):
        raise outcome
    _log.info(done, events={event.event_id: str(outcome.position)})
    return Accepted(
        event_id=event.event_id, global_position=str(outcome.position), duplicate=outcome.duplicate
    )


def _stated_before(ledger: Ledger, event: Event, conflict: EventConflict) -> Accepted:
    """The answer to a request that is sent again: time and request id differ, the rest does not."""
    entry = ledger.find(event.tenant, event.event_id)
    if entry is None:
        raise conflict
    known = decode_event(entry.data, partition=entry.partition, position=str(entry.position))
    if (known.event_type, known.payload) != (event.event_type, event.payload):
        raise conflict
    return Accepted(event_id=event.event_id, global_position=str(entry.position), duplicate=True)
