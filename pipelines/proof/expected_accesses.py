"""What all accesses of a ledger come to, for verify; taken in the order of their positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from consolidation.access_counts import Access, AccessCounts, NodeKey
from consolidation.forgetting import EventKey
from consolidation.forgetting_payloads import Accessed, EventsForgotten, EventsRecalled
from consolidation.stage import Derived
from enrichment.payloads import Feedback


class _Everywhere(Mapping[NodeKey, Access]):
    """Every node is there: what is not was never compared, what went is told apart."""

    def __getitem__(self, key: NodeKey) -> Access:
        return Access()

    def __iter__(self) -> Iterator[NodeKey]:
        return iter(())

    def __len__(self) -> int:
        return 0


class ExpectedAccesses:
    """Adds up; memory grows with the nodes that were ever returned.

    Facts are left out: an edge that went and came back began anew, which nobody can tell later.
    """

    def __init__(self) -> None:
        self._away: set[EventKey] = set()
        self._back: set[EventKey] = set()
        self._counts = AccessCounts(
            _Everywhere(), {}, self._back.__contains__, self._away.__contains__
        )

    def take(self, one: Derived) -> None:
        """The next decision of its tenant."""
        tenant, decision = one.event.tenant, one.decision
        match decision:
            case Accessed() | Feedback():
                self._counts.take(one.position, one.event, decision)
            case EventsForgotten():
                keys = {(tenant, event_id) for event_id, _ in decision.events}
                self._away |= keys
                self._back -= keys
                self._counts.forget(tenant, (event_id for event_id, _ in decision.events))
            case EventsRecalled(event_ids=event_ids, accessed=accessed):
                keys = {(tenant, event_id) for event_id in event_ids}
                self._away -= keys
                self._back |= keys
                if accessed:
                    at_ms = one.event.occurred_at_ms
                    self._counts.recall(one.position, tenant, event_ids, at_ms)

    def nodes(self) -> dict[NodeKey, Access]:
        """Accesses by node; of one that is not there, nothing follows."""
        return self._counts.changed()
