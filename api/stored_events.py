"""An event as the ledger has it: who may see it, and how it is shown."""

from __future__ import annotations

from typing import Any, Final

from api.schemas import Provenance, StoredEvent
from enrichment.payloads import FACT_ASSERTED, FACT_RETRACTED, FEEDBACK_EVENT
from pipelines.graph.reads.scope import Scope
from pipelines.ledger.entries import Entry
from projections.events import Event, as_envelope, is_system_event

PROVENANCE: Final = ("global_position", "occurred_at", "session_id", "agent_id", "trace_id")
"""What points to an event in the ledger, beside its id."""
_FACTS: Final = (FACT_ASSERTED, FACT_RETRACTED)


def sees(scope: Scope, event: Event) -> bool:
    """Whether an event of the scope's tenant may be seen; of those about memory, few."""
    of_user = event.event_type == FEEDBACK_EVENT and event.user_id is not None
    if is_system_event(event.event_type) and event.event_type not in _FACTS and not of_user:
        return scope.everyone
    return scope.sees_user(event.user_id)


def stored(entry: Entry, event: Event) -> dict[str, Any]:
    """An event of the ledger as a `StoredEvent`."""
    fields = dict.fromkeys(StoredEvent.model_fields) | as_envelope(event)
    fields["global_position"] = str(entry.position)
    pointer = {name: fields[name] for name in PROVENANCE}
    fields["provenance"] = Provenance(event_id=event.event_id, **pointer).model_dump()
    return fields
