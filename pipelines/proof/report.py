"""What a proof found, for a person, for JSON and for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pipelines.proof.compare import Difference

LISTED: Final = 1_000
"""Differences, dead letters and awaited parents that a report names; all are counted."""


@dataclass(slots=True)
class StageFinding:
    """What was found of one stage.

    Attributes:
        entries: of the ledger that were folded; of the columns events that were compared.
        digest: of what the ledger says the stage must have made; empty where nothing was folded.
        difference_count: differences in what it writes; one that concerns two stages is counted by
            both.
        dead_letter_count: entries that it passed without folding them.
        lag_entries: not folded yet, and so not compared.
    """

    entries: int = 0
    digest: str = ""
    difference_count: int = 0
    dead_letter_count: int = 0
    lag_entries: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": not self.difference_count,
            "entries": self.entries,
            "digest": self.digest,
            "difference_count": self.difference_count,
            "dead_letter_count": self.dead_letter_count,
            "lag_entries": self.lag_entries,
        }


@dataclass(slots=True)
class ProofReport:
    """How a graph compares with its ledger, up to the checkpoints.

    Attributes:
        target: whose graph.
        part: of which it is told; empty: all of it.
        stages: what was found of each stage that was compared, in their order; then `columns`,
            if they were.
        compared: nodes and edges that must be there, by label and type.
        differences: of the last look, the first LISTED.
        difference_count: all of them.
        found_count: of the first look, before anything was repaired.
        repaired: how many differences were repaired.
        events: that the ledger holds and the graph has taken in, forgotten ones too.
        system_events: likewise.
        unread: events whose payload, or whose answer of a language model, is not at hand any more;
            what depends on them is not compared.
        dead_letters: what stages could not fold; no differences, for the graph says so itself.
        waiting_parents: tenant and id of events that are only the cause of another so far.
        notes: what was tolerated, and why.
        duration_s: of all looks and repairs.
    """

    target: str = ""
    part: str = ""
    stages: dict[str, StageFinding] = field(default_factory=dict)
    compared: Mapping[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    found_count: int = 0
    repaired: int = 0
    events: int = 0
    system_events: int = 0
    unread: int = 0
    dead_letters: list[Mapping[str, Any]] = field(default_factory=list)
    dead_letter_count: int = 0
    waiting_parents: list[tuple[str, str]] = field(default_factory=list)
    waiting_parent_count: int = 0
    notes: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing differs. Dead letters and lag are no differences."""
        return not self.difference_count

    @property
    def digest(self) -> str:
        """Of the first stage that was compared."""
        return next((one.digest for one in self.stages.values()), "")

    @property
    def lag_entries(self) -> int:
        """Of the first stage that was compared, which the others are behind."""
        return next((one.lag_entries for one in self.stages.values()), 0)

    @property
    def scope(self) -> str:
        """What was compared, in one line."""
        things = ", ".join(f"{number:,} {name}" for name, number in self.compared.items() if number)
        part = f" of {self.part}" if self.part else ""
        return f"compared{part}: {', '.join(self.stages)}: {things or 'nothing is there'}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "target": self.target,
            "scope": self.scope,
            "events": self.events,
            "system_events": self.system_events,
            "digest": self.digest,
            "stages": {name: one.as_dict() for name, one in self.stages.items()},
            "compared": dict(self.compared),
            "differences": [one.as_dict() for one in self.differences],
            "difference_count": self.difference_count,
            "found_count": self.found_count,
            "repaired": self.repaired,
            "unread": self.unread,
            "waiting_parents": [
                {"tenant": tenant, "event_id": event_id}
                for tenant, event_id in self.waiting_parents
            ],
            "waiting_parent_count": self.waiting_parent_count,
            "dead_letters": list(map(dict, self.dead_letters)),
            "dead_letter_count": self.dead_letter_count,
            "lag_entries": self.lag_entries,
            "notes": list(self.notes),
            "duration_s": round(self.duration_s, 3),
        }
