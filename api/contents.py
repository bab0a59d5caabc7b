"""Payloads of events, read from the ledger for an answer that asked for them; bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from api.schemas import Node
from pipelines.ledger.ledger import Ledger
from projections.errors import LedgerError, UndecodableEntry
from projections.events import decode_event
from projections.schema import EVENT

MAX_CONTENT_BYTES: Final = 1024 * 1024
"""Of all payloads of an answer, the best nodes' first."""


def add_contents(nodes: Iterable[Node], tenant: str, ledger: Callable[[], Ledger]) -> None:
    """Give each event node its payload, or the reason why it has none."""
    events = [node for node in nodes if node.type == EVENT.label]
    if not events:
        return
    try:
        entries = ledger().find_many([(tenant, node.node_id) for node in events])
    except LedgerError:
        for node in events:
            node.content_omitted = "ledger away"
        return
    room = MAX_CONTENT_BYTES
    for node in events:
        entry = entries.get((tenant, node.node_id))
        if entry is None:
            node.content_omitted = "not in the ledger"
        elif len(entry.data) > room:
            node.content_omitted = "too large"
        else:
            room -= len(entry.data)
            try:
                node.content = decode_event(entry.data).payload
            except UndecodableEntry:
                node.content_omitted = "not in the ledger"
