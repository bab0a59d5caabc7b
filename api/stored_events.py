"""An event as the ledger has it: who may see it, how it is shown, what node it would be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from api.schemas import Provenance, StoredEvent
from enrichment.keywords import summary
from enrichment.payloads import FACT_ASSERTED, FACT_RETRACTED, FEEDBACK_EVENT
from enrichment.ports import Analysis
from enrichment.text import event_text, stored_text
from pipelines.graph.reader import GraphNode
from pipelines.graph.reads.scope import Scope
from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Ledger
from projections.events import Event, as_envelope, is_system_event
from projections.schema import EVENT
from projections.structural import event_node

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


def pending_nodes(ledger: Ledger, scope: Scope, event_ids: Sequence[str]) -> dict[str, GraphNode]:
    """The events that the viewer may see, by id, with what the first stage makes of them.

    Raises:
        LedgerUnavailable: Redis is away.
        UndecodableEntry: an entry is no event.
    """
    entries = ledger.find_many([(scope.tenant, event_id) for event_id in event_ids])
    return {
        event_id: node
        for (_, event_id), entry in entries.items()
        if not entry.fault and (node := _node(scope, entry)) is not None
    }


def _node(scope: Scope, entry: Entry) -> GraphNode | None:
    event = entry.event()
    later = scope.until is not None and entry.position > scope.until
    if later or is_system_event(event.event_type) or not scope.sees_user(event.user_id):
        return None
    words = event_text(event)
    values = {
        **event_node(event, entry.position).values,
        "kind": words.kind.value,
        "text": stored_text(words.text),
        "speaker": words.speaker,
        "summary": summary(event, words, Analysis()),  # no answer is told without it
    }
    present = {name: value for name, value in values.items() if value not in (None, "")}
    return GraphNode(EVENT.label, event.event_id, present)
