"""How often nodes were returned and facts traversed, while that is applied in its order.

- An event or an entity that was returned has one access more each time, and was accessed then.
- Feedback: useful is worth one access more, at that moment. Not useful takes an access back, if
  there is one, and leaves the time of the last one as it is. So what is judged useful stays longer
  than what was only returned, and what is judged useless fades as if it had not been returned.
- A fact that was traversed has one retrieval more, which then decays (`decay.Retrievals`).
- An event that is forgotten loses its accesses; to be recalled is its first one, at that moment,
  so that the next pass does not forget it again.
- An event that is away is left out: it was forgotten while the answer was on its way. So is a fact
  that was withdrawn; one that comes back begins anew.
- Nobody has read an event that the ledger did not hold yet: feedback on one that comes later is
  left out, wherever that is folded first. An entity has no place in the ledger, for its id follows
  from its name: what is said of one counts, and waits at a placeholder for its first mention.

Counts only rise, and so are applied by the transaction that moves the checkpoint and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from consolidation.decay import Retrievals, retrieved
from consolidation.forgetting import EventKey
from consolidation.forgetting_payloads import Accessed, FactKey
from enrichment.payloads import Feedback
from projections.events import Event
from projections.identity import Position
from projections.operations import DecideNode, Operation, SetEdge
from projections.schema import ENTITY, EVENT, RELATES_TO

FactPlace = tuple[str, FactKey]
"""(tenant, key within it)"""
NodeKey = tuple[str, str, str]
"""(label, tenant, id)"""


class Access(NamedTuple):
    """How often a node was returned, and when last (None: never)."""

    times: int = 0
    last_ms: int | None = None


class ShownFact(NamedTuple):
    """What the graph shows of a fact: its retrievals, and when it faded (None: not yet)."""

    retrievals: Retrievals | None = None
    faded_at_ms: int | None = None


class AccessCounts:
    """Counts, while accesses are applied in their order.

    Args:
        nodes: that are named, placeholders too; of another one nothing was counted yet.
        facts: that are named and are there.
        came: whether the ledger held an event at a position.
        away: whether an event is forgotten, and was not recalled.
    """

    def __init__(
        self,
        nodes: Mapping[NodeKey, Access],
        facts: Mapping[FactPlace, ShownFact],
        came: Callable[[EventKey, Position], bool],
        away: Callable[[EventKey], bool],
    ) -> None:
        self._shown = nodes
        self._facts = dict(facts)
        self._came = came
        self._away = away
        self._now: dict[NodeKey, Access] = {}
        self._changed: dict[NodeKey, Position] = {}
        self._changed_facts: set[FactPlace] = set()

    def take(self, position: Position, event: Event, told: Accessed | Feedback) -> None:
        """Something was returned, or judged."""
        tenant, at_ms = event.tenant, event.occurred_at_ms
        for label, ids in ((EVENT.label, told.events), (ENTITY.label, told.entities)):
            for node_id, worth in ids.items():
                key = (label, tenant, node_id)
                if isinstance(told, Accessed) or worth:
                    self._add(position, key, int(worth), at_ms)
                else:
                    self._add(position, key, -1, None)
        if isinstance(told, Accessed):
            for fact, times in told.facts.items():
                self._traverse((tenant, fact), Retrievals(float(times), at_ms))

    def forget(self, tenant: str, event_ids: Iterable[str]) -> None:
        """Events leave, if the decision to that effect is the last one about them."""
        for event_id in event_ids:
            if self._away((tenant, event_id)):
                key = (EVENT.label, tenant, event_id)
                self._now[key] = Access()
                self._changed.pop(key, None)

    def recall(self, position: Position, tenant: str, event_ids: Iterable[str], at_ms: int) -> None:
        """Events come back."""
        for event_id in event_ids:
            self._add(position, (EVENT.label, tenant, event_id), 1, at_ms)

    def expire(self, tenant: str, keys: Iterable[FactKey], at_ms: int) -> None:
        """Facts fade; of several decisions to that effect the earliest tells when."""
        for key in keys:
            shown = self._facts.get((tenant, key))
            if shown is not None:
                earliest_ms = min(at_ms, shown.faded_at_ms or at_ms)
                self._put((tenant, key), shown._replace(faded_at_ms=earliest_ms))

    def _add(self, position: Position, key: NodeKey, times: int, at_ms: int | None) -> None:
        label, tenant, node_id = key
        event_key = (tenant, node_id)
        if label == EVENT.label and (self._away(event_key) or not self._came(event_key, position)):
            return
        before = self._now.get(key) or self._shown.get(key, Access())
        times_ms = [ms for ms in (before.last_ms, at_ms) if ms is not None]
        self._now[key] = Access(max(0, before.times + times), max(times_ms, default=None))
        self._changed[key] = position

    def _traverse(self, place: FactPlace, added: Retrievals) -> None:
        shown = self._facts.get(place)
        if shown is not None:
            self._put(place, shown._replace(retrievals=retrieved(shown.retrievals, added)))

    def _put(self, place: FactPlace, fact: ShownFact) -> None:
        self._facts[place] = fact
        self._changed_facts.add(place)

    def changed(self) -> dict[NodeKey, Access]:
        """The nodes whose counts are others now; those that left are none of them."""
        return {key: self._now[key] for key in self._changed}

    def operations(self) -> Iterator[Operation]:
        """The counts as they are now."""
        for key, access in self.changed().items():
            position = self._changed[key]
            label, *node = key
            values = {"access_count": access.times, "last_accessed_at": access.last_ms}
            for name, value in values.items():
                yield DecideNode(
                    label=label, key=tuple(node), name=name, value=value, position=position
                )
        for tenant, named in self._changed_facts:
            fact = self._facts[tenant, named]
            weight, at_ms = fact.retrievals or (None, None)
            yield SetEdge(
                type=RELATES_TO.type,
                source=(tenant, named.source_id),
                target=(tenant, named.target_id),
                values={
                    "relation": named.relation,
                    "edge_type": named.edge_type,
                    "valid_from": named.valid_from_ms,
                    "event_id": named.event_id,
                    "retrieval_count": weight,
                    "last_retrieved_at": at_ms,
                    "faded_at": fact.faded_at_ms,
                },
            )
