"""Drafts of events: their ids, their envelopes, and how several accounts of one event become one.

An id is derived from what an event *is*, never from when or with what else it arrived:

- what only one span tells (an answer, a failure) from the trace, the span and the part of it;
- a message that was sent from the trace, its content, and how many equal ones stand before it: the
  same message in a second call of the same trace is the same event;
- a call of a tool, and its result, from the trace and the call id where there is one: the answer of
  the model, the span of the tool and the next prompt tell of the same. A call that is carried out
  again under the same id, and ends in another way, has another result under an id of its own span;
- an instruction from the session that the span names (else the trace), its user, and its content:
  it is repeated in every call, and one event.

The ledger keeps the first account that arrives. Within a request the best one is taken: that of the
model for a call, that of the tool for a result, the earliest of equals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from projections.events import MAX_PAYLOAD_BYTES, derived_event_id, timestamp_text
from projections.traces.telemetry import plain_float, plain_integer

NS_PER_MS: Final = 1_000_000
TEXT_LIMITS: Final = (100_000, 30_000, 8_000, 2_000, 200)
"""Characters that a text of a payload may have: the most with which all of it has room."""
_SPARE_BYTES: Final = 1_024
_MAX_DEPTH: Final = 60


class Draft(NamedTuple):
    """An account of an event.

    Attributes:
        event_id: of the event.
        rank: of several accounts the least is taken.
        time_ms: when it happened, milliseconds since the epoch.
        envelope: the event, as a producer sends it.
        origin: place of its span in the request.
        is_shared: other spans may tell of the same event.
        own_id: of the event when the ledger, or another account, has it with another status.
    """

    event_id: str
    rank: int
    time_ms: int
    envelope: Mapping[str, Any]
    origin: int
    is_shared: bool = False
    own_id: str | None = None

    def apart(self) -> Draft:
        """The same as an event of its own."""
        assert self.own_id is not None
        told = {**self.envelope, "event_id": self.own_id}
        return self._replace(event_id=self.own_id, envelope=told, is_shared=False, own_id=None)

    def ends_as(self, status: object) -> bool:
        """Whether this is one account of an event with that status, not another event."""
        return self.own_id is None or self.envelope.get("status") == status


def otlp_id(*parts: str) -> str:
    """The id of an event of these parts; none of them holds a control character."""
    return derived_event_id("otlp", *parts)


def envelope(event_type: str, time_ms: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """An envelope without the fields that are None."""
    told = {name: value for name, value in fields.items() if value is not None}
    if "payload" in told:
        told["payload"] = fitting(told["payload"])
    return {"event_type": event_type, "occurred_at": timestamp_text(time_ms), **told}


def merged(drafts: Iterable[Draft]) -> list[Draft]:
    """One draft an event, by time and causes first; other accounts fill optional fields."""
    by_id: dict[str, list[Draft]] = {}
    for draft in drafts:
        by_id.setdefault(draft.event_id, []).append(draft)
    events: dict[str, Draft] = {}
    for accounts in by_id.values():
        best = _best(accounts)
        events[best.event_id] = best
        others = [draft for draft in accounts if not draft.ends_as(best.envelope.get("status"))]
        events.update((draft.event_id, draft) for draft in map(Draft.apart, others))
    return sorted(
        events.values(), key=lambda draft: (draft.time_ms, _steps(draft, events), draft.event_id)
    )


def _steps(draft: Draft, events: Mapping[str, Draft]) -> int:
    """How many of its causes stand in the same millisecond; they come before it."""
    for steps in range(_MAX_STEPS):
        cause = events.get(draft.envelope.get("parent_event_id", ""))
        if cause is None or cause.time_ms != draft.time_ms:
            return steps
        draft = cause
    return _MAX_STEPS


_MAX_STEPS: Final = 64
"""Also what ends a circle."""


_FILLED: Final = ("parent_event_id", "ended_at", "user_id", "tool_name")


def _best(accounts: list[Draft]) -> Draft:
    if len(accounts) == 1:
        return accounts[0]
    accounts.sort(key=lambda d: (d.rank, d.time_ms, orjson.dumps(d.envelope)))
    best, *others = accounts
    added = {
        name: other.envelope[name]
        for name in _FILLED
        for other in reversed(others)
        if name not in best.envelope and name in other.envelope
    }
    if added.get("ended_at", best.envelope["occurred_at"]) < best.envelope["occurred_at"]:
        # a call that took no millisecond ended when the model had asked for it
        added["ended_at"] = best.envelope["occurred_at"]
    return best._replace(envelope={**best.envelope, **added}) if added else best


# -- payloads --------------------------------------------------------------------------------------


def fitting(payload: Any) -> Any:
    """The payload with texts cut so that an envelope has room for it, and numbers JSON can hold."""
    for longest in TEXT_LIMITS:
        shorter = _kept(payload, longest, _MAX_DEPTH)
        if len(orjson.dumps(shorter)) <= MAX_PAYLOAD_BYTES - _SPARE_BYTES:
            return shorter
    return _kept(orjson.dumps(shorter).decode(), TEXT_LIMITS[1], 1)  # many short texts


def _kept(value: Any, longest: int, depth: int) -> Any:
    if isinstance(value, str):
        if len(value) <= longest:
            return value
        return f"{value[:longest]}… [cut: {len(value):,} characters]"
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return plain_integer(value)
    if isinstance(value, float):
        return plain_float(value)
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _kept(item, longest, depth - 1) for key, item in value.items()}
    return [_kept(item, longest, depth - 1) for item in value]
