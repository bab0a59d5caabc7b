"""Passes that ended, and requests for one that none has answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from consolidation.payloads import PassDecided, Requested
from projections.events import Event
from projections.operations import MergeNode, Operation, RemoveNode
from projections.positions import START, Position
from projections.schema import CONSOLIDATION_REQUEST, PASS

RequestKey = tuple[str, str]
"""(tenant, event_id)"""


class ShownPass(NamedTuple):
    """What the graph shows of a tenant's last pass.

    Attributes:
        decided_at: position of its decision.
        answered_until: position of the last request that was answered. A pass answers what it
            finds when it begins, so one that is older was answered too, and comes no more.
        communities_at_ms: when a pass last looked at the communities; None: never.
    """

    decided_at: Position = START
    answered_until: Position = START
    communities_at_ms: int | None = None


class Passes:
    """Passes and requests, while decisions are applied in their order.

    Args:
        shown: the last pass by tenant.
        requests: positions of those requests in the graph that the batch's passes answer.
    """

    def __init__(
        self, shown: Mapping[str, ShownPass], requests: Mapping[RequestKey, Position]
    ) -> None:
        self._now = dict(shown)
        self._positions = dict(requests)
        self._made: dict[RequestKey, MergeNode] = {}
        self._answered: set[RequestKey] = set()
        self._ended: dict[str, tuple[Event, PassDecided]] = {}

    def take_request(self, position: Position, event: Event, decided: Requested) -> None:
        """A pass is asked for."""
        if position > self._now.get(event.tenant, ShownPass()).answered_until:
            self._positions[event.key] = position
            self._made[event.key] = MergeNode(
                label=CONSOLIDATION_REQUEST.label,
                key=event.key,
                values={
                    "requested_at": event.occurred_at_ms,
                    "request": decided.request,
                    "position": tuple(position),
                },
            )

    def take_pass(self, position: Position, event: Event, decided: PassDecided) -> None:
        """A pass ended."""
        shown = self._now.get(event.tenant, ShownPass())
        if shown.decided_at > position:
            return
        named = [(event.tenant, request_id) for request_id in decided.request_ids]
        self._answered.update(named)
        found = [self._positions[key] for key in named if key in self._positions]
        self._now[event.tenant] = ShownPass(
            position,
            max([shown.answered_until, *found]),
            decided.ended_at_ms if decided.communities else shown.communities_at_ms,
        )
        self._ended[event.tenant] = event, decided

    def operations(self) -> Iterator[Operation]:
        """The nodes as decided."""
        for key in self._answered:
            yield RemoveNode(CONSOLIDATION_REQUEST.label, key)
        yield from (node for key, node in self._made.items() if key not in self._answered)
        for tenant, (event, decided) in self._ended.items():
            shown = self._now[tenant]
            yield MergeNode(
                label=PASS.label,
                key=(tenant,),
                values={
                    "run_id": decided.run_id,
                    "started_at": decided.started_at_ms,
                    "ended_at": decided.ended_at_ms,
                    "complete": decided.complete,
                    "communities_at": shown.communities_at_ms,
                    "answered_until": tuple(shown.answered_until),
                    "event_id": event.event_id,
                    "decided_at": tuple(shown.decided_at),
                },
            )
