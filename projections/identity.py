"""Where an entry is: the partition of its session, its key in the id index, its position.

The first two are parts of the stored format: a ledger's entries and its id index are placed by
them, so they never change for a ledger that exists (`tests/unit/projections/test_identity.py` holds
golden values). BLAKE2b rather than `hash()`, which differs from process to process, and rather than
a 32-bit checksum, whose collisions would make two events of a large ledger one. A position is
`"<ms>-<seq>"` on the wire, compared as two integers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

KEY_DIGEST_BYTES = 16
SEPARATOR = "\x1f"  # not allowed in a tenant or in a name, so no two pairs join to the same text


@lru_cache(maxsize=4_096)  # sessions come in bursts; a hit takes a fifth of the time
def partition_of(tenant: str, session_id: str, partitions: int) -> int:
    """The partition of a session: BLAKE2b-64 of (tenant, session), big-endian, modulo partitions.

    Args:
        tenant: of the event.
        session_id: of the event; system events use `events.PARTITION_KEY`.
        partitions: how many the ledger has, at least 1.

    Returns:
        A number from 0 to partitions - 1, the same in every process and release.
    """
    text = f"{tenant}{SEPARATOR}{session_id}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") % partitions


def event_key_digest(tenant: str, event_id: str) -> bytes:
    """BLAKE2b-128 of (tenant, event id): the event's field in the ledger's id index, 16 bytes."""
    text = f"{tenant}{SEPARATOR}{event_id}".encode()
    return blake2b(text, digest_size=KEY_DIGEST_BYTES).digest()


_POSITION = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")
_MAX = 2**64 - 1


class Position(NamedTuple):
    """Where an entry stands in the ledger; on one Redis a total order over all partitions.

    `ms` is the ledger's clock in milliseconds since the epoch, `seq` tells entries of the same
    millisecond apart. Clients see an opaque string.
    """

    ms: int
    seq: int

    def __str__(self) -> str:
        """The wire form, which is also the id of the Redis stream entry."""
        return f"{self.ms}-{self.seq}"

    @classmethod
    def parse(cls, text: str | bytes) -> Position:
        """Read the wire form; a missing second part is 0.

        Raises:
            ValueError: when `text` is not a position.
        """
        if isinstance(text, bytes):
            text = text.decode("ascii", "replace")
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(f"not a position: {text[:60]!r} (expected <ms>-<seq>)")
        ms, seq = int(match[1]), int(match[2] or 0)
        if ms > _MAX or seq > _MAX:
            raise ValueError(f"not a position: {text[:60]!r} (each part is at most 2^64 - 1)")
        return cls(ms, seq)


START = Position(0, 0)
"""Before the first entry."""


Key = tuple[Any, ...]
"""Values of the key of a schema row, in its order."""
SessionKey = tuple[str, str]
"""(tenant, session_id)"""


class Link(NamedTuple):
    """An event as a member of its session's chain; tuples sort in the chain's order."""

    occurred_at_ms: int
    event_id: str
