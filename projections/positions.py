"""Positions in the ledger: `"<ms>-<seq>"` on the wire, compared as two integers."""

from __future__ import annotations

import re
from typing import NamedTuple

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
