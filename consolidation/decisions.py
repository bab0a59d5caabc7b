"""What the system events of this stage say, the events that say it, and the passes they end.

The payloads are in `payloads` (`memory.consolidated`) and `forgetting_payloads`
(`memory.forgotten`, `memory.recalled`, `memory.accessed`); `memory.consolidation_requested` is read
and `memory.feedback` by `enrichment.payloads`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from consolidation.forgetting_payloads import (
    ACCESSED_EVENT,
    FORGOTTEN_EVENT,
    RECALLED_EVENT,
    Accessed,
    Departed,
    parse_accessed,
    parse_departure,
)
from consolidation.payloads import (
    CONSOLIDATED_EVENT,
    Consolidated,
    PassDecided,
    Requested,
    parse_consolidated,
)
from enrichment.payloads import (
    DECIDER,
    FEEDBACK_EVENT,
    REQUESTED_EVENT,
    SAME_AS_FOUND,
    Feedback,
    offered_event,
    parse_feedback,
    parse_request,
    parse_statement,
)
from projections.events import (
    PARTITION_KEY,
    SYSTEM_EVENTS,
    Event,
    canonical_json,
    derived_event_id,
    parse_event,
)
from projections.identity import START, Position, SessionKey
from projections.operations import MergeNode, Operation, RemoveNode
from projections.schema import CONSOLIDATION_REQUEST, PASS, SCOPE

Decision = Consolidated | Departed | Requested | Accessed | Feedback


# -- events ----------------------------------------------------------------------------------------


def decision_event(
    event_type: str, tenant: str, payload: Mapping[str, Any], now_ms: int, *about: object
) -> Event:
    """A decision as an event; its id is what it is about, so a crash never decides twice.

    Args:
        event_type: of the event.
        tenant: that it is about.
        payload: what is decided.
        now_ms: the clock, which the decision bears.
        about: what is decided on what grounds: the subject, a digest of what is said of it
            and the position of the decision that the graph shows (None: there is none).
            Without that position, what is decided a second time, after something else was,
            would be taken for the first.

    Raises:
        InvalidEvent: its reader would refuse it, so it is an error here, and never a dead letter.
    """
    grounds = ("" if ground is None else str(ground) for ground in about)
    event = Event(
        tenant=tenant,
        event_id=derived_event_id(event_type, tenant, *grounds),
        event_type=event_type,
        occurred_at_ms=now_ms,
        session_id=PARTITION_KEY,
        agent_id=DECIDER,
        trace_id=PARTITION_KEY,
        payload=payload,
    )
    parse_decision(event)
    return event


def recall_events(
    tenant: str,
    payloads: Iterable[Mapping[str, Any]],
    decided_at: Iterable[Position | None],
    now_ms: int,
) -> list[Event]:
    """Decisions that what is away comes back; the same again after a crash.

    Args:
        tenant: whose memory.
        payloads: of `recalled_payloads`.
        decided_at: positions of the decisions by which it went, None where nobody knows.
        now_ms: the clock.
    """
    newest = max((at for at in decided_at if at is not None), default=START)
    return [
        decision_event(
            RECALLED_EVENT, tenant, payload, now_ms, *(canonical_json(payload).decode(), newest)
        )
        for payload in payloads
    ]


# -- and back --------------------------------------------------------------------------------------


def recorded_event(raw: Any, *, now_ms: int, tenant: str | None = None) -> Event:
    """The event of an envelope that a ledger held: a producer's, or what was decided there.

    Args:
        raw: the decoded JSON of the envelope.
        now_ms: the receiver's clock, for the rule on events of the future.
        tenant: of all events; None: the envelope's own, or the default.

    Raises:
        InvalidEvent: with every broken rule, each by field, so that nobody finds a dead letter.
    """
    event_type = raw.get("event_type") if isinstance(raw, Mapping) else None
    row = SYSTEM_EVENTS.get(event_type) if isinstance(event_type, str) else None
    if row is None or row.public:
        return offered_event(raw, now_ms=now_ms, tenant=tenant)
    event = parse_event(raw, now_ms=now_ms, tenant=tenant)
    if event.event_type == SAME_AS_FOUND:
        parse_statement(event.event_type, event.payload)
    else:
        parse_decision(event)
    return event


def parse_decision(event: Event) -> Decision | None:
    """What a system event of this stage says; None: nothing that is applied.

    Raises:
        InvalidEvent: with every broken rule of the payload, each by field.
    """
    if event.event_type == CONSOLIDATED_EVENT:
        return parse_consolidated(event.payload)
    if event.event_type in (FORGOTTEN_EVENT, RECALLED_EVENT):
        return parse_departure(event.event_type, event.payload)
    if event.event_type == REQUESTED_EVENT:
        return _requested(event.payload)
    if event.event_type == ACCESSED_EVENT:
        return parse_accessed(event.payload)
    if event.event_type == FEEDBACK_EVENT:
        return parse_feedback(event.payload)
    return None


def _requested(payload: Any) -> Requested:
    if payload is None:
        return Requested(None)
    parse_request(payload)
    return Requested(canonical_json(payload).decode())


RequestKey = tuple[str, str]
"""(tenant, event_id)"""


class ShownPass(NamedTuple):
    """What the graph shows of a tenant's last pass.

    Attributes:
        decided_at: position of its decision.
        answered_until: position of the last request that was answered. A pass answers what it
            finds when it begins, so one that is older was answered too, and comes no more.
        communities_at_ms: when a pass last looked at the communities; None: never.
        traits_until: position of the last pass that looked at the users; None: none has.
    """

    decided_at: Position = START
    answered_until: Position = START
    communities_at_ms: int | None = None
    traits_until: Position | None = None


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
            position if decided.traits else shown.traits_until,
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
                    "traits_until": shown.traits_until and tuple(shown.traits_until),
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
