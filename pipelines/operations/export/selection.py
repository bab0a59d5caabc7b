"""What is exported, what was written of it, and what could not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from pipelines.ledger.entries import Entry
from pipelines.ledger.ledger import Tail
from pipelines.operations.imports import KEPT_PROBLEMS
from projections.events import Event
from projections.identity import START, Position

EXPORTING = "exporting"
"""What is being done, for progress."""


class Format(StrEnum):
    """What a file holds."""

    EVENTS = "events"
    PARQUET = "parquet"
    GRAPHML = "graphml"
    PROV = "prov"
    MARKDOWN = "markdown"


class Selection(NamedTuple):
    """Which events: of the tenant, within all that is named.

    Attributes:
        tenant: None: of all tenants.
        session_id: of this session.
        user_id: of this user, what was decided and corrected about them too.
        since_ms: that occurred at that moment or later.
        until_ms: that occurred until then.
    """

    tenant: str | None = None
    session_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    user_id: str | None = None

    def has(self, event: Event) -> bool:
        """Whether it is one of them."""
        return (
            self.tenant in (None, event.tenant)
            and self.session_id in (None, event.session_id)
            and self.user_id in (None, event.user_id)
            and (self.since_ms is None or event.occurred_at_ms >= self.since_ms)
            and (self.until_ms is None or event.occurred_at_ms <= self.until_ms)
        )


class LeftOut(NamedTuple):
    """An entry of the ledger that nobody can read."""

    partition: int
    position: str
    reason: str


@dataclass
class ExportReport:
    """What an export wrote.

    Attributes:
        written: how many, by what they are: events; nodes and edges by label and type.
        left_out: the first KEPT_PROBLEMS entries that could not be read.
        left_out_count: all of them.
        notes: what else a reader of the file must know.
    """

    written: Counter[str] = field(default_factory=Counter)
    left_out: list[LeftOut] = field(default_factory=list)
    left_out_count: int = 0
    notes: list[str] = field(default_factory=list)
    size: int = 0
    seconds: float = 0.0

    def leave_out(self, entry: Entry, reason: str) -> None:
        """Note an entry that cannot be read."""
        self.left_out_count += 1
        if len(self.left_out) < KEPT_PROBLEMS:
            self.left_out.append(LeftOut(entry.partition, str(entry.position), reason))

    def as_dict(self) -> dict[str, Any]:
        """For a machine."""
        return {
            "ok": not self.left_out_count,
            "written": dict(self.written),
            "bytes": self.size,
            "seconds": round(self.seconds, 3),
            "left_out": [row._asdict() for row in self.left_out],
            "left_out_count": self.left_out_count,
            "notes": self.notes,
        }


class ReadLedger(Protocol):
    """The part of the ledger that an export reads."""

    partitions: int

    def tails(self) -> list[Tail]:
        """The last entry of each partition, all of one moment."""
        ...

    def scan(
        self,
        partition: int,
        after: Position = START,
        until: Position | None = None,
        count: int = 1_000,
    ) -> Iterator[list[Entry]]:
        """All entries behind `after` up to `until`, in blocks."""
        ...

    def find_many(self, keys: list[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
        """Entries by tenant and event id."""
        ...
