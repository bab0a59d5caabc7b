"""What verify found out about Stage 2 on a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.proof.expected_enrichment import KINDS, Numbers, add_numbers
from pipelines.proof.report import ComparisonReport
from projections.digest import digest_text


@dataclass
class EnrichmentReport(ComparisonReport):
    """What verify found.

    Attributes:
        sample: events asked for; None: all, or those of one session.
        seed: of the sample.
        events: compared.
        unread: events whose payload lies elsewhere and cannot be read now: not compared.
        without_embedding: events that have a text and no embedding, because the model failed.
        judged: events, entities and histories that were looked at again under a lock.
        numbers: digests by kind; entities, facts and sameness only of the whole graph.
    """

    target: str
    sample: int | None = None
    seed: int | None = None
    sessions: int = 0
    events: int = 0
    statements: int = 0
    entities: int = 0
    facts: int = 0
    unread: int = 0
    without_embedding: int = 0
    judged: int = 0
    numbers: Numbers = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Of all kinds together."""
        return digest_text(sum(self.numbers.values()))

    @property
    def digests(self) -> Mapping[str, str]:
        """By kind."""
        return {kind: digest_text(self.numbers[kind]) for kind in KINDS if kind in self.numbers}

    def count(self, numbers: Numbers) -> None:
        """Add to the digests."""
        add_numbers(self.numbers, numbers)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "stage": "enrichment",
            "target": self.target,
            "sample": self.sample,
            "seed": self.seed,
            "sessions": self.sessions,
            "events": self.events,
            "statements": self.statements,
            "entities": self.entities,
            "facts": self.facts,
            "digest": self.digest,
            "digests": dict(self.digests),
            "differences": [difference.as_dict() for difference in self.differences],
            "difference_count": self.difference_count,
            "repaired": self.repaired,
            "judged": self.judged,
            "unread": self.unread,
            "without_embedding": self.without_embedding,
            "dead_letter_count": self.dead_letter_count,
            "lag_entries": self.lag_entries,
            "duration_s": round(self.duration_s, 3),
        }
