"""Events like those of real agents, the same ones at every run.

Sessions of some fifty events, two hundred of them open at a time; every second event names its
cause, one of a hundred of those in another session; one event of a hundred comes late, behind
events of its session that happened after it. Payloads of some 250 bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from projections.events import Event

SESSION_EVENTS = 50
OPEN_SESSIONS = 200
PARENTS = 0.5
FOREIGN_PARENTS = 0.01
LATE = 0.01
_START_MS = 1_790_000_000_000
_TYPES = ("agent.message.sent", "tool.call", "tool.result", "agent.decision.made")
_WORDS = (
    *("payment", "refund", "order", "customer", "retry", "timeout", "gateway", "invoice"),
    *("balance", "declined", "approved", "checkout", "shipment", "account", "ledger"),
    *("request", "response", "status", "pending", "escalate"),
)


class _Session:
    """An open session: its name and its latest events, causes of those to come."""

    def __init__(self, name: str, agent: str) -> None:
        self.name = name
        self.agent = agent
        self.recent: list[str] = []
        self.left = 0


def sample_events(count: int, seed: int = 7) -> Iterator[Event]:
    """Yield `count` events in the order in which they are appended."""
    return islice(_events(random.Random(seed), seed), count)


def _events(rng: random.Random, seed: int) -> Iterator[Event]:
    opened = 0

    def open_session() -> _Session:
        nonlocal opened
        opened += 1
        session = _Session(f"session-{seed}-{opened:06}", f"agent-{opened % 20}")
        session.left = rng.randint(SESSION_EVENTS // 2, SESSION_EVENTS * 3 // 2)
        return session

    sessions = [open_session() for _ in range(OPEN_SESSIONS)]
    now_ms = _START_MS
    while True:
        now_ms += rng.randint(1, 40)
        place = rng.randrange(OPEN_SESSIONS)
        session = sessions[place]
        digits = f"{rng.getrandbits(128):032x}"
        event_id = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        parent = None
        if session.recent and rng.random() < PARENTS:
            family = session.recent
            if rng.random() < FOREIGN_PARENTS:
                family = sessions[place - 1].recent or family
            parent = rng.choice(family)
        type_ = rng.choice(_TYPES)
        is_tool = type_.startswith("tool.")
        late_ms = rng.randint(5_000, 60_000) if rng.random() < LATE else 0
        yield Event(
            tenant="default",
            event_id=event_id,
            event_type=type_,
            occurred_at_ms=now_ms - late_ms,
            session_id=session.name,
            agent_id=session.agent,
            trace_id=f"trace-{session.name}",
            tool_name=f"{rng.choice(_WORDS)}_lookup" if is_tool else None,
            parent_event_id=parent,
            ended_at_ms=now_ms if is_tool else None,
            status="completed" if is_tool else None,
            payload={
                "role": "assistant",
                "content": " ".join(rng.choices(_WORDS, k=rng.randint(22, 30))),
                "tokens": rng.randint(20, 400),
            },
        )
        session.recent = [*session.recent[-4:], event_id]
        session.left -= 1
        if session.left == 0:
            sessions[place] = open_session()
