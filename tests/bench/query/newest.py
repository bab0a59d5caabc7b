"""How soon an event is found that has only just been sent."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Container
from datetime import UTC, datetime
from typing import NamedTuple

import httpx

PATIENCE_S = 5.0
"""An event that is not found by then is lost: an approximate index may never find it."""


class Wait(NamedTuple):
    """Of one event, ms: until it was accepted, and from then to the first answer that has it.

    One that is lost took for ever: infinity.
    """

    accepted: float
    found: float


def waits_for_new(
    accept: Callable[[str, str], object], ask: Callable[[str], Container[str]], count: int
) -> list[Wait]:
    """Send events one after the other, each of a word of its own, and ask for it until it is there.

    Args:
        accept: an event by its id and its text; returns when it is accepted.
        ask: the ids that answer a question; one follows the next.
        count: events.
    """
    waits = []
    for _ in range(count):
        word, event_id = f"quagga{uuid.uuid4().hex[:12]}", str(uuid.uuid4())
        begun_s = time.perf_counter()
        accept(event_id, f"the {word} sleeps at noon")
        accepted_ms = 1_000 * (time.perf_counter() - begun_s)
        waits.append(Wait(accepted_ms, _found_ms(event_id, f"where is the {word}?", ask)))
    return waits


def _found_ms(event_id: str, question: str, ask: Callable[[str], Container[str]]) -> float:
    begun_s = time.perf_counter()
    while time.perf_counter() - begun_s < PATIENCE_S:
        if event_id in ask(question):
            return 1_000 * (time.perf_counter() - begun_s)
    return math.inf


def waits_of_api(client: httpx.Client, count: int) -> list[Wait]:
    """Through the API; no worker runs that would have to see an event first."""

    def accept(event_id: str, text: str) -> None:
        event = {
            "event_id": event_id,
            "event_type": "user.message",
            "occurred_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "session_id": f"new-{event_id}",
            "agent_id": "agent-0",
            "trace_id": "t",
            "payload": {"content": text},
        }
        client.post("/v1/events", json=event).raise_for_status()

    def ask(question: str) -> set[str]:
        body = {"query": question, "session_id": "asking", "agent_id": "agent-0"}
        answer = client.post("/v1/query/subgraph", json=body).raise_for_status()
        return {node["node_id"] for node in answer.json()["nodes"]}

    return waits_for_new(accept, ask, count)
