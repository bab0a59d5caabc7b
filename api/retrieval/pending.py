"""Events that were accepted and that the graph does not have yet, as nodes from the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from enrichment.keywords import summary
from enrichment.ports import Analysis
from enrichment.text import event_text, stored_text
from pipelines.graph.reader import GraphNode
from pipelines.graph.reads.scope import Scope
from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Ledger
from projections.events import is_system_event
from projections.schema import EVENT
from projections.structural import event_node


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
