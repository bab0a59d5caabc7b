"""Events that leave the graph, and come back, as decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from consolidation.bridging import EventKey, Leaving, removals, rewired
from consolidation.forgetting_payloads import EventsForgotten
from consolidation.retention import Tier
from projections.operations import (
    DecideNode,
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operation,
    Operations,
)
from projections.positions import Position
from projections.schema import EVENT, FORGOTTEN, SUMMARIZES
from projections.structural import Link, Neighbours, SessionKey


class Tombstone(NamedTuple):
    """What was last decided of an event that is, or was, forgotten.

    Attributes:
        recalled: it came back, or is about to.
        decided_at: position of that decision.
        summary_id: of the Summary that it was a member of, if that is known.
    """

    recalled: bool
    decided_at: Position
    summary_id: str | None = None


class Departures:
    """Tombstones and boosts of events, while decisions are applied in their order.

    Args:
        tombstones: that the graph has, of the events that the decisions name.
        nodes: of the events that are to leave.
        neighbours: of those of them that stand in a chain.
        present: events that have a node, be it a placeholder.
    """

    def __init__(
        self,
        tombstones: Mapping[EventKey, Tombstone],
        nodes: Mapping[EventKey, Leaving],
        neighbours: Mapping[tuple[SessionKey, Link], Neighbours],
        present: Set[EventKey],
    ) -> None:
        self._shown = tombstones
        self._nodes = nodes
        self._neighbours = neighbours
        self._present = present
        self._now: dict[EventKey, Tombstone] = {}
        self._removed: dict[EventKey, tuple[Tier, Position]] = {}
        self._boosts: list[tuple[EventKey, float, Position]] = []

    def of(self, key: EventKey) -> Tombstone | None:
        """What was last decided of an event."""
        return self._now.get(key) or self._shown.get(key)

    def forget(self, tenant: str, position: Position, decided: EventsForgotten) -> None:
        """Members of a Summary leave."""
        for event_id, tier in decided.events:
            key = (tenant, event_id)
            known = self.of(key)
            if known is None or known.decided_at <= position:
                summary_id = known.summary_id if known else None
                self._now[key] = Tombstone(False, position, summary_id or decided.summary_id)
                self._removed[key] = tier, position

    def recall(self, tenant: str, position: Position, event_ids: Sequence[str]) -> list[str]:
        """Events come back; those of which nothing newer was decided, are returned."""
        back = []
        for event_id in event_ids:
            key = (tenant, event_id)
            known = self.of(key)
            if known is None or known.decided_at <= position:
                self._now[key] = Tombstone(True, position, known.summary_id if known else None)
                back.append(event_id)
        return back

    def boost(self, tenant: str, position: Position, boosts: Mapping[str, float]) -> None:
        """Events gain importance."""
        for event_id, boost in boosts.items():
            self._boosts.append(((tenant, event_id), boost, position))

    def away(self, key: EventKey) -> bool:
        """Whether an event is forgotten, and was not recalled."""
        known = self.of(key)
        return known is not None and not known.recalled

    def back(self, key: EventKey) -> bool:
        """Whether an event was recalled: it is there again, or is about to be."""
        known = self.of(key)
        return known is not None and known.recalled

    def recalled(self) -> Iterator[tuple[EventKey, str]]:
        """Events that this batch recalls, and the Summary that each was a member of."""
        for key, known in self._now.items():
            if known.recalled and known.summary_id is not None:
                yield key, known.summary_id

    def listed_by(self, summary: tuple[str, str], key: EventKey) -> Iterator[Operation]:
        """The edge from a Summary to a member, unless that is away.

        A member may come later than the decision, in a partition that is behind, so a placeholder
        waits for it.
        """
        if not self.away(key):
            if key not in self._present or key in self._removed:
                yield EnsureNode(EVENT.label, key)
            yield MergeEdge(type=SUMMARIZES.type, source=summary, target=key, values={})

    def operations(self, operations: Operations, owner: str) -> None:
        """Add tombstones, removals and boosts; what the projection owns on behalf of `owner`."""
        for key, (tier, position) in self._removed.items():
            node, known = self._nodes.get(key, Leaving()), self.of(key)
            values = {
                "session_id": node.session_id,
                "occurred_at": node.occurred_at_ms,
                "importance_score": node.importance,
                "summary_id": known.summary_id if known else None,
            }
            operations.add(MergeNode(label=FORGOTTEN.label, key=key, values=values))
            operations.add(
                DecideNode(
                    label=FORGOTTEN.label,
                    key=key,
                    name="tier",
                    value=tier.value,
                    position=position,
                )
            )
        for key, one in self._now.items():
            operations.add(
                DecideNode(
                    label=FORGOTTEN.label,
                    key=key,
                    name="recalled",
                    value=one.recalled,
                    position=one.decided_at,
                )
            )
        operations.extend(removals(self._removed, self._nodes))
        if self._removed:
            rest = rewired(self._removed, self._nodes, self._neighbours)
            operations.on_behalf_of(owner).extend(rest)
        for key, boost, position in self._boosts:
            known = self.of(key)
            if known is None or (known.recalled and known.decided_at < position):
                operations.add(
                    DecideNode(
                        label=EVENT.label,
                        key=key,
                        name="importance_boost",
                        value=boost,
                        position=position,
                    )
                )
