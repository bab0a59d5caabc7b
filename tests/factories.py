"""Builders with defaults: what a test does not name does not matter to it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from pipelines.ledger.entries import Block, Entry
from projections.events import Event, encode_event
from projections.identity import Position

START_MS = 1_770_000_000_000
"""When the first event of a test happens: 2026-02-02T02:40:00Z."""
NOW_MS = START_MS + 86_400_000


M = TypeVar("M")


def event_id(number: int) -> str:
    """The id of that number; ids sort as their numbers do."""
    return str(uuid.UUID(int=number))


def event(number: int = 1, **fields: Any) -> Event:
    """A valid event; `at` is its time in milliseconds after START_MS, `parent` a number."""
    at = fields.pop("at", number)
    parent = fields.pop("parent", None)
    made = Event(
        tenant="default",
        event_id=event_id(number),
        event_type="agent.message.sent",
        occurred_at_ms=START_MS + at,
        session_id="session-1",
        agent_id="agent-1",
        trace_id="trace-1",
        parent_event_id=None if parent is None else event_id(parent),
    )
    return made._replace(**fields)


def full_event(number: int = 1, **fields: Any) -> Event:
    """An event with every field set."""
    everything: dict[str, Any] = {
        "schema_version": 1,
        "tool_name": "search",
        "parent_event_id": event_id(number + 1_000_000),
        "ended_at_ms": START_MS + number + 250,
        "status": "completed",
        "importance_hint": 7,
        "user_id": "user-1",
        "consent_ref": "consent-1",
        "payload_ref": "s3://bucket/key",
        "payload": {"text": f"message {number}"},
    }
    return event(number, **{**everything, **fields})


def envelope(**fields: Any) -> dict[str, Any]:
    """A valid envelope as a producer sends it; a field given as `...` is left out."""
    made: dict[str, Any] = {
        "event_id": event_id(1),
        "event_type": "agent.message.sent",
        "occurred_at": "2026-02-02T02:40:00.001Z",
        "session_id": "session-1",
        "agent_id": "agent-1",
        "trace_id": "trace-1",
        **fields,
    }
    return {name: value for name, value in made.items() if value is not ...}


def session(name: str, numbers: Iterable[int], *, step_ms: int = 10, **fields: Any) -> list[Event]:
    """Events of one session in their order; each is caused by the one before."""
    made: list[Event] = []
    for number in numbers:
        parent = made[-1].event_id if made else None
        made.append(
            event(
                number,
                at=number * step_ms,
                **{"session_id": name, "parent_event_id": parent, **fields},
            )
        )
    return made


def sessions(count: int, length: int, **fields: Any) -> list[Event]:
    """`count` sessions of `length` events each, numbered from 1, interleaved in time."""
    columns = [
        session(f"session-{n}", range(n + 1, count * length + 1, count), **fields)
        for n in range(count)
    ]
    return [made for row in zip(*columns, strict=True) for made in row]


def trajectory(turns: int = 2) -> list[dict[str, Any]]:
    """Messages of an agent in the OpenAI chat shape, with one tool call a turn."""
    made: list[dict[str, Any]] = [{"role": "system", "content": "Help the customer."}]
    for turn in range(turns):
        call = {
            "id": f"call-{turn}",
            "type": "function",
            "function": {"name": "get_order", "arguments": f'{{"order": {turn}}}'},
        }
        made += [
            {"role": "user", "content": f"Where is order {turn}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call-{turn}", "content": "shipped"},
            {"role": "assistant", "content": f"Order {turn} was shipped."},
        ]
    return made


def entry(
    made: Event | bytes, seq: int = 1, *, partition: int = 0, position: Position | None = None
) -> Entry:
    """An event, or bytes that are none, as an entry of a ledger."""
    data = made if isinstance(made, bytes) else encode_event(made)
    return Entry(partition, position or Position(START_MS, seq), seq, data)


def block(*made: Event | bytes, first_seq: int = 1, partition: int = 0) -> Block:
    """A block of entries numbered from `first_seq`."""
    return Block(
        partition,
        tuple(entry(one, first_seq + n, partition=partition) for n, one in enumerate(made)),
    )


def blocks(entries: Sequence[Entry], size: int) -> Iterator[Block]:
    """Entries of one partition, cut into blocks of at most `size`."""
    for first in range(0, len(entries), size):
        part = tuple(entries[first : first + size])
        yield Block(part[0].partition, part)


def partly(model: type[M], **fields: Any) -> M:
    """A model of which only these fields are said: what is tested reads no others."""
    if issubclass(model, BaseModel):
        return model.model_construct(**fields)
    made = object.__new__(model)
    vars(made).update(fields)
    return made
