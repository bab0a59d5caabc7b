"""A block: what one read of a partition returned, and what one transaction applies."""

from __future__ import annotations

from typing import NamedTuple

from pipelines.adapters.ledger_keys import Entry


class Block(NamedTuple):
    """Entries of one partition without a gap: their seqs are n, n + 1, … and never empty."""

    partition: int
    entries: tuple[Entry, ...]
