"""What happens to a ledger that nobody meant to happen: bits that flip, entries that vanish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.ledger.entries import LedgerKeys, decode_position
from projections.identity import Position

Fields = dict[bytes, bytes]


def flipped(value: bytes) -> bytes:
    """The same bytes, but for one bit in the middle."""
    middle = len(value) // 2
    return value[:middle] + bytes((value[middle] ^ 1,)) + value[middle + 1 :]


def write_stream_anew(
    client: Any,
    partition: int,
    changed: Mapping[Position, Callable[[Fields], Fields]],
    *,
    prefix: str = "rc",
) -> None:
    """Write a stream once more, some entries otherwise: one cannot be changed where it stands.

    Its consumer groups are those of before, and stand where they stood.
    """
    stream = LedgerKeys(prefix).stream(partition)
    groups = client.xinfo_groups(stream)
    entries = client.xrange(stream)
    with client.pipeline(transaction=True) as transaction:
        transaction.delete(stream)
        for entry_id, fields in entries:
            change = changed.get(decode_position(entry_id))
            transaction.xadd(stream, change(fields) if change else fields, id=entry_id)
        for group in groups:
            transaction.xgroup_create(stream, group["name"], id=group["last-delivered-id"])
        transaction.execute()
