"""Ids derived from content: which partition a session lives in, which key an event has.

Both are parts of the stored format: a ledger's entries and its id index are placed by them, so
they never change for a ledger that exists (`tests/unit/projections/test_identity.py` holds golden
values). BLAKE2b rather than `hash()`, which differs from process to process, and rather than a
32-bit checksum, whose collisions would make two events of a large ledger one.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from projections.events import Event
from projections.system_events import NAMESPACE, PARTITION_KEY

KEY_DIGEST_BYTES = 16
SEPARATOR = "\x1f"  # not allowed in a tenant or in a name, so no two pairs join to the same text


@lru_cache(maxsize=4_096)  # sessions come in bursts; a hit takes a fifth of the time
def partition_of(tenant: str, session_id: str, partitions: int) -> int:
    """The partition of a session: BLAKE2b-64 of (tenant, session), big-endian, modulo partitions.

    Args:
        tenant: of the event.
        session_id: of the event; system events use `system_events.PARTITION_KEY`.
        partitions: how many the ledger has, at least 1.

    Returns:
        A number from 0 to partitions - 1, the same in every process and release.
    """
    text = f"{tenant}{SEPARATOR}{session_id}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") % partitions


def event_partition(event: Event, partitions: int) -> int:
    """The partition an event is appended to: its session's, or the tenant's for a system event."""
    if event.event_type.startswith(NAMESPACE):
        return partition_of(event.tenant, PARTITION_KEY, partitions)
    return partition_of(event.tenant, event.session_id, partitions)


def event_key_digest(tenant: str, event_id: str) -> bytes:
    """BLAKE2b-128 of (tenant, event id): the event's field in the ledger's id index, 16 bytes."""
    text = f"{tenant}{SEPARATOR}{event_id}".encode()
    return blake2b(text, digest_size=KEY_DIGEST_BYTES).digest()
