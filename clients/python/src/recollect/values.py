"""Values under keys, kept as events of a session: the latest event of a key says what it holds.

A value that is a chat message becomes that message's events, caused by the one before it, so that
the memory has a conversation of it; any other becomes an event of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

from recollect.calls import Plan
from recollect.conversations import LOOK_BACK, Part, happened, linked, message_parts
from recollect.histories import (
    BESIDE,
    AnyMemory,
    History,
    Stored,
    added_with,
    beside,
    happened_at,
    plain,
)
from recollect.sessions import Session

PUT: Final = "store.put"
DELETED: Final = "store.deleted"
REFRESHED: Final = "store.refreshed"
_KEY: Final = "key"
_VALUE: Final = "value"
_TTL: Final = "ttl_minutes"
_NOTED_SHARE: Final = 0.1
"""Of a TTL, how much must be over before a read of the value is noted."""


class Row(NamedTuple):
    """What a key holds.

    Attributes:
        value: what was put.
        event_ids: of the events that say so.
        created_at: when it was put first.
        updated_at: when it was put last.
        read_at: when it was read last, as far as that was noted.
        ttl: how long after that it is gone; None: never.
    """

    value: dict[str, Any]
    event_ids: frozenset[str]
    created_at: datetime
    updated_at: datetime
    read_at: datetime
    ttl: timedelta | None

    def is_live(self, at: datetime) -> bool:
        """Whether its time is not over."""
        return self.ttl is None or at < self.read_at + self.ttl


class Values:
    """What the keys of a session hold.

    Args:
        memory: that keeps them.
        session: where they are.
    """

    def __init__(self, memory: AnyMemory, session: Session) -> None:
        self._history = History(memory, session, "values")

    def rows(self) -> Plan[dict[str, Row]]:
        """All keys that hold something now, in the order in which they were put first."""
        rows: dict[str, Row] = {}
        for place in range((yield from self._history.end())):
            _apply(rows, (yield from self._history.at(place)))
        now = datetime.now(timezone.utc)
        return {key: row for key, row in rows.items() if row.is_live(now)}

    def put(self, key: str, value: Mapping[str, Any], ttl_minutes: float | None) -> Plan[None]:
        """Let a key hold a value.

        Raises:
            ApiError: it cannot be an event: `errors` names field and rule.
        """
        told: dict[str, Any] = {_KEY: key} | ({} if ttl_minutes is None else {_TTL: ttl_minutes})
        parts = message_parts(value)
        if not parts:
            yield from self._add([happened(PUT, {**told, _VALUE: dict(value)})], {})
            return
        if parts[-1].payload != value or BESIDE in value:
            told[_VALUE] = dict(value)
        yield from self._add(parts, told)

    def delete(self, key: str) -> Plan[None]:
        """Let a key hold nothing."""
        if key in (yield from self.rows()):
            yield from self._add([happened(DELETED, {_KEY: key})], {})

    def note_read(self, key: str, row: Row) -> Plan[None]:
        """Put off when a value is gone; reads that follow one another soon are noted once."""
        now = datetime.now(timezone.utc)
        if row.ttl is not None and now > row.read_at + row.ttl * _NOTED_SHARE:
            yield from self._add([happened(REFRESHED, {_KEY: key})], {})

    def _add(self, parts: list[Part], rides: Mapping[str, Any]) -> Plan[None]:
        place = yield from self._history.likely_end()
        latest = None
        if parts[0].is_of_conversation():
            latest = yield from self._latest_message(place)
        beside_each = [*({} for _ in parts[:-1]), rides]
        rows = list(zip(parts, beside_each, strict=True))
        drafts = yield from linked(self._history, place, rows, latest)
        yield from self._history.append(drafts, place)

    def _latest_message(self, end: int) -> Plan[Stored | None]:
        for place in range(end - 1, max(end - LOOK_BACK, 0) - 1, -1):
            event = yield from self._history.at(place)
            if not event["event_type"].startswith(_OF_STORE):
                return event
        return None


_OF_STORE: Final = "store."


def _apply(rows: dict[str, Row], event: Stored) -> None:
    """What an event changes."""
    told = event["payload"] if event["event_type"].startswith(_OF_STORE) else beside(event)
    key, at = told[_KEY], happened_at(event)
    before = rows.get(key)
    if before is not None and not before.is_live(at):
        before = None
    if event["event_type"] == DELETED:
        rows.pop(key, None)
    elif event["event_type"] == REFRESHED:
        if before is not None:
            rows[key] = before._replace(read_at=at)
    else:
        rows[key] = Row(
            value=told[_VALUE] if _VALUE in told else plain(event),
            event_ids=frozenset((event["event_id"], *added_with(event))),
            created_at=at if before is None else before.created_at,
            updated_at=at,
            read_at=at,
            ttl=timedelta(minutes=told[_TTL]) if _TTL in told else None,
        )
