"""Passes that ended, requests that none has answered, and how much sessions hold unseen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from consolidation.payloads import PassDecided, Requested
from projections.events import Event
from projections.operations import MergeNode, Operation, RemoveNode
from projections.positions import START, Position
from projections.schema import CONSOLIDATION_REQUEST, PASS, SCOPE
from projections.structural import SessionKey

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
        positions = [self._positions[key] for key in named if key in self._positions]
        self._now[event.tenant] = ShownPass(
            position,
            max([shown.answered_until, *positions]),
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


class Sums(NamedTuple):
    """Of a session.

    Attributes:
        event_count: of all its events, whether they are retained or not.
        importance_total: of their importance.
        seen_events, seen_importance: the same two when its summary was made.
    """

    event_count: int = 0
    importance_total: int = 0
    seen_events: int = 0
    seen_importance: int = 0


class Scopes:
    """The sums of sessions, while a batch is added to them.

    Args:
        shown: as they stand, under their locks.
    """

    def __init__(self, shown: Mapping[SessionKey, Sums]) -> None:
        self._shown = shown
        self._now: dict[SessionKey, Sums] = {}

    def _of(self, key: SessionKey) -> Sums:
        return self._now.get(key) or self._shown.get(key, Sums())

    def count(self, key: SessionKey, importance: int) -> None:
        """An event more."""
        sums = self._of(key)
        self._now[key] = sums._replace(
            event_count=sums.event_count + 1,
            importance_total=sums.importance_total + importance,
        )

    def see(self, key: SessionKey, events: int, importance: int) -> None:
        """A summary was made when the sums were these."""
        self._now[key] = self._of(key)._replace(seen_events=events, seen_importance=importance)

    def operations(self) -> Iterator[Operation]:
        """The new sums."""
        for key, sums in self._now.items():
            yield MergeNode(
                label=SCOPE.label,
                key=key,
                values={
                    **sums._asdict(),
                    "pending_events": max(0, sums.event_count - sums.seen_events),
                    "pending_importance": max(0, sums.importance_total - sums.seen_importance),
                },
            )
