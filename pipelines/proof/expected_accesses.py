"""What all accesses of a ledger come to, for verify; taken in the order of their positions."""

from __future__ import annotations

from consolidation.access_counts import Access, AccessCounts, NodeKey
from consolidation.forgetting_payloads import Accessed, EventsForgotten, EventsRecalled
from consolidation.stage import Derived
from consolidation.tombstones import EventKey
from enrichment.payloads import Feedback


class ExpectedAccesses:
    """Adds up; memory grows with the nodes that were ever returned.

    Facts are left out: an edge that went and came back began anew, which nobody can tell later.
    """

    def __init__(self) -> None:
        self._away: set[EventKey] = set()
        self._counts = AccessCounts({}, {}, lambda key, position: True, self._away.__contains__)

    def take(self, one: Derived) -> None:
        """The next decision of its tenant."""
        tenant, decision = one.event.tenant, one.decision
        match decision:
            case Accessed() | Feedback():
                self._counts.take(one.position, one.event, decision)
            case EventsForgotten():
                keys = {(tenant, event_id) for event_id, _ in decision.events}
                self._away |= keys
                self._counts.forget(tenant, (event_id for event_id, _ in decision.events))
            case EventsRecalled(event_ids=event_ids, accessed=accessed):
                keys = {(tenant, event_id) for event_id in event_ids}
                self._away -= keys
                if accessed:
                    at_ms = one.event.occurred_at_ms
                    self._counts.recall(one.position, tenant, event_ids, at_ms)

    def nodes(self) -> dict[NodeKey, Access]:
        """Accesses by node; of one that is not there, nothing follows."""
        return self._counts.changed()
