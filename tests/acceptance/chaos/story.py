"""What the chaos tests' agents do: an endless, seeded stream of awkward events."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field

from projections.events import Event

_START_MS = 1_770_000_000_000
_TENANTS = ("default", "acme", "zeta-9")
_TYPES = ("agent.message.sent", "tool.execute", "tool.result", "agent.decided")
_SESSIONS = 24
_REMEMBERED = 400


@dataclass
class _Session:
    tenant: str
    session_id: str
    clock_ms: int
    length: int
    ids: list[str] = field(default_factory=list)


class Story:
    """Makes events: sessions of several tenants interleave and end; some events are late, some at
    the same millisecond; causes lie in the session, in another one, in the future, or nowhere;
    some events come twice, some ids with another content.

    Args:
        seed: the same stream for the same seed.
    """

    def __init__(self, seed: int | str) -> None:
        self._rng = random.Random(f"story/{seed}")
        self._made = 0
        self._sessions: list[_Session] = []
        self._recent: list[Event] = []
        self._promised: list[tuple[str, str, int]] = []
        self._namesakes: set[str] = set()
        for _ in range(_SESSIONS):
            self._sessions.append(self._new_session())

    def batch(self, count: int) -> list[Event]:
        """The next events, with repetitions among them."""
        events: list[Event] = []
        for _ in range(count):
            chance = self._rng.random()
            if chance < 0.10 and self._recent:
                events.append(self._rng.choice(self._recent))
            elif chance < 0.11 and self._recent:
                other = self._rng.choice(self._recent)
                events.append(other._replace(payload={"other": self._rng.random()}))
            else:
                events.append(self.event())
        return events

    def event(self, *, tool_name: str | None = None, parent: str | None = None) -> Event:
        """One event that was not there before."""
        rng = self._rng
        place = rng.randrange(len(self._sessions))
        session = self._sessions[place]
        if len(session.ids) >= session.length:
            session = self._sessions[place] = self._new_session()
        occurred_at_ms = self._time_in(session)
        event_id = (
            self._promised_id(session.tenant)
            or self._namesake_id(session.tenant)
            or str(uuid.UUID(int=rng.getrandbits(128)))
        )
        self._made += 1
        event = Event(
            tenant=session.tenant,
            event_id=event_id,
            event_type=rng.choice(_TYPES),
            occurred_at_ms=occurred_at_ms,
            session_id=session.session_id,
            agent_id=f"agent-{rng.randrange(5)}",
            trace_id=f"trace-{rng.randrange(50)}",
            tool_name=tool_name,
            parent_event_id=parent or self._cause(session),
            status=rng.choice((None, "completed", "failed")),
            ended_at_ms=occurred_at_ms + rng.randrange(1_000) if rng.random() < 0.3 else None,
            importance_hint=rng.choice((None, None, 3, 9)),
            user_id=rng.choice((None, "user-1", "user-2")),
            payload={"n": self._made, "text": "lorem " * rng.randrange(40)},
        )
        session.ids.append(event_id)
        self._recent.append(event)
        if len(self._recent) > _REMEMBERED:
            del self._recent[: _REMEMBERED // 4]
        return event

    def _new_session(self) -> _Session:
        rng = self._rng
        return _Session(
            rng.choice(_TENANTS),
            f"session-{rng.getrandbits(48):012x}",
            _START_MS + rng.randrange(10_000_000),
            rng.randrange(3, 120),
        )

    def _time_in(self, session: _Session) -> int:
        chance = self._rng.random()
        if chance < 0.15:  # late: anywhere in the session, or before it
            return session.clock_ms - self._rng.randrange(60_000)
        if chance < 0.80:
            session.clock_ms += self._rng.randrange(1, 2_000)
        return session.clock_ms  # else: the same millisecond, told apart by id

    def _cause(self, session: _Session) -> str | None:
        rng, chance = self._rng, self._rng.random()
        if chance < 0.55:
            return rng.choice(session.ids[-5:]) if session.ids else None
        if chance < 0.70:  # in another session; ids of another tenant name nothing, or a namesake
            return rng.choice(self._recent).event_id if self._recent else None
        if chance < 0.76:  # not there yet
            event_id = str(uuid.UUID(int=rng.getrandbits(128)))
            if chance < 0.75:
                due = self._made + rng.randrange(1, 80)
                self._promised.append((session.tenant, event_id, due))
            return event_id  # else: it never comes
        return None

    def _promised_id(self, tenant: str) -> str | None:
        for place, (owner, event_id, due) in enumerate(self._promised):
            if owner == tenant and due <= self._made:
                del self._promised[place]
                return event_id
        return None

    def _namesake_id(self, tenant: str) -> str | None:
        """Now and then the id of another tenant's event, once."""
        if self._rng.random() < 0.02 and self._recent:
            other = self._rng.choice(self._recent)
            if other.tenant != tenant and other.event_id not in self._namesakes:
                self._namesakes.add(other.event_id)
                return other.event_id
        return None
